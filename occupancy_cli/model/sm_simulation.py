"""How long an SM takes over a kernel's instructions: a simulation of one scheduler, from the kernel's own SASS.

The compiler writes into every instruction how many cycles to stall after it and which scoreboards to wait for
(`readers.sass` reads both). With the rate of each pipe and the latency of memory that is enough to run the warps of one
scheduler in order, as the hardware does, and to see what an iteration of the main loop costs one CTA alone and how much
slower it gets with each CTA more on the SM. An SM's schedulers run alike, so one is simulated and what they share
(shared memory and L1, the path to the L2) is taken to be used by all of them at once.

What is modelled: in-order issue, one instruction a cycle; stall counts and scoreboards; the pipes' issue intervals;
wavefronts of shared and global accesses, with one 128-byte line of the L1 looked up a cycle; asynchronous copies and
warpgroup products with their commit groups; barriers; instruction supply of loops larger than 32 KB; local memory that
outgrows the L1. What is not: divergence (the fall-through path is taken), bank conflicts, atomics, warp specialization.

What an instruction costs is in `instruction_costs`, the rates of an SM in `gpu.sm_rates`. No figure comes from a timed
kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.sm_rates import (
    L2_BYTES_PER_CYCLE_FEW_SMS,
    L2_WRITE_BYTES_PER_CYCLE_FEW_SMS,
    SCHEDULERS_PER_SM,
    SmRates,
)
from occupancy_cli.model.instruction_costs import UNITS, Step, Touch, cost_of, is_cached_load, writes
from occupancy_cli.model.kernel_timing import AtRate, KernelTiming

_L1_LATENCY = 39  # a chain of loads takes 43.6 cycles, the address of each included (H200)
_QUEUE_CYCLES = 32  # work of the memory pipe that may be queued before a scheduler stalls
_LOOP_BYTES_SUPPLIED = 32768  # larger straight code is supplied at half an instruction a cycle to one warp
_BRANCH_CYCLES = 12
_MOST_STEPS = 4_000_000  # warp instructions to simulate for one memory latency, before counts of residents are left out


@dataclass(frozen=True)
class WarpPath:
    """The instructions of one warp: before the main loop, one pass of it, and after it.

    A pass covers `iterations_per_pass` iterations of the source's loop (more than 1 when the compiler unrolled it);
    a kernel without a loop has an empty `loop`, and everything in `before`.
    """

    before: tuple[Step, ...]
    loop: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    iterations_per_pass: float = 1.0

    @property
    def has_loop(self) -> bool:
        return bool(self.loop)


def residents_to_simulate(ctas_per_sm: int) -> tuple[int, ...]:
    """1 to 4 and then every doubling, up to `ctas_per_sm`."""
    steps = [r for r in (1, 2, 3, 4, 8, 16, 32) if r < ctas_per_sm]
    return (*steps, max(ctas_per_sm, 1))


def time_path(
    path: WarpPath,
    rates: SmRates,
    num_warps: int,
    ctas_per_sm: int,
    lines_by_bytes: Mapping[int, float] | None = None,
    traffic_by_bytes: Mapping[int, float] | None = None,
    local_bytes_per_thread: int = 0,
    l1_bytes: int | None = None,
    misses_by_bytes: Mapping[int, float] | None = None,
) -> KernelTiming:
    """Simulate `path` for CTAs of `num_warps` warps with 1 to `ctas_per_sm` of them on an SM.

    `lines_by_bytes` maps the bytes a lane loads from global memory at once (1, 2, 4, 8, 16) to the 128-byte lines that
    a warp's load touches; without an entry the lanes are taken to be contiguous. `traffic_by_bytes` maps the same to
    the bytes that come from beyond the L1 for each byte asked for; without an entry, all of them. `misses_by_bytes`
    maps it to the loads of a warp that find nothing of theirs in the L1, once before, in each pass of and after the
    loop; without an entry, all of them do.
    `local_bytes_per_thread` (spills) of all residents together are held by the L1 up to `l1_bytes`, and come from the
    L2 beyond.
    """
    if num_warps < 1 or ctas_per_sm < 1:
        raise InputError(f"{num_warps} warps and {ctas_per_sm} CTAs/SM cannot be simulated", where="pipeline")
    residents = residents_to_simulate(ctas_per_sm)
    steps = (len(path.before) + len(path.after)) * 2 + len(path.loop) * (1 + _PASSES)
    if steps * num_warps * sum(residents) > _MOST_STEPS:
        residents = (1,) if ctas_per_sm == 1 else (1, ctas_per_sm)
    touch = Touch(lines_by_bytes or {}, traffic_by_bytes or {}, misses_by_bytes or {})
    slow = rates.l2_bytes_per_cycle
    if rates.dram_bytes_per_cycle is not None:
        slow = min(slow, rates.dram_bytes_per_cycle)
    wide = max(L2_BYTES_PER_CYCLE_FEW_SMS, rates.l2_bytes_per_cycle)

    def at(latency: float, bytes_per_cycle: float, counts: Sequence[int], written: float) -> AtRate:
        """Simulated with loads that come at that rate: in the loop at most the memory's, elsewhere the L2's."""
        used = replace(
            rates,
            l2_bytes_per_cycle=max(bytes_per_cycle, rates.l2_bytes_per_cycle),
            dram_bytes_per_cycle=bytes_per_cycle,
            l2_write_bytes_per_cycle=written,
        )
        found = []
        for count in counts:
            outgrown = l1_bytes is not None and local_bytes_per_thread * 32 * num_warps * count > l1_bytes
            found.append(_Machine(used, latency, num_warps, touch, outgrown).run(path, count))
        return AtRate(bytes_per_cycle, tuple(start for start, _ in found), tuple(it for _, it in found))

    latencies = (rates.near_latency_cycles, rates.far_latency_cycles)
    written = rates.l2_write_bytes_per_cycle
    near, *faster_near = (
        at(latencies[0], rate, residents, written) for rate in sorted({rates.l2_bytes_per_cycle, wide})
    )
    far, *faster_far = (
        at(latencies[1], rate, residents, written) for rate in sorted({slow, rates.l2_bytes_per_cycle, wide})
    )
    few_written = max(L2_WRITE_BYTES_PER_CYCLE_FEW_SMS, written)
    few_near, few_far = (at(latency, wide, (1,), few_written) for latency in latencies)
    return KernelTiming(
        residents,
        rates.near_latency_cycles,
        rates.far_latency_cycles,
        near.start,
        far.start,
        near.iteration,
        far.iteration,
        _unit_cycles(path, rates, num_warps, touch),
        (*rates.assumed, *_not_modelled(path)),
        near.bytes_per_cycle,
        far.bytes_per_cycle,
        tuple(faster_near),
        tuple(faster_far),
        few_near,
        few_far,
    )


def _not_modelled(path: WarpPath) -> list[tuple[str, str]]:
    """What the path holds that the simulation passes over."""
    opcodes = {step.opcode.split(".", 1)[0] for step in (*path.before, *path.loop, *path.after)}
    found = []
    if any(opcode.startswith("UTC") and opcode.endswith("MMA") for opcode in opcodes):
        found.append(("waits for tensor-memory products", "left out of an iteration; their rate is not"))
    if opcodes & {"RED", "ATOM", "ATOMG", "REDG"}:
        found.append(("atomics", "timed as loads and stores without contention"))
    return found


def _unit_cycles(path: WarpPath, rates: SmRates, num_warps: int, touch: Touch) -> tuple[tuple[str, float], ...]:
    """Cycles that one CTA's iteration (or the whole CTA, without a loop) occupies each unit of the SM."""
    per_scheduler = max(num_warps / SCHEDULERS_PER_SM, 1.0)
    total = dict.fromkeys(UNITS, 0.0)
    body = path.loop or path.before
    for step in body:
        cost = cost_of(step.opcode, rates, rates.near_latency_cycles, False, *touch.of(step.opcode))
        total["issue"] += per_scheduler
        if cost.pipe in ("fma", "fma_heavy"):
            total["fma"] += cost.issue * per_scheduler
        elif cost.pipe in total:
            total[cost.pipe] += cost.issue * per_scheduler
        total["shared memory and L1"] += cost.shared * num_warps
        if not writes(step.opcode):
            total["L2 path"] += cost.l2_bytes / rates.l2_bytes_per_cycle * num_warps
    passes = path.iterations_per_pass if path.has_loop else 1.0
    return tuple((unit, cycles / passes) for unit, cycles in total.items())


