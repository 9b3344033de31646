"""Many launches of one compiled kernel: a time that each cannot beat, all at once, and the exact time of those asked.

To choose among thousands of launches, few have to be timed exactly: those whose bound (`schedule.least_makespans`)
lies below the best exact time so far. This is the one place where launches get their times, one launch or many; a test
holds every row to the formulas written out for a launch alone, to the last bit.

    launches = Launches(model, unknown, work, Shapes.of(shapes))
    launches.at_least_us        # array([12.1, 14.0, ...]): no launch ends before its bound
    launches.time_us(3)         # 14.72: the exact time of one
    launches.estimate(3)        # the same with its terms, and what binds it
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, merge_runs
from occupancy_cli.model.intervals import interval
from occupancy_cli.model.launch_time import (
    FLOOR_SOFTNESS,
    Dealt,
    Factors,
    GpuRates,
    KernelLaunch,
    LaunchModel,
    TimeEstimate,
    launch_model,
    turns_of,
)
from occupancy_cli.model.schedule import CtaTimes, Schedule, cta_groups, least_makespans, simulate, uniform_makespans

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_ROUNDING = 1 - 1e-7  # of sums, and of residents that the simulation takes to end together
FactorsOf = Callable[[KernelLaunch], Factors]
_BINDS = 0.75  # a unit that is busy for this share of an iteration's time is what bounds it


@dataclass(frozen=True)
class Shapes:
    """The shapes of many launches: grids of shape [launches, axes], and each launch's CTAs in order as runs of equal
    ones: `counts` and `iterations` of shape [launches, runs], a run of 0 CTAs being none. `told` are the shapes that
    they were made of, where those say more."""

    grids: Ints
    counts: Ints
    iterations: Floats
    told: tuple[LaunchShape, ...] = ()

    def __len__(self) -> int:
        return len(self.grids)

    def shape(self, row: int) -> LaunchShape:
        """One launch's shape."""
        runs = zip(self.counts[row].tolist(), self.iterations[row].tolist(), strict=True)
        return self.told[row] if self.told else LaunchShape(tuple(self.grids[row].tolist()), merge_runs(runs))

    def dealt(self, work: CtaWork) -> Dealt:
        """How the work of a CTA is dealt out in each launch."""
        rows = len(self)
        programs = self.grids.prod(axis=1).astype(float)
        working = (self.counts * (self.iterations > 0)).sum(axis=1)
        sharers = np.empty((rows, len(work.streams)))
        for number, stream in enumerate(work.streams):
            sharers[:, number] = stream.sharers_of(self.grids)
        always, each = np.zeros((rows, len(work.loops))), np.zeros((rows, len(work.loops)))
        for row, shape in enumerate(self.told):
            always[row], each[row] = turns_of(work.loops, shape.turns)
            if shape.sharers:
                sharers[row] = shape.sharers
        working = np.where(working > 0, working, programs)
        return Dealt(self.total_iterations(), programs, working.astype(float), always, each, np.maximum(sharers, 1.0))

    def total_iterations(self) -> Floats:
        """`LaunchShape.total_iterations` of each launch."""
        products = self.counts * self.iterations
        if np.all(products == np.floor(products)):  # exact in any order
            return np.asarray(products.sum(axis=1))
        return np.array([sum(row) for row in products.tolist()], dtype=float)

    @staticmethod
    def uniform(grids: Ints, iterations: Floats) -> Shapes:
        """`LaunchShape.uniform` of each grid."""
        return Shapes(grids, grids.prod(axis=1)[:, None], iterations[:, None].astype(float))

    @staticmethod
    def split(grids: Ints, tiles: Ints, tiles_per_split: Ints) -> Shapes:
        """`LaunchShape.split` of each grid, along its last axis."""
        if np.any((tiles < 1) | (tiles_per_split < 1)):
            raise InputError("a split of no tiles", where="launch")
        splits, inner = grids[:, -1], grids[:, :-1].prod(axis=1)
        full, left = np.divmod(tiles, tiles_per_split)
        short = (left > 0).astype(np.int64)
        if np.any(full + short > splits):
            raise InputError("splits that do not cover the tiles", where="launch")
        counts = np.stack([full, short, splits - full - short], axis=1) * inner[:, None]
        return Shapes(grids, counts, np.stack([tiles_per_split, left, 0 * left], axis=1).astype(float))

    @staticmethod
    def of(shapes: Sequence[LaunchShape]) -> Shapes:
        """Shapes worked out one by one."""
        most = max(len(s.runs) for s in shapes)
        counts = np.zeros((len(shapes), most), dtype=np.int64)
        iterations = np.zeros((len(shapes), most))
        for row, shape in enumerate(shapes):
            counts[row, : len(shape.runs)] = [count for count, _ in shape.runs]
            iterations[row, : len(shape.runs)] = [each for _, each in shape.runs]
        told = tuple(shapes) if any(s.turns or s.sharers for s in shapes) else ()
        return Shapes(np.array([s.grid for s in shapes], dtype=np.int64), counts, iterations, told)


