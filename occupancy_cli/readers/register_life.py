"""Which registers live at each instruction of a kernel, as `nvdisasm` finds it: the peak, who holds it, what spills.

    /*49a0*/   HMMA.16816.F32.BF16 R44, R180, R24, R44 ;    // | 226 ::::::::::::  :::::::   vvvv  xxxx  ...

`nvdisasm -c -lrm narrow` (it ships with Triton) prints for each instruction how many registers live and a mark a
register: `^` written, `v` read, `x` both, `:` passed on. `nvdisasm -c -hex -gi` names the source lines of each
instruction. Both texts are of one cubin and are joined by address.

A thread has as many registers as the compiler counts (`registers_per_thread`); the peak lies at or below it, since the
hardware keeps two of them and products take theirs in aligned groups. What holds a register at the peak is the
instruction that wrote it last before the peak, in the order of the code.

nvdisasm refuses to print lives for a cubin of 255 registers, the most there are. No instruction names the last two of
them, so `countable` writes 254 into a copy.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from occupancy_cli.readers.sass import SassKernel, parse_sass
from occupancy_cli.readers.ttgir import SourceLine, is_tritons_own

_MOST_REGISTERS = 255
_HEADER = re.compile(r"// \|\s+# 0123")
_LIFE = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/.*?;\s*// \|")
_SECTION = re.compile(r"^\s*\.text\.([\w$.]+):")
_FILE = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined at)?')
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")
_SPILL_BYTES = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}


@dataclass(frozen=True)
class Holder:
    """Registers that one line holds at the peak. `written_by` is the opcode that wrote most of them, `source` as in
    `SharedBuffer`."""

    source: tuple[SourceLine, ...]
    registers: int
    written_by: str


@dataclass(frozen=True)
class LineRegisters:
    """The most registers that live at any instruction of a line."""

    source: tuple[SourceLine, ...]
    registers: int


@dataclass(frozen=True)
class SpillLine:
    """Spills of one line: stores to and loads from local memory that a thread runs, their bytes, and whether in a loop.

    A reload in a loop is paid at every trip.
    """

    source: tuple[SourceLine, ...]
    stores: int
    loads: int
    bytes: int
    in_loop: bool


@dataclass(frozen=True)
class RegisterUse:
    """Where a thread's registers go. `peak` is the most that live at once, at the instruction `peak_opcode`."""

    peak: int
    peak_opcode: str
    peak_source: tuple[SourceLine, ...]
    peak_in_loop: bool
    holders: tuple[Holder, ...]
    lines: tuple[LineRegisters, ...]
    spills: tuple[SpillLine, ...]


def read_register_use(lives: str, disassembly: str, kernel: str | None = None) -> RegisterUse:
    """Join both texts of nvdisasm. Raises `InputError` where the disassembly has no such kernel."""
    code = parse_sass(disassembly, kernel)
    sources = instruction_sources(disassembly, code.name)
    marks = _marks(lives, code.name)
    live = [len(marks.get(i.address, "").replace(" ", "")) for i in code.instructions]
    inside = {i for loop in code.loops for i in loop.indices}
    peak = max(range(len(live)), key=lambda i: (live[i], -i))
    return RegisterUse(
        live[peak],
        code.instructions[peak].opcode,
        sources.get(code.instructions[peak].address, ()),
        peak in inside,
        _holders(code, marks, sources, peak),
        _by_line(code, live, sources),
        _spills(code, sources, inside),
    )


def _marks(lives: str, kernel: str) -> dict[int, str]:
    """The marks of the general registers at each address of a kernel, a letter a register."""
    found: dict[int, str] = {}
    current, start = "", -1
    for line in lives.splitlines():
        section = _SECTION.match(line)
        if section:
            current = section.group(1)
            continue
        header = _HEADER.search(line)
        if header:
            start = line.index("#", header.start()) + 2
            continue
        life = _LIFE.match(line)
        if life and current == kernel and start >= 0:
            found[int(life["address"], 16)] = line[start:].partition("|")[0].rstrip()
    return found


def instruction_sources(disassembly: str, kernel: str) -> dict[int, tuple[SourceLine, ...]]:
    """Address -> the kernel's own lines of an instruction, the innermost first, from a disassembly with `-gi`."""
    found: dict[int, tuple[SourceLine, ...]] = {}
    current, open_chain = "", False
    frames: tuple[SourceLine, ...] = ()
    chain: list[SourceLine] = []
    for line in disassembly.splitlines():
        section = _SECTION.match(line)
        if section:
            current, frames, chain, open_chain = section.group(1), (), [], False
            continue
        named = _FILE.search(line)
        if named:
            if not open_chain:
                chain = []
            chain.append(SourceLine(named["file"], int(named["line"])))
            open_chain = named["inlined"] is not None
            own = [each for each in dict.fromkeys(chain) if not is_tritons_own(each.file)]
            frames = tuple(own or chain)
            continue
        at = _ADDRESS.match(line)
        if at and current == kernel:
            found[int(at.group(1), 16)] = frames
    return found


