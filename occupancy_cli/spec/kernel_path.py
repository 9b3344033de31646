"""What names a kernel in a module: `kernel`, `Ops.kernel`, or one that a function makes, `make(64, "fp8").kernel`.

A call is data: its arguments are numbers, texts, truth values, None, lists and mappings of them, or dotted names that
the module has (a type, a constant). It is read here and called where kernels are loaded; no text of it is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_CHARACTERS = 500


@dataclass(frozen=True)
class Named:
    """An argument that is a name of the module: `tl.bfloat16`."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class FactoryCall:
    """What a function that makes kernels is called with."""

    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A name, and how what it names is called; None where it is not."""

    name: str
    call: FactoryCall | None = None


def kernel_steps(text: str) -> tuple[Step, ...]:
    """The steps from a module to a kernel; ValueError, with the reason, for what is none."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"a name of {len(text)} characters")
    try:
        return tuple(_steps(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no name of a kernel") from None


def plain_name(text: str) -> str:
    """The dotted name without calls: `make.kernel` of `make(64).kernel`."""
    return ".".join(step.name for step in kernel_steps(text))


def _steps(node: ast.expr) -> list[Step]:
    if isinstance(node, ast.Name):
        return [Step(node.id)]
    if isinstance(node, ast.Attribute):
        return [*_steps(node.value), Step(node.attr)]
    if isinstance(node, ast.Call):
        *before, last = _steps(node.func)
        if last.call is not None:
            raise ValueError("the result of a call is not called again here")
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("arguments are written one by one, not as **names")
        keywords = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return [*before, Step(last.name, FactoryCall(tuple(_value(a) for a in node.args), keywords))]
    raise ValueError(f"{ast.unparse(node)} is neither a name nor a call of one")


def _value(node: ast.expr) -> Any:
    if isinstance(node, (ast.Name, ast.Attribute)):
        return Named(tuple(step.name for step in _steps(node)))
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_value(item) for item in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {ast.literal_eval(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        what = "an argument is a number, a text, a list or mapping of them, or a name of the module"
        raise ValueError(f"{ast.unparse(node)} is no value: {what}") from None
