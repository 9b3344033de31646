"""`occupancy diff`: two configs, GPUs, kernels, revisions, Reports or versions of Triton beside each other."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show


@compiles
def diff(
    context: typer.Context,
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Each a config (BLOCK_T=16), a GPU (h200), a kernel (spec.yaml, file.py:kernel), or a saved Report "
            "(before.json). With --rev or --triton: one kernel.",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="The kernel, where the sides do not name it. Default: as explain's.")
    ] = None,
    rev: Annotated[
        str, typer.Option("--rev", metavar="REV[,REV]", help="Revisions of git to compare; one: with the files now.")
    ] = "",
    triton: Annotated[
        str,
        typer.Option(
            "--triton",
            metavar="A,B",
            help="Versions of Triton (got by pip once and kept), or paths of environments; one: with that installed.",
        ),
    ] = "",
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE,...", help="Only configs with these values. Repeatable."),
    ] = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Resources, limits, predicted time and each buffer of two sides, with the source lines that make the difference.

    Exit code 0 whether they differ or not, 2 when a side cannot be had.
    """
    from occupancy_cli.answers.diff_sides import Asked
    from occupancy_cli.answers.diff_sides import diff as run

    flags = [("--config", c) for c in configs or ()] + [("--set", s) for s in sets or ()]
    flags += [("--arg", a) for a in arguments or ()] + [("--hw-profiles", str(f)) for f in hw_profiles or ()]
    flags += [("--gpu", gpu), *([("--grid", grid)] if grid is not None else [])]
    flags += [("--timeout", str(how.timeout)), ("--memory-gb", str(how.memory_gb))]
    flags += [("--jobs", str(how.jobs))] if how.jobs is not None else []
    command_line = [part for flag in flags for part in flag] + (["--no-cache"] if how.no_cache else [])
    asked = Asked(
        kernel,
        options.asked_gpu(context, gpu, hw_profiles),
        options.settings(sets),
        tuple(configs or ()),
        tuple(arguments or ()),
        grid,
        tuple(command_line),
    )
    with how.service() as service:
        report = run(sides or (), asked, service, rev, triton)
    show(report, output_format)
