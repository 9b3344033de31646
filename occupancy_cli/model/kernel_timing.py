"""The cycles of a CTA by the CTAs that share its SM: what `sm_simulation` finds once for a kernel and a GPU, and
what times of launches are then read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.gpu.sm_rates import L2_BYTES_PER_CYCLE_AND_SM


@dataclass(frozen=True)
class AtRate:
    """`start` and `iteration` of a `KernelTiming` while an SM's loads come at `bytes_per_cycle`."""

    bytes_per_cycle: float
    start: tuple[float, ...]
    iteration: tuple[float, ...]


@dataclass(frozen=True)
class KernelTiming:
    """What the simulation found, for one specialization on one GPU: cycles of a CTA by the CTAs that share its SM.

    `residents` are the counts that were simulated, ascending from 1; between them values are interpolated. `start_*`
    is the time of a CTA beyond its iterations, `iteration_*` one iteration of the main loop, with memory that answers
    in `near_latency_cycles` and `far_latency_cycles`, at an SM's share of the L2's and of the memory's bandwidth while
    all SMs read and every byte is asked for: `near_bytes_per_cycle` and `far_bytes_per_cycle`. `faster_near` and
    `faster_far` are the same at higher rates, ascending: for loads that are partly masked, and tiles that other CTAs
    have brought into the L2. Empty: as at the lowest. `few_near` and `few_far` are of a CTA alone on its SM while so
    few SMs work that each has all it can take; None: as when all do. `unit_cycles` pairs a unit of the SM with the
    cycles that one CTA's iteration occupies it (all of a CTA's when there is no loop).
    """

    residents: tuple[int, ...]
    near_latency_cycles: float
    far_latency_cycles: float
    start_near: tuple[float, ...]
    start_far: tuple[float, ...]
    iteration_near: tuple[float, ...]
    iteration_far: tuple[float, ...]
    unit_cycles: tuple[tuple[str, float], ...]
    assumed: tuple[tuple[str, str], ...] = ()
    near_bytes_per_cycle: float = L2_BYTES_PER_CYCLE_AND_SM
    far_bytes_per_cycle: float = L2_BYTES_PER_CYCLE_AND_SM
    faster_near: tuple[AtRate, ...] = ()
    faster_far: tuple[AtRate, ...] = ()
    few_near: AtRate | None = None
    few_far: AtRate | None = None

    def far_share(self, latency_cycles: float) -> float:
        """Where a latency lies between the near (0) and the far one (1)."""
        span = self.far_latency_cycles - self.near_latency_cycles
        return (latency_cycles - self.near_latency_cycles) / span if span > 0 else 0.0

    def cycles(self, ctas_per_sm: int, latency_cycles: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(start, iteration) cycles for 1 to `ctas_per_sm` residents, with memory of `latency_cycles`."""
        share = self.far_share(latency_cycles)
        start = [n + share * (f - n) for n, f in zip(self.start_near, self.start_far, strict=True)]
        iteration = [n + share * (f - n) for n, f in zip(self.iteration_near, self.iteration_far, strict=True)]
        return self._spread(ctas_per_sm, start), self._spread(ctas_per_sm, iteration)

    def near(self, ctas_per_sm: int) -> tuple[AtRate, ...]:
        """Cycles for 1 to `ctas_per_sm` residents with near memory, by the rate of loads, ascending."""
        base = AtRate(self.near_bytes_per_cycle, self.start_near, self.iteration_near)
        return self._by_rate(ctas_per_sm, (base, *self.faster_near))

    def far(self, ctas_per_sm: int) -> tuple[AtRate, ...]:
        """Cycles for 1 to `ctas_per_sm` residents with far memory, by the rate of loads, ascending."""
        base = AtRate(self.far_bytes_per_cycle, self.start_far, self.iteration_far)
        return self._by_rate(ctas_per_sm, (base, *self.faster_far))

    def _by_rate(self, ctas_per_sm: int, rates: Sequence[AtRate]) -> tuple[AtRate, ...]:
        return tuple(
            AtRate(
                each.bytes_per_cycle, self._spread(ctas_per_sm, each.start), self._spread(ctas_per_sm, each.iteration)
            )
            for each in rates
        )

    def _spread(self, ctas_per_sm: int, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(_interpolate(self.residents, values, r) for r in range(1, ctas_per_sm + 1))


def _interpolate(at: Sequence[int], values: Sequence[float], wanted: int) -> float:
    """Linear between the simulated counts, and along the last two beyond them."""
    if len(at) == 1:
        return values[0]
    upper = next((i for i, r in enumerate(at) if r >= wanted and i > 0), len(at) - 1)
    low, high = at[upper - 1], at[upper]
    return values[upper - 1] + (values[upper] - values[upper - 1]) * (wanted - low) / (high - low)
