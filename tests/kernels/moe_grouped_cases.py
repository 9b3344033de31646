"""The MoE grouped GEMM on small random inputs, against its float64 reference; see conftest.py.

Prints for each case the relative error (norm of the difference / norm of the reference) and whether all is finite.
"""

from __future__ import annotations

import json
from typing import Any

DEFAULT: dict[str, Any] = {
    "tokens": 9,
    "top_k": 3,
    "experts": 5,
    "n": 128,
    "k": 128,
    "dtype": "bf16",
    "scales": False,
    "weighted": False,
    "second": False,
    "routing": "random",
    "block_m": 16,
    "block_n": 64,
    "block_k": 64,
    "group_m": 1,
    "wrong": False,
}
CASES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp8 with scales": {"dtype": "fp8", "scales": True},
    "fp8 without scales": {"dtype": "fp8"},
    "fp8 weights alone": {"dtype": "w8a16"},
    "fp8 weights alone, scaled": {"dtype": "w8a16", "scales": True},
    "routing weights": {"weighted": True},
    "second GEMM: a row a pair": {"second": True, "weighted": True},
    "K no multiple of BLOCK_K": {"k": 80},
    "N no multiple of BLOCK_N": {"n": 100},
    "K below BLOCK_K": {"k": 32},
    "grouped order": {"tokens": 40, "n": 256, "group_m": 3},
    "one group": {"tokens": 40, "n": 256, "group_m": 8},
    "32 rows": {"tokens": 40, "block_m": 32},
    "64 rows": {"tokens": 40, "block_m": 64, "experts": 2},
    "all to one expert": {"tokens": 20, "routing": "one"},
    "more experts than pairs": {"tokens": 2, "top_k": 1, "experts": 30},
    "one token": {"tokens": 1},
    "no token": {"tokens": 0},
    "top_k 1": {"top_k": 1},
    # A check of the check: the first expert's weights are negated for the reference.
    "wrong on purpose": {"wrong": True, "routing": "one"},
}


def main() -> None:
    import torch
    import triton

    from testing import interpreter

    interpreter.install()
    kernel = interpreter.load_kernel("kernels/moe_grouped_gemm.py")

    for name, changes in CASES.items():
        case = {**DEFAULT, **changes}
        torch.manual_seed(3)
        tokens, top_k, experts = case["tokens"], case["top_k"], case["experts"]
        rows = tokens * top_k if case["second"] else tokens
        a = torch.randn(rows, case["k"]).to(torch.float8_e4m3fn if case["dtype"] == "fp8" else torch.bfloat16)
        b = torch.randn(experts, case["n"], case["k"])
        b = b.to(torch.bfloat16 if case["dtype"] == "bf16" else torch.float8_e4m3fn)
        topk_ids = torch.randint(0, experts, (tokens, top_k), dtype=torch.int32)
        if case["routing"] == "one":
            topk_ids.zero_()
        options: dict[str, Any] = {}
        if case["scales"]:
            options |= {"a_scale": torch.rand(rows) + 0.5, "b_scale": torch.rand(experts, case["n"]) + 0.5}
        if case["weighted"]:
            options["topk_weights"] = torch.rand(tokens, top_k)
        config = triton.Config(
            {"BLOCK_N": case["block_n"], "BLOCK_K": case["block_k"], "GROUP_M": case["group_m"]},
            num_warps=4,
            num_stages=3,
        )
        out = kernel.launch(a, b, topk_ids, block_m=case["block_m"], config=config, **options).out
        if case["wrong"]:
            b[0] = -b[0]
        expected = kernel.reference(a, b, topk_ids, **options)
        row = {
            "case": name,
            "relative_error": (out.double() - expected).norm().item() / max(expected.norm().item(), 1e-30),
            "finite": bool(torch.isfinite(out).all()),
            "shape": list(out.shape),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
