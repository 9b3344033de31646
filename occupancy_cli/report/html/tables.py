"""Tables of a page or a notebook: a row's name in a header cell, numbers flush right, what is not known as a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from occupancy_cli.report.html.markup import Html, tag

_LONG = 40  # characters: such a text gets room, or its row would be as tall as a word is wide
# How a name of a Report's part reads at the head of a column.
_UNITS = (
    ("_per_thread", " per thread"),
    ("_per_sm", "/SM"),
    ("_bytes", ", bytes"),
    ("_percent", ", %"),
    ("_time_us", " time, us"),
    ("_per_s", "/s"),
)


def heading(name: str) -> str:
    """`shared_bytes` as "shared, bytes"; names of knobs and options stay as they are."""
    if name.startswith(("num_", "maxnreg")) or name != name.lower():
        return name
    for ending, unit in _UNITS:
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ").replace("ctas", "CTAs") + unit
    return name.replace("_", " ").replace("ctas", "CTAs")


def shown(value: Any) -> str:
    """A value in a cell: thousands set apart, two digits after the point, yes and no."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else f"{value:.3g}"
    return str(value)


def table(rows: Sequence[Mapping[str, Any]], caption: Any = None, *, class_: str | None = None) -> Html:
    """A table with a row of headings; columns that say nothing in any row are left out."""
    names = [n for n in (rows[0] if rows else ()) if any(row[n] not in (None, "") for row in rows)]
    numeric = {n for n in names if all(isinstance(row[n], (int, float)) or row[n] is None for row in rows)}
    head = tag("tr", [tag("th", heading(n), scope="col", class_="n" if n in numeric else None) for n in names])
    body = [tag("tr", [_cell(row[n], i == 0, n in numeric) for i, n in enumerate(names)]) for row in rows]
    return tag(
        "div",
        # Above the table and not within it: there a long one would be as wide as the columns, and be cut with them.
        tag("p", caption, class_="soft", aria_hidden="true") if caption else None,
        tag("table", tag("thead", head), tag("tbody", body), aria_label=caption or None),
        class_=f"scroll {class_}" if class_ else "scroll",
        tabindex="0",
        role="region",
        aria_label=caption or "table",
    )


def _cell(value: Any, first: bool, numeric: bool) -> Html:
    if first:
        return tag("th", shown(value), scope="row", class_="n" if numeric else None)
    text = shown(value)
    return tag("td", text, class_="n" if numeric else "t" if len(text) > _LONG else None)
