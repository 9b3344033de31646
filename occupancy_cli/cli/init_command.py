"""`occupancy init`: a commented spec of a kernel, drawn up from its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show


def init(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="file.py:kernel or package.module:kernel.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: KERNEL.yaml; -: standard output."),
    ] = None,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Write a commented spec of a kernel, with what its source says and marked places for what it does not.

    The source is read, not imported. No file is overwritten. Look over what is marked guess, then analyze it.
    """
    from occupancy_cli.answers.init import write_spec

    show(write_spec(kernel, output), output_format)
