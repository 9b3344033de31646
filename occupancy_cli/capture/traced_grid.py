"""How a grid function computes its axes: run once more with integers that remember what was done with them.

`lambda meta: (triton.cdiv(n, meta["BLOCK"]),)` gives `ceil_div(4096, BLOCK)`: what comes from `meta` keeps its name,
what the function has from elsewhere is a number. A result that depends on a comparison, or on anything but sums,
products and quotients, is only right for the values at hand; whoever uses the text checks it on all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_CHARACTERS = 600
_WEAK, _STRONG, _ATOM = 1, 2, 3  # sums, products, names and calls


class TracedInt(int):
    """An integer with the expression it came from."""

    text: str
    strength: int
    parts: tuple[Any, ...]

    def __new__(cls, value: int, text: str, strength: int = _ATOM, parts: tuple[Any, ...] = ()) -> TracedInt:
        self = super().__new__(cls, value)
        self.text, self.strength, self.parts = text, strength, parts
        return self

    def __add__(self, other: Any) -> Any:
        return _made("+", self, other, int.__add__)

    def __radd__(self, other: Any) -> Any:
        return _made("+", other, self, int.__add__)

    def __sub__(self, other: Any) -> Any:
        return _made("-", self, other, int.__sub__)

    def __rsub__(self, other: Any) -> Any:
        return _made("-", other, self, int.__sub__)

    def __mul__(self, other: Any) -> Any:
        return _made("*", self, other, int.__mul__)

    def __rmul__(self, other: Any) -> Any:
        return _made("*", other, self, int.__mul__)

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        return _made("%", self, other, int.__mod__)

    def __rmod__(self, other: Any) -> Any:
        return _made("%", other, self, int.__mod__)

    def __neg__(self) -> Any:
        if len(self.parts) == 3 and self.parts[0] == "//" and isinstance(self.parts[1], TracedInt):
            _sign, above, below = self.parts
            if above.parts[:1] == ("neg",):  # -(-x // y)
                return TracedInt(-int(self), f"ceil_div({_text(above.parts[1])}, {_text(below)})")
        return TracedInt(-int(self), f"-{_wrapped(self, _ATOM)}", _STRONG, ("neg", self))

    def __pos__(self) -> Any:
        return self

    def __index__(self) -> int:
        return int(self)

    __hash__ = int.__hash__


def _text(value: Any) -> str:
    return value.text if isinstance(value, TracedInt) else repr(int(value))


def _wrapped(value: Any, least: int) -> str:
    strength = value.strength if isinstance(value, TracedInt) else (_ATOM if int(value) >= 0 else _WEAK)
    return _text(value) if strength >= least else f"({_text(value)})"


def _made(sign: str, left: Any, right: Any, compute: Callable[[int, int], int]) -> Any:
    if type(left) not in (int, TracedInt) or type(right) not in (int, TracedInt):
        return NotImplemented
    value = compute(int(left), int(right))
    if sign in "+-":
        text = f"{_wrapped(left, _WEAK)} {sign} {_wrapped(right, _WEAK if sign == '+' else _STRONG)}"
        return TracedInt(value, text, _WEAK, (sign, left, right))
    text = f"{_wrapped(left, _STRONG)} {sign} {_wrapped(right, _ATOM)}"
    return TracedInt(value, text, _STRONG, (sign, left, right))


def _quotient(left: Any, right: Any) -> Any:
    made = _made("//", left, right, int.__floordiv__)
    if made is NotImplemented:
        return made
    up = _rounded_up(left, right)
    if up is None:
        return made
    return TracedInt(int(made), f"ceil_div({_text(up)}, {_text(right)})", _ATOM, made.parts)


def _rounded_up(left: Any, right: Any) -> Any:
    """x, where left is x + right - 1 in one of the ways to write it."""
    if not isinstance(left, TracedInt) or len(left.parts) != 3:
        return None
    sign, a, b = left.parts
    if sign == "-" and _text(b) == "1" and isinstance(a, TracedInt) and len(a.parts) == 3 and a.parts[0] == "+":
        for x, y in (a.parts[1:], a.parts[:0:-1]):
            if _text(y) == _text(right):
                return x
    if sign == "+":
        for x, y in ((a, b), (b, a)):
            if isinstance(y, TracedInt) and len(y.parts) == 3:
                if y.parts[0] == "-" and _text(y.parts[1]) == _text(right) and _text(y.parts[2]) == "1":
                    return x
            elif not isinstance(right, TracedInt) and type(y) is int and y == right - 1:
                return x
    return None


def traced_axes(grid: Callable[[Mapping[str, Any]], Any], bound: Mapping[str, Any]) -> Sequence[str | None]:
    """The text of each axis, None where it has none or an error comes up."""
    names = {n: TracedInt(int(v), n) if type(v) is int else v for n, v in bound.items()}
    try:
        result = grid(names)
    except Exception:  # noqa: BLE001 (a grid function that cannot do with these integers is used as it was)
        return ()
    axes = result if isinstance(result, (tuple, list)) else (result,)
    return [_text(a) if isinstance(a, TracedInt) and len(a.text) <= MAX_CHARACTERS else None for a in axes]
