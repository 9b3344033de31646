"""How often the lanes of a shared-memory instruction meet in one bank: their addresses, worked out from the SASS.

Addresses of shared memory are integer arithmetic on the thread's number: shifts, masks, swizzles. They are evaluated
here for every thread of a CTA, in the order of the code, once: what is the same for all threads (arguments, CTA numbers,
uniform registers) counts as 0, since it moves all lanes alike, and what comes from loads or from arithmetic that is not
read is unknown, as is every address made of it. A bank serves one 4-byte word a cycle; lanes that want the same word
share it; accesses of 8 and 16 bytes go in halves and quarters of a warp (the CUDA C++ Programming Guide, and
`shared_load_*` in validation/sm_constants_h200.json).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from occupancy_cli.model.pipeline import access_bytes, matrix_bytes

if TYPE_CHECKING:
    from occupancy_cli.compile.sass import SassInstruction

Ints = npt.NDArray[np.int64]
Lanes = Ints | None

_BANKS = 32
_WORD = 0xFFFFFFFF
_PREDICATE = re.compile(r"^!?U?P(?:T|\d)$")
_REGISTER = re.compile(r"^(-?)(~?)\|?(U?R(?:Z|\d+))(?:\.\w+)*\|?$")
_ADDRESS = re.compile(r"\[([^\]]*)\]")
_PART = re.compile(r"(-?)\s*(?:(U?R(?:Z|\d+))(?:\.X(\d+))?(?:\.\w+)*|(0x[0-9a-f]+))")
_COMPARISONS: dict[str, Callable[[Ints, Ints], npt.NDArray[np.bool_]]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip


class _Threads:
    """The registers and predicates of a CTA's threads, as far as they are known."""

    def __init__(self, threads: int) -> None:
        self.zero = np.zeros(threads, dtype=np.int64)
        self.thread = np.arange(threads, dtype=np.int64)
        self.registers: dict[int, Lanes] = {}
        self.predicates: dict[str, npt.NDArray[np.bool_] | None] = {}

    def value(self, text: str) -> Lanes:
        if text.startswith(("0x", "-0x")):
            return self.zero + int(text, 16)
        found = _REGISTER.match(text)
        if not found:
            return self.zero if text.startswith("c[") else None
        sign, inverted, name = found.groups()
        # A register that nothing wrote before holds what a loop brings: the same in all lanes as far as is known.
        held = self.zero if name.startswith("U") or name == "RZ" else self.registers.get(int(name[1:]))
        if held is None:
            return None
        held = ~held if inverted else held
        return -held if sign else held

    def holds(self, text: str) -> npt.NDArray[np.bool_] | None:
        """The threads for which a predicate such as @!P0 is set."""
        plain = text.lstrip("@!")
        if plain in ("PT", "UPT"):
            known: npt.NDArray[np.bool_] | None = np.ones(len(self.zero), dtype=bool)
        else:
            known = self.predicates.get(plain)
        if known is None:
            return None
        return ~known if "!" in text else known

    def write(self, each: SassInstruction, to: str, value: Lanes, count: int = 1) -> None:
        found = _REGISTER.match(to)
        if not found or found.group(3).startswith("U") or found.group(3) == "RZ":
            return
        first = int(found.group(3)[1:])
        if value is not None and each.predicate:
            mask, before = self.holds(each.predicate), self.registers.get(first)
            if mask is not None and before is not None:
                value = np.where(mask, value, before)
        self.registers[first] = None if value is None else _signed(value)
        for further in range(first + 1, first + count):
            self.registers[further] = None

    def address(self, text: str) -> Lanes:
        found = _ADDRESS.search(text)
        if not found:
            return None
        total = self.zero
        for sign, name, scale, number in _PART.findall(found.group(1)):
            part = self.value(number or name)
            if part is None:
                return None
            part = part * int(scale or 1)
            total = total - part if sign else total + part
        return total


def _signed(value: Ints) -> Ints:
    low = value & _WORD
    return np.where(low > _WORD >> 1, low - _WORD - 1, low)


