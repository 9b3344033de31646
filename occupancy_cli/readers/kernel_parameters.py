"""Where a kernel finds its arguments: the offset of each in constant bank 0, from its cubin.

A cubin says of each parameter its place among the parameters (EIATTR_KPARAM_INFO) and where they begin
(EIATTR_PARAM_CBANK: 0x210 on compute capability 9.0, 0x160 from 7.0 to 8.9), as `cuobjdump -elf` prints it. What else
lies before them is not documented; the places of block and grid size are those that compiled kernels read.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from occupancy_cli.errors import InputError

_EIFMT_SVAL = 4
_EIATTR_PARAM_CBANK, _EIATTR_KPARAM_INFO, _EIATTR_KPARAM_INFO_V2 = 0x0A, 0x17, 0x45


@dataclass(frozen=True)
class ParameterPlace:
    """One parameter: its number in the signature, its offset in constant bank 0, its size."""

    ordinal: int
    offset: int
    bytes: int


def parameter_places(cubin: bytes, kernel: str, *, where: str = "cubin") -> tuple[ParameterPlace, ...]:
    """The parameters of a kernel in order. `InputError` where the cubin does not say them."""
    try:
        section = ELFFile(io.BytesIO(cubin)).get_section_by_name(f".nv.info.{kernel}")
        data = b"" if section is None else section.data()
        start, found = _attributes(data)
    except (ELFError, struct.error, ValueError) as broken:
        raise InputError(f"not a readable cubin: {broken}", where=where) from broken
    if start is None:
        raise InputError(f"does not say where the parameters of {kernel} are", where=where)
    return tuple(sorted((ParameterPlace(o, start + at, n) for o, at, n in found), key=lambda p: p.ordinal))


def _attributes(data: bytes) -> tuple[int | None, list[tuple[int, int, int]]]:
    """(where parameters begin, (ordinal, offset, bytes) of each)."""
    at, start = 0, None
    found = []
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _EIFMT_SVAL:
            continue
        if attribute == _EIATTR_PARAM_CBANK:
            _, start, _ = struct.unpack_from("<IHH", data, at)
        elif attribute == _EIATTR_KPARAM_INFO:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", data, at)
            found.append((ordinal, offset, packed >> 18))
        elif attribute == _EIATTR_KPARAM_INFO_V2:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", data, at)
            found.append((ordinal, offset, packed & 0xFFFF))
        at += size
    return start, found


_BLOCK_AND_GRID = {0x160: (0x0, 0xC), 0x210: (0x0, 0xC), 0x380: (0x360, 0x370)}
"""Where parameters begin -> where the sizes of block and grid are, three words each."""
_STACK = {0x160: 0x28, 0x210: 0x28, 0x380: 0x37C}


def constant_words(
    places: tuple[ParameterPlace, ...], values: Mapping[int, int], threads: int, grid: tuple[int, int, int]
) -> dict[int, int]:
    """The words of constant bank 0 by offset; `values` has arguments by ordinal, those without a value stay out."""
    words: dict[int, int] = {}
    first = min((p.offset for p in places), default=0)
    if first in _BLOCK_AND_GRID:
        block_at, grid_at = _BLOCK_AND_GRID[first]
        words |= {block_at + 4 * i: n for i, n in enumerate((threads, 1, 1))}
        words |= {grid_at + 4 * i: n for i, n in enumerate(grid)}
        words[_STACK[first]] = 0xFFFDC0  # the top of local memory: any multiple of 16 serves
    for place in places:
        value = values.get(place.ordinal)
        if value is not None:
            for i in range(0, place.bytes, 4):
                words[place.offset + i] = (value >> (8 * i)) & 0xFFFFFFFF
    return words
