"""`occupancy recommend`: what to set, for one batch or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format
from occupancy_cli.gpu.profiles import DEFAULT_GPU
from occupancy_cli.report.emit import Emit, emitted


def recommend(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Requests: 80, or several: 48,64,80 or 1:128. Left out: the spec's.")
    ] = None,
    gpu: options.GpuOption = DEFAULT_GPU,
    sets: options.SetOption = None,
    mix: options.MixOption = None,
    lengths: options.LengthsOption = None,
    cold: options.ColdOption = False,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Measured factors on the model's terms: what `calibrate` wrote."),
    ] = None,
    emit: Annotated[
        Emit | None,
        typer.Option(
            "--emit",
            help="Print only this: exports, configs (triton.Config list without those that cannot launch), "
            "prune (an early_config_prune), table (batch -> setting as JSON), function (the same as Python).",
        ),
    ] = None,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    executor: options.ExecutorOption = "local",
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """The knobs and config with the shortest predicted time, beside what is set now, and why.

    What is set now: the spec's defaults, or the environment variables that set its knobs. A knob given by --set keeps
    that value. For several batches the best of each, and the best single setting for all.
    """
    from occupancy_cli.answers.recommend import recommend as run
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.spec.settings import Setting, parse_settings

    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel)
    workload = options.workload_of(batch, mix, lengths, cold)
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor=executor
    ) as service:
        if calibration is not None:
            from occupancy_cli.answers.calibrate import calibration_for

            factors = calibration_for(calibration, given, profile, service.triton, cold=cold)
            workload = replace(workload, calibration=factors)
        if options.has_tables(given):
            values = parse_settings(sets or [])
            if batch is not None:
                values["batch"] = Setting(options.batch_values(batch), "--batch")
            report = options.tables_report("recommend", context, given, gpu, hw_profiles, service, values)
        else:
            report = run(given, profile, service, parse_settings(sets or []), workload)
    if emit is not None:
        typer.echo(emitted(emit, report), nl=False)
    else:
        options.print_report(report, output_format)
    if report.interrupted:
        raise typer.Exit(130)
