"""Time by source line: a run of a CTA as simulated, told by line and as the critical sequence of an iteration."""

from __future__ import annotations

import functools
import itertools
import lzma

import pytest
from locations import DATA

from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.gpu.sm_rates import sm_rates
from occupancy_cli.model.instruction_costs import Step
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.sm_simulation import time_path, trace_path
from occupancy_cli.model.wait_trace import ColdStart, PathTrace
from occupancy_cli.model.warp_path import LoopSpan, WarpPath
from occupancy_cli.readers.line_times import LATENCY, MEMORY, START, LineTimes, read_line_times
from occupancy_cli.readers.machine_work import TracedKernel, traced
from occupancy_cli.readers.register_life import instruction_sources
from occupancy_cli.readers.sass import SassKernel, parse_sass
from occupancy_cli.readers.ttgir import SourceLine

GPU = load_gpu("rtx-pro-6000")
RATES = sm_rates(GPU)
WARM = ColdStart()
# One warp: the load releases scoreboard 0, and the sum waits for it each time.
PATH = WarpPath(
    (
        Step("MOV", stall=4), Step("LDG.E", stall=1, write_barrier=0), Step("FADD", stall=4, wait_mask=1),
        Step("BRA", stall=5), Step("EXIT"),
    ),
    (LoopSpan(1, 4, 1),),
    5,
    tuple(range(5)),
)  # fmt: skip


def _traced(path: WarpPath, turns: float, start: ColdStart = WARM, warps: int = 1, ctas: int = 1) -> PathTrace:
    return trace_path(path, RATES, warps, ctas, {1: turns}, start)


@functools.cache
def _recorded(ctas: int = 2, passes: float = 8.0) -> LineTimes:
    with lzma.open(DATA / "disassembled" / "sparse_mla_decode_lines.txt.xz", "rt") as file:
        text = file.read()
    code = parse_sass(text)
    resources = KernelResources(50_176, 4, 128, 255, 200)
    found = traced(None, code, GPU, RATES, resources, ctas, {1: passes}, WARM)
    assert found is not None and found.main == 1
    return read_line_times(code, found, instruction_sources(text, code.name), ctas, counted=True)


