"""How long a launch takes, term by term: what is true of all launches of one kernel (`LaunchModel`).

`launch_batch` times launches by it, `calibration` fits its factors to measurements.

Time of a launch = its launch + the schedule of its CTAs (`schedule`), never less than its bytes take at the memory
bandwidth. Time of a CTA = start (prologue, epilogue, its place on the SM) + iterations x time of an iteration, both by
the CTAs that share its SM. Where the kernel's SASS was simulated (`pipeline`), that gives both. Without it they come
from the bytes and FLOPs alone: an iteration is a part that waits (memory latency over the iterations in flight) and a
part that occupies a unit of the SM (the SM's share of bandwidth, tensor cores, shared memory), which the CTAs of an SM
take in turns.

Memory answers at the L2's latency while the launch's bytes fit one half of the L2 (an SM is near one half, and the
other half's lines are copied over), at DRAM's once they outgrow it, and in between between; a launch is taken to repeat
on the same data, as benchmarks and replayed graphs do, unless `cold` says that nothing of it is in the L2.

Every term is kept in the result, the one that binds is named, and what is not known is listed with what it makes
uncertain; nothing is filled in silently.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from occupancy_cli.gpu.sm_rates import (
    DRAM_BANDWIDTH_SHARE,
    DRAM_LATENCY_CYCLES,
    L2_BYTES_PER_CYCLE_AND_SM,
    L2_BYTES_PER_CYCLE_BESIDE_MEMORY,
    L2_BYTES_PER_CYCLE_FEW_SMS,
    L2_BYTES_PER_CYCLE_SAME,
)
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Sharing
from occupancy_cli.model.kernel_timing import AtRate
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import CtaTimes

Floats = npt.NDArray[np.float64]


class GpuRates(Protocol):
    """What a time needs to know of a GPU; None where the profile has no value."""

    def __hash__(self) -> int: ...
    @property
    def sm_count(self) -> int | None: ...
    @property
    def boost_clock_mhz(self) -> float | None: ...
    @property
    def memory_bandwidth_gbps(self) -> float | None: ...
    @property
    def l2_bytes(self) -> int | None: ...
    @property
    def fp16_dense_tflops(self) -> float | None: ...
    @property
    def fp8_dense_tflops(self) -> float | None: ...
    @property
    def dram_latency_cycles(self) -> float | None: ...


class Residency(Protocol):
    """What a time needs to know of an occupancy."""

    def __hash__(self) -> int: ...
    @property
    def ctas_per_sm(self) -> int: ...


LAUNCH_US = 0.54
"""One kernel of a CUDA graph beyond its CTAs: an empty kernel's node on an H200 (validation/sm_constants_h200.json)."""
CTA_TURNOVER_US = 0.21
"""From the end of a CTA to the first instruction of the next one in its slot (same measurement)."""
L2_NEAR_SHARE = 0.5
"""Of the L2, that answers at its near latency (same measurement: latency rises from 28 MB of 60 on)."""
JUST_WRITTEN_LATENCY_CYCLES = 406.0
"""Of the slowest of the four lines that a warp's widest load touches, where other SMs wrote them just before and they
lie in either half of the L2: between 308 to 351 for one line and 488 to 540 for 32 (H200)."""
NO_SHARING = Sharing()


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel launch: what a CTA takes, how many share an SM, what a CTA does, and the grid."""

    kernel: str
    resources: KernelResources
    occupancy: Residency
    work: CtaWork
    shape: LaunchShape

    @property
    def specialization(self) -> str:
        """A name that launches of the same compiled kernel share: what a calibration is kept under."""
        held = self.resources
        return (
            f"{self.kernel}: {held.num_warps} warps, {held.registers_per_thread} registers, {held.spill_bytes} bytes "
            f"spilled, {held.shared_bytes} bytes shared"
        )


@dataclass(frozen=True)
class Factors:
    """What measurements say of one compiled kernel, as factors on the model's terms: time beyond iterations, time of an
    iteration, and how much CTAs on one SM slow each other."""

    start: float = 1.0
    iteration: float = 1.0
    sharing: float = 1.0


@dataclass(frozen=True)
class TimeEstimate:
    """The predicted time of one launch.

    `time_us` is None when the GPU, the occupancy or the work leave it open; `unknown` then says why. `terms` maps a
    term to its value, in the unit its name ends in. `binding` names what bounds the time: a unit of the SM, "latency"
    when no unit is busy for most of an iteration, or "memory bandwidth" of the whole launch. `unknown` pairs what was
    missing with what that makes uncertain.
    """

    time_us: float | None
    terms: Mapping[str, float]
    binding: str | None
    unknown: tuple[tuple[str, str], ...] = ()
    times: CtaTimes | None = None


@dataclass(frozen=True)
class RateTimes:
    """Times of a CTA for 1, 2, ... residents, in microseconds, while an SM's loads come at `bytes_per_cycle`."""

    bytes_per_cycle: float
    start: Floats
    iteration: Floats


