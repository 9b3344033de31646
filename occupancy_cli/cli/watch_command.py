"""`occupancy watch`: a kernel compiled again whenever it is saved, and what that changed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import print_report
from occupancy_cli.errors import OccupancyError
from occupancy_cli.report.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report


@compiles
def watch(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sets the shape `batch`.")] = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    arguments: options.ArgOption = None,
    grid: options.GridOption = None,
    every: Annotated[float, typer.Option("--every", min=0.05, max=60, help="Seconds between two looks.")] = 0.3,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """What `analyze` says, then whenever the kernel or a file beside it is saved what that changed, config by config.

    Only what changed is compiled. What does not compile is said, and the next save is compared with the last that did.
    Ctrl-C ends it.
    """
    from occupancy_cli.answers.by_spec import analyze_spec
    from occupancy_cli.answers.watch import difference, watched
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.report.terminal.watching import change_lines

    target = options.asked_gpu(context, gpu, hw_profiles)
    values = options.settings(sets, batch)

    def looked() -> Report:
        given = read_kernel_input(kernel, arguments or [], grid)
        with how.service() as service:
            found = analyze_spec(given, [target], service, values, timed=True)
        if found.interrupted:
            raise KeyboardInterrupt
        return replace(found, command="watch")

    files = watched(read_kernel_input(kernel, arguments or [], grid))
    count = len(files.changed())
    last = looked()
    print_report(last, options.Format.table)
    _say(f"watching {count} files in {', '.join(str(f) for f in files.folders)}; Ctrl-C ends")
    while True:
        time.sleep(every)
        changed = files.changed()
        if not changed:
            continue
        _say(f"{time.strftime('%H:%M:%S')} {', '.join(path.name for path in changed)}")
        try:
            now = looked()
            lines = [str(line) for line in change_lines(difference(last, now))]
        except OccupancyError as bad:
            typer.echo(f"  {visible_lines(str(bad))}")
            continue
        for line in lines:
            typer.echo(f"  {line}")
        if all(config.status != "failed" for each in now.kernels for config in each.configs):
            last = now
        else:
            reasons = dict.fromkeys(c.reason for each in now.kernels for c in each.configs if c.status == "failed")
            for reason in reasons:
                typer.echo(f"  {visible(reason)}")


def _say(text: str) -> None:
    typer.echo(visible(text))
