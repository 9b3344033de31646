"""`occupancy explain`: where a kernel's shared memory, registers and time go."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show


@compiles
def explain(
    kernel: options.KernelArgument = None,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=VALUE,...",
            help="Only configs with these values: BLOCK_T=16,num_warps=4. Repeatable; left out: all.",
        ),
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sets the shape `batch`.")] = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compile configs over the cap to the end too: registers are then known.")
    ] = False,
    time: Annotated[bool, typer.Option("--time", help="Predict the time of each launch too.")] = False,
    others: Annotated[
        bool,
        typer.Option("--others/--no-others", help="Compile one or two configs with other num_warps and maxnreg too."),
    ] = True,
    lines: Annotated[
        bool, typer.Option("--lines", help="List the source with bytes, registers, waste and time beside each line.")
    ] = False,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Where bytes, registers and time go: each buffer of shared memory with its address, life and source line, what
    sets the peak, the lines that hold most registers, spills in loops, what num_warps and maxnreg would do, what each
    memory access takes in sectors and wavefronts against the least, with the cause, and what warps wait for, line by
    line, with the critical sequence of an iteration.

    Exit code 2 when a config did not compile, 0 otherwise.
    """
    from occupancy_cli.answers.explain import explain as run
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.report.view import View

    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel, arguments or [], grid)
    with how.service() as service:
        values = options.settings(sets, batch)
        report = run(given, profile, service, values, configs or (), full=full, timed=time, try_others=others)
    show(report, output_format, View(lines=lines))
