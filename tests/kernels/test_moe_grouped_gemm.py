"""The shipped MoE grouped GEMM: its numbers against float64, and the sorting that it depends on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from moe_grouped_cases import CASES, DEFAULT

from testing import interpreter

pytestmark = pytest.mark.compiles

GATE = 6.7e-3

Interpreted = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    return interpreter.load_kernel("kernels/moe_grouped_gemm.py")


@pytest.mark.parametrize("case", [case for case in CASES if case != "wrong on purpose"])
def test_output_is_within_the_gate_of_float64(interpreted: Interpreted, case: str) -> None:
    result = interpreted("moe_grouped_cases.py")[case]
    wanted = {**DEFAULT, **CASES[case]}
    assert result["shape"] == [wanted["tokens"], wanted["top_k"], wanted["n"]]
    assert result["finite"]
    assert result["relative_error"] <= GATE


def test_a_wrong_output_fails_the_gate(interpreted: Interpreted) -> None:
    assert interpreted("moe_grouped_cases.py")["wrong on purpose"]["relative_error"] > 2 * GATE


@pytest.mark.parametrize(
    ("pairs", "experts", "block_m", "expected"),
    [
        (640, 256, 16, 4480),  # 640 + 256 x 15 = 4,480 = 280 x 16
        (4, 256, 16, 64),  # four experts at most are in use: 4 + 4 x 15 = 64
        (100, 3, 32, 224),  # 100 + 3 x 31 = 193, up to 7 x 32
        (1, 1, 16, 16),
    ],
)
def test_most_padded(kernel: ModuleType, pairs: int, experts: int, block_m: int, expected: int) -> None:
    assert kernel.most_padded(pairs, experts, block_m) == expected


@pytest.mark.parametrize(
    ("pairs", "experts", "expected"),
    [
        (640, 256, 16),  # 2.5 pairs an expert
        (640, 16, 64),  # 40, up to 64
        (100_000, 8, 128),  # never more than 128
    ],
)
def test_pick_block_m(kernel: ModuleType, pairs: int, experts: int, expected: int) -> None:
    assert kernel.pick_block_m(pairs, experts) == expected


def test_sorting_by_hand(interpreted: Interpreted, kernel: ModuleType) -> None:
    interpreted("moe_grouped_cases.py")  # skips or fails where torch is absent
    import torch

    # Pairs 0 .. 5 go to experts 2, 0, 2, 3, 0, 2; expert 1 gets none. Blocks of 2:
    # expert 0: pairs 1, 4; expert 2: pairs 0, 2 and 5, padding; expert 3: pair 3, padding. 8 of at most 6 + 4 x 1 = 10.
    routing = kernel.align_tokens(torch.tensor([[2, 0], [2, 3], [0, 2]]), experts=4, block_m=2)
    assert routing.sorted_ids.tolist() == [1, 4, 0, 2, 5, 6, 3, 6, 6, 6]
    assert routing.expert_ids.tolist()[:4] == [0, 2, 2, 3]
    assert routing.padded_count.tolist() == [8]


@pytest.mark.parametrize("experts", [1, 7, 64])
@pytest.mark.parametrize("block_m", [16, 32])
def test_sorting_keeps_every_pair_once_under_its_expert(
    interpreted: Interpreted, kernel: ModuleType, experts: int, block_m: int
) -> None:
    interpreted("moe_grouped_cases.py")
    import torch

    torch.manual_seed(experts)
    topk_ids = torch.randint(0, experts, (23, 4))
    routing = kernel.align_tokens(topk_ids, experts, block_m)
    count = int(routing.padded_count)
    assert count % block_m == 0
    assert count <= routing.sorted_ids.numel() == kernel.most_padded(92, experts, block_m)
    placed = routing.sorted_ids[routing.sorted_ids < 92]
    assert sorted(placed.tolist()) == list(range(92))
    assert bool((routing.sorted_ids[count:] == 92).all())
    for block, expert in enumerate(routing.expert_ids[: count // block_m].tolist()):
        pairs = routing.sorted_ids[block * block_m : (block + 1) * block_m]
        assert bool((topk_ids.reshape(-1)[pairs[pairs < 92].long()] == expert).all())


def test_inputs_that_do_not_fit_are_refused(interpreted: Interpreted, kernel: ModuleType) -> None:
    interpreted("moe_grouped_cases.py")
    import torch

    a, b = torch.zeros(4, 64, dtype=torch.bfloat16), torch.zeros(3, 32, 64, dtype=torch.bfloat16)
    topk_ids = torch.zeros(4, 2, dtype=torch.int32)
    for changed, message in [
        ({"a": a[:3]}, r"a must be \[4 or 8, 64\]"),
        ({"a": a[:, :32]}, r"a must be \[4 or 8, 64\]"),
        ({"a": a.to(torch.float8_e4m3fn)}, "BF16 or FP8 E4M3 both"),
        ({"b": b.transpose(1, 2).contiguous().transpose(1, 2)}, "b must be contiguous"),
        ({"a_scale": torch.ones(4)}, "go together"),
    ]:
        given = {"a": a, "b": b, "topk_ids": topk_ids, **changed}
        with pytest.raises(ValueError, match=message):
            kernel.launch(**given)
