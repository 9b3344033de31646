"""YAML that strangers wrote: read strictly, within fixed bounds, with a line number for every value.

Bounds come first (size, nesting, number of nodes, aliases), counted on the parser's event stream, which holds no tree
and does not recurse; only a text within them is built. Values are plain scalars, lists and mappings: no tags are
honoured, nothing is evaluated.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from occupancy_cli.errors import InputError

MAX_BYTES = 1_000_000
MAX_NESTING = 40
MAX_NODES = 50_000
MAX_INTEGER_DIGITS = 18

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: its values and where each of them stands.

    `lines` maps a path of keys and list positions, such as ("knobs", "BLOCK_H", "values", 0), to a 1-based line.
    """

    path: str
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def where(self, at: KeyPath) -> str:
        """`file:line: dotted.path` of the value at `at`, or of the nearest container that exists."""
        for length in range(len(at), -1, -1):
            if at[:length] in self.lines:
                return f"{self.path}:{self.lines[at[:length]]}" + (f": {dotted(at)}" if at else "")
        return f"{self.path}: {dotted(at)}" if at else self.path


def dotted(at: KeyPath) -> str:
    """A key path as people write it: `knobs.BLOCK_H.values[0]`."""
    text = ""
    for part in at:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def find_file(path: Path) -> Path:
    """`path` if it is a file; else an error that names where a file of that name does lie."""
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError("is a folder, not a file", where=str(path))
    if path.exists():
        raise InputError("is no ordinary file (a device or a pipe)", where=str(path))
    raise InputError("no such file", where=str(path), hint=_elsewhere(path))


def _elsewhere(path: Path) -> str:
    found: list[Path] = []
    seen = 0
    roots = [Path.cwd()]
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    if parent.resolve() != Path.cwd().resolve() and parent.is_dir() and len(parent.resolve().parts) > 2:
        roots.append(parent)
    siblings: dict[str, Path] = {}
    for root in roots:
        todo = [root]
        while todo and seen < 20_000 and len(found) < 3:
            folder = todo.pop(0)
            try:
                entries = sorted(folder.iterdir())
            except OSError:
                continue
            for entry in entries:
                seen += 1
                if entry.name.startswith((".", "__pycache__")):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    todo.append(entry)
                elif entry.name == path.name:
                    found.append(entry)
                elif entry.suffix in (path.suffix, ".yaml", ".yml"):
                    siblings.setdefault(entry.name, entry)
    if found:
        return "A file of that name lies at " + " and ".join(_shown(f) for f in found[:3])
    close = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.75)
    return f"Nearest name: {_shown(siblings[close[0]])}" if close else ""


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def load_yaml(path: Path) -> Document:
    """Read `path` within the bounds above; `InputError` names the file and line of what is wrong."""
    find_file(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{size:,} bytes; a YAML file may have {MAX_BYTES:,}", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as failed:
        raise InputError(f"cannot be read: {failed.strerror or failed}", where=str(path)) from failed
    except UnicodeDecodeError as failed:
        raise InputError(f"is not UTF-8 text (byte {failed.start})", where=str(path)) from failed
    return parse_yaml(text, str(path))


def parse_yaml(text: str, path: str) -> Document:
    """As `load_yaml`, from text."""
    try:
        _check_bounds(text, path)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"not valid YAML: {bad.problem or bad.context or bad}", where=f"{path}{line}") from bad
    except yaml.YAMLError as bad:
        raise InputError(f"not valid YAML: {str(bad).splitlines()[0]}", where=path) from bad
    lines: dict[KeyPath, int] = {}
    data = None if node is None else _build(node, (), lines, path)
    return Document(path, data, lines)


def _check_bounds(text: str, path: str) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise InputError("aliases (*name) are not supported; write the value out", where=f"{path}:{line}")
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING:
            raise InputError(f"nested more than {MAX_NESTING} deep", where=f"{path}:{line}")
        if nodes > MAX_NODES:
            raise InputError(f"more than {MAX_NODES:,} values", where=f"{path}:{line}")


def _build(node: Any, at: KeyPath, lines: dict[KeyPath, int], path: str) -> Any:
    line = node.start_mark.line + 1
    lines[at] = line
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*at, i), lines, path) for i, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = f"{path}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key must be a plain name", where=where)
            key = key_node.value
            if key in built:
                raise InputError(f"key {key!r} is given twice", where=where)
            inside = (*at, key)
            built[key] = _build(value_node, inside, lines, path)
            lines[inside] = key_node.start_mark.line + 1
        return built
    return _scalar(node, f"{path}:{line}" + (f": {dotted(at)}" if at else ""))


def _scalar(node: Any, where: str) -> Any:
    tag, value = node.tag, node.value
    if tag == "tag:yaml.org,2002:null":
        return None
    if tag == "tag:yaml.org,2002:bool":
        return value.lower() in ("yes", "true", "on")
    if tag == "tag:yaml.org,2002:int":
        if len(value) > MAX_INTEGER_DIGITS + 4:
            raise InputError(f"an integer of {len(value)} characters", where=where, hint="At most 18 digits.")
        try:
            return int(value.replace("_", ""), 0)
        except ValueError:
            return value
    if tag == "tag:yaml.org,2002:float":
        try:
            number = float(value.replace("_", ""))
        except ValueError:
            number = float("nan")
        if number != number or number in (float("inf"), float("-inf")):
            raise InputError(f"{value[:40]!r} is not a finite number", where=where)
        return number
    return value
