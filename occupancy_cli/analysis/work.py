"""The work of a launch: what the spec says of it, and what was read from the compiled kernel.

Apart from `plan`, since a time needs numpy and most runs ask for none.
"""

from __future__ import annotations

import itertools

from occupancy_cli.analysis import build
from occupancy_cli.analysis.plan import Kernel, LaunchPlan, value_of
from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.compile.timing import digest_of, merged, work_from
from occupancy_cli.errors import InputError
from occupancy_cli.intake.expressions import parse_expression
from occupancy_cli.intake.kernel_input import KernelInput
from occupancy_cli.intake.spec import Ragged
from occupancy_cli.model.cost import TimeEstimate, estimate
from occupancy_cli.model.profiles import GpuProfile
from occupancy_cli.model.work import CtaWork, LaunchShape, merge_runs

MAX_RAGGED_CTAS = 2_000_000


def work_of(kernel: Kernel, gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome) -> CtaWork:
    """The work of a CTA: what the spec gives, and for the rest what was read from the compiled kernel."""
    found = outcome.timings.get(digest_of(gpu))
    given = cta_work(kernel.given, plan)
    # Many points share an outcome: what was read of it is unpacked once.
    known = ("work", id(found), given)
    if known not in kernel.memo:
        kernel.memo[known] = merged(given, None if found is None else work_from(found))
    work: CtaWork = kernel.memo[known]
    return work


def time_of(kernel: Kernel, gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome) -> TimeEstimate | None:
    """The time of one launch; None when the spec does not say how many iterations a CTA runs."""
    if outcome.resources is None:
        return None
    shape = launch_shape(kernel.given, plan)
    if shape is None:
        return None
    occupancy = build.occupancy_on(gpu, outcome.resources)
    return estimate(gpu, outcome.resources, occupancy, work_of(kernel, gpu, plan, outcome), shape)


def cta_work(given: KernelInput, plan: LaunchPlan) -> CtaWork:
    """The work of a CTA as far as the spec gives it."""
    work = plan.launch.work
    at = (*plan.at, "work")

    def number(key: str) -> float | None:
        value = getattr(work, key)
        return None if value is None else float(value_of(given, value, plan.names, (*at, key)))

    flops = work.tensor_flops_per_iteration
    return CtaWork(
        prologue_bytes=number("prologue_bytes"),
        bytes_per_iteration=number("bytes_per_iteration"),
        epilogue_bytes=number("epilogue_bytes"),
        unique_bytes_per_iteration=number("unique_bytes_per_iteration"),
        fp32_flops_per_iteration=number("fp32_flops_per_iteration"),
        dependent_loads=number("dependent_loads"),
        pipeline_depth=number("pipeline_depth"),
        tensor_flops_per_iteration=None
        if flops is None
        else tuple(
            (dtype, float(value_of(given, v, plan.names, (*at, "tensor_flops_per_iteration", dtype))))
            for dtype, v in flops.items()
        ),
    )


def launch_shape(given: KernelInput, plan: LaunchPlan, lengths: tuple[int, ...] = ()) -> LaunchShape | None:
    """The grid with each CTA's iterations; None without a grid or without `iterations` or `split` in the spec.

    With `lengths` (tokens of each request), a launch that has `work.ragged` takes its iterations from there.
    """
    work, grid = plan.launch.work, plan.grid
    if grid is None:
        return None
    at = (*plan.at, "work")
    if lengths and work.ragged is not None:
        return _ragged_shape(given, plan, work.ragged, grid, lengths)
    if work.split is not None:
        got = {k: int(value_of(given, v, plan.names, (*at, "split", k))) for k, v in work.split.items()}
        for key in ("tiles", "tiles_per_split"):
            if key not in got:
                raise InputError(f"the key {key!r} is missing", where=given.document.where((*at, "split")))
        axis = got.get("axis", len(grid) - 1)
        if not 0 <= axis < len(grid):
            raise InputError(
                f"axis {axis} of a grid of {len(grid)}", where=given.document.where((*at, "split", "axis"))
            )
        return LaunchShape.split(grid, got["tiles"], got["tiles_per_split"], axis)
    if work.iterations is None:
        return None
    where = given.document.where((*at, "iterations"))
    expression = parse_expression(work.iterations, where)
    if not expression.names & {"pid0", "pid1", "pid2"}:
        return LaunchShape.uniform(grid, max(0.0, float(expression(plan.names, where))))
    full = (*grid, *([1] * (3 - len(grid))))
    if full[0] * full[1] * full[2] > MAX_RAGGED_CTAS:
        raise InputError(f"iterations per CTA over a grid of {grid} is too much to work out", where=where)
    names = dict(plan.names)
    runs = []
    for z, y, x in itertools.product(range(full[2]), range(full[1]), range(full[0])):
        names |= {"pid0": x, "pid1": y, "pid2": z}
        runs.append((1, max(0.0, float(expression(names, where)))))
    return LaunchShape(grid, merge_runs(runs))


def _ragged_shape(
    given: KernelInput, plan: LaunchPlan, ragged: Ragged, grid: tuple[int, ...], lengths: tuple[int, ...]
) -> LaunchShape:
    where = given.document.where((*plan.at, "work", "ragged", "iterations"))
    if ragged.axis >= len(grid) or grid[ragged.axis] != len(lengths):
        asked = grid[ragged.axis] if ragged.axis < len(grid) else 0
        raise InputError(f"{len(lengths)} lengths for a grid of {asked} requests", where=where)
    expression = parse_expression(ragged.iterations, where)
    full = (*grid, *([1] * (3 - len(grid))))
    if full[0] * full[1] * full[2] > MAX_RAGGED_CTAS:
        raise InputError(f"iterations per CTA over a grid of {grid} is too much to work out", where=where)
    names = dict(plan.names)
    # CTAs of equal length and equal position on the other axes do the same: each is worked out once.
    known: dict[tuple[int, ...], float] = {}
    used = [i for i in range(3) if f"pid{i}" in expression.names]
    runs = []
    for z, y, x in itertools.product(range(full[2]), range(full[1]), range(full[0])):
        pid = (x, y, z)
        length = lengths[pid[ragged.axis]]
        same = (length, *(pid[i] for i in used))
        if same not in known:
            names |= {"pid0": x, "pid1": y, "pid2": z, "length": length}
            known[same] = max(0.0, float(expression(names, where)))
        runs.append((1, known[same]))
    return LaunchShape(grid, merge_runs(runs))
