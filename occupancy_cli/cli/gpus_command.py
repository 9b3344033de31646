"""`occupancy gpus`: the GPUs that have a profile, one of them with its sources, and those of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options, progress
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
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the constants of this machine's GPU, about a minute: see -o.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The profile that --measure writes.")
    ] = None,
    gpu: options.LocalGpuOption = "local",
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """List the known GPUs, show one with the source of every value, or check or measure this machine's.

    A value marked * is assumed (no source that can be opened states it), one marked ? is disputed between sources.
    --detect exits with 1 when a device and its profile differ, and with 2 when there is no device or no profile.
    --measure writes a profile that extends the known one by what it timed (bandwidths, latencies, rates, launches), for
    `--gpu FILE`. It sets no clock, and refuses where others use the GPU or the clock wanders.
    """
    from occupancy_cli.answers.gpus import known_gpus, machine_gpus
    from occupancy_cli.report.view import View

    folders = hw_profiles or []
    for option, given in (("--detect", detect), ("--measure", measure)):
        if given and names:
            raise InputError(f"{option} takes no names", where="gpus", hint=f"occupancy gpus {option}")
    if measure:
        _measure(gpu, output, folders, output_format, detect=detect)
        return
    if output is not None:
        raise InputError("-o goes with --measure", where="gpus", hint="occupancy gpus --measure -o my-gpu.yaml")
    wanted = [name for i, name in enumerate(names) if (i, name) != (0, "show")] if names else None
    report = machine_gpus(folders) if detect else known_gpus(wanted, folders)
    show(report, output_format, View(everything=wanted is not None))


def _measure(
    gpu: str, output: Path | None, folders: list[Path], output_format: options.Format, *, detect: bool
) -> None:
    from occupancy_cli.answers.measured_gpu import local_machine, measured_gpu

    if detect:
        raise InputError("--detect and --measure are given both", where="gpus", hint="One after the other.")
    if output is None:
        raise InputError(
            "--measure needs a file to write", where="gpus", hint="occupancy gpus --measure -o my-gpu.yaml"
        )
    index = options.local_index(gpu)
    with progress.parts("measuring") as said:
        report = measured_gpu(local_machine(index), output, folders, said)
    show(report, output_format)
