"""Which setting to use: candidates ranked by predicted time, for one batch, several, or a traffic mix.

A candidate is a full answer (knob values, config, splits) with the launches it makes; each launch carries the resources
of its own specialization, since Triton compiles `tiles_per_split == 1` to another kernel. Its time is the sum of its
launches'. The incumbent wins a tie: a gain within the model's own error is not worth a change, and that error comes
from recorded validation (`validation/regret.md`), not from a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from occupancy_cli.errors import InputError
from occupancy_cli.model.cost import (
    LAUNCH_US,
    Calibration,
    GpuRates,
    KernelLaunch,
    LaunchModel,
    Residency,
    TimeEstimate,
    estimate,
    launch_model,
)
from occupancy_cli.model.many import by_sharing
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import split_makespans
from occupancy_cli.model.waves import wave_schedule
from occupancy_cli.model.work import CtaWork, LaunchShape

# Half of the predicted ratios between near candidates are off by less (validation/regret.md, "nothing fitted", worst
# surface; a test holds the two together).
SAME_CONFIG_ERROR_PERCENT = 4.3
OTHER_CONFIG_ERROR_PERCENT = 9.2
NO_MACHINE_CODE_ERROR_PERCENT = 6.5
"""Without SASS the model knows little more than waves and work: the mean regret of `waves x (2 + tiles)`."""

__all__ = [
    "Candidate",
    "KernelLaunch",
    "Ranking",
    "Scored",
    "SingleSetting",
    "SplitFamily",
    "Sweep",
    "Variant",
    "best_single_setting",
    "describe",
    "pareto",
    "rank",
    "score",
    "sweep",
]

Setting = tuple[tuple[str, int | float | str], ...]


@dataclass(frozen=True)
class Candidate:
    """A setting and the launches it makes at one batch: the main kernel first, followers (a combine kernel) after it.

    `knobs` are what a person sets (BLOCK_H, TARGET_CTAS), `config` the constexprs and launch options an autotuner would
    pick. `nsplit` is None for a kernel without splits. `partial_bytes` is the memory that partial results take.
    """

    batch: int
    knobs: Setting
    config: Setting
    launches: tuple[KernelLaunch, ...]
    nsplit: int | None = None
    partial_bytes: int = 0

    @property
    def setting(self) -> tuple[Setting, Setting]:
        """What stays the same across batches: knobs and config."""
        return (self.knobs, self.config)


@dataclass(frozen=True)
class Scored:
    """A candidate with its predicted time. `ratio` is the incumbent's time / this time: above 1 is faster, None when
    there is no incumbent time to compare with."""

    candidate: Candidate
    time_us: float
    ratio: float | None
    estimates: tuple[TimeEstimate, ...]


@dataclass(frozen=True)
class Ranking:
    """The answer for one batch.

    `ranked` holds every candidate with a time, fastest first; `chosen` is what to use: the fastest, or the incumbent
    when the predicted gain is within `error_percent` (`kept_incumbent`). `cannot_launch` are candidates without a
    time, with the reason. `reasons` are three short lines.
    """

    batch: int
    chosen: Scored
    runner_up: Scored | None
    incumbent: Scored | None
    ranked: tuple[Scored, ...]
    cannot_launch: tuple[tuple[Candidate, str], ...]
    kept_incumbent: bool
    error_percent: float
    reasons: tuple[str, ...]

    @property
    def predicted_ratio(self) -> float | None:
        """Incumbent's predicted time / the chosen one's."""
        return self.chosen.ratio


@dataclass(frozen=True)
class SingleSetting:
    """The best one setting for several batches: `slowdown` is its weighted mean time over each batch's own best."""

    knobs: Setting
    config: Setting
    slowdown: float
    by_batch: tuple[tuple[int, Scored], ...]


def score(
    gpu: GpuRates, candidate: Candidate, calibration: Calibration | None = None, cold: bool = False
) -> tuple[Scored | None, str]:
    """The candidate with its time, or None and why it has none."""
    estimates = tuple(
        estimate(
            gpu,
            launch.resources,
            launch.occupancy,
            launch.work,
            launch.shape,
            calibration.of(launch) if calibration else None,
            cold,
            follows=number > 0,
        )
        for number, launch in enumerate(candidate.launches)
    )
    total = 0.0
    for launch, each in zip(candidate.launches, estimates, strict=True):
        if each.time_us is None:
            return None, f"{launch.kernel}: {each.unknown[0][0]} is unknown: {each.unknown[0][1]}"
        total += each.time_us
    return Scored(candidate, total, None, estimates), ""


