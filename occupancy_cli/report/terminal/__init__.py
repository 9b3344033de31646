"""Reports as text for people: one module a matter, each with `lines(report, console, view)`.

What they print is what a terminal of any width, a file and a CI log may safely be given: the Report is made visible
(`report.visible_report`) before any of them sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.view import WHOLE, View
from occupancy_cli.report.visible_report import visible_part

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report

# A field of the Report -> the module that prints it, in the order of printing.
_MODULES = {
    "capture": "captured",
    "kernels": "kernels",
    "recommendations": "choices",
    "emitted": "emitted_file",
    "sweep": "sweep",
    "single_setting": "choices",
    "tables": "tables",
    "findings": "findings",
    "fit": "fitting",
    "diffs": "diffing",
    "calculation": "calculation",
    "gpus": "gpu_facts",
    "devices": "devices",
    "measured_gpu": "measured_gpu",
    "verification": "verification",
    "knobs": "knobs",
    "skeleton": "skeleton",
    "audit": "audit",
    "measurement": "measured",
    "calibration": "measured",
    "comparison": "measured",
    "cache": "installation",
    "installation": "installation",
}


def render(report: Report, console: Console, view: View = WHOLE) -> None:
    """Print a Report. Lines fold at the width of a terminal, and nowhere else."""
    for line in renderables(report, console, view):
        console.print(line)


def renderables(report: Report, console: Console, view: View = WHOLE) -> Iterator[RenderableType]:
    """What `render` prints, piece by piece."""
    yield from _lines(visible_part(report), console, view)


def _lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    for name in dict.fromkeys(m for f, m in _MODULES.items() if _is_there(report, f)):
        yield from import_module(f"{__name__}.{name}").lines(report, console, view)
    if report.gpu is not None and report.calculation is None:
        yield from (Text(f"note: {n}", style="yellow") for n in report.gpu.notes)
        if report.gpu.assumed:
            yield Text(f"note: assumed for this GPU: {', '.join(report.gpu.assumed)}", style="yellow")
    yield from (Text(f"note: {n}", style="yellow") for n in report.notes)
    if report.check is not None:
        from occupancy_cli.report.check_summary import last_line, left_out

        yield from (Text(line, style="dim") for line in left_out(report))
        yield Text(last_line(report), style="bold")
    if report.interrupted:
        yield Text("interrupted: what was done by then is above", style="bold yellow")


def _is_there(report: Report, field: str) -> bool:
    value = getattr(report, field)
    if field == "single_setting" and report.sweep:
        return False  # the sweep says it in its own words
    return value is not None if field == "devices" else value not in (None, [])
