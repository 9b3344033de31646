"""`occupancy gpus`: the GPUs that have a profile, one of them with its sources, and those of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show
from occupancy_cli.errors import InputError


def gpus(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[show] [NAME]...", help="Show these GPUs with sources; none: list all."),
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="Read this machine's GPUs and compare them with their profiles.")
    ] = False,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """List the known GPUs, show one with the source of every value, or check this machine's against their profiles.

    A value marked * is assumed (no source that can be opened states it), one marked ? is disputed between sources.
    --detect exits with 1 when a device and its profile differ, and with 2 when there is no device or no profile.
    """
    from occupancy_cli.answers.gpus import known_gpus, machine_gpus
    from occupancy_cli.report.view import View

    folders = hw_profiles or []
    if detect and names:
        raise InputError("--detect takes no names", where="gpus", hint="occupancy gpus --detect")
    wanted = [name for i, name in enumerate(names) if (i, name) != (0, "show")] if names else None
    report = machine_gpus(folders) if detect else known_gpus(wanted, folders)
    show(report, output_format, View(everything=wanted is not None))
