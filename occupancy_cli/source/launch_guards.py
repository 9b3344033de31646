"""Why a launch in a file may not have been reached: the function it stands in and the conditions on the way to it.

    if loss.item() > 3:       its launch in step (train.py:40) was not reached; it stands under `if loss.item() > 3`
        scale[grid](x)        (line 39: asks for a result, ...). To go there: --value train.py:39=True

Read from the source, for kernels that a run of a script did not launch; nothing is executed.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.errors import InputError
from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.knob_types import LaunchSite
from occupancy_cli.source.module_names import last_name, shown
from occupancy_cli.source.source_files import read_source
from occupancy_cli.source.source_knobs import read_knobs, resolve_import

_MOST_FILES = 40
_MOST_SITES = 2
_RESULT = re.compile(r"\.(item|tolist|any|all|numpy|cpu|nonzero|max|min|sum|equal)\(|\b(allclose|isnan|isinf|equal)\(")
_DEVICE = re.compile(
    r"torch\.cuda\b|\bcuda\.|is_(cuda|hip|rocm|npu|xpu|available|hopper|blackwell|sm\d)|capability|device_(name|count|prop)"
    r"|get_device|\barch\b|multi_processor_count|\bruntime\.driver",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class NotLaunched:
    """A kernel that was not launched: its `file:line`, and what stands around its launches."""

    kernel: str
    source: str
    reason: str


@dataclass(frozen=True)
class _Guard:
    """A condition on the way to a launch; `way_in` is the value that leads there, as a person may give it."""

    path: Path
    line: int
    text: str
    way_in: str = ""

    def __str__(self) -> str:
        why = ""
        if _RESULT.search(self.text):
            why = ": asks for a result, and those of kernels that did not run are zeros"
        elif _DEVICE.search(self.text):
            why = ": asks about the device"
        return f"`{self.text}` (line {self.line}{why})"


def not_launched(script: Path, launched: Collection[str], failure: str = "") -> list[NotLaunched]:
    """The kernels of a script, and of the modules beside it that it imports, whose names are not among `launched`.

    `failure` is how the script failed, empty for one that ran to its end: what it had not launched until then it might
    have launched later.
    """
    read = []
    for path in _files(script.resolve()):
        try:
            read.append((path, read_knobs(path)))
        except InputError:
            continue  # no Python, or no file any more: nothing of it is known
    sites = [(path, site) for path, knobs in read for site in knobs.launches]
    used = _Uses.of(path for path, _ in read)
    found: list[NotLaunched] = []
    for path, knobs in read:
        for kernel in knobs.kernels:
            names = {kernel.name, kernel.function} - {""}
            if kernel.role != "kernel" or names & set(launched):
                continue
            mine = [(file, site) for file, site in sites if names & {site.kernel, *site.kernels}]
            source = f"{path.name}:{kernel.place.line}"
            found.append(NotLaunched(kernel.name, source, _reason(mine, used, failure)))
    return found


def _reason(sites: list[tuple[Path, LaunchSite]], used: _Uses, failure: str) -> str:
    ended = f"; the script failed before it came to one: {failure}" if failure else ""
    if not sites:
        return f"the script and what it imports beside it have no launch of it{ended}"
    said, ways = [], []
    for path, site in sites[:_MOST_SITES]:
        line = site.place.line
        where = f"in {site.function} ({path.name}:{line})" if site.function else f"at {path.name}:{line}"
        guards = [*used.guards_of_calls(site.function), *_guards(path, line)]
        tests = " and ".join(str(guard) for guard in guards)
        called = site.function.rpartition(".")[2]
        unused = f"; nothing in these files calls {called}" if called and not used.names.get(called) else ""
        said.append(f"its launch {where} was not reached{unused}" + (f"; it stands under {tests}" if tests else ""))
        ways.append(" ".join(f"--value {_typed(g.path)}:{g.line}={g.way_in}" for g in guards if g.way_in))
    more = f"; {len(sites) - _MOST_SITES} more launches neither" if len(sites) > _MOST_SITES else ""
    to_do = " or ".join(dict.fromkeys(filter(None, ways)))
    return "; ".join(said) + more + ended + (f". To go there: {to_do}" if to_do and not failure else "")


def _typed(path: Path) -> str:
    """A path as a person types it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if here in path.parents else str(path)


