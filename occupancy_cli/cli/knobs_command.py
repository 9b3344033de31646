"""`occupancy knobs`: what tunes the kernels of a file or package, read from its source."""

from __future__ import annotations

from typing import Annotated

import typer

from occupancy_cli.cli import options, progress
from occupancy_cli.cli.show import show


def knobs(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_PACKAGE",
            help="A Python file, a folder, an installed package or module (package.module), or file.py:kernel.",
        ),
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Also variables read far from any kernel, and JIT helper functions.")
    ] = False,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """List what tunes the kernels: environment variables, constexprs, autotune configs, launch options, grid, splits.

    The source is read, not imported: nothing of it runs, and what it imports need not be installed. Autotune lists are
    computed where reading suffices (environment variables at their defaults), and shown as written where not.
    """
    from occupancy_cli.answers.knobs import knobs_of
    from occupancy_cli.report.view import View

    with progress.reading_source() as show_progress:
        report, in_full = knobs_of(target, show_progress)
    show(report, output_format, View(everything=everything or in_full))
