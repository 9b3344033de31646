"""A Report for people's eyes: the same parts, with nothing in them that a terminal or a CI log would obey.

    visible_part(Kernel(name="a\\n::error::b", ...))   ->  Kernel(name="a\\\\n\\\\::error::b", ...)

A Report passes through here whole on its way to a renderer that prints text, so that none of them, nor a new part, can
forget it; what a renderer adds of its own is never at fault. JSON has escapes of its own: see `report.json_text`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from occupancy_cli.report.visible_text import visible, visible_lines

T = TypeVar("T")

# Renderers put texts at the start of a line and after words, where a line may be folded: `::` is set off at each such
# place, and a colon that begins a text, as another may follow it. `##[` and `##vso[` are obeyed wherever they stand.
_COMMAND = re.compile(r"(?:^|(?<=\s)):(?=:)|^\s*:|##(?=\[|vso\[)", re.MULTILINE)


def visible_part(part: T) -> T:
    """A part of a Report (or a whole one) with every text in it, keys of mappings too, made visible.

    Texts are put on one line each, but for fields that keep their line ends (`report.prose`). Parts in which nothing
    changes are passed on as they are.
    """
    made: T = _visible(part, _line)
    return made


def _line(text: str) -> str:
    return _COMMAND.sub(_set_off, visible(text))


def _lines(text: str) -> str:
    shown = visible_lines(text.replace("\t", "    "))
    return _COMMAND.sub(_set_off, shown)


def _set_off(found: re.Match[str]) -> str:
    return "#\\#" if found[0] == "##" else f"{found[0][:-1]}\\:"


def _visible(value: Any, of_text: Callable[[str], str]) -> Any:
    kind = type(value)
    if kind is str:
        return of_text(value)
    if kind in (int, float, bool) or value is None:
        return value
    if kind in (list, tuple):
        return kind([_visible(item, of_text) for item in value])
    if isinstance(value, Mapping):
        return {_line(str(key)): _visible(item, of_text) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        changes = {}
        for field in dataclasses.fields(kind):
            given = getattr(value, field.name)
            made = _visible(given, _lines if field.metadata.get("prose") else _line)
            if made is not given and made != given:
                changes[field.name] = made
        return dataclasses.replace(value, **changes) if changes else value
    return of_text(str(value))
