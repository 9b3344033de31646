"""What a notebook shows of a Report: headline, table, pictures, what a reader should know, in the notebook's colours.

The pictures are those of the page (`report.html.charts`), where the package that draws them is installed. A command
without a table shows what it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from occupancy_cli.errors import MissingDependencyError, OccupancyError
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


# The colours of the pictures, which tell on a light and on a dark page; text and lines are the notebook's own.
_COLOURS = Html(
    "<style>.occupancy{--ink:currentColor;--ground:transparent;--faint:#8888;--grid:#8883;--now:#d9822b;--use:#2b8fd0;"
    "--best:#12a37f;--binds:#d9822b;--idle:#9aa5b1}.occupancy figure{margin:.8em 0}</style>"
)
_WIDTH = 640


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
    try:
        drawn: Any = _pictures(report)
    except MissingDependencyError as missing:
        drawn, notes = [], [*notes, f"no pictures: {missing.problem}. {missing.hint}"]
    return tag(
        "div",
        _STYLE,
        table(rows[:_MOST_ROWS], headline(", ".join(names), report.gpu, report.toolchain)),
        [_COLOURS, *drawn] if drawn else None,
        tag("ul", [tag("li", note) for note in notes]) if notes else None,
        class_="occupancy",
    )


def _pictures(report: Report) -> list[Html]:
    """What the page would draw of limits, waves and time, one each; ids are of the whole notebook."""
    from occupancy_cli.report.html import charts
    from occupancy_cli.report.html.vega import svg

    made = [charts.limits_chart(kernel, number) for number, kernel in enumerate(report.kernels)]
    made += [charts.waves_chart(found) for found in report.recommendations]
    made.append(charts.time_chart(report.sweep))
    own = f"o{uuid4().hex}"
    return [
        tag("figure", tag("figcaption", c.says), svg(c.draw(_WIDTH), f"{own}-{c.name}-{i}", f"{c.title}. {c.says}"))
        for i, c in enumerate(made)
        if c is not None
    ]
