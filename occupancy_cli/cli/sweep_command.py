"""`occupancy sweep`: predicted time over batch."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import DEFAULT_GPU

if TYPE_CHECKING:
    from occupancy_cli.answers.sweep import AnchorPoint


class SweepFormat(str, enum.Enum):
    """How a sweep is printed."""

    plot = "plot"
    table = "table"
    csv = "csv"
    json = "json"


def sweep(
    kernel: options.KernelArgument = None,
    batch: Annotated[str, typer.Option("--batch", help="Batches: 1:128, 8:128:8 or 48,64,80.")] = "8:128:8",
    gpu: options.GpuOption = DEFAULT_GPU,
    sets: options.SetOption = None,
    lengths: options.LengthsOption = None,
    cold: options.ColdOption = False,
    anchor: Annotated[
        str | None,
        typer.Option("--anchor", metavar="batch=N,ms=T", help="A measured time of what is set now: scales all others."),
    ] = None,
    output_format: Annotated[
        SweepFormat, typer.Option("--format", help="plot, table, csv or json.")
    ] = SweepFormat.plot,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    executor: options.ExecutorOption = "local",
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Predicted time, waves and CTAs per SM over batch: of what is set now, of the one best setting, of each best.

    Times are of this kernel and those that follow it, one launch each. With --anchor they are scaled so that what is
    set now takes the time that you measured.
    """
    from occupancy_cli.answers.sweep import sweep as run
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.spec.settings import parse_settings

    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel)
    workload = options.workload_of(batch, None, lengths, cold)
    point = None if anchor is None else _anchor(anchor)
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor=executor
    ) as service:
        report = run(given, profile, service, parse_settings(sets or []), workload, point)
    if output_format is SweepFormat.csv:
        from occupancy_cli.report.sweep_plot import as_csv

        typer.echo(as_csv(report), nl=False)
    elif output_format is SweepFormat.json:
        options.print_report(report, Format.json)
    else:
        from occupancy_cli.cli.console import make_console
        from occupancy_cli.report.sweep_plot import render

        render(report, make_console(), plot=output_format is SweepFormat.plot)
    if report.interrupted:
        raise typer.Exit(130)


def _anchor(text: str) -> AnchorPoint:
    from occupancy_cli.answers.sweep import AnchorPoint

    match = re.fullmatch(r"batch=(\d{1,9}),ms=(\d+(?:\.\d+)?)", text.replace(" ", ""))
    if match is None or float(match[2]) <= 0:
        raise InputError(f"{text!r} is no anchor", where="--anchor", hint="Write --anchor batch=80,ms=51.2.")
    return AnchorPoint(int(match[1]), float(match[2]))
