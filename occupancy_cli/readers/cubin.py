"""What ptxas wrote into a cubin about each kernel: registers, local memory (spills), static shared memory.

A cubin is an ELF file. Its `.nv.info` section is a list of attributes, each a format byte, an attribute byte and a
payload; the ones read here are named as NVIDIA's own `cuobjdump -elf` prints them (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE).
The per-kernel figures equal those of `cuobjdump -res-usage` (REG, STACK, SHARED), which the tests check.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from occupancy_cli.errors import InputError

_EIFMT_NVAL, _EIFMT_BVAL, _EIFMT_HVAL, _EIFMT_SVAL = 1, 2, 3, 4
_EIATTR_FRAME_SIZE = 0x11
_EIATTR_REGCOUNT = 0x2F
_EM_CUDA = 190


@dataclass(frozen=True)
class CubinKernel:
    """One kernel of a cubin.

    `static_shared_bytes` is the size of its `.nv.shared` section, which from compute capability 9.0 on contains the
    1,024 bytes that the system reserves per CTA. `frame_bytes` is local memory per thread: spills and stack.
    """

    name: str
    registers_per_thread: int
    frame_bytes: int
    static_shared_bytes: int


def read_cubin(data: bytes, *, where: str = "cubin") -> list[CubinKernel]:
    """The kernels of a cubin, in the file's order. `InputError` when `data` is no CUDA ELF or is cut short."""
    try:
        return _read(data, where)
    except (ELFError, struct.error, IndexError, KeyError, ValueError, UnicodeDecodeError) as broken:
        raise InputError(f"not a readable cubin: {broken}", where=where) from broken


def compute_capability_of(data: bytes) -> int | None:
    """The architecture that a cubin is for, 90 for compute capability 9.0, as its ELF header's flags say it.

    Up to ELF ABI version 7 it is the lowest byte of the flags, from 8 on (CUDA 13) the one above; None for neither.
    """
    try:
        header = ELFFile(io.BytesIO(data)).header
    except (ELFError, struct.error):
        return None
    flags = int(header["e_flags"])
    found = flags >> 8 & 0xFF if int(header["e_ident"]["EI_ABIVERSION"]) >= 8 else flags & 0xFF
    return found or None


def _read(data: bytes, where: str) -> list[CubinKernel]:
    elf = ELFFile(io.BytesIO(data))
    machine = elf.header["e_machine"]
    if machine not in ("EM_CUDA", _EM_CUDA):
        raise InputError(f"an ELF file for {machine}, not for a CUDA device", where=where)
    symbols: dict[int, str] = {}
    info = b""
    shared: dict[str, int] = {}
    names: list[str] = []
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            symbols |= {i: s.name for i, s in enumerate(section.iter_symbols())}
        elif section.name == ".nv.info":
            info = section.data()
        elif section.name.startswith(".text."):
            names.append(section.name.removeprefix(".text."))
        elif section.name.startswith(".nv.shared.") and not section.name.startswith(".nv.shared.reserved"):
            shared[section.name.removeprefix(".nv.shared.")] = section["sh_size"]
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, symbol, value in _symbol_values(info):
        table = {_EIATTR_REGCOUNT: registers, _EIATTR_FRAME_SIZE: frames}.get(attribute)
        if table is not None:
            table[symbols[symbol]] = value
    return [
        CubinKernel(name, registers[name], frames.get(name, 0), shared.get(name, 0))
        for name in names
        if name in registers
    ]


def _symbol_values(info: bytes) -> list[tuple[int, int, int]]:
    """(attribute, symbol index, value) for every sized attribute of `.nv.info` that is a symbol and a 32-bit value."""
    found = []
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _EIFMT_SVAL:
            if size == 8:
                symbol, value = struct.unpack_from("<II", info, at)
                found.append((attribute, symbol, value))
            at += size
        elif form not in (_EIFMT_NVAL, _EIFMT_BVAL, _EIFMT_HVAL):
            raise ValueError(f"attribute format {form} at byte {at - 4} of .nv.info")
    return found
