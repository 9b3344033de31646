"""`occupancy analyze`: what each config of a kernel takes, whether it fits, and how its launch fills the GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format
from occupancy_cli.gpu.profiles import DEFAULT_GPU


def analyze(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="Sets the shape `batch`: 80, or 48,64,80, or 1:128."),
    ] = None,
    gpu: options.GpuOption = DEFAULT_GPU,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Compile configs over the cap to the end too."),
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Predict the time of each launch too (needs `work` in the spec).")
    ] = False,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    executor: options.ExecutorOption = "local",
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Shared memory, registers, spills, CTAs and warps per SM, waves: a row for each config, compiled for the GPU.

    Configs that cannot launch have rows of their own, with by how much and what happens at run time. Exit code 2 when
    a config did not compile, 0 otherwise.
    """
    from occupancy_cli.answers.analyze import analyze as run
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.spec.settings import Setting, parse_settings

    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel, arguments or [], grid)
    values = parse_settings(sets or [])
    if batch is not None:
        values["batch"] = Setting(options.batch_values(batch), "--batch")
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor=executor
    ) as service:
        if options.has_tables(given):
            report = options.tables_report("analyze", context, given, gpu, hw_profiles, service, values)
        else:
            report = run(given, profile, service, values, full=full, timed=time)
    options.print_report(report, output_format)
    if report.interrupted:
        raise typer.Exit(130)
    statuses = [c.status for k in report.kernels for c in k.configs] + [
        e.status for t in report.tables for e in t.entries
    ]
    if "failed" in statuses:
        raise typer.Exit(2)
