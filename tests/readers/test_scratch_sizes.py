"""Sizes of scratch that Triton 3.4 does not write: a module of one operation each, for its own pass to allocate."""

from __future__ import annotations

import lzma
import re

from locations import DATA

from occupancy_cli.readers.scratch_sizes import with_sizes
from occupancy_cli.readers.shared_map import read_shared_map

ALLOCATED = DATA / "allocated"


def _text(version: str) -> str:
    with lzma.open(ALLOCATED / f"sparse_mla_decode_{version}.mlir.xz", "rt") as file:
        return file.read()


def _old() -> str:
    return _text("3.4.0")


def _as_triton_3_4(probe: str) -> int:
    """What Triton 3.4.0 answered for each probe: padded rows for conversions, one value a row and warp for reductions.

    A conversion of 32 x 256 FP32 has rows of 256 + 4 values: 16 of them in a pass of a repeated layout,
    16 x 260 x 4 = 16,640 bytes.
    """
    if "tt.reduce" in probe:
        return 256
    shape = re.search(r"tensor<([\dx]+)xf32, #mma>\) -> ", probe)
    return {"32x256": 16640, "32x128": 8448, "32x64": 4352}[shape[1]] if shape else 128


def test_each_operation_is_asked_for_alone() -> None:
    asked: list[str] = []
    with_sizes(_old(), lambda probe: asked.append(probe))  # type: ignore[func-returns-value]
    # Two reductions, six conversions of which two pairs are of one shape and layout but of other names.
    assert [text.count("tt.func") for text in asked] == [1] * len(asked)
    assert all("allocation.offset" not in text and "loc(" not in text.split("module")[1] for text in asked)
    reduction = next(text for text in asked if "tt.reduce" in text)
    assert '"tt.reduce"(%$0) <{axis = 1 : i32}> ({' in reduction and "(%$0: tensor<32x16xf32, #mma>)" in reduction


def test_a_result_is_used() -> None:
    # The pass gives an atomic operation no scratch where its result goes nowhere: 0 bytes for the 256 that it takes.
    text = """module attributes {"ttg.num-warps" = 4 : i32, ttg.shared = 256 : i32} {
  tt.func public @k(%o: tensor<64x!tt.ptr<i32>, #b>, %v: tensor<64xi32, #b>, %m: tensor<64xi1, #b>) {
    %z_11 = tt.atomic_rmw add, acq_rel, gpu, %o, %v, %m {allocation.offset = 0 : i32} : (tensor<64x!tt.ptr<i32>, #b>, \
tensor<64xi32, #b>, tensor<64xi1, #b>) -> tensor<64xi32, #b> loc(#loc29)
    tt.return
  }
}
"""
    asked: list[str] = []
    with_sizes(text, lambda probe: asked.append(probe))  # type: ignore[func-returns-value]
    (probe,) = asked
    assert "%$2: tensor<64xi1, #b>) -> (tensor<64xi32, #b>) {" in probe
    assert "    tt.return %z_11 : tensor<64xi32, #b>\n" in probe


def test_several_results_are_used() -> None:
    text = """module attributes {ttg.shared = 64 : i32} {
  tt.func public @k(%v0: tensor<8x4xf32, #b>, %i: tensor<8x4xi32, #b>) {
    %v1:2 = "tt.reduce"(%v0, %i) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %b: i32, %c: f32, %d: i32):
      tt.reduce.return %a, %b : f32, i32
    }) {allocation.offset = 0 : i32} : (tensor<8x4xf32, #b>, tensor<8x4xi32, #b>) -> (tensor<8xf32, #s>, tensor<8xi32, \
#s>)
    tt.return
  }
}
"""
    asked: list[str] = []
    with_sizes(text, lambda probe: asked.append(probe))  # type: ignore[func-returns-value]
    (probe,) = asked
    assert "tt.return %v1#0, %v1#1 : tensor<8xf32, #s>, tensor<8xi32, #s>\n" in probe


def test_with_them_every_buffer_is_exact() -> None:
    found = read_shared_map(with_sizes(_old(), _as_triton_3_4))
    assert all(b.bytes_exact for b in found.buffers)
    assert max(b.offset + b.bytes for b in found.buffers) == found.total_bytes == 50_176
    sizes = [b.bytes for b in found.buffers if b.purpose == "layout conversion"]
    assert sorted(sizes) == [128, 128, 4352, 4352, 8448, 16640]


def test_an_operation_that_cannot_be_asked_for_stays_unsure() -> None:
    found = read_shared_map(with_sizes(_old(), lambda _probe: None))
    assert {b.purpose for b in found.buffers if not b.bytes_exact} == {"layout conversion", "reduction scratch"}


def test_sizes_that_are_written_are_not_asked_for() -> None:
    text = _text("3.9.0")

    def never(probe: str) -> int:
        raise AssertionError(probe)

    assert with_sizes(text, never).split() == text.split()
