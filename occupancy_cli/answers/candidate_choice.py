"""Which of a batch's candidates matter: the fastest, the best of each config, those that nothing beats in both time and
memory, and the one setting that is best at every batch. They are looked at by their bounds, so that few are timed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from occupancy_cli.answers.candidate_times import CandidateTimes, Floats, Ints
from occupancy_cli.errors import InputError


@dataclass(frozen=True)
class Chosen:
    """What matters of a batch's candidates, in the order of their exact times: the fastest `top`, the least time of
    each config (`launchable`), and those that nothing beats in both time and memory (`pareto`)."""

    top: tuple[int, ...]
    launchable: tuple[int, ...]
    pareto: tuple[int, ...]


def choose(times: CandidateTimes, which: Ints, family: Sequence[int], count: int) -> Chosen:
    """The candidates of one batch that matter; `family` numbers their configs, `count` of the fastest are wanted.

    Candidates are looked at by their bounds, the least first. One whose bound lies above what it would have to beat is
    never timed.
    """
    order = which[np.argsort(times.at_least_us[which], kind="stable")]
    bounds = times.at_least_us[order].tolist()
    fastest: list[tuple[float, int, int]] = []
    best_of: dict[int, tuple[float, int, int]] = {}
    partial = times.partial_bytes[order].tolist()
    for i, least, held in zip(order.tolist(), bounds, partial, strict=True):
        if least == math.inf:
            break
        of_config = best_of.get(family[i])
        wanted = len(fastest) < count or least <= fastest[-1][0]
        if not wanted and of_config is not None and least > of_config[0]:
            continue
        key = (times.time_us(i), held, i)
        if of_config is None or key < of_config:
            best_of[family[i]] = key
        if wanted:
            fastest = sorted([*fastest, key])[:count]
    front: list[int] = []
    beaten = math.inf
    levels: dict[int, list[tuple[float, int]]] = {}
    for i, least, held in zip(order.tolist(), bounds, partial, strict=True):
        levels.setdefault(held, []).append((least, i))
    for held in sorted(levels):
        best: tuple[float, int] | None = None
        for least, i in levels[held]:
            if least >= beaten or (best is not None and least > best[0]):
                break
            key_of = (times.time_us(i), i)
            best = key_of if best is None or key_of < best else best
        if best is not None and best[0] < beaten:
            beaten = best[0]
            front.append(best[1])
    return Chosen(
        tuple(i for _, _, i in fastest), tuple(i for _, _, i in sorted(best_of.values())), tuple(reversed(front))
    )


def best_common(
    times: CandidateTimes, where: Ints, batches: Sequence[int], mix: Mapping[int, float] | None
) -> tuple[int, float]:
    """(setting, weighted mean of its time over each batch's best) of the one setting that is best at every batch.

    `where` has shape [settings, batches]: the candidate that a setting is there. Only settings are
    timed exactly whose bound leaves a chance.
    """
    bounds = times.at_least_us[where]
    best = [_least(times, where[:, b], bounds[:, b]) for b in range(len(batches))]
    everywhere = np.flatnonzero(np.isfinite(bounds).all(axis=1))
    if not len(everywhere):
        raise InputError("no setting can launch at every batch", where="recommendation")
    if mix is None:
        weights, whole = [1.0 / us for us in best], float(len(batches))
    else:
        weights = [mix.get(batch, 0.0) for batch in batches]
        whole = math.fsum(w * us for w, us in zip(weights, best, strict=True))
        if whole <= 0:
            raise InputError("the mix gives no weight to any of the batches", where="mix")

    def cost(setting: int) -> float:
        us = [times.time_us(i) for i in where[setting].tolist()]
        if mix is None:
            return math.fsum(each / least for each, least in zip(us, best, strict=True)) / len(batches)
        return math.fsum(w * each for w, each in zip(weights, us, strict=True)) / whole

    at_least = (bounds[everywhere] @ np.array(weights)) / whole * (1 - 1e-9)
    found: dict[int, float] = {}
    least = math.inf
    for i in np.argsort(at_least, kind="stable").tolist():
        if at_least[i] > least:
            break
        setting = int(everywhere[i])
        found[setting] = cost(setting)
        least = min(least, found[setting])
    # Of equals the one that is faster at the first batch, then needs less memory, then came first.
    first = where[:, 0]
    chosen = min(
        (s for s, each in found.items() if each == least),
        key=lambda s: (times.time_us(int(first[s])), int(times.partial_bytes[first[s]]), s),
    )
    return chosen, least


def _least(times: CandidateTimes, which: Ints, bounds: Floats) -> float:
    """The least exact time among candidates."""
    least = math.inf
    for i in np.argsort(bounds, kind="stable").tolist():
        if bounds[i] > least or bounds[i] == math.inf:
            break
        least = min(least, times.time_us(int(which[i])))
    return least
