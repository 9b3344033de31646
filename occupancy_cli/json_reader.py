"""JSON that strangers wrote, read within fixed bounds: what lies beyond them is refused before it is parsed.

    parse_json(read_text(path), str(path))                 # plain mappings, lists and scalars
    for number, line in lines_of(path): parse_json(line, f"{path}:{number}")

A parser's memory goes with the number of values rather than of bytes: `[],[],` takes twenty times what it is written
in. So values are counted first, by the marks that stand before each (those inside texts too: the bound is a coarse
one), and the text is parsed only then. Nesting needs no count: the parser refuses it by Python's own limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from occupancy_cli.errors import InputError
from occupancy_cli.yaml_reader import find_file

MAX_BYTES = 16_000_000
"""Of one document. A Report of a thousand configs has three million."""
MAX_VALUES = 600_000
MAX_LINE_BYTES = 1_000_000
MAX_LINES_BYTES = 256_000_000
"""Of all lines of a file that is read by lines, unpacked."""


def read_text(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """The text of a file; `InputError` for none, for one beyond `most_bytes`, and for what is not UTF-8."""
    find_file(path)
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise InputError(f"{size:,} bytes; at most {most_bytes:,} are read", where=str(path))
        return path.read_text(encoding="utf-8")
    except OSError as bad:
        raise InputError(f"cannot be read: {bad.strerror or bad}", where=str(path)) from None
    except UnicodeDecodeError as bad:
        raise InputError(f"is not UTF-8 text (byte {bad.start})", where=str(path)) from None


def refuse_too_many_values(text: str, where: str) -> None:
    """`InputError` for a JSON text of more than `MAX_VALUES` values."""
    values = text.count(",") + text.count("[") + text.count("{")
    if values > MAX_VALUES:
        raise InputError(f"has about {values:,} values; at most {MAX_VALUES:,} are read", where=where)


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text within the bounds; `InputError` with `where`, and the line, of what is none."""
    refuse_too_many_values(text, where)
    try:
        return json.loads(text)
    except json.JSONDecodeError as bad:
        at = f"{where}:{bad.lineno}" if "\n" in text else where
        raise InputError(f"is no JSON: {bad.msg} (column {bad.colno})", where=at) from None
    except RecursionError:
        raise InputError("is no JSON that can be read: nested too deep", where=where) from None
    except ValueError as bad:  # an integer of thousands of digits
        raise InputError(f"is no JSON that can be read: {bad}", where=where) from None


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file (gzip's, if its name ends in .gz) with their numbers from 1, without line ends.

    They are read one at a time: a line beyond the bound costs its first bytes. `InputError` as `read_text` raises.
    """
    import gzip  # when times are read alone
    import zlib

    find_file(path)
    try:
        # A closed file and an unpacked one are both what `with` ends.
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from _numbered(file, str(path))  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as bad:
        said = getattr(bad, "strerror", None) or bad
        raise InputError(f"cannot be read: {said}", where=str(path)) from None


def _numbered(file: BinaryIO, path: str) -> Iterator[tuple[int, str]]:
    number = size = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        size += len(line)
        where = f"{path}:{number}"
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"a line of more than {MAX_LINE_BYTES:,} bytes", where=where)
        if size > MAX_LINES_BYTES:
            raise InputError(f"more than {MAX_LINES_BYTES:,} bytes", where=where)
        try:
            yield number, line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as bad:
            raise InputError(f"is not UTF-8 text (byte {bad.start} of the line)", where=where) from None
