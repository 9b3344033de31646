"""Many launches at once against each alone: the exact time is the same to the last bit, and no bound lies above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_oracle import estimate

from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.kernel_timing import KernelTiming
from occupancy_cli.model.launch_batch import Launches, Shapes, estimates
from occupancy_cli.model.launch_time import Factors, KernelLaunch, launch_model
from occupancy_cli.model.resources import KernelResources


@dataclass(frozen=True)
class Gpu:
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


@st.composite
def works(draw: st.DrawFn) -> CtaWork:
    """A kernel's work with a timing: more residents are usually slower, as they are not always in a simulation."""
    steps = draw(st.lists(st.floats(0.95, 1.9), min_size=2, max_size=2))
    starts, iterations = draw(cycles), draw(st.one_of(st.just(0.0), cycles))
    start = (starts, starts * steps[0], starts * steps[0] * steps[1])
    iteration = (iterations, iterations * steps[1], iterations * steps[1] * steps[0])
    far = tuple(1.2 * c for c in iteration)
    timing = KernelTiming((1, 2, 3), 280, 690, start, tuple(1.1 * c for c in start), iteration, far, ())
    axes = draw(st.lists(st.sampled_from([None, (), ((0, 1),), ((1, 1), (2, 4)), ((0, 1), (2, 1))]), max_size=3))
    return CtaWork(
        draw(st.floats(0, 5e4)), draw(st.one_of(st.just(0.0), st.floats(0, 1e5))), 1e3, (), timing=timing,
        loads_by_axes=tuple((1000.0 * (i + 1), a) for i, a in enumerate(axes)),
    )  # fmt: skip


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
@given(works(), shapes(), st.integers(1, 3), st.booleans(), st.sampled_from([1, 2]), st.booleans())
def test_every_launch_is_timed_as_alone_and_never_faster_than_its_bound(
    work: CtaWork, each: list[LaunchShape], held: int, cold: bool, num_ctas: int, follows: bool
) -> None:
    resources = KernelResources(0, 4, 128, 64, num_ctas=num_ctas)
    factors = Factors(1.1, 0.9, 1.3)
    model, unknown = launch_model(Gpu(), resources, Held(held), work, factors, cold, follows)
    assert model is not None
    many = Launches(model, unknown, work, Shapes.of(each))
    for row, shape in enumerate(each):
        alone = estimate(Gpu(), resources, Held(held), work, shape, factors, cold, follows)
        assert alone.time_us is not None
        assert many.time_us(row) == alone.time_us
        assert many.at_least_us[row] <= alone.time_us
        assert many.estimate(row) == alone


def test_the_bound_is_the_time_of_equal_ctas() -> None:
    timing = KernelTiming((1, 2), 280, 690, (990, 1980), (990, 1980), (1980, 2970), (1980, 2970), ())
    work = CtaWork(0.0, 0.0, 0.0, (), timing=timing)
    model, unknown = launch_model(Gpu(), KernelResources(0, 4, 128, 64), Held(2), work)
    assert model is not None
    many = Launches(model, unknown, work, Shapes.uniform(np.array([[24], [30]]), np.array([4.0, 4.0])))
    # Two CTAs an SM: 1980 + 4 x 2970 cycles of 1980 a us are 7 us, and 0.21 us from one CTA to the next; 24 CTAs fill
    # the 24 slots of 12 SMs once, 6 more run alone: 990 + 4 x 1980 cycles, 4.5 us, and 0.21. The launch: 0.54 us.
    assert many.at_least_us.tolist() == pytest.approx([0.54 + 7.21, 0.54 + 7.21 + 4.71])
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
        assert one == estimate(Gpu(), resources, launch.occupancy, launch.work, launch.shape, factors, cold, after)
