"""The occupancy of one kernel from its numbers: what `calc` answers.

    $ occupancy calc --gpu 5090 --threads 128 --regs 168 --shared 61568
    1 CTA per SM: 4 of 48 warps, 8.3 %, limited by shared memory
    Limit          One CTA takes                    The SM has     CTAs/SM
    shared memory  62,592 (61,568 + 1,024 system)   102,400 bytes        1  binds
    CTAs/SM  Warps/SM  Occupancy  Shared bytes/CTA        Regs/thread  Warps/CTA
    now 1           4      8.3 %  61,568 (+39,808)          168 (+87)     4 (+8)
          2         8     16.7 %  <= 50,176 (-11,392)          as now     as now

Read aloud: one CTA fits, its 62,592 bytes of 102,400 are why, and 11,392 bytes less would make room for a second one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.occupancy_parts import NextCta, Occupancy, Resources
from occupancy_cli.report.part_values import Scalar


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A range of one resource over which the occupancy stays the same; 0 CTAs: it cannot launch."""

    least: int
    most: int
    ctas_per_sm: int
    warps_per_sm: int
    percent: float
    limited_by: list[str]


@dataclass(frozen=True, kw_only=True)
class Calculation:
    """One kernel on one GPU. `cliffs` has what each number of CTAs per SM, from 1 on, takes of each resource.

    `over` is the resource of `ranges` (null: none was asked for). `*_allocated_*` are what the SM sets aside, after
    rounding; `carveout_bytes` is the shared part of the L1 array.
    """

    fits: bool
    over_bytes: int
    reason: str
    resources: Resources
    shared_allocated_bytes: int
    registers_allocated_per_cta: int | None
    carveout_bytes: int
    occupancy: Occupancy
    cliffs: list[NextCta]
    over: str | None = None
    ranges: list[Plateau] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CalculatedRow:
    """A line of `calc --input`: the answer to the input's line `row`, or `error`. Without `slack`, for speed."""

    row: int
    id: Scalar | list[object] | dict[str, object] = None
    gpu: str | None = None
    fits: bool | None = None
    over_bytes: int | None = None
    reason: str | None = None
    occupancy: Occupancy | None = None
    error: str | None = None
