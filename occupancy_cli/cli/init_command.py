"""`occupancy init`: a commented spec of a kernel, drawn up from its source."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.errors import InputError


def init(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="file.py:kernel or package.module:kernel.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: KERNEL.yaml; -: standard output."),
    ] = None,
) -> None:
    """Write a commented spec of a kernel, with what its source says and marked places for what it does not.

    The source is read, not imported. No file is overwritten. Fill the places marked FILL:, then analyze it.
    """
    from occupancy_cli.answers.spec_skeleton import write_skeleton
    from occupancy_cli.source.source_knobs import locate

    path, name = locate(kernel)
    is_file = Path(kernel.partition(":")[0]).expanduser().exists()
    to_stdout = output is not None and str(output) == "-"
    folder = Path.cwd() if output is None or to_stdout else output.parent

    def reference(found: str) -> str:
        """The kernel as the spec names it: a file relative to the spec's folder where it lies in it."""
        if not is_file:
            return f"{kernel.partition(':')[0]}:{found}"
        near = os.path.relpath(path.resolve(), folder.resolve())
        return f"{path.resolve() if near.startswith(os.pardir) else near}:{found}"

    skeleton = write_skeleton(path, name, reference)
    if to_stdout:
        sys.stdout.write(skeleton.text)
        return
    target = output or Path(f"{skeleton.name}.yaml")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(skeleton.text)
    except FileExistsError:
        raise InputError("exists already", where=str(target), hint="Name another file with -o.") from None
    except OSError as failed:
        raise InputError(f"cannot be written: {failed.strerror}", where=str(target)) from failed
    left = len(skeleton.to_fill)
    what = "nothing is left to fill" if left == 0 else f"{left} {'place' if left == 1 else 'places'} to fill (FILL:)"
    typer.echo(f"{target}: {what}, then: occupancy analyze {target}")
