"""Many launches at once against each alone: the same time, and no bound lies above it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_oracle import estimate
from measured_rates import MeasuredRates

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.gpu_profile import ComputeCapability
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Stream, Turns
from occupancy_cli.model.kernel_timing import KernelTiming, PartTiming
from occupancy_cli.model.launch_batch import Launches, Shapes, estimates
from occupancy_cli.model.launch_time import Factors, KernelLaunch, TimeEstimate, launch_model
from occupancy_cli.model.resources import KernelResources

H200 = load_gpu("h200")


@dataclass(frozen=True)
class Gpu(MeasuredRates):
    arch: int = 90
    limits: ComputeCapability = H200.limits
    sm_count: int | None = 12
    boost_clock_mhz: float | None = 1980.0
    memory_bandwidth_gbps: float | None = 480.0
    fp16_dense_tflops: float | None = 98.0
    fp8_dense_tflops: float | None = None
    dram_latency_cycles: float | None = 690.0
    l2_bytes: int | None = 4_000_000


@dataclass(frozen=True)
class Held:
    ctas_per_sm: int


def test_shapes_are_those_of_each_launch() -> None:
    # 16 tiles over 6 splits are 3 a CTA: five full ones, one of a single tile; over 8 splits of 3, two are empty.
    grids = np.array([[7, 1, 6], [7, 2, 8], [5, 1, 1]])
    shapes = Shapes.split(grids, np.array([16, 16, 16]), np.array([3, 3, 16]))
    assert shapes.shape(0) == LaunchShape.split((7, 1, 6), 16, 3)
    assert shapes.shape(0).runs == ((35, 3.0), (7, 1.0))
    assert shapes.shape(1) == LaunchShape.split((7, 2, 8), 16, 3)
    assert shapes.shape(1).runs == ((70, 3.0), (14, 1.0), (28, 0.0))
    assert shapes.shape(2).runs == ((5, 16.0),)
    assert Shapes.uniform(grids, np.array([2.0, 1.5, 0.0])).shape(1) == LaunchShape.uniform((7, 2, 8), 1.5)
    ragged = [LaunchShape.ragged((4,), [1, 2, 2, 5]), LaunchShape.uniform((9,), 3)]
    assert [Shapes.of(ragged).shape(i) for i in range(2)] == ragged
    with pytest.raises(InputError, match="cover"):
        Shapes.split(np.array([[7, 1, 5]]), np.array([16]), np.array([3]))


cycles = st.floats(100.0, 30_000.0)


UNITS = ("issue", "tensor", "shared memory and L1")


@st.composite
def works(draw: st.DrawFn) -> CtaWork:
    """A kernel's work: a start and up to two loops with timings, and streams of each."""
    loops = draw(st.integers(0, 2))
    parts = []
    for number in range(loops + 1):
        near = draw(cycles)
        units = tuple((unit, near * draw(st.floats(0.0, 1.0))) for unit in UNITS)
        local = draw(st.sampled_from([(0.0, 0.0), (3e4, 2e4)]))
        parts.append(PartTiming(number, near, near * draw(st.floats(1.0, 2.0)), units, *local))
    axes = st.sampled_from([None, (), ((0, 1),), ((1, 1), (2, 4)), ((0, 1), (2, 1))])
    size = st.floats(0.0, 1e5)
    streams = tuple(
        Stream(draw(st.integers(0, loops)), n, draw(size), draw(size), draw(st.booleans()), False, draw(axes))
        for n in range(draw(st.integers(0, 4)))
    )
    main = min(loops, 1)
    return CtaWork(
        0.0, 0.0, 0.0, (), timing=KernelTiming(280, 690, tuple(parts)), main=main, loops=(2,) if loops > 1 else (),
        streams=tuple(dataclasses.replace(s, again=s.part == 2 and not s.writes) for s in streams),
    )  # fmt: skip


def turned(work: CtaWork, shapes: list[LaunchShape], always: float, each: float) -> list[LaunchShape]:
    """Shapes whose second loop turns so often."""
    turns = tuple(Turns(part, always, each) for part in work.loops)
    return [dataclasses.replace(shape, turns=turns) for shape in shapes]


