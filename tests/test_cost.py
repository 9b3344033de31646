"""Time of a launch: terms by hand, what binds, and what is said when something is unknown."""

from dataclasses import dataclass

import pytest

from occupancy_cli.model.cost import LAUNCH_US, estimate
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.work import CtaWork, LaunchShape


@dataclass(frozen=True)
class Gpu:
    """A GPU of round numbers: 100 SMs at 1 GHz (1000 cycles a us), 1000 GB/s (10 GB/s an SM: 1e4 bytes a us)."""

    sm_count: int | None = 100
    boost_clock_mhz: float | None = 1000.0
    memory_bandwidth_gbps: float | None = 1000.0
    fp16_dense_tflops: float | None = 100.0
    fp8_dense_tflops: float | None = 200.0
    dram_latency_cycles: float | None = 500.0


@dataclass(frozen=True)
class Held:
    ctas_per_sm: int


RESOURCES = KernelResources(shared_bytes=0, num_warps=4, threads_per_cta=128)


def test_a_launch_bound_by_bandwidth_takes_its_bytes_at_the_bandwidth():
    work = CtaWork(0.0, 1e6, 0.0, (), dependent_loads=1, pipeline_depth=1)
    result = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10))
    # 100 CTAs x 10 x 1 MB = 1 GB at 1000 GB/s is 1000 us; each iteration also waits 0.5 us, CTAs start in 0.5 us.
    assert result.terms["dram_floor_us"] == pytest.approx(1000.0)
    assert result.time_us == pytest.approx(LAUNCH_US + 0.5 + 10 * (100 + 0.5))


def test_without_an_sm_count_there_is_no_time_but_a_reason():
    result = estimate(Gpu(sm_count=None), RESOURCES, Held(1), CtaWork(), LaunchShape.uniform((8,), 1))
    assert result.time_us is None
    assert result.unknown == (("SM count", "the time"),)


def test_a_config_that_cannot_launch_has_no_time():
    result = estimate(Gpu(), RESOURCES, Held(0), CtaWork(), LaunchShape.uniform((8,), 1))
    assert result.time_us is None and "fits" in result.unknown[0][0]


def test_unknown_work_is_listed():
    result = estimate(Gpu(dram_latency_cycles=None), RESOURCES, Held(1), CtaWork(), LaunchShape.uniform((8,), 1))
    named = [what for what, _ in result.unknown]
    assert "bytes an iteration loads" in named and "memory latency of this GPU" in named
