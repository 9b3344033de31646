"""`occupancy compare`: the recommendation, the default and known rules, judged by measured times."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format, counted, make_console, make_table

if TYPE_CHECKING:
    from rich.console import Console

    from occupancy_cli.answers.compare import Comparison, Regret

SCHEMA = "occupancy/compare/1"


def compare(
    times: Annotated[Path, typer.Argument(metavar="TIMES", help="A file that `occupancy measure` wrote.")],
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="The kernel, where it lies elsewhere than when it was measured.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Judge the model with this calibration too.")
    ] = None,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Regret of the recommendation, of the default and of known rules on your own measurements.

    Regret: measured time of what is chosen over the best that was measured, minus 1.
    """
    from occupancy_cli.answers.calibrate import read_calibration
    from occupancy_cli.answers.compare import compare as run
    from occupancy_cli.answers.times_file import read_times
    from occupancy_cli.plan.kernel_input import read_kernel_input

    found = read_times(times)
    profile = options.resolve_gpu(found.header.gpu, hw_profiles)
    given = read_kernel_input(kernel or found.header.kernel)
    factors = None
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor="local"
    ) as service:
        if calibration is not None:
            file = read_calibration(calibration)
            header = found.header
            file.check(gpu=profile.id, triton=service.triton, source_sha256=header.source_sha256, cold=header.cold)
            factors = file.calibration
        result = run(found, given, profile, service, factors)
    if output_format is Format.json:
        data: dict[str, Any] = {"schema": SCHEMA, **asdict(result)}
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
        return
    _print(result, make_console())


def _print(result: Comparison, console: Console) -> None:
    console.print(
        f"{result.kernel} on {result.gpu}: {counted(result.points, 'point')}, {counted(result.configs, 'config')}, "
        f"{counted(result.cases, 'case')}"
    )
    if result.splits:
        _table(console, "Choosing the split, for each config and case", result.splits)
    _table(console, "Choosing config and knobs together, for each case", result.settings)
    shown = [m for m in result.missed if m.regret_percent >= 0.05]
    if shown:
        console.print("The model's worst choices:")
    for missed in shown:
        console.print(
            f"  {_text(missed.case)}: {_text(missed.chosen)} takes {missed.chosen_us:.1f} us, "
            f"{_text(missed.best)} {missed.best_us:.1f} us ({missed.regret_percent:.1f} %)"
        )
    for note in result.notes:
        console.print(note)


def _table(console: Console, title: str, regrets: tuple[Regret, ...]) -> None:
    table = make_table("regret of", "mean", "p90", "worst", "within 5 %", "groups", title=title, right=(1, 2, 3, 4, 5))
    for each in regrets:
        table.add_row(
            each.name,
            f"{each.mean:.1f} %",
            f"{each.p90:.1f} %",
            f"{each.worst:.1f} %",
            f"{each.within_5:.0f} %",
            f"{each.groups:,}",
        )
    console.print(table)


def _text(values: Any) -> str:
    return " ".join(f"{n}={v}" for n, v in values.items())
