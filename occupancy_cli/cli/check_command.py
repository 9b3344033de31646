"""`occupancy check`: a gate for CI. Do the configs that are used fit, on every GPU named?"""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import show


@compiles
def check(
    specs: Annotated[
        list[str] | None, typer.Argument(metavar="[SPEC]...", help="Spec files. Left out: the shipped kernels' specs.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="GPUs that must fit; repeatable. Default: those of the spec.")
    ] = None,
    sets: options.SetOption = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Check the shared-memory cap, and the budgets of each spec, for every config that it declares to be used.

    Exit code 0: everything holds. 1: something does not. 2: something could not be decided (a config that does not
    compile, a limit that is only assumed).
    """
    from occupancy_cli.answers.by_spec import AskedGpu, check_specs
    from occupancy_cli.plan.kernel_input import read_kernel_input, shipped_specs

    given = [read_kernel_input(s) for s in specs or [str(p) for p in shipped_specs()]]
    default = AskedGpu(options.DEFAULT_GPU, asked=False, folders=tuple(hw_profiles or ()))
    with how.service() as service:
        report = check_specs(given, gpu or [], default, service, options.settings(sets))
    show(report, output_format)
