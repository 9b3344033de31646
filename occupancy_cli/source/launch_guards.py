"""Why a launch in a file may not have been reached: the function it stands in and the conditions around it.

    if loss.item() > 3:               the launch in step (train.py:40) stands under `if loss.item() > 3` (line 39)
        scale[grid](x)

Read from the source, for kernels that a run of a script did not launch; nothing is executed.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.errors import InputError
from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.knob_types import LaunchSite
from occupancy_cli.source.module_names import shown
from occupancy_cli.source.source_files import read_source
from occupancy_cli.source.source_knobs import read_knobs, resolve_import

_MOST_FILES = 40
_MOST_SITES = 2


@dataclass(frozen=True)
class NotLaunched:
    """A kernel that was not launched: its `file:line`, and what stands around its launches."""

    kernel: str
    source: str
    reason: str


def not_launched(script: Path, launched: Collection[str]) -> list[NotLaunched]:
    """The kernels of a script, and of the modules beside it that it imports, whose names are not among `launched`."""
    found: list[NotLaunched] = []
    files = _files(script.resolve())
    read = []
    for path in files:
        try:
            read.append((path, read_knobs(path)))
        except InputError:
            continue  # no Python, or no file any more: nothing of it is known
    sites = [(path, site) for path, knobs in read for site in knobs.launches]
    for path, knobs in read:
        for kernel in knobs.kernels:
            names = {kernel.name, kernel.function} - {""}
            if kernel.role != "kernel" or names & set(launched):
                continue
            mine = [(file, site) for file, site in sites if names & {site.kernel, *site.kernels}]
            source = f"{path.name}:{kernel.place.line}"
            found.append(NotLaunched(kernel.name, source, _reason(mine)))
    return found


def _reason(sites: list[tuple[Path, LaunchSite]]) -> str:
    if not sites:
        return "the script and what it imports beside it have no launch of it"
    said = []
    for path, site in sites[:_MOST_SITES]:
        line = site.place.line
        where = f"in {site.function} ({path.name}:{line})" if site.function else f"at {path.name}:{line}"
        tests = " and ".join(f"`{text}` (line {at})" for at, text in _conditions(path, line))
        said.append(f"its launch {where} was not reached" + (f"; it stands under {tests}" if tests else ""))
    more = f"; {len(sites) - _MOST_SITES} more launches neither" if len(sites) > _MOST_SITES else ""
    return "; ".join(said) + more


def _conditions(path: Path, line: int) -> list[tuple[int, str]]:
    """The conditions around a line, the innermost function's alone, outermost first."""
    found: list[tuple[int, str]] = []
    node: ast.AST = parse(path, read_source(path))
    while True:
        inside = next((c for c in ast.iter_child_nodes(node) if _spans(c, line)), None)
        if inside is None:
            return found
        if isinstance(inside, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = []
        elif isinstance(inside, (ast.If, ast.While)):
            word = "if" if isinstance(inside, ast.If) else "while"
            within = any(_spans(statement, line) for statement in inside.body)
            text = shown(inside.test, 80)
            found.append((inside.lineno, f"{word} {text}" if within else f"else of if {text}"))
        elif isinstance(inside, ast.ExceptHandler):
            found.append((inside.lineno, "except" + (f" {shown(inside.type, 60)}" if inside.type else "")))
        node = inside


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
