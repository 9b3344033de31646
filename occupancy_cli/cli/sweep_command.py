"""`occupancy sweep`: predicted time over batch."""

from __future__ import annotations

import enum
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end, show
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.answers.sweep import AnchorPoint


class SweepFormat(str, enum.Enum):
    """How a sweep is printed."""

    plot = "plot"
    table = "table"
    csv = "csv"
    json = "json"


@compiles
def sweep(
    kernel: options.KernelArgument = None,
    batch: Annotated[str, typer.Option("--batch", help="Batches: 1:128, 8:128:8 or 48,64,80.")] = "8:128:8",
    gpu: options.GpuOption = options.DEFAULT_GPU,
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
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Predicted time, waves and CTAs per SM over batch: of what is set now, of the one best setting, of each best.

    Times are of this kernel and those that follow it, one launch each. With --anchor they are scaled so that what is
    set now takes the time that you measured.
    """
    from occupancy_cli.answers.sweep import sweep as run
    from occupancy_cli.plan.kernel_input import read_kernel_input

    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel)
    values = options.settings_beside(sets, batch=batch)
    workload = options.workload_of(batch, None, lengths, cold)
    point = None if anchor is None else _anchor(anchor)
    with how.service() as service:
        report = run(given, profile, service, values, workload, point)
    if output_format is SweepFormat.csv:
        from occupancy_cli.report.csv_rows import as_csv

        sys.stdout.write(as_csv(report))
        end(report)
        return
    from occupancy_cli.report.view import View

    shown = options.Format.json if output_format is SweepFormat.json else options.Format.table
    show(report, shown, View(plot=output_format is SweepFormat.plot))


def _anchor(text: str) -> AnchorPoint:
    from occupancy_cli.answers.sweep import AnchorPoint

    match = re.fullmatch(r"batch=(\d{1,9}),ms=(\d+(?:\.\d+)?)", text.replace(" ", ""))
    if match is None or float(match[2]) <= 0:
        raise InputError(f"{text!r} is no anchor", where="--anchor", hint="Write --anchor batch=80,ms=51.2.")
    return AnchorPoint(int(match[1]), float(match[2]))