# ---------------------------------------------------------------------------------------------------------------------
# The simulation.

_PASSES = 3  # of the loop, beside a run with one

# How an instruction takes part beyond its cost.
(
    _PLAIN,
    _COPY,
    _COMMIT,
    _WAIT_COPY,
    _BARRIER,
    _PRODUCT,
    _PRODUCT_END,
    _WAIT_PRODUCT,
    _BRANCH,
    _STORE,
    _TMA,
    _WAIT_TMA,
    _LOAD,
    _HIT,
) = range(14)


def _kind(step: Step) -> int:
    opcode = step.opcode
    base = opcode.split(".", 1)[0]
    if base == "LDGSTS":
        return _COPY
    if base == "LDGDEPBAR":
        return _COMMIT
    if base == "DEPBAR":
        return _WAIT_COPY if step.allowed >= 0 else _PLAIN
    if base == "BAR" and "ARV" not in opcode:
        return _BARRIER
    if base == "WARPGROUP":
        return _WAIT_PRODUCT if step.allowed >= 0 else _PLAIN
    if base in ("HGMMA", "QGMMA", "IGMMA"):
        return _PRODUCT_END if step.allowed == 0 else _PRODUCT
    if base in ("UTMALDG", "UBLKCP"):
        return _TMA
    if base == "SYNCS" and "TRYWAIT" in opcode:
        return _WAIT_TMA
    if base == "BRA":
        return _BRANCH
    if writes(opcode):
        return _STORE
    if is_cached_load(opcode):
        return _LOAD
    return _PLAIN


