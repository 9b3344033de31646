"""`occupancy calibrate`: from measured times to a calibration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import counted, make_console, make_table


def calibrate(
    times: Annotated[Path, typer.Argument(metavar="TIMES", help="A file that `occupancy measure` wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibration file to write (YAML).")],
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="The kernel, where it lies elsewhere than when it was measured.")
    ] = None,
    points: Annotated[
        int, typer.Option("--points", min=3, max=1000, help="Points of each compiled kernel that the fit uses.")
    ] = 12,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Fit the model's terms to measured times; `recommend --calibration FILE` uses the result, on any machine.

    Prints how far off predictions were before and after, and what the times leave open. Points that were measured with
    the clock held down or on a shared GPU take no part. The file is good for this GPU, kernel and Triton version only.
    """
    from occupancy_cli.answers.calibrate import calibrate as run
    from occupancy_cli.answers.times_file import read_times
    from occupancy_cli.plan.kernel_input import read_kernel_input

    found = read_times(times)
    profile = options.resolve_gpu(found.header.gpu, hw_profiles)
    given = read_kernel_input(kernel or found.header.kernel)
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor="local"
    ) as service:
        fitted = run(found, given, profile, service, points_per_kernel=points)
    output.write_text(fitted.file.to_yaml(), encoding="utf-8")
    console = make_console()
    table = make_table("compiled kernel", "start", "iteration", "sharing", right=(1, 2, 3))
    open_ = set(fitted.file.calibration.undetermined)
    for name, factors in fitted.file.calibration.factors:
        cells = (("start", factors.start), ("iteration", factors.iteration), ("sharing", factors.sharing))
        table.add_row(name, *(f"{value:.2f}{' ?' if f'{name}: {term}' in open_ else ''}" for term, value in cells))
    console.print(table)
    if open_:
        console.print("? the times do not determine this factor; it stays near the model's own")
    before = "" if fitted.error_before_percent is None else f"{fitted.error_before_percent:.1f} % before, "
    console.print(
        f"error of predicted times (rms over {counted(fitted.rows, 'point')}): {before}"
        f"{fitted.error_after_percent:.1f} % after, fitted to {counted(fitted.points, 'point')} of "
        f"{counted(fitted.kernels, 'compiled kernel')}"
    )
    for note in fitted.notes:
        console.print(note)
    console.print(f"written to {output}")
