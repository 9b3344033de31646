"""The time of one launch written out for that launch alone, number by number, and of a candidate as the sum of its
launches: what the columns of `model.launch_batch` are held to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from occupancy_cli.errors import InputError
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.launch_time import Factors, GpuRates, Residency, TimeEstimate, launch_model
from occupancy_cli.model.ranking import Candidate, Ranking, Scored, Setting, SingleSetting, Untimed
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import CtaTimes, simulate

_BINDS = 0.75
_SOFT = 2.5


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
    rates, held = model.rates, model.ctas_per_sm
    programs, iterations = launch.programs, launch.total_iterations
    turns = {each.part: each for each in launch.turns}

    def executions(part: int) -> float:
        if part == 0:
            return programs
        if part == work.main:
            return iterations
        each = turns.get(part)
        return programs * each.always + iterations * each.per_iteration if each else 0.0

    sharers = [max(s.sharers or by_axes(s.axes, launch.grid), 1.0) for s in work.streams]
    if launch.sharers:
        sharers = [max(each, 1.0) for each in launch.sharers]
    total = math.fsum(
        s.bytes * executions(s.part) / each for s, each in zip(work.streams, sharers, strict=True) if not s.again
    )
    far = 1.0
    if not cold:
        near = rates.l2_near_share * (model.l2_bytes or 0.0)
        far = min(max((total - near) / (model.l2_bytes - near), 0.0), 1.0) if model.l2_bytes else 0.0
    active = min(max(launch.working * model.num_ctas, 1), model.sm_count)
    private = min(rates.l2_bytes_per_cycle * model.sm_count / active, rates.l2_bytes_per_cycle_at_most)
    shared = min(max(rates.l2_bytes_per_cycle_shared, private), rates.l2_bytes_per_cycle_at_most)
    write = min(rates.l2_write_bytes_per_cycle * model.sm_count / active, rates.l2_write_bytes_per_cycle_few_sms)
    again = sum(s.bytes * executions(s.part) / programs for s in work.streams if s.again)
    hits = min(max((model.l1_bytes - held * again) / (0.25 * model.l1_bytes), 0.0), 1.0) if model.l1_bytes else 0.0
    dram = total * far
    if model.l2_bytes:
        # What is loaded again comes from DRAM where neither L1 nor, under all that residents touch, the L2 kept it.
        touched = total * min(model.sm_count * held / (programs * model.num_ctas), 1.0)
        near = rates.l2_near_share * model.l2_bytes
        lost = (1.0 - hits) * min(max((touched - near) / (model.l2_bytes - near), 0.0), 1.0)
        pairs = zip(work.streams, sharers, strict=True)
        dram += lost * math.fsum(s.bytes * executions(s.part) / each for s, each in pairs if s.again)
    memory = dram / model.bandwidth_bytes_per_us if model.bandwidth_bytes_per_us else 0.0
    memory += model.first_us if dram and model.bandwidth_bytes_per_us else 0.0

    def part_us(number: int, residents: int) -> float:
        part = model.parts.get(number)
        if part is None:
            return 0.0
        alone = part.near_us + far * (part.far_us - part.near_us)
        busy = [0.0, 0.0, 0.0, 0.0]
        for stream, shares in zip(work.streams, sharers, strict=True):
            if stream.part != number:
                continue
            cycles = stream.l2_bytes * (1.0 - (hits if stream.again else 0.0)) / model.clock_mhz
            if stream.writes:
                busy[2] += cycles / write
                busy[3] += cycles / rates.l2_write_bytes_per_cycle_few_sms
            else:
                busy[0] += cycles / (shared if shares >= 2.0 else private)
                busy[1] += cycles / rates.l2_bytes_per_cycle_few_sms
        busy[2] += part.local_written_bytes / model.clock_mhz / write
        if model.local_outgrown:
            busy[0] += part.local_read_bytes / model.clock_mhz / private
            busy[1] += part.local_read_bytes / model.clock_mhz / rates.l2_bytes_per_cycle_few_sms
            busy[3] += part.local_written_bytes / model.clock_mhz / rates.l2_write_bytes_per_cycle_few_sms
        whole = alone**_SOFT + sum((residents**_SOFT - 1.0) * us**_SOFT for _, us in part.units_us)
        for us, few in (busy[:2], busy[2:]):
            whole += max((residents * us) ** _SOFT - few**_SOFT, 0.0)
        return whole ** (1.0 / _SOFT)

    start, iteration = [], []
    for r in range(1, held + 1):
        first = part_us(0, r) + rates.cta_turnover_us
        each = part_us(work.main, r) if work.main else 0.0
        for part, turn in turns.items():
            first += turn.always * part_us(part, r)
            each += turn.per_iteration * part_us(part, r)
        start.append(first)
        iteration.append(each)
    if factors is not None:
        start = [factors.start * (start[0] + factors.sharing * (each - start[0])) for each in start]
        iteration = [factors.iteration * (iteration[0] + factors.sharing * (i - iteration[0])) for i in iteration]
    times = CtaTimes(tuple(start), tuple(iteration))
    schedule = simulate(launch, times, model.sm_count, model.num_ctas)
    handout = programs * rates.cta_handout_us
    time = rates.launch_us + sum(each**4 for each in (schedule.makespan_us, memory, handout)) ** 0.25
    terms = {"schedule_us": schedule.makespan_us, "memory_us": memory, "dram_answers_percent": 100.0 * far}
    span = times.iteration_us[-1] or times.start_us[-1]
    name, busiest = max(model.units_us, key=lambda item: item[1], default=("latency", 0.0))
    binding = name if held * busiest >= _BINDS * span else "latency"
    if memory > schedule.makespan_us:
        binding = "memory bandwidth"
    if handout > max(schedule.makespan_us, memory):
        binding = "handing out CTAs"
    return TimeEstimate(time, MappingProxyType(terms), binding, unknown, times)


def alike(scored: Scored | None) -> tuple[object, ...] | None:
    """What a candidate timed alone and one timed among many have in common: all but the last digits of its times."""
    if scored is None:
        return None
    ratio = None if scored.ratio is None else round(scored.ratio, 9)
    return (scored.candidate, round(scored.time_us, 9), ratio)


def by_axes(axes: tuple[tuple[int, int], ...] | None, grid: Sequence[int]) -> float:
    """How many programs of a grid access the same, by the axes that an address depends on."""
    if axes is None:
        return 1.0
    held = 1
    for axis, together in axes:
        held *= -(-grid[axis] // together) if axis < len(grid) else 1
    return math.prod(grid) / held


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
