"""How many CTAs of a kernel fit on one SM, what binds, and how far the next CTA is.

    from occupancy_cli import load_gpu, occupancy
    occ = occupancy(load_gpu("rtx-pro-6000"), threads_per_cta=128, registers_per_thread=168, shared_bytes=61568)
    occ.ctas_per_sm, occ.warps_per_sm, occ.percent      # 1, 4, 8.33
    occ.limits                                          # {"shared": 1, "registers": 3, "warps": 12, "ctas": 24}
    occ.limited_by                                      # ("shared",)
    occ.next_cta.shared_bytes                           # 50176: at most this much for a second CTA
    occ.next_cta["shared"].less                         # 11392 bytes less than now
    occ.slack["shared"].more                            # 39808 bytes more before the one CTA is lost

The rules are those of the CUDA driver and of NVIDIA's `cuda_occupancy.h` (CUDA Toolkit 13):

- shared memory: dynamic + static + the bytes that the system reserves per CTA, rounded up to the allocation unit,
  against the carveout; at most the opt-in cap for one CTA. The carveout is the one asked for (rounded up to a supported
  size), or the smallest supported one that holds a CTA when the one asked for does not; the largest when none is asked.
- registers: per thread x 32, rounded up to 256, a warp. Each of the SM's four sub-partitions holds a quarter of the
  registers, so warps per SM are 4 x floor(quarter / registers of a warp). A launch is refused when the registers of a
  CTA, its warps rounded up to four, exceed the limit per CTA.
- warps: threads rounded up to whole warps, against the SM's warps; CTAs: the SM's CTAs.

Beyond that header: tensor memory (compute capability 10.x and 11.0), whose columns are allocated in powers of two of at
least 32 (PTX ISA, tcgen05.alloc). The driver does not count it: a CTA that cannot get its columns is resident and
waits in its first instructions, so it does no work, and counts here as not there.

Clusters (num_ctas > 1) are placed whole within one GPC. How many SMs each GPC of a given board has is published
nowhere, so the number of resident clusters is not known; `ctas_per_sm` is what one SM can hold, and `unknown` says so.

Every function here is pure. What is not known is None, and `unknown` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import ComputeCapability, GpuProfile
from occupancy_cli.model.resources import KernelResources

WARP_THREADS = 32
LAUNCH_MOST = 2**32 - 1  # a launch takes its sizes as 32-bit numbers (cuLaunchKernel)
UNKNOWN_REGISTERS_REASON = "the number of registers is not known, so neither is the limit they set"
# CUDA's non-portable maximum on the GPUs that have one (Hopper and Blackwell tuning guides, "Thread Block Clusters").
LARGEST_CLUSTER = 16
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


@dataclass(frozen=True)
class Occupancy:
    """CTAs of one kernel per SM of one GPU.

    `limits` has every limit as if it were alone, in CTAs per SM: "shared", "registers", "warps", "ctas" always, "tmem"
    where the kernel uses tensor memory, "barriers" where more than one named barrier is given, "cluster" for num_ctas
    > 1. None there means that the resource sets no limit, or that the limit is not known: then `unknown` has it, with
    the reason. `limited_by` names all limits equal to `ctas_per_sm`.

    `launchable` is False when a limit that is known forbids the launch: `reason` says which and by how much, and
    `over_bytes` is what shared memory is over its cap (0 when it is not). With something unknown, `ctas_per_sm` is an
    upper bound (`exact` is False).
    """

    gpu: str
    compute_capability: str
    threads_per_cta: int
    warps_per_cta: int
    registers_per_thread: int | None
    shared_bytes: int
    static_shared_bytes: int
    num_ctas: int
    tmem_columns: int
    carveout_bytes: int
    shared_allocated_bytes: int
    shared_cap_bytes: int
    registers_allocated_per_cta: int | None
    ctas_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    percent: float
    limits: Mapping[str, int | None] = field(hash=False)
    limited_by: tuple[str, ...]
    next_cta: NextCta
    slack: Mapping[str, Slack] = field(hash=False)
    launchable: bool
    reason: str
    over_bytes: int
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def exact(self) -> bool:
        """False when something unknown could still lower `ctas_per_sm`."""
        return not self.unknown


def occupancy(
    gpu: GpuProfile,
    *,
    threads_per_cta: int,
    registers_per_thread: int | None,
    shared_bytes: int,
    static_shared_bytes: int = 0,
    carveout_bytes: int | None = None,
    num_ctas: int = 1,
    tmem_columns: int = 0,
    num_barriers: int = 1,
) -> Occupancy:
    """The occupancy of a kernel on `gpu`.

    `threads_per_cta` counts every thread of a CTA, those of warp-specialized partitions included (the compiled
    metadata has it; `num_warps` x 32 is too few there). `registers_per_thread` is None when the compile stopped before
    ptxas: the register limit is then unknown. `shared_bytes` is dynamic shared memory per CTA as launched (Triton's
    `metadata.shared`), `static_shared_bytes` the static part, neither with the 1 KB that the system reserves.
    `carveout_bytes` asks for a split of the L1 array, None for the largest shared part. `num_ctas` is the size of a
    cluster, `tmem_columns` the tensor memory of a CTA, `num_barriers` the named barriers it uses.

    Raises `InputError` for what no launch can have: fewer than 1 thread, more than 255 registers per thread, negative
    bytes. What a launch can ask for and the GPU refuses (1,056 threads, too much shared memory, tensor memory that is
    not there) is an answer: `launchable` False, with the reason.
    """
    limits = gpu.limits
    kernel = _kernel(
        limits,
        threads_per_cta=threads_per_cta,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        static_shared_bytes=static_shared_bytes,
        carveout_bytes=carveout_bytes,
        num_ctas=num_ctas,
        tmem_columns=tmem_columns,
        num_barriers=num_barriers,
    )
    unknown: dict[str, str] = {}
    by_name: dict[str, int | None] = kernel.limits_by_name()
    if registers_per_thread is None:
        unknown[REGISTERS] = UNKNOWN_REGISTERS_REASON
    cluster_reason = cluster_refusal(limits, num_ctas)
    if num_ctas > 1 and not cluster_reason:
        unknown[CLUSTER] = cluster_unknown(limits, num_ctas)

    known = [limit for limit in by_name.values() if limit is not None]
    ctas = min(known)
    allocated = kernel.shared_allocated()
    over = max(0, shared_bytes + static_shared_bytes - limits.shared_per_cta_optin_bytes)
    return Occupancy(
        gpu=gpu.id,
        compute_capability=gpu.compute_capability,
        threads_per_cta=threads_per_cta,
        warps_per_cta=kernel.warps,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        static_shared_bytes=static_shared_bytes,
        num_ctas=num_ctas,
        tmem_columns=tmem_columns,
        carveout_bytes=kernel.carveout(),
        shared_allocated_bytes=allocated,
        shared_cap_bytes=limits.shared_per_cta_optin_bytes,
        registers_allocated_per_cta=kernel.registers_allocated(),
        ctas_per_sm=ctas,
        warps_per_sm=ctas * kernel.warps,
        max_warps_per_sm=limits.max_warps_per_sm,
        percent=100.0 * ctas * kernel.warps / limits.max_warps_per_sm,
        limits=by_name,
        limited_by=tuple(name for name, limit in by_name.items() if limit == ctas),
        next_cta=kernel.changes_for(ctas + 1, by_name),
        slack=kernel.slack(ctas) if ctas else {},
        launchable=ctas > 0,
        reason="" if ctas else "; ".join(r for r in (*kernel.refusals(), cluster_reason) if r),
        over_bytes=over,
        unknown=unknown,
    )


@functools.lru_cache(maxsize=4096)
def occupancy_of(gpu: GpuProfile, resources: KernelResources) -> Occupancy:
    """The occupancy of a compiled kernel: `occupancy` with what the compiler reported. Points of a sweep share it."""
    return occupancy(
        gpu,
        threads_per_cta=resources.threads_per_cta,
        registers_per_thread=resources.registers_per_thread,
        shared_bytes=resources.shared_bytes,
        static_shared_bytes=resources.static_shared_bytes,
        num_ctas=resources.num_ctas,
        tmem_columns=resources.tmem_columns,
    )


@dataclass(frozen=True)
class Plateau:
    """A range of one resource, both ends included, over which CTAs per SM stay the same, the other resources fixed.

    `limited_by` names what binds at `most`.
    """

    least: int
    most: int
    ctas_per_sm: int
    warps_per_sm: int
    percent: float
    limited_by: tuple[str, ...]


def refusal(gpu: GpuProfile, **kernel: Any) -> str:
    """Why the launch is refused, "" when it is not: `Occupancy.reason` by itself; arguments as `occupancy`'s."""
    demands = _kernel(gpu.limits, **kernel)
    return "; ".join(r for r in (*demands.refusals(), cluster_refusal(gpu.limits, demands.num_ctas)) if r)