def _at_rate(points: Sequence[RateTimes], bytes_per_cycle: Floats) -> tuple[Floats, Floats]:
    """(start, iteration) at rates of shape [launches, residents]: linear in the time of a byte between the points, and
    as at the nearest beyond them."""
    start, iteration = (np.tile(each, (len(bytes_per_cycle), 1)) for each in (points[0].start, points[0].iteration))
    for low, high in itertools.pairwise(points):
        slow, fast = 1.0 / low.bytes_per_cycle, 1.0 / high.bytes_per_cycle
        share = np.clip((slow - 1.0 / bytes_per_cycle) / (slow - fast), 0.0, 1.0)
        start += share * (high.start - low.start)
        iteration += share * (high.iteration - low.iteration)
    return start, iteration


@dataclass(frozen=True)
class LaunchModel:
    """Everything about a kernel's time but the grid, so that many launches can be timed at once.

    `near` and `far` are times with memory near (L2) and far (DRAM), by the rate that an SM's loads come at, ascending;
    `few_near` and `few_far` are of a CTA alone on its SM while few SMs work.
    `masked_share` is what CTAs load of what the machine code's loads could. `None` bytes are unknown.
    """

    sm_count: int
    num_ctas: int
    near: tuple[RateTimes, ...]
    far: tuple[RateTimes, ...]
    masked_share: float
    bytes_per_iteration: float | None
    bytes_per_cta: float
    l2_bytes: float | None
    bandwidth_bytes_per_us: float | None
    units_us: tuple[tuple[str, float], ...]
    cold: bool = False
    dram_bytes_per_cycle: float | None = None
    few_near: RateTimes | None = None
    few_far: RateTimes | None = None

    @property
    def ctas_per_sm(self) -> int:
        return len(self.near[0].start)

    def total_bytes(self, iterations: Any, programs: Any, sharing: Sharing = NO_SHARING) -> Any:
        """Distinct bytes of a launch, for one launch or arrays of them; `sharing` is of what the loop loads, or without
        one a CTA."""
        if self.bytes_per_iteration:
            return iterations * self.bytes_per_iteration * sharing.unique + programs * self.bytes_per_cta
        return programs * self.bytes_per_cta * sharing.unique

    def far_share(self, total_bytes: Any) -> Any:
        """Share of memory's answers that come from DRAM rather than the L2."""
        if self.cold:
            return np.ones_like(np.asarray(total_bytes, dtype=float))
        if self.l2_bytes is None:
            return np.zeros_like(np.asarray(total_bytes, dtype=float))
        near = L2_NEAR_SHARE * self.l2_bytes
        return np.clip((np.asarray(total_bytes, dtype=float) - near) / (self.l2_bytes - near), 0.0, 1.0)

    def floor_us(self, total_bytes: Any, far_share: Any) -> Any:
        """Time of a launch's bytes at the memory bandwidth: of those that DRAM moves."""
        if self.bandwidth_bytes_per_us is None:
            return np.zeros_like(np.asarray(total_bytes, dtype=float))
        return np.asarray(total_bytes, dtype=float) * far_share / self.bandwidth_bytes_per_us

    def by_residents(self, far_share: Floats, ctas: Floats, sharing: Sharing = NO_SHARING) -> tuple[Floats, Floats]:
        """(start, iteration) of the CTAs of launches, each of shape [launches, residents]: `far_share` of each launch,
        how many of its CTAs work, and how they share what they load.

        While fewer CTAs than SMs work, each alone on its SM, an SM's share of the L2's and the memory's bandwidth is
        larger, up to what one SM can take. What lanes do not ask for takes no bandwidth, and what another CTA has
        loaded takes none of the memory's; what many load at once is fetched from the L2 once.
        """
        far = np.asarray(far_share, dtype=float).reshape(-1, 1)
        l2, dram = L2_BYTES_PER_CYCLE_AND_SM, L2_BYTES_PER_CYCLE_AND_SM
        if self.dram_bytes_per_cycle is not None:
            dram = min(dram, self.dram_bytes_per_cycle)
        # At which rate an SM's loads come, counted as if every byte of them were asked for.
        asked = max(self.masked_share, 1e-6)
        shared_l2 = 1.0 / ((1.0 - sharing.repeated) / l2 + sharing.repeated / L2_BYTES_PER_CYCLE_SAME)
        shared_dram = 1.0 / (sharing.unique / dram + (1.0 - sharing.unique) / L2_BYTES_PER_CYCLE_BESIDE_MEMORY)
        near_start, near_it = _at_rate(self.near, np.full_like(far, shared_l2 / asked))
        far_start, far_it = _at_rate(self.far, np.full_like(far, shared_dram / asked))
        if self.few_near is not None and self.few_far is not None:
            working = np.maximum(np.asarray(ctas, dtype=float).ravel() * self.num_ctas, 1.0)
            for start, iteration, few, rate in (
                (near_start, near_it, self.few_near, l2),
                (far_start, far_it, self.few_far, dram),
            ):
                # Times go with the inverse of the rate.
                alone = np.clip(rate * self.sm_count / working, rate, L2_BYTES_PER_CYCLE_FEW_SMS)
                share = (1 / rate - 1 / alone) / (1 / rate - 1 / L2_BYTES_PER_CYCLE_FEW_SMS)
                start[:, 0] += share * np.minimum(few.start[0] - start[:, 0], 0.0)
                iteration[:, 0] += share * np.minimum(few.iteration[0] - iteration[:, 0], 0.0)
        return near_start + far * (far_start - near_start), near_it + far * (far_it - near_it)


