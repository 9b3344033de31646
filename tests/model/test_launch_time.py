"""Time of a launch: terms by hand, what binds, and what is said when something is unknown."""

import dataclasses
import json
from dataclasses import dataclass

import pytest

from occupancy_cli.gpu.sm_rates import L2_BYTES_PER_CYCLE_AND_SM
from occupancy_cli.model.calibration import Calibration, MeasuredPoint, fit
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.kernel_timing import AtRate, KernelTiming
from occupancy_cli.model.launch_batch import estimates
from occupancy_cli.model.launch_time import LAUNCH_US, Factors, KernelLaunch
from occupancy_cli.model.resources import KernelResources


@dataclass(frozen=True)
class Gpu:
    """A GPU of round numbers: 100 SMs at 1 GHz (1000 cycles a us), 1000 GB/s (10 GB/s an SM: 1e4 bytes a us)."""

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
    launch = KernelLaunch("k", resources, occupancy, work, shape)
    (found,) = estimates(gpu, [launch], [False], None if factors is None else lambda _: factors, cold)
    return found


def test_a_launch_bound_by_bandwidth_takes_its_bytes_at_the_bandwidth():
    work = CtaWork(0.0, 1e6, 0.0, (), dependent_loads=1, pipeline_depth=1)
    result = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10))
    # 100 CTAs x 10 x 1 MB = 1 GB at 93 % of 1000 GB/s. The schedule: CTAs start in 0.5 us and 0.21 us between CTAs,
    # each iteration waits 0.5 us and takes 1 MB at the SM's 1e4 bytes a us.
    assert result.terms["memory_floor_us"] == pytest.approx(1000 / 0.93)
    assert result.terms["schedule_us"] == pytest.approx(0.71 + 10 * (100 + 0.5))
    assert result.time_us == pytest.approx(LAUNCH_US + 1000 / 0.93)
    assert result.binding == "memory bandwidth"


def test_data_that_fits_the_l2_does_not_meet_the_memory_bandwidth():
    work = CtaWork(0.0, 400.0, 0.0, (), dependent_loads=1, pipeline_depth=1)
    warm = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10))
    # 100 x 10 x 400 B = 0.4 MB: below half of the L2's 1 MB.
    assert warm.terms["memory_floor_us"] == 0.0 and warm.terms["dram_answers_percent"] == 0.0
    cold = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 10), cold=True)
    assert cold.terms["dram_answers_percent"] == 100.0
    # 0.75 MB lies in the middle between half of the L2 and all of it.
    half = estimate(Gpu(), RESOURCES, Held(1), work, LaunchShape.uniform((100,), 18.75))
    assert half.terms["dram_answers_percent"] == pytest.approx(50.0)


TIMING = KernelTiming(
    residents=(1, 2),
    near_latency_cycles=300.0,
    far_latency_cycles=700.0,
    start_near=(1000.0, 1500.0),
    start_far=(1400.0, 1900.0),
    iteration_near=(2000.0, 3000.0),
    iteration_far=(2800.0, 3800.0),
    unit_cycles=(("issue", 800.0), ("shared memory and L1", 1400.0)),
)


def test_a_simulated_kernel_takes_its_cycles_by_residents_and_memory():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING)
    alone = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((100,), 10))
    # One CTA an SM: 1 us + 0.21 us, ten iterations of 2 us.
    assert alone.time_us == pytest.approx(LAUNCH_US + 1.21 + 20)
    full = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((200,), 10))
    assert full.time_us == pytest.approx(LAUNCH_US + 1.71 + 30)
    # 2 x 1400 of 3000 cycles: shared memory and L1 are busy 93 % of the time.
    assert full.binding == "shared memory and L1"
    cold = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((200,), 10), cold=True)
    assert cold.time_us == pytest.approx(LAUNCH_US + 2.11 + 38)
    assert cold.binding == "latency"  # 2800 of 3800 cycles: 74 %


