"""What configs say when they are put side by side: a change that buys bytes but no CTA, one that costs a CTA.

Two variants are compared when they differ in one name alone (BLOCK_H 32 or 16, num_warps 4 or 8). Sentences carry
their arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_cli.model.occupancy import Occupancy
from occupancy_cli.model.resources import KernelResources

MOST = 6


@dataclass(frozen=True)
class Variant:
    """One config with every name that tells it from the others."""

    values: Mapping[str, Any]
    resources: KernelResources
    occupancy: Occupancy


def observations(variants: Sequence[Variant], most: int = MOST) -> list[str]:
    """The most telling comparisons as sentences: changes that free shared memory and leave CTAs/SM as they are first,
    then changes of num_warps at equal CTAs/SM; at most `most`."""
    varying = _varying(variants)
    freed: list[tuple[int, str]] = []
    warps: list[tuple[int, str]] = []
    for a, b in itertools.combinations(variants, 2):
        name = _only_difference(a.values, b.values)
        if name is None or not (a.occupancy.launchable and b.occupancy.launchable):
            continue
        if a.resources.shared_bytes < b.resources.shared_bytes:
            a, b = b, a
        if name == "num_warps":
            fewer, more = sorted((a, b), key=lambda v: v.resources.num_warps)
            if fewer.occupancy.ctas_per_sm == more.occupancy.ctas_per_sm:
                warps.append((more.resources.num_warps, _more_warps(fewer, more, varying)))
        elif a.resources.shared_bytes > b.resources.shared_bytes and a.occupancy.ctas_per_sm == b.occupancy.ctas_per_sm:
            freed.append((a.resources.shared_bytes - b.resources.shared_bytes, _no_gain(name, a, b, varying)))
    freed.sort(key=lambda item: -item[0])
    warps.sort(key=lambda item: -item[0])
    return [text for _, text in [*freed[: most - 2], *warps[:2]]]


def _varying(variants: Sequence[Variant]) -> frozenset[str]:
    """The names whose values tell the variants apart."""
    names = {name for variant in variants for name in variant.values}
    return frozenset(n for n in names if len({repr(v.values.get(n)) for v in variants}) > 1)


def _only_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    names = [n for n in a if a[n] != b.get(n)]
    return names[0] if len(names) == 1 and a.keys() == b.keys() else None


def _rest(variant: Variant, name: str, varying: frozenset[str]) -> str:
    """The config of a comparison: what all variants do not share, and its tile and warps in any case."""
    shown = ("BLOCK", "num_warps")
    parts = [f"{n} {v}" for n, v in variant.values.items() if n != name and (n in varying or n.startswith(shown))]
    return f" ({', '.join(parts)})" if parts else ""


def _no_gain(name: str, larger: Variant, smaller: Variant, varying: frozenset[str]) -> str:
    ctas = larger.occupancy.ctas_per_sm
    saved = larger.resources.shared_bytes - smaller.resources.shared_bytes
    text = (
        f"{name} {larger.values[name]} -> {smaller.values[name]}{_rest(smaller, name, varying)} frees {saved:,} bytes "
        f"({larger.resources.shared_bytes:,} -> {smaller.resources.shared_bytes:,}) and buys no CTA: {ctas} CTA/SM both"
    )
    following = smaller.occupancy.next_cta
    if "shared" in following.binding and following.shared_bytes is not None:
        text += f"; the next one needs {following.shared_bytes:,} bytes or less"
    elif following.binding:
        text += f"; the next one is held back by {' and '.join(following.binding)}"
    return text


def _more_warps(fewer: Variant, more: Variant, varying: frozenset[str]) -> str:
    a, b = fewer.occupancy, more.occupancy
    return (
        f"num_warps {fewer.values['num_warps']} -> {more.values['num_warps']}{_rest(more, 'num_warps', varying)} keeps "
        f"{a.ctas_per_sm} CTA/SM and takes {a.warps_per_sm} to {b.warps_per_sm} of {a.max_warps_per_sm} warps per SM"
    )
