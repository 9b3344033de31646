"""`occupancy check`: a gate for CI. Do the configs that are used fit, on every GPU named?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format
from occupancy_cli.gpu.profiles import DEFAULT_GPU

if TYPE_CHECKING:
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.plan.kernel_input import KernelInput


def check(
    specs: Annotated[
        list[str] | None, typer.Argument(metavar="[SPEC]...", help="Spec files. Left out: the shipped kernels' specs.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="GPUs that must fit; repeatable. Default: those of the spec.")
    ] = None,
    sets: options.SetOption = None,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    executor: options.ExecutorOption = "local",
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Check the shared-memory cap, and the budgets of each spec, for every config that it declares to be used.

    Exit code 0: everything holds. 1: something does not. 2: something could not be decided (a config that does not
    compile, a limit that is only assumed).
    """
    from occupancy_cli.answers.check import check as run
    from occupancy_cli.answers.check import exit_code
    from occupancy_cli.plan.kernel_input import read_kernel_input, shipped_specs
    from occupancy_cli.spec.settings import parse_settings

    given = [read_kernel_input(s) for s in specs or [str(p) for p in shipped_specs()]]

    def gpus_of(one: KernelInput) -> list[GpuProfile]:
        """Those asked for, or the spec's; for config tables none, which means the GPU that each file names."""
        default = [] if options.has_tables(one) else [DEFAULT_GPU]
        return [options.resolve_gpu(name, hw_profiles) for name in gpu or one.spec.check.gpus or default]

    kernels = [(one, gpus_of(one)) for one in given]
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor=executor
    ) as service:
        report = run(kernels, service, parse_settings(sets or []), lambda name: options.resolve_gpu(name, hw_profiles))
    options.print_report(report, output_format)
    raise typer.Exit(130 if report.interrupted else exit_code(report))
