"""What a script launched, on a terminal: a row a spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The capture of a Report; nothing where nothing was written."""
    found = report.capture
    assert found is not None
    if found.folder is None:
        return
    kernels = len({spec.source for spec in found.specs})
    yield Text(
        f"{counted(found.launches, 'launch', 'launches')} of {counted(kernels, 'kernel')}: "
        f"{counted(len(found.specs), 'spec')} in {found.folder}"
    )
    table = make_table("spec", "launches", "configs", "grid", "kernel", right=(1, 2))
    for spec in found.specs:
        grid = " x ".join(str(axis) for axis in spec.grid)
        configs = f"{spec.configs:,}" + (" autotuned" if spec.tuned else "")
        table.add_row(spec.file, f"{spec.launches:,}", configs, grid, spec.source)
    yield table
    for each in found.not_launched:
        yield Text(f"not launched: {each.kernel} ({each.source}): {each.reason}", style="yellow")
    yield Text(f"What a capture cannot see is listed in {found.folder}/index.json.")
