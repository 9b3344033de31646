"""Waves and tails, with the deployment case's figures."""

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.model.waves import cta_slots, wave_schedule


def test_two_waves_the_second_28_percent_full():
    w = wave_schedule((80, 1, 3), 1, 188)
    assert (w.ctas, w.slots, w.full_waves, w.tail_ctas) == (240, 188, 1, 52)  # 240 - 188 = 52
    assert w.tail_percent == pytest.approx(27.66, abs=0.005)  # 52 / 188
    assert w.waves == pytest.approx(1.2766, abs=5e-5)  # 240 / 188
    assert w.efficiency_percent == pytest.approx(63.83, abs=0.005)  # 240 / (2 x 188)


def test_320_ctas_are_two_waves_and_192_spill_4_into_a_second():
    w = wave_schedule((80, 1, 4), 1, 188)
    assert (w.full_waves, w.tail_ctas) == (1, 132)  # 320 - 188
    assert w.tail_percent == pytest.approx(70.21, abs=0.005)  # 132 / 188
    w = wave_schedule((96, 1, 2), 1, 188)
    assert (w.ctas, w.full_waves, w.tail_ctas) == (192, 1, 4)
    assert w.tail_percent == pytest.approx(2.13, abs=0.005)  # 4 / 188


def test_a_grid_that_fills_every_wave_has_no_tail():
    w = wave_schedule((188, 2), 2, 188)
    assert (w.slots, w.waves, w.full_waves, w.tail_ctas, w.tail_percent) == (376, 1.0, 1, 0, 0.0)
    assert w.efficiency_percent == 100.0


def test_less_than_one_wave():
    w = wave_schedule((100,), 1, 188)
    assert (w.full_waves, w.tail_ctas) == (0, 100)
    assert w.efficiency_percent == pytest.approx(100 * 100 / 188)


def test_unknown_sm_count_leaves_the_rest_unknown():
    w = wave_schedule((80, 1, 3), 1, None)
    assert w.ctas == 240
    assert (w.slots, w.waves, w.tail_percent, w.efficiency_percent) == (None, None, None, None)


def test_a_config_that_cannot_launch_has_no_slots():
    w = wave_schedule((80, 1, 3), 0, 188)
    assert (w.ctas, w.slots, w.waves, w.full_waves) == (240, 0, None, None)


def test_clusters_count_their_ctas_and_waste_slots_of_a_gpc():
    # 132 SMs hold 66 clusters of 2.
    assert cta_slots(132, 1, 2) == 132
    # GPCs of 16 and 18 SMs hold 4 + 4 clusters of 4 CTAs: 32 of 34 slots.
    assert cta_slots(34, 1, 4, sms_per_gpc=(16, 18)) == 32
    w = wave_schedule((40,), 1, 34, num_ctas=4, sms_per_gpc=(16, 18))
    assert (w.ctas, w.slots, w.waves) == (160, 32, 5.0)


@pytest.mark.parametrize(
    ("grid", "per_sm", "sms", "num_ctas"), [((), 1, 8, 1), ((0, 1), 1, 8, 1), ((1,), -1, 8, 1), ((1,), 1, 0, 1)]
)
def test_impossible_arguments_are_errors(grid, per_sm, sms, num_ctas):
    with pytest.raises(InputError):
        wave_schedule(grid, per_sm, sms, num_ctas)
