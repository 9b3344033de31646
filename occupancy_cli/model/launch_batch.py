"""Many launches of one compiled kernel: a time that each cannot beat, all at once, and the exact time of those asked.

To choose among thousands of launches, few have to be timed exactly: those whose bound (`schedule.least_makespans`)
lies below the best exact time so far. The exact time of a row is to the last bit what `cost.estimate` gives for the
launch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Sharing, merge_runs
from occupancy_cli.model.launch_time import LAUNCH_US, LaunchModel
from occupancy_cli.model.schedule import CtaTimes, cta_groups, least_makespans, simulate, uniform_makespans

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_ROUNDING = 1 - 1e-7  # of sums, and of residents that the simulation takes to end together


@dataclass(frozen=True)
class Shapes:
    """The shapes of many launches: grids of shape [launches, axes], and each launch's CTAs in order as runs of equal
    ones: `counts` and `iterations` of shape [launches, runs], a run of 0 CTAs being none."""

    grids: Ints
    counts: Ints
    iterations: Floats

    def __len__(self) -> int:
        return len(self.grids)

    def shape(self, row: int) -> LaunchShape:
        """One launch's shape."""
        runs = zip(self.counts[row].tolist(), self.iterations[row].tolist(), strict=True)
        return LaunchShape(tuple(self.grids[row].tolist()), merge_runs(runs))

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
        return Shapes(np.array([s.grid for s in shapes], dtype=np.int64), counts, iterations)


class Launches:
    """Launches of one kernel: `at_least_us` bounds each, `time_us` times one."""

    def __init__(self, model: LaunchModel, work: CtaWork, shapes: Shapes) -> None:
        self._model, self._shapes = model, shapes
        totals = shapes.total_iterations()
        programs = shapes.grids.prod(axis=1)
        working = (shapes.counts * (shapes.iterations > 0)).sum(axis=1)
        working = np.where(working > 0, working, programs)
        held = (len(shapes), model.ctas_per_sm)
        self._start, self._iteration = np.empty(held), np.empty(held)
        self._floor = np.empty(len(shapes))
        for sharing, rows in by_sharing(work, shapes.grids):
            total = np.asarray(model.total_bytes(totals[rows], programs[rows], sharing), dtype=float)
            far = np.asarray(model.far_share(total), dtype=float)
            self._start[rows], self._iteration[rows] = model.by_residents(far, working[rows].astype(float), sharing)
            self._floor[rows] = model.floor_us(total, far)
        groups = cta_groups(model.sm_count, model.ctas_per_sm, model.num_ctas)
        self._exact = np.full(len(shapes), np.nan)
        least = np.zeros(len(shapes))
        if groups >= 1:  # else `simulate` says what is wrong
            least = least_makespans(shapes.counts, shapes.iterations, self._start, self._iteration, groups)
            plain = (shapes.counts[:, 1:] == 0).all(axis=1)
            makespan = uniform_makespans(
                shapes.counts[:, 0], shapes.iterations[:, 0], self._start, self._iteration, groups
            )
            self._exact[plain] = (LAUNCH_US + np.maximum(makespan, self._floor))[plain]
        bound = LAUNCH_US + np.maximum(_ROUNDING * least, self._floor)
        self.at_least_us: Floats = np.where(np.isnan(self._exact), bound, self._exact)

    def time_us(self, row: int) -> float:
        """The exact time of one launch."""
        known = float(self._exact[row])
        if known == known:
            return known
        model = self._model
        times = CtaTimes(tuple(self._start[row].tolist()), tuple(self._iteration[row].tolist()))
        schedule = simulate(self._shapes.shape(row), times, model.sm_count, model.num_ctas)
        return LAUNCH_US + max(schedule.makespan_us, float(self._floor[row]))


def by_sharing(work: CtaWork, grids: Ints) -> list[tuple[Sharing, Ints]]:
    """How launches share what their CTAs load, each way with its rows."""
    # What a launch shares depends on the extents of its grid; along an axis that only some loads depend on, too.
    if not work.loads_by_axes or work.unique_bytes_per_iteration is not None:
        return [(work.sharing(tuple(grids[0].tolist())), np.arange(len(grids)))] if len(grids) else []
    distinct, first, inverse = np.unique(_ratios(work, grids), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(distinct) + 1))
    return [(work.sharing(tuple(grids[row].tolist())), order[bounds[i] : bounds[i + 1]]) for i, row in enumerate(first)]


def _ratios(work: CtaWork, grids: Ints) -> Ints:
    """For each launch, what its sharing depends on: of each kind of load, how many programs read the same."""
    columns = []
    for _, axes in work.loads_by_axes:
        if axes is None:
            continue
        held = np.ones(len(grids), dtype=np.int64)
        for axis, together in dict(axes).items():
            if axis < grids.shape[1]:
                held = held * -(-grids[:, axis] // together)
        programs = grids.prod(axis=1)
        common = np.gcd(held, programs)
        columns += [held // common, programs // common]
    return np.stack(columns, axis=1) if columns else np.zeros((len(grids), 1), dtype=np.int64)
