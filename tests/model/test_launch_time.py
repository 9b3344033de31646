"""Time of a launch: terms by hand, what binds, and what is said when something is unknown."""

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from measured_rates import MeasuredRates

from occupancy_cli.compile.kernel_times import merged
from occupancy_cli.gpu.gpu_profile import ComputeCapability
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.gpu.sm_rates import LAUNCH_US
from occupancy_cli.model.calibration import Calibration, MeasuredPoint, fit
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Stream, Turns
from occupancy_cli.model.kernel_timing import KernelTiming, PartTiming
from occupancy_cli.model.launch_batch import estimates
from occupancy_cli.model.launch_time import Factors, KernelLaunch
from occupancy_cli.model.resources import KernelResources


@dataclass(frozen=True)
class Gpu(MeasuredRates):
    """A GPU of round numbers: 100 SMs at 1 GHz (1000 cycles a us), 1000 GB/s (10 GB/s an SM: 1e4 bytes a us)."""

    arch: int = 90
    limits: ComputeCapability = load_gpu("h200").limits
    sm_count: int | None = 100
    boost_clock_mhz: float | None = 1000.0
    memory_bandwidth_gbps: float | None = 1000.0
    fp16_dense_tflops: float | None = 100.0
    fp8_dense_tflops: float | None = 200.0
    dram_latency_cycles: float | None = 500.0
    l2_bytes: int | None = 1_000_000


@dataclass(frozen=True)
class Held:
    ctas_per_sm: int


RESOURCES = KernelResources(shared_bytes=0, num_warps=4, threads_per_cta=128)


def estimate(gpu, resources, occupancy, work, shape, factors=None, cold=False):
    """The time of one launch."""
    work = work if work.streams or work.timing else merged(work, None)
    launch = KernelLaunch("k", resources, occupancy, work, shape)
    (found,) = estimates(gpu, [launch], [False], None if factors is None else lambda _: factors, cold)
    return found


def test_a_launch_bound_by_bandwidth_takes_its_bytes_at_the_bandwidth():
    work = CtaWork(0.0, 1e6, 0.0, (), dependent_loads=1, pipeline_depth=1)
    result = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10))
    # 100 CTAs x 10 x 1 MB = 1 GB at 93 % of 1000 GB/s. The schedule: CTAs start in 0.5 us and 0.21 us between CTAs; an
    # iteration waits 0.5 us, or has its 1 MB at the L2's 27.7 bytes a cycle: 36.1 us, which is nearly all of it.
    # DRAM's first answer takes 0.5 us.
    assert result.terms["memory_us"] == pytest.approx(0.5 + 1000 / 0.93)
    alone, path, few = 0.5, 1e6 / 27.7 / 1000, 1e6 / 70.0 / 1000
    iteration = (alone**2.5 + path**2.5 - few**2.5) ** 0.4
    assert result.terms["schedule_us"] == pytest.approx(0.71 + 10 * iteration)
    # Memory and the schedule add in the fourth power: 1075 and 351 us come to 1078.
    both = ((0.5 + 1000 / 0.93) ** 4 + (0.71 + 10 * iteration) ** 4 + 0.06**4) ** 0.25
    assert result.time_us == pytest.approx(LAUNCH_US + both)
    assert result.binding == "memory bandwidth"


def test_data_that_fits_the_l2_does_not_meet_the_memory_bandwidth():
    work = CtaWork(0.0, 400.0, 0.0, (), dependent_loads=1, pipeline_depth=1)
    warm = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10))
    # 100 x 10 x 400 B = 0.4 MB: below half of the L2's 1 MB.
    assert warm.terms["memory_us"] == 0.0 and warm.terms["dram_answers_percent"] == 0.0
    cold = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10), cold=True)
    assert cold.terms["dram_answers_percent"] == 100.0
    # 0.75 MB lies in the middle between half of the L2 and all of it.
    half = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 18.75))
    assert half.terms["dram_answers_percent"] == pytest.approx(50.0)


TIMING = KernelTiming(
    near_latency_cycles=300.0,
    far_latency_cycles=700.0,
    parts=(
        PartTiming(0, 1000.0, 1400.0, (("issue", 400.0),)),
        PartTiming(1, 2000.0, 2800.0, (("issue", 800.0), ("shared memory and L1", 1900.0))),
    ),
)


