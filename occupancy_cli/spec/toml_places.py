"""Where each key of a TOML text stands: the standard reader gives values and no lines.

    toml_places('[tool.x]\\ngpus = ["h200"]')     {("tool", "x"): (1, 1), ("tool", "x", "gpus"): (2, 1), ...}

For a text that the standard reader has read without an error. Keys of inline tables are not told apart from the key
that the table is the value of; items of arrays are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from occupancy_cli.yaml_reader import KeyPath

_KEY = re.compile(r"""\s*(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<literal>[^']*)')\s*""")
_STRING = re.compile(r"""\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*'""", re.DOTALL)
Places = dict[KeyPath, tuple[int, int]]


def toml_places(text: str) -> Places:
    """The line and column, from 1, of every table's header, of every key and of every item of its array."""
    found: Places = {}
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
            found[table] = _place(text, start)
            at = _line_end(text, end)
            continue
        keys, end = _keys(text, start)
        if not keys:
            at = _line_end(text, start)
            continue
        found[table + keys] = _place(text, start)
        at = _past_space(text, end + 1)
        items, at = _value(text, at)
        for index, item in enumerate(items):
            found[table + keys + (index,)] = _place(text, item)
    return found


def _place(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


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
            at = _line_end(text, at) - 1 if "\n" in text[at:] else len(text)
        elif (string := _STRING.match(text, at)) is not None:
            yield "string", at
            at = string.end()
        else:
            kind = {"[": "open", "{": "open", "]": "close", "}": "close", ",": "comma", "\n": "end"}.get(character)
            if kind is not None or not character.isspace():
                yield kind or "other", at
            at += 1
