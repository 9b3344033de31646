"""Two sides of a kernel beside each other: what each config takes, and which buffers and lines make the difference.

{"before": "Triton 3.6.0", "after": "Triton 3.9.0", "configs": [{"changes": [{"name": "shared_bytes",
 "before": 32832, "after": 36928}], "buffers": [{"value": "acc", "said": "no longer shares an address", ...}]}]}
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.explain_parts import SourceText
from occupancy_cli.report.fit_parts import BufferChange
from occupancy_cli.report.part_values import Scalar


@dataclass(frozen=True, kw_only=True)
class FigureChange:
    """One figure on both sides, by its name in a Report; null: not known there."""

    name: str
    before: Scalar
    after: Scalar


@dataclass(frozen=True, kw_only=True)
class HolderChange:
    """Registers that a line holds at the peak, on both sides."""

    value: str
    before: int
    after: int
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class ConfigDiff:
    """One config on both sides. `figures` has every figure, `buffers` and `registers` only what differs."""

    before: dict[str, Scalar]
    after: dict[str, Scalar]
    figures: list[FigureChange]
    buffers: list[BufferChange]
    registers: list[HolderChange]
    same: bool = field(metadata={"description": "whether no figure, buffer or register differs"})


@dataclass(frozen=True, kw_only=True)
class Diff:
    """Two sides of one kernel. Configs that one side alone has are named, not compared."""

    kernel: str
    before: str
    after: str
    configs: list[ConfigDiff]
    only_before: list[dict[str, Scalar]] = field(default_factory=list)
    only_after: list[dict[str, Scalar]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list, metadata={"prose": True})
