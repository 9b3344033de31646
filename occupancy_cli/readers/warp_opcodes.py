"""What the integer instructions of SASS compute: a function for each, which reads and writes `Registers`.

The meaning of each is that of its name in the instruction set reference of "CUDA Binary Utilities" and of the PTX
instruction it is made from (PTX ISA: lop3, shf, prmt, mad.hi, szext). Instructions without a function here (floating
point, products) leave their destination opaque.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from occupancy_cli.readers.sass_operands import Operand
from occupancy_cli.readers.warp_values import (
    ONE,
    OPAQUE,
    U32,
    ZERO,
    Value,
    add,
    apply,
    choose,
    constant,
    invert,
    lookup,
    multiply,
    shift_left,
    shift_right,
    signed,
)


class Registers(Protocol):
    """Where operands are read and results written."""

    def read(self, operand: Operand) -> Value: ...
    def pair(self, operand: Operand) -> tuple[Value, Value]: ...
    def write(self, operand: Operand, value: Value) -> None: ...
    def write_pair(self, operand: Operand, low: Value, high: Value) -> None: ...
    def register(self, name: str) -> Value: ...


Modifiers = frozenset[str]
Handler = Callable[[Registers, Modifiers, Sequence[Operand]], None]


def _u64(low: U32, high: U32) -> npt.NDArray[np.uint64]:
    return np.asarray(low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32)), dtype=np.uint64)


def _u32(value: npt.NDArray[np.generic]) -> U32:
    return np.asarray(value).astype(np.uint64).astype(np.uint32)


def single(value: Value) -> int | None:
    """The number that a value is in every lane, where it is one."""
    if value is None or value.token is not None:
        return None
    first = int(value.bits.flat[0])
    return first if bool(np.all(value.bits == first)) else None


def _plain(registers: Registers, operand: Operand) -> Value:
    """A source without its sign."""
    return registers.read(Operand(**{**operand.__dict__, "sign": ""})) if operand.sign else registers.read(operand)


def _split(ops: Sequence[Operand]) -> tuple[Operand, list[Operand], list[Operand]]:
    """(destination, predicate destinations, the rest) of `R2, P0, a, b` and of `R2, a, b`."""
    predicates = []
    rest = list(ops[1:])
    while rest and rest[0].kind == "predicate":
        predicates.append(rest.pop(0))
    return ops[0], predicates, rest


def _multiply_high(is_unsigned: bool, a: Value, b: Value, low: Value, high: Value) -> Value:
    def compute(x: U32, y: U32, c: U32, d: U32) -> U32:
        with np.errstate(over="ignore"):
            if is_unsigned:
                total = x.astype(np.uint64) * y.astype(np.uint64)
                upper = (total >> np.uint64(32)) + d
            else:
                total = (signed(x) * signed(y)).view(np.uint64)
                upper = (total >> np.uint64(32)) + d
            carry = ((total & np.uint64(0xFFFFFFFF)) + c) >> np.uint64(32)
            return _u32(upper + carry)

    return apply(f"high product {is_unsigned}", compute, a, b, low, high)


def _imad(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    target, predicates, rest = _split(ops)
    if "MOV" in modifiers or len(rest) < 3:
        registers.write(target, registers.read(rest[-1]))
        return
    a, b = registers.read(rest[0]), registers.read(rest[1])
    if "HI" in modifiers or "WIDE" in modifiers:
        low, high = registers.pair(rest[2])
        upper = _multiply_high("U32" in modifiers, a, b, low, high)
        if "HI" in modifiers:
            registers.write(target, upper)
        else:
            registers.write_pair(target, add(multiply(a, b), low), upper)
        for each in predicates:
            registers.write(each, OPAQUE)
        return
    carry = registers.read(rest[3]) if "X" in modifiers and len(rest) > 3 else ZERO
    addend = registers.read(rest[2])
    if "X" in modifiers and rest[2].sign == "-":
        addend = invert(_plain(registers, rest[2]))
    registers.write(target, add(multiply(a, b), addend, carry))


def _carries(values: Sequence[Value], minus: Sequence[bool]) -> tuple[Value, Value]:
    def over(*bits: U32) -> npt.NDArray[np.uint64]:
        total = np.zeros(1, dtype=np.uint64)
        for each, negative in zip(bits, minus, strict=True):
            total = total + ((~each).astype(np.uint64) + np.uint64(1) if negative else each.astype(np.uint64))
        return np.asarray(total >> np.uint64(32))

    first = apply("carry", lambda *bits: _u32(over(*bits) > 0), *values)
    return first, apply("second carry", lambda *bits: _u32(over(*bits) > 1), *values)


def _iadd3(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    target, predicates, rest = _split(ops)
    terms = [each for each in rest if each.kind != "predicate"]
    carries = [registers.read(each) for each in rest if each.kind == "predicate"] if "X" in modifiers else []
    if "X" in modifiers:
        values = [invert(_plain(registers, t)) if t.sign in ("~", "-") else registers.read(t) for t in terms]
        minus = [False] * len(terms)
        total = add(*values, *carries)
    else:
        values = [_plain(registers, t) for t in terms]
        minus = [t.sign == "-" for t in terms]
        total = add(*(multiply(v, constant(-1)) if m else v for v, m in zip(values, minus, strict=True)))
    registers.write(target, total)
    if predicates:
        found = _carries([*values, *carries], [*minus, *(False for _ in carries)])
        for each, value in zip(predicates, found, strict=False):
            registers.write(each, value)


def _shift_pair(low: Value, high: Value, places: int, modifiers: Modifiers, left: bool) -> Value:
    """One half of high:low shifted; the upper half with HI."""
    arithmetic = "S32" in modifiers or "S64" in modifiers
    if left:
        if "HI" not in modifiers:
            return shift_left(low, places)
        if places == 0:
            return high
        below = shift_right(low, 32 - places, False) if places < 32 else shift_left(low, places - 32)
        return add(shift_left(high, places), below)
    if "HI" in modifiers:
        return shift_right(high, places, arithmetic)
    if places == 0:
        return low
    if places >= 32:
        return shift_right(high, places - 32, arithmetic)
    return add(shift_right(low, places, False), shift_left(high, 32 - places))


def _lea(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    target, predicates, rest = _split(ops)
    carry = registers.read(rest.pop()) if "X" in modifiers and rest[-1].kind == "predicate" else ZERO
    places = single(registers.read(rest[-1]))
    a, b = registers.read(rest[0]), registers.read(rest[1])
    if places is None:
        registers.write(target, OPAQUE)
        return
    if "HI" not in modifiers:
        shifted = shift_left(a, places)
    elif "SX32" in modifiers:
        shifted = _shift_pair(a, shift_right(a, 31, True), places, frozenset({"HI"}), True)
    else:
        c = registers.read(rest[2]) if len(rest) > 3 else ZERO
        shifted = _shift_pair(a, c, places, frozenset({"HI"}), True)
    registers.write(target, add(shifted, b, carry))
    if predicates:
        registers.write(predicates[0], _carries([shifted, b, carry], [False] * 3)[0])


def _shf(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    low, amount, high = (registers.read(each) for each in ops[1:4])
    places = single(amount)
    left = "L" in modifiers
    if places is not None:
        most = 63 if "W" in modifiers and modifiers & {"U64", "S64"} else 31
        places = places & most if "W" in modifiers else min(places, 64)
        registers.write(ops[0], _shift_pair(low, high, places, modifiers, left))
        return
    if modifiers & {"U64", "S64"} or left != ("HI" not in modifiers):
        registers.write(ops[0], OPAQUE)
        return
    arithmetic = "S32" in modifiers

    def compute(x: U32, n: U32) -> U32:
        count = n.astype(np.int64)
        wide = (signed(x) if arithmetic else x.astype(np.int64)) if not left else x.astype(np.int64)
        limit = np.minimum(count & 31 if "W" in modifiers else count, 32)
        return _u32((wide << limit) if left else (wide >> np.minimum(limit, 62)))

    registers.write(ops[0], apply(f"shift {sorted(modifiers)}", compute, low if left else high, amount))


def _lop3(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    targets = [ops[0]]
    rest = list(ops[1:])
    if ops[0].kind == "predicate":
        targets.append(rest.pop(0))
    tables = [i for i, each in enumerate(rest) if each.kind == "number"]
    place = tables[-1]
    sources = [registers.read(each) for each in rest[:place]][-3:]
    while len(sources) < 3:
        sources.append(ZERO)
    value = lookup(sources[0], sources[1], sources[2], rest[place].number & 0xFF)
    for each in targets:
        if each.kind == "predicate":
            registers.write(each, apply("not 0", lambda bits: _u32(bits != 0), value))
        else:
            registers.write(each, value)


def _plop3(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    sources = [registers.read(each) for each in ops[2:5]]
    for target, table in zip(ops[:2], ops[5:7], strict=False):
        value = lookup(sources[0], sources[1], sources[2], table.number & 0xFF)
        registers.write(target, lookup(value, ONE, ZERO, 0xF0 & 0xCC))


_COMPARISONS: dict[str, Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.bool_]]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}
_JOINS = {"AND": 0xC0, "OR": 0xFC, "XOR": 0x3C}


def _isetp(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    a, b, joined = registers.read(ops[2]), registers.read(ops[3]), registers.read(ops[4])
    kind = next(m for m in _COMPARISONS if m in modifiers)
    join = next((table for m, table in _JOINS.items() if m in modifiers), 0xC0)
    is_unsigned = "U32" in modifiers
    compare = _COMPARISONS[kind]

    def number(bits: U32) -> npt.NDArray[np.int64]:
        return bits.astype(np.int64) if is_unsigned else signed(bits)

    if "EX" in modifiers:
        lower = registers.read(ops[5])

        def extended(x: U32, y: U32, low: U32) -> U32:
            p, q = number(x), number(y)
            if kind == "NE":
                return _u32((p != q) | (low != 0))
            strict = _COMPARISONS.get(kind[0] + "T", compare)
            return _u32(((p == q) & (low != 0)) | (strict(p, q) if kind != "EQ" else np.zeros(1, dtype=bool)))

        result = apply(f"compare {sorted(modifiers)}", extended, a, b, lower)
    else:
        result = apply(f"compare {sorted(modifiers)}", lambda x, y: _u32(compare(number(x), number(y))), a, b)
    registers.write(ops[0], lookup(result, joined, ZERO, join))
    opposite = apply("not", lambda bits: _u32(bits == 0), result)
    registers.write(ops[1], lookup(opposite, joined, ZERO, join))


def _select(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    if ops[1].sign or ops[2].sign:  # of a float
        registers.write(ops[0], OPAQUE)
        return
    registers.write(ops[0], choose(registers.read(ops[3]), registers.read(ops[1]), registers.read(ops[2])))


def _prmt(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    a, selector, b = (registers.read(each) for each in ops[1:4])

    def compute(x: U32, s: U32, y: U32) -> U32:
        joined = _u64(x, y)
        result = np.zeros(np.broadcast_shapes(joined.shape, s.shape), dtype=np.uint64)
        for place in range(4):
            nibble = (s >> np.uint32(4 * place)).astype(np.uint64) & np.uint64(15)
            byte = (joined >> ((nibble & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
            sign = np.where(byte >> np.uint64(7) & np.uint64(1), np.uint64(0xFF), np.uint64(0))
            result = result | (np.where(nibble & np.uint64(8), sign, byte) << np.uint64(8 * place))
        return _u32(result)

    registers.write(ops[0], apply("prmt", compute, a, selector, b) if not modifiers else OPAQUE)


def _sgxt(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    value, width = registers.read(ops[1]), single(registers.read(ops[2]))
    if width is None:
        registers.write(ops[0], OPAQUE)
    elif "U32" in modifiers:
        registers.write(ops[0], lookup(value, constant((1 << width) - 1), ZERO, 0xC0) if width < 32 else value)
    else:
        places = 32 - width
        registers.write(ops[0], shift_right(shift_left(value, places), places, True) if 0 < places < 32 else value)


def _move(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    if "64" in modifiers:
        registers.write_pair(ops[0], *registers.pair(ops[-1]))
    else:
        # MOV R1, c[0x0][0x28], and UMOV; MOV's lane mask, where one is printed, is all lanes.
        registers.write(ops[0], registers.read(ops[1]))


def _special(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    value = registers.read(ops[1])
    if modifiers & {"32"} or ops[0].name.startswith("U"):
        registers.write(ops[0], value)
    else:
        registers.write_pair(ops[0], value, ZERO if ops[1].name == "SRZ" else OPAQUE)


def _half_constant(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    """HFMA2 with zeros for factors is how the compiler moves a constant: two halves, the upper one first."""
    halves = ops[3:5]
    factors = ops[1:3]
    if len(halves) < 2 or any(f.name not in ("RZ",) for f in factors):
        registers.write(ops[0], OPAQUE)
        return
    try:
        upper, lower = (_half_bits(each, "BF16_V2" in modifiers) for each in halves)
    except ValueError:
        registers.write(ops[0], OPAQUE)
        return
    registers.write(ops[0], constant(upper << 16 | lower))


def _half_bits(operand: Operand, bf16: bool) -> int:
    if operand.kind == "register" and operand.name == "RZ":
        return 0
    number = float(operand.name if operand.kind == "other" else operand.number) * (-1 if operand.sign == "-" else 1)
    if bf16:
        return int(struct.unpack("<I", struct.pack("<f", number))[0]) >> 16
    return int(np.array(number, dtype=np.float16).view(np.uint16))


def _minimum(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    _, _, rest = _split(ops)
    registers.write(ops[0], _least(registers, modifiers, registers.read(rest[0]), rest[1], rest[2]))


def _add_minimum(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    _, _, rest = _split(ops)
    total = add(registers.read(rest[0]), registers.read(rest[1]))
    registers.write(ops[0], _least(registers, modifiers, total, rest[2], rest[3]))


def _least(registers: Registers, modifiers: Modifiers, a: Value, other: Operand, which: Operand) -> Value:
    b = registers.read(other)
    is_unsigned = "U32" in modifiers

    def compute(x: U32, y: U32, p: U32) -> U32:
        m, n = (x, y) if is_unsigned else (signed(x), signed(y))
        return _u32(np.where(p != 0, np.minimum(m, n), np.maximum(m, n)))

    return apply(f"least {is_unsigned}", compute, a, b, registers.read(which))


def _absolute(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    registers.write(ops[0], apply("abs", lambda bits: _u32(np.abs(signed(bits))), registers.read(ops[1])))


def _count(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    def compute(bits: U32) -> U32:
        return _u32(np.unpackbits(bits.view(np.uint8).reshape(-1, 4), axis=1).sum(axis=1))

    registers.write(ops[0], apply("popc", compute, registers.read(ops[-1])))


def _leading(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    if "SH" in modifiers or "U32" not in modifiers:
        registers.write(ops[0], OPAQUE)
        return

    def compute(bits: U32) -> U32:
        exponent = np.frexp(bits.astype(np.float64))[1] - 1
        return np.where(bits == 0, np.uint32(0xFFFFFFFF), exponent.astype(np.uint32))

    registers.write(ops[0], apply("flo", compute, registers.read(ops[-1])))


def _reversed_bits(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    def compute(bits: U32) -> U32:
        result = np.zeros_like(bits)
        for place in range(32):
            result |= (bits >> np.uint32(place) & np.uint32(1)) << np.uint32(31 - place)
        return result

    registers.write(ops[0], apply("brev", compute, registers.read(ops[-1])))


def _to_float(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    """I2F: to float32; with RP rounded up, as integer division needs it."""
    if modifiers & {"BF16", "F16", "F64", "U64", "S64", "U16", "S16", "U8", "S8", "RM", "RZ"}:
        registers.write(ops[0], OPAQUE)
        return
    is_unsigned = "U32" in modifiers

    def compute(bits: U32) -> U32:
        exact = (bits.astype(np.int64) if is_unsigned else signed(bits)).astype(np.float64)
        near = exact.astype(np.float32)
        if "RP" in modifiers:
            near = np.where(near.astype(np.float64) < exact, np.nextafter(near, np.float32(np.inf)), near)
        return np.asarray(near, dtype=np.float32).view(np.uint32)

    registers.write(ops[0], apply(f"i2f {sorted(modifiers)}", compute, registers.read(ops[1])))


def _reciprocal(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    def compute(bits: U32) -> U32:
        with np.errstate(all="ignore"):
            return np.asarray(np.float32(1) / bits.view(np.float32), dtype=np.float32).view(np.uint32)

    registers.write(ops[0], apply("rcp", compute, registers.read(ops[1])) if modifiers == {"RCP"} else OPAQUE)


def _to_integer(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    if not {"TRUNC", "NTZ"} <= modifiers or modifiers & {"F64", "F16", "S64", "U64"}:
        registers.write(ops[0], OPAQUE)
        return

    def compute(bits: U32) -> U32:
        with np.errstate(all="ignore"):
            number = np.nan_to_num(np.trunc(bits.view(np.float32).astype(np.float64)))
            if "U32" in modifiers:
                return _u32(np.clip(number, 0, 2**32 - 1))
            return np.asarray(np.clip(number, -(2**31), 2**31 - 1)).astype(np.int64).astype(np.uint32)

    registers.write(ops[0], apply(f"f2i {sorted(modifiers)}", compute, registers.read(ops[1])))


def _predicates_to_register(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    """P2R R0, PR, R1, mask: bit i of the mask takes predicate i, the others R1's bit."""
    mask = single(registers.read(ops[3]))
    if mask is None or ops[2].suffixes or modifiers:
        registers.write(ops[0], OPAQUE)
        return
    value = lookup(registers.read(ops[2]), constant(mask), ZERO, 0x30)
    for place in range(7):
        if mask >> place & 1:
            value = add(value, shift_left(registers.register(f"P{place}"), place))
    registers.write(ops[0], value)


