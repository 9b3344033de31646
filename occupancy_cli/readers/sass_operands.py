"""The operands of a SASS instruction as values: registers, predicates, numbers, constants, addresses.

    LDG.E.128 R4, desc[UR6][R2.64+0x10]     register R4; address R2 (64 bits) + 0x10
    ISETP.GE.AND P0, PT, R5, c[0x0][0x228], !P1

`nvdisasm`'s form, which "CUDA Binary Utilities" shows; names of instructions are in its instruction set reference.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Operand:
    """One operand.

    `kind` is "register" (R4, UR4, RZ), "predicate" (P0, UP0, PT), "number", "constant" (bank `bank` at `number`),
    "address", "special" (SR_TID.X) or "other". `sign` is "-", "~", "!" or "|" before it. An address is the sum of
    `terms`, registers with their suffix, and `number`.
    """

    kind: str
    name: str = ""
    sign: str = ""
    suffixes: tuple[str, ...] = ()
    number: int = 0
    bank: int = 0
    terms: tuple[Operand, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether two registers make one 64-bit value."""
        return "64" in self.suffixes


_REGISTER = re.compile(r"^(U?R(?:\d+|Z))((?:\.\w+)*)$")
_PREDICATE = re.compile(r"^(U?P(?:\d+|T|R))$")
_NUMBER = re.compile(r"^(-?)0x([0-9a-f]+)$")
_CONSTANT = re.compile(r"^c\[0x([0-9a-f]+)\]\[0x([0-9a-f]+)\]((?:\.\w+)*)$")
_ADDRESS = re.compile(r"^(?:desc\[[^\]]*\])?\[([^\]]*)\]((?:\.\w+)*)$")


@functools.lru_cache(maxsize=65_536)
def operands(text: str) -> tuple[Operand, ...]:
    """The operands of an instruction, in order."""
    return tuple(_operand(part.strip()) for part in _split(text) if part.strip())


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "[({":
            depth += 1
        elif character in "])}":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _operand(text: str) -> Operand:
    sign = ""
    while text[:1] in ("-", "~", "!", "|", "+") and not _NUMBER.match(text):
        sign, text = (text[0] if text[0] != "+" else sign), text[1:].rstrip("|")
    if found := _REGISTER.match(text):
        suffixes = tuple(s for s in found.group(2).split(".") if s and s != "reuse")
        return Operand("register", found.group(1), sign, suffixes)
    if found := _PREDICATE.match(text):
        return Operand("predicate", found.group(1), sign)
    if found := _NUMBER.match(text):
        return Operand("number", text, sign, number=int(found.group(2), 16) * (-1 if found.group(1) else 1))
    if found := _CONSTANT.match(text):
        suffixes = tuple(s for s in found.group(3).split(".") if s)
        return Operand("constant", text, sign, suffixes, number=int(found.group(2), 16), bank=int(found.group(1), 16))
    if found := _ADDRESS.match(text):
        return _address(found.group(1), sign)
    if text.startswith("SR"):
        return Operand("special", text, sign)
    return Operand("other", text, sign)


def _address(text: str, sign: str) -> Operand:
    terms, number = [], 0
    for part in text.replace("+-", "+~").split("+"):
        read = _operand(part.strip().replace("~", "-"))
        if read.kind == "number":
            number += read.number
        elif read.kind == "register":
            terms.append(read)
        elif part.strip():
            return Operand("other", text, sign)
    return Operand("address", text, sign, number=number, terms=tuple(terms))


def register_at(name: str, offset: int) -> str:
    """The register `offset` after `name`: R5 one after R4; RZ stays."""
    head = name.rstrip("0123456789")
    return name if head == name else f"{head}{int(name[len(head) :]) + offset}"
