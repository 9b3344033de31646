"""What can be told of imports without running them: what an `__init__` re-exports, and who deals with a failing import.

`exports_of` reads a package's `__init__`. `guarded` tells whether the code being loaded catches the failure of an
import itself, `importer_is_left_alone` whether the import is the business of the standard library, this tool or Triton.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = str(Path(__file__).resolve().parents[1])
_STDLIB = str(Path(sysconfig.get_paths()["stdlib"]).resolve())
# The modules through which an import goes: the code that asks stands beyond them.
_HOOKS = frozenset({"stand_ins.py", "absent_modules.py", "lazy_packages.py", "device_doors.py"})
# Never stood in for in part, nor tampered with: Triton itself, and what carries compiled code.
LEFT_ALONE = frozenset({"triton", "torch", "numpy", "occupancy_cli"})


@dataclass(frozen=True)
class Exports:
    """What an `__init__` says it defines: constants, re-exports (name -> level, module, name there), `import *`."""

    constants: Mapping[str, Any]
    sources: Mapping[str, tuple[int, str, str]]
    stars: tuple[tuple[int, str], ...]
    assigned: frozenset[str]
    all: tuple[str, ...] | None
    has_getattr: bool


@functools.lru_cache(maxsize=4096)
def exports_of(origin: Path) -> Exports:
    constants: dict[str, Any] = {}
    sources: dict[str, tuple[int, str, str]] = {}
    stars: list[tuple[int, str]] = []
    assigned: set[str] = set()
    everything: tuple[str, ...] | None = None
    for node in _top_level(syntax_tree(str(origin)).body):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    stars.append((node.level, node.module or ""))
                else:
                    sources[alias.asname or alias.name] = (node.level, node.module or "", alias.name)
        elif isinstance(node, ast.Import):
            assigned |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            assigned.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                    assigned.add(name)
                    with contextlib.suppress(ValueError, TypeError):
                        constants[name] = ast.literal_eval(node.value)
    listed = constants.pop("__all__", None)
    if isinstance(listed, (list, tuple)) and all(isinstance(n, str) for n in listed):
        everything = tuple(listed)
    plain = {n: v for n, v in constants.items() if isinstance(v, (int, float, str, bool, type(None)))}
    return Exports(plain, sources, tuple(stars), frozenset(assigned), everything, "__getattr__" in assigned)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for name in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, name, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _top_level(handler.body)


@functools.lru_cache(maxsize=4096)
def syntax_tree(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


_CATCHES_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@functools.lru_cache(maxsize=4096)
def _guarded_lines(file: str) -> tuple[tuple[int, int], ...]:
    """The ranges of lines whose failing imports the file itself deals with."""
    ranges = []
    for node in ast.walk(syntax_tree(file)):
        if isinstance(node, ast.Try):
            if any(_deals_with_imports(handler) for handler in node.handlers):
                ranges.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
        elif isinstance(node, ast.With) and any(_suppresses(item.context_expr) for item in node.items):
            ranges.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
    return tuple(ranges)


def _deals_with_imports(handler: ast.ExceptHandler) -> bool:
    if any(isinstance(statement, ast.Raise) for statement in handler.body):
        return False
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any((n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "")) in _CATCHES_IMPORTS for n in caught)


def _suppresses(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "suppress" and any(getattr(a, "id", "") in _CATCHES_IMPORTS for a in node.args)


def guarded(frame: FrameType | None, target: str) -> bool:
    """Whether an import that fails in `frame` is dealt with by the code that is being loaded, up to `target`'s own."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib"):
            if file.startswith(_HERE):
                if Path(file).name not in _HOOKS:
                    return False  # beyond it lies this tool
            elif any(first <= frame.f_lineno <= last for first, last in _guarded_lines(file)):
                return True
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == target:
                return False
        frame = frame.f_back
    return False


def importer_is_left_alone(frame: FrameType | None) -> bool:
    """Whether the import comes from the standard library, this tool, Triton or another package that is whole."""
    # Frozen import machinery and generated code ("<string>") speak for who called them.
    while frame is not None and (
        frame.f_code.co_filename.startswith("<") or Path(frame.f_code.co_filename).name in _HOOKS
    ):
        frame = frame.f_back
    if frame is None:
        return True
    file = frame.f_code.co_filename
    if file.startswith(_STDLIB) and "site-packages" not in file and "dist-packages" not in file:
        # import_module() is the standard library's, and speaks for who calls it.
        return not file.endswith("importlib/__init__.py") or importer_is_left_alone(frame.f_back)
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top in LEFT_ALONE and not (top == "occupancy_cli" and file.endswith("loading.py"))


def only_asked(frame: FrameType | None) -> bool:
    """Whether this is `importlib.util.find_spec` asking if a module is there, not an import."""
    for _ in range(6):
        if frame is None:
            return False
        if frame.f_code.co_name == "find_spec" and frame.f_code.co_filename.endswith(("util.py", "importlib.util>")):
            return True
        frame = frame.f_back
    return False