@dataclass(frozen=True)
class _Uses:
    """How often each name is used in some files, other than where it is bound, and from where functions are called:
    (file, line, name of the function that calls)."""

    names: Mapping[str, int]
    calls: Mapping[str, Sequence[tuple[Path, int, str]]]

    @staticmethod
    def of(paths: Iterable[Path]) -> _Uses:
        names: dict[str, int] = {}
        calls: dict[str, list[tuple[Path, int, str]]] = {}
        for path in paths:
            todo: list[tuple[ast.AST, str]] = [(parse(path, read_source(path)), "")]
            while todo:
                node, function = todo.pop()
                name = last_name(node)
                if name and not isinstance(getattr(node, "ctx", None), ast.Store):
                    names[name] = names.get(name, 0) + 1
                if isinstance(node, ast.Call) and (called := last_name(node.func)):
                    calls.setdefault(called, []).append((path, node.lineno, function))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    function = node.name
                todo += [(child, function) for child in ast.iter_child_nodes(node)]
        return _Uses(names, calls)

    def guards_of_calls(self, function: str) -> list[_Guard]:
        """The conditions on the way to a function that is called in one place, and to the one that calls it."""
        found: list[_Guard] = []
        seen = {""}
        name = function.rpartition(".")[2]
        while name not in seen and len(self.calls.get(name, ())) == 1:
            seen.add(name)
            path, line, name = self.calls[name][0]
            found = [*_guards(path, line), *found]
        return found


def _guards(path: Path, line: int) -> list[_Guard]:
    """The conditions on the way to a line, the innermost function's alone, in the order of their lines."""
    found: list[_Guard] = []
    node: ast.AST = parse(path, read_source(path))
    while True:
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and any(_spans(s, line) for s in statements):
                found += _left_before(path, statements, line)
        inside = next((c for c in ast.iter_child_nodes(node) if _spans(c, line)), None)
        if inside is None:
            return found
        if isinstance(inside, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = []
        elif isinstance(inside, (ast.If, ast.While)):
            word = "if" if isinstance(inside, ast.If) else "while"
            within = any(_spans(statement, line) for statement in inside.body)
            text = shown(inside.test, 80)
            way_in = "" if word == "while" else str(within)
            if not _is_main(inside.test):
                found.append(_Guard(path, inside.lineno, f"{word} {text}" if within else f"else of if {text}", way_in))
        elif isinstance(inside, ast.For) and _RESULT.search(shown(inside.iter, 200)):
            found.append(
                _Guard(path, inside.lineno, f"for {shown(inside.target, 40)} in {shown(inside.iter, 80)}", "[0]")
            )
        elif isinstance(inside, ast.ExceptHandler):
            found.append(_Guard(path, inside.lineno, "except" + (f" {shown(inside.type, 60)}" if inside.type else "")))
        node = inside


def _left_before(path: Path, statements: list[ast.stmt], line: int) -> Iterator[_Guard]:
    """The conditions that leave the function or the loop in the statements before the one that the line is in."""
    for statement in statements:
        if _spans(statement, line):
            return
        if isinstance(statement, ast.If) and not statement.orelse:
            last = statement.body[-1]
            if isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                word = type(last).__name__.lower()
                yield _Guard(path, statement.lineno, f"if {shown(statement.test, 80)}: {word}", "False")


def _is_main(test: ast.expr) -> bool:
    """Whether it asks if the file is the script, which it is."""
    return "__name__" in {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _files(script: Path) -> list[Path]:
    """The script, and the modules that it and they import, but for those of installed packages."""
    installed = {Path(p).resolve() for p in sysconfig.get_paths().values()}
    files = [script]
    for path in files:
        for target in _imported(path):
            own = not any(folder in target.parents for folder in installed)
            if own and target not in files and len(files) < _MOST_FILES:
                files.append(target)
    return files


def _imported(path: Path) -> Iterator[Path]:
    try:
        tree = parse(path, read_source(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            joined = [f"{start}.{a.name}" if not start.endswith(".") else f"{start}{a.name}" for a in node.names]
            names = [start, *joined]
        for name in names:
            target = resolve_import(path, name) if name.strip(".") else None
            if target is not None and target.suffix == ".py":
                yield target.resolve()
