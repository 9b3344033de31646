"""How long an SM takes over a kernel's instructions: a simulation of one scheduler, from the kernel's own SASS.

The compiler writes into every instruction how many cycles to stall after it and which scoreboards to wait for
(`readers.sass` reads both). With the rate of each pipe and the latency of memory that is enough to run the warps of
one scheduler in order, as the hardware does, and to see what an iteration of each loop, and what lies outside them,
costs one CTA alone on its SM. How CTAs slow each other follows from what each keeps the units of the SM busy
(`launch_time`). An SM's schedulers run alike, so one is simulated and what they share (shared memory and L1, the path
to the L2) is taken to be used by all of them at once.

What is modelled: in-order issue, one instruction a cycle; stall counts and scoreboards; the pipes' issue intervals;
wavefronts of shared and global accesses, with one 128-byte line of the L1 looked up a cycle; asynchronous copies and
warpgroup products with their commit groups; barriers; instruction supply of loops larger than 32 KB; local memory that
outgrows the L1. What is not: divergence (the fall-through path is taken), bank conflicts, atomics, warp specialization.

What an instruction costs is in `instruction_costs`, the rates of an SM in `gpu.sm_rates`. No figure comes from a timed
kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.sm_rates import SCHEDULERS_PER_SM, SmRates
from occupancy_cli.model.instruction_costs import (
    NOTHING_TOUCHED,
    UNITS,
    Touch,
    access_bytes,
    cost_of,
    writes,
)
from occupancy_cli.model.kernel_timing import KernelTiming, PartTiming
from occupancy_cli.model.step_kinds import (
    BARRIER,
    BRANCH,
    COMMIT,
    CONSTANT,
    COPY,
    GROUP_OF,
    HIT,
    LOAD,
    PRODUCT_END,
    STORE,
    TMA,
    UNIFORM_CONSTANT,
    WAIT_COPY,
    WAIT_PRODUCT,
    WAIT_TMA,
    kind_of,
)
from occupancy_cli.model.wait_trace import ColdStart, PathTrace, WaitRecorder
from occupancy_cli.model.warp_path import WarpPath, directly_around, turned

_L1_LATENCY = 39  # a chain of loads takes 43.6 cycles, the address of each included (H200)
_QUEUE_CYCLES = 32  # work of the memory pipe that may be queued before a scheduler stalls
_LOOP_BYTES_SUPPLIED = 32768  # larger straight code is supplied at half an instruction a cycle to one warp
_BRANCH_CYCLES = 12


def time_path(
    path: WarpPath,
    rates: SmRates,
    num_warps: int,
    ctas_per_sm: int,
    touched: Mapping[int, Touch] | None = None,
    local_bytes_per_thread: int = 0,
    l1_bytes: int | None = None,
) -> KernelTiming:
    """Simulate `path` for a CTA of `num_warps` warps that is alone on its SM.

    `touched` says of each part how its loads touch memory; without an entry lanes are contiguous and everything comes
    from beyond the L1. Loads come at the rate that an SM gets of the L2 while few SMs read: what all of them together
    may take is not a matter of one SM (`launch_time`).
    `local_bytes_per_thread` (spills) of `ctas_per_sm` CTAs together are held by the L1 up to `l1_bytes`, and come from
    the L2 beyond.
    """
    if num_warps < 1 or ctas_per_sm < 1:
        raise InputError(f"{num_warps} warps and {ctas_per_sm} CTAs/SM cannot be simulated", where="simulation")
    touch = touched or {}
    outgrown = l1_bytes is not None and local_bytes_per_thread * 32 * num_warps * ctas_per_sm > l1_bytes

    def simulated(latency: float) -> dict[int, float]:
        return _Machine(rates, latency, num_warps, touch, outgrown).run(path)

    near, far = simulated(rates.near_latency_cycles), simulated(rates.far_latency_cycles)
    parts = tuple(
        PartTiming(
            part,
            cycles,
            max(far[part], cycles),
            _unit_cycles(path, part, rates, num_warps, touch.get(part, NOTHING_TOUCHED), outgrown),
            _local_bytes(path, part, "LDL", num_warps),
            _local_bytes(path, part, "STL", num_warps),
        )
        for part, cycles in near.items()
    )
    return KernelTiming(
        rates.near_latency_cycles, rates.far_latency_cycles, parts, (*rates.assumed, *_not_modelled(path))
    )


def trace_path(
    path: WarpPath,
    rates: SmRates,
    num_warps: int,
    ctas_per_sm: int,
    turns: Mapping[int, float],
    start: ColdStart,
    touched: Mapping[int, Touch] | None = None,
    local_bytes_per_thread: int = 0,
    l1_bytes: int | None = None,
) -> PathTrace:
    """What the warps of `ctas_per_sm` CTAs wait for, the first on their SM, with data that comes from the memory at the
    rates given.

    `turns` says of each part how many passes the loop makes each time that it is entered; the other arguments are those
    of `time_path`. Loops of many passes are simulated with a few of them.
    """
    outgrown = l1_bytes is not None and local_bytes_per_thread * 32 * num_warps * ctas_per_sm > l1_bytes
    machine = _Machine(rates, rates.far_latency_cycles, num_warps, touched or {}, outgrown)
    return machine.trace(path, ctas_per_sm, turns, start)


def _not_modelled(path: WarpPath) -> list[tuple[str, str]]:
    """What the path holds that the simulation passes over."""
    opcodes = {step.opcode.split(".", 1)[0] for step in path.steps}
    found = []
    if any(opcode.startswith("UTC") and opcode.endswith("MMA") for opcode in opcodes):
        found.append(("waits for tensor-memory products", "left out of an iteration; their rate is not"))
    if opcodes & {"RED", "ATOM", "ATOMG", "REDG"}:
        found.append(("atomics", "timed as loads and stores without contention"))
    return found


def _unit_cycles(
    path: WarpPath, part: int, rates: SmRates, num_warps: int, touch: Touch, outgrown: bool
) -> tuple[tuple[str, float], ...]:
    """Cycles that one iteration of a part of one CTA (part 0: a CTA) occupies each unit of the SM."""
    # Of fewer warps than schedulers each keeps one busy: so much of the four.
    per_scheduler = num_warps / SCHEDULERS_PER_SM
    total = dict.fromkeys(UNITS, 0.0)
    own = path.own(part)
    # A loop is supplied as often as it turns, what lies outside as often as CTAs follow one another.
    supply = _supply(len(own) if part else max(len(path.steps), path.instructions))
    for step in own:
        cost = cost_of(step, rates, rates.near_latency_cycles, outgrown, *touch.of(step.opcode))
        total["issue"] += per_scheduler * supply
        if cost.pipe in ("fma", "fma_heavy"):
            total["fma"] += cost.issue * per_scheduler
        elif cost.pipe in total:
            total[cost.pipe] += cost.issue * per_scheduler
        total["shared memory and L1"] += cost.shared * num_warps
    passes = _passes(path, part)
    return tuple((unit, cycles / passes) for unit, cycles in total.items())


def _local_bytes(path: WarpPath, part: int, opcode: str, num_warps: int) -> float:
    """Bytes of local memory that the instructions called `opcode` of one iteration of a part of a CTA move."""
    lanes = 32.0 * num_warps
    moved = sum(lanes * access_bytes(s.opcode) for s in path.own(part) if s.opcode.split(".", 1)[0] == opcode)
    return moved / _passes(path, part)


def _passes(path: WarpPath, part: int) -> float:
    """Iterations of the source's loop that one pass of a part's code covers."""
    return next((loop.iterations_per_pass for loop in path.loops if loop.part == part), 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# The simulation.

_PASSES = 3  # of a loop, beside a run with one
_MOST_TRACED = 40_000  # steps of a traced program with several passes of loops inside loops


def _supply(instructions: int) -> int:
    """Cycles between two instructions of straight code of that length, by what supplies them."""
    return 2 if 16 * instructions > _LOOP_BYTES_SUPPLIED else 1


class _Machine:
    """One scheduler of an SM, and its share of what the SM's schedulers have in common."""

    def __init__(
        self, rates: SmRates, latency: float, num_warps: int, touched: Mapping[int, Touch], outgrown: bool
    ) -> None:
        self.rates = rates
        self.latency = latency
        self.num_warps = num_warps
        self.touched = touched
        self.outgrown = outgrown

    def run(self, path: WarpPath) -> dict[int, float]:
        """Cycles of a CTA beyond its loops (part 0) and of one iteration of each loop."""
        resolved = self._resolved(path)
        slowest = max(
            (_supply(loop.last - loop.first) for loop in path.loops),
            default=_supply(max(len(path.steps), path.instructions)),
        )
        once = self._simulate(resolved, slowest)
        # The first pass fills the pipeline.
        passes = {}
        for loop in path.loops:
            program = resolved[: loop.first] + resolved[loop.first : loop.last] * _PASSES + resolved[loop.last :]
            passes[loop] = (self._simulate(program, slowest) - once) / (_PASSES - 1)
        found = {0: max(once - sum(c for loop, c in passes.items() if not directly_around(loop, path.loops)), 0.0)}
        for loop, cycles in passes.items():
            inner = [each for each in path.loops if loop.holds(each) and directly_around(each, path.loops) == loop]
            own = max(cycles - sum(passes[each] for each in inner), 0.0)
            found[loop.part] = own / loop.iterations_per_pass
        return found

    def _resolved(self, path: WarpPath) -> list[tuple[Any, ...]]:
        """Steps with their costs resolved, as tuples for the inner loop."""
        part_of = [0] * len(path.steps)
        for loop in sorted(path.loops, key=lambda each: each.first - each.last):
            part_of[loop.first : loop.last] = [loop.part] * (loop.last - loop.first)
        hits: set[int] = set()
        for part, touch in self.touched.items():
            mine = [i for i, of in enumerate(part_of) if of == part]
            hits |= {mine[i] for i in touch.hits([path.steps[i] for i in mine])}
        program = []
        for place, step in enumerate(path.steps):
            touch = self.touched.get(part_of[place], NOTHING_TOUCHED)
            cost = cost_of(step, self.rates, self.latency, self.outgrown, *touch.of(step.opcode))
            waits = tuple(b for b in range(6) if step.wait_mask >> b & 1)
            rate = (
                self.rates.l2_write_bytes_per_cycle_few_sms
                if writes(step.opcode)
                else self.rates.l2_bytes_per_cycle_few_sms
            )
            program.append(
                (
                    HIT if place in hits else kind_of(step),
                    None if cost.pipe in ("control", "barrier") else cost.pipe, cost.issue, cost.shared,
                    _L1_LATENCY if place in hits else cost.latency, cost.release, cost.l2_bytes / rate, waits,
                    step.write_barrier, step.read_barrier, max(step.stall, 1), step.allowed,
                )
            )  # fmt: skip
        return program

    def trace(self, path: WarpPath, ctas: int, turns: Mapping[int, float], start: ColdStart) -> PathTrace:
        """What warps wait for when `ctas` CTAs share the SM; `turns` and `start` as `trace_path` has them."""
        resolved = self._resolved(path)
        places = turned(path, turns, _PASSES)
        if len(places) > _MOST_TRACED:
            places = turned(path, turns, 2)
        slowest = max(
            (_supply(loop.last - loop.first) for loop in path.loops),
            default=_supply(max(len(path.steps), path.instructions)),
        )
        recorder = WaitRecorder(max(-(-self.num_warps * ctas // SCHEDULERS_PER_SM), 1), start)
        self._simulate([resolved[place.step] for place in places], slowest, ctas, recorder)
        return PathTrace(tuple(places), tuple(tuple(issued) for issued in recorder.issued))

    def _simulate(
        self, program: list[tuple[Any, ...]], supply: int, ctas: int = 1, recorder: WaitRecorder | None = None
    ) -> float:
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
        apart = 0.0 if recorder is None else recorder.start.ctas_apart_cycles
        heap: list[tuple[float, int]] = [(0.1 * w + apart * (w * ctas // warps), w) for w in range(warps)]
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
            if kind == WAIT_COPY and len(copies[w]) > allowed:
                ready = max(ready, copies[w][len(copies[w]) - allowed - 1])
            elif kind == WAIT_PRODUCT and len(products[w]) > allowed:
                ready = max(ready, products[w][len(products[w]) - allowed - 1])
            elif kind == WAIT_TMA and tma[w]:
                ready = max(ready, tma[w][0])
            if recorder is not None and now < recorder.start.fetch_cycles + recorder.start.constant_cycles:
                begun, what = recorder.begun(kind)
                if begun > ready:
                    recorder.waits(w, begun - now, what)
                    heapq.heapreplace(heap, (begun, w))
                    continue
            if ready > now:
                if recorder is not None:
                    if waits and max(boards[w][b] for b in waits) == ready:
                        recorder.waits(w, ready - now, "result", max(waits, key=boards[w].__getitem__))
                    elif pipe is not None and pipes.get(pipe, 0.0) == ready:
                        recorder.waits(w, ready - now, pipe)
                    elif shared and memory_free - _QUEUE_CYCLES == ready:
                        recorder.waits(w, ready - now, "mio")
                    elif kind in GROUP_OF and ready > issue_free:
                        recorder.waits_for_group(w, ready - now, GROUP_OF[kind], allowed)
                    else:
                        recorder.waits(w, ready - now, "issue")
                heapq.heapreplace(heap, (ready, w))
                continue
            issue_free = now + 1
            done, read = now + latency, now + release
            if kind == CONSTANT and recorder is not None:
                done = max(done, recorder.begun(UNIFORM_CONSTANT)[0])
            if pipe is not None:
                pipes[pipe] = now + issue
                if shared:
                    memory_free = (memory_free if memory_free > now else now) + shared * schedulers
                    done, read = memory_free + latency, memory_free + release
                if path_cycles and kind == STORE:
                    written_free = (written_free if written_free > now else now) + path_cycles * schedulers
                elif path_cycles:
                    l2_free = (l2_free if l2_free > now else now) + path_cycles * schedulers
                    if l2_free + latency > done:
                        done = l2_free + latency
            if kind == LOAD:
                missed[w] = done
            elif kind == HIT and missed[w] > done:
                done = missed[w]  # its line is still on the way
            if wb < 6 and done > boards[w][wb]:
                boards[w][wb] = done
            if rb < 6 and read > boards[w][rb]:
                boards[w][rb] = read
            following = now + (stall if stall > supply else supply)
            if kind:
                if kind == COPY:
                    open_copy[w] = max(open_copy[w], done)
                elif kind == COMMIT:
                    copies[w].append(open_copy[w])
                elif kind == PRODUCT_END:
                    products[w].append(done)
                elif kind == TMA:
                    tma[w].append(done)
                elif kind == WAIT_TMA and tma[w]:
                    tma[w].pop(0)
                elif kind == BRANCH:
                    following = max(following, now + _BRANCH_CYCLES)
                elif kind == STORE and written_free > end:
                    end = written_free
            if recorder is not None:
                gives = [b for b, when in ((wb, done), (rb, read)) if b < 6 and boards[w][b] == when]
                recorder.issues(w, now, kind, gives)
                if kind != BARRIER:
                    recorder.waits(w, following - now, "latency")
            at[w] += 1
            if now > end:
                end = now
            if at[w] == length:
                heapq.heappop(heap)
            elif kind == BARRIER:
                heapq.heappop(heap)
                group = waiting.setdefault(w // per_cta, [])
                group.append(w)
                if len(group) == min(per_cta, warps - w // per_cta * per_cta):
                    for each in group:
                        heapq.heappush(heap, (now + barrier_cycles, each))
                        if recorder is not None:
                            recorder.waits(each, now + barrier_cycles - recorder.issued[each][-1].at, "barrier")
                    group.clear()
            else:
                heapq.heapreplace(heap, (following, w))
        return end
