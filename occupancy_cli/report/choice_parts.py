"""What to set: a recommendation for each batch, one setting for all of them, and a sweep over batch.

"recommendation": {"batch": 80, "knobs": {"BLOCK_H": 16}, "config": {"num_warps": 4}, "nsplit": 3,
                   "predicted_time_us": 41.2, "predicted_speedup_vs_default": 1.31, "exports": ["export X=16"], ...}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from occupancy_cli.report.occupancy_parts import ITERATIONS_FROM, Launch
from occupancy_cli.report.part_values import EXIT_OK, EXIT_VIOLATION, Scalar


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is recommended for: a kernel, the hash of its files, and what a launch finds in the L2.

    `sha256` is of the kernel's own file, those of its followers, and its spec; empty where one lies in a module.
    """

    kernel: str
    source: str
    sha256: str
    l2: Literal["warm", "cold"] = field(
        metadata={"description": "warm: a launch may find its data there, as in a replay; cold: it does not"}
    )
    lengths: str | None = field(default=None, metadata={"description": "tokens of each request, as they were given"})


@dataclass(frozen=True, kw_only=True)
class EmittedFile:
    """Whether a file that `recommend --emit` wrote is still what it would write.

    `made_from` is what stands at its head, `now` the same of today; `changed` are the lines that differ below it.
    """

    file: str
    form: str
    holds: bool
    made_from: dict[str, str]
    now: dict[str, str]
    changed: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when it is no longer what would be written."""
        return EXIT_OK if self.holds else EXIT_VIOLATION


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A setting with its predicted time, and the interval that holds nine of ten times so predicted."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float | None
    launch: Launch | None
    ctas_per_sm: int | None
    warps_per_sm: int | None
    partials_bytes: int | None = None
    terms: dict[str, float] = field(default_factory=dict)
    binding: str | None = None
    interval_us: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to set for one batch. `predicted_speedup_vs_default` is the incumbent's predicted time over this one's."""

    batch: int
    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float | None
    predicted_speedup_vs_default: float | None
    kept_default: bool
    model_error_percent: float
    reasons: list[str]
    exports: list[str]
    chosen: Choice
    default: Choice | None
    runner_up: Choice | None
    set_line: str = field(default="", metadata={"description": "what to paste, on one line"})
    left_open: str = field(
        default="", metadata={"description": "what `set_line` leaves to the autotuner or the launch"}
    )
    against: str = field(default="", metadata={"description": "what `default` is, and so the gain over it"})
    why: list[str] = field(
        default_factory=list, metadata={"description": "terms that change from `default` (or the next best) to this"}
    )
    candidates: int | None = field(default=None, metadata={"description": "settings that can launch, each once"})
    tied: int | None = field(default=None, metadata={"description": "of these, within the error of this; it too"})
    tied_values: dict[str, list[Scalar]] = field(
        default_factory=dict,
        metadata={"description": "what the tied settings have of each name; empty for more than 8 batches"},
    )
    cannot_launch: list[str] = field(default_factory=list)
    constexpr_knobs: list[str] = field(
        default_factory=list, metadata={"description": "knobs that decide what a config takes"}
    )
    launchable: list[dict[str, Scalar]] = field(
        default_factory=list,
        metadata={"description": "configs that can launch, each with the constexpr knobs it does so at"},
    )
    pareto: list[Choice] = field(
        default_factory=list, metadata={"description": "no other beats these in both time and partials"}
    )
    iterations_from: dict[str, str] = field(
        default_factory=dict, metadata={"description": f"of each kernel, {ITERATIONS_FROM}"}
    )


@dataclass(frozen=True, kw_only=True)
class SingleSetting:
    """The one setting that is best over all batches asked about."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    slowdown: float
    exports: list[str]


@dataclass(frozen=True, kw_only=True)
class SweepSide:
    """One setting at one batch of a sweep."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float
    ctas_per_sm: int
    waves: float | None
    efficiency_percent: float | None
    requests_per_s: float = field(
        metadata={"description": "batch over the predicted time of this kernel and its followers"}
    )


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One batch: what is set now, the one setting recommended for all batches, and the best for this batch."""

    batch: int
    default: SweepSide | None
    recommended: SweepSide | None
    best: SweepSide
    model_error_percent: float | None = field(
        default=None, metadata={"description": "recorded error of the ratio of two such predictions"}
    )


@dataclass(frozen=True, kw_only=True)
class SurfacePoint:
    """The least predicted time of a number of splits at a batch, and the setting that has it.

    `recommended` and `default`: the setting for all batches, or what is set now, has so many splits there.
    """

    batch: int
    nsplit: int
    predicted_time_us: float
    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    recommended: bool = False
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A measurement of what is set now, and the factor that all times of the sweep were multiplied by to meet it."""

    batch: int
    measured_ms: float
    factor: float