def soft(alone, *units, residents=1):
    """The soft sum of a part: its time alone and what its units are busy, with that many CTAs on the SM."""
    return (alone**2.5 + sum((residents**2.5 - 1) * unit**2.5 for unit in units)) ** 0.4


def test_a_simulated_kernel_takes_its_cycles_by_residents_and_memory():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING, main=1)
    alone = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((100,), 10))
    # One CTA an SM: 1 us + 0.21 us, ten iterations of 2 us.
    assert alone.time_us == pytest.approx(LAUNCH_US + 1.21 + 20)
    full = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((200,), 10))
    start, iteration = soft(1.0, 0.4, residents=2), soft(2.0, 0.8, 1.9, residents=2)
    assert full.time_us == pytest.approx(LAUNCH_US + start + 0.21 + 10 * iteration)
    # 2 x 1900 of 3975 cycles: shared memory and L1 are busy 96 % of the time.
    assert iteration == pytest.approx(3.975, abs=0.001) and full.binding == "shared memory and L1"
    # The prediction that docs/model.md redoes by hand, with the 200 CTAs handed out.
    by_hand = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
    figures = [start, iteration, full.terms["schedule_us"], full.time_us]
    written = [float(n) for n in re.findall(r"= +([0-9.]+) us$", by_hand.split("## One prediction by hand")[1], re.M)]
    assert written == pytest.approx(figures, abs=0.006)
    cold = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((100,), 10), cold=True)
    assert cold.time_us == pytest.approx(LAUNCH_US + 1.4 + 0.21 + 28)


def test_loops_beside_the_main_one_count_for_each_cta_or_with_its_iterations():
    second = dataclasses.replace(TIMING.parts[1], part=2, near=500.0, unit_cycles=())
    timing = dataclasses.replace(TIMING, parts=(*TIMING.parts, second))
    work = CtaWork(0.0, 0.0, 0.0, (), timing=timing, main=1, loops=(2,))
    shape = LaunchShape.uniform((100,), 10)
    for turns, more in ((Turns(2, always=6.0), 3.0), (Turns(2, per_iteration=0.25), 1.25)):
        dealt = dataclasses.replace(shape, turns=(turns,))
        found = estimate(Gpu(), RESOURCES, Held(1), work, dealt)
        assert found.time_us == pytest.approx(LAUNCH_US + 1.21 + 20 + more), turns


def test_tiles_that_others_load_too_come_faster_and_take_no_bandwidth():
    # 100 KB an iteration, as 100 CTAs load it: 27.7 bytes a cycle each for itself, 50 where two or more share it.
    def found(sharers):
        streams = (Stream(1, 0, 1e5, 1e5, axes=()),)
        work = CtaWork(0.0, 1e5, 0.0, (), timing=TIMING, main=1, streams=streams)
        shape = dataclasses.replace(LaunchShape.uniform((100,), 10), sharers=(sharers,))
        return estimate(Gpu(), RESOURCES, Held(1), work, shape, cold=True).terms

    own, shared = found(1.0), found(4.0)
    few = (1e5 / 70.0 / 1000) ** 2.5
    assert own["iteration_us"] == pytest.approx((2.8**2.5 + (1e5 / 27.7 / 1000) ** 2.5 - few) ** 0.4)
    assert shared["iteration_us"] == pytest.approx((2.8**2.5 + (1e5 / 50.0 / 1000) ** 2.5 - few) ** 0.4)
    assert own["distinct_bytes"] == 4 * shared["distinct_bytes"] == 100 * 10 * 1e5


def test_what_a_cta_loads_again_is_in_the_l1_while_it_fits():
    def iteration_us(bytes_each, iterations):
        streams = (Stream(1, 0, bytes_each, bytes_each, again=True, axes=((0, 1),)),)
        work = CtaWork(0.0, bytes_each, 0.0, (), timing=TIMING, main=1, streams=streams)
        return estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), iterations)).terms["iteration_us"]

    # 256 KB of L1 hold 10 x 10 KB; 20 x 20 KB they do not.
    assert iteration_us(1e4, 10) == pytest.approx(2.0)
    assert iteration_us(2e5, 20) == pytest.approx((2.0**2.5 + (2e5 / 27700) ** 2.5 - (2e5 / 70000) ** 2.5) ** 0.4)