def cliffs(gpu: GpuProfile, **kernel: Any) -> tuple[NextCta, ...]:
    """What each number of CTAs per SM, from 1 to the SM's limit, takes of each resource; arguments as `occupancy`'s.

    One resource at a time: every `Change` leaves the other resources as they are.
    """
    demands = _kernel(gpu.limits, **kernel)
    by_name = demands.limits_by_name()
    return tuple(demands.changes_for(ctas, by_name) for ctas in range(1, gpu.limits.max_ctas_per_sm + 1))


def sweep(gpu: GpuProfile, resource: str, **kernel: Any) -> tuple[Plateau, ...]:
    """CTAs per SM over every value that `resource` can have, as ranges; the other arguments as `occupancy`'s.

    `resource` is "shared" (dynamic bytes, 0 to the cap), "registers" (1 to 255) or "warps" (1 to 32, one range each,
    as warps per SM differ even where CTAs do not). The last range of shared memory ends at the cap of a launch.
    """
    demands = _kernel(gpu.limits, **kernel)
    limits = gpu.limits
    if resource == SHARED:
        cap = limits.shared_per_cta_optin_bytes - demands.static
        ends = {m for n in range(1, limits.max_ctas_per_sm + 1) if (m := demands.most_shared(n)) is not None} | {cap}
        points = [replace(demands, shared=end) for end in sorted(e for e in ends if 0 <= e <= cap)]
    elif resource == REGISTERS:
        points = [replace(demands, registers=r) for r in range(1, limits.max_registers_per_thread + 1)]
    elif resource == WARPS:
        points = [
            replace(demands, warps=w, threads=w * WARP_THREADS)
            for w in range(1, limits.max_threads_per_cta // WARP_THREADS + 1)
        ]
    else:
        raise unknown_name("resource", resource, (SHARED, REGISTERS, WARPS), where="sweep")
    found: list[Plateau] = []
    for point in points:
        by_name = point.limits_by_name()
        ctas = min(limit for limit in by_name.values() if limit is not None)
        value = {SHARED: point.shared, REGISTERS: point.registers or 0, WARPS: point.warps}[resource]
        least = found[-1].most + 1 if found else (0 if resource == SHARED else 1)
        if found and resource != WARPS and found[-1].ctas_per_sm == ctas:
            least = found.pop().least
        found.append(
            Plateau(
                least=least,
                most=value,
                ctas_per_sm=ctas,
                warps_per_sm=ctas * point.warps,
                percent=100.0 * ctas * point.warps / limits.max_warps_per_sm,
                limited_by=tuple(name for name, limit in by_name.items() if limit == ctas),
            )
        )
    return tuple(found)


def check_inputs(
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
) -> None:
    """Raise an `InputError` for a value that no launch on this compute capability can have."""
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


def _kernel(
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
) -> _Kernel:
    """The checked demands of one CTA."""
    check_inputs(
        limits,
        threads_per_cta=threads_per_cta,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        static_shared_bytes=static_shared_bytes,
        carveout_bytes=carveout_bytes,
        num_ctas=num_ctas,
        tmem_columns=tmem_columns,
        num_barriers=num_barriers,
    )
    return _Kernel(
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
class _Kernel:
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


def cluster_refusal(limits: ComputeCapability, num_ctas: int) -> str:
    """Why a cluster of `num_ctas` CTAs cannot launch on this compute capability; "" when no known limit forbids it."""
    if num_ctas == 1:
        return ""
    if not limits.cluster_supported:
        return f"compute capability {limits.compute_capability} has no clusters, so num_ctas is 1"
    most = limits.max_cluster_size_nonportable
    if most is not None and num_ctas > most:
        return f"a cluster of {num_ctas} CTAs is over the limit of {most} (CC {limits.compute_capability})"
    if num_ctas > LARGEST_CLUSTER:
        return f"a cluster of {num_ctas} CTAs is over {LARGEST_CLUSTER}, the largest that any GPU takes"
    return ""


def cluster_doubt(limits: ComputeCapability, num_ctas: int) -> str:
    """Why it is not certain that a cluster of `num_ctas` CTAs launches, where nothing known forbids it; "" when it is.

    Up to the portable size every GPU of the compute capability takes it; beyond, only what is documented.
    """
    if num_ctas == 1 or cluster_refusal(limits, num_ctas):
        return ""
    certain = [n for n in (limits.max_cluster_size_nonportable, limits.max_cluster_size_portable) if n is not None]
    entry = limits.provenance.get("max_cluster_size_portable")
    if entry is not None and limits.max_cluster_size_nonportable is None:
        certain += [d.value for d in entry.disputed if isinstance(d.value, int)]
        least = min(certain)
    else:
        least = max(certain, default=1)
    if num_ctas <= least:
        return ""
    return f"whether compute capability {limits.compute_capability} takes a cluster of {num_ctas} CTAs is not certain"


def cluster_unknown(limits: ComputeCapability, num_ctas: int) -> str:
    """What is not known of a cluster of `num_ctas` CTAs (at least 2) that nothing known forbids."""
    text = (
        f"the {num_ctas} CTAs of a cluster share one GPC, and how many SMs each GPC has is not published: "
        "the number of resident clusters is not known"
    )
    portable = limits.max_cluster_size_portable
    if portable is not None and num_ctas > portable and limits.max_cluster_size_nonportable is None:
        return (
            f"a cluster of {num_ctas} is over the portable size of {portable}, and no larger one is documented; {text}"
        )
    entry = limits.provenance.get("max_cluster_size_portable")
    doubted = [d.value for d in entry.disputed if isinstance(d.value, int)] if entry else []
    if doubted and min(doubted) < num_ctas:
        return (
            f"the largest cluster of CC {limits.compute_capability} is disputed ({portable} or {min(doubted)}); {text}"
        )
    return text
