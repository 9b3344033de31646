"""The work of a launch: what the spec says of it, and what was read from the compiled kernel.

Apart from `plan`, since a time needs numpy and most runs ask for none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from occupancy_cli.compile.kernel_record import digest_of
from occupancy_cli.compile.kernel_times import KernelTimes, at_launch, merged
from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.launch_batch import estimates
from occupancy_cli.model.launch_time import KernelLaunch, TimeEstimate
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_loads import Loads, dealt_out, main_turns
from occupancy_cli.plan.launch_plan import LaunchPlan, value_of
from occupancy_cli.plan.points import Point
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.readers.grid_programs import GridRun
from occupancy_cli.spec.expression_columns import column_of, evaluate, spread
from occupancy_cli.spec.expressions import Expression, parse_expression
from occupancy_cli.spec.kernel_spec import Launch, Ragged
from occupancy_cli.yaml_reader import KeyPath

MAX_RAGGED_CTAS = 2_000_000


def timing_of(gpu: GpuProfile, outcome: CompileOutcome) -> KernelTimes | None:
    """What the compiled kernel's own text says of its time on the GPU (`compile.simulated_timing`)."""
    kept = outcome.times.get(digest_of(gpu))
    return None if kept is None else kept.read()


def work_of(kernel: Kernel, gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome) -> CtaWork:
    """The work of a CTA: what the spec gives, and for the rest what was read from the compiled kernel."""
    loads = loads_of(kernel, timing_of(gpu, outcome))
    return work_with(kernel, gpu, plan, outcome, None if loads is None else loads.at(argument_values(plan)))


def argument_values(plan: LaunchPlan) -> dict[str, int | None]:
    """The run-time arguments of a launch in order: whole numbers, and None for everything else."""
    return {a.name: a.value if isinstance(a.value, int) else None for a in plan.request.arguments}


def loads_of(kernel: Kernel, found: KernelTimes | None) -> Loads | None:
    """What launches of a compiled kernel load, by their arguments; None where its IR is not at hand."""
    if found is None or not found.ir:
        return None
    # Many points share an outcome. What was read of it is kept with it, or another one might come to lie where it lay.
    known = ("loads", id(found))
    if known not in kernel.memo:
        kernel.memo[known] = (found, Loads(found.ir, kernel.readings() if kernel.readings else None))
    loads: Loads = kernel.memo[known][1]
    return loads


def work_with(
    kernel: Kernel, gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome, loads: CtaWork | None
) -> CtaWork:
    """`work_of` where it is known what a CTA of the launch loads."""
    found = timing_of(gpu, outcome)
    given = cta_work(kernel.given, plan)
    known = ("work", id(found), given, loads)
    if known not in kernel.memo:
        read = None if found is None else found.work
        if read is not None and loads is not None:
            read = at_launch(read, loads)
        kernel.memo[known] = (found, merged(given, read))
    work: CtaWork = kernel.memo[known][1]
    return work


def times_of(
    kernel: Kernel, gpu: GpuProfile, points: Sequence[tuple[Point, Sequence[CompileOutcome]]]
) -> list[tuple[TimeEstimate | None, ...]]:
    """The times of the launches of points, each with what its launches compiled to; all worked out together.

    None for a launch without resources or a grid. Where the iterations of its CTAs are not known, the estimate says so.
    """
    found: dict[tuple[int, int], TimeEstimate | None] = {}
    launches: dict[tuple[int, int], KernelLaunch] = {}
    for i, (point, outcomes) in enumerate(points):
        for number, (plan, outcome) in enumerate(zip(point.launches, outcomes, strict=True)):
            found[i, number] = None
            if outcome.resources is None or plan.grid is None:
                continue
            occupancy, work = occupancy_of(gpu, outcome.resources), work_of(kernel, gpu, plan, outcome)
            found_times = timing_of(gpu, outcome)
            shape = launch_shape(kernel.given, plan, found_times, (), work, loads_of(kernel, found_times))
            if isinstance(shape, str):
                unknown = ((f"iterations of a CTA ({shape})", "the time"),)
                found[i, number] = TimeEstimate(None, MappingProxyType({}), None, unknown)
                continue
            name = plan.request.source.kernel
            launches[i, number] = KernelLaunch(name, outcome.resources, occupancy, work, shape)
    timed = estimates(gpu, list(launches.values()), [number > 0 for _, number in launches])
    found |= dict(zip(launches, timed, strict=True))
    return [tuple(found[i, number] for number in range(len(p.launches))) for i, (p, _) in enumerate(points)]


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


