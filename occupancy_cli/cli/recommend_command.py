"""`occupancy recommend`: what to set, for one batch or several."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end, show


class Emit(str, enum.Enum):
    """What `--emit` prints; see `report.emit`."""

    exports = "exports"
    configs = "configs"
    prune = "prune"
    table = "table"
    function = "function"


@compiles
def recommend(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: options.BatchOption = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
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
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """The knobs and config with the shortest predicted time, beside what is set now, and why.

    What is set now: the spec's defaults, or the environment variables that set its knobs. A knob given by --set keeps
    that value. For several batches the best of each, and the best single setting for all.
    """
    from occupancy_cli.answers.by_spec import recommend_spec
    from occupancy_cli.plan.kernel_input import read_kernel_input

    target = options.asked_gpu(context, gpu, hw_profiles)
    given = read_kernel_input(kernel)
    values = options.settings_beside(sets, batch=batch, mix=mix, lengths=lengths)
    workload = options.workload_of(batch, mix, lengths, cold)
    with how.service() as service:
        report = recommend_spec(given, target, service, values, workload, calibration)
    if emit is None:
        show(report, output_format)
        return
    from occupancy_cli.report.emit import emitted

    sys.stdout.write(emitted(emit.value, report))
    end(report)
