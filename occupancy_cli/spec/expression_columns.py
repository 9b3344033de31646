"""Expressions over columns: one value a row, thousands of rows at once, each as `expressions` gives it alone.

A column is an array of 64-bit integers, of floats or of truth values, or of Python's own values where they are of
several kinds. NumPy stands in for Python's arithmetic only where both give the same value of the same kind: integers
below 2**53, no division by zero, no floor of floats. Any doubt, and each distinct row is evaluated by itself, so that
errors are the same too. Apart from `expressions`, since most runs need no NumPy.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.spec.expressions import FUNCTIONS, Expression, ceil_div

Column = npt.NDArray[Any]
Value = Any  # a scalar of Python's, or a column
Ints = npt.NDArray[np.int64]

_EXACT = 2**53  # integers below it are floats too


class _Doubt(Exception):
    """NumPy might give another value than Python."""


def is_column(value: Any) -> bool:
    """Whether a value is a column; everything else is one value for all rows."""
    return isinstance(value, np.ndarray)


def column_of(values: Sequence[Any]) -> Column:
    """Python's values as a column."""
    kinds = {type(v) for v in values}
    for kind, dtype in ((int, np.int64), (float, np.float64), (bool, np.bool_)):
        if kinds == {kind} and (kind is not int or all(-(2**63) <= v < 2**63 for v in values)):
            return np.array(values, dtype=dtype)
    found = np.empty(len(values), dtype=object)
    found[:] = list(values)
    return found


def take(value: Value, rows: Ints) -> Value:
    """The rows of a column; a single value as it is."""
    return value[rows] if is_column(value) else value


def at(value: Value, row: int) -> Any:
    """Python's own value at a row."""
    if not is_column(value):
        return value
    found = value[row]
    return found.item() if isinstance(found, np.generic) else found


def spread(value: Value, rows: int) -> Column:
    """A column of `rows` rows, whatever the value is."""
    return value if is_column(value) else column_of([value]).repeat(rows)


def codes(columns: Sequence[Column], rows: int) -> Ints:
    """A number for each row, the same for rows that agree in every column."""
    found = np.zeros(rows, dtype=np.int64)
    for column in columns:
        if column.dtype == object:
            seen: dict[Any, int] = {}
            inverse = np.array([seen.setdefault((type(v), repr(v)), len(seen)) for v in column], dtype=np.int64)
            most = len(seen)
        else:
            distinct, inverse = np.unique(column, return_inverse=True)
            most = len(distinct)
        if most > 1:
            found = np.unique(found * most + inverse, return_inverse=True)[1]
    return found.reshape(rows)


def evaluate(expression: Expression, env: Mapping[str, Value], where: str = "") -> Value:
    """The expression's value with the names of `env`: a column as soon as one of the names it reads is a column."""
    columns = {name: env[name] for name in expression.names if is_column(env.get(name))}
    if not columns:
        return expression(env, where)
    try:
        for column in columns.values():
            _check(column)
        found = _vector(_tree(expression.text), env)
    except _Doubt:
        return _one_by_one(expression, env, columns, where)
    return spread(found, len(next(iter(columns.values()))))


def _one_by_one(expression: Expression, env: Mapping[str, Value], columns: Mapping[str, Column], where: str) -> Column:
    """Each distinct row by Python, in order, so that the first row at fault is the one whose error is raised."""
    known: dict[tuple[Any, ...], Any] = {}
    names = dict(env)
    values = []
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        same = tuple((type(v), v) for v in row)
        if same not in known:
            names.update(zip(columns, row, strict=True))
            known[same] = expression(names, where)
        values.append(known[same])
    return column_of(values)


@lru_cache(maxsize=4096)
def _tree(text: str) -> ast.expr:
    """The syntax of an expression that was parsed, and so found to be one, before."""
    return ast.parse(text.strip(), mode="eval").body


def _kind(value: Value) -> str:
    """`b`, `i` or `f`."""
    if is_column(value):
        return str(value.dtype.kind)
    return "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"


