"""For which other values of the arguments something holds that was evaluated for one launch: `row % m` over rows below
64 is `row` for every m from 64 on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Holds:
    """Something that is so for every launch in which an expression of the arguments lies in [`low`, `high`] (None: no
    bound). `exactly` pairs the arguments that it depends on with their values, for one whose `expression` is None."""

    expression: str | None
    low: int | None
    high: int | None
    exactly: tuple[tuple[str, int], ...]


def range_of(kind: str, x: Ints, s: int, first: bool) -> tuple[int | None, int | None] | None:
    """For which values of the scalar `s` an operation with the integers `x` comes to what it does; None: this alone.

    `first`: the scalar is the operation's first operand.
    """
    low, high = int(x.min()), int(x.max())
    if kind == "muli" and low == high == 0:
        return None, None
    if kind in ("divsi", "divui", "floordivsi", "remsi", "remui") and not first and low >= 0:
        return (high + 1, None) if s > high else None  # all of x lie below: quotients 0, remainders x
    if kind in ("minsi", "minui"):
        return (high, None) if s >= high else None
    if kind in ("maxsi", "maxui"):
        return (None, low) if s <= low else None
    return None


def range_compared(x: Ints, s: int) -> tuple[int | None, int | None]:
    """The values that compare with every one of the integers `x` as `s` does."""
    if np.any(x == s):
        return s, s
    below, above = x[x < s], x[x > s]
    return int(below.max()) + 1 if below.size else None, int(above.min()) - 1 if above.size else None
