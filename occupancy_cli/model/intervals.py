"""How far a predicted time may be from the measured one: 90 % intervals from recorded errors by kind of kernel.

    interval(12.0, work, arch=90)      # (9.6, 16.5): a kernel with products, on the chip that was measured

The ratios of predicted and measured times, 5th and 95th percentile over 6,258 points of 27 kernels on an H200 with warm
and cold L2 (validation/h200/kinds.yaml; measured with measure_kinds.py). No constant of the model was fitted to them.
Taken from the points marked `fit` alone, the intervals hold 83 to 85 % of those held out.
"""

from __future__ import annotations

from occupancy_cli.model.cta_work import CtaWork

RATIOS = {"products": (0.726, 1.248), "loops": (0.696, 1.346), "straight": (0.604, 1.732)}
"""Of kernels with tensor products, with loops that have none, and without loops."""
MEASURED_ARCH = 90


def kind_of(work: CtaWork) -> str:
    """The kind of kernel, by which errors are recorded."""
    if work.tensor_flops_per_iteration:
        return "products"
    return "loops" if work.main else "straight"


def interval(time_us: float, work: CtaWork, arch: int) -> tuple[float, float] | None:
    """Where nine of ten measured times lie that are predicted so; None without machine code, of which nothing is
    recorded. On another chip than the measured one, whose rates are partly assumed, twice as far on either side."""
    if work.timing is None:
        return None
    least, most = RATIOS[kind_of(work)]
    wider = 1.0 if arch == MEASURED_ARCH else 2.0
    return time_us / most**wider, time_us / least**wider
