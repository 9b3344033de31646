"""What one SM can do in a cycle, and what its loads wait for: the rates that the simulation and the time model share.

Rates and latencies were timed on an H200 with `validation/sm_constants.cu` (results beside it) and agree with the
arithmetic-instruction table of the CUDA C++ Programming Guide; tensor rates, memory bandwidth and memory latencies come
from the GPU's profile. None comes from a timed kernel.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

SCHEDULERS_PER_SM = 4

# Assumptions, each listed by `sm_rates` when a profile leaves it open.
DRAM_LATENCY_CYCLES = 690.0
L2_LATENCY_CYCLES = 283.0
L2_BYTES_PER_CYCLE_AND_SM = 27.7
"""The L2's read bandwidth with every SM reading, per SM: 7,238 GB/s over 132 SMs at 1.98 GHz, timed on an H200."""

L2_BYTES_PER_CYCLE_FEW_SMS = 70.0
"""What an SM reads of the L2 while few read: 92 with 1, 55 to 86 with 32, 52 to 64 with 64 of 132 (two H200)."""

L2_BYTES_PER_CYCLE_SHARED = 50.0
"""What an SM reads of tiles that other SMs read too (study of non-decode kernels on an H200: 45 to 60 alike)."""

L2_BYTES_PER_CYCLE_AT_MOST = 60.0
"""What an SM reads of the L2 whatever the others do: 58 to 66 of lines that 11 neighbours or more read (H200)."""

L2_NEAR_SHARE = 0.5
"""Of the L2, that answers at its near latency (latency rises from 28 MB of 60 on, H200)."""

_MOST_NEAR_SHARE = 0.95  # beyond the near part of the L2 its answers fade into DRAM's: something is left for that

JUST_WRITTEN_LATENCY_CYCLES = 406.0
"""Of the slowest of the four lines that a warp's widest load touches, where other SMs wrote them just before and they
lie in either half of the L2: between 308 to 351 for one line and 488 to 540 for 32 (H200)."""

LAUNCH_US = 0.8
"""From the last CTA of a kernel that fills the GPU to the first one of the next (H200: 0.71 to 0.90 over five runs; an
empty kernel's node in a graph takes 0.54, which is less than what a kernel costs that has something to drain)."""

CTA_TURNOVER_US = 0.21
"""From the end of a CTA to the first instruction of the next one in its slot (H200)."""

CTA_HANDOUT_US = 0.0006
"""Of each CTA of a launch, one after the other (study of non-decode kernels on an H200)."""

L2_WRITE_BYTES_PER_CYCLE_AND_SM = 17.0
"""The same for writing: 4,453 GB/s (H200)."""

L2_WRITE_BYTES_PER_CYCLE_FEW_SMS = 30.0
"""What an SM writes to the L2 while half of them or fewer write: 29 with 64 of 132, 32 with one (H200)."""

DRAM_BANDWIDTH_SHARE = 0.93
"""Of the theoretical memory bandwidth that reading reaches: 4.45 to 4.64 of 4.8 TB/s on an H200 (same measurement)."""
_DRAM_SHARE_BY_RUN = ((32.0, 0.34), (64.0, 0.51), (128.0, 0.88), (256.0, DRAM_BANDWIDTH_SHARE))
"""The same where a CTA takes so many bytes beside one another of each row of a tile, and what follows them later: 1.65,
2.45 and 4.2 of 4.8 TB/s, and 4.5 from 256 bytes on (H200; a gather of pieces so long gets the same or less)."""


def dram_share(run_bytes: float) -> float:
    """Share of the theoretical memory bandwidth that loads reach which take `run_bytes` beside one another."""
    points = _DRAM_SHARE_BY_RUN
    if run_bytes <= points[0][0]:
        return points[0][1]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if run_bytes <= high:
            return at_low + (at_high - at_low) * math.log2(run_bytes / low) / math.log2(high / low)
    return points[-1][1]


class L1Limits(Protocol):
    """The L1 and shared memory of an SM, which are one array."""

    @property
    def unified_l1_shared_bytes(self) -> int: ...
    @property
    def carveouts_bytes(self) -> tuple[int, ...]: ...
    @property
    def shared_reserved_per_cta_bytes(self) -> int: ...


