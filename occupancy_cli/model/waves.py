"""How well a launch fills the machine: waves and the tail.

A GPU holds SMs x CTAs/SM CTAs at once (its slots). A launch of more CTAs runs in waves; the last wave may leave slots
idle, which occupancy alone never shows. The arithmetic is that of every wave-quantization text, such as NVIDIA's
"Matrix Multiplication Background User's Guide" (docs.nvidia.com/deeplearning/performance): waves = CTAs / slots.
People think in waves, so they are shown; the time of a launch comes from `schedule`, since CTAs are seldom equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.errors import InputError


@dataclass(frozen=True)
class WaveSchedule:
    """The waves of one launch.

    `grid` is the launch grid as the program sees it (x first); `ctas` the CTAs it launches, num_ctas for each program.
    `slots` is None where the GPU's SM count is unknown, 0 where no CTA fits. `waves` (CTAs / slots) and what follows
    from it are None where there are no slots to divide by. `tail_ctas` and `tail_percent` (of the slots) describe a
    last wave that is not full: both 0 when the grid fills every wave. `efficiency_percent` is the share of the slots
    that holds a CTA over all waves, the last one counted whole.
    """

    grid: tuple[int, ...]
    ctas: int
    slots: int | None
    waves: float | None
    full_waves: int | None
    tail_ctas: int | None
    tail_percent: float | None
    efficiency_percent: float | None


def cta_slots(sm_count: int, ctas_per_sm: int, num_ctas: int = 1, sms_per_gpc: Sequence[int] | None = None) -> int:
    """CTAs the GPU holds at once.

    The CTAs of a cluster (`num_ctas` > 1) must lie in one GPC, so a GPC whose slots are no multiple of the cluster
    leaves some empty. `sms_per_gpc` gives the SMs of each GPC; without it the GPU counts as one GPC, an upper bound
    (`cudaOccupancyMaxActiveClusters` is the driver's own answer).
    """
    gpcs = sms_per_gpc if sms_per_gpc is not None and num_ctas > 1 else (sm_count,)
    return sum(sms * ctas_per_sm // num_ctas for sms in gpcs) * num_ctas


def wave_schedule(
    grid: tuple[int, ...],
    ctas_per_sm: int,
    sm_count: int | None,
    num_ctas: int = 1,
    sms_per_gpc: Sequence[int] | None = None,
) -> WaveSchedule:
    """The waves of launching `grid` with `ctas_per_sm` CTAs resident on each of `sm_count` SMs.

    `grid` counts programs as Triton does: each is a cluster of `num_ctas` CTAs. A persistent kernel launches no more
    programs than slots, so its grid is at most one wave by construction: see `work.LaunchShape.persistent`. Raises
    `InputError` for a grid axis, SM count or num_ctas below 1 and for negative CTAs/SM.
    """
    if not grid or any(axis < 1 for axis in grid):
        raise InputError(f"the grid {tuple(grid)} has an axis below 1", where="grid", hint="Each axis is 1 or more.")
    if ctas_per_sm < 0:
        raise InputError(f"{ctas_per_sm} CTAs/SM is not a count", where="ctas_per_sm")
    if num_ctas < 1:
        raise InputError(f"{num_ctas} CTAs a cluster is not a count", where="num_ctas", hint="num_ctas is 1 or more.")
    if sm_count is not None and sm_count < 1:
        raise InputError(f"{sm_count} SMs is not a count", where="sm_count")
    ctas = math.prod(grid) * num_ctas
    slots = None if sm_count is None else cta_slots(sm_count, ctas_per_sm, num_ctas, sms_per_gpc)
    if not slots:
        return WaveSchedule(tuple(grid), ctas, slots, None, None, None, None, None)
    full_waves, tail_ctas = divmod(ctas, slots)
    all_waves = full_waves + (tail_ctas > 0)
    return WaveSchedule(
        grid=tuple(grid),
        ctas=ctas,
        slots=slots,
        waves=ctas / slots,
        full_waves=full_waves,
        tail_ctas=tail_ctas,
        tail_percent=100 * tail_ctas / slots,
        efficiency_percent=100 * ctas / (all_waves * slots),
    )
