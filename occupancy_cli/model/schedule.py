"""When a launch ends: list scheduling of its CTAs over the SMs.

The work distributor starts CTAs in launch order, each on the SM that holds the fewest as soon as one has a free slot.
CTAs on one SM share its pipes, so each runs slower the more of them there are: a CTA's time is given as a function of
the CTAs resident on its SM, and when a neighbour leaves, the rest of its work runs at the new rate (processor sharing).
Splits are uneven even for uniform requests (16 tiles over 6 splits leave one of a single tile), and ragged requests are
uneven by nature: waves see neither.

Equal SMs are simulated together, so uniform work is closed-form and a split-K launch takes a handful of events.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import LaunchShape
from occupancy_cli.model.waves import cta_slots

_TIE = 1e-9  # residents whose remaining time differs by less (relative) finish together


@dataclass(frozen=True)
class CtaTimes:
    """Time of a CTA by how many CTAs share its SM: index r - 1 holds the value for r residents.

    `start_us` is what does not depend on iterations (prologue and epilogue), `iteration_us` one iteration of the main
    loop, both in microseconds.
    """

    start_us: tuple[float, ...]
    iteration_us: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.start_us or len(self.start_us) != len(self.iteration_us):
            raise InputError("CTA times need a start and an iteration time for each count of residents", where="times")

    @property
    def ctas_per_sm(self) -> int:
        """Residents an SM holds."""
        return len(self.start_us)

    def cta_us(self, iterations: float, residents: int) -> float:
        """Time of a CTA of `iterations` while `residents` CTAs, itself included, share its SM all along."""
        return self.start_us[residents - 1] + iterations * self.iteration_us[residents - 1]


@dataclass(frozen=True)
class Schedule:
    """How a launch ran in the simulation.

    `makespan_us` is the time from the first CTA's start to the last one's end. `busy_percent` is the share of slot-time
    that held a CTA until then.
    """

    makespan_us: float
    busy_percent: float


def simulate(launch: LaunchShape, times: CtaTimes, sm_count: int, num_ctas: int = 1) -> Schedule:
    """Run `launch` on `sm_count` SMs that hold `times.ctas_per_sm` CTAs each.

    With `num_ctas` > 1 a program is a cluster: it takes that many SMs' slots at once, and the machine counts as
    groups of `num_ctas` SMs. Raises `InputError` when the machine cannot hold one cluster.
    """
    groups = cta_groups(sm_count, times.ctas_per_sm, num_ctas)
    capacity = times.ctas_per_sm
    if groups < 1:
        raise InputError(f"{sm_count} SMs hold no cluster of {num_ctas} CTAs", where="schedule")
    if len(launch.runs) == 1:
        makespan = _uniform(launch.runs[0], times, groups)
        busy = _uniform_busy(launch.runs[0], times, groups)
    else:
        makespan, busy = _simulate_runs(launch.runs, times, groups)
    percent = 100.0 * busy / (makespan * groups * capacity) if makespan > 0 else 100.0
    return Schedule(makespan, percent)


def _uniform(run: tuple[int, float], times: CtaTimes, sms: int) -> float:
    """Equal CTAs run in waves: full ones at full residency, the rest spread one an SM, then two, ..."""
    count, iterations = run
    full, rest = divmod(count, sms * times.ctas_per_sm)
    time = full * times.cta_us(iterations, times.ctas_per_sm)
    if rest:
        time += times.cta_us(iterations, -(-rest // sms))
    return time


def _uniform_busy(run: tuple[int, float], times: CtaTimes, sms: int) -> float:
    """Slot-time that held a CTA (us x slots) for equal CTAs."""
    count, iterations = run
    full, rest = divmod(count, sms * times.ctas_per_sm)
    busy = full * sms * times.ctas_per_sm * times.cta_us(iterations, times.ctas_per_sm)
    level, extra = divmod(rest, sms)
    if extra:
        busy += extra * (level + 1) * times.cta_us(iterations, level + 1)
    if level:
        busy += (sms - extra) * level * times.cta_us(iterations, level)
    return busy


@dataclass
class _Sms:
    """SMs in the same state: the first one's number, how many, since when, and their residents as (share of the work
    left, iterations)."""

    first: int
    count: int
    since_us: float
    residents: list[tuple[float, float]]

    def next_finish(self, times: CtaTimes) -> float:
        held = len(self.residents)
        return self.since_us + min(share * times.cta_us(n, held) for share, n in self.residents)

    def advance(self, now_us: float, times: CtaTimes) -> None:
        """Move to `now_us` and drop the residents that finished."""
        held = len(self.residents)
        passed = now_us - self.since_us
        still: list[tuple[float, float]] = []
        for share, n in self.residents:
            whole = times.cta_us(n, held)
            left = share - passed / whole if whole > 0 else 0.0
            if left > _TIE:
                still.append((left, n))
        self.residents = still
        self.since_us = now_us


class _Queue:
    """CTAs not started yet, in launch order."""

    def __init__(self, runs: Sequence[tuple[int, float]]) -> None:
        self._runs = list(reversed(runs))
        self._left = self._runs[-1][0] if self._runs else 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def take(self, most: int) -> tuple[int, float]:
        """Up to `most` CTAs of the run at the front: (how many, their iterations)."""
        count, iterations = min(self._left, most), self._runs[-1][1]
        self._left -= count
        if not self._left:
            self._runs.pop()
            self._left = self._runs[-1][0] if self._runs else 0
        return count, iterations


def _fill(free: list[_Sms], capacity: int, queue: _Queue) -> list[_Sms]:
    """Start queued CTAs on SMs with free slots, fewest residents first, then in the order of the SMs; SMs
    that come to differ are split."""
    while queue and free:
        sms = min(free, key=lambda each: (len(each.residents), each.first))
        if len(sms.residents) >= capacity:
            break
        count, iterations = queue.take(sms.count)
        if count < sms.count:
            free.append(_Sms(sms.first + count, sms.count - count, sms.since_us, list(sms.residents)))
            sms.count = count
        sms.residents.append((1.0, iterations))
    return free


def _simulate_runs(runs: Sequence[tuple[int, float]], times: CtaTimes, sms: int) -> tuple[float, float]:
    """Makespan and held slot-time (us x slots) of runs of equal CTAs on `sms` SMs."""
    capacity = times.ctas_per_sm
    now = busy = 0.0
    first_count, first_iterations = runs[0]
    # Whole waves of the first run pass in lockstep; the last of them stays for the simulation.
    skip = max(first_count // (sms * capacity) - 1, 0)
    if skip:
        wave_us = times.cta_us(first_iterations, capacity)
        now = skip * wave_us
        busy = now * sms * capacity
        runs = [(first_count - skip * sms * capacity, first_iterations), *runs[1:]]
    queue = _Queue(runs)
    heap: list[tuple[float, int, _Sms]] = []
    order = 0
    end = now
    for group in _fill([_Sms(0, sms, now, [])], capacity, queue):
        if group.residents:
            heapq.heappush(heap, (group.next_finish(times), order, group))
            order += 1
    while heap:
        now = heap[0][0]
        end = now
        freed: list[_Sms] = []
        # SMs that free a slot at the same moment are filled together, or the order of the heap would decide.
        while heap and heap[0][0] <= now * (1 + _TIE):
            _, _, group = heapq.heappop(heap)
            busy += group.count * len(group.residents) * (now - group.since_us)
            group.advance(now, times)
            freed.append(group)
        for each in _fill(freed, capacity, queue):
            if each.residents:
                heapq.heappush(heap, (each.next_finish(times), order, each))
                order += 1
    return end, busy


# ---------------------------------------------------------------------------------------------------------------------
# Many launches at once.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _waves_us(count: Floats | Ints, times_us: Floats, sms: int) -> Floats:
    """Time of `count` equal CTAs: full waves, and the rest one an SM, then two, ..."""
    capacity = times_us.shape[1]
    waves, rest = np.divmod(np.asarray(count, dtype=np.int64), sms * capacity)
    level = np.clip(-(-rest // sms), 1, capacity) - 1
    return np.asarray(waves * times_us[:, -1] + np.where(rest > 0, times_us[np.arange(len(times_us)), level], 0.0))


def cta_groups(sm_count: int, ctas_per_sm: int, num_ctas: int) -> int:
    """What programs are placed on: SMs, or with clusters of `num_ctas` CTAs groups of as many SMs."""
    if num_ctas == 1:
        return sm_count
    return cta_slots(sm_count, ctas_per_sm, num_ctas) // num_ctas // ctas_per_sm


def least_makespans(counts: Ints, iterations: Floats, start_us: Floats, iteration_us: Floats, groups: int) -> Floats:
    """A time that each of many launches cannot end before: what `simulate` gives is never less.

    `counts` and `iterations` have shape [launches, runs] (a run of 0 CTAs is none), the times [launches, CTAs/SM].
    Whole waves of the first run pass in lockstep. Of what is left of it, some SM gets an even share at once; all that
    is left takes the SMs at least the time that it would at the best of all residencies; no CTA is faster than alone.
    """
    capacity = start_us.shape[1]
    cta_us = start_us[:, None, :] + iterations[:, :, None] * iteration_us[:, None, :]
    # The least time of a CTA that shares its SM with at least so many; the least of an SM's time that it takes.
    least_us = np.minimum.accumulate(cta_us[:, :, ::-1], axis=2)[:, :, ::-1]
    share_us = (cta_us / np.arange(1, capacity + 1)).min(axis=2)
    waves, rest = np.divmod(counts[:, 0], groups * capacity)
    lockstep_us = waves * cta_us[:, 0, -1]
    left = counts.copy()
    left[:, 0] = rest
    work_us = (left * share_us).sum(axis=1) / groups
    rows = np.arange(len(counts))
    level = np.clip(-(-rest // groups), 1, capacity) - 1
    first_us = np.where(rest > 0, least_us[rows, 0, level], 0.0)
    others_us = np.where(counts[:, 1:] > 0, least_us[:, 1:, 0], 0.0).max(axis=1, initial=0.0)
    return np.asarray(lockstep_us + np.maximum(np.maximum(work_us, first_us), others_us))


def uniform_makespans(counts: Ints, iterations: Floats, start_us: Floats, iteration_us: Floats, groups: int) -> Floats:
    """The makespans that `simulate` gives launches of equal CTAs; the times have shape [launches, CTAs/SM]."""
    return _waves_us(counts, start_us + iterations[:, None] * iteration_us, groups)