class Launches:
    """Launches of one kernel: `at_least_us` bounds each, `time_us` times one, `estimate` says what its time is made of.

    `unknown` is what `launch_model` found missing of the kernel, carried into every estimate.
    """

    def __init__(self, model: LaunchModel, unknown: tuple[tuple[str, str], ...], work: CtaWork, shapes: Shapes) -> None:
        self._model, self._unknown, self._shapes, self._work = model, unknown, shapes, work
        dealt = shapes.dealt(work)
        self._total = model.total_bytes(dealt)
        self._far = model.far_share(self._total)
        self._start, self._iteration = model.by_residents(dealt, self._far)
        self._dram = model.dram_bytes(dealt, self._total, self._far)
        self._memory = model.memory_us(self._dram)
        self._handout = dealt.programs * model.rates.cta_handout_us
        groups = cta_groups(model.sm_count, model.ctas_per_sm, model.num_ctas)
        self._exact = np.full(len(shapes), np.nan)
        least = np.zeros(len(shapes))
        if groups >= 1:  # else `simulate` says what is wrong
            least = least_makespans(shapes.counts, shapes.iterations, self._start, self._iteration, groups)
            plain = (shapes.counts[:, 1:] == 0).all(axis=1)
            makespan = uniform_makespans(
                shapes.counts[:, 0], shapes.iterations[:, 0], self._start, self._iteration, groups
            )
            self._exact[plain] = self._together(makespan, slice(None))[plain]
        bound = self._together(_ROUNDING * least, slice(None))
        self.at_least_us: Floats = np.where(np.isnan(self._exact), bound, self._exact)

    def time_us(self, row: int) -> float:
        """The exact time of one launch."""
        if np.isnan(self._exact[row]):
            self._exact[row] = self._together(np.array([self._schedule(row).makespan_us]), slice(row, row + 1))[0]
        return float(self._exact[row])

    def estimate(self, row: int) -> TimeEstimate:
        """The exact time of one launch with every term of it, and the one that binds."""
        model, times, schedule = self._model, self._times(row), self._schedule(row)
        memory, handout = float(self._memory[row]), float(self._handout[row])
        span = times.iteration_us[-1] or times.start_us[-1]
        name, busiest = max(model.units_us, key=lambda item: item[1], default=("latency", 0.0))
        binding = name if model.ctas_per_sm * busiest >= _BINDS * span else "latency"
        terms = {
            "launch_us": model.rates.launch_us,
            "cta_start_us": times.start_us[-1],
            "iteration_us": times.iteration_us[-1],
            "iteration_alone_us": times.iteration_us[0],
            **{f"iteration_{unit.replace(' ', '_')}_us": value for unit, value in model.units_us},
            "schedule_us": schedule.makespan_us,
            "busy_percent": schedule.busy_percent,
            "memory_us": memory,
            "handout_us": handout,
            "distinct_bytes": float(self._total[row]),
            "dram_bytes": float(self._dram[row]),
            "dram_answers_percent": 100.0 * float(self._far[row]),
        }
        if memory > schedule.makespan_us:
            binding = "memory bandwidth"
        if handout > max(schedule.makespan_us, memory):
            binding = "handing out CTAs"
        time_us = self.time_us(row)
        likely = interval(time_us, self._work, model.arch)
        return TimeEstimate(time_us, MappingProxyType(terms), binding, self._unknown, times, likely)

    def _together(self, makespan_us: Floats, rows: slice) -> Floats:
        """The time of these launches, whose schedules take that long: with their bytes and the handing out of CTAs."""
        terms = (makespan_us, self._memory[rows], self._handout[rows])
        most = np.maximum(np.maximum.reduce(terms), 1e-9)
        return np.asarray(
            self._model.rates.launch_us
            + most * sum((each / most) ** FLOOR_SOFTNESS for each in terms) ** (1.0 / FLOOR_SOFTNESS)
        )

    def _times(self, row: int) -> CtaTimes:
        return CtaTimes(tuple(self._start[row].tolist()), tuple(self._iteration[row].tolist()))

    def _schedule(self, row: int) -> Schedule:
        model = self._model
        return simulate(self._shapes.shape(row), self._times(row), model.sm_count, model.num_ctas)


