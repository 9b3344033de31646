"""`occupancy plot`: one chart of the report as a file for a paper or a pull request."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.report_command import SWEPT
from occupancy_cli.errors import InputError

FORMS = (".svg", ".png", ".pdf")


class Picture(str, enum.Enum):
    """What is drawn."""

    limits = "limits"
    map = "map"
    waves = "waves"
    roofline = "roofline"
    sweep = "sweep"
    surface = "surface"


@compiles
def plot(
    picture: Annotated[
        Picture,
        typer.Argument(
            help="limits: what of an SM each config takes; map: shared memory by address over the program; waves: "
            "slots over a launch; roofline: what an iteration takes of each unit; sweep: time over batch; surface: "
            "time over splits and batch.",
        ),
    ],
    kernel: options.KernelArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="A file of .svg, .png or .pdf.")] = Path("plot.svg"),
    batch: options.BatchOption = None,
    over: Annotated[str, typer.Option("--sweep", help="Batches of sweep and surface: 1:128 or 48,64,80.")] = SWEPT,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    cold: options.ColdOption = False,
    width: Annotated[int, typer.Option("--width", min=300, max=3000, help="Pixels.")] = 720,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Draw one chart (extra `charts`): the same as in `occupancy report`, on white, with labelled axes.

    Colours are told apart with any colour vision. What the chart says in words is printed.
    """
    from occupancy_cli.answers.plot import drawing
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.report.html.vega import can_draw  # fmt: skip
    from occupancy_cli.report.html.vega import picture as drawn

    if output.suffix.casefold() not in FORMS:
        raise InputError(
            f"{output.suffix or 'no ending'!r} is no form of a picture",
            where=f"--output {output}",
            hint=f"Name a file of {', '.join(FORMS)}.",
        )
    if not output.resolve().parent.is_dir():
        raise InputError("its folder does not exist", where=f"--output {output}")
    can_draw()
    profile = options.resolve_gpu(gpu, hw_profiles)
    given = read_kernel_input(kernel)
    asked = options.batch_values(batch)
    with how.service() as service:
        chart = drawing(
            picture.value, given, profile, service, options.settings(sets), asked, options.batch_values(over), cold
        )
    made = drawn(chart.draw(width), output.suffix.casefold()[1:], chart.title, chart.of, chart.says)
    try:
        output.write_bytes(made)
    except OSError as bad:
        raise InputError(f"cannot be written: {bad.strerror or bad}", where=f"--output {output}") from None
    sys.stdout.write(f"{output}: {chart.title}: {chart.of}. {chart.says}\n")
