"""Small readers of Python syntax: dotted names, defaults of parameters, what a function assigns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from occupancy_cli.source.knob_types import Definition
from occupancy_cli.source.module_names import bound_names, last_name, shown

MAX_TEXT = 2_000


def is_triton(dotted: str) -> bool:
    parts = dotted.lstrip(".").split(".")
    return any(p in ("triton", "gluon") or p.endswith("triton_utils") for p in parts)


def is_constexpr(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2].strip() == "constexpr"
    return annotation is not None and last_name(annotation) == "constexpr"


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` for such an expression, "" for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def text_of(node: ast.AST) -> str:
    return shown(node, MAX_TEXT)


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_trivial(node: ast.expr) -> bool:
    """None, a bare name or attribute, a string: says nothing of how a number of splits comes about."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, (int, float)) or isinstance(node.value, bool)
    return isinstance(node, (ast.Name, ast.Attribute))


def parameter_names(arguments: ast.arguments) -> list[str]:
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def defaults_of(arguments: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """(name, default) of every parameter, in order."""
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    missing = len(positional) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [None] * missing + list(arguments.defaults)
    rows = list(zip(positional, defaults, strict=True))
    return rows + list(zip([a.arg for a in arguments.kwonlyargs], arguments.kw_defaults, strict=True))


def own_statements(function: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function but those inside functions and classes defined in it."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)


def definitions_in(function: ast.AST) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in own_statements(function):
        if isinstance(node, ast.FunctionDef):
            body = node.body[-1]
            shape = f"def {node.name}({ast.unparse(node.args)}): {text_of(body)}"
            found.setdefault(node.name, []).append(Definition(node.lineno, shape[:MAX_TEXT]))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            simple = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
            text = text_of(node.value) if simple else text_of(node)
            for name in bound_names(node):
                found.setdefault(name, []).append(Definition(node.lineno, text))
    for definitions in found.values():
        definitions.sort(key=lambda d: d.line)
    return found