def test_factors_scale_their_terms():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING)
    factors = Factors(start=2.0, iteration=1.5, sharing=0.5)
    result = estimate(Gpu(), RESOURCES, Held(2), work, LaunchShape.uniform((200,), 10), factors)
    # start 2 x (1.21 + 0.5 x 0.5), iteration 1.5 x (2 + 0.5 x 1)
    assert result.time_us == pytest.approx(LAUNCH_US + 2 * 1.46 + 10 * 3.75)


def test_a_calibration_recovers_factors_and_says_what_the_points_leave_open():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING)

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


def test_masked_and_shared_loads_come_faster():
    # Iterations take 1000 cycles (1 us) at 20 bytes a cycle of memory and 600 at 40; near memory 500 and 300.
    timing = KernelTiming(
        (1,), 300.0, 700.0, (0.0,), (0.0,), (500.0,), (1000.0,), (),
        near_bytes_per_cycle=L2_BYTES_PER_CYCLE_AND_SM, far_bytes_per_cycle=20.0,
        faster_far=(AtRate(40.0, (0.0,), (600.0,)),),
    )  # fmt: skip

    def iteration_us(work, shape=LaunchShape.uniform((100,), 10)):
        found = estimate(Memory(), RESOURCES, Held(1), work, shape, cold=True)
        return found.terms["iteration_us"], found.terms["unique_loads_percent"]

    whole = CtaWork(0.0, 400.0, 0.0, (), timing=timing)
    assert iteration_us(whole) == (pytest.approx(1.0), 100.0)
    # Half of the lanes masked: as if at 40 bytes a cycle.
    masked = CtaWork(0.0, 400.0, 0.0, (), whole_bytes_per_iteration=800.0, timing=timing)
    assert iteration_us(masked)[0] == pytest.approx(0.6)
    # Half of the bytes loaded by other CTAs too: 1 / (0.5 / 20 + 0.5 / 50) = 28.6 bytes a cycle, of a byte's time
    # (1/20 - 1/28.6) / (1/20 - 1/40) = 0.6 of the way from 1000 to 600 cycles.
    shared = CtaWork(0.0, 400.0, 0.0, (), unique_bytes_per_iteration=200.0, timing=timing)
    assert iteration_us(shared) == (pytest.approx(1.0 - 0.6 * 0.4), 50.0)


@dataclass(frozen=True)
class Memory(Gpu):
    """20 bytes a cycle and SM of reachable memory bandwidth: 100 SMs x 20 B x 1 GHz / 0.93."""

    memory_bandwidth_gbps: float | None = 2000 / 0.93


def test_what_ctas_share_follows_from_the_axes_of_addresses():
    # Of 400 bytes 300 depend on axes 0 and 2, 60 on pairs of programs of axis 1, 40 cannot be told.
    work = CtaWork(loads_by_axes=((300.0, ((0, 1), (2, 1))), (60.0, ((0, 1), (1, 2), (2, 1))), (40.0, None)))
    # A grid of 8 x 4 x 2: the first are shared by 4 CTAs, the second by 2.
    assert work.sharing((8, 4, 2)).unique == pytest.approx((300 / 4 + 60 / 2 + 40) / 400)
    assert work.sharing((8, 4, 2)).repeated == 0.0
    # 64 CTAs share the first: 63 of 64 of its bytes are fetched for many at once.
    assert work.sharing((8, 64, 2)).repeated == pytest.approx(300 * (1 - 1 / 64) / 400)
    assert CtaWork().sharing((8, 4, 2)).unique == 1.0
    # A spec's figure wins: 100 of 400.
    given = CtaWork(bytes_per_iteration=400.0, unique_bytes_per_iteration=100.0, loads_by_axes=work.loads_by_axes)
    assert given.sharing((8, 4, 2)).unique == pytest.approx(0.25)


def test_variants_of_a_kernel_are_calibrated_alike():
    work = CtaWork(0.0, 0.0, 0.0, (), timing=TIMING)

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
