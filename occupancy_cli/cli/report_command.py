"""`occupancy report`: one kernel or several as a page: does it fit, how full, what to set, and why, with pictures."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end, show
from occupancy_cli.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report


class PageFormat(str, enum.Enum):
    """What is written."""

    html = "html"
    json = "json"


@compiles
def report(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KERNEL]...", help="Specs or kernels. Left out: the shipped sparse MLA decode."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page: one file, with nothing in it that asks for another.")
    ] = Path("report.html"),
    batch: options.BatchOption = None,
    over: Annotated[
        str, typer.Option("--sweep", help="Batches that the time is drawn over: 1:128, 8:128:8 or 48,64,80.")
    ] = "8:128:8",
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    cold: options.ColdOption = False,
    output_format: Annotated[
        PageFormat, typer.Option("--format", help="html, or json of one kernel on standard output.")
    ] = PageFormat.html,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Write a page that answers: does it fit, how full is the GPU, what to set and why, and what could be wrong.

    Charts are drawn while it is written (extra `charts`). It opens from disk, without scripts, light or dark, on a
    phone, and prints. The date in it is SOURCE_DATE_EPOCH's where that is set.
    """
    from occupancy_cli.answers.page import PageQuestion, page_report
    from occupancy_cli.plan.kernel_input import read_kernel_input

    names: list[str | None] = [*kernels] if kernels else [None]
    if output_format is PageFormat.json and len(names) > 1:
        raise InputError(f"json is of one kernel, and {len(names)} are named", where="--format json")
    if output_format is PageFormat.html:
        _can_draw(output)
    profile = options.resolve_gpu(gpu, hw_profiles)
    given = [read_kernel_input(name) for name in names]
    question = PageQuestion(options.batch_values(batch), options.batch_values(over), cold)
    with how.service() as service:
        found = [page_report(one, profile, service, options.settings(sets), question) for one in given]
    if output_format is PageFormat.json:
        show(found[0], options.Format.json)
        return
    _write(output, found)
    for one in found:
        end(one)


def _can_draw(output: Path) -> None:
    """Say what is missing before anything is compiled."""
    from importlib.util import find_spec

    if find_spec("vl_convert") is None:
        hint = "Install it: python -m pip install 'occupancy-cli[charts]'"
        raise MissingDependencyError("charts need the package `vl-convert-python`", hint=hint)
    if not output.resolve().parent.is_dir():
        raise InputError("its folder does not exist", where=f"--output {output}")


def _write(output: Path, found: list[Report]) -> None:
    from occupancy_cli.cli.made_by import made_by
    from occupancy_cli.report.html.page import render_page

    text = render_page(found, made_by())
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as bad:
        raise InputError(f"cannot be written: {bad.strerror or bad}", where=f"--output {output}") from None
    sys.stdout.write(f"{output}: {len(text.encode()):,} bytes\n")
