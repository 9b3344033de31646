"""How occupancy goes with one resource: what each number of CTAs takes, and the ranges over which it stays the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from occupancy_cli.errors import unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cta_demands import REGISTERS, SHARED, WARP_THREADS, WARPS, NextCta, cta_demands


@dataclass(frozen=True)
class Plateau:
    """A range of one resource, both ends included, over which CTAs per SM stay the same, the other resources fixed.

    `limited_by` names what binds at `most`.
    """

    least: int
    most: int
    ctas_per_sm: int
    warps_per_sm: int
    percent: float
    limited_by: tuple[str, ...]


def cliffs(gpu: GpuProfile, **kernel: Any) -> tuple[NextCta, ...]:
    """What each number of CTAs per SM, from 1 to the SM's limit, takes of each resource; arguments as `occupancy`'s.

    One resource at a time: every `Change` leaves the other resources as they are.
    """
    demands = cta_demands(gpu.limits, **kernel)
    by_name = demands.limits_by_name()
    return tuple(demands.changes_for(ctas, by_name) for ctas in range(1, gpu.limits.max_ctas_per_sm + 1))


def sweep(gpu: GpuProfile, resource: str, **kernel: Any) -> tuple[Plateau, ...]:
    """CTAs per SM over every value that `resource` can have, as ranges; the other arguments as `occupancy`'s.

    `resource` is "shared" (dynamic bytes, 0 to the cap), "registers" (1 to 255) or "warps" (1 to 32, one range each,
    as warps per SM differ even where CTAs do not). The last range of shared memory ends at the cap of a launch.
    """
    demands = cta_demands(gpu.limits, **kernel)
    limits = gpu.limits
    if resource == SHARED:
        cap = limits.shared_per_cta_optin_bytes - demands.static
        ends = {m for n in range(1, limits.max_ctas_per_sm + 1) if (m := demands.most_shared(n)) is not None} | {cap}
        points = [replace(demands, shared=end) for end in sorted(e for e in ends if 0 <= e <= cap)]
    elif resource == REGISTERS:
        points = [replace(demands, registers=r) for r in range(1, limits.max_registers_per_thread + 1)]
    elif resource == WARPS:
        points = [
            replace(demands, warps=w, threads=w * WARP_THREADS)
            for w in range(1, limits.max_threads_per_cta // WARP_THREADS + 1)
        ]
    else:
        raise unknown_name("resource", resource, (SHARED, REGISTERS, WARPS), where="sweep")
    found: list[Plateau] = []
    for point in points:
        by_name = point.limits_by_name()
        ctas = min(limit for limit in by_name.values() if limit is not None)
        value = {SHARED: point.shared, REGISTERS: point.registers or 0, WARPS: point.warps}[resource]
        least = found[-1].most + 1 if found else (0 if resource == SHARED else 1)
        if found and resource != WARPS and found[-1].ctas_per_sm == ctas:
            least = found.pop().least
        found.append(
            Plateau(
                least=least,
                most=value,
                ctas_per_sm=ctas,
                warps_per_sm=ctas * point.warps,
                percent=100.0 * ctas * point.warps / limits.max_warps_per_sm,
                limited_by=tuple(name for name, limit in by_name.items() if limit == ctas),
            )
        )
    return tuple(found)