def l1_bytes(limits: L1Limits, shared_bytes: int, ctas_per_sm: int) -> int:
    """What is left of the array for the L1 when `ctas_per_sm` CTAs of `shared_bytes` have theirs carved out."""
    needed = ctas_per_sm * (shared_bytes + limits.shared_reserved_per_cta_bytes)
    carved = next((c for c in sorted(limits.carveouts_bytes) if c >= needed), max(limits.carveouts_bytes))
    return limits.unified_l1_shared_bytes - carved


class LaunchGpu(Protocol):
    """What the rates for launches need to know of a GPU; None where its profile has no value."""

    @property
    def arch(self) -> int: ...
    @property
    def l2_bytes(self) -> int | None: ...
    @property
    def l2_near_bytes(self) -> int | None: ...
    @property
    def memory_bandwidth_gbps(self) -> float | None: ...
    @property
    def memory_bandwidth_measured_gbps(self) -> float | None: ...
    @property
    def l2_read_bytes_per_cycle(self) -> float | None: ...
    @property
    def l2_write_bytes_per_cycle(self) -> float | None: ...
    @property
    def l2_write_few_sms_bytes_per_cycle(self) -> float | None: ...
    @property
    def kernel_gap_us(self) -> float | None: ...
    @property
    def cta_turnover_us(self) -> float | None: ...
    @property
    def cta_handout_us(self) -> float | None: ...


class SmGpu(Protocol):
    """What the simulation needs to know of a GPU; None where its profile has no value."""

    @property
    def arch(self) -> int: ...
    @property
    def limits(self) -> L1Limits: ...
    @property
    def sm_count(self) -> int | None: ...
    @property
    def boost_clock_mhz(self) -> float | None: ...
    @property
    def tensor_clock_mhz(self) -> float | None: ...
    @property
    def memory_bandwidth_gbps(self) -> float | None: ...
    @property
    def fp16_dense_tflops(self) -> float | None: ...
    @property
    def fp8_dense_tflops(self) -> float | None: ...
    @property
    def l2_latency_cycles(self) -> float | None: ...
    @property
    def dram_latency_cycles(self) -> float | None: ...


@dataclass(frozen=True)
class SmRates:
    """Rates and latencies of one SM, in cycles of its clock and bytes.

    `tensor_flops_per_cycle` pairs an operand type with the FLOPs of one scheduler's tensor core a cycle.
    `near_latency_cycles` is a load that the L2 answers, `far_latency_cycles` one that DRAM does; `l2_bytes_per_cycle`
    is an SM's share of its bandwidth while every SM reads, `l2_write_bytes_per_cycle` while every SM writes.
    `assumed` lists what the profile left open: (what, what was taken).
    """

    arch: int
    near_latency_cycles: float
    far_latency_cycles: float
    tensor_flops_per_cycle: tuple[tuple[str, float], ...]
    l2_bytes_per_cycle: float = L2_BYTES_PER_CYCLE_AND_SM
    l2_write_bytes_per_cycle: float = L2_WRITE_BYTES_PER_CYCLE_AND_SM
    l2_bytes_per_cycle_few_sms: float = L2_BYTES_PER_CYCLE_FEW_SMS
    l2_write_bytes_per_cycle_few_sms: float = L2_WRITE_BYTES_PER_CYCLE_FEW_SMS
    assumed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class LaunchRates:
    """What all SMs together can do, as an SM's share in bytes a cycle of its clock, and what a launch costs beside its
    CTAs.

    The L2 is read at `l2_bytes_per_cycle` by all SMs each for itself, at `..._shared` where others also read the tile,
    at `..._at_most` by one SM however few read, and at `..._few_sms` by the CTA alone that is simulated; writing
    likewise. `l2_near_share` of the L2 answers at its near latency, `dram_bandwidth_share` of the theoretical bandwidth
    is reached.
    """

    l2_bytes_per_cycle: float
    l2_bytes_per_cycle_shared: float
    l2_bytes_per_cycle_at_most: float
    l2_bytes_per_cycle_few_sms: float
    l2_write_bytes_per_cycle: float
    l2_write_bytes_per_cycle_few_sms: float
    l2_near_share: float
    dram_bandwidth_share: float
    just_written_latency_cycles: float
    launch_us: float
    cta_turnover_us: float
    cta_handout_us: float


