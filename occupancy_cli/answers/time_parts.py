"""The time of one launch by source line as a part of a Report: its machine code simulated with its argument values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_cli.answers.explained import source_part
from occupancy_cli.report.explain_parts import CriticalLink, LineTime, LineTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_cli.compile.kernel_explanation import KernelExplanation
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.model.resources import KernelResources
    from occupancy_cli.plan.launch_plan import LaunchPlan
    from occupancy_cli.readers import line_times


def line_times_of(
    read: KernelExplanation, resources: KernelResources, plan: LaunchPlan, gpu: GpuProfile
) -> LineTimes | None:
    """Time by line; None where the kernel is not simulated (its warps do different things, or no CTA fits)."""
    code = read.code
    if code is None:
        return None
    from occupancy_cli.model.occupancy import occupancy_of
    from occupancy_cli.plan.launch_work import argument_values
    from occupancy_cli.readers.line_times import launch_line_times

    resident = occupancy_of(gpu, resources).ctas_per_sm
    arguments = argument_values(plan)
    found = launch_line_times(code.text(), code.name, code.ttgir(), arguments, plan.grid, resources, gpu, resident)
    return None if found is None else line_times_part(found, read.texts)


def line_times_part(found: line_times.LineTimes, texts: Mapping[str, str]) -> LineTimes:
    """The part of what was read, `texts` by `file:line`."""
    whole = found.cycles or 1.0
    of_pass = sum(link.cycles for link in found.sequence) or 1.0
    return LineTimes(
        covers=found.covers,
        cycles=round(found.cycles, 1),
        iteration_cycles=None if found.iteration_cycles is None else round(found.iteration_cycles, 1),
        ctas_per_sm=found.ctas_per_sm,
        lines=[
            LineTime(
                cycles=round(each.cycles, 1),
                percent=round(100 * each.cycles / whole, 2),
                waits={what: round(cycles, 1) for what, cycles in each.waits.items() if cycles >= 0.05},
                source=source_part(each.source, texts),
            )
            for each in found.lines
        ],
        sequence=[
            CriticalLink(
                opcode=link.opcode,
                instructions=link.instructions,
                waits_for=link.waits_for,
                result_of=link.result_of,
                carried=link.carried,
                cycles=round(link.cycles, 1),
                percent=round(100 * link.cycles / of_pass, 2),
                source=source_part(link.source, texts),
            )
            for link in found.sequence
        ],
    )
