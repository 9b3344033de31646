"""`occupancy compare`: the recommendation, the default and known rules, judged by measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show


@compiles
def compare(
    times: options.TimesArgument,
    kernel: options.MeasuredKernelOption = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Judge the model with this calibration too.")
    ] = None,
    incumbent: Annotated[
        str | None,
        typer.Option("--incumbent", help="What runs today: NAME=VALUE of knobs and config, separated by commas."),
    ] = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Regret of the recommendation, of the default and of known rules on your own measurements.

    Regret: measured time of what is chosen over the best that was measured, minus 1.
    """
    from occupancy_cli.answers.compare import comparison, named_values
    from occupancy_cli.answers.times_file import read_times
    from occupancy_cli.plan.kernel_input import read_kernel_input

    found = read_times(times)
    profile = options.resolve_gpu(found.header.gpu, hw_profiles)
    given = read_kernel_input(kernel or found.header.kernel)
    with how.service() as service:
        report = comparison(found, given, profile, service, calibration, named_values(incumbent))
    show(report, output_format)
