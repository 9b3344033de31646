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
    shape = re.search(r"tensor<([\dx]+)xf32, #mma>\) \{", probe)
    return {"32x256": 16640, "32x128": 8448, "32x64": 4352}[shape[1]] if shape else 128


def test_each_operation_is_asked_for_alone() -> None:
    asked: list[str] = []
    with_sizes(_old(), lambda probe: asked.append(probe))  # type: ignore[func-returns-value]
    # Two reductions, six conversions of which two pairs are of one shape and layout but of other names.
    assert [text.count("tt.func") for text in asked] == [1] * len(asked)
    assert all("allocation.offset" not in text and "loc(" not in text.split("module")[1] for text in asked)
    reduction = next(text for text in asked if "tt.reduce" in text)
    assert '"tt.reduce"(%v0) <{axis = 1 : i32}> ({' in reduction and "(%v0: tensor<32x16xf32, #mma>)" in reduction


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
