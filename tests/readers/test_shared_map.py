"""Shared memory read buffer by buffer from recorded IR: totals are exact, lives and purposes those of the source."""

from __future__ import annotations

import lzma

import pytest
from locations import DATA

from occupancy_cli.errors import InputError
from occupancy_cli.readers.shared_map import SharedBuffer, SharedMap, read_shared_map

RECORDED = sorted(p.name.removesuffix(".mlir.xz") for p in (DATA / "allocated").glob("*.xz"))


def _map(name: str) -> SharedMap:
    return read_shared_map(lzma.open(DATA / "allocated" / f"{name}.mlir.xz", "rt").read())


def _by_value(found: SharedMap) -> dict[str, SharedBuffer]:
    return {b.value: b for b in found.buffers if b.value}


@pytest.mark.parametrize("name", RECORDED)
def test_the_end_of_the_last_buffer_is_what_a_launch_asks_for(name: str) -> None:
    found = _map(name)
    assert max(b.offset + b.bytes for b in found.buffers) == found.total_bytes
    assert max(b.offset + b.bytes for b in found.peak) == found.total_bytes


@pytest.mark.parametrize("name", RECORDED)
def test_buffers_that_live_together_do_not_overlap(name: str) -> None:
    buffers = [b for b in _map(name).buffers if b.bytes_exact]
    for i, one in enumerate(buffers):
        for other in buffers[i + 1 :]:
            if one.live_from <= other.live_to and other.live_from <= one.live_to:
                apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
                assert apart, (one, other)


def test_the_query_of_a_decode_kernel_is_kept_for_the_loop() -> None:
    found = _by_value(_map("sparse_mla_decode_3.9.0"))
    # BLOCK_H 32 heads x 256 + 128 + 64 + 64 of the query in BF16: 32 x 512 x 2 = 32,768 bytes, all through the loop.
    query = [found[n] for n in ("query_a", "query_b", "query_c", "query_r")]
    assert sum(b.bytes for b in query) == 32 * (256 + 128 + 64 + 64) * 2
    assert {b.purpose for b in query} == {"operand kept for the loop"}
    # A tile of 16 keys x 256 in BF16: 8,192 bytes, that lives within one trip.
    assert (found["key_a"].shape, found["key_a"].bytes, found["key_a"].purpose) == ((16, 256), 8192, "dot operand")
    assert found["query_a"].source[0].file.endswith("sparse_mla_decode.py")
    assert found["weight"].live_from > found["query_a"].live_from
    assert found["weight"].live_to < found["query_a"].live_to


def test_scratch_without_a_written_size_is_marked() -> None:
    new, old = _map("sparse_mla_decode_3.9.0"), _map("sparse_mla_decode_3.4.0")
    assert all(b.bytes_exact for b in new.buffers)
    assert old.total_bytes == new.total_bytes
    unsure = [b for b in old.buffers if not b.bytes_exact]
    assert {b.purpose for b in unsure} == {"layout conversion", "reduction scratch"}
    for ours, theirs in zip(old.buffers, new.buffers, strict=True):
        assert (ours.offset, ours.purpose) == (theirs.offset, theirs.purpose)
        assert ours.bytes >= theirs.bytes  # never less than it takes


def test_pipelined_loads_barriers_and_descriptors() -> None:
    found = _map("descriptors_sm90_3.9.0").buffers
    # Three stages of 128 x 64 BF16: 3 x 16,384 bytes for each operand, 3 barriers of 8 bytes, 128 bytes a descriptor.
    loads = [b for b in found if b.purpose == "pipelined load"]
    assert [(b.shape, b.copies, b.bytes) for b in loads] == [((128, 64), 3, 49_152)] * 2
    assert [(b.copies, b.bytes) for b in found if b.purpose == "barrier"] == [(3, 24)]
    assert [b.bytes for b in found if b.purpose == "descriptor"] == [128, 128, 128]


def test_scratch_of_a_scan_a_histogram_and_a_conversion() -> None:
    purposes = [b.purpose for b in _map("tensor_memory_sm100_3.9.0").buffers]
    assert purposes.count("layout conversion") == 2
    assert purposes.count("histogram scratch") == 1


def test_ir_before_the_allocation_is_refused() -> None:
    with pytest.raises(InputError, match="not allocated"):
        read_shared_map("module {\n  tt.func public @k() {\n    tt.return\n  }\n}")
