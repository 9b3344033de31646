"""The rules that kernels use to choose how often to split, as choices among measured points.

A point is a row of a measured surface: `grid`, `nsplit`, `tiles` (of one request), `tiles_per_split` and `ctas_per_sm`.
Each rule is given the points of one config and batch and the GPU's SMs, and returns the point it would take; a split
count that was not measured is taken down to the nearest measured one. `validation/regret.py` and `occupancy compare`
both judge by these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rule = Callable[[Sequence[Row], int], Row]


def units(row: Row) -> int:
    """CTAs of one split: batch x head groups."""
    return math.prod(int(axis) for axis in row["grid"]) // int(row["nsplit"])


def target_floor(target: float) -> Callable[[Row, int], float]:
    """The most splits with at most `target` CTAs."""
    return lambda row, _sms: max(target // units(row), 1)


def target_ceil(target: float) -> Callable[[Row, int], float]:
    """The fewest splits with at least `target` CTAs."""
    return lambda row, _sms: max(math.ceil(target / units(row)), 1)


def flash_attention(row: Row, sms: int) -> float:
    """FlashAttention's num_splits_heuristic: one split from 80 % of the SMs on, else the fewest splits within 85 % of
    the best wave efficiency, leaving out split counts that deal out the same tiles as fewer would."""
    each, tiles = units(row), int(row["tiles"])
    if each >= 0.8 * sms:
        return 1
    counts = [s for s in range(1, min(128, sms, tiles) + 1) if s == 1 or -(-tiles // s) != -(-tiles // (s - 1))]
    efficiency = {s: each * s / sms / math.ceil(each * s / sms) for s in counts}
    return next(s for s in counts if efficiency[s] >= 0.85 * max(efficiency.values()))


def power_of_two(row: Row, sms: int) -> float:
    """The largest power of two that stays within two CTAs an SM."""
    most = 2 * sms / units(row)
    return float(2 ** math.floor(math.log2(most))) if most >= 1 else 1


def share_of_sms(row: Row, sms: int) -> float:
    """ExecuTorch: as many splits as keep the CTAs within 16/9 of the SMs."""
    return max(16 / 9 * sms // units(row), 1)


def wave_cost(overhead: float, merge: float) -> Rule:
    """The measured split with the least ceil(waves) x (tiles a split + overhead) + merge x splits."""

    def choose(rows: Sequence[Row], sms: int) -> Row:
        def cost(row: Row) -> float:
            slots = sms * int(row["ctas_per_sm"])
            waves = math.ceil(math.prod(int(axis) for axis in row["grid"]) / slots)
            return waves * (int(row["tiles_per_split"]) + overhead) + merge * int(row["nsplit"])

        return min(rows, key=cost)

    return choose


def snapped(rule: Callable[[Row, int], float]) -> Rule:
    """A rule that names a split count, as a choice among measured points."""

    def choose(rows: Sequence[Row], sms: int) -> Row:
        wanted = rule(rows[0], sms)
        below = [row for row in rows if row["nsplit"] <= wanted]
        return max(below, key=lambda row: int(row["nsplit"])) if below else min(rows, key=lambda row: row["nsplit"])

    return choose


SPLIT_RULES: dict[str, Rule] = {
    "TARGET_CTAS=256, floor": snapped(target_floor(256)),
    "TARGET_CTAS=256, ceil": snapped(target_ceil(256)),
    "FlashAttention's heuristic": snapped(flash_attention),
    "power of two within 2 CTAs/SM": snapped(power_of_two),
    "16/9 of the SMs (ExecuTorch)": snapped(share_of_sms),
    "ceil(waves) x tiles": wave_cost(0, 0),
    "ceil(waves) x (tiles + 2) + splits / 10 (FlashInfer's form)": wave_cost(2, 0.1),
}
