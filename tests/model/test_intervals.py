"""The interval of a prediction: by the kind of kernel, wider on a chip that was not measured, none without a record."""

import pytest

from occupancy_cli.model.cta_work import CtaWork
from occupancy_cli.model.intervals import RATIOS, interval, kind_of
from occupancy_cli.model.kernel_timing import KernelTiming

TIMING = KernelTiming(280, 690, ())
STRAIGHT = CtaWork(timing=TIMING)
LOOPS = CtaWork(timing=TIMING, main=1, tensor_flops_per_iteration=())
PRODUCTS = CtaWork(timing=TIMING, main=1, tensor_flops_per_iteration=(("bf16", 1.0),))


@pytest.mark.parametrize(("work", "kind"), [(STRAIGHT, "straight"), (LOOPS, "loops"), (PRODUCTS, "products")])
def test_the_interval_is_the_recorded_ratios_turned_round(work, kind):
    assert kind_of(work) == kind
    least, most = RATIOS[kind]
    # A ratio of 0.7 was predicted 7 us for 10 measured: of 7 us predicted, 10 are likely.
    low, high = interval(7.0, work, 90)
    assert low == pytest.approx(7.0 / most) and high == pytest.approx(7.0 / least)
    wide_low, wide_high = interval(7.0, work, 120)
    assert wide_low < low < 7.0 < high < wide_high


def test_without_machine_code_nothing_is_recorded():
    assert interval(7.0, CtaWork(), 90) is None
