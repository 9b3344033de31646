"""What a notebook shows of a Report: its headline, its table, and what a reader should know, in the notebook's colours.

A command without a table shows what it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_cli.errors import OccupancyError
from occupancy_cli.report.flat_rows import rows_of
from occupancy_cli.report.html.markup import Html, tag
from occupancy_cli.report.html.tables import table
from occupancy_cli.report.terminal.text import headline
from occupancy_cli.report.visible_report import visible_part

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report

_MOST_ROWS = 60
_STYLE = Html(
    "<style>.occupancy .scroll{overflow-x:auto}.occupancy table{border-collapse:collapse;font-variant-numeric:"
    "tabular-nums}.occupancy th,.occupancy td{padding:.15em .6em;text-align:left;border-bottom:1px solid #8884}"
    ".occupancy .n{text-align:right}.occupancy .scroll p{font-weight:600;margin:.3em 0}</style>"
)


def fragment(report: Report) -> Html:
    """A fragment of HTML, with a style of its own."""
    report = visible_part(report)
    try:
        rows = rows_of(report)
    except OccupancyError:
        return tag("pre", report.to_text())
    names = list(dict.fromkeys(kernel.name for kernel in report.kernels)) or [report.command]
    notes = [*report.notes, *(n for kernel in report.kernels for n in (*kernel.not_read, *kernel.observations))]
    if len(rows) > _MOST_ROWS:
        notes.insert(0, f"{len(rows) - _MOST_ROWS:,} of {len(rows):,} rows are not shown: to_pandas() has all")
    return tag(
        "div",
        _STYLE,
        table(rows[:_MOST_ROWS], headline(", ".join(names), report.gpu, report.toolchain)),
        tag("ul", [tag("li", note) for note in notes]) if notes else None,
        class_="occupancy",
    )