@dataclass(frozen=True)
class TripCount:
    """Iterations of a CTA's main loop as an expression, and who says so: `spec` or `IR`.

    In the IR's, names are the kernel's own arguments, pid0 to pid2 and programs0 to programs2. `at_most` says that
    lengths which the kernel loads are taken to be as long as they can be.
    """

    expression: Expression
    origin: Literal["spec", "IR"]
    where: str
    at_most: bool = False

    @property
    def pids(self) -> frozenset[str]:
        """The program ids that it reads."""
        return self.expression.names & {"pid0", "pid1", "pid2"}


def trip_count_of(given: KernelInput, site: Launch, at: KeyPath, found: KernelTimes | None) -> TripCount | str:
    """Iterations of a CTA: the spec's, else those of the compiled kernel (`found`: its record), else why neither."""
    if site.work.iterations is not None:
        where = given.document.where((*at, "work", "iterations"))
        return TripCount(parse_expression(site.work.iterations, where), "spec", where)
    if found is None:
        return "the spec does not give them, and the kernel was not compiled for a time"
    told = found.iterations
    if told.expression is None:
        return f"the spec does not give them, and in the kernel's IR {told.reason}"
    where = f"iterations of {site.kernel} in its IR"
    return TripCount(parse_expression(told.expression, where), "IR", where, told.at_most)


def iterations_from(
    given: KernelInput, plan: LaunchPlan, found: KernelTimes | None, lengths: tuple[int, ...] = ()
) -> str | None:
    """Who says how many iterations a CTA of this launch runs, for a Report; None where nobody does."""
    work = plan.launch.work
    if work.split is not None or (lengths and work.ragged is not None):
        return "spec"
    count = trip_count_of(given, plan.launch, plan.at, found)
    if plan.grid is None:
        return None
    if isinstance(count, str) or isinstance(iteration_names(count, plan, plan.grid), str):
        # No expression of the arguments: the programs of the grid are run (`launch_shape`).
        counted = found is not None and found.ir and main_turns(run_of(found, plan), found.work) is not None
        return "IR" if counted else None
    return count.origin + (", with what it loads taken to be as long as it can be" if count.at_most else "")


def run_of(found: KernelTimes, plan: LaunchPlan) -> GridRun:
    """What each program of a launch does."""
    assert plan.grid is not None
    return Loads(found.ir).run(argument_values(plan), plan.grid)


def launch_shape(
    given: KernelInput,
    plan: LaunchPlan,
    found: KernelTimes | None = None,
    lengths: tuple[int, ...] = (),
    work: CtaWork | None = None,
    loads: Loads | None = None,
) -> LaunchShape | str:
    """The grid with each CTA's iterations, or why it is not known.

    With the CTA's `work` and the kernel's `loads`, also the turns of loops beside the main one, and how CTAs share what
    they load, where grid and iterations alone do not say it: the programs of the grid are run for that.
    """
    shape = _main_shape(given, plan, found, lengths)
    if work is None or loads is None or plan.grid is None or (work.plain and not isinstance(shape, str)):
        return shape
    run = loads.run(argument_values(plan), plan.grid)
    if isinstance(shape, str):
        turns = main_turns(run, work)
        if turns is None:
            return shape
        shape = LaunchShape.ragged(plan.grid, np.broadcast_to(turns, math.prod(plan.grid)))
    return dealt_out(shape, run, work)


