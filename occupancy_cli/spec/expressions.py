"""Arithmetic over names, as specs and command lines write it: parsed against a whitelist, never evaluated as Python.

Allowed: integers, floats, true/false, names, `+ - * / // %`, unary minus, comparisons, `and or not`,
`a if test else b`, and `ceil_div, next_power_of_2, min, max, clamp, abs`. No attribute, index, string, power or other
call can be written, a text has at most 1,000 characters, and every integer stays within 64 bits, so that no expression
can hang, exhaust memory or reach Python.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from occupancy_cli.errors import InputError, nearest

MAX_CHARACTERS = 1_000
MAX_DEPTH = 40
LARGEST = 2**63 - 1

Number = int | float | bool
Env = Mapping[str, Any]
_Evaluate = Callable[[Env], Number]


class ExpressionError(InputError):
    """An expression that cannot be parsed or evaluated; the hint shows the place."""


def ceil_div(a: int, b: int) -> int:
    """The least integer not below a / b."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The least power of two not below n (1 for n <= 1), as `triton.next_power_of_2`."""
    return 1 << max(0, int(n) - 1).bit_length()


def clamp(value: Number, low: Number, high: Number) -> Number:
    """`value` brought into [low, high]; `low` wins when they cross."""
    return max(low, min(value, high))


FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "ceil_div": (ceil_div, 2, 2),
    "next_power_of_2": (next_power_of_2, 1, 1),
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "clamp": (clamp, 3, 3),
    "abs": (abs, 1, 1),
}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, the names it reads, and how to evaluate it."""

    text: str
    names: frozenset[str]
    _evaluate: _Evaluate

    def __call__(self, env: Env, where: str = "") -> Number:
        """Its value with the names of `env`; `ExpressionError` names what is unknown, zero or too large."""
        try:
            return self._evaluate(env)
        except ExpressionError as failed:
            raise ExpressionError(failed.problem, where=where or failed.where, hint=failed.hint) from None


def parse_expression(text: str | int | float | bool, where: str = "") -> Expression:
    """Parse `text` (or take a number as it is); `ExpressionError` with the place of what is not allowed."""
    if isinstance(text, (bool, int, float)):
        value = _bounded(text, repr(text)[:40], where)
        return Expression(repr(text), frozenset(), lambda _env: value)
    return _parse(text, where)


@lru_cache(maxsize=4096)
def _parse(text: str, where: str) -> Expression:
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"an expression of {len(text):,} characters; at most {MAX_CHARACTERS:,}", where=where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's parser warns of `1if x`, on standard error
            tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as bad:
        raise _at(text, (bad.offset or 1) - 1, f"cannot be read: {bad.msg}", where) from None
    except (ValueError, RecursionError, MemoryError) as bad:
        raise ExpressionError(f"cannot be read: {type(bad).__name__}", where=where) from None
    names: set[str] = set()
    evaluate = _build(tree.body, text.strip(), where, names, 0)
    return Expression(text, frozenset(names), evaluate)


def _at(text: str, column: int, problem: str, where: str) -> ExpressionError:
    column = max(0, min(column, len(text)))
    start = max(0, column - 60)
    shown = text[start : column + 40].replace("\n", " ")
    return ExpressionError(problem, where=where, hint=f"  {shown}\n  {' ' * (column - start)}^")


def _bounded(value: Any, shown: str, where: str) -> Number:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError(f"{shown} is not a finite number", where=where)
    elif isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
        raise ExpressionError(f"{shown} does not fit 64 bits", where=where)
    elif not isinstance(value, int):
        raise ExpressionError(f"{shown} is not a number", where=where)
    number: Number = value
    return number


def _build(node: ast.expr, text: str, where: str, names: set[str], depth: int) -> _Evaluate:
    def fail(problem: str) -> ExpressionError:
        return _at(text, node.col_offset, problem, where)

    def sub(child: ast.expr) -> _Evaluate:
        return _build(child, text, where, names, depth + 1)

    if depth > MAX_DEPTH:
        raise fail(f"nested more than {MAX_DEPTH} deep")
    shown = (ast.get_source_segment(text, node) or text)[:60]
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = _bounded(node.value, shown, where)
        return lambda _env: value
    if isinstance(node, ast.Name):
        return _name(node, names, fail)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _binary(_BINARY[type(node.op)], sub(node.left), sub(node.right), shown, where, fail)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        inner = sub(node.operand)
        apply = _UNARY[type(node.op)]
        return lambda env: _bounded(apply(inner(env)), shown, where)
    if isinstance(node, ast.Compare):
        return _comparison(node, sub, fail)
    if isinstance(node, ast.BoolOp):
        parts = [sub(v) for v in node.values]
        if isinstance(node.op, ast.And):
            return lambda env: all(p(env) for p in parts)
        return lambda env: any(p(env) for p in parts)
    if isinstance(node, ast.IfExp):
        test, body, orelse = sub(node.test), sub(node.body), sub(node.orelse)
        return lambda env: body(env) if test(env) else orelse(env)
    if isinstance(node, ast.Call):
        return _call(node, sub, shown, where, fail)
    kind = "'**'" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) else repr(shown)
    raise fail(f"{kind} is not allowed in an expression")


def _name(node: ast.Name, names: set[str], fail: Callable[[str], ExpressionError]) -> _Evaluate:
    name = node.id
    if name in ("true", "false"):
        value = name == "true"
        return lambda _env: value
    names.add(name)

    def read(env: Env) -> Number:
        if name not in env:
            close = nearest(name, [*env, *FUNCTIONS])
            known = f"; did you mean {' or '.join(close)}?" if close else ""
            raise fail(f"unknown name {name!r}{known}")
        value = env[name]
        if value is None:
            raise fail(f"{name} is not known here")
        if not isinstance(value, (int, float)):
            raise fail(f"{name} is {value!r}, not a number")
        return value

    return read


def _binary(
    apply: Callable[[Any, Any], Any],
    left: _Evaluate,
    right: _Evaluate,
    shown: str,
    where: str,
    fail: Callable[[str], ExpressionError],
) -> _Evaluate:
    def run(env: Env) -> Number:
        try:
            return _bounded(apply(left(env), right(env)), shown, where)
        except ZeroDivisionError:
            raise fail(f"{shown}: division by zero") from None
        except OverflowError:
            raise fail(f"{shown}: too large") from None

    return run


def _comparison(
    node: ast.Compare, sub: Callable[[ast.expr], _Evaluate], fail: Callable[[str], ExpressionError]
) -> _Evaluate:
    if any(type(op) not in _COMPARE for op in node.ops):
        raise fail("only < <= > >= == != compare")
    parts = [sub(e) for e in (node.left, *node.comparators)]
    tests = [_COMPARE[type(op)] for op in node.ops]

    def run(env: Env) -> bool:
        values = [p(env) for p in parts]
        return all(test(a, b) for test, a, b in zip(tests, values, values[1:], strict=False))

    return run


def _call(
    node: ast.Call,
    sub: Callable[[ast.expr], _Evaluate],
    shown: str,
    where: str,
    fail: Callable[[str], ExpressionError],
) -> _Evaluate:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        called = node.func.id if isinstance(node.func, ast.Name) else shown
        raise fail(f"{called} is no function here; these are: {', '.join(FUNCTIONS)}")
    function, least, most = FUNCTIONS[node.func.id]
    if node.keywords or not least <= len(node.args) <= most:
        wanted = str(least) if least == most else f"{least} or more"
        raise fail(f"{node.func.id} takes {wanted} values, not {len(node.args) + len(node.keywords)}")
    parts = [sub(a) for a in node.args]

    def run(env: Env) -> Number:
        try:
            return _bounded(function(*(p(env) for p in parts)), shown, where)
        except ZeroDivisionError:
            raise fail(f"{shown}: division by zero") from None
        except (OverflowError, TypeError, ValueError) as bad:
            raise fail(f"{shown}: {bad}") from None

    return run