class KernelLaunches:
    """Launches of any kernels, put together by kernel so that each kernel's are worked out at once.

    `follows` says of each launch whether it reads what the one before it has just written, as a combine kernel does.
    """

    def __init__(self, gpu: GpuRates, launches: Sequence[KernelLaunch], follows: Sequence[bool], cold: bool) -> None:
        self._gpu, self._cold = gpu, cold
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        for i, (each, after) in enumerate(zip(launches, follows, strict=True)):
            groups.setdefault((each.kernel, each.resources, each.occupancy, each.work, after), []).append(i)
        # Of each kernel one launch, which stands for all but for its shape.
        self._kernels = [
            (launches[members[0]], follows[members[0]], Shapes.of([launches[i].shape for i in members]))
            for members in groups.values()
        ]
        self._places = [(0, 0)] * len(launches)
        for number, members in enumerate(groups.values()):
            for place, i in enumerate(members):
                self._places[i] = (number, place)

    def timed(self, factors_of: FactorsOf | None = None) -> TimedLaunches:
        """The launches with their times, each kernel's own factors on its terms."""
        return TimedLaunches(self, factors_of)

    def place(self, which: int) -> tuple[int, int]:
        """(number of a launch's kernel, the launch's place among those of that kernel)."""
        return self._places[which]

    def of_kernel(self, number: int, factors_of: FactorsOf | None) -> Launches | tuple[tuple[str, str], ...]:
        """All launches of one kernel, or what is unknown where it has no time."""
        launch, after, shapes = self._kernels[number]
        factors = factors_of(launch) if factors_of else None
        model, unknown = launch_model(
            self._gpu, launch.resources, launch.occupancy, launch.work, factors, self._cold, after
        )
        return unknown if model is None else Launches(model, unknown, launch.work, shapes)


class TimedLaunches:
    """What `KernelLaunches` come to, a kernel's worked out when the first of its launches is asked for: `time_us` and
    `estimate` of one; None, and an estimate that says why, for one of a kernel that has no time."""

    def __init__(self, launches: KernelLaunches, factors_of: FactorsOf | None) -> None:
        self._launches, self._factors_of = launches, factors_of
        self._kernels: dict[int, Launches | tuple[tuple[str, str], ...]] = {}

    def _of(self, kernel: int) -> Launches | tuple[tuple[str, str], ...]:
        if kernel not in self._kernels:
            self._kernels[kernel] = self._launches.of_kernel(kernel, self._factors_of)
        return self._kernels[kernel]

    def time_us(self, which: int) -> float | None:
        """The exact time of one launch."""
        kernel, within = self._launches.place(which)
        found = self._of(kernel)
        return found.time_us(within) if isinstance(found, Launches) else None

    def estimate(self, which: int) -> TimeEstimate:
        """The same with its terms."""
        kernel, within = self._launches.place(which)
        found = self._of(kernel)
        if isinstance(found, Launches):
            return found.estimate(within)
        return TimeEstimate(None, MappingProxyType({}), None, found)


def estimates(
    gpu: GpuRates,
    launches: Sequence[KernelLaunch],
    follows: Sequence[bool],
    factors_of: FactorsOf | None = None,
    cold: bool = False,
) -> list[TimeEstimate]:
    """The time of every launch; `factors_of` (`Calibration.of`) gives the factors that measurements put on a kernel's
    terms, `cold` says that none of a launch's data is in the L2 beforehand."""
    timed = KernelLaunches(gpu, launches, follows, cold).timed(factors_of)
    return [timed.estimate(i) for i in range(len(launches))]
