"""Which setting to use: candidates ranked by predicted time, for one batch, several, or a traffic mix.

A candidate is a full answer (knob values, config, splits) with the launches it makes; each launch carries the resources
of its own specialization, since Triton compiles `tiles_per_split == 1` to another kernel. Its time is the sum of its
launches'. The incumbent wins a tie: a gain within the model's own error is not worth a change, and that error comes
from recorded validation (`validation/regret.md`), not from a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_batch import FactorsOf, estimates
from occupancy_cli.model.launch_time import GpuRates, KernelLaunch, TimeEstimate
from occupancy_cli.model.waves import wave_schedule

# Half of the predicted ratios between near candidates are off by less (validation/regret.md, "nothing fitted", worst
# surface; a test holds the two together).
SAME_CONFIG_ERROR_PERCENT = 3.0
OTHER_CONFIG_ERROR_PERCENT = 6.3
NO_MACHINE_CODE_ERROR_PERCENT = 6.5
"""Without SASS the model knows little more than waves and work: the mean regret of `waves x (2 + tiles)`."""

__all__ = [
    "Candidate",
    "KernelLaunch",
    "Ranking",
    "Scored",
    "SingleSetting",
    "Untimed",
    "describe",
    "pareto",
    "rank",
    "time_candidates",
    "timed",
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

    @property
    def interval_us(self) -> tuple[float, float] | None:
        """Where nine of ten measured times lie that are predicted so: its launches' together; None where one has
        none."""
        parts = [each.interval_us for each in self.estimates]
        known = [each for each in parts if each is not None]
        if not known or len(known) < len(parts):
            return None
        return sum(low for low, _ in known), sum(high for _, high in known)


@dataclass(frozen=True)
class Untimed:
    """A candidate without a time, and why."""

    candidate: Candidate
    why: str


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
    cannot_launch: tuple[Untimed, ...]
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


def timed(candidate: Candidate, estimates: Sequence[TimeEstimate]) -> Scored | Untimed:
    """A candidate with the times of its launches, one after the other."""
    total = 0.0
    for launch, each in zip(candidate.launches, estimates, strict=True):
        if each.time_us is None:
            return Untimed(candidate, f"{launch.kernel}: {each.unknown[0][0]} is unknown: {each.unknown[0][1]}")
        total += each.time_us
    return Scored(candidate, total, None, tuple(estimates))


def time_candidates(
    gpu: GpuRates, candidates: Sequence[Candidate], factors_of: FactorsOf | None = None, cold: bool = False
) -> list[Scored | Untimed]:
    """Every candidate with its time, those of one kernel worked out together."""
    launches = [launch for c in candidates for launch in c.launches]
    follows = [number > 0 for c in candidates for number in range(len(c.launches))]
    found = iter(estimates(gpu, launches, follows, factors_of, cold))
    return [timed(c, [next(found) for _ in c.launches]) for c in candidates]


def rank(
    gpu: GpuRates,
    candidates: Sequence[Scored | Untimed],
    incumbent: Scored | Untimed | None = None,
    error_percent: float | None = None,
) -> Ranking:
    """Rank candidates of one batch. Raises `InputError` when there are none, or none with a time.

    `error_percent` is what a predicted gain must exceed for the incumbent to lose; left out, it is the model's recorded
    error for the two candidates at hand (see `model_error_percent`).
    """
    if not candidates:
        raise InputError("there is no candidate to rank", where="recommendation")
    batches = {c.candidate.batch for c in (*candidates, *([incumbent] if incumbent else []))}
    if len(batches) > 1:
        raise InputError(f"candidates of batches {sorted(batches)} cannot be ranked together", where="recommendation")
    base = incumbent if isinstance(incumbent, Scored) else None
    ranked = [replace(c, ratio=base.time_us / c.time_us if base else None) for c in candidates if isinstance(c, Scored)]
    failed = [c for c in candidates if isinstance(c, Untimed)]
    if not ranked:
        raise InputError(f"no candidate can be timed; {failed[0].why}", where="recommendation")
    # Equal times (nsplit beyond the tiles, say) go to the smaller partial results.
    ranked.sort(key=lambda s: (s.time_us, s.candidate.partial_bytes))
    chosen = ranked[0]
    kept = False
    error = error_percent if error_percent is not None else model_error_percent(chosen, base)
    if base is not None:
        base = replace(base, ratio=1.0)
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


def pareto(scored: Sequence[Scored]) -> tuple[Scored, ...]:
    """Candidates that no other beats in both time and memory for partial results, fastest first."""
    front: list[Scored] = []
    for each in sorted(scored, key=lambda s: (s.time_us, s.candidate.partial_bytes)):
        if not front or each.candidate.partial_bytes < front[-1].candidate.partial_bytes:
            front.append(each)
    return tuple(front)


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
