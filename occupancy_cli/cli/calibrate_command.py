"""`occupancy calibrate`: from measured times to a calibration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show


@compiles
def calibrate(
    times: options.TimesArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibration file to write (YAML).")],
    kernel: options.MeasuredKernelOption = None,
    points: Annotated[
        int, typer.Option("--points", min=3, max=1000, help="Points of each compiled kernel that the fit uses.")
    ] = 12,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Fit the model's terms to measured times; `recommend --calibration FILE` uses the result, on any machine.

    Prints how far off predictions were before and after, and what the times leave open. Points that were measured with
    the clock held down or on a shared GPU take no part. The file is good for this GPU, kernel and Triton version only.
    """
    from occupancy_cli.answers.calibrate import calibration_fit
    from occupancy_cli.answers.times_file import read_times
    from occupancy_cli.plan.kernel_input import read_kernel_input

    found = read_times(times)
    profile = options.resolve_gpu(found.header.gpu, hw_profiles)
    given = read_kernel_input(kernel or found.header.kernel)
    with how.service() as service:
        report = calibration_fit(found, given, profile, service, output, points_per_kernel=points)
    show(report, output_format)