class TimedGpu(SmGpu, LaunchGpu, Protocol):
    """A GPU for which both the simulation of an SM and the rates for launches are wanted."""


def launch_rates(gpu: LaunchGpu) -> tuple[LaunchRates, tuple[tuple[str, str], ...]]:
    """The rates for launches on `gpu`, and what was taken from another chip: an H200's where its profile has none."""
    taken: list[str] = []

    def known(value: float | None, what: str, of_an_h200: float) -> float:
        if value is None:
            taken.append(what)
        return of_an_h200 if value is None else float(value)

    near_share = L2_NEAR_SHARE
    if gpu.l2_near_bytes is not None and gpu.l2_bytes:
        near_share = min(gpu.l2_near_bytes / gpu.l2_bytes, _MOST_NEAR_SHARE)
    dram_share = DRAM_BANDWIDTH_SHARE
    if gpu.memory_bandwidth_measured_gbps is not None and gpu.memory_bandwidth_gbps:
        dram_share = gpu.memory_bandwidth_measured_gbps / gpu.memory_bandwidth_gbps
    rates = LaunchRates(
        l2_bytes_per_cycle=known(gpu.l2_read_bytes_per_cycle, "L2 reads", L2_BYTES_PER_CYCLE_AND_SM),
        l2_bytes_per_cycle_shared=L2_BYTES_PER_CYCLE_SHARED,
        l2_bytes_per_cycle_at_most=L2_BYTES_PER_CYCLE_AT_MOST,
        l2_bytes_per_cycle_few_sms=L2_BYTES_PER_CYCLE_FEW_SMS,
        l2_write_bytes_per_cycle=known(gpu.l2_write_bytes_per_cycle, "L2 writes", L2_WRITE_BYTES_PER_CYCLE_AND_SM),
        l2_write_bytes_per_cycle_few_sms=known(
            gpu.l2_write_few_sms_bytes_per_cycle, "L2 writes of few SMs", L2_WRITE_BYTES_PER_CYCLE_FEW_SMS
        ),
        l2_near_share=near_share,
        dram_bandwidth_share=dram_share,
        just_written_latency_cycles=JUST_WRITTEN_LATENCY_CYCLES,
        launch_us=known(gpu.kernel_gap_us, "gap between kernels", LAUNCH_US),
        cta_turnover_us=known(gpu.cta_turnover_us, "time from a CTA to the next", CTA_TURNOVER_US),
        cta_handout_us=known(gpu.cta_handout_us, "handing out of CTAs", CTA_HANDOUT_US),
    )
    assumed: tuple[tuple[str, str], ...] = ()
    if taken and gpu.arch != 90:
        assumed = (("rates of the L2 and cost of a launch on this GPU", "taken as an H200's"),)
    return rates, assumed


def sm_rates(gpu: SmGpu) -> SmRates:
    """The rates of an SM of `gpu`."""
    assumed: list[tuple[str, str]] = []
    near, far = gpu.l2_latency_cycles, gpu.dram_latency_cycles
    if near is None:
        near = L2_LATENCY_CYCLES
        assumed.append(("L2 latency", f"taken as {near:.0f} cycles, an H200's"))
    if far is None:
        far = DRAM_LATENCY_CYCLES
        assumed.append(("DRAM latency", f"taken as {far:.0f} cycles, an H200's"))
    tensor: list[tuple[str, float]] = []
    clock = gpu.tensor_clock_mhz or gpu.boost_clock_mhz
    for names, tflops in (
        (("fp16", "bf16"), gpu.fp16_dense_tflops),
        (("tf32",), None if gpu.fp16_dense_tflops is None else gpu.fp16_dense_tflops / 2),
        (("fp8", "int8"), gpu.fp8_dense_tflops),
    ):
        if tflops is None or not gpu.sm_count or not clock:
            assumed.append((f"{names[0]} tensor rate", "left out: tensor cores never bind"))
            continue
        rate = tflops * 1e6 / gpu.sm_count / clock / SCHEDULERS_PER_SM
        tensor.extend((name, rate) for name in names)
    if gpu.arch != 90:
        assumed.append(("instruction rates of this GPU", "those timed on an H200"))
    return SmRates(gpu.arch, near, max(far, near), tuple(tensor), assumed=tuple(assumed))
