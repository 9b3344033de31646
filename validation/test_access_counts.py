"""The recorded counts of Nsight Compute: what is read of accesses is what it counted. The whole record takes a minute:
`validation/h200/compare_accesses.py`; here the rules, and some launches of each kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from testing import interpreter

pytestmark = pytest.mark.slow

compare_accesses = interpreter.load_kernel("validation/h200/compare_accesses.py")

# Quick ones whose every access is known, at least one of each kind of access.
EXACT = (
    "copy_bf16_odd_size", "copy_fp8_odd_size", "copy_bf16_base_2", "copy_fp32_base_4_out", "rows_odd_stride",
    "stride_7",
    "broadcast_3", "transpose_direct_bf16_odd", "transpose_shared_int8", "row_sum_tile_bf16", "column_sum_bf16_odd",
    "argmax", "scan_axis_1", "sort", "gather_rows", "gather_shared", "atomic_add", "interleave", "flip", "softmax_odd",
    "layer_norm", "wgmma_fp8", "mma_bf16_transposed", "mma_fp8", "descriptor_product", "dequantised_mma",
    "attention_decode", "spills_mma", "rotary_last",
)  # fmt: skip


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found: dict[str, Any] = compare_accesses.read_record()
    return found


def test_the_rules_agree_with_single_accesses_of_known_offsets(record: dict[str, Any]) -> None:
    counts = compare_accesses.compare_patterns(record["patterns"])
    assert counts["exact"] >= 1663 and counts.total() == 1664, counts


@pytest.mark.parametrize("name", EXACT)
def test_every_access_is_what_nsight_compute_counted(record: dict[str, Any], name: str) -> None:
    launch = next(each for each in record["launches"] if each["name"] == name)
    counts: Counter[str] = sum(compare_accesses.compare([launch], True).values(), Counter())
    assert set(counts) <= {"exact", "assumed, equal"} and counts["exact"] + counts["assumed, equal"] > 1, counts


def test_a_wrong_count_is_seen(record: dict[str, Any]) -> None:
    launch = next(each for each in record["launches"] if each["name"] == "stride_7")
    wrong = {**launch, "counted": {a: [n + 1 for n in counted] for a, counted in launch["counted"].items()}}
    counts: Counter[str] = sum(compare_accesses.compare([wrong], False).values(), Counter())
    assert not counts["exact"] and counts["inexact"] == counts.total()
