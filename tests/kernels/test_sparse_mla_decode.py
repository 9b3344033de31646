"""The shipped sparse MLA decode kernel: its numbers against float64, its knobs, what it needs of an sm120 SM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sparse_mla_cases import CASES, KNOB_CASES

from testing import interpreter

pytestmark = pytest.mark.compiles

HERE = Path(__file__).resolve().parent
GATE = 6.7e-3  # the deployment's correctness gate
EMPTY_REQUESTS = {"topk 0": 2, "lengths 0 and below": 2, "every length 0": 2, "nothing but holes": 1}

Interpreted = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    return interpreter.load_kernel("kernels/sparse_mla_decode.py")


@pytest.mark.parametrize("case", [case for case in CASES if case != "wrong on purpose"])
def test_output_is_within_the_gate_of_float64(interpreted: Interpreted, case: str) -> None:
    result = interpreted("sparse_mla_cases.py")[case]
    assert result["finite"]
    assert result["relative_error"] <= GATE
    assert result["empty_requests"] == EMPTY_REQUESTS.get(case, 0)
    assert result["largest_of_empty"] == 0.0


def test_a_wrong_output_fails_the_gate(interpreted: Interpreted) -> None:
    assert interpreted("sparse_mla_cases.py")["wrong on purpose"]["relative_error"] > 2 * GATE


def test_knobs_are_read_at_each_call(interpreted: Interpreted) -> None:
    results = interpreted("sparse_mla_cases.py")
    assert all(results[case]["relative_error"] <= GATE for case in KNOB_CASES)
    # Batch 2, 16 heads, topk 64, BLOCK_T 16: one head group at either BLOCK_H, 4 tiles.
    # Unset: BLOCK_H 32, floor(256 / 2) = 128 splits, at most 4. Set: BLOCK_H 16, floor(7 / 2) = 3.
    assert (results["knobs unset"]["block_h"], results["knobs unset"]["nsplit"]) == (32, 4)
    assert (results["knobs set"]["block_h"], results["knobs set"]["nsplit"]) == (16, 3)


@pytest.mark.parametrize(
    ("batch", "heads", "block_h", "topk", "block_t", "target", "expected"),
    [
        (80, 16, 32, 512, 16, 256, 3),  # floor(256 / 80) = 3: 240 CTAs
        (96, 16, 32, 512, 16, 256, 2),  # floor(256 / 96) = 2: 192 CTAs
        (80, 64, 16, 512, 16, 256, 1),  # 4 head groups: floor(256 / 320) = 0, at least 1
        (1, 16, 16, 512, 64, 256, 8),  # 512 / 64 = 8 tiles cap floor(256 / 1)
        (1, 20, 16, 100, 16, 9, 4),  # 2 head groups: floor(9 / 2) = 4, of ceil(100 / 16) = 7 tiles
        (1, 16, 16, 0, 16, 256, 1),  # no tile: one split that finds nothing
    ],
)
def test_split_count(
    kernel: ModuleType, batch: int, heads: int, block_h: int, topk: int, block_t: int, target: int, expected: int
) -> None:
    assert kernel.split_count(batch, heads, block_h, topk, block_t, target) == expected


@pytest.mark.parametrize("text", ["0", "-16", "thirty", "16.5"])
def test_a_knob_that_is_no_positive_integer_is_refused(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SGLANG_SM120_MMA_BLOCK_H", text)
    with pytest.raises(ValueError, match="SGLANG_SM120_MMA_BLOCK_H='"):
        kernel.knob("SGLANG_SM120_MMA_BLOCK_H", 32)


def test_an_empty_knob_is_unset(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SM120_MMA_BLOCK_H", " ")
    assert kernel.knob("SGLANG_SM120_MMA_BLOCK_H", 32) == 32


def test_cache_layout(kernel: ModuleType) -> None:
    # 64 tokens x (448 FP8 + 64 x 2 BF16 + 8 scale bytes) = 64 x 584
    assert kernel.PAGE_BYTES == 37_376
    assert kernel.PAGE_BYTES % 16 == 0


def test_packing_keeps_the_latent(interpreted: Interpreted, kernel: ModuleType) -> None:
    interpreted("sparse_mla_cases.py")  # skips or fails where torch is absent
    import torch

    torch.manual_seed(1)
    latent = torch.randn(70, 512) * torch.logspace(-6, 6, 70)[:, None]
    cache = kernel.pack_cache(latent)
    assert tuple(cache.shape) == (2, 37_376)  # 70 tokens: two pages
    unpacked = kernel.unpack_cache(cache)
    assert float(unpacked[70:].abs().max()) == 0.0
    # E4M3 keeps 4 significant bits: half a unit is 1/16 of a value, and 2^-10 of the scaled 1.0 below 2^-6. A group's
    # scale puts its largest value in (224, 448], so that the floor is at most 2^-10 / 224 of it.
    nope, kept = latent[:, :448].double(), unpacked[:70, :448]
    group_largest = nope.reshape(70, 7, 64).abs().amax(2).repeat_interleave(64, dim=1)
    assert bool(((kept - nope).abs() <= nope.abs() / 16 + group_largest * 2.0**-10 / 224).all())
    # BF16 keeps 8 significant bits: half a unit is 2^-9 relative to the binade, at most 2^-8 of a value.
    rope, kept = latent[:, 448:].double(), unpacked[:70, 448:]
    assert bool(((kept - rope).abs() <= rope.abs() / 256).all())


def test_inputs_that_do_not_fit_are_refused(interpreted: Interpreted, kernel: ModuleType) -> None:
    interpreted("sparse_mla_cases.py")
    import torch

    query = torch.zeros(2, 16, 512, dtype=torch.bfloat16)
    cache = torch.zeros(1, 37_376, dtype=torch.uint8)
    indices = torch.zeros(2, 16, dtype=torch.int32)
    length = torch.zeros(2, dtype=torch.int32)
    for changed, message in [
        ({"query": query.float()}, "query must be BF16"),
        ({"query": query[:, :, :448]}, "query must be BF16"),
        ({"cache": cache[:, :-8]}, "cache must be uint8"),
        ({"cache": torch.zeros(2, 37_384, dtype=torch.uint8)}, "multiples of 16 bytes"),
        ({"indices": indices.long()}, "indices must be int32"),
        ({"indices": indices[:1]}, "indices must be int32"),
        ({"topk_length": length[:1]}, "topk_length must be"),
    ]:
        given = {"query": query, "cache": cache, "indices": indices, "topk_length": length, **changed}
        with pytest.raises(ValueError, match=message):
            kernel.launch(**given, softmax_scale=0.06, block_h=16, nsplit=1)


def test_importing_the_kernels_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from testing import interpreter\n"
        "for name in ('sparse_mla_decode', 'moe_grouped_gemm'):\n"
        "    interpreter.load_kernel(f'kernels/{name}.py')\n"
        "print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "imported", done.stderr


def test_some_configs_exceed_what_an_sm120_cta_may_use_and_some_fit() -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "compile_for_sm120.py")],
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shared = {
        (row["BLOCK_H"], row["BLOCK_T"]): row["shared_bytes"] for row in map(json.loads, done.stdout.splitlines())
    }
    limit = 101_376  # shared memory a CTA of compute capability 12.0 may opt in to
    assert shared[32, 64] > limit
    assert shared[32, 16] <= limit
    assert shared[16, 64] <= limit
    # A query row less is 512 x 2 bytes of shared memory less: 16 rows are 16,384 B, and with them go 16 rows of the
    # softmax weights, 16 x BLOCK_T x 2 bytes.
    assert shared[32, 16] - shared[16, 16] == 16_384 + 16 * 16 * 2
    assert shared[32, 64] - shared[16, 64] == 16_384 + 16 * 64 * 2
