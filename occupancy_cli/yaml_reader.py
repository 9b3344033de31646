"""YAML that strangers wrote: read strictly, within fixed bounds, with the line and column of every value.

    document = load_yaml(Path("kernel.yaml"))
    document.data["knobs"]                        # plain mappings, lists and scalars
    document.where(("knobs", "BLOCK", "values"))  # "kernel.yaml:4:12: knobs.BLOCK.values"

The one reader of the tool: profiles, specs and calibrations come through it. A text becomes values in one pass over the
parser's events, which neither recurses nor holds a tree; the bounds (size, nesting, number of values, no aliases) are
counted as events come, so a file beyond them costs what lies before the bound. Values are plain scalars, lists and
mappings: no tags are honoured, nothing is evaluated.

In one thing it reads more than YAML does. `[ceil_div(k, BLOCK), batch]` is three items to YAML, which splits at every
comma of a list in brackets; nobody means that, so a call whose parenthesis a comma left open is put together again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from occupancy_cli.errors import InputError

MAX_BYTES = 1_000_000
MAX_NESTING = 40
MAX_NODES = 50_000
MAX_INTEGER_DIGITS = 18
_CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}

_CALL = re.compile(r"[A-Za-z_]\w*\(")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: its values and where each of them stands.

    `places` maps a path of keys and list positions, such as ("knobs", "BLOCK_H", "values", 0), to the line and column
    (both from 1) where its key stands, or for a list's items the item.
    """

    path: str
    data: Any
    places: dict[KeyPath, tuple[int, int]] = field(default_factory=dict)

    def line(self, at: KeyPath) -> int | None:
        """The line of the value at `at`; None when the file has none there."""
        place = self.places.get(at)
        return place[0] if place else None

    def where(self, at: KeyPath) -> str:
        """`file:line:column: dotted.path` of the value at `at`, or of the nearest container that exists."""
        for length in range(len(at), -1, -1):
            if at[:length] in self.places:
                line, column = self.places[at[:length]]
                return f"{self.path}:{line}:{column}" + (f": {dotted(at)}" if at else "")
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
    """Read `path` within the bounds above; `InputError` names the file, line and column of what is wrong."""
    find_file(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{size:,} bytes; a YAML file may have {MAX_BYTES:,}", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as failed:
        raise InputError(f"cannot be read: {failed.strerror or failed}", where=str(path)) from failed
    except UnicodeDecodeError as failed:
        good = failed.object[: failed.start].decode("utf-8")
        line, column = good.count("\n") + 1, failed.start - failed.object.rfind(b"\n", 0, failed.start)
        raise InputError(f"is not UTF-8 text (byte {failed.start})", where=f"{path}:{line}:{column}") from failed
    return parse_yaml(text, str(path))


def parse_yaml(text: str, path: str) -> Document:
    """As `load_yaml`, from text."""
    loader = _Loader(text)
    builder = _Builder(path, loader.resolve)
    try:
        while (event := loader.get_event()) is not None:
            builder.take(event)
            if isinstance(event, yaml.StreamEndEvent):
                break
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        raise InputError(f"not valid YAML: {bad.problem or bad.context or bad}", where=_at(path, mark)) from bad
    except yaml.reader.ReaderError as bad:
        before = text[: bad.position] if isinstance(bad.position, int) else ""
        where = f"{path}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise InputError(f"not valid YAML: {bad.reason}", where=where) from bad
    except yaml.YAMLError as bad:
        raise InputError(f"not valid YAML: {str(bad).splitlines()[0]}", where=path) from bad
    finally:
        loader.dispose()
    return Document(path, builder.data, builder.places)


def _at(path: str, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path


@dataclass
class _Open:
    """A list or mapping whose end has not come; `key` is the one whose value comes next, None where a key does.

    `flow`: written in brackets. `call` is where its last value stands, if that is a call that a comma cut: what follows
    belongs to it. `skips_value`: what comes next is the empty value of a key that was none.
    """

    container: list[Any] | dict[str, Any]
    at: KeyPath
    key: str | None = None
    flow: bool = False
    call: str | int | None = None
    skips_value: bool = False


class _Builder:
    """Values from events: the open containers are a stack, so that depth costs no recursion."""

    def __init__(self, path: str, resolve: Callable[[type, str | None, tuple[bool, bool]], str]) -> None:
        self.path = path
        self.resolve = resolve
        self.data: Any = None
        self.places: dict[KeyPath, tuple[int, int]] = {}
        self.values = 0
        self.documents = 0
        self.stack: list[_Open] = []

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._count(event)
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._count(event)
            self._refuse_tag(event)
            container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            at = self._next_place(event)
            self._store(container)
            self.stack.append(_Open(container, at, flow=bool(event.flow_style)))
            if len(self.stack) > MAX_NESTING:
                raise InputError(f"nested more than {MAX_NESTING} deep", where=_at(self.path, event.start_mark))
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise InputError(
                "aliases (*name) are not supported; write the value out", where=_at(self.path, event.start_mark)
            )
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise InputError(
                    "a second document (---) begins; a file has one", where=_at(self.path, event.start_mark)
                )

    def _count(self, event: Any) -> None:
        self.values += 1
        if self.values > MAX_NODES:
            raise InputError(f"more than {MAX_NODES:,} values", where=_at(self.path, event.start_mark))

    def _refuse_tag(self, event: Any) -> None:
        if event.tag not in (None, "!") and event.tag not in _CORE_TAGS:
            raise InputError(f"tags ({event.tag[:60]}) are not supported", where=_at(self.path, event.start_mark))

    def _scalar(self, event: Any) -> None:
        holder = self.stack[-1] if self.stack else None
        plain = holder is not None and holder.flow and not event.style and event.tag is None
        if holder is not None and self._joined(holder, event, plain):
            return
        if holder is not None and isinstance(holder.container, dict) and holder.key is None:
            if event.value in holder.container:
                raise InputError(f"key {event.value!r} is given twice", where=_at(self.path, event.start_mark))
            holder.key = event.value
            at: KeyPath = (*holder.at, event.value)
            self.places[at] = (event.start_mark.line + 1, event.start_mark.column + 1)
            return
        self._refuse_tag(event)
        explicit = event.tag not in (None, "!")
        tag = event.tag if explicit else self.resolve(yaml.ScalarNode, event.value, event.implicit)
        at = self._next_place(event)
        where = _at(self.path, event.start_mark) + (f": {dotted(at)}" if at else "")
        self._store(_scalar(tag, event.value, where))
        if holder is not None and plain and _is_cut(event.value):
            holder.call = at[-1]

    def _joined(self, holder: _Open, event: Any, plain: bool) -> bool:
        """Whether a scalar was put back to the call that a comma cut it off: of a mapping the key it was taken for."""
        if holder.skips_value:
            holder.skips_value = False
            if event.value:
                hint = "Put the whole expression in quotes."
                raise InputError("a value inside a call", where=_at(self.path, event.start_mark), hint=hint)
            return True
        if holder.call is None or not plain:
            return False
        container: Any = holder.container
        container[holder.call] += f", {event.value}"
        holder.skips_value = isinstance(container, dict)
        if not _is_cut(container[holder.call]):
            holder.call = None
        return True

    def _next_place(self, event: Any) -> KeyPath:
        """The path of the value that `event` begins, its place noted."""
        here = (event.start_mark.line + 1, event.start_mark.column + 1)
        if not self.stack:
            self.places[()] = here
            return ()
        holder = self.stack[-1]
        if isinstance(holder.container, list):
            item: KeyPath = (*holder.at, len(holder.container))
            self.places[item] = here
            return item
        if holder.key is None:
            raise InputError("a key must be a plain name", where=_at(self.path, event.start_mark))
        return (*holder.at, holder.key)  # its place is its key's

    def _store(self, value: Any) -> None:
        if not self.stack:
            self.data = value
            return
        holder = self.stack[-1]
        if isinstance(holder.container, list):
            holder.container.append(value)
        elif holder.key is not None:
            holder.container[holder.key] = value
            holder.key = None


def _is_cut(text: str) -> bool:
    """Whether a text is a call, such as `ceil_div(k`, whose closing parenthesis is not in it."""
    return text.count("(") > text.count(")") and _CALL.search(text) is not None


def _scalar(tag: str, value: str, where: str) -> Any:
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