def _kernel(path: WarpPath) -> tuple[SassKernel, dict[int, tuple[SourceLine, ...]]]:
    """Code whose instruction i stands on line i + 1."""
    text = "\n".join(f"        /*{16 * i:04x}*/    {step.opcode} ;" for i, step in enumerate(path.steps))
    code = parse_sass(f".text.k:\n{text}\n")
    return code, {each.address: (SourceLine("k.py", each.address // 16 + 1),) for each in code.instructions}


def _lines(path: WarpPath, trace: PathTrace, main: int = 1, **told: float) -> LineTimes:
    code, sources = _kernel(path)
    return read_line_times(code, TracedKernel(path, trace, main), sources, 1, counted=True, **told)  # type: ignore[arg-type]


def test_a_load_whose_result_is_used_at_once_is_waited_for_as_memory() -> None:
    trace = _traced(PATH, 3)
    assert [place.passes for place in trace.places[1:10:3]] == [((1, 0),), ((1, 1),), ((1, 2),)]
    (issued,) = trace.warps
    # Step 2 of each pass waits for the load before it: a far latency, less the cycle between the two.
    assert [issued[at].held_by for at in (2, 5, 8)] == [1, 4, 7]
    assert issued[8].waits["result"] == pytest.approx(RATES.far_latency_cycles, abs=10)
    # Everything that a warp waits is told: from one instruction to the next.
    gaps = [after.at - before.at for before, after in itertools.pairwise(issued)]
    assert gaps == pytest.approx([sum(each.waits.values()) for each in issued[1:]])
    # And it is what the time model takes for an iteration.
    assert issued[8].at - issued[5].at == pytest.approx(time_path(PATH, RATES, 1, 1).parts[1].far, abs=1)


@pytest.mark.parametrize("turns", [0.0, 0.5, 1.0, 2.0, 20.0, 100.0])
def test_passes_that_are_not_run_count(turns: float) -> None:
    trace = _traced(PATH, turns)
    loads = [place.stands_for for place in trace.places if place.step == 1]
    assert sum(loads) == pytest.approx(turns) and len(loads) <= 3
    found = _lines(PATH, trace)
    by_line = {line.source[0].line: line for line in found.lines}
    in_loop = by_line[3].waits[MEMORY] if turns else sum(by_line[n].cycles for n in (2, 3, 4) if n in by_line)
    assert in_loop == pytest.approx(turns * RATES.far_latency_cycles, rel=0.02)
    assert found.covers == "cta" and found.cycles == pytest.approx(sum(line.cycles for line in found.lines))


def test_loops_inside_loops_count_for_each_turn_around_them() -> None:
    steps = (*(Step("MOV") for _ in range(5)), Step("EXIT"))
    path = WarpPath(steps, (LoopSpan(1, 5, 1), LoopSpan(2, 4, 2)), 6, tuple(range(6)))
    trace = trace_path(path, RATES, 1, 1, {1: 10.0, 2: 7.0}, WARM)
    counted = [sum(p.stands_for for p in trace.places if p.step == step) for step in range(6)]
    assert counted == pytest.approx([1, 10, 70, 70, 10, 1])


def test_a_result_that_a_later_iteration_uses_is_carried() -> None:
    load, add, branch = PATH.steps[1:4]
    path = WarpPath((PATH.steps[0], add, load, branch, PATH.steps[4]), PATH.loops, 5, PATH.numbers)
    found = _lines(path, _traced(path, 3))
    (carried,) = [link for link in found.sequence if link.carried]
    assert (carried.opcode, carried.result_of, carried.waits_for) == ("FADD", "LDG.E", MEMORY)
    assert found.iteration_cycles == pytest.approx(sum(link.cycles for link in found.sequence), rel=0.05)


def test_a_pass_of_several_iterations_is_told_by_iteration() -> None:
    path = WarpPath(PATH.steps, (LoopSpan(1, 4, 1, 4.0),), 5, PATH.numbers)
    one, four = _lines(PATH, _traced(PATH, 3)), _lines(path, _traced(path, 3))
    assert one.iteration_cycles is not None
    assert four.iteration_cycles == pytest.approx(one.iteration_cycles / 4)
    assert four.cycles == pytest.approx(one.cycles)  # of the CTA: as many passes


def test_who_waits_for_copies_stands_behind_the_wait() -> None:
    steps = (
        Step("MOV"), Step("LDGSTS.E"), Step("LDGDEPBAR"), Step("DEPBAR.LE", allowed=0), Step("MOV"), Step("EXIT"),
    )  # fmt: skip
    path = WarpPath(steps, (), 6, tuple(range(6)))
    trace = trace_path(path, RATES, 1, 1, {}, WARM)
    assert trace.warps[0][3].held_by == 1
    found = _lines(path, trace, 0)
    assert found.lines[0].source[0].line == 5 and set(found.lines[0].waits) == {MEMORY, LATENCY}
    assert found.iteration_cycles is None


def test_a_launch_gets_its_code_and_constants_first() -> None:
    steps = (Step("MOV"), Step("ULDC"), Step("EXIT"))
    path = WarpPath(steps, (), 3, (0, 1, 2))
    trace = trace_path(path, RATES, 4, 2, {}, ColdStart(100.0, 300.0, 200.0))
    first, second = trace.warps
    assert [first[0].waits["fetch"], second[0].waits["fetch"]] == pytest.approx([300, 200], abs=1)
    assert first[1].waits["constants"] == pytest.approx(200, abs=20)
    # Where it is one of four CTAs that are the first on their SM, a quarter counts.
    whole, part = _lines(path, trace, 0), _lines(path, trace, 0, first_share=0.25)

    def start(found: LineTimes) -> float:
        return sum(line.waits.get(START, 0.0) for line in found.lines)

    assert start(whole) == pytest.approx(450, abs=20) and start(part) == pytest.approx(start(whole) / 4)


def test_lines_of_a_recorded_kernel_add_up() -> None:
    found = _recorded()
    assert found.covers == "cta" and sum(line.cycles for line in found.lines) == pytest.approx(found.cycles)
    assert all(line.cycles == pytest.approx(sum(line.waits.values())) for line in found.lines)
    assert found.iteration_cycles is not None and found.iteration_cycles * 8 < found.cycles
    # Half the turns: half of what the loop takes is gone.
    shorter = found.cycles - _recorded(passes=4.0).cycles
    assert shorter == pytest.approx(4 * found.iteration_cycles, rel=0.05)


def test_the_critical_sequence_covers_one_iteration() -> None:
    found = _recorded()
    longest = sum(link.cycles for link in found.sequence)
    # That of the slowest warp: an iteration, and not much more.
    assert found.iteration_cycles is not None
    assert found.iteration_cycles * 0.9 < longest < found.iteration_cycles * 1.5
    assert all(link.result_of for link in found.sequence if link.carried)
    assert {line.file for link in found.sequence for line in link.source} == {"kernels/sparse_mla_decode.py"}