def _register_to_predicates(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    mask = single(registers.read(ops[2]))
    value = registers.read(ops[1]) if not ops[1].suffixes and not modifiers else OPAQUE
    for place in range(7):
        if mask is None or mask >> place & 1:
            bit = lookup(shift_right(value, place, False), ONE, ZERO, 0xC0)
            registers.write(Operand("predicate", f"P{place}"), bit)


def _to_uniform(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    registers.write(ops[-2], registers.read(ops[-1]))


def _sum_of_two(registers: Registers, modifiers: Modifiers, ops: Sequence[Operand]) -> None:
    target, _, rest = _split(ops)
    if "64" in modifiers:
        registers.write_pair(target, OPAQUE, OPAQUE)
    else:
        registers.write(target, add(registers.read(rest[0]), registers.read(rest[1])))


HANDLERS: dict[str, Handler] = {
    "IMAD": _imad, "IADD3": _iadd3, "LEA": _lea, "SHF": _shf, "LOP3": _lop3, "PLOP3": _plop3, "ISETP": _isetp,
    "SEL": _select, "FSEL": _select, "PRMT": _prmt, "SGXT": _sgxt, "MOV": _move, "LDC": _move, "LDCU": _move,
    "ULDC": _move, "S2R": _move, "S2UR": _move, "CS2R": _special, "HFMA2": _half_constant, "IMNMX": _minimum,
    "VIMNMX": _minimum, "VIADDMNMX": _add_minimum, "IABS": _absolute, "POPC": _count, "FLO": _leading,
    "BREV": _reversed_bits, "I2F": _to_float, "I2FP": _to_float, "MUFU": _reciprocal, "F2I": _to_integer,
    "P2R": _predicates_to_register, "R2P": _register_to_predicates, "R2UR": _to_uniform, "VIADD": _sum_of_two,
    "IADD": _sum_of_two,
}  # fmt: skip
for _name in ("IMAD", "IADD3", "LEA", "SHF", "LOP3", "PLOP3", "ISETP", "SEL", "PRMT", "SGXT", "MOV", "IABS",
              "IMNMX", "VIMNMX", "POPC", "FLO", "BREV", "VIADD"):  # fmt: skip
    HANDLERS[f"U{_name}"] = HANDLERS[_name]
