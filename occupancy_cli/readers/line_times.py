"""Where the time of a CTA goes, by source line, from a simulated run of its warps (`model.sm_simulation`).

    a CTA takes 26,310 cycles, 20 iterations of its main loop 1,204 each, 2 CTAs on an SM
    38 %   9,998 cycles   mla.py:213   waits for shared memory 6,100, product 2,600, latency 1,298
    critical: LDG mla.py:201 -> 690 cycles memory, carried from the iteration before -> PRMT mla.py:126 -> ...

Cycles of a line are those during which a warp's next instruction was one of that line's, as a profiler's samples of
warp states count them, averaged over the warps of a scheduler. As there, who waits at a barrier or for a group of
copies or products has issued that wait, and stands at the instruction behind it.

The critical sequence goes back from the last instruction of a pass of the main loop: to the instruction whose result it
waited for, where it waited for one longest, else to the instruction before it in program order, until the time of one
pass is covered. An edge to an instruction of an earlier pass is carried by the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from occupancy_cli.gpu.sm_rates import SmRates, TimedGpu, launch_rates, sm_rates
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.wait_trace import ColdStart, Issued
from occupancy_cli.readers.grid_programs import GridRun, run_programs
from occupancy_cli.readers.ir_work import IrWork, read_work
from occupancy_cli.readers.machine_work import TracedKernel, traced
from occupancy_cli.readers.register_life import instruction_sources
from occupancy_cli.readers.sass import SassKernel, parse_sass
from occupancy_cli.readers.ttgir import SourceLine, parse_ttgir

MEMORY, SHARED, PRODUCT, BARRIER, ISSUE, LATENCY, ARITHMETIC, SPILL, START = (
    *("memory", "shared memory", "product", "barrier", "issue", "latency", "arithmetic", "spill"),
    "start of the launch",
)
_PIPES = {
    "tensor": PRODUCT, "mio": SHARED, "barrier": BARRIER, "issue": ISSUE, "latency": LATENCY, "fetch": START,
    "constants": START,
}  # fmt: skip
_SHARED_BASES = ("LDS", "LDSM", "STS", "STSM", "ATOMS", "SHFL")
_MEMORY_BASES = ("LDG", "LD", "LDGSTS", "STG", "ST", "ATOM", "ATOMG", "RED", "REDG", "UTMALDG", "UTMASTG", "UBLKCP")
_GROUP_WAITS = ("DEPBAR", "WARPGROUP")
_MOST_UNROLLED = 16


@dataclass(frozen=True)
class LineTime:
    """Cycles that go to one line, and what its instructions waited for, in cycles by name."""

    source: tuple[SourceLine, ...]
    cycles: float
    waits: Mapping[str, float]


@dataclass(frozen=True)
class CriticalLink:
    """One step of the critical sequence: `opcode` had to wait `cycles` for `waits_for`.

    `result_of` is the opcode of the instruction whose result it waited for, "" where it waited for none; `carried`
    says that that one ran in an earlier iteration. `instructions` in a row of one line, with one reason, are one step.
    """

    opcode: str
    source: tuple[SourceLine, ...]
    waits_for: str
    cycles: float
    result_of: str = ""
    carried: bool = False
    instructions: int = 1


@dataclass(frozen=True)
class LineTimes:
    """Time by line, the most first: of a CTA where it is known how often its loops turn, else of an iteration of the
    main loop (`covers`). `cycles` is the sum; `iteration_cycles` is None without a loop that turns."""

    covers: Literal["cta", "iteration"]
    cycles: float
    iteration_cycles: float | None
    ctas_per_sm: int
    lines: tuple[LineTime, ...]
    sequence: tuple[CriticalLink, ...]


def launch_line_times(
    disassembly: str,
    kernel: str,
    ttgir: str,
    arguments: Mapping[str, Any],
    grid: Sequence[int] | None,
    resources: KernelResources,
    gpu: TimedGpu,
    ctas_per_sm: int,
) -> LineTimes | None:
    """Time by line of a launch on `gpu` with nothing in its caches; None where the kernel is not simulated (`traced`).

    `disassembly` is the text of `nvdisasm -c -hex -gi`, `arguments` has all run-time arguments in order, pointers with
    None. `ctas_per_sm` is how many fit: fewer are resident where the grid has no more. Without a grid as many are there
    as fit, on every SM.
    """
    code, text = parse_sass(disassembly, kernel), parse_ttgir(ttgir)
    ir = read_work(text, arguments)
    run = None if grid is None else run_programs(text, arguments, grid, at_most=True)
    programs = None if grid is None else math.prod(grid) * resources.num_ctas
    if programs is not None and gpu.sm_count is not None:
        ctas_per_sm = min(ctas_per_sm, -(-programs // gpu.sm_count))
    turns = None if run is None else _turns_an_entry(run)
    rates = _rates_while_running(gpu, ir, run, programs)
    start = _cold_start(gpu, rates)
    waves = 1.0 if programs is None or gpu.sm_count is None else programs / (gpu.sm_count * ctas_per_sm)
    sources = instruction_sources(disassembly, code.name)

    def read(turns: Mapping[int, float], ctas: int, counted: bool) -> LineTimes | None:
        found = traced(ir, code, gpu, rates, resources, ctas, turns, start)
        if found is None:
            return None
        return read_line_times(code, found, sources, ctas, counted=counted, first_share=1.0 / max(waves, 1.0))

    if run is None or turns is None:
        # Three passes show what an iteration takes where nobody knows how many there are.
        return read({ir.work.main: 3.0 * _MOST_UNROLLED}, ctas_per_sm, ir.work.main == 0)
    outer, share = _share_with_work(run, ir.work.main)
    if share == 1.0:
        return read(turns, ctas_per_sm, True)
    working = max(round(share * ctas_per_sm), 1)
    busy = read({**turns, outer: turns[outer] / share}, working, True)
    idle = read({**turns, outer: 0.0}, max(ctas_per_sm - working, 1), True)
    if busy is None or idle is None:
        return None
    return _mixed(busy, idle, share, ctas_per_sm)


def _share_with_work(run: GridRun, main: int) -> tuple[int, float]:
    """The outermost loop around the main one, and the share of programs in which it turns at all."""
    if not main:
        return 0, 1.0
    outer = (*run.parents[main - 1], main - 1)[0]
    turns = run.turns[outer]
    share = 0.0 if turns is None else float((turns > 0).mean())
    return outer + 1, share or 1.0


def _mixed(busy: LineTimes, idle: LineTimes, share: float, ctas_per_sm: int) -> LineTimes:
    """What a CTA takes on average where only a `share` has work; an iteration is that of those."""
    waits: dict[tuple[SourceLine, ...], dict[str, float]] = {}
    for times, part in ((busy, share), (idle, 1.0 - share)):
        for line in times.lines:
            found = waits.setdefault(line.source, {})
            for what, cycles in line.waits.items():
                found[what] = found.get(what, 0.0) + cycles * part
    lines = _most_first(waits)
    cycles = sum(line.cycles for line in lines)
    return replace(busy, cycles=cycles, ctas_per_sm=ctas_per_sm, lines=lines)


def _most_first(waits: Mapping[tuple[SourceLine, ...], Mapping[str, float]]) -> tuple[LineTime, ...]:
    made = [LineTime(source, sum(each.values()), dict(sorted(each.items()))) for source, each in waits.items()]
    return tuple(sorted(made, key=lambda line: (-line.cycles, line.source)))


def _cold_start(gpu: TimedGpu, rates: SmRates) -> ColdStart:
    """A launch deals CTAs out one after the other to all SMs in turn; its code and constants come from the L2."""
    handout, _ = launch_rates(gpu)
    cycles = handout.cta_handout_us * (gpu.boost_clock_mhz or 0.0) * (gpu.sm_count or 0)
    return ColdStart(cycles, rates.near_latency_cycles, rates.near_latency_cycles)


def _turns_an_entry(run: GridRun) -> dict[int, float] | None:
    """Iterations of each loop of the text each time that it is entered, on average over the grid, with loaded lengths
    taken as long as they can be; None where one is not known."""
    found = {}
    for number, (turns, entered) in enumerate(zip(run.turns, run.entered, strict=True), 1):
        if turns is None:
            return None
        found[number] = float(turns.sum()) / max(float(entered.sum()), 1.0)
    return found


def _rates_while_running(gpu: TimedGpu, ir: IrWork, run: GridRun | None, programs: int | None) -> SmRates:
    """The rates of an SM while all SMs that the launch reaches load from memory at once."""
    rates, (of_launch, _) = sm_rates(gpu), launch_rates(gpu)
    if gpu.sm_count is None:
        return rates
    working = gpu.sm_count if programs is None else min(programs, gpu.sm_count)
    share = gpu.sm_count / working
    read = min(of_launch.l2_bytes_per_cycle * share, of_launch.l2_bytes_per_cycle_at_most)
    write = min(of_launch.l2_write_bytes_per_cycle * share, of_launch.l2_write_bytes_per_cycle_few_sms)
    moved = unique = 0.0
    for stream in ir.work.streams:
        if stream.again:
            continue
        alone = 1.0
        turns = 1.0
        if run is not None:
            if 0 <= stream.access < len(run.accesses):
                alone = run.accesses[stream.access].unique_share
            of_part = run.turns[stream.part - 1] if stream.part else None
            turns = 1.0 if of_part is None else float(of_part.mean())
        moved += stream.l2_bytes * turns
        unique += stream.bytes * turns * alone
    if gpu.memory_bandwidth_gbps is not None and gpu.boost_clock_mhz is not None and unique:
        reached = gpu.memory_bandwidth_gbps * (ir.work.dram_share or of_launch.dram_bandwidth_share)
        a_cycle = reached * 1000.0 / gpu.boost_clock_mhz / working
        read, write = min(read, a_cycle * moved / unique), min(write, a_cycle * moved / unique)
    return replace(rates, l2_bytes_per_cycle_few_sms=read, l2_write_bytes_per_cycle_few_sms=write)


def read_line_times(
    code: SassKernel,
    found: TracedKernel,
    sources: Mapping[int, tuple[SourceLine, ...]],
    ctas_per_sm: int,
    *,
    counted: bool,
    first_share: float = 1.0,
) -> LineTimes:
    """What a trace says of each line. `sources` has the lines of an instruction by its address; `counted` that the
    trace knows how often every loop turns; `first_share` of the CTAs are the first on their SM and begin cold."""
    reading = _Reading(code, found, sources, first_share)
    whole = counted or not reading.turns
    lines = reading.lines(whole)
    cycles = sum(line.cycles for line in lines)
    iteration = None
    if reading.turns:
        iteration = cycles if not whole else sum(line.cycles for line in reading.lines(False))
    return LineTimes("cta" if whole else "iteration", cycles, iteration, ctas_per_sm, lines, reading.sequence())


class _Reading:
    def __init__(
        self,
        code: SassKernel,
        found: TracedKernel,
        sources: Mapping[int, tuple[SourceLine, ...]],
        first_share: float,
    ) -> None:
        self.code, self.found, self.sources, self.first_share = code, found, sources, first_share
        self.places = found.trace.places
        loops = {loop.part: loop for loop in found.path.loops}
        self.turns = any(found.main in dict(place.passes) for place in self.places if found.main)
        self.per_pass = loops[found.main].iterations_per_pass if found.main else 1.0

    def _number(self, place: int) -> int:
        return self.found.path.numbers[self.places[place].step]

    def _source(self, place: int) -> tuple[SourceLine, ...]:
        return self.sources.get(self.code.instructions[self._number(place)].address, ())

    def _opcode(self, place: int) -> str:
        return self.code.instructions[self._number(place)].opcode

    def _base(self, place: int) -> str:
        return self._opcode(place).split(".", 1)[0]

    def _reason(self, what: str, giver: int) -> str:
        """What a wait is for, in words: of a result, by the instruction that gives it."""
        if what != "result":
            return _PIPES.get(what, ARITHMETIC)
        base = self._base(giver) if giver >= 0 else ""
        if base in ("LDL", "STL"):
            return SPILL
        if base in _MEMORY_BASES:
            return MEMORY
        if base in _SHARED_BASES:
            return SHARED
        return PRODUCT if "MMA" in base else LATENCY

    def _last_passes(self) -> list[range]:
        """The places of passes of the main loop, without the first ones, which fill its pipeline."""
        passes: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for at, place in enumerate(self.places):
            parts = [part for part, _ in place.passes]
            if self.found.main in parts:
                passes.setdefault(place.passes[: parts.index(self.found.main) + 1], []).append(at)
        last = max(turn[-1][1] for turn in passes)
        steady = [turn for turn in passes if turn[-1][1] > 0] or list(passes)
        # Those of the last time that the loops around it turned, the last pass at the end.
        around = max(turn[:-1] for turn in passes if turn[-1][1] == last)
        return [range(passes[turn][0], passes[turn][-1] + 1) for turn in steady if turn[:-1] == around]

    def lines(self, whole: bool) -> tuple[LineTime, ...]:
        if whole:
            weights = {at: place.stands_for for at, place in enumerate(self.places)}
        else:
            passes = self._last_passes()
            weights = {at: 1.0 / len(passes) / self.per_pass for each in passes for at in each}
        warps = self.found.trace.warps
        cycles: dict[tuple[SourceLine, ...], dict[str, float]] = {}
        for issued in warps:
            for at, weight in weights.items():
                for what, waited in issued[at].waits.items():
                    behind = what == "result" and self._base(at) in _GROUP_WAITS and at + 1 < len(self.places)
                    found = cycles.setdefault(self._source(at + 1 if behind else at), {})
                    reason = self._reason(what, issued[at].held_by)
                    share = self.first_share if reason == START else 1.0
                    found[reason] = found.get(reason, 0.0) + waited * weight * share / len(warps)
        return _most_first(cycles)

    def sequence(self) -> tuple[CriticalLink, ...]:
        """Of the warp that takes longest for the last pass of the main loop; without one, for the whole path."""
        places = self._last_passes()[-1] if self.turns else range(len(self.places))
        if not places:
            return ()

        def spent(issued: Sequence[Issued]) -> float:
            return issued[places[-1]].at - (issued[places.start - 1].at if places.start else 0.0)

        issued = max(self.found.trace.warps, key=spent)
        left, place = spent(issued), places[-1]
        links: list[CriticalLink] = []
        while left > 1e-6 and place > 0:
            now = issued[place]
            longest = max(now.waits, key=lambda what: now.waits[what], default="latency")
            giver = now.held_by if longest == "result" else -1
            before = giver if giver >= 0 else place - 1
            cycles = min(left, now.at - issued[before].at)
            links.append(
                CriticalLink(
                    self._opcode(place),
                    self._source(place),
                    self._reason(longest, giver),
                    cycles / self.per_pass,
                    self._opcode(giver) if giver >= 0 else "",
                    0 <= giver < places.start and bool(self.found.main),
                )
            )
            left -= cycles
            place = before
        return tuple(_joined(links[::-1]))


def _joined(links: Sequence[CriticalLink]) -> list[CriticalLink]:
    """Steps in a row of one line with one reason, none of which waits for a result, as one."""
    found: list[CriticalLink] = []
    for link in links:
        last = found[-1] if found else None
        same = last is not None and (last.source, last.waits_for) == (link.source, link.waits_for)
        if last is not None and same and not last.result_of and not link.result_of:
            cycles = last.cycles + link.cycles
            found[-1] = replace(last, opcode=link.opcode, cycles=cycles, instructions=last.instructions + 1)
        else:
            found.append(link)
    return found
