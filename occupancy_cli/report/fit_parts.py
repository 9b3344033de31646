"""The smallest changes that reach a goal, and how two kernels' buffers differ.

{"goal": "2 CTAs/SM", "base": {...}, "proposals": [{"changes": [{"name": "num_stages", "before": 3, "after": 2}],
 "shared_bytes": 49152, "ctas_per_sm": 2, "time_us": 61.2, "time_change_percent": -4.1,
 "buffers": [{"value": "a", "before_bytes": 49152, "after_bytes": 32768, ...}]}], "nearest": null, "tried": 14, ...}
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.explain_parts import SourceText
from occupancy_cli.report.part_values import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATION, Scalar, prose


@dataclass(frozen=True, kw_only=True)
class BufferChange:
    """One buffer on both sides; null bytes: it is not there. `at_peak` says whether it counts toward the total.

    `shared_before` and `shared_after` name the buffers of whose addresses it takes some, which live at other times.
    """

    value: str
    purpose: str
    before_bytes: int | None
    after_bytes: int | None
    before: str = field(default="", metadata={"description": "shape, type and copies"})
    after: str = ""
    at_peak_before: bool = False
    at_peak_after: bool = False
    shared_before: list[str] = field(default_factory=list)
    shared_after: list[str] = field(default_factory=list)
    said: str = field(metadata={"description": "the change in a few words"})
    source_before: SourceText | None = None
    source_after: SourceText | None = None


@dataclass(frozen=True, kw_only=True)
class KnobChange:
    """One name with its value before and after."""

    name: str
    before: Scalar
    after: Scalar


@dataclass(frozen=True, kw_only=True)
class FitCandidate:
    """A config, compiled. `time_us` is the predicted time of its launches, null where it is not known.

    `reaches` says whether it reaches the goal; `short_by` by how much of `short_of` it does not.
    """

    changes: list[KnobChange]
    values: dict[str, Scalar]
    reaches: bool
    shared_bytes: int
    registers_per_thread: int | None
    spill_bytes: int | None
    ctas_per_sm: int
    warps_per_sm: int
    time_us: float | None = None
    time_change_percent: float | None = None
    short_of: str = ""
    short_by: int = 0
    costs: list[str] = field(default_factory=list)
    buffers: list[BufferChange] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class InTheWay:
    """What holds most of the resource that the nearest candidate is short of."""

    what: str
    amount: int
    unit: str
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The proposals by predicted time. Without one, `nearest` is the candidate that came closest."""

    kernel: str
    goal: str
    base: FitCandidate
    proposals: list[FitCandidate] = field(default_factory=list)
    nearest: FitCandidate | None = None
    in_the_way: InTheWay | None = None
    varied: list[str] = field(default_factory=list)
    tried: int
    failed: int
    left_out: int = field(metadata={"description": "candidates beyond the bound, which were not compiled"})
    reason: str = prose("")

    @property
    def exit_code(self) -> int:
        """1 when nothing that was tried reaches the goal, 2 when candidates were left out then."""
        if self.base.reaches or self.proposals:
            return EXIT_OK
        return EXIT_UNDECIDED if self.left_out else EXIT_VIOLATION
