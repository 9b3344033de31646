"""The one place where text becomes HTML: tags are put together here, and whatever is no tag is escaped.

    >>> str(tag("td", "<b>", title='"x"'))
    '<td title="&quot;x&quot;">&lt;b&gt;</td>'

A text cannot become markup by any way but `Html`, which only this module and the SVG of the chart library make.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

from occupancy_cli.report.visible_text import visible_lines

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_VOID = frozenset({"meta", "br", "link", "hr", "img", "col"})


@dataclass(frozen=True)
class Html:
    """Text that is markup already."""

    text: str

    def __str__(self) -> str:
        return self.text


def escaped(value: Any) -> str:
    """Text, as it stands between tags or in an attribute; nothing in it steers a terminal that prints the page."""
    return value.text if isinstance(value, Html) else escape(visible_lines(str(value)), quote=True)


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. `class_` is the attribute class, `data_x` data-x; one that is None or False is left out."""
    if not _NAME.fullmatch(name):
        raise ValueError(name)
    parts = [name]
    for given, value in attributes.items():
        attribute = given.rstrip("_").replace("_", "-")
        if not _NAME.fullmatch(attribute) or attribute.startswith("on"):
            raise ValueError(attribute)
        if value is not None and value is not False:
            parts.append(
                attribute if value is True else f'{attribute}="{escape(visible_lines(str(value)), quote=True)}"'
            )
    opened = f"<{' '.join(parts)}>"
    return Html(opened if name in _VOID else f"{opened}{joined(*children)}</{name}>")


def joined(*children: Any) -> Html:
    """Elements and texts, one after the other; lists among them too."""
    parts = []
    for child in children:
        if isinstance(child, (list, tuple)):
            parts.append(joined(*child).text)
        elif child is not None:
            parts.append(escaped(child))
    return Html("".join(parts))