@functools.lru_cache(maxsize=2048)  # a sweep asks for the same few kernels thousands of times
def launch_model(
    gpu: GpuRates,
    resources: KernelResources,
    occupancy: Residency,
    work: CtaWork,
    factors: Factors | None = None,
    cold: bool = False,
    follows: bool = False,
) -> tuple[LaunchModel | None, tuple[tuple[str, str], ...]]:
    """The model of a kernel's launches, or None, and what is unknown about it.

    `follows` says that the kernel reads what the launch before it has just written.
    """
    missing = [
        (name, "the time")
        for name, value in (("SM count", gpu.sm_count), ("clock", gpu.boost_clock_mhz))
        if value is None
    ]
    if missing:
        return None, tuple(missing)
    if occupancy.ctas_per_sm < 1:
        return None, (("a CTA that fits an SM", "the launch fails"),)
    assert gpu.sm_count is not None and gpu.boost_clock_mhz is not None
    unknown: list[tuple[str, str]] = []
    clock = gpu.boost_clock_mhz  # cycles a microsecond
    few: list[RateTimes] = []
    if work.timing is not None:
        timing, latency = work.timing, work.timing.near_latency_cycles
        if follows:
            latency = min(max(latency, JUST_WRITTEN_LATENCY_CYCLES), timing.far_latency_cycles)
        far = tuple(_times_of(each, clock) for each in timing.far(occupancy.ctas_per_sm))
        near = tuple(_times_of(each, clock) for each in timing.near(occupancy.ctas_per_sm))
        near = tuple(_between(each, far, timing.far_share(latency)) for each in near)
        if timing.few_near is not None and timing.few_far is not None:
            few = [_times_of(each, clock) for each in (timing.few_near, timing.few_far)]
            few[0] = _between(few[0], few[1:], timing.far_share(latency))
        units = tuple((name, cycles / clock) for name, cycles in timing.unit_cycles)
        unknown.extend(timing.assumed)
        if work.tensor_flops_per_iteration and any(timing.iteration_near):
            # Products that tensor memory holds are not in the simulation: no iteration beats the tensor rate.
            tensor = (_tensor_us(gpu, work.tensor_flops_per_iteration, unknown) or 0.0) * np.arange(
                1, occupancy.ctas_per_sm + 1, dtype=float
            )
            near, far = (
                tuple(replace(each, iteration=np.maximum(each.iteration, tensor)) for each in points)
                for points in (near, far)
            )
            few = [replace(each, iteration=np.maximum(each.iteration, tensor[:1])) for each in few]
    else:
        start, iteration, units = _from_bytes(gpu, occupancy.ctas_per_sm, work, unknown)
        near = far = (RateTimes(L2_BYTES_PER_CYCLE_AND_SM, start, iteration),)
    near, far = (
        tuple(_factored(replace(each, start=each.start + CTA_TURNOVER_US), factors) for each in points)
        for points in (near, far)
    )
    few = [_factored(replace(each, start=each.start + CTA_TURNOVER_US), factors) for each in few]
    per_iteration = work.bytes_per_iteration
    if per_iteration is None:
        unknown.append(("bytes an iteration loads", "whether memory bandwidth binds, and whether the data fits the L2"))
    edges = [b for b in (work.prologue_bytes, work.epilogue_bytes) if b is not None]
    if len(edges) < 2:
        unknown.append(("bytes of the prologue or epilogue", "the memory traffic that no iteration shows"))
    if gpu.memory_bandwidth_gbps is None:
        unknown.append(("memory bandwidth", "whether it binds"))
    if gpu.l2_bytes is None:
        unknown.append(("L2 size", "memory latency; taken as the L2's"))
    bandwidth = None
    if gpu.memory_bandwidth_gbps is not None:
        bandwidth = gpu.memory_bandwidth_gbps * 1e3 * (work.dram_share or DRAM_BANDWIDTH_SHARE)
    model = LaunchModel(
        sm_count=gpu.sm_count,
        num_ctas=resources.num_ctas,
        near=near,
        far=far,
        masked_share=work.masked_share,
        bytes_per_iteration=per_iteration,
        bytes_per_cta=float(sum(edges)),
        l2_bytes=gpu.l2_bytes,
        bandwidth_bytes_per_us=bandwidth,
        units_us=units,
        cold=cold,
        dram_bytes_per_cycle=None if bandwidth is None else bandwidth / gpu.sm_count / clock,
        few_near=few[0] if few else None,
        few_far=few[1] if few else None,
    )
    return model, tuple(dict.fromkeys(unknown))