def assert_same(one: TimeEstimate, alone: TimeEstimate) -> None:
    """Both say the same time by the same terms, but for the last digits."""
    assert (one.time_us is None) == (alone.time_us is None) and one.unknown == alone.unknown
    if one.time_us is not None:
        assert one.time_us == pytest.approx(alone.time_us, rel=1e-9)
        for name, value in alone.terms.items():
            assert one.terms[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@st.composite
def shapes(draw: st.DrawFn) -> list[LaunchShape]:
    found = []
    for _ in range(draw(st.integers(1, 6))):
        batch, units, splits = draw(st.integers(1, 60)), draw(st.integers(1, 3)), draw(st.integers(1, 20))
        tiles = draw(st.integers(1, 40))
        if draw(st.booleans()):
            found.append(LaunchShape.split((batch, units, splits), tiles, draw(st.integers(-(-tiles // splits), 40))))
        elif draw(st.booleans()):
            found.append(LaunchShape.uniform((batch, units, splits), draw(st.floats(0, 50))))
        else:
            each = draw(st.lists(st.integers(0, 9), min_size=batch, max_size=batch))
            found.append(LaunchShape.ragged((batch, 1, 1), each))
    return found


@settings(max_examples=300, deadline=None)
@given(
    works(), shapes(), st.integers(1, 3), st.booleans(), st.sampled_from([1, 2]), st.booleans(), st.floats(0, 3),
    st.sampled_from([None, 8, 4000]),
)  # fmt: skip
def test_every_launch_is_timed_as_alone_and_never_faster_than_its_bound(
    work: CtaWork,
    each: list[LaunchShape],
    held: int,
    cold: bool,
    num_ctas: int,
    follows: bool,
    turn: float,
    spilled: int | None,
) -> None:
    each = turned(work, each, turn, 3.0 - turn)
    resources = KernelResources(0, 4, 128, 64, num_ctas=num_ctas, spill_bytes=spilled)
    factors = Factors(1.1, 0.9, 1.3)
    model, unknown = launch_model(Gpu(), resources, Held(held), work, factors, cold, follows)
    assert model is not None
    many = Launches(model, unknown, work, Shapes.of(each))
    for row, shape in enumerate(each):
        alone = estimate(Gpu(), resources, Held(held), work, shape, factors, cold, follows)
        assert alone.time_us is not None
        assert many.time_us(row) == pytest.approx(alone.time_us, rel=1e-9)
        assert many.at_least_us[row] <= many.time_us(row)
        assert_same(many.estimate(row), alone)


def test_the_bound_is_the_time_of_equal_ctas() -> None:
    # A start of 990 cycles, which is all issue, and iterations of 1980 that only wait.
    parts = (PartTiming(0, 990, 990, (("issue", 990.0),)), PartTiming(1, 1980, 1980, (("issue", 0.0),)))
    work = CtaWork(0.0, 0.0, 0.0, (), timing=KernelTiming(280, 690, parts), main=1)
    model, unknown = launch_model(Gpu(), KernelResources(0, 4, 128, 64), Held(2), work)
    assert model is not None
    many = Launches(model, unknown, work, Shapes.uniform(np.array([[24], [30]]), np.array([4.0, 4.0])))
    # Two CTAs an SM: 2 x 990 + 4 x 1980 cycles of 1980 a us are 5 us, and 0.21 us from one CTA to the next; 24 CTAs
    # fill the 24 slots of 12 SMs once, 6 more run alone: 990 + 4 x 1980 cycles, 4.5 us, and 0.21. The launch: 0.8 us.
    assert many.at_least_us.tolist() == pytest.approx([0.8 + 5.21, 0.8 + 5.21 + 4.71], rel=1e-6)
    assert many.time_us(1) == many.at_least_us[1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(works(), shapes(), st.integers(0, 3)), min_size=1, max_size=3), st.booleans())
def test_launches_of_any_kernels_are_timed_as_alone(
    kernels: list[tuple[CtaWork, list[LaunchShape], int]], cold: bool
) -> None:
    """Three kernels' launches in turn, some that no SM holds a CTA of: each as if it had been asked for by itself."""
    resources = KernelResources(0, 4, 128, 64)
    launches = [
        KernelLaunch(f"k{i}", resources, Held(held), work, shape)
        for i, (work, each, held) in enumerate(kernels)
        for shape in each
    ]
    launches.sort(key=lambda launch: launch.shape.programs)
    follows = [number % 2 == 1 for number in range(len(launches))]
    factors = Factors(1.2, 0.8, 1.1)
    found = estimates(Gpu(), launches, follows, lambda _: factors, cold)
    for launch, after, one in zip(launches, follows, found, strict=True):
        alone = estimate(Gpu(), resources, launch.occupancy, launch.work, launch.shape, factors, cold, after)
        assert_same(one, alone)