def rank(
    gpu: GpuRates,
    candidates: Sequence[Candidate],
    incumbent: Candidate | None = None,
    error_percent: float | None = None,
    calibration: Calibration | None = None,
    cold: bool = False,
) -> Ranking:
    """Rank candidates of one batch. Raises `InputError` when there are none, or none with a time.

    `error_percent` is what a predicted gain must exceed for the incumbent to lose; left out, it is the model's recorded
    error for the two candidates at hand (see `model_error_percent`).
    """
    if not candidates:
        raise InputError("there is no candidate to rank", where="recommendation")
    batches = {c.batch for c in candidates} | ({incumbent.batch} if incumbent else set())
    if len(batches) > 1:
        raise InputError(f"candidates of batches {sorted(batches)} cannot be ranked together", where="recommendation")
    base = score(gpu, incumbent, calibration, cold)[0] if incumbent else None
    ranked: list[Scored] = []
    failed: list[tuple[Candidate, str]] = []
    for candidate in candidates:
        scored, why = score(gpu, candidate, calibration, cold)
        if scored is None:
            failed.append((candidate, why))
        else:
            ratio = base.time_us / scored.time_us if base else None
            ranked.append(Scored(candidate, scored.time_us, ratio, scored.estimates))
    if not ranked:
        raise InputError(f"no candidate can be timed; {failed[0][1]}", where="recommendation")
    # Equal times (nsplit beyond the tiles, say) go to the smaller partial results.
    ranked.sort(key=lambda s: (s.time_us, s.candidate.partial_bytes))
    chosen = ranked[0]
    kept = False
    error = error_percent if error_percent is not None else model_error_percent(chosen, base)
    if base is not None:
        base = Scored(base.candidate, base.time_us, 1.0, base.estimates)
        kept = base.time_us <= chosen.time_us * (1 + error / 100)
        if kept:
            chosen = base
    runner_up = next((s for s in ranked if s.candidate != chosen.candidate), None)
    reasons = _reasons(gpu, chosen, base, runner_up, kept, error)
    return Ranking(batches.pop(), chosen, runner_up, base, tuple(ranked), tuple(failed), kept, error, reasons)


def model_error_percent(one: Scored, other: Scored | None) -> float:
    """The model's recorded error in the ratio of two candidates' times, in per cent."""
    for scored in (one, other):
        if scored is not None and any(launch.work.timing is None for launch in scored.candidate.launches[:1]):
            return NO_MACHINE_CODE_ERROR_PERCENT
    if other is None or _tiles(one.candidate) == _tiles(other.candidate):
        return SAME_CONFIG_ERROR_PERCENT
    return OTHER_CONFIG_ERROR_PERCENT


def _tiles(candidate: Candidate) -> tuple[object, ...]:
    """What the main kernel is compiled to, but for the specialization of its integers: config and shared memory."""
    main = candidate.launches[0]
    return (candidate.config, main.kernel, main.resources.shared_bytes, main.resources.num_warps)


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


def pareto(scored: Sequence[Scored]) -> tuple[Scored, ...]:
    """Candidates that no other beats in both time and memory for partial results, fastest first."""
    front: list[Scored] = []
    for each in sorted(scored, key=lambda s: (s.time_us, s.candidate.partial_bytes)):
        if not front or each.candidate.partial_bytes < front[-1].candidate.partial_bytes:
            front.append(each)
    return tuple(front)


# ---------------------------------------------------------------------------------------------------------------------
# Splits of a config over many batches at once.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_TARGETS = 400


@dataclass(frozen=True)
class Variant:
    """A compiled kernel: its resources, how many CTAs share an SM, what a CTA does."""

    kernel: str
    resources: KernelResources
    occupancy: Residency
    work: CtaWork


