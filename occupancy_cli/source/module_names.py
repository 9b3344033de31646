"""The names that one parsed file binds at its top level: functions, imports, and the statements that give values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Known:
    """What became of one module-level name: its value and the environment it assumed, or why there is none."""

    value: Any = None
    assumed: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


class Module:
    """The module-level names of one parsed file.

    `resolve` (set by the reader) gives the `Module` that an import refers to when its source is at hand.
    """

    def __init__(self, tree: ast.Module, file: str, resolve: Callable[[str], Module | None] | None = None) -> None:
        self.tree = tree
        self.file = file
        self.resolve = resolve or (lambda _dotted: None)
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.imports: dict[str, str] = {}
        self.binders: dict[str, list[ast.stmt]] = {}
        self.values: dict[tuple[str, int | None], Known] = {}
        for statement in _flat(tree.body):
            if isinstance(statement, ast.FunctionDef):
                self.functions.setdefault(statement.name, []).append(statement)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.imports[name] = alias.name if alias.asname else name
            elif isinstance(statement, ast.ImportFrom):
                base = "." * statement.level + (statement.module or "")
                for alias in statement.names:
                    joined = base + alias.name if base.endswith(".") else f"{base}.{alias.name}"
                    self.imports[alias.asname or alias.name] = joined
        for top in tree.body:
            if not isinstance(top, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)):
                for name in bound_names(top):
                    self.binders.setdefault(name, []).append(top)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those inside `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _flat(getattr(statement, name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _flat(handler.body)


_MUTATORS = frozenset({"append", "extend", "insert", "update", "pop", "remove", "clear", "add", "setdefault", "sort"})


def bound_names(statement: ast.AST) -> set[str]:
    """The names that a statement binds or changes in place, without looking into functions and classes."""
    found: set[str] = set()
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if isinstance(node.value, ast.Name):
                found.add(node.value.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            if isinstance(node.func.value, ast.Name):
                found.add(node.func.value.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        todo += ast.iter_child_nodes(node)
    return found


def shown(node: ast.AST, most: int = 80) -> str:
    """The source of `node` in one line of at most `most` characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
