"""Config tables as serving engines ship them: JSON files from batch size to config, named by GPU and shape.

vLLM's and SGLang's fused-MoE tables are called `E=256,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,
block_shape=[128,128].json` and hold `{"<batch>": {"BLOCK_SIZE_M": 16, ..., "num_warps": 4, "num_stages": 3}}`, some
with a `triton_version`. A file's name gives names (a list gives NAME_0, NAME_1, ...), its keys are batches, each entry
is a config. Files are read within fixed bounds; nothing in them is evaluated.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.json_reader import read_text
from occupancy_cli.spec.kernel_spec import ConfigTable
from occupancy_cli.spec.settings import parse_value

MAX_FILES = 5_000
MAX_BYTES = 1_000_000
MAX_ENTRIES = 100_000
DEVICE = "device_name"
_NOT_ENTRIES = frozenset({"triton_version"})
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]\n]')


@dataclass(frozen=True)
class TableEntry:
    """One config of a table: the file and 1-based line it stands at, its key, the names in the file's name."""

    file: Path
    line: int
    key: int
    config: Mapping[str, Any]
    names: Mapping[str, Any]

    @property
    def device(self) -> str | None:
        """The GPU in the file's name, as it is written there."""
        name = self.names.get(DEVICE)
        return None if name is None else str(name)


def read_tables(table: ConfigTable, folder: Path, where: str) -> tuple[TableEntry, ...]:
    """Every entry of the files that `table` names and lets in, by file and key.

    Raises `InputError` when nothing matches, or for a file that is no such table, with its line.
    """
    files = table_files(table, folder, where)
    entries = []
    for path, names in files:
        entries += read_table(path, names)
        if len(entries) > MAX_ENTRIES:
            raise InputError(f"the tables have more than {MAX_ENTRIES:,} entries", where=where)
    if not entries:
        raise InputError(f"{len(files)} files without an entry", where=where)
    return tuple(entries)


def table_files(table: ConfigTable, folder: Path, where: str) -> list[tuple[Path, dict[str, Any]]]:
    """The files, each with the names in its own name, that `table.table` matches and `table.only` lets in."""
    found = _matching(table.table, folder, where)
    if len(found) > MAX_FILES:
        raise InputError(f"{len(found):,} files; at most {MAX_FILES:,}", where=where)
    named = [(path, names_in(path)) for path in found]
    if named and table.only:
        known = {n for _, names in named for n in names}
        for name in table.only:
            if name not in known:
                raise unknown_name("name in the tables' file names", name, known, where=where)
    chosen = [(path, names) for path, names in named if _let_in(names, table.only)]
    if not chosen:
        reason = f"none of {len(named)} files passes `only`" if named else f"{table.table!r} matches no file"
        raise InputError(reason, where=where, hint=f"Looked in {folder}." if not named else "")
    return chosen


def _matching(text: str, folder: Path, where: str) -> list[Path]:
    package = re.fullmatch(r"([A-Za-z_]\w*):(.+)", text)
    if package:
        spec = importlib.util.find_spec(package[1])
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"no package {package[1]!r} is installed here", where=where)
        folder, text = Path(next(iter(spec.submodule_search_locations))), package[2]
    path = folder / text
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.suffix == ".json" and p.is_file())
    if path.is_file():
        return [path]
    root = Path(path.anchor) if path.is_absolute() else Path()
    return sorted(p for p in root.glob(str(path.relative_to(root))) if p.is_file())


def names_in(path: Path) -> dict[str, Any]:
    """The names in a table's file name: `E=8,block_shape=[128,64].json` gives E 8, block_shape_0 128, _1 64."""
    names: dict[str, Any] = {}
    for part in re.split(r",(?![^\[]*\])", path.name.removesuffix(".json")):
        name, equals, value = part.partition("=")
        if not equals or not name.isidentifier():
            continue
        if value.startswith("[") and value.endswith("]"):
            names |= {f"{name}_{i}": parse_value(v) for i, v in enumerate(value[1:-1].split(","))}
        else:
            names[name] = parse_value(value)
    return names


def _let_in(names: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return all(
        any(_same(names.get(name), w) for w in (wanted if isinstance(wanted, list) else [wanted]))
        for name, wanted in only.items()
    )


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and value is not None:
        return fnmatch.fnmatchcase(str(value), wanted)
    return bool(value == wanted)


def read_table(path: Path, names: Mapping[str, Any]) -> list[TableEntry]:
    """The entries of one file, by key; `InputError` with the line of what is no config."""
    try:
        text = read_text(path, MAX_BYTES)
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as bad:
        raise InputError(f"not valid JSON: {bad.msg}", where=f"{path}:{bad.lineno}") from bad
    except (ValueError, RecursionError) as bad:
        reason = "nested too deep" if isinstance(bad, RecursionError) else str(bad)
        raise InputError(f"not a config table: {reason}", where=str(path)) from bad
    if not isinstance(data, dict):
        raise InputError("not a config table: no mapping from batch to config", where=str(path))
    lines = _lines(text)
    entries = []
    for key, config in data.items():
        if key in _NOT_ENTRIES:
            continue
        where = f"{path}:{lines.get(key, 1)}"
        if not re.fullmatch(r"[1-9]\d{0,17}", key):
            raise InputError(f"{key!r} is no batch", where=where, hint="Keys are positive integers.")
        if not isinstance(config, dict):
            raise InputError(f"the entry {key} is no config", where=where)
        for name, value in config.items():
            if not isinstance(value, (int, float, str)) or (isinstance(value, int) and abs(value) >= 2**63):
                raise InputError(f"{name} of the entry {key} is no number, truth value or text", where=where)
        entries.append(TableEntry(path, lines.get(key, 1), int(key), config, names))
    return sorted(entries, key=lambda e: e.key)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(n for n, _ in pairs if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is given twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a finite number")


def _lines(text: str) -> dict[str, int]:
    """The line of each key of the outermost mapping."""
    lines: dict[str, int] = {}
    line, depth = 1, 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == "\n":
            line += 1
        elif mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
        elif depth == 1 and text[token.end() :].lstrip()[:1] == ":":
            lines[mark[1:-1]] = line
    return lines


def nearest_entries(entries: Iterable[TableEntry], key: int) -> list[TableEntry]:
    """The entry of each file whose key is nearest to `key` (the smaller on a tie), as the engines pick it."""
    best: dict[Path, TableEntry] = {}
    for entry in entries:
        known = best.get(entry.file)
        if known is None or (abs(entry.key - key), entry.key) < (abs(known.key - key), known.key):
            best[entry.file] = entry
    return list(best.values())