def _check(value: Value) -> Value:
    """`value`, if all of it lies where NumPy and Python agree."""
    kind = _kind(value)
    if kind == "i":
        low, high = (value.min(initial=0), value.max(initial=0)) if is_column(value) else (value, value)
        if low <= -_EXACT or high >= _EXACT:
            raise _Doubt
    elif kind == "f":
        if not np.all(np.isfinite(value)):
            raise _Doubt
    elif kind != "b":
        raise _Doubt
    return value


def _number(value: Value) -> Value:
    """A truth value as the integer that Python takes it for in arithmetic."""
    if _kind(value) != "b":
        return value
    return value.astype(np.int64) if is_column(value) else int(value)


def _most(value: Value) -> int:
    return int(np.max(np.abs(value), initial=0)) if is_column(value) else abs(int(value))


def _vector(node: ast.expr, env: Mapping[str, Value]) -> Value:
    """The value of a part of an expression; `_Doubt` where NumPy might differ from Python."""
    if isinstance(node, ast.Constant):
        return _check(node.value)
    if isinstance(node, ast.Name):
        if node.id in ("true", "false"):
            return node.id == "true"
        value = env.get(node.id)
        if not is_column(value) and not isinstance(value, (int, float)):
            raise _Doubt
        return _check(value)
    if isinstance(node, ast.BinOp):
        return _binary(node.op, _number(_vector(node.left, env)), _number(_vector(node.right, env)))
    if isinstance(node, ast.UnaryOp):
        inner = _vector(node.operand, env)
        if isinstance(node.op, ast.Not):
            return np.logical_not(inner) if is_column(inner) else not inner
        return -_number(inner) if isinstance(node.op, ast.USub) else _number(inner)
    if isinstance(node, ast.Compare):
        values = [_vector(part, env) for part in (node.left, *node.comparators)]
        held: Value = True
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            held = np.logical_and(held, _COMPARE[type(op)](_number(left), _number(right)))
        return held if is_column(held) else bool(held)
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        held = isinstance(node.op, ast.And)
        for part in node.values:
            held = join(held, _vector(part, env))
        return held if is_column(held) else bool(held)
    if isinstance(node, ast.IfExp):
        test, *both = (_vector(part, env) for part in (node.test, node.body, node.orelse))
        if not is_column(test):
            return both[0] if test else both[1]
        _same_kind(both)
        return np.where(test != 0, *both)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, [_vector(part, env) for part in node.args])
    raise _Doubt


_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


def _same_kind(values: Sequence[Value]) -> None:
    """Python keeps the kind of the value that it chooses; a column has one kind."""
    if len({_kind(v) for v in values}) > 1:
        raise _Doubt


def _binary(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and not np.all(right):
        raise _Doubt
    if isinstance(op, ast.Div):
        return _check(left / right)
    whole = _kind(left) == _kind(right) == "i"
    if isinstance(op, (ast.FloorDiv, ast.Mod)):
        if not whole:
            raise _Doubt
        return left // right if isinstance(op, ast.FloorDiv) else left % right
    product = isinstance(op, ast.Mult)
    if whole and (_most(left) * _most(right) if product else _most(left) + _most(right)) >= _EXACT:
        raise _Doubt
    found = left * right if product else left + right if isinstance(op, ast.Add) else left - right
    return found if whole else _check(found)


def _call(name: str, values: list[Value]) -> Value:
    if not any(is_column(v) for v in values):
        try:
            return _check(FUNCTIONS[name][0](*values))
        except (ZeroDivisionError, OverflowError, TypeError, ValueError):
            raise _Doubt from None
    _same_kind(values)
    if name == "clamp":
        value, low, high = values
        return np.maximum(low, np.minimum(value, high))
    if name in ("min", "max"):
        least = np.minimum if name == "min" else np.maximum
        found = values[0]
        for value in values[1:]:
            found = least(found, value)
        return found
    if name == "abs":
        return np.abs(_number(values[0]))
    if _kind(values[0]) != "i":
        raise _Doubt
    if name == "ceil_div":
        if not np.all(values[1]):
            raise _Doubt
        return ceil_div(values[0], values[1])
    if name == "next_power_of_2":
        # Of a whole number below 2**53, the exponent that frexp gives is its length in bits.
        return np.left_shift(np.int64(1), np.frexp(np.maximum(values[0] - 1, 0).astype(float))[1].astype(np.int64))
    raise _Doubt
