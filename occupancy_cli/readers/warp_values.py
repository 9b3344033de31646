"""Integers of many lanes at once, of which some depend on data: what `warp_machine` computes addresses with.

A `Lanes` has 32 bits for each lane and, where a lane's value depends on what memory holds, a token for what is not
known: value = token part + bits. Tokens add and multiply as the values do, so that `row * 576 + 16` keeps its 16 and
two lanes with the same row keep the same token; of the token part it is known which power of two divides it. Anything
else makes a new token from all that went in: lanes with equal inputs have equal results. A value of which nothing is
known in any lane is None (`OPAQUE`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_KNOWN = 32
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Lanes:
    """32-bit values: `bits`, plus an unknown part where `token` is not 0, which 2 ** `align` divides.

    Arrays have one entry a lane, or a single one that holds for all.
    """

    bits: U32
    token: U64 | None = None
    align: int = _KNOWN

    @property
    def known(self) -> bool:
        """Whether no lane depends on data."""
        return self.token is None

    def unknown_lanes(self) -> Bools:
        """Where the value depends on data."""
        return np.zeros(self.bits.shape, dtype=bool) if self.token is None else self.token != 0


Value = Lanes | None
OPAQUE: Value = None


def constant(number: int) -> Lanes:
    """The same number in every lane."""
    return Lanes(np.array([number & 0xFFFFFFFF], dtype=np.uint32))


ZERO, ONE = constant(0), constant(1)


def signed(bits: U32) -> npt.NDArray[np.int64]:
    """The bits as two's complement numbers."""
    return bits.view(np.int32).astype(np.int64)


def mixed(*parts: U64 | np.uint64) -> U64:
    """A hash of several 64-bit numbers a lane (splitmix64), never 0."""
    with np.errstate(over="ignore"):
        state = np.zeros(1, dtype=np.uint64)
        for part in parts:
            state = (state + part) * _SPREAD + _FIRST
            state = (state ^ (state >> np.uint64(30))) * _FIRST
            state = (state ^ (state >> np.uint64(27))) * _SECOND
            state ^= state >> np.uint64(31)
    return np.asarray(state | np.uint64(1), dtype=np.uint64)


def salt(text: str) -> np.uint64:
    """A number for a name, the same in every run."""
    made: np.uint64 = np.uint64(zlib.crc32(text.encode()))
    return made


def of_tokens(token: U64, align: int = 0) -> Lanes:
    """Values of which only their token is known."""
    return _made(np.zeros(token.shape, dtype=np.uint32), token, align)


def _made(bits: U32, token: U64 | None, align: int) -> Lanes:
    if token is None or not token.any():
        return Lanes(bits)
    if token.shape != bits.shape:
        token, bits = (np.asarray(a) for a in np.broadcast_arrays(token, bits))
    return Lanes(bits, token, align)


def apply(name: str, function: Callable[..., U32], *values: Value) -> Value:
    """A function of the bits; where an input depends on data, a token made from all inputs."""
    tokens = []
    for value in values:
        if value is None:
            return OPAQUE
        if value.token is not None:
            tokens.append(value.token)
    bits = function(*(v.bits for v in values if v is not None))
    if not tokens:
        return Lanes(bits)
    unknown = tokens[0] != 0
    for token in tokens[1:]:
        unknown = unknown | (token != 0)
    parts: list[U64 | np.uint64] = [salt(name)]
    for value in values:
        if value is not None:
            parts.append(value.bits.astype(np.uint64))
            if value.token is not None:
                parts.append(value.token)
    token = np.where(unknown, mixed(*parts), np.uint64(0))
    return _made(np.where(unknown, np.uint32(0), bits), token, 0)


def _scaled(token: U64, factor: npt.NDArray[np.int64]) -> U64:
    with np.errstate(over="ignore"):
        return np.asarray(token * factor.astype(np.uint64), dtype=np.uint64)


def add(*values: Value) -> Value:
    """The sum, modulo 2 ** 32."""
    bits = np.zeros(1, dtype=np.uint32)
    token: U64 | None = None
    align = _KNOWN
    with np.errstate(over="ignore"):
        for value in values:
            if value is None:
                return OPAQUE
            bits = bits + value.bits
            if value.token is not None:
                token = value.token if token is None else token + value.token
                align = min(align, value.align)
    return _made(bits, token, align)


def negate(value: Value) -> Value:
    """Minus the value."""
    return multiply(value, constant(-1))


def invert(value: Value) -> Value:
    """All bits turned: -value - 1."""
    if value is None or value.token is None:
        return value if value is None else Lanes(~value.bits)
    return add(negate(value), constant(-1))


def _power_of_two(numbers: npt.NDArray[np.int64]) -> int:
    """The largest n such that 2 ** n divides every number."""
    joined = int(np.bitwise_or.reduce(numbers.ravel())) & 0xFFFFFFFF
    return _KNOWN if joined == 0 else (joined & -joined).bit_length() - 1


