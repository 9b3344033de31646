"""The cycles of the parts of a CTA: what `sm_simulation` finds once for a kernel and a GPU, and what times of launches
are then read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartTiming:
    """Cycles of one part of a CTA that is alone on its SM, with near and with far memory: of part 0 what lies outside
    every loop, of each other one an iteration of a loop. `unit_cycles` pairs a unit of the SM with the cycles that the
    CTA occupies it there; `local_read_bytes` and `local_written_bytes` are what its threads load and store of local
    memory (spilled registers)."""

    part: int
    near: float
    far: float
    unit_cycles: tuple[tuple[str, float], ...]
    local_read_bytes: float = 0.0
    local_written_bytes: float = 0.0


@dataclass(frozen=True)
class KernelTiming:
    """What the simulation found, for one specialization on one GPU.

    Memory answers in `near_latency_cycles` or `far_latency_cycles`. `assumed` pairs what was not known or not simulated
    with what was taken for it.
    """

    near_latency_cycles: float
    far_latency_cycles: float
    parts: tuple[PartTiming, ...]
    assumed: tuple[tuple[str, str], ...] = ()

    def far_share(self, latency_cycles: float) -> float:
        """Where a latency lies between the near (0) and the far one (1)."""
        span = self.far_latency_cycles - self.near_latency_cycles
        return (latency_cycles - self.near_latency_cycles) / span if span > 0 else 0.0
