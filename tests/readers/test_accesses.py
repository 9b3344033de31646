"""Accesses found by running SASS: rules of banks and sectors, values that depend on data, small kernels end to end."""

from __future__ import annotations

import numpy as np
import pytest

from occupancy_cli.readers.access_rules import (
    copy_wavefronts,
    distinct,
    least_sectors,
    least_wavefronts,
    matrix_wavefronts,
    shared_wavefronts,
)
from occupancy_cli.readers.accesses import DATA_ADDRESS, DATA_MASK, DATA_ROWS, Access, chosen_ctas, read_accesses
from occupancy_cli.readers.argument_uses import unmarked_arguments
from occupancy_cli.readers.kernel_parameters import ParameterPlace, constant_words
from occupancy_cli.readers.sass import parse_sass
from occupancy_cli.readers.ttgir import parse_ttgir
from occupancy_cli.readers.warp_values import Lanes, add, constant, lookup, multiply, of_tokens, shift_right

LANES = np.arange(32, dtype=np.int64)[None, :]
ALL = np.ones((1, 32), dtype=bool)


@pytest.mark.parametrize(
    ("addresses", "size", "load", "expected"),
    [
        (LANES * 4, 4, True, 1),  # 32 words side by side: every bank once
        (LANES * 8, 4, True, 2),  # every second word: lanes l and l + 16 share bank 2 l mod 32
        (LANES * 128, 4, True, 32),  # a row of 128 bytes apart: all in bank 0
        (LANES * 0, 4, True, 1),  # one word for all
        (LANES * 8, 8, False, 2),  # 256 bytes: two wavefronts of 128
        (LANES * 16, 16, False, 4),
        (LANES * 32, 16, False, 8),  # quarters of 8 lanes over 256 bytes: each bank twice
        (LANES // 2 * 8, 8, True, 1),  # pairs of lanes read one address: 16 x 8 = 128 bytes, halves joined
        (LANES // 2 * 8, 8, False, 2),  # a store does not join them
        (LANES % 16 * 8, 8, True, 2),  # the halves read the same, but no lane what its neighbour reads
    ],
)
def test_wavefronts_of_a_plain_access(addresses: np.ndarray, size: int, load: bool, expected: int) -> None:
    assert shared_wavefronts(addresses, ALL, size, load=load).tolist() == [expected]


def test_lanes_that_do_not_run_take_nothing() -> None:
    only = LANES < 4
    assert shared_wavefronts(LANES * 128, only, 4, load=True).tolist() == [4]
    assert least_wavefronts(only.sum(axis=1), 4, np.array([4])).tolist() == [1]  # 16 bytes


def test_matrices_go_one_by_one() -> None:
    # Eight rows of 16 bytes, 16 apart, are 128 bytes; 128 apart they are all in the first four banks.
    assert matrix_wavefronts(LANES * 16, 4).tolist() == [4]
    assert matrix_wavefronts(LANES * 128, 1).tolist() == [8]


def test_a_copy_takes_each_column_of_its_lines_once() -> None:
    # Two lanes of 8 rows read 32 bytes a row (offsets 0 and 16 of a line): four rows in a quarter share the columns.
    short = LANES // 2 * 512 + LANES % 2 * 16
    nobody = np.zeros((1, 32), dtype=bool)
    taken, least = copy_wavefronts(LANES * 16, short, ALL, nobody, 16)
    assert (taken.tolist(), least.tolist()) == ([16], [4])
    taken, least = copy_wavefronts(LANES * 16, short, nobody, ALL, 16)  # zeros are written as any store
    assert (taken.tolist(), least.tolist()) == ([4], [4])


def test_sectors_and_the_least() -> None:
    sectors = distinct((LANES * 16 // 32).astype(np.uint64), ALL)  # 32 lanes over 512 bytes
    assert sectors.tolist() == [16]
    assert least_sectors(np.array([32]), 2, sectors).tolist() == [2]  # 64 bytes
    assert least_sectors(np.array([32]), 4, np.array([1])).tolist() == [1]  # all read one word


def test_what_depends_on_data_keeps_what_is_known_of_it() -> None:
    index = of_tokens(np.array([7, 7, 9, 9], dtype=np.uint64))
    column = Lanes(np.array([0, 1, 0, 1], dtype=np.uint32))
    address = add(multiply(index, constant(64)), multiply(column, constant(16)))
    assert address is not None and address.token is not None
    assert address.align == 6
    assert address.bits.tolist() == [0, 16, 0, 16]
    assert address.token[0] == address.token[1] != address.token[2]
    low = lookup(address, constant(63), constant(0), 0xC0)  # the bits below the row are known
    assert low is not None and low.token is None and low.bits.tolist() == [0, 16, 0, 16]
    halves = shift_right(address, 4, False)
    assert halves is not None and halves.bits.tolist() == [0, 1, 0, 1] and halves.align == 2
    gone = add(address, multiply(address, constant(-1)))
    assert gone is not None and gone.token is None and gone.bits.tolist() == [0, 0, 0, 0]


PLACES = tuple(ParameterPlace(i, 0x210 + 8 * i, 8 if i < 2 else 4) for i in range(3))
BASE = 1 << 40


def _accesses(code: str, number: int = 0, warps: int = 1, ctas: int = 1, shared: int = 0) -> tuple[Access, ...]:
    """The accesses of SASS whose parameters are two pointers and a number (c[0x0][0x210], 0x218, 0x220)."""
    lines = [line.strip() for line in code.strip().splitlines()]
    text = ".text.k:\n" + "\n".join(f"        /*{16 * i:04x}*/ {line} ;" for i, line in enumerate(lines))
    words = constant_words(PLACES, {0: BASE, 1: BASE + (1 << 30), 2: number}, 32 * warps, (ctas, 1, 1))
    return read_accesses(parse_sass(text), words, 32 * warps, (ctas, 1, 1), shared).found


ADDRESS_OF_LANE = """
S2R R0, SR_TID.X
S2R R3, SR_CTAID.X
IMAD R0, R3, c[0x0][0x0], R0
MOV R4, 0x4
IMAD.WIDE R2, R0, R4, c[0x0][0x210]
"""


def test_a_copy_of_words() -> None:
    found = _accesses(
        ADDRESS_OF_LANE + "LDG.E R5, desc[UR4][R2.64]\nSTG.E desc[UR4][R2.64+0x4], R5\nEXIT", warps=4, ctas=3
    )
    load, store = found
    # 12 warps of 32 x 4 bytes are 4 sectors each; four bytes further they touch a fifth.
    assert (load.op, load.bits, load.executed, load.sectors, load.least_sectors) == ("LDG.E", 32, 12, 48, 48)
    assert (store.sectors, store.least_sectors, store.offset_bytes, store.lane_stride_bytes) == (60, 48, 4, 4)
    assert not load.unknown and not load.assumes


def test_a_mask_by_an_argument_and_a_loop() -> None:
    code = (
        "S2R R0, SR_TID.X\nMOV R4, 0x4\nIMAD.WIDE R2, R0, R4, c[0x0][0x210]\nMOV R6, 0x0\n"  # 0x00 to 0x30
        "ISETP.GE.AND P0, PT, R0, c[0x0][0x220], PT\n@!P0 LDG.E R5, desc[UR4][R2.64]\n"  # 0x40, 0x50
        "IADD3 R6, R6, 0x1, RZ\nISETP.LT.AND P1, PT, R6, 0x5, PT\n@P1 BRA 0x40\nEXIT"
    )
    (load,) = _accesses(code, number=9)
    # Five passes; nine lanes of four bytes lie in two sectors.
    assert (load.executed, load.sectors, load.least_sectors, load.in_loop) == (5, 10, 10, True)


@pytest.mark.parametrize("divisor", [1, 3, 7, 48, 1000])
def test_division_by_an_argument_as_the_compiler_writes_it(divisor: int) -> None:
    code = """
        S2R R0, SR_TID.X
        MOV R5, c[0x0][0x220]
        I2F.U32.RP R1, R5
        MUFU.RCP R1, R1
        VIADD R2, R1, 0xffffffe
        F2I.FTZ.U32.TRUNC.NTZ R3, R2
        IMAD.MOV.U32 R2, RZ, RZ, RZ
        IMAD.MOV R6, RZ, RZ, -R3
        IMAD R7, R6, R5, RZ
        IMAD.HI.U32 R3, R3, R7, R2
        IMAD.HI.U32 R3, R3, R0, RZ
        IMAD.MOV R6, RZ, RZ, -R3
        IMAD R6, R5, R6, R0
        ISETP.GE.U32.AND P0, PT, R6, R5, PT
        @P0 IMAD.IADD R6, R6, 0x1, -R5
        @P0 VIADD R3, R3, 0x1
        ISETP.GE.U32.AND P1, PT, R6, R5, PT
        @P1 VIADD R3, R3, 0x1
        IMAD.SHL.U32 R8, R3, 0x20, RZ
        IADD3 R2, P0, R8, c[0x0][0x210], RZ
        IADD3.X R3, RZ, c[0x0][0x214], RZ, P0, !PT
        LDG.E.U8 R5, desc[UR4][R2.64]
        EXIT
    """
    (load,) = _accesses(code, number=divisor, warps=4)
    # A sector for each quotient that the 32 lanes of a warp have.
    expected = sum(len({t // divisor for t in range(32 * w, 32 * w + 32)}) for w in range(4))
    assert load.sectors == expected


def test_rows_by_loaded_indices_are_counted_and_elements_are_not() -> None:
    # Lane l loads index l / 8 and then 16 bytes of row index, at 16 (l mod 8): four rows of 128 bytes.
    code = """
        S2R R0, SR_TID.X
        SHF.R.U32.HI R1, RZ, 0x3, R0
        MOV R4, 0x4
        IMAD.WIDE R2, R1, R4, c[0x0][0x218]
        LDG.E R6, desc[UR4][R2.64]
        LOP3.LUT R7, R0, 0x7, RZ, 0xc0, !PT
        MOV R9, 0x80
        IMAD.WIDE R2, R6, R9, c[0x0][0x210]
        LEA R2, P0, R7, R2, 0x4
        IADD3.X R3, RZ, R3, RZ, P0, !PT
        LDG.E.128 R12, desc[UR4][R2.64]
        IMAD.WIDE R2, R6, R4, c[0x0][0x210]
        LDG.E R10, desc[UR4][R2.64]
        EXIT
    """
    _, rows, elements = _accesses(code)
    assert (rows.sectors, rows.least_sectors, rows.assumes) == (16, 16, (DATA_ROWS,))
    assert (elements.sectors, elements.unknown) == (None, DATA_ADDRESS)


def test_a_mask_by_loaded_data_is_said() -> None:
    code = (
        ADDRESS_OF_LANE
        + "LDG.E R5, desc[UR4][R2.64]\nISETP.GE.AND P0, PT, R5, RZ, PT\n@P0 STG.E desc[UR4][R2.64], R5\nEXIT"
    )
    _, store = _accesses(code)
    assert (store.sectors, store.assumes) == (4, (DATA_MASK,))


def test_a_branch_on_loaded_data_leaves_executions_unknown() -> None:
    code = (
        ADDRESS_OF_LANE  # 0x00 to 0x40
        + "LDG.E R5, desc[UR4][R2.64]\nISETP.GE.AND P0, PT, R5, RZ, PT\n@P0 BRA 0x90\n"  # 0x50 to 0x70
        + "STG.E desc[UR4][R2.64], R5\nEXIT"  # 0x80, 0x90
    )
    _, store = _accesses(code)
    assert (store.executed, store.sectors, store.sectors_per_access) == (None, None, 4)


def test_an_index_that_goes_through_shared_memory_is_found_again() -> None:
    # Lane l stores 31 - l to word l and loads word l ^ 1: the transposed order of a known index.
    code = """
        S2R R0, SR_TID.X
        IMAD.SHL.U32 R1, R0, 0x4, RZ
        IADD3 R2, -R0, 0x1f, RZ
        STS [R1+0x400], R2
        BAR.SYNC.DEFER_BLOCKING 0x0
        LOP3.LUT R3, R1, 0x4, RZ, 0x3c, !PT
        LDS R4, [R3+0x400]
        MOV R5, 0x40
        IMAD.WIDE R6, R4, R5, c[0x0][0x210]
        LDG.E R8, desc[UR4][R6.64]
        EXIT
    """
    store, load, gathered = _accesses(code, shared=128)
    assert (store.wavefronts_per_access, load.wavefronts_per_access) == (1, 1)
    assert (gathered.sectors, gathered.unknown) == (32, "")


def test_all_ctas_or_some_with_what_they_stand_for() -> None:
    assert len(chosen_ctas((5, 3, 1), 100)[0]) == 15
    ctas, weights = chosen_ctas((1000, 1, 1), 10)
    assert (ctas[0], ctas[-1]) == ((0, 0, 0), (999, 0, 0))
    assert sum(weights) == pytest.approx(1000)
    assert sum(chosen_ctas((300, 200, 7), 64)[1]) == pytest.approx(300 * 200 * 7)


TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [8], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#loc = loc("copy.py":6:0)
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32} {
  tt.func public @copy(%x: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %y: !tt.ptr<bf16>, %n: i32, %m: i32) {
    %at = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32, #blocked> loc(#loc1)
    %0 = tt.splat %n : i32 -> tensor<1024xi32, #blocked> loc(#loc1)
    %1 = arith.cmpi slt, %at, %0 : tensor<1024xi32, #blocked> loc(#loc1)
    %2 = tt.splat %x : !tt.ptr<bf16> -> tensor<1024x!tt.ptr<bf16>, #blocked> loc(#loc1)
    %3 = tt.addptr %2, %at : tensor<1024x!tt.ptr<bf16>, #blocked>, tensor<1024xi32, #blocked> loc(#loc1)
    %4 = tt.load %3, %1 : tensor<1024x!tt.ptr<bf16>, #blocked> loc(#loc1)
    %5 = tt.splat %y : !tt.ptr<bf16> -> tensor<1024x!tt.ptr<bf16>, #blocked> loc(#loc2)
    tt.store %5, %4 : tensor<1024x!tt.ptr<bf16>, #blocked> loc(#loc2)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("copy.py":8:4)
#loc2 = loc("copy.py":9:4)
"""


def test_arguments_that_keep_accesses_narrow_by_line() -> None:
    # Line 9 stores what line 8 loaded: n decided that load's mask, not this store's.
    assert unmarked_arguments(parse_ttgir(TTGIR)) == {"copy.py:8": ("n",), "copy.py:9": ("y",)}