def _times_of(cycles: AtRate, clock_mhz: float) -> RateTimes:
    start, iteration = np.array(cycles.start) / clock_mhz, np.array(cycles.iteration) / clock_mhz
    return RateTimes(cycles.bytes_per_cycle, start, iteration)


def _between(near: RateTimes, far: Sequence[RateTimes], far_share: float) -> RateTimes:
    """`near` with a latency that lies between near and far memory's."""
    start, iteration = _at_rate(far, np.full((1, len(near.start)), near.bytes_per_cycle))
    return replace(
        near,
        start=near.start + far_share * (start[0] - near.start),
        iteration=near.iteration + far_share * (iteration[0] - near.iteration),
    )


def _factored(times: RateTimes, factors: Factors | None) -> RateTimes:
    """`times` with a calibration's factors on them."""
    if factors is None:
        return times
    return replace(
        times,
        start=_scaled(times.start, factors.start, factors.sharing),
        iteration=_scaled(times.iteration, factors.iteration, factors.sharing),
    )


def _scaled(by_residents: Floats, factor: float, sharing: float) -> Floats:
    """Times by residents with `factor` on the first and `sharing` on what each further resident adds."""
    alone = by_residents[0]
    return np.asarray(factor * (alone + sharing * (by_residents - alone)))