def _holders(
    code: SassKernel, marks: Mapping[int, str], sources: Mapping[int, tuple[SourceLine, ...]], peak: int
) -> tuple[Holder, ...]:
    at_peak = marks.get(code.instructions[peak].address, "")
    waiting = {register for register, mark in enumerate(at_peak) if mark != " "}
    held: Counter[tuple[SourceLine, ...]] = Counter()
    opcodes: dict[tuple[SourceLine, ...], Counter[str]] = {}
    # Backward to the start, then around from the end: what a loop carries may be written behind the peak alone.
    order = [*range(peak, -1, -1), *range(len(code.instructions) - 1, peak, -1)]
    for i in order:
        if not waiting:
            break
        each = code.instructions[i]
        written = {r for r, mark in enumerate(marks.get(each.address, "")) if mark in "^x" and r in waiting}
        if written:
            source = sources.get(each.address, ())
            held[source] += len(written)
            opcodes.setdefault(source, Counter())[each.base] += len(written)
            waiting -= written
    if waiting:
        held[()] += len(waiting)
    ordered = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Holder(s, n, opcodes[s].most_common(1)[0][0] if s in opcodes else "") for s, n in ordered)


def _by_line(
    code: SassKernel, live: Sequence[int], sources: Mapping[int, tuple[SourceLine, ...]]
) -> tuple[LineRegisters, ...]:
    most: dict[tuple[SourceLine, ...], int] = {}
    for each, count in zip(code.instructions, live, strict=True):
        source = sources.get(each.address, ())
        most[source] = max(most.get(source, 0), count)
    return tuple(LineRegisters(s, n) for s, n in sorted(most.items(), key=lambda item: (-item[1], item[0])))


def _spills(code: SassKernel, sources: Mapping[int, tuple[SourceLine, ...]], inside: set[int]) -> tuple[SpillLine, ...]:
    found: dict[tuple[tuple[SourceLine, ...], bool], list[int]] = {}
    for i, each in enumerate(code.instructions):
        if each.base in ("STL", "LDL"):
            counts = found.setdefault((sources.get(each.address, ()), i in inside), [0, 0, 0])
            counts[each.base == "LDL"] += 1
            counts[2] += next((size for suffix, size in _SPILL_BYTES.items() if suffix in each.opcode), 4)
    lines = [SpillLine(s, stores, loads, size, loop) for (s, loop), (stores, loads, size) in found.items()]
    return tuple(sorted(lines, key=lambda each: (not each.in_loop, -each.bytes, each.source)))


def countable(cubin: bytes) -> bytes:
    """The cubin, or where it counts 255 registers a copy that counts 254, for `nvdisasm` to print their lives.

    The count stands in the attribute EIATTR_REGCOUNT (0x2f) of `.nv.info` and in the upper byte of a code section's
    `sh_info`; see `readers.cubin` for the layout.
    """
    made = bytearray(cubin)
    (sections,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections + i * entry_bytes) for i in range(count)]
    for i, header in enumerate(headers):
        at = headers[names][4] + header[0]
        name = cubin[at : cubin.index(0, at)].decode()
        if name.startswith(".text.") and header[7] >> 24 == _MOST_REGISTERS:
            place = sections + i * entry_bytes + 0x2C
            struct.pack_into("<I", made, place, header[7] & 0xFFFFFF | _MOST_REGISTERS - 1 << 24)
        if name == ".nv.info":
            _recount(made, header[4], header[5])
    return bytes(made)


def _recount(made: bytearray, start: int, size: int) -> None:
    """Rewrite EIATTR_REGCOUNT: (format 4, attribute, length, then a symbol and its registers)."""
    place = start
    while place < start + size:
        form, attribute, length = made[place], made[place + 1], struct.unpack_from("<H", made, place + 2)[0]
        if form != 4:
            place += 4
            continue
        if attribute == 0x2F and struct.unpack_from("<I", made, place + 8)[0] == _MOST_REGISTERS:
            struct.pack_into("<I", made, place + 8, _MOST_REGISTERS - 1)
        place += 4 + length
