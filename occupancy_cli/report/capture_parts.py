"""The launches of a script as specs: what `capture` wrote.

1 launch of 1 kernel: 1 spec in captured
spec        launches  configs  grid    kernel
scale.yaml         1        4  10 x 2  small.py:8
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.part_values import prose


@dataclass(frozen=True, kw_only=True)
class CapturedSpec:
    """One spec; `source` is `file:line` of its kernel, `launches` 0 where only an autotuner's configs have these
    arguments."""

    file: str
    kernel: str
    source: str
    launches: int
    configs: int
    tuned: bool
    grid: list[int | str]


@dataclass(frozen=True, kw_only=True)
class NotCaptured:
    """Launches of a kernel that have no spec, and why."""

    kernel: str
    source: str
    reason: str = prose()
    launches: int


@dataclass(frozen=True, kw_only=True)
class NotLaunched:
    """A kernel of the script, or of a module that it imports beside it, that it did not launch, and why as far as its
    source says."""

    kernel: str
    source: str
    reason: str = prose()


@dataclass(frozen=True, kw_only=True)
class Capture:
    """All that a script launched, and the folder of its specs (null: nothing was written)."""

    folder: str | None
    launches: int
    specs: list[CapturedSpec]
    not_captured: list[NotCaptured]
    not_launched: list[NotLaunched] = field(default_factory=list)