def _lop3(a: Ints, b: Ints, c: Ints, table: int) -> Ints:
    """Bit by bit, the entry of `table` at a * 4 + b * 2 + c."""
    total = np.zeros_like(a)
    for entry in range(8):
        if table >> entry & 1:
            total |= (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
    return total


def _result(each: SassInstruction, threads: _Threads, given: Sequence[str]) -> Lanes:
    """The value of an instruction's first register, from its operands behind it; None where it is not read."""
    base, opcode = each.base, each.opcode
    if base == "S2R":
        return threads.thread if given and given[0] == "SR_TID.X" else threads.zero
    if base in ("CS2R", "LDC", "R2UR"):
        return threads.zero
    values = [threads.value(text) for text in given if not _PREDICATE.match(text)]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if base == "MOV" and known:
        return known[0]
    if base == "IMAD" and len(known) >= 3 and ".HI" not in opcode and ".X" not in opcode:
        return known[0] * known[1] + known[2]
    if base in ("IADD3", "VIADD") and ".X" not in opcode:
        return np.sum(known, axis=0)
    if base == "LOP3" and len(known) >= 4:
        return _lop3(known[0], known[1], known[2], int(known[3][0]))
    if opcode.startswith("LEA") and len(known) == 3 and opcode == "LEA":
        return (known[0] << (known[2] & 31)) + known[1]
    if opcode in ("SHF.L.U32", "SHF.L.U32.HI") and len(known) == 3:
        return known[0] << (known[1] & 31)
    if opcode == "SHF.R.U32.HI" and len(known) == 3:
        return (known[2] & _WORD) >> (known[1] & 31)
    if opcode == "SHF.R.S32.HI" and len(known) == 3:
        return known[2] >> (known[1] & 31)
    if base == "SGXT" and len(known) == 2:
        bits = int(known[1][0])
        low = known[0] & ((1 << bits) - 1)
        return low if ".U32" in opcode else np.where(low >> (bits - 1) & 1, low - (1 << bits), low)
    if base == "SEL" and len(known) == 2:
        chosen = threads.holds(given[-1])
        return None if chosen is None else np.where(chosen, known[0], known[1])
    return None


def _registers_written(opcode: str) -> int:
    base = opcode.split(".", 1)[0]
    if base in ("LDSM", "MOVM"):
        return matrix_bytes(opcode) // 4
    if base in ("LDG", "LD", "LDS", "LDL", "LDC"):
        return max(access_bytes(opcode) // 4, 1)
    if base in ("HMMA", "IMMA", "QMMA"):
        return 4
    return 2 if base in ("CS2R", "DADD", "DMUL", "DFMA") or ".WIDE" in opcode else 1


def shared_wavefronts(code: Sequence[SassInstruction], num_warps: int) -> dict[int, float]:
    """Index of an instruction that reads or writes shared memory -> cycles the banks take for one warp, on average over
    the warps of a CTA. Instructions whose addresses are not known are left out."""
    threads = _Threads(32 * num_warps)
    found: dict[int, float] = {}
    for index, each in enumerate(code):
        operands = [text.strip().removesuffix(".reuse") for text in each.operands.split(",")]
        base = each.base
        if base in ("LDS", "STS", "LDSM", "STSM"):
            at = threads.address(each.operands)
            if at is not None:
                active = threads.holds(each.predicate) if each.predicate else None
                found[index] = float(np.mean(_by_warp(each.opcode, at, active)))
        if base in ("STS", "STG", "STL", "ST", "STSM", "BAR", "BRA", "EXIT", "RED") or not operands[0]:
            continue
        written = [text for text in operands[:2] if _PREDICATE.match(text)]
        if base == "ISETP" and written:
            threads.predicates[written[0]] = _compared(each.opcode, threads, operands)
            continue
        rest = [text for text in operands if not (text in written and _PREDICATE.match(text))]
        if base == "SEL":
            rest = operands
        value = _result(each, threads, rest[1:]) if rest else None
        for name in written:
            if base != "SEL":
                threads.predicates[name] = value != 0 if value is not None and base == "LOP3" else None
        if rest:
            threads.write(each, rest[0], value, _registers_written(each.opcode))
    return found


def _compared(opcode: str, threads: _Threads, operands: Sequence[str]) -> npt.NDArray[np.bool_] | None:
    parts = opcode.split(".")
    values = [threads.value(text) for text in operands if not _PREDICATE.match(text)]
    if len(values) != 2 or values[0] is None or values[1] is None or parts[1] not in _COMPARISONS or "EX" in parts:
        return None
    left, right = values[0], values[1]
    if "U32" in parts:
        left, right = left & _WORD, right & _WORD
    result = _COMPARISONS[parts[1]](left, right)
    further = threads.holds(operands[-1])
    if further is None:
        return None
    return result & further if "AND" in parts else result | further


def _by_warp(opcode: str, at: Ints, active: npt.NDArray[np.bool_] | None) -> list[float]:
    matrices = opcode.startswith(("LDSM", "STSM"))
    size = 16 if matrices else access_bytes(opcode)
    lanes = 8 if matrices else max(min(128 // max(size, 4), 32), 1)  # that the banks serve together
    used = matrix_bytes(opcode) * 2 if matrices else 32
    cycles = []
    for warp in range(0, len(at), 32):
        total = 0
        for first in range(warp, warp + used, lanes):
            group = at[first : first + lanes]
            if active is not None:
                group = group[active[first : first + lanes]]
            words = np.unique((group[:, None] // 4 + np.arange(max(size // 4, 1))).ravel())
            total += int(np.bincount(words % _BANKS, minlength=_BANKS).max()) if len(words) else 0
        cycles.append(float(max(total, 1)))
    return cycles
