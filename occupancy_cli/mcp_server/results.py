"""A Report short enough for a context: the first rows of each list, and what was left out, by name.

    short_answer(report, 12).structured
    {"exit_code": 0, "left_out": [{"at": "kernels[0].configs", "shown": 12, "of": 96}], "report": {...}}

The Report in it is of the published schema and says less, never otherwise: lists are cut, and fields that have their
default (null, empty) are not repeated. The text is what the command prints, cut at a line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from occupancy_cli.mcp_server.tools import ROWS
from occupancy_cli.report.report import Report, plain
from occupancy_cli.report.schema import PUBLISHED

WIDTH = 110
SHORT_CHARACTERS = 20_000
"""What an answer may have where the client did not say how many rows it wants: some 6,000 tokens."""
_LINES_A_ROW, _LINES_BESIDE = 3, 24
_ALWAYS = ("schema", "command", "toolchain", "gpu", "notes", "interrupted")


@dataclass(frozen=True)
class ShortAnswer:
    """What a call answers: `structured` and `text` for the client, `whole` the Report's JSON for its resource."""

    structured: dict[str, Any]
    text: str
    whole: str


def short_answer(report: Report, rows: int | None) -> ShortAnswer:
    """The answer with at most `rows` rows of each list, and as much text; None: `ROWS`, fewer where those are long."""
    most = ROWS if rows is None else rows
    structured = _structured(report, most)
    while rows is None and most > 1 and len(json.dumps(structured)) > SHORT_CHARACTERS:
        most //= 2
        structured = _structured(report, most)
    lines = _LINES_BESIDE + _LINES_A_ROW * (ROWS if rows is None else rows)
    return ShortAnswer(structured, _text(report, lines), report.to_json())


def _structured(report: Report, rows: int) -> dict[str, Any]:
    left_out: list[dict[str, Any]] = []
    short = _compact(report, "", rows, left_out)
    return {"exit_code": report.exit_code, "left_out": left_out, "report": short}


def _text(report: Report, most: int) -> str:
    lines = report.to_text(WIDTH).rstrip("\n").splitlines()
    if len(lines) <= most:
        return "\n".join(lines)
    # A check ends with its verdict.
    last = lines[-1:] if report.check is not None else []
    shown = lines[: most - len(last)]
    return "\n".join([*shown, f"[{len(lines) - len(shown) - len(last):,} more lines]", *last])


def _compact(value: Any, at: str, rows: int, left_out: list[dict[str, Any]]) -> Any:
    if dataclasses.is_dataclass(value):
        found = {}
        for field in dataclasses.fields(value):
            one, name = getattr(value, field.name), field.metadata.get("alias", field.name)
            if name == "schema" or not _is_default(field, one):
                found[name] = _compact(one, f"{at}.{name}" if at else name, rows, left_out)
        return found
    if isinstance(value, (list, tuple)):
        if len(value) > rows:
            left_out.append({"at": at, "shown": rows, "of": len(value)})
        return [_compact(one, f"{at}[{i}]", rows, left_out) for i, one in enumerate(value[:rows])]
    if isinstance(value, Mapping):
        return {str(key): _compact(one, f"{at}.{key}", rows, left_out) for key, one in value.items()}
    return plain(value)


def _is_default(field: Any, value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(value == field.default_factory())


@cache
def _published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return found


def output_schema(parts: Iterable[str]) -> dict[str, Any]:
    """The JSON Schema of `ShortAnswer.structured` for Reports that fill `parts`, its definitions taken from the
    published schema of the Report."""
    whole = _published()
    names = [*_ALWAYS, *parts]
    report = {**whole, "properties": {n: whole["properties"][n] for n in names}}
    parts_of = report.pop("$defs")
    row = {"at": {"type": "string"}, "shown": {"type": "integer"}, "of": {"type": "integer"}}
    properties = {
        "report_uri": {"type": "string", "description": "the resource that has the whole Report"},
        "exit_code": {"type": "integer", "description": "0 done or holds, 1 something is violated, 2 undecided"},
        "left_out": {
            "type": "array",
            "description": "lists that were cut: where, how many rows are shown, and of how many",
            "items": {"type": "object", "properties": row, "required": list(row)},
        },
        "report": {"$ref": "#/$defs/Report"},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": ["report_uri", "exit_code", "left_out", "report"],
        "$defs": {"Report": report, **{n: parts_of[n] for n in sorted(_reached(report, parts_of))}},
    }


def _reached(schema: Any, parts_of: Mapping[str, Any]) -> set[str]:
    """The definitions that a schema refers to, through others too."""
    found: set[str] = set()
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            name = str(one.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                todo.append(parts_of[name])
        if isinstance(one, (Mapping, list)):
            todo += one.values() if isinstance(one, Mapping) else one
    return found
