"""`occupancy analyze`: what each config of a kernel takes, whether it fits, and how its launch fills the GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show
from occupancy_cli.errors import InputError


@compiles
def analyze(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="Sets the shape `batch`: 80, or 48,64,80, or 1:128."),
    ] = None,
    gpu: options.GpusOption = None,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    signature: options.SignatureOption = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Compile configs over the cap to the end too."),
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Predict the time of each launch too (needs `work` in the spec).")
    ] = False,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Shared memory, registers, spills, CTAs and warps per SM, waves: a row for each config, compiled for the GPU.

    Configs that cannot launch have rows of their own, with by how much and what happens at run time. Exit code 2 when
    a config did not compile, 0 otherwise.
    """
    from occupancy_cli.answers.by_spec import analyze_compiled, analyze_spec
    from occupancy_cli.plan.kernel_input import COMPILED, read_kernel_input

    targets = options.asked_gpus(context, gpu, hw_profiles)
    values = options.settings(sets, batch)
    if kernel is not None and kernel.endswith(COMPILED):
        if arguments or len(targets) > 1:
            flag = "--arg" if arguments else "a second --gpu"
            raise InputError(f"a compiled kernel takes no {flag}", where=flag, hint="It is for one launch already.")
        with how.service() as service:
            show(analyze_compiled(kernel, targets[0], service, values, grid), output_format)
        return
    given = read_kernel_input(kernel, arguments or [], grid, signature)
    with how.service() as service:
        report = analyze_spec(given, targets, service, values, full=full, timed=time)
    show(report, output_format)
