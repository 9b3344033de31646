"""How long a launch takes, term by term.

Time of a launch = what it costs to launch + the schedule of its CTAs (`schedule`), never less than its bytes take at
the memory bandwidth. Time of a CTA = prologue + iterations x time of an iteration + epilogue. An iteration is a part
that waits (memory and instruction latency, which other CTAs on the SM can hide in) and a part that occupies a unit of
the SM (issue slots, tensor cores, shared memory, the SM's share of the bandwidth), which CTAs on one SM take in turns:

    iteration(r residents) = max(wait + work of one, r x work of one)

with the work of one CTA being that of its busiest unit. Where a loop's SASS was simulated (`compile.sass`), its cycles
by residents stand in for the issue and latency parts. Every term is kept in the result, the one that binds is named,
and what is not known is listed with what it makes uncertain; nothing is filled in silently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import CtaTimes, simulate
from occupancy_cli.model.work import CtaWork, LaunchShape


class GpuRates(Protocol):
    """What a time needs to know of a GPU; None where the profile has no value."""

    @property
    def sm_count(self) -> int | None: ...
    @property
    def boost_clock_mhz(self) -> float | None: ...
    @property
    def memory_bandwidth_gbps(self) -> float | None: ...
    @property
    def fp16_dense_tflops(self) -> float | None: ...
    @property
    def fp8_dense_tflops(self) -> float | None: ...
    @property
    def dram_latency_cycles(self) -> float | None: ...


class Residency(Protocol):
    """What a time needs to know of an occupancy."""

    @property
    def ctas_per_sm(self) -> int: ...


# Assumptions, each named in the result when it is used.
DRAM_LATENCY_CYCLES = 830.0
"""Load latency from DRAM where the profile has none: 636 (RTX 4090) to 936 (RTX 5090) cycles are measured by
markdewing/AI_kernels, 834.5 on an H100 by caps-tum/mt4g."""
CYCLES_PER_DEPENDENT_INSTRUCTION = 4.0
"""Cycles between two dependent instructions of one warp on Volta and later (arXiv:1804.06826, table 4.1)."""
LAUNCH_US = 1.3
"""Start and end of one kernel inside a CUDA graph; about 1.3 us a node on A100 and H100 (NVIDIA technical blog,
"Constant time launch for straight-line CUDA graphs", 2024)."""
SCHEDULERS_PER_SM = 4


@dataclass(frozen=True)
class TimeEstimate:
    """The predicted time of one launch.

    `time_us` is None when the GPU, the occupancy or the work leave it open; `unknown` then says why. `terms` maps a
    term to its value in the unit its name ends in, in the order they combine. `binding` names the term that bounds an
    iteration (or the launch). `unknown` pairs what was missing with what that makes uncertain.
    """

    time_us: float | None
    terms: Mapping[str, float]
    binding: str | None
    unknown: tuple[tuple[str, str], ...] = ()
    times: CtaTimes | None = None


def _dram_latency_cycles(gpu: GpuRates) -> float:
    return gpu.dram_latency_cycles if gpu.dram_latency_cycles is not None else DRAM_LATENCY_CYCLES


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
        total += amount / (rate * 1e6 / gpu.sm_count)  # TFLOP/s is 1e6 FLOP/us
    return total


def _iteration(
    gpu: GpuRates, resources: KernelResources, work: CtaWork, unknown: list[tuple[str, str]]
) -> tuple[float, dict[str, float]]:
    """(waiting part of an iteration in us, occupying parts by name in us) of a CTA alone on its SM."""
    assert gpu.boost_clock_mhz and gpu.sm_count
    clock = gpu.boost_clock_mhz  # cycles per us
    occupying: dict[str, float] = {}
    wait = 0.0
    warps_per_scheduler = max(resources.num_warps / SCHEDULERS_PER_SM, 1.0)
    mix = work.loop_mix
    if mix is not None:
        occupying["issue"] = mix.instructions * warps_per_scheduler / clock
        chain = mix.instructions * CYCLES_PER_DEPENDENT_INSTRUCTION / clock
        wait += max(chain - occupying["issue"], 0.0)
    else:
        unknown.append(("instruction mix of the loop", "issue time, and how CTAs on one SM slow each other"))
    loads = work.dependent_loads
    if loads is None:
        loads = 1.0
        unknown.append(("length of the chain of dependent loads", "latency of an iteration; taken as 1"))
    latency_us = _dram_latency_cycles(gpu) / clock
    if gpu.dram_latency_cycles is None:
        unknown.append(("memory latency of this GPU", f"taken as {DRAM_LATENCY_CYCLES:.0f} cycles"))
    if work.pipeline_depth is None:
        unknown.append(("iterations in flight", "how much of the memory latency is hidden; taken as 1"))
    wait += loads * latency_us / (work.pipeline_depth or 1.0)
    if work.bytes_per_iteration is None:
        unknown.append(("bytes an iteration loads", "whether bandwidth binds"))
    elif gpu.memory_bandwidth_gbps is None:
        unknown.append(("memory bandwidth", "whether bandwidth binds"))
    else:
        occupying["dram"] = work.bytes_per_iteration / (gpu.memory_bandwidth_gbps * 1e3 / gpu.sm_count)
    if work.tensor_flops_per_iteration is None:
        unknown.append(("tensor FLOPs of an iteration", "whether tensor cores bind"))
    else:
        tensor = _tensor_us(gpu, work.tensor_flops_per_iteration, unknown)
        if tensor is not None:
            occupying["tensor"] = tensor
    if work.shared_bytes_per_iteration is not None:
        occupying["shared"] = work.shared_bytes_per_iteration / 128.0 / clock  # 32 banks x 4 bytes a cycle
    return wait, occupying


def estimate(
    gpu: GpuRates,
    resources: KernelResources,
    occupancy: Residency,
    work: CtaWork,
    launch: LaunchShape,
) -> TimeEstimate:
    """The time of one launch of one kernel, in microseconds."""
    unknown: list[tuple[str, str]] = []
    missing = [
        (name, "the time")
        for name, value in (("SM count", gpu.sm_count), ("clock", gpu.boost_clock_mhz))
        if value is None
    ]
    if missing:
        return TimeEstimate(None, MappingProxyType({}), None, tuple(missing))
    if occupancy.ctas_per_sm < 1:
        return TimeEstimate(None, MappingProxyType({}), None, (("a CTA that fits an SM", "the launch fails"),))
    assert gpu.sm_count and gpu.boost_clock_mhz
    clock = gpu.boost_clock_mhz
    wait, occupying = _iteration(gpu, resources, work, unknown)
    residents = range(1, occupancy.ctas_per_sm + 1)
    busiest = max(occupying.values(), default=0.0)
    iteration = tuple(max(wait + busiest, r * busiest) for r in residents)
    per_sm = None if gpu.memory_bandwidth_gbps is None else gpu.memory_bandwidth_gbps * 1e3 / gpu.sm_count
    latency_us = _dram_latency_cycles(gpu) / clock
    edges = [b for b in (work.prologue_bytes, work.epilogue_bytes) if b is not None]
    if len(edges) < 2:
        unknown.append(("bytes of the prologue or epilogue", "the cost of a CTA that no iteration shows"))
    edge_bytes = sum(edges)
    start = tuple(
        (2 * latency_us if edge_bytes else latency_us) + (r * edge_bytes / per_sm if per_sm else 0.0) for r in residents
    )
    times = CtaTimes(start, iteration)
    schedule = simulate(launch, times, gpu.sm_count, resources.num_ctas)
    terms: dict[str, float] = {
        "launch_us": LAUNCH_US,
        "cta_start_us": start[-1],
        "iteration_wait_us": wait,
        **{f"iteration_{name}_us": value for name, value in occupying.items()},
        "iteration_us": iteration[-1],
        "schedule_us": schedule.makespan_us,
        "busy_percent": schedule.busy_percent,
    }
    time = schedule.makespan_us
    binding = "latency"
    if occupying:
        name, most = max(occupying.items(), key=lambda item: item[1])
        if occupancy.ctas_per_sm * most >= wait + most:
            binding = name
    per_cta = work.unique_bytes_per_iteration
    if per_cta is None:
        per_cta = work.bytes_per_iteration
    if per_cta is not None and gpu.memory_bandwidth_gbps is not None:
        total = launch.total_iterations * per_cta + launch.programs * edge_bytes
        terms["dram_floor_us"] = total / (gpu.memory_bandwidth_gbps * 1e3)
        if terms["dram_floor_us"] > time:
            time, binding = terms["dram_floor_us"], "dram"
    time += LAUNCH_US
    assert math.isfinite(time)
    return TimeEstimate(time, MappingProxyType(terms), binding, tuple(unknown), times)
