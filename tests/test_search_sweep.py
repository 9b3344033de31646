"""Sweeps of many splits and batches against the exact schedule, and one TARGET_CTAS for a whole server."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.model.kernel_timing import KernelTiming
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.search import SplitFamily, Variant, score, sweep
from occupancy_cli.model.work import CtaWork


@dataclass(frozen=True)
class Gpu:
    sm_count: int | None = 132
    boost_clock_mhz: float | None = 1980.0
    memory_bandwidth_gbps: float | None = 4800.0
    fp16_dense_tflops: float | None = 989.0
    fp8_dense_tflops: float | None = None
    dram_latency_cycles: float | None = 690.0
    l2_bytes: int | None = 60_000_000


@dataclass(frozen=True)
class Held:
    ctas_per_sm: int


def timed(start, iteration):
    residents = tuple(range(1, len(start) + 1))
    return KernelTiming(residents, 280, 690, start, start, iteration, tuple(1.15 * i for i in iteration), ())


def family(name="a", scale=1.0):
    looped = CtaWork(16_000, 9_400, 33_000, (), timing=timed((3500, 5000), (scale * 10_000, scale * 14_000)))
    once = CtaWork(
        16_000, 9_400, 33_000, (), timing=timed(tuple(scale * c for c in (13_000, 17_000, 22_000)), (0, 0, 0))
    )
    merge = CtaWork(0, 2_056, 1_024, (), timing=timed((1_000,) * 8, (360,) * 8))
    return SplitFamily(
        (("BLOCK_H", 16),), (("name", name),), 32, 1,
        Variant("split", KernelResources(32_832, 4, 128, 255), Held(2), looped),
        Variant("split", KernelResources(32_832, 4, 128, 168), Held(3), once),
        Variant("combine", KernelResources(0, 4, 128, 32), Held(8), merge),
        Variant("combine", KernelResources(0, 4, 128, 18), Held(8), merge),
        16, 16 * 514 * 4,
    )  # fmt: skip


def test_a_sweep_agrees_with_the_exact_schedule():
    one = family()
    table = sweep(Gpu(), [one], range(1, 400, 13))
    ratios = []
    for i, nsplit in enumerate(table.splits[0]):
        for j, batch in enumerate(table.batches):
            exact = score(Gpu(), one.candidate(int(batch), int(nsplit)))[0].time_us
            ratios.append(table.times_us[0][i, j] / exact)
    errors = np.abs(np.array(ratios) - 1)
    assert errors.mean() < 0.01
    assert np.percentile(errors, 99) < 0.07
    # Equal CTAs are exact.
    for nsplit in (1, 2, 4, 8, 16):
        for batch in (1, 40, 131):
            exact = score(Gpu(), one.candidate(batch, nsplit))[0].time_us
            table = sweep(Gpu(), [one], [batch], [nsplit])
            assert table.times_us[0][0, 0] == pytest.approx(exact)


# Of an iteration's loads, by the axes of the grid (batch, head groups, splits) that addresses depend on.
BY_REQUEST = ((0, 1), (2, 1))  # head groups read the same
BY_HEAD = ((1, 1), (2, 1))  # requests read the same
BY_PAIR = ((0, 2), (1, 1), (2, 1))  # two neighbouring requests read the same


@pytest.mark.parametrize("axes", [BY_REQUEST, BY_HEAD, BY_PAIR])
def test_a_sweep_knows_what_ctas_load_in_common(axes):
    whole = replace(family(), units=4, once=None)
    work = replace(whole.looped.work, loads_by_axes=((9_000, axes), (400, None)))
    merge = replace(whole.combine.work, loads_by_axes=((2_056, ((0, 1),)),))  # of 16 CTAs a request, all read the same
    shared = replace(
        whole, looped=replace(whole.looped, work=work), combine=replace(whole.combine, work=merge), combine_once=None
    )
    batches, splits = (3, 40, 48, 131, 300), (1, 2, 4, 8, 16)
    table, apart = (sweep(Gpu(), [each], batches, splits).times_us[0] for each in (shared, whole))
    for i, nsplit in enumerate(splits):
        for j, batch in enumerate(batches):
            exact = score(Gpu(), shared.candidate(batch, nsplit))[0].time_us
            assert table[i, j] == pytest.approx(exact)
    # One split: 40 requests x 4 head groups x (32 tiles x 9,400 + 49,000 bytes) are 56 MB, beyond the 30 MB half of the
    # L2. Head groups that read the same leave 160 x (32 x (9,000 / 4 + 400) + 49,000) = 21 MB.
    assert table[0, 1] < apart[0, 1]


def test_a_single_tile_a_split_is_another_kernel():
    one = family()
    main = one.candidate(10, 32).launches[0]
    assert main.resources.registers_per_thread == 168
    assert one.candidate(10, 16).launches[0].resources.registers_per_thread == 255
    assert one.candidate(10, 1).launches[1].resources.registers_per_thread == 18
    assert one.candidate(10, 16).partial_bytes == 10 * 16 * 16 * 514 * 4


def test_the_fastest_of_a_batch_are_ranked_exactly():
    table = sweep(Gpu(), [family("slow", 2.0), family("fast")], [48])
    found = table.top(48, 3)
    assert all(dict(f.config)["name"] == "fast" for f, _, _ in found)
    assert [time for _, _, time in found] == sorted(time for _, _, time in found)
    ranking = table.ranking(48, incumbent=family("slow", 2.0).candidate(48, 1))
    assert dict(ranking.chosen.candidate.config)["name"] == "fast"
    assert ranking.predicted_ratio > 1.5


def test_nsplit_follows_from_target_ctas():
    table = sweep(Gpu(), [family()], [10, 100, 300])
    # 256 // 10 = 25 splits, 256 // 100 = 2, 256 // 300 = 0: at least 1; rounded up 26, 3, 1.
    by_split = table.times_us[0]
    floor = table.target_us(0, 256)
    assert floor.tolist() == [by_split[24, 0], by_split[1, 1], by_split[0, 2]]
    assert table.target_us(0, 256, ceil=True).tolist() == [by_split[25, 0], by_split[2, 1], by_split[0, 2]]


def test_one_target_for_all_batches_and_for_a_mix():
    table = sweep(Gpu(), [family()], range(8, 257, 8))
    f, target, slowdown = table.best_target()
    costs = [np.mean(table.target_us(0, t) / table.best_us()) for t in (132, 256, 264, 512)]
    assert f == 0 and slowdown <= min(costs) + 1e-9
    assert slowdown == pytest.approx(float(np.mean(table.target_us(0, target) / table.best_us())))
    mixed = table.best_target({64: 1.0})
    assert mixed[2] == pytest.approx(1.0)  # one batch alone can have its best
    with pytest.raises(InputError):
        table.best_target({7: 1.0})
    with pytest.raises(InputError):
        sweep(Gpu(), [family()], [])
    with pytest.raises(InputError):
        sweep(Gpu(), [family()], [4], [64])