class _Machine:
    """One scheduler of an SM, and its share of what the SM's schedulers have in common."""

    def __init__(self, rates: SmRates, latency: float, num_warps: int, touch: Touch, outgrown: bool) -> None:
        self.rates = rates
        self.latency = latency
        self.load_bytes_per_cycle = rates.l2_bytes_per_cycle
        if rates.dram_bytes_per_cycle is not None:
            self.load_bytes_per_cycle = min(rates.l2_bytes_per_cycle, rates.dram_bytes_per_cycle)
        self.num_warps = num_warps
        self.touch = touch
        self.outgrown = outgrown

    def run(self, path: WarpPath, ctas: int) -> tuple[float, float]:
        """(cycles of a CTA beyond its iterations, cycles of one iteration) with `ctas` CTAs started together."""
        before, after = self._program(path.before), self._program(path.after)
        loop = self._program(path.loop, self.load_bytes_per_cycle)
        supply = 2 if 16 * len(loop) > _LOOP_BYTES_SUPPLIED else 1
        once = self._simulate(before + loop + after, ctas, supply)
        if not loop:
            return once, 0.0
        # The first pass fills the pipeline. CTAs drift apart, so only the end of all of them tells their pace.
        more = self._simulate(before + loop * _PASSES + after, ctas, supply)
        one_pass = (more - once) / (_PASSES - 1)
        return max(once - one_pass, 0.0), one_pass / path.iterations_per_pass

    def _program(self, steps: Sequence[Step], load_bytes_per_cycle: float | None = None) -> list[tuple[Any, ...]]:
        """Steps with their costs resolved, as tuples for the inner loop.

        Loads come at `load_bytes_per_cycle`, else at the L2's rate, as everything else does: stores and spilled
        registers stay in the L2, and what a CTA reads but once it mostly shares with others.
        """
        program = []
        hits = self.touch.hits(steps)
        for place, step in enumerate(steps):
            cost = cost_of(step.opcode, self.rates, self.latency, self.outgrown, *self.touch.of(step.opcode))
            waits = tuple(b for b in range(6) if step.wait_mask >> b & 1)
            loads = load_bytes_per_cycle is not None and step.opcode.startswith(("LDG", "LD."))
            rate = load_bytes_per_cycle if loads and load_bytes_per_cycle else self.rates.l2_bytes_per_cycle
            path_cycles = cost.l2_bytes / (self.rates.l2_write_bytes_per_cycle if writes(step.opcode) else rate)
            program.append(
                (
                    _HIT if place in hits else _kind(step),
                    None if cost.pipe in ("control", "barrier") else cost.pipe, cost.issue, cost.shared,
                    _L1_LATENCY if place in hits else cost.latency, cost.release, path_cycles, waits, step.write_barrier, step.read_barrier,  # noqa: E501
                    max(step.stall, 1), step.allowed,
                )
            )  # fmt: skip
        return program

    def _simulate(self, program: list[tuple[Any, ...]], ctas: int, supply: int) -> float:
        """Cycle at which the last warp, or its last store, is done; a warp issues at most every `supply` cycles."""
        warps = max(-(-self.num_warps * ctas // SCHEDULERS_PER_SM), 1)
        schedulers = min(SCHEDULERS_PER_SM, self.num_warps * ctas)
        per_cta = max(self.num_warps // SCHEDULERS_PER_SM, 1)
        barrier_cycles = 13 + 2 * self.num_warps
        length = len(program)
        pipes: dict[str, float] = {}
        issue_free = memory_free = l2_free = written_free = 0.0
        at = [0] * warps
        boards = [[0.0] * 6 for _ in range(warps)]
        copies: list[list[float]] = [[] for _ in range(warps)]
        open_copy = [0.0] * warps
        missed = [0.0] * warps  # when the last load that missed the L1 arrives
        products: list[list[float]] = [[] for _ in range(warps)]
        tma: list[list[float]] = [[] for _ in range(warps)]
        waiting: dict[int, list[int]] = {}
        heap: list[tuple[float, int]] = [(0.1 * w, w) for w in range(warps)]
        heapq.heapify(heap)
        end = 0.0
        while heap:
            now, w = heap[0]
            kind, pipe, issue, shared, latency, release, path_cycles, waits, wb, rb, stall, allowed = program[at[w]]
            ready = now if now > issue_free else issue_free
            if waits:
                board = boards[w]
                for b in waits:
                    if board[b] > ready:
                        ready = board[b]
            if pipe is not None:
                free = pipes.get(pipe, 0.0)
                if free > ready:
                    ready = free
                if shared and memory_free - _QUEUE_CYCLES > ready:
                    ready = memory_free - _QUEUE_CYCLES
            if kind == _WAIT_COPY and len(copies[w]) > allowed:
                ready = max(ready, copies[w][len(copies[w]) - allowed - 1])
            elif kind == _WAIT_PRODUCT and len(products[w]) > allowed:
                ready = max(ready, products[w][len(products[w]) - allowed - 1])
            elif kind == _WAIT_TMA and tma[w]:
                ready = max(ready, tma[w][0])
            if ready > now:
                heapq.heapreplace(heap, (ready, w))
                continue
            issue_free = now + 1
            done, read = now + latency, now + release
            if pipe is not None:
                pipes[pipe] = now + issue
                if shared:
                    memory_free = (memory_free if memory_free > now else now) + shared * schedulers
                    done, read = memory_free + latency, memory_free + release
                if path_cycles and kind == _STORE:
                    written_free = (written_free if written_free > now else now) + path_cycles * schedulers
                elif path_cycles:
                    l2_free = (l2_free if l2_free > now else now) + path_cycles * schedulers
                    if l2_free + latency > done:
                        done = l2_free + latency
            if kind == _LOAD:
                missed[w] = done
            elif kind == _HIT and missed[w] > done:
                done = missed[w]  # its line is still on the way
            if wb < 6 and done > boards[w][wb]:
                boards[w][wb] = done
            if rb < 6 and read > boards[w][rb]:
                boards[w][rb] = read
            following = now + (stall if stall > supply else supply)
            if kind:
                if kind == _COPY:
                    open_copy[w] = max(open_copy[w], done)
                elif kind == _COMMIT:
                    copies[w].append(open_copy[w])
                elif kind == _PRODUCT_END:
                    products[w].append(done)
                elif kind == _TMA:
                    tma[w].append(done)
                elif kind == _WAIT_TMA and tma[w]:
                    tma[w].pop(0)
                elif kind == _BRANCH:
                    following = max(following, now + _BRANCH_CYCLES)
                elif kind == _STORE and written_free > end:
                    end = written_free
            at[w] += 1
            if now > end:
                end = now
            if at[w] == length:
                heapq.heappop(heap)
            elif kind == _BARRIER:
                heapq.heappop(heap)
                group = waiting.setdefault(w // per_cta, [])
                group.append(w)
                if len(group) == min(per_cta, warps - w // per_cta * per_cta):
                    for each in group:
                        heapq.heappush(heap, (now + barrier_cycles, each))
                    group.clear()
            else:
                heapq.heapreplace(heap, (following, w))
        return end