def test_factors_scale_their_terms():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING, main=1)
    factors = Factors(start=2.0, iteration=1.5, sharing=0.5)
    result = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((200,), 10), factors)
    start, iteration = soft(1.0, 0.4, residents=2), soft(2.0, 0.8, 1.9, residents=2)
    # start 2 x (1.21 + half of what the second CTA adds), iteration 1.5 x (2 + half of it)
    expected = 2 * (1.21 + 0.5 * (start - 1.0)) + 10 * 1.5 * (2 + 0.5 * (iteration - 2.0))
    assert result.time_us == pytest.approx(LAUNCH_US + expected)


def test_a_calibration_recovers_factors_and_says_what_the_points_leave_open():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING, main=1)

    def launch(ctas, iterations):
        return KernelLaunch("k", RESOURCES, Held(2), work, LaunchShape.uniform((ctas,), iterations))

    true = Factors(start=1.4, iteration=0.8, sharing=1.3)
    shapes = [(100, 1), (100, 20), (200, 1), (200, 20), (300, 10), (400, 4)]

    def timed(ctas, iterations):
        one = launch(ctas, iterations)
        return estimate(Gpu(), one.resources, one.occupancy, one.work, one.shape, true).time_us

    # Each ten times over: a point counts as known to 8 %, and few leave the factors nearer to 1.
    found = fit(Gpu(), [MeasuredPoint((launch(*s),), timed(*s)) for s in shapes * 10])
    factors = found.of(launch(1, 1))
    assert factors.start == pytest.approx(1.4, rel=0.05)
    assert factors.iteration == pytest.approx(0.8, rel=0.02)
    assert factors.sharing == pytest.approx(1.3, rel=0.05)
    assert found.fit_error_percent < 1.0 and found.undetermined == ()
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    # Points with one CTA an SM say nothing of sharing.
    alone = fit(Gpu(), [MeasuredPoint((launch(100, n),), timed(100, n)) for n in (1, 5, 20)])
    assert [name.rsplit(": ", 1)[1] for name in alone.undetermined] == ["sharing"]


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


def test_what_ctas_share_follows_from_the_axes_of_addresses():
    grids = np.array([[8, 4, 2], [8, 64, 2]])
    # What depends on axes 0 and 2 is shared along axis 1; pairs of programs of axis 1 share the second; the third
    # cannot be told, and counts as each CTA's own.
    both, pairs, untold = (
        Stream(1, 0, 1.0, 1.0, axes=((0, 1), (2, 1))),
        ((0, 1), (1, 2), (2, 1)),
        Stream(1, 2, 1.0, 1.0),
    )
    assert both.sharers_of(grids).tolist() == [4.0, 64.0]
    assert dataclasses.replace(both, axes=pairs).sharers_of(grids).tolist() == [2.0, 2.0]
    assert untold.sharers_of(grids).tolist() == [1.0, 1.0]
    # A spec's figure wins: 100 of 400 bytes are distinct.
    given = merged(
        CtaWork(bytes_per_iteration=400.0, unique_bytes_per_iteration=100.0), CtaWork(streams=(both,), main=1)
    )
    assert given.streams[0].sharers_of(grids).tolist() == [4.0, 4.0]


def test_variants_of_a_kernel_are_calibrated_alike():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING, main=1)

    def launch(registers, iterations):
        resources = dataclasses.replace(RESOURCES, registers_per_thread=registers)
        return KernelLaunch("k", resources, Held(2), work, LaunchShape.uniform((100,), iterations))

    def timed(iterations):
        one = launch(64, iterations)
        return estimate(Gpu(), RESOURCES, Held(2), work, one.shape, Factors(iteration=1.5)).time_us

    points = [MeasuredPoint((launch(64, n),), timed(n)) for n in (1, 10, 20, 40)] * 5
    # One point of another variant, which says nothing of iterations.
    points.append(MeasuredPoint((launch(128, 0),), timed(0)))
    found = fit(Gpu(), points)
    assert found.of(launch(64, 1)).iteration == pytest.approx(1.5, rel=0.05)
    assert found.of(launch(128, 1)).iteration == pytest.approx(1.5, rel=0.1)
