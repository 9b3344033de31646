"""How far a predicted time may be from the measured one: 90 % intervals from recorded errors by kind of kernel.

    interval(12.0, work, arch=90)      # (10.0, 18.2): a kernel with products, on the chip that was measured

Quantiles of predicted / measured time over the points marked `fit` of 19 kernels on an H200 with warm and cold L2
(validation/h200/kinds.yaml). A kernel counts once, however many points it has, and which quantiles was decided by
leaving out one kernel in turn: those of the others hold nine of ten of its points. Of the points held out they hold
91 % with warm and 89 % with cold L2 (validation/kinds.md, which has the quantiles anew, of the model as it is now).
"""

from __future__ import annotations

from occupancy_cli.model.cta_work import CtaWork

RATIOS = {"products": (0.658, 1.195), "loops": (0.690, 1.866), "straight": (0.725, 1.257)}
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
