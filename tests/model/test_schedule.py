"""List scheduling with CTAs that share an SM: by hand, and against a simulation that treats every CTA by itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import LaunchShape
from occupancy_cli.model.schedule import CtaTimes, simulate

ALONE = CtaTimes((1.0,), (2.0,))  # a CTA of n iterations: 1 + 2 n us, one CTA an SM
PAIR = CtaTimes((1.0, 2.0), (2.0, 3.0))  # two on an SM: 2 + 3 n us each


def test_split_of_16_tiles_over_6_is_five_full_splits_and_one_short():
    shape = LaunchShape.split((24, 1, 6), tiles=16, tiles_per_split=3)
    assert shape.runs == ((120, 3.0), (24, 1.0))  # 24 x 5 CTAs of 3 tiles, then 24 of 1
    assert shape.total_iterations == 24 * 16


def test_splits_along_x_alternate_and_splits_beyond_the_tiles_are_empty():
    assert LaunchShape.split((3, 2), tiles=5, tiles_per_split=2, split_axis=0).runs == (
        (2, 2.0),
        (1, 1.0),
        (2, 2.0),
        (1, 1.0),
    )
    assert LaunchShape.split((1, 1, 4), tiles=2, tiles_per_split=1).runs == ((2, 1.0), (2, 0.0))
    with pytest.raises(InputError):
        LaunchShape.split((1, 1, 2), tiles=5, tiles_per_split=2)  # 2 x 2 < 5


def test_persistent_programs_deal_out_items_in_turn():
    # Items 5, 4, 3, 2, 1 over 2 programs: 5 + 3 + 1 = 9 and 4 + 2 = 6.
    assert LaunchShape.persistent(2, [5, 4, 3, 2, 1]).runs == ((1, 9.0), (1, 6.0))


def test_uniform_work_runs_in_waves():
    # 10 CTAs of 3 iterations (7 us) on 4 SMs: 3 waves.
    assert simulate(LaunchShape.uniform((10,), 3), ALONE, 4).makespan_us == 21.0
    # Two an SM: a full wave of 8 CTAs (2 + 9 = 11 us), then 2 CTAs alone (7 us).
    result = simulate(LaunchShape.uniform((10,), 3), PAIR, 4)
    assert result.makespan_us == 18.0
    assert result.busy_percent == pytest.approx(100 * (8 * 11 + 2 * 7) / (8 * 18))


def test_short_ctas_come_last_and_fill_the_tail():
    # 4 SMs, 5 CTAs of 3 (7 us), then 3 of 1 (3 us): at 7 us the fifth and the three short ones start; 7 + 7 = 14.
    shape = LaunchShape((8,), ((5, 3.0), (3, 1.0)))
    assert simulate(shape, ALONE, 4).makespan_us == 14.0
    # The same with the long one last would cost no more here, but a straggler at the end of a full machine does:
    late = LaunchShape((5,), ((4, 1.0), (1, 30.0)))
    assert simulate(late, ALONE, 4).makespan_us == 3.0 + 61.0


def test_a_neighbour_that_leaves_frees_the_other():
    # One SM, residents of 1 and 3 iterations. Together: 5 us for the short one. The long one (11 us shared) has then
    # done 5/11; the rest runs alone: 6/11 x 7 us.
    shape = LaunchShape((2,), ((1, 1.0), (1, 3.0)))
    assert simulate(shape, PAIR, 1).makespan_us == pytest.approx(5 + 6 / 11 * 7)


def test_clusters_take_their_sms_together():
    # 5 SMs hold 2 clusters of 2: 3 clusters are two waves.
    assert simulate(LaunchShape.uniform((3,), 3), ALONE, 5, num_ctas=2).makespan_us == 14.0
    with pytest.raises(InputError):
        simulate(LaunchShape.uniform((3,), 3), ALONE, 3, num_ctas=4)


def _every_cta_by_itself(launch, times, sms):
    """Event simulation without any grouping."""
    queue = [n for count, n in launch.runs for _ in range(count)]
    residents = [[] for _ in range(sms)]
    now = 0.0
    while True:
        while queue:
            target = min(range(sms), key=lambda s: (len(residents[s]), s))
            if len(residents[target]) >= times.ctas_per_sm:
                break
            residents[target].append([1.0, queue.pop(0)])
        left = [share * times.cta_us(n, len(held)) for held in residents for share, n in held]
        if not left:
            return now
        step = min(left)
        now += step
        for held in residents:
            total = len(held)
            for cta in held:
                cta[0] -= step / times.cta_us(cta[1], total)
            held[:] = [cta for cta in held if cta[0] > 1e-9]


@settings(max_examples=150, deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9)), min_size=1, max_size=4),
    sms=st.integers(1, 5),
    times=st.sampled_from([ALONE, PAIR, CtaTimes((0.5, 0.9, 1.7), (1.0, 1.25, 1.75))]),
)
def test_grouping_equal_sms_changes_nothing(runs, sms, times):
    launch = LaunchShape((sum(c for c, _ in runs),), tuple((c, float(n)) for c, n in runs))
    assert simulate(launch, times, sms).makespan_us == pytest.approx(_every_cta_by_itself(launch, times, sms))


def test_the_deployments_throughput_falls_from_80_to_96_requests():
    # 188 SMs, one CTA an SM, 32 tiles a request, TARGET_CTAS 256: 3 splits at batch 80, 2 at batch 96. In tiles:
    # batch 80 runs 160 CTAs of 11 and 80 of 10: 188 at once, 52 behind them: 11 + 10 at the soonest.
    tile = CtaTimes((0.0,), (1.0,))
    at_80 = simulate(LaunchShape.split((80, 1, 3), 32, 11), tile, 188).makespan_us
    # batch 96 runs 192 CTAs of 16, four of them in a second wave: 32.
    at_96 = simulate(LaunchShape.split((96, 1, 2), 32, 16), tile, 188).makespan_us
    assert (at_80, at_96) == (21.0, 32.0)
    # The published step at batch 80: 80 tokens at 833.0 a second, 51.2 ms of it attention, which is what grows.
    step_80 = 80 / 833.0
    step_96 = step_80 - 0.0512 + 0.0512 * at_96 / at_80
    assert 96 / step_96 < 833.0
    assert 96 / step_96 == pytest.approx(799.3, rel=0.03)  # what was measured
    # Four splits: 384 CTAs of 8 tiles, two full waves and 8 CTAs of a third.
    fixed = simulate(LaunchShape.split((96, 1, 4), 32, 8), tile, 188).makespan_us
    assert fixed == 24.0
    # Three splits (TARGET_CTAS 288): 192 CTAs of 11 and 96 of 10 fit two waves.
    assert simulate(LaunchShape.split((96, 1, 3), 32, 11), tile, 188).makespan_us <= 22.0
