"""A launch once its kernel is compiled: the grid that waited for its CTAs per SM, and whether it can be launched.

Some launches are impossible whatever their kernel takes: a grid over CUDA's limits, or a cooperative one of more CTAs
than the GPU holds at once ("CUDA C++ Programming Guide", Cooperative Groups, Grid Synchronization: the driver refuses
it). Such a launch is a failed outcome with its reason, so that it stands as a row beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import COOPERATIVE
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.waves import cta_slots
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_plan import LaunchPlan, launched_with
from occupancy_cli.plan.points import Point


def settled(
    given: KernelInput, gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome
) -> tuple[LaunchPlan, CompileOutcome]:
    """A launch and what it compiled to, with the grid known; a failed outcome where it cannot be launched."""
    if outcome.resources is None:
        return plan, outcome
    plan = launched_with(given, plan, occupancy_of(gpu, outcome.resources).ctas_per_sm)
    why = plan.impossible or cooperative_refusal(gpu, plan.request.options, outcome.resources, plan.grid)
    return plan, impossible(outcome, why) if why else outcome


def settled_point(
    given: KernelInput, gpu: GpuProfile, point: Point, outcomes: tuple[CompileOutcome, ...]
) -> tuple[Point, tuple[CompileOutcome, ...]]:
    """A point with all its launches settled."""
    found = [settled(given, gpu, plan, outcome) for plan, outcome in zip(point.launches, outcomes, strict=True)]
    plans = tuple(plan for plan, _ in found)
    if any(new is not old for new, old in zip(plans, point.launches, strict=True)):
        point = replace(point, main=plans[0], followers=plans[1:])
    return point, tuple(outcome for _, outcome in found)


def impossible(outcome: CompileOutcome, why: str) -> CompileOutcome:
    """What came of a compile, as that of a launch that no GPU takes."""
    return replace(outcome, resources=None, kind="launch", message=why)


def cooperative_refusal(
    gpu: GpuProfile,
    options: tuple[tuple[str, Any], ...],
    resources: KernelResources,
    grid: tuple[int, ...] | None,
) -> str:
    """Why a cooperative launch of this grid is refused; "" where it is not cooperative, or fits, or nobody knows."""
    if grid is None or not is_cooperative(dict(options)):
        return ""
    ctas, slots = math.prod(grid) * resources.num_ctas, slots_of(gpu, resources)
    if slots is None or ctas <= slots:
        return ""
    per_sm = occupancy_of(gpu, resources).ctas_per_sm
    return (
        f"a cooperative launch needs its {ctas:,} CTAs on the GPU at once, {gpu.sm_count} SMs x {per_sm} CTAs/SM hold "
        f"{slots:,}"
    )


def is_cooperative(options: Mapping[str, Any]) -> bool:
    """Whether launch options make a launch cooperative."""
    return bool(options.get(COOPERATIVE))


def slots_of(gpu: GpuProfile, resources: KernelResources) -> int | None:
    """CTAs of a kernel that the GPU holds at once; None where its SM count is not known, 0 where none fits."""
    if gpu.sm_count is None:
        return None
    return cta_slots(gpu.sm_count, occupancy_of(gpu, resources).ctas_per_sm, resources.num_ctas)
