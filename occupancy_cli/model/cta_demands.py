"""What one CTA asks of an SM, the limit that each resource sets alone, and how far the next CTA is.

    demands = cta_demands(load_gpu("h200").limits, threads_per_cta=128, registers_per_thread=168, shared_bytes=61568)
    demands.limits_by_name()             # {"shared": 3, "registers": 3, "warps": 16, "ctas": 32}
    demands.most_shared(4)               # 57344: dynamic bytes at most for four CTAs

The rules are told in `occupancy`, which puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import ComputeCapability
from occupancy_cli.model.cluster_rules import cluster_refusal

WARP_THREADS = 32
LAUNCH_MOST = 2**32 - 1  # a launch takes its sizes as 32-bit numbers (cuLaunchKernel)
TMEM_MIN_COLUMNS = 32
SHARED, REGISTERS, WARPS, CTAS, BARRIERS, TMEM, CLUSTER = (
    "shared", "registers", "warps", "ctas", "barriers", "tmem", "cluster",
)  # fmt: skip
UNITS: Mapping[str, str] = {
    SHARED: "bytes of shared memory per CTA",
    REGISTERS: "registers per thread",
    WARPS: "warps per CTA",
    TMEM: "tensor memory columns per CTA",
    BARRIERS: "barriers per CTA",
}


@dataclass(frozen=True)
class Change:
    """What one more CTA (or a given number of CTAs) asks of one resource, the others staying as they are.

    `at_most` is the largest value at which this resource no longer stands in the way (in `unit`; for shared memory the
    dynamic bytes), None when no value does; `less` is how far below `current` that is, 0 when it is not in the way.
    `alone` is True when this change by itself brings the next CTA.
    """

    resource: str
    unit: str
    current: int
    at_most: int | None
    less: int | None
    alone: bool


@dataclass(frozen=True)
class Slack:
    """How much one resource may grow, the others staying as they are, before a CTA is lost.

    `at_most` is the largest value that keeps `ctas_per_sm`, `more` its distance from `current`. When that value is
    a cap on what a launch may use at all, `capped` is True.
    """

    resource: str
    unit: str
    current: int
    at_most: int
    more: int
    capped: bool


@dataclass(frozen=True)
class NextCta:
    """What `ctas` CTAs per SM would take of each resource: one `Change` per resource.

    Iterates over the changes; `next_cta["shared"]` is one of them. `reachable` is False when no change of these
    resources together brings it (such as at the SM's limit of CTAs). `binding` names what stands in the way now.
    """

    ctas: int
    changes: tuple[Change, ...]
    binding: tuple[str, ...]
    reachable: bool

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __getitem__(self, resource: str) -> Change:
        return next(c for c in self.changes if c.resource == resource)

    def _at_most(self, resource: str) -> int | None:
        return next((c.at_most for c in self.changes if c.resource == resource), None)

    @property
    def shared_bytes(self) -> int | None:
        """Dynamic shared memory per CTA, at most; None when no amount brings the next CTA."""
        return self._at_most(SHARED)

    @property
    def registers_per_thread(self) -> int | None:
        """Registers per thread, at most; None when no number brings the next CTA, or the number now is not known."""
        return self._at_most(REGISTERS)

    @property
    def warps_per_cta(self) -> int | None:
        """Warps per CTA, at most, with the registers per thread of now; None when no number brings the next CTA."""
        return self._at_most(WARPS)


def cta_demands(
    limits: ComputeCapability,
    *,
    threads_per_cta: int,
    registers_per_thread: int | None,
    shared_bytes: int,
    static_shared_bytes: int = 0,
    carveout_bytes: int | None = None,
    num_ctas: int = 1,
    tmem_columns: int = 0,
    num_barriers: int = 1,
) -> CtaDemands:
    """The demands of one CTA; an `InputError` for a value that no launch on this compute capability can have."""
    _whole("threads_per_cta", threads_per_cta, 1, LAUNCH_MOST)
    if registers_per_thread is not None:
        _whole("registers_per_thread", registers_per_thread, 0, limits.max_registers_per_thread)
    _whole("shared_bytes", shared_bytes, 0, LAUNCH_MOST)
    _whole("static_shared_bytes", static_shared_bytes, 0, LAUNCH_MOST)
    if carveout_bytes is not None:
        _whole("carveout_bytes", carveout_bytes, 0, limits.carveouts_bytes[-1])
    _whole("num_ctas", num_ctas, 1, LAUNCH_MOST)
    _whole("num_barriers", num_barriers, 1, 16)
    _whole("tmem_columns", tmem_columns, 0, LAUNCH_MOST)
    return CtaDemands(
        limits=limits,
        warps=-(-threads_per_cta // WARP_THREADS),
        threads=threads_per_cta,
        registers=registers_per_thread,
        shared=shared_bytes,
        static=static_shared_bytes,
        preference=carveout_holding(limits, limits.shared_per_sm_bytes if carveout_bytes is None else carveout_bytes),
        tmem=tmem_columns,
        barriers=num_barriers,
        num_ctas=num_ctas,
    )


def _whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"a whole number is expected, not {value!r}", where=name, required=value)
    if value < least or (most is not None and value > most):
        bound = f"at least {least}" if most is None or most == LAUNCH_MOST > value else f"from {least} to {most:,}"
        raise InputError(f"{value:,} is not possible: it is {bound}", where=name, required=value, limit=most)


def carveout_holding(limits: ComputeCapability, needed_bytes: int) -> int:
    """The smallest shared part of the L1 array, in bytes, that holds `needed_bytes` (the largest when none does)."""
    return next((c for c in limits.carveouts_bytes if c >= needed_bytes), limits.carveouts_bytes[-1])


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def tmem_allocation(columns: int) -> int:
    """The columns that `tcgen05.alloc` takes for `columns`: the next power of two, 32 at least; 0 for none."""
    return 0 if columns == 0 else max(TMEM_MIN_COLUMNS, 1 << (columns - 1).bit_length())


@dataclass(frozen=True)
class CtaDemands:
    """One CTA's demands, and the limit each sets alone. `preference` is the carveout asked for, a supported size."""

    limits: ComputeCapability
    warps: int
    threads: int
    registers: int | None
    shared: int
    static: int
    preference: int
    tmem: int
    barriers: int
    num_ctas: int

    # The limits, each in CTAs per SM; None where the resource sets none.

    def shared_allocated(self) -> int:
        total = self.shared + self.static + self.limits.shared_reserved_per_cta_bytes
        return _round_up(total, self.limits.shared_alloc_granularity_bytes)

    def carveout(self) -> int:
        """The shared part of the L1 array that the kernel runs with, in bytes."""
        return carveout_holding(self.limits, max(self.preference, self.shared_allocated()))

    def shared_limit(self) -> int | None:
        allocated = self.shared_allocated()
        if self.shared + self.static > self.limits.shared_per_cta_optin_bytes:
            return 0
        return self.carveout() // allocated if allocated else None

    def registers_per_warp(self, registers: int) -> int:
        return _round_up(registers * WARP_THREADS, self.limits.register_alloc_unit_regs)

    def registers_allocated(self) -> int | None:
        return None if self.registers is None else self.registers_per_warp(self.registers) * self.warps

    def registers_limit(self) -> int | None:
        if self.registers is None or self.registers == 0:
            return None
        per_warp = self.registers_per_warp(self.registers)
        if (
            per_warp * _round_up(self.warps, self.limits.warp_alloc_granularity_warps)
            > self.limits.max_registers_per_cta
        ):
            return 0  # the launch check
        partitions = self.limits.sm_subpartitions
        warps_per_sm = partitions * (self.limits.registers_per_sm // partitions // per_warp)
        return warps_per_sm // self.warps

    def warps_limit(self) -> int:
        if self.threads > self.limits.max_threads_per_cta:
            return 0
        return self.limits.max_warps_per_sm // self.warps

    def barriers_limit(self) -> int:
        return self.limits.barriers_per_sm // self.barriers

    def tmem_limit(self) -> int | None:
        return self.limits.tmem_columns_per_sm // tmem_allocation(self.tmem) if self.tmem else None

    def limits_by_name(self) -> dict[str, int | None]:
        named: dict[str, int | None] = {
            SHARED: self.shared_limit(),
            REGISTERS: self.registers_limit(),
            WARPS: self.warps_limit(),
            CTAS: self.limits.max_ctas_per_sm,
        }
        if self.barriers > 1:
            named[BARRIERS] = self.barriers_limit()
        if self.tmem:
            named[TMEM] = self.tmem_limit()
        if self.num_ctas > 1:
            named[CLUSTER] = 0 if cluster_refusal(self.limits, self.num_ctas) else None
        return named

    def ctas(self) -> int:
        """CTAs per SM: the least of the limits that are known."""
        return min(limit for limit in self.limits_by_name().values() if limit is not None)

    # The largest value of one resource at which its own limit still allows `ctas`; None when no value does.

    def most_shared(self, ctas: int) -> int | None:
        limits = self.limits
        fixed = self.static + limits.shared_reserved_per_cta_bytes
        unit = limits.shared_alloc_granularity_bytes
        best: int | None = None
        smaller = -1
        for carveout in limits.carveouts_bytes:
            if carveout < self.preference:
                continue
            allocated = carveout // ctas // unit * unit
            # A carveout larger than the one asked for is taken only by a CTA that the smaller ones do not hold.
            if allocated > smaller:
                dynamic = min(allocated - fixed, limits.shared_per_cta_optin_bytes - self.static)
                if dynamic >= 0:
                    best = dynamic
            smaller = carveout
        return best

    def most_registers(self, ctas: int) -> int | None:
        limits = self.limits
        partitions = limits.sm_subpartitions
        warps_per_partition = -(-ctas * self.warps // partitions)
        checked_warps = _round_up(self.warps, limits.warp_alloc_granularity_warps)
        per_warp = min(
            limits.registers_per_sm // partitions // warps_per_partition, limits.max_registers_per_cta // checked_warps
        )
        registers = per_warp // limits.register_alloc_unit_regs * limits.register_alloc_unit_regs // WARP_THREADS
        return min(registers, limits.max_registers_per_thread) if registers else None

    def most_warps(self, ctas: int) -> int | None:
        """By the SM's warps and, where they are known, by its registers, which more warps take more of."""
        limits = self.limits
        most = min(limits.max_warps_per_sm // ctas, limits.max_threads_per_cta // WARP_THREADS)
        if self.registers:
            per_warp = self.registers_per_warp(self.registers)
            granularity = limits.warp_alloc_granularity_warps
            partitions = limits.sm_subpartitions
            warps_per_sm = partitions * (limits.registers_per_sm // partitions // per_warp)
            most = min(
                most, warps_per_sm // ctas, limits.max_registers_per_cta // per_warp // granularity * granularity
            )
        return most or None

    def most_tmem(self, ctas: int) -> int | None:
        share = self.limits.tmem_columns_per_sm // ctas
        return 1 << (share.bit_length() - 1) if share >= TMEM_MIN_COLUMNS else None

    def most_barriers(self, ctas: int) -> int | None:
        return min(16, self.limits.barriers_per_sm // ctas) or None

    def _most(self, ctas: int) -> list[tuple[str, int, int | None, tuple[str, ...]]]:
        """(resource, value now, most for `ctas`, the limits that depend on it) of every resource that is known."""
        rows: list[tuple[str, int, int | None, tuple[str, ...]]] = [
            (SHARED, self.shared, self.most_shared(ctas), (SHARED,))
        ]
        if self.registers is not None:
            rows.append((REGISTERS, self.registers, self.most_registers(ctas), (REGISTERS,)))
        rows.append((WARPS, self.warps, self.most_warps(ctas), (WARPS, REGISTERS)))
        if self.barriers > 1:
            rows.append((BARRIERS, self.barriers, self.most_barriers(ctas), (BARRIERS,)))
        if self.tmem:
            rows.append((TMEM, self.tmem, self.most_tmem(ctas), (TMEM,)))
        return rows

    def changes_for(self, target: int, by_name: Mapping[str, int | None]) -> NextCta:
        binding = tuple(name for name, limit in by_name.items() if limit is not None and limit < target)
        changes = []
        for resource, current, most, depending in self._most(target):
            others_allow = all(name in depending for name in binding)
            changes.append(
                Change(
                    resource=resource,
                    unit=UNITS[resource],
                    current=current,
                    at_most=most,
                    less=None if most is None else max(0, current - most),
                    alone=others_allow and most is not None and most < current,
                )
            )
        # One warp with the fewest registers fits as often as the SM has CTAs, so these two never rule a target out.
        reachable = (
            target <= self.limits.max_ctas_per_sm
            and CLUSTER not in binding
            and all(c.at_most is not None for c in changes if c.resource not in (WARPS, REGISTERS))
        )
        return NextCta(ctas=target, changes=tuple(changes), binding=binding, reachable=reachable)

    def slack(self, ctas: int) -> dict[str, Slack]:
        caps = {
            SHARED: self.limits.shared_per_cta_optin_bytes - self.static,
            REGISTERS: self.limits.max_registers_per_thread,
            WARPS: self.limits.max_threads_per_cta // WARP_THREADS,
            TMEM: self.limits.tmem_columns_per_sm,
            BARRIERS: 16,
        }
        found = {}
        for resource, current, most, _ in self._most(ctas):
            at_most = current if most is None else max(current, most)
            found[resource] = Slack(
                resource, UNITS[resource], current, at_most, at_most - current, at_most >= caps[resource]
            )
        return found

    def refusals(self) -> list[str]:
        """Why the launch is refused, one sentence for each limit that refuses it."""
        limits, found = self.limits, []
        cc = limits.compute_capability
        total = self.shared + self.static
        cap = limits.shared_per_cta_optin_bytes
        if total > cap:
            found.append(
                f"{total:,} bytes of shared memory per CTA are {total - cap:,} over the cap of {cap:,} (CC {cc})"
            )
        if self.threads > limits.max_threads_per_cta:
            found.append(f"{self.threads:,} threads per CTA are over the limit of {limits.max_threads_per_cta:,}")
        if self.registers_limit() == 0 and self.registers is not None:
            granularity = limits.warp_alloc_granularity_warps
            warps = _round_up(self.warps, granularity)
            needed = self.registers_per_warp(self.registers) * warps
            rounded = f" (rounded up to {warps})" if warps != self.warps else ""
            found.append(
                f"{self.registers} registers x {self.warps} warps{rounded} take {needed:,} registers per CTA, "
                f"over the limit of {limits.max_registers_per_cta:,}"
            )
        columns = limits.tmem_columns_per_sm
        if self.tmem and not columns:
            found.append(f"there is no tensor memory on CC {cc}, and the kernel takes {self.tmem:,} columns")
        elif self.tmem > columns:
            found.append(f"{self.tmem:,} columns of tensor memory are over the {columns:,} columns of an SM (CC {cc})")
        return found