@dataclass(frozen=True)
class SplitFamily:
    """A split-K kernel in one config: grid [batch, units, nsplit], `tiles` iterations dealt out over the splits.

    `looped` is the kernel as compiled for several tiles a split, `once` for a single one (None: the same kernel).
    `combine` merges the splits with `combine_ctas` CTAs a request and nsplit iterations each; `combine_once` is what it
    is compiled to for one split. `partial_bytes` is the memory that one split of one request needs.
    """

    knobs: Setting
    config: Setting
    tiles: int
    units: int
    looped: Variant
    once: Variant | None = None
    combine: Variant | None = None
    combine_once: Variant | None = None
    combine_ctas: int = 1
    partial_bytes: int = 0

    def candidate(self, batch: int, nsplit: int) -> Candidate:
        """The launches at a batch with `nsplit` splits."""
        tiles_per_split = -(-self.tiles // nsplit)
        main = self.once if self.once is not None and tiles_per_split == 1 else self.looped
        shape = LaunchShape.split((batch, self.units, nsplit), self.tiles, tiles_per_split)
        launches = [KernelLaunch(main.kernel, main.resources, main.occupancy, main.work, shape)]
        merge = self.combine_once if self.combine_once is not None and nsplit == 1 else self.combine
        if merge is not None:
            shape = LaunchShape.uniform((batch, self.combine_ctas), float(nsplit))
            launches.append(KernelLaunch(merge.kernel, merge.resources, merge.occupancy, merge.work, shape))
        return Candidate(
            batch, self.knobs, self.config, tuple(launches), nsplit, batch * nsplit * self.partial_bytes
        )  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """Predicted times of every family x split x batch, in microseconds.

    `times_us[f]` has shape [splits of family f, batches]; `splits[f]` lists its splits. Infinite: cannot launch. The
    times come from closed forms of the schedule (see `schedule.split_makespans`): `ranking` times the best of them
    exactly.
    """

    gpu: GpuRates
    families: tuple[SplitFamily, ...]
    batches: Ints
    splits: tuple[Ints, ...]
    times_us: tuple[Floats, ...]
    calibration: Calibration | None = None
    cold: bool = False
    _columns: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)

    def top(self, batch: int, count: int = 6) -> list[tuple[SplitFamily, int, float]]:
        """The fastest (family, nsplit, time) at a batch."""
        column = self._columns[batch]
        found = [
            (float(times[i, column]), f, int(splits[i]))
            for f, (splits, times) in enumerate(zip(self.splits, self.times_us, strict=True))
            for i in np.argsort(times[:, column], kind="stable")[:count]
            if math.isfinite(times[i, column])
        ]
        return [(self.families[f], nsplit, time) for time, f, nsplit in sorted(found)[:count]]

    def best_us(self) -> Floats:
        """The best time at each batch."""
        return np.asarray(np.min([times.min(axis=0) for times in self.times_us], axis=0))

    def ranking(self, batch: int, incumbent: Candidate | None = None, count: int = 6) -> Ranking:
        """An exact ranking of the fastest `count` at a batch, and of the incumbent."""
        candidates = [family.candidate(batch, nsplit) for family, nsplit, _ in self.top(batch, count)]
        if not candidates:
            raise InputError("no config can launch", where="recommendation")
        return rank(self.gpu, candidates, incumbent, calibration=self.calibration, cold=self.cold)

    def target_us(self, family: int, target_ctas: int, ceil: bool = False) -> Floats:
        """Time at each batch when nsplit follows from TARGET_CTAS: target / (batch x units), at least 1, at most the
        family's most splits."""
        units = self.batches * self.families[family].units
        splits = self.splits[family]
        wanted = -(-target_ctas // units) if ceil else target_ctas // units
        at = np.searchsorted(splits, np.clip(wanted, splits[0], splits[-1]))
        return np.asarray(self.times_us[family][at, np.arange(len(self.batches))])

    def best_target(
        self, weights: Mapping[int, float] | None = None, targets: Sequence[int] | None = None, ceil: bool = False
    ) -> tuple[int, int, float]:
        """(family, TARGET_CTAS, weighted time over each batch's best) of the one setting that is best over all batches.

        Without `weights` every batch counts the same; with them (batch to share of steps) its time does. `targets` left
        out are those at which some batch gets another split, thinned to a few hundred.
        """
        best = self.best_us()
        share = np.array([1.0 if weights is None else weights.get(int(b), 0.0) for b in self.batches])
        if share.sum() <= 0:
            raise InputError("the mix gives no weight to any of the batches", where="mix")
        scale = 1.0 / best if weights is None else np.full(len(best), 1.0 / float(share @ best) * share.sum())
        found: tuple[float, int, int] | None = None
        for f, family in enumerate(self.families):
            tried: Sequence[int] | Ints | None = targets
            if tried is None:
                tried = np.unique(np.outer(self.splits[f], self.batches * family.units))
                if len(tried) > _MOST_TARGETS:
                    tried = tried[np.linspace(0, len(tried) - 1, _MOST_TARGETS).astype(np.int64)]
            for target in tried:
                cost = float(share @ (self.target_us(f, int(target), ceil) * scale) / share.sum())
                if found is None or cost < found[0] - 1e-12:
                    found = (cost, f, int(target))
        if found is None or not math.isfinite(found[0]):
            raise InputError("no setting can launch at every batch", where="recommendation")
        return found[1], found[2], found[0]


def sweep(
    gpu: GpuRates,
    families: Sequence[SplitFamily],
    batches: Sequence[int],
    splits: Sequence[int] | None = None,
    calibration: Calibration | None = None,
    cold: bool = False,
) -> Sweep:
    """Time every split (all of 1 to the tiles, or `splits`) of every family at every batch."""
    if not families or not len(batches) or min(batches) < 1:
        raise InputError("a sweep needs at least one family and batches of 1 or more", where="sweep")
    wanted = np.array(sorted(set(batches)), dtype=np.int64)
    all_splits = []
    all_times = []
    for family in families:
        chosen = np.arange(1, family.tiles + 1) if splits is None else np.array(sorted(set(splits)), dtype=np.int64)
        chosen = chosen[(chosen >= 1) & (chosen <= family.tiles)]
        if not len(chosen):
            raise InputError(f"none of the splits lies between 1 and {family.tiles} tiles", where="sweep")
        all_splits.append(chosen)
        all_times.append(_family_us(gpu, family, wanted, chosen, calibration, cold))
    columns = {int(b): i for i, b in enumerate(wanted)}
    return Sweep(gpu, tuple(families), wanted, tuple(all_splits), tuple(all_times), calibration, cold, columns)


def _family_us(
    gpu: GpuRates,
    family: SplitFamily,
    batches: Ints,
    splits: Ints,
    calibration: Calibration | None,
    cold: bool,
) -> Floats:
    """Times of shape [splits, batches]."""
    tiles_per_split = -(-family.tiles // splits)
    times = np.empty((len(splits), len(batches)))
    requests = batches * family.units
    for variant, rows in (
        (family.looped, (tiles_per_split > 1) | (family.once is None)),
        (family.once, (tiles_per_split == 1) & (family.once is not None)),
    ):
        if variant is None or not rows.any():
            continue
        model = _model(gpu, variant, calibration, cold)
        if model is None:
            times[rows] = np.inf
            continue
        per, count = tiles_per_split[rows], splits[rows]
        whole, left = np.divmod(family.tiles, per)
        ones = np.ones((len(per), len(batches)), dtype=np.int64)
        full, short = whole[:, None] * requests, (left > 0)[:, None] * requests
        times[rows] = _split_us(
            model, variant.work, (batches, family.units, count[:, None]),
            full * ones, short * ones, count[:, None] * requests - full - short,
            per[:, None] * ones, left[:, None] * ones, family.tiles * requests * ones,
        )  # fmt: skip
    for variant, rows in (
        (family.combine, (splits > 1) | (family.combine_once is None)),
        (family.combine_once, splits == 1),
    ):
        if variant is None or not rows.any():
            continue
        model = _model(gpu, variant, calibration, cold, follows=True)
        if model is None:
            times[rows] = np.inf
            continue
        ones = np.ones((int(rows.sum()), len(batches)), dtype=np.int64)
        ctas = batches * family.combine_ctas * ones
        count = splits[rows][:, None] * ones
        times[rows] += _split_us(
            model, variant.work, (batches, family.combine_ctas),
            ctas, 0 * ones, 0 * ones, count, 0 * ones, ctas * count,
        )  # fmt: skip
    return times


def _model(
    gpu: GpuRates, variant: Variant, calibration: Calibration | None, cold: bool, follows: bool = False
) -> LaunchModel | None:
    held = KernelLaunch(
        variant.kernel, variant.resources, variant.occupancy, variant.work, LaunchShape.uniform((1,), 1.0)
    )
    factors = calibration.of(held) if calibration else None
    return launch_model(gpu, variant.resources, variant.occupancy, variant.work, factors, cold, follows)[0]


def _split_us(
    model: LaunchModel, work: CtaWork, grid: Sequence[int | Ints], full: Ints, short: Ints, empty: Ints, full_n: Ints,
    short_n: Ints, iterations: Ints,
) -> Floats:  # fmt: skip
    """Times of launches of full, short and empty CTAs; every argument after `grid` has the shape of the result, and the
    axes of `grid` broadcast to it."""
    grids = np.stack([np.broadcast_to(axis, full.shape).ravel() for axis in grid], axis=1)
    columns = [each.ravel() for each in (full, short, empty, full_n, short_n, iterations)]
    times = np.empty(full.size)
    for sharing, at in by_sharing(work, grids):
        many, few, none, many_n, few_n, total_n = (each[at] for each in columns)
        total = model.total_bytes(total_n, many + few + none, sharing)
        far = np.asarray(model.far_share(total))
        start, iteration = model.by_residents(far, (many + few).astype(np.float64), sharing)
        makespan = split_makespans(
            many, few, none, start + many_n[:, None] * iteration, start + few_n[:, None] * iteration, start,
            max(model.sm_count // model.num_ctas, 1),
        )  # fmt: skip
        times[at] = LAUNCH_US + np.maximum(makespan, np.asarray(model.floor_us(total, far)))
    return times.reshape(full.shape)


def describe(candidate: Candidate) -> str:
    """The knobs, config and splits on one line."""
    settings = (*candidate.knobs, *candidate.config)
    parts = [f"{name} {value}" for name, value in settings if (name, value) != ("num_ctas", 1)]
    if candidate.nsplit is not None:
        parts.append(f"nsplit {candidate.nsplit}")
    return ", ".join(parts)


def _waves_text(gpu: GpuRates, scored: Scored) -> str:
    launch = scored.candidate.launches[0]
    per_sm = launch.occupancy.ctas_per_sm
    waves = wave_schedule(launch.shape.grid, per_sm, gpu.sm_count, launch.resources.num_ctas)
    if waves.waves is None or waves.tail_percent is None:
        return f"{waves.ctas} CTAs"
    last = f", the last {waves.tail_percent:.0f} % full" if waves.tail_ctas and waves.full_waves else ""
    return f"{waves.ctas} CTAs on {waves.slots} slots ({per_sm} CTAs/SM): {waves.waves:.2f} waves{last}"


def _reasons(
    gpu: GpuRates,
    chosen: Scored,
    base: Scored | None,
    runner_up: Scored | None,
    kept: bool,
    error_percent: float,
) -> tuple[str, ...]:
    """Three lines: the waves, what bounds the time, and how sure the choice is."""
    lines = [_waves_text(gpu, chosen)]
    main = chosen.estimates[0]
    if base is not None and not kept:
        lines[0] += f"; now {_waves_text(gpu, base)}"
    bound = f"{chosen.time_us:.1f} us predicted, bound by {main.binding}"
    if base is not None and not kept:
        bound += f"; now {base.time_us:.1f} us, bound by {base.estimates[0].binding}"
    lines.append(bound)
    if kept:
        lines.append(f"nothing is predicted to gain more than the model's own error of {error_percent:.1f} %")
    elif runner_up is not None:
        margin = 100 * (runner_up.time_us / chosen.time_us - 1)
        lines.append(f"next best {describe(runner_up.candidate)}, {margin:.1f} % slower")
    else:
        lines.append("the only candidate that can launch")
    return tuple(lines)
