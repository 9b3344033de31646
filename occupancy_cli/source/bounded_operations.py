"""Operators and functions that values read from source may go through, each bounded so that no source can hang it.

What is not known raises `NotStatic` with the reason, and is never guessed.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

MAX_ITEMS = 100_000
MAX_INTEGER_BITS = 128


class NotStatic(Exception):
    """A value that reading the source does not give; the text says what stands in the way."""


def limited(values: Iterable[Any]) -> list[Any]:
    items = list(itertools.islice(values, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise NotStatic(f"more than {MAX_ITEMS:,} items")
    return items


def scalar(value: Any) -> Any:
    if not is_scalar(value):
        raise NotStatic("a nested value is written as text")
    return value


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def plain(value: Any) -> Any:
    """`value`, a scalar or a flat sequence of scalars (nested ones may share parts, and comparing them explode)."""
    if is_scalar(value) or (
        isinstance(value, (list, tuple, set, frozenset, dict))
        and all(is_scalar(v) or (isinstance(v, tuple) and all(map(is_scalar, v))) for v in value)
    ):
        return value
    raise NotStatic("a nested value is compared")


def _total(values: Any, start: Any = 0) -> Any:
    if not all(isinstance(v, (int, float)) for v in (*values, start)):
        raise NotStatic("a sum of things that are not numbers")
    return sum(values, start)


def _product(*values: Any, repeat: int = 1) -> list[Any]:
    if repeat > 8:
        raise NotStatic("a product too large to list")
    return limited(itertools.product(*values, repeat=repeat))


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and (abs(b) > MAX_INTEGER_BITS or abs(a) > 1 << 32):
        raise NotStatic("a power too large to compute")
    return a**b


def _shift(a: int, b: int) -> int:
    if b > MAX_INTEGER_BITS:
        raise NotStatic("a shift too large to compute")
    return a << b


def _times(a: Any, b: Any) -> Any:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, (str, list, tuple)) and isinstance(other, int) and len(one) * other > MAX_ITEMS:
            raise NotStatic("a sequence too long to build")
    return a * b


def _modulo(a: Any, b: Any) -> Any:
    if isinstance(a, str):
        raise NotStatic("a formatted string")
    return a % b


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
PURE: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": lambda *v, **k: min(*map(plain, v), **k),
    "max": lambda *v, **k: max(*map(plain, v), **k),
    "abs": abs,
    "sum": _total,
    "any": any,
    "all": all,
    "int": int,
    "float": float,
    "bool": bool,
    "str": lambda v="": str(scalar(v)),
    "round": round,
    "range": lambda *a: limited(range(*a)),
    "list": lambda v=(): limited(v),
    "tuple": lambda v=(): tuple(limited(v)),
    "set": lambda v=(): set(plain(v)),
    "frozenset": lambda v=(): frozenset(plain(v)),
    "sorted": lambda v, **k: sorted(v if k.get("key") else plain(v), **k),
    "reversed": lambda v: limited(reversed(v)),
    "zip": lambda *v: limited(zip(*v, strict=False)),
    "enumerate": lambda v, start=0: limited(enumerate(v, start)),
    "dict": dict,
    "itertools.product": _product,
    "itertools.chain": lambda *v: limited(itertools.chain(*v)),
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
    "triton.cdiv": lambda a, b: -(-a // b),
    "triton.next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
    "copy.copy": lambda v: v,
}
METHODS: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "copy", "pop", "reverse"}),
    dict: frozenset({"get", "items", "keys", "values", "update", "copy", "pop", "setdefault"}),
    str: frozenset({"lower", "upper", "strip", "startswith", "endswith", "split"}),
}
