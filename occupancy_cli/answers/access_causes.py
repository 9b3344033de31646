"""Why an access takes more than it needs, in a sentence: the argument value to blame where the compiler's IR names it.

    width          8 accesses of 2 bytes where one of 16 would do: n = 262,141 is no multiple of 16
    stride         neighbouring lanes lie 1,024 bytes apart
    misalignment   the first lane lies 2 bytes into a sector: x_ptr is aligned to 2 bytes
    bank conflict  32 wavefronts where 4 would do

The IR says on which arguments an address and a mask depend and which of them Triton knows to be multiples of 16
(`readers.argument_uses`); a value that is none keeps accesses narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from occupancy_cli.report.explain_parts import AccessCause

if TYPE_CHECKING:
    from occupancy_cli.compile.request import ArgumentValue
    from occupancy_cli.readers.accesses import Access
    from occupancy_cli.readers.ttgir import SourceLine

_WIDEST_BYTES = 16
_COPY_BYTES = 4  # cp.async copies 4, 8 or 16 bytes (PTX ISA, "cp.async")
_SECTOR_BYTES = 32
_SLACK = 1.001
_GLOBAL = ("LDG", "STG", "LDGSTS")


@dataclass(frozen=True)
class Arguments:
    """The arguments of a launch by name, and by `file:line` those that keep the accesses of that line narrow."""

    unmarked: Mapping[str, tuple[str, ...]]
    values: Mapping[str, ArgumentValue]

    def to_blame(self, lines: Sequence[SourceLine]) -> str:
        """What about the arguments keeps the accesses of a line narrow: "n = 262,141 is no multiple of 16"."""
        for line in lines:
            for name in self.unmarked.get(f"{PurePath(line.file).name}:{line.line}", ()):
                given = self.values.get(name)
                if given is not None and given.type.startswith("*"):
                    return f"{name} is aligned to {given.align} bytes"
                if given is not None and isinstance(given.value, int):
                    if given.value % _WIDEST_BYTES:
                        return f"{name} = {given.value:,} is no multiple of {_WIDEST_BYTES}"
                    return f"{name} is not specialized, so nothing is known of its divisors"
        return ""


def causes_of(
    access: Access, beside: Sequence[Access], lines: Sequence[SourceLine], given: Arguments, *, converts: bool
) -> list[AccessCause]:
    """What makes an access cost more than the least; `beside` are all accesses of its line, itself among them."""
    base = access.op.split(".", 1)[0]
    if base in ("LDL", "STL"):
        where = " in a loop: paid at every trip" if access.in_loop else ""
        return [AccessCause(kind="spill", text=f"a register that did not fit goes through local memory{where}")]
    found: list[AccessCause] = []
    if base in _GLOBAL:
        found += _of_global(access, beside, given.to_blame(lines))
    if _more(access.wavefronts_per_access, access.least_wavefronts):
        found.append(_conflict(access, base))
    if converts and base in ("LDS", "STS", "LDSM", "STSM"):
        found.append(AccessCause(kind="layout conversion", text="values change hands between threads here"))
    if base == "LDG" and access.in_loop:
        found.append(AccessCause(kind="not pipelined", text=_not_pipelined(access)))
    return found


def _more(taken: float | None, least: float | None) -> bool:
    return taken is not None and least is not None and taken > least * _SLACK


def _of_global(access: Access, beside: Sequence[Access], blame: str) -> list[AccessCause]:
    size = access.bits // 8
    stride = access.lane_stride_bytes
    because = f": {blame}" if blame else ""
    parts = 1 if stride is None else stride // size
    same = sum(each.op == access.op for each in beside)
    if size < _WIDEST_BYTES and stride is not None and 1 < parts <= same and stride <= _WIDEST_BYTES * 2:
        whole = min(stride, _WIDEST_BYTES)
        text = (
            f"{parts} accesses of {size} {'byte' if size == 1 else 'bytes'} where {whole}-byte ones would do{because}"
        )
        return [AccessCause(kind="width", text=text)]
    if not _more(access.sectors_per_access, access.least_sectors_per_access):
        return []
    if stride is not None and abs(stride) > size:
        return [AccessCause(kind="stride", text=f"neighbouring lanes lie {abs(stride):,} bytes apart")]
    if stride == size and access.offset_bytes:
        into = f"the first lane lies {access.offset_bytes} bytes into a {_SECTOR_BYTES}-byte sector"
        return [AccessCause(kind="misalignment", text=into + because)]
    rows = "lanes of a warp read rows that lie apart, each less than whole sectors"
    return [AccessCause(kind="stride", text=rows + because)]


def _conflict(access: Access, base: str) -> AccessCause:
    taken, least = access.wavefronts_per_access, access.least_wavefronts
    how = "different rows in the same bank"
    if base == "LDGSTS":
        how = "a copy to shared memory takes lines of 128 bytes one by one, and its rows are shorter"
    return AccessCause(kind="bank conflict", text=f"{taken:g} wavefronts where {least:g} would do: {how}")


def _not_pipelined(access: Access) -> str:
    """Why a load in a loop waits where it stands: what asynchronous copies cannot move, else as it is."""
    if access.bits // 8 < _COPY_BYTES:
        return f"asynchronous copies move 4 bytes a lane at least, this load {access.bits // 8}"
    return "a load into registers in a loop: the next one waits for it unless another warp has work"