def _tensor_us(gpu: GpuRates, flops: tuple[tuple[str, float], ...], unknown: list[tuple[str, str]]) -> float | None:
    """Time of one CTA's tensor FLOPs on one SM at full rate, microseconds."""
    rates = {
        "fp16": gpu.fp16_dense_tflops,
        "bf16": gpu.fp16_dense_tflops,
        "tf32": None if gpu.fp16_dense_tflops is None else gpu.fp16_dense_tflops / 2,
        "fp8": gpu.fp8_dense_tflops,
        "int8": gpu.fp8_dense_tflops,
    }
    total = 0.0
    for dtype, amount in flops:
        rate = rates.get(dtype)
        if rate is None or gpu.sm_count is None:
            unknown.append((f"{dtype} tensor rate", "whether tensor cores bind"))
            return None
        total += amount / (rate * 1e6 / gpu.sm_count)  # a TFLOP/s is 1e6 FLOP/us
    return total


def _from_bytes(
    gpu: GpuRates, ctas_per_sm: int, work: CtaWork, unknown: list[tuple[str, str]]
) -> tuple[Floats, Floats, tuple[tuple[str, float], ...]]:
    """(start, iteration) times by residents and the units' times, without machine code: from bytes and FLOPs."""
    assert gpu.sm_count is not None and gpu.boost_clock_mhz is not None
    clock = gpu.boost_clock_mhz
    unknown.append(("machine code of the kernel", "issue time, and how CTAs on one SM slow each other"))
    latency = gpu.dram_latency_cycles
    if latency is None:
        latency = DRAM_LATENCY_CYCLES
        unknown.append(("memory latency of this GPU", f"taken as {latency:.0f} cycles"))
    latency_us = latency / clock
    occupying: dict[str, float] = {}
    wait = 0.0
    mix = work.loop_mix
    if mix is not None:
        # Without the order of the instructions: one at a time, 4 cycles apart (dependent arithmetic since Volta).
        occupying["issue"] = mix.instructions / clock
        wait += 3.0 * mix.instructions / clock
    if work.dependent_loads is None:
        unknown.append(("length of the chain of dependent loads", "latency of an iteration; taken as 1"))
    if work.pipeline_depth is None:
        unknown.append(("iterations in flight", "how much of the memory latency is hidden; taken as 1"))
    loads = 1.0 if work.dependent_loads is None else work.dependent_loads
    wait += loads * latency_us / (work.pipeline_depth or 1.0)
    per_sm = None if gpu.memory_bandwidth_gbps is None else gpu.memory_bandwidth_gbps * 1e3 / gpu.sm_count
    if work.bytes_per_iteration is not None and per_sm is not None:
        occupying["memory bandwidth"] = work.bytes_per_iteration / per_sm
    if work.tensor_flops_per_iteration is None:
        unknown.append(("tensor FLOPs of an iteration", "whether tensor cores bind"))
    else:
        tensor = _tensor_us(gpu, work.tensor_flops_per_iteration, unknown)
        if tensor is not None:
            occupying["tensor"] = tensor
    if work.shared_bytes_per_iteration is not None:
        occupying["shared memory and L1"] = work.shared_bytes_per_iteration / 128.0 / clock  # 32 banks x 4 bytes
    busiest = max(occupying.values(), default=0.0)
    residents = np.arange(1, ctas_per_sm + 1, dtype=float)
    iteration = np.maximum(wait + busiest, residents * busiest)
    edge_bytes = sum(b for b in (work.prologue_bytes, work.epilogue_bytes) if b is not None)
    start = np.full(ctas_per_sm, 2 * latency_us if edge_bytes else latency_us)
    if per_sm:
        start = start + residents * edge_bytes / per_sm
    return start, iteration, (*occupying.items(), ("wait", wait))
