"""`init`: a commented spec of a kernel, drawn up from its source and written where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

from occupancy_cli.answers.spec_skeleton import write_skeleton
from occupancy_cli.errors import InputError
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.report.source_parts import Skeleton
from occupancy_cli.source.source_files import split_reference
from occupancy_cli.source.source_knobs import locate
from occupancy_cli.version import VERSION


def write_spec(kernel: str, output: Path | None) -> Report:
    """A Report with the spec of `kernel`, written to `output` (None: KERNEL.yaml here; `-`: to no file).

    No file is overwritten: an `InputError` then, or where the file cannot be written.
    """
    path, name = locate(kernel)
    place, _ = split_reference(kernel)
    is_file = Path(place).expanduser().exists()
    to_stdout = output is not None and str(output) == "-"
    folder = Path.cwd() if output is None or to_stdout else output.parent

    def reference(found: str) -> str:
        """The kernel as the spec names it: a file relative to the spec's folder where it lies in it."""
        if not is_file:
            return f"{place}:{found}"
        near = os.path.relpath(path.resolve(), folder.resolve())
        try:
            near.encode()
        except UnicodeEncodeError:
            hint = "Rename it, or analyze it without a spec."
            problem = "its name is not UTF-8 text, as a spec is"
            raise InputError(problem, where=str(path), hint=hint) from None
        return f"{path.resolve() if near.startswith(os.pardir) else near}:{found}"

    skeleton = write_skeleton(path, name, reference)
    target = None if to_stdout else output or Path(f"{skeleton.name}.yaml")
    if target is not None:
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(skeleton.text)
        except FileExistsError:
            raise InputError("exists already", where=str(target), hint="Name another file with -o.") from None
        except OSError as failed:
            raise InputError(f"cannot be written: {failed.strerror}", where=str(target)) from failed
    return Report(
        command="init",
        toolchain=Toolchain(occupancy=VERSION),
        skeleton=Skeleton(
            path=None if target is None else str(target), text=skeleton.text, guessed=list(skeleton.guessed)
        ),
    )