def _main_shape(
    given: KernelInput, plan: LaunchPlan, found: KernelTimes | None = None, lengths: tuple[int, ...] = ()
) -> LaunchShape | str:
    """The grid with each CTA's iterations of the main loop, or why it is not known.

    `found` is the compiled kernel's record for the GPU: it tells the iterations where the spec has neither
    `work.iterations` nor `work.split`. With `lengths` (tokens of each request), a launch that has `work.ragged` takes
    its iterations from there.
    """
    work, grid = plan.launch.work, plan.grid
    if grid is None:
        return "the spec gives no grid"
    at = (*plan.at, "work")
    if lengths and work.ragged is not None:
        return _ragged_shape(given, plan, work.ragged, grid, lengths)
    if work.split is not None:
        got = {k: int(value_of(given, v, plan.names, (*at, "split", k))) for k, v in work.split.items()}
        axis = split_axis(given, plan.launch, plan.at, len(grid), got.get("axis"))
        return LaunchShape.split(grid, got["tiles"], got["tiles_per_split"], axis)
    count = trip_count_of(given, plan.launch, plan.at, found)
    if isinstance(count, str):
        return count
    names = iteration_names(count, plan, grid)
    if isinstance(names, str):
        return names
    if not count.pids:
        return LaunchShape.uniform(grid, max(0.0, float(count.expression(names, count.where))))
    return _by_program(count.expression, names, grid, count.where)


def split_axis(given: KernelInput, launch: Launch, at: KeyPath, axes: int, axis: int | None) -> int:
    """The grid axis that `work.split` deals tiles along: the last one where it does not say."""
    where = given.document.where
    for key in ("tiles", "tiles_per_split"):
        if key not in (launch.work.split or {}):
            raise InputError(f"the key {key!r} is missing", where=where((*at, "work", "split")))
    found = axes - 1 if axis is None else axis
    if not 0 <= found < axes:
        raise InputError(f"axis {found} of a grid of {axes}", where=where((*at, "work", "split", "axis")))
    return found


def iteration_names(count: TripCount, plan: LaunchPlan, grid: tuple[int, ...]) -> Mapping[str, Any] | str:
    """What a trip count's names stand for, or which of them has no value."""
    if count.origin == "spec":
        return plan.names
    names: dict[str, Any] = {a.name: a.value for a in plan.request.arguments if a.value is not None}
    names |= {f"programs{i}": extent for i, extent in enumerate((*grid, 1, 1, 1)[:3])}
    missing = sorted(count.expression.names - {*names, "pid0", "pid1", "pid2"})
    if missing:
        return f"they depend on {', '.join(missing)}, which has no value"
    return names


def _by_program(
    expression: Expression,
    names: Mapping[str, Any],
    grid: tuple[int, ...],
    where: str,
    lengths: tuple[int, ...] = (),
    axis: int = 0,
) -> LaunchShape:
    """The iterations of each program, x fastest, from an expression over pid0, pid1, pid2 and, along `axis`, `length`.

    Programs that agree in what the expression reads are worked out once.
    """
    full = (*grid, *([1] * (3 - len(grid))))
    if full[0] * full[1] * full[2] > MAX_RAGGED_CTAS:
        raise InputError(f"iterations per CTA over a grid of {grid} is too much to work out", where=where)
    used = [i for i in range(3) if f"pid{i}" in expression.names or (lengths and i == axis)]
    extents = [full[i] if i in used else 1 for i in range(3)]
    z, y, x = (a.ravel() for a in np.meshgrid(*(np.arange(extents[i]) for i in (2, 1, 0)), indexing="ij"))
    env = {**names, "pid0": x, "pid1": y, "pid2": z}
    if lengths:
        env["length"] = column_of(lengths)[(x, y, z)[axis]]
    found = np.maximum(spread(evaluate(expression, env, where), len(x)).astype(float), 0.0)
    every = np.broadcast_to(found.reshape(extents[::-1]), full[::-1])
    return LaunchShape.ragged(grid, every)


def _ragged_shape(
    given: KernelInput, plan: LaunchPlan, ragged: Ragged, grid: tuple[int, ...], lengths: tuple[int, ...]
) -> LaunchShape:
    where = given.document.where((*plan.at, "work", "ragged", "iterations"))
    if ragged.axis >= len(grid) or grid[ragged.axis] != len(lengths):
        asked = grid[ragged.axis] if ragged.axis < len(grid) else 0
        raise InputError(f"{len(lengths)} lengths for a grid of {asked} requests", where=where)
    return _by_program(parse_expression(ragged.iterations, where), plan.names, grid, where, lengths, ragged.axis)
