"""Registers by line from recorded disassembly: the peak, who holds it, and what spills."""

from __future__ import annotations

import functools
import lzma
import struct

from locations import DATA

from occupancy_cli.readers.register_life import RegisterUse, countable, instruction_sources, read_register_use
from occupancy_cli.readers.ttgir import SourceLine


def _text(kind: str) -> str:
    return lzma.open(DATA / "disassembled" / f"sparse_mla_decode_{kind}.txt.xz", "rt").read()


@functools.cache
def _use() -> RegisterUse:
    return read_register_use(_text("lives"), _text("lines"))


def test_the_peak_is_what_nvdisasm_counts_and_below_the_compilers_count() -> None:
    counts = [int(line.split("// |")[1].split()[0]) for line in _text("lives").splitlines() if "; " in line[:90]]
    assert _use().peak == max(counts) == 245  # of 255 that the compiler counts: 4 % below
    assert sum(h.registers for h in _use().holders) == _use().peak
    assert max(each.registers for each in _use().lines) == _use().peak


def test_accumulators_hold_what_their_tiles_take() -> None:
    by_line = {h.source[-1].line: h for h in _use().holders if h.written_by == "HMMA"}
    # acc_a is 32 x 256 FP32 in 128 threads: 32 * 256 / 128 = 64 registers; acc_b half of it, acc_c and acc_r a quarter.
    assert {line: by_line[line].registers for line in (225, 226, 227, 228)} == {225: 64, 226: 32, 227: 16, 228: 16}


def test_spills_are_counted_by_line_and_loop() -> None:
    text = _text("lines")
    assert sum(s.loads for s in _use().spills) == text.count(" LDL")
    assert sum(s.stores for s in _use().spills) == text.count(" STL")
    inside = [s for s in _use().spills if s.in_loop]
    assert sum(s.loads for s in inside) == 14 and sum(s.stores for s in inside) == 0
    assert _use().spills[: len(inside)] == tuple(inside), "those that are paid at every trip come first"


def test_a_line_of_a_helper_names_the_line_that_calls_it() -> None:
    found = set(instruction_sources(_text("lines"), "split_kernel").values())
    file = "kernels/sparse_mla_decode.py"
    assert (SourceLine(file, 126), SourceLine(file, 201)) in found
    assert not any("triton/language" in line.file for source in found for line in source)


def test_a_cubin_of_255_registers_is_counted_as_254() -> None:
    # An ELF header, one section of attributes, one of names: EIATTR_REGCOUNT is 0x2f in format 4 with a symbol and a
    # count; an attribute of another kind before it is passed over.
    info = struct.pack("<BBH", 3, 0x50, 0) + struct.pack("<BBHII", 4, 0x2F, 8, 13, 255)
    names = b"\0.nv.info\0"
    header = bytearray(64)
    struct.pack_into("<Q", header, 0x28, 64 + len(info) + len(names))
    struct.pack_into("<HHH", header, 0x3A, 64, 2, 1)
    sections = struct.pack("<IIQQQQIIQQ", 1, 0x70000000, 0, 0, 64, len(info), 0, 0, 0, 0)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(info), len(names), 0, 0, 0, 0)
    cubin = bytes(header) + info + names + sections
    made = countable(cubin)
    assert made == cubin.replace(struct.pack("<II", 13, 255), struct.pack("<II", 13, 254))
    assert countable(made) == made
