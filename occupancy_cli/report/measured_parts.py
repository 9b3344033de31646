"""Times taken on a GPU, and what comes of them: `measure`, `calibrate` and `compare`.

    24 points measured in 3.1 s, written to times.jsonl
    error of predicted times (rms over 24 points): 31.0 % before, 2.4 % after, fitted to 12 points of 2 compiled kernels
    regret of   mean    p90  worst  within 5 %  groups
    the model  1.2 %  3.0 %  8.1 %        92 %      12

Regret: measured time of what is chosen over the best that was measured, minus 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.part_values import EXIT_OK, EXIT_UNDECIDED, Scalar


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a run of `measure` did: points `written` now, `known` before, `left` for lack of time, `marked` as
    throttled or shared; `failed` and `cannot_launch` map a reason to how many points it cost."""

    path: str
    written: int
    known: int
    left: int
    marked: int
    seconds: float
    failed: dict[str, int]
    cannot_launch: dict[str, int]

    @property
    def exit_code(self) -> int:
        """2 when points failed, or there was none."""
        nothing = not (self.written or self.known or self.left)
        return EXIT_UNDECIDED if self.failed or nothing else EXIT_OK


@dataclass(frozen=True, kw_only=True)
class KernelFactors:
    """Factors on three terms of one compiled kernel's time; `undetermined` names those that the times leave open."""

    kernel: str
    start: float
    iteration: float
    sharing: float
    undetermined: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CalibrationFit:
    """A fit to measured times, and the file that it was written to."""

    path: str
    factors: list[KernelFactors]
    error_before_percent: float | None
    error_after_percent: float
    points: int
    rows: int
    kernels: int


@dataclass(frozen=True, kw_only=True)
class Regret:
    """Regret of one way of choosing, in percent, over all groups that it could choose in."""

    name: str
    mean: float
    p90: float
    worst: float
    within_5: float
    groups: int


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A group where the model's choice was worst: what it chose and what was best, with measured times."""

    case: dict[str, Scalar]
    chosen: dict[str, Scalar]
    chosen_us: float
    best: dict[str, Scalar]
    best_us: float
    regret_percent: float


@dataclass(frozen=True, kw_only=True)
class ComparedPoint:
    """A measured point beside its prediction: its names, both times, the interval that holds nine of ten times so
    predicted, and the terms of each of its launches."""

    names: dict[str, Scalar]
    measured_us: float
    predicted_us: float | None
    interval_us: list[float] | None
    terms: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Regrets for choosing the split of a config (`splits`) and for choosing everything (`settings`), and every point
    with its prediction. `incumbent` says what is taken to run today; None: nobody said."""

    kernel: str
    gpu: str
    points: int
    configs: int
    cases: int
    splits: list[Regret]
    settings: list[Regret]
    missed: list[Missed]
    incumbent: str | None = None
    predictions: list[ComparedPoint] = field(default_factory=list)
