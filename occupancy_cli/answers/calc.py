"""`calc`: the occupancy of one kernel from its numbers, and what more CTAs per SM would take.

Many kernels at once: see `answers.calculated_rows`. Needs neither Triton nor a GPU.
"""

from __future__ import annotations

from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model import occupancy as model
from occupancy_cli.model import occupancy_ranges
from occupancy_cli.report.calculation_parts import Calculation, Plateau
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.occupancy_parts import Resources
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION

# An argument of the model -> the option that gives it.
_OPTIONS = {
    "threads_per_cta": "--threads",
    "registers_per_thread": "--regs",
    "shared_bytes": "--shared",
    "static_shared_bytes": "--static-shared",
    "carveout_bytes": "--carveout",
    "num_ctas": "--num-ctas",
    "tmem_columns": "--tmem",
}


def calculate(gpu: GpuProfile, kernel: dict[str, Any], over: str | None = None) -> Report:
    """A Report with the calculation; `kernel` has the arguments of `model.occupancy`, `over` is a resource to chart.

    An `InputError` names the option of the value at fault.
    """
    for name in ("threads_per_cta", "shared_bytes"):
        if kernel.get(name) is None:
            hint = "Such as: occupancy calc --threads 128 --regs 168 --shared 61568"
            raise InputError("is missing", where=_OPTIONS[name], hint=hint)
    try:
        found = model.occupancy(gpu, **kernel)
    except InputError as error:
        where = _OPTIONS.get(error.where, error.where)
        raise InputError(error.problem, where=where, hint=error.hint, **error.data) from None
    ranges = () if over is None else occupancy_ranges.sweep(gpu, over, **kernel)
    calculation = Calculation(
        fits=found.launchable,
        over_bytes=found.over_bytes,
        reason=found.reason,
        resources=Resources(
            shared_bytes=found.shared_bytes,
            registers_per_thread=found.registers_per_thread,
            spill_bytes=None,
            num_warps=found.warps_per_cta,
            threads_per_cta=found.threads_per_cta,
            static_shared_bytes=found.static_shared_bytes,
            num_ctas=found.num_ctas,
            tmem_columns=found.tmem_columns,
        ),
        shared_allocated_bytes=found.shared_allocated_bytes,
        registers_allocated_per_cta=found.registers_allocated_per_cta,
        carveout_bytes=found.carveout_bytes,
        occupancy=report_parts.occupancy_part(found),
        cliffs=[report_parts.next_cta_part(level) for level in occupancy_ranges.cliffs(gpu, **kernel)],
        over=over,
        ranges=[
            Plateau(
                least=each.least,
                most=each.most,
                ctas_per_sm=each.ctas_per_sm,
                warps_per_sm=each.warps_per_sm,
                percent=round(each.percent, 2),
                limited_by=list(each.limited_by),
            )
            for each in ranges
        ],
    )
    return Report(
        command="calc",
        toolchain=Toolchain(occupancy=VERSION),
        gpu=report_parts.gpu_part(gpu),
        calculation=calculation,
    )
