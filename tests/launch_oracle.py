"""The time of one launch written out for that launch alone, and of a candidate as the sum of its launches: what the
columns of `model.launch_batch` are held to, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from occupancy_cli.errors import InputError
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.launch_time import LAUNCH_US, Factors, GpuRates, Residency, TimeEstimate, launch_model
from occupancy_cli.model.ranking import Candidate, Ranking, Scored, Setting, SingleSetting, Untimed
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import CtaTimes, simulate

_BINDS = 0.75


def estimate(
    gpu: GpuRates,
    resources: KernelResources,
    occupancy: Residency,
    work: CtaWork,
    launch: LaunchShape,
    factors: Factors | None = None,
    cold: bool = False,
    follows: bool = False,
) -> TimeEstimate:
    """The time of one launch of one kernel.

    `factors` are a calibration's for this kernel. `cold` says that none of the launch's data is in the L2 beforehand,
    `follows` that it reads what the launch before it has just written, as a combine kernel does.
    """
    model, unknown = launch_model(gpu, resources, occupancy, work, factors, cold, follows)
    if model is None:
        return TimeEstimate(None, MappingProxyType({}), None, unknown)
    sharing = work.sharing(launch.grid)
    total = float(model.total_bytes(launch.total_iterations, launch.programs, sharing))
    far = float(model.far_share(total))
    start, per_iteration = model.by_residents(np.array([far]), np.array([launch.working]), sharing)
    times = CtaTimes(tuple(start[0].tolist()), tuple(per_iteration[0].tolist()))
    schedule = simulate(launch, times, model.sm_count, model.num_ctas)
    floor = float(model.floor_us(total, far))
    units = [(name, value) for name, value in model.units_us if name != "wait"]
    held = model.ctas_per_sm
    span = times.iteration_us[-1] or times.start_us[-1]
    name, busiest = max(units, key=lambda item: item[1], default=("latency", 0.0))
    binding = name if held * busiest >= _BINDS * span else "latency"
    terms = {
        "launch_us": LAUNCH_US,
        "cta_start_us": times.start_us[-1],
        "iteration_us": times.iteration_us[-1],
        "iteration_alone_us": times.iteration_us[0],
        **{f"iteration_{unit.replace(' ', '_')}_us": value for unit, value in model.units_us},
        "schedule_us": schedule.makespan_us,
        "busy_percent": schedule.busy_percent,
        "memory_floor_us": floor,
        "dram_answers_percent": 100.0 * far,
        "unique_loads_percent": 100.0 * sharing.unique,
    }
    if floor > schedule.makespan_us:
        binding = "memory bandwidth"
    time = LAUNCH_US + max(schedule.makespan_us, floor)
    assert math.isfinite(time)
    return TimeEstimate(time, MappingProxyType(terms), binding, unknown, times)


def score(
    gpu: GpuRates, candidate: Candidate, calibration: Calibration | None = None, cold: bool = False
) -> Scored | Untimed:
    """The candidate with its time, or why it has none."""
    total, estimates = 0.0, []
    for number, launch in enumerate(candidate.launches):
        factors = calibration.of(launch) if calibration else None
        one = estimate(
            gpu, launch.resources, launch.occupancy, launch.work, launch.shape, factors, cold, follows=number > 0
        )
        if one.time_us is None:
            return Untimed(candidate, f"{launch.kernel}: {one.unknown[0][0]} is unknown: {one.unknown[0][1]}")
        total += one.time_us
        estimates.append(one)
    return Scored(candidate, total, None, tuple(estimates))


def best_single_setting(rankings: Sequence[Ranking], weights: Mapping[int, float] | None = None) -> SingleSetting:
    """The setting (an environment variable is one value for a whole server) that is best over several batches.

    Without `weights` every batch counts the same, by its time over its own best. With them (a traffic mix: batch to
    share of steps) the weighted time counts. Only settings that can launch at every batch take part.
    """
    if not rankings:
        raise InputError("there is no batch to choose a setting for", where="recommendation")
    table = [(r, {s.candidate.setting: s for s in reversed(r.ranked)}) for r in rankings]
    common = set.intersection(*(set(by_setting) for _, by_setting in table))
    if not common:
        raise InputError("no setting can launch at every batch", where="recommendation")

    def cost(setting: tuple[Setting, Setting]) -> float:
        if weights is None:
            return math.fsum(by[setting].time_us / r.ranked[0].time_us for r, by in table) / len(table)
        best = math.fsum(weights.get(r.batch, 0.0) * r.ranked[0].time_us for r, _ in table)
        if best <= 0:
            raise InputError("the mix gives no weight to any of the batches", where="mix")
        return math.fsum(weights.get(r.batch, 0.0) * by[setting].time_us for r, by in table) / best

    order = {s.candidate.setting: i for i, s in enumerate(rankings[0].ranked)}
    best = min(common, key=lambda s: (cost(s), order[s]))
    return SingleSetting(best[0], best[1], cost(best), tuple((r.batch, by[best]) for r, by in table))
