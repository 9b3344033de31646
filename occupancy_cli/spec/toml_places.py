"""Where each key of a TOML text stands: the standard reader gives values and no lines.

    toml_places('[tool.x]\\ngpus = ["h200"]')     {("tool", "x"): (1, 1), ("tool", "x", "gpus"): (2, 1), ...}

For a text that the standard reader has read without an error. Keys of inline tables are not told apart from the key
that the table is the value of; items of arrays are.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

from occupancy_cli.yaml_reader import KeyPath

_LINE_END = re.compile(r"\n")
_KEY = re.compile(r"""\s*(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<literal>[^']*)')\s*""")
_STRING = re.compile(r"""\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*'""", re.DOTALL)
_MARK = re.compile(rf"(?P<part>{_STRING.pattern}|[A-Za-z0-9_-]+)|(?P<dot>\.)|(?P<blank>[ \t]+)|.", re.DOTALL)
Places = dict[KeyPath, tuple[int, int]]


def toml_places(text: str) -> Places:
    """The line and column, from 1, of every table's header, of every key and of every item of its array."""
    found: Places = {}
    starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def place(at: int) -> tuple[int, int]:
        line = bisect.bisect_right(starts, at)
        return line, at - starts[line - 1] + 1

    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    at = 0
    while at < len(text):
        start = _past_space(text, at)
        if start >= len(text):
            break
        if text[start] == "[":
            several = text.startswith("[[", start)
            keys, end = _keys(text, start + 1 + several)
            table = keys
            if several:
                index = counts.get(keys, 0)
                counts[keys] = index + 1
                table = (*keys, index)
            found[table] = place(start)
            at = _line_end(text, end)
            continue
        keys, end = _keys(text, start)
        if not keys:
            at = _line_end(text, start)
            continue
        found[table + keys] = place(start)
        at = _past_space(text, end + 1)
        items, at = _value(text, at)
        for index, item in enumerate(items):
            found[table + keys + (index,)] = place(item)
    return found


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _past_space(text: str, at: int) -> int:
    """The first place from `at` on that is no space, line end or comment."""
    while at < len(text):
        if text[at] == "#":
            at = _line_end(text, at)
        elif text[at].isspace():
            at += 1
        else:
            break
    return at


def _keys(text: str, at: int) -> tuple[KeyPath, int]:
    """A dotted key, and the place after it."""
    keys: list[str] = []
    while (match := _KEY.match(text, at)) is not None:
        keys.append(next(part for part in match.groups() if part is not None))
        at = match.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(keys), at


def _value(text: str, at: int) -> tuple[list[int], int]:
    """The places of the items of an array (none for another value), and the place after the value."""
    items: list[int] = []
    is_array = text[at : at + 1] == "["
    depth, wants_item = 0, False
    for kind, start in _tokens(text, at):
        if kind == "end" and depth <= 0:
            return items, start
        if is_array and depth == 1 and wants_item and kind not in ("close", "comma", "end"):
            items.append(start)
            wants_item = False
        if kind == "open":
            depth += 1
            wants_item = wants_item or depth == 1
        elif kind == "close":
            depth -= 1
        elif kind == "comma" and depth == 1:
            wants_item = True
    return items, len(text)


def _tokens(text: str, at: int) -> Iterator[tuple[str, int]]:
    while at < len(text):
        character = text[at]
        if character == "#":
            end = text.find("\n", at)
            at = end if end >= 0 else len(text)
        elif (string := _STRING.match(text, at)) is not None:
            yield "string", at
            at = string.end()
        else:
            kind = {"[": "open", "{": "open", "]": "close", "}": "close", ",": "comma", "\n": "end"}.get(character)
            if kind is not None or not character.isspace():
                yield kind or "other", at
            at += 1


def line_of_long_key(text: str, most_parts: int) -> int | None:
    """The line of the first dotted key of more than `most_parts` parts, in any text; None where there is none."""
    parts, wants_part = 0, True
    for mark in _MARK.finditer(text):
        if mark["part"] is not None:
            parts = parts + 1 if wants_part else 1
            wants_part = False
            if parts > most_parts:
                return text.count("\n", 0, mark.start()) + 1
        elif mark["dot"] is not None and parts:
            wants_part = True
        elif mark["blank"] is None:
            parts, wants_part = 0, True
    return None
