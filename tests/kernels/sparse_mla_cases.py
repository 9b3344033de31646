"""The sparse MLA decode kernel on small random inputs, against its float64 reference; see conftest.py.

Prints for each case the relative error (norm of the difference / norm of the reference), whether every output is
finite, and the largest output of requests that have no valid token.
"""

from __future__ import annotations

import json
import os
from typing import Any

# What a case sets; the rest stays as in DEFAULT. `lengths` and `holes` (positions of -1) are by request.
DEFAULT: dict[str, Any] = {
    "batch": 2,
    "heads": 16,
    "topk": 64,
    "lengths": None,
    "holes": {},
    "block_h": 16,
    "block_t": 16,
    "nsplit": 2,
    "spread": 1.0,
    "scale": 0.06,
    "layout": "plain",
    "launched_scale": None,
}
CASES: dict[str, dict[str, Any]] = {
    "one split": {"nsplit": 1},
    "two splits": {},
    "uneven splits: 4 tiles over 3": {"nsplit": 3},
    "one tile a split": {"nsplit": 4},
    "more splits than tiles": {"nsplit": 7},
    "32-token tiles": {"block_t": 32},
    "64-token tiles": {"block_t": 64, "nsplit": 1},
    "32 rows for 16 heads": {"block_h": 32},
    "32 rows, 32 heads": {"block_h": 32, "heads": 32, "batch": 1},
    "20 heads over groups of 16": {"heads": 20},
    "5 heads": {"heads": 5},
    "topk no multiple of the tile": {"topk": 50, "block_t": 32},
    "topk below the tile": {"topk": 7, "block_t": 32},
    "topk 0": {"topk": 0, "nsplit": 1},
    "ragged lengths": {"batch": 4, "lengths": [64, 1, 17, 40], "nsplit": 3},
    "a length above topk": {"lengths": [64, 1000]},
    "lengths 0 and below": {"batch": 3, "lengths": [0, 64, -3]},
    "every length 0": {"lengths": [0, 0]},
    "holes": {"holes": {0: [0, 3, 15, 16, 63], 1: [1]}},
    "a whole tile of holes": {"holes": {0: list(range(16)), 1: list(range(32, 48))}, "nsplit": 1},
    "a whole split of holes": {"holes": {0: list(range(32))}},
    "nothing but holes": {"holes": {0: list(range(64))}},
    "magnitudes over 2^24": {"spread": 2.0**12},
    "sharp softmax": {"scale": 3.0},
    "padded pages": {"layout": "padded pages"},
    "strided query and indices": {"layout": "strided"},
    # A check of the check: the kernel is given another softmax scale than the reference.
    "wrong on purpose": {"launched_scale": 0.07},
}
KNOB_CASES: dict[str, dict[str, str]] = {
    "knobs unset": {},
    "knobs set": {"SGLANG_SM120_MMA_BLOCK_H": "16", "SGLANG_SM120_MMA_TARGET_CTAS": "7"},
}


def main() -> None:
    import torch
    import triton

    from testing import interpreter

    interpreter.install()
    kernel = interpreter.load_kernel("kernels/sparse_mla_decode.py")

    def inputs(case: dict[str, Any]) -> tuple[Any, ...]:
        torch.manual_seed(7)
        batch, heads, topk, tokens = case["batch"], case["heads"], case["topk"], 150
        query = torch.randn(batch, heads, 512).bfloat16()
        # Magnitudes from 1 / spread to spread over tokens and groups, so that scale bytes differ everywhere.
        magnitude = case["spread"] ** (2 * torch.rand(tokens, 8) - 1)
        cache = kernel.pack_cache(torch.randn(tokens, 512) * magnitude.repeat_interleave(64, dim=1))
        indices = torch.randint(0, tokens, (batch, topk), dtype=torch.int32)
        for request, positions in case["holes"].items():
            indices[request, positions] = -1
        lengths = torch.tensor(case["lengths"] or [topk] * batch, dtype=torch.int32)
        if case["layout"] == "padded pages":
            wide = torch.full((cache.shape[0], cache.shape[1] + 112), 255, dtype=torch.uint8)
            wide[:, : cache.shape[1]] = cache
            cache = wide
        if case["layout"] == "strided":
            query = torch.cat([query, query.flip(1)], dim=2)[:, :, :512]
            indices = torch.cat([indices, indices], dim=1)[:, :topk]
        return query, cache, indices, lengths

    def report(name: str, out: Any, expected: Any, **more: Any) -> None:
        difference = (out.double() - expected).norm().item()
        empty = expected.abs().amax(dim=(1, 2)) == 0
        row = {
            "case": name,
            "relative_error": difference / max(expected.norm().item(), 1e-30),
            "finite": bool(torch.isfinite(out).all()),
            "empty_requests": int(empty.sum()),
            "largest_of_empty": float(out[empty].abs().max()) if bool(empty.any()) else 0.0,
            **more,
        }
        print(json.dumps(row), flush=True)

    for name, changes in CASES.items():
        case = {**DEFAULT, **changes}
        given = inputs(case)
        ran = kernel.launch(
            *given,
            case["launched_scale"] or case["scale"],
            block_h=case["block_h"],
            nsplit=case["nsplit"],
            config=triton.Config({"BLOCK_T": case["block_t"]}, num_warps=4, num_stages=2),
        )
        report(name, ran.out, kernel.reference(*given, case["scale"]))

    launch = kernel.launch
    for name, environment in KNOB_CASES.items():
        seen: dict[str, int] = {}

        def spy(*args: Any, _seen: dict[str, int] = seen, **options: Any) -> Any:
            _seen.update(block_h=options["block_h"], nsplit=options["nsplit"])
            return launch(*args, **options)

        kernel.launch = spy
        for knob in ("SGLANG_SM120_MMA_BLOCK_H", "SGLANG_SM120_MMA_TARGET_CTAS"):
            os.environ.pop(knob, None)
        os.environ.update(environment)
        given = inputs(DEFAULT)
        out = kernel.sparse_mla_decode(*given, 0.06, config=triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2))
        report(name, out, kernel.reference(*given, 0.06), **seen)


if __name__ == "__main__":
    main()
