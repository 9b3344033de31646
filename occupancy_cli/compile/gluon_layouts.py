"""Gluon layouts as values of constexprs: `gl.BlockedLayout([4], [32], [4], [0])`, made from the text, never evaluated.

The text is data: a layout class of Gluon's language by name, with numbers, truth values, texts, lists, tuples and
further layouts as its arguments, and nothing else. Imports Triton, so it runs in worker processes only.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

from occupancy_cli.errors import InputError, nearest

_LANGUAGES = (
    "triton.experimental.gluon.language",
    "triton.experimental.gluon.language.nvidia.hopper",
    "triton.experimental.gluon.language.nvidia.blackwell",
)


def layout_of(text: str) -> Any:
    """The layout that `text` spells; `InputError` for one that Gluon does not have or refuses."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        return _value(node, text)
    except (SyntaxError, ValueError, TypeError, AssertionError, RecursionError) as bad:
        hint = "Write it as gl.BlockedLayout([4], [32], [4], [0])."
        raise InputError(f"is no layout: {bad}", where=text, hint=hint) from None


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_value(e, text) for e in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    known = _layouts()
    if name not in known:
        close = nearest(name, known)
        hint = f"Did you mean gl.{close[0]}?" if close else f"Layouts of this Triton: {', '.join(sorted(known))}"
        raise InputError(f"no layout {name!r}", where=text, hint=hint)
    keywords = {k.arg: _value(k.value, text) for k in node.keywords if k.arg is not None}
    return known[name](*(_value(a, text) for a in node.args), **keywords)


def _layouts() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for language in _LANGUAGES:
        try:
            module = importlib.import_module(language)
        except ImportError:  # Triton 3.4 has fewer of them
            continue
        found |= {n: v for n, v in vars(module).items() if n.endswith("Layout") and isinstance(v, type)}
    return found