def multiply(a: Value, b: Value) -> Value:
    """The product, modulo 2 ** 32."""
    if a is None or b is None:
        return OPAQUE
    if a.token is not None and b.token is not None:
        return apply("product", lambda x, y: x * y, a, b)
    if b.token is not None:
        a, b = b, a
    with np.errstate(over="ignore"):
        bits = a.bits * b.bits
    if a.token is None:
        return Lanes(bits)
    factor = signed(b.bits)
    return _made(bits, _scaled(a.token, factor), min(a.align + _power_of_two(factor), 31))


def shift_left(a: Value, places: int) -> Value:
    """The value times 2 ** places."""
    return ZERO if places >= 32 else multiply(a, constant(1 << places))


def shift_right(a: Value, places: int, arithmetic: bool) -> Value:
    """The value over 2 ** places, rounded down. A token part that divides stays separate from the bits."""
    if a is None:
        return OPAQUE
    if a.token is not None and a.align >= places > 0:
        token = np.where(a.token != 0, mixed(a.token, np.uint64(places + 64 * arithmetic)), np.uint64(0))
        return _made(_shifted(a.bits, places, arithmetic), token, a.align - places)
    if places == 0:
        return a
    return apply(f"right {places} {arithmetic}", lambda bits: _shifted(bits, places, arithmetic), a)


def _shifted(bits: U32, places: int, arithmetic: bool) -> U32:
    if arithmetic:
        return np.asarray(bits.view(np.int32) >> np.int32(min(places, 31))).view(np.uint32)
    return np.asarray(bits >> np.uint32(places) if places < 32 else np.zeros_like(bits), dtype=np.uint32)


def lookup(a: Value, b: Value, c: Value, table: int) -> Value:
    """The bitwise function of three values that LOP3's table names: bit 4a + 2b + c of it.

    Where the token part of one value lies above all bits that the others decide, the low bits are computed as they are.
    """
    values = [v for v in (a, b, c) if v is not None]
    if len(values) < 3:
        return OPAQUE

    def bitwise(x: U32, y: U32, z: U32) -> U32:
        result = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), dtype=np.uint32)
        for place in range(8):
            if table >> place & 1:
                result |= (x if place & 4 else ~x) & (y if place & 2 else ~y) & (z if place & 1 else ~z)
        return result

    unknown = [i for i, v in enumerate(values) if v.token is not None]
    if len(unknown) == 1:
        held = values[unknown[0]]
        low = np.uint32((1 << min(held.align, 31)) - 1)
        zeros, ones = ([v.bits for v in values] for _ in range(2))
        zeros[unknown[0]], ones[unknown[0]] = np.zeros(1, np.uint32), np.full(1, 0xFFFFFFFF, np.uint32)
        off, on = bitwise(*zeros), bitwise(*ones)
        assert held.token is not None
        high_kept = bool(np.all((off & ~low) == 0)) and bool(np.all((on & ~low) == ~low))
        high_gone = bool(np.all((off & ~low) == (on & ~low)))
        if high_kept or high_gone:
            known = bitwise(*(v.bits for v in values))
            if high_gone:
                return Lanes((known & low) | (off & ~low))
            return _made((known & low) | (held.bits & ~low), held.token, held.align)
    return apply(f"lut {table}", bitwise, *values)


def choose(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where the condition is not 0, else `no`; a token of all three where the condition depends on data."""
    if condition is None or yes is None or no is None:
        return OPAQUE
    if condition.token is not None:
        picked = apply("choose", _chosen, condition, yes, no)
        if picked is None or picked.token is None:
            return picked
        align = min(yes.align, no.align, _power_of_two(signed(yes.bits)), _power_of_two(signed(no.bits)), 31)
        return Lanes(picked.bits, picked.token, align)
    where = condition.bits != 0
    bits = np.where(where, yes.bits, no.bits)
    if yes.token is None and no.token is None:
        return Lanes(bits)
    nothing = np.zeros(1, dtype=np.uint64)
    left = nothing if yes.token is None else yes.token
    right = nothing if no.token is None else no.token
    return _made(bits, np.where(where, left, right), min(yes.align, no.align))


def _chosen(condition: U32, yes: U32, no: U32) -> U32:
    return np.where(condition != 0, yes, no)


def merge(mask: Bools, new: Value, old: Value, unlike: Callable[[], U64]) -> Value:
    """`new` in the lanes of the mask, `old` in the others; `unlike` makes tokens for lanes that are opaque."""
    if new is None and old is None:
        return OPAQUE
    new, old = (of_tokens(unlike()) if v is None else v for v in (new, old))
    return choose(Lanes(mask.astype(np.uint32)), new, old)
