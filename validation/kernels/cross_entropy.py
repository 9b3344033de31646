"""Cross entropy of logits over a vocabulary in one pass: a row a CTA, running maximum and sum over tiles of BLOCK.

logits_ptr          *bf16   [rows, vocabulary], contiguous
target_ptr          *i32    [rows]
loss_ptr, lse_ptr   *fp32   [rows]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, lse_ptr, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits = logits_ptr + row.to(tl.int64) * vocabulary
    target = tl.load(target_ptr + row)
    run_max = tl.full((BLOCK,), float("-inf"), tl.float32)
    run_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
        new_max = tl.maximum(run_max, x)
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        run_sum = run_sum * tl.exp(run_max - safe_max) + tl.exp(x - safe_max)
        run_max = new_max
    top = tl.max(run_max, 0)
    lse = top + tl.log(tl.sum(run_sum * tl.exp(run_max - top), 0))
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, lse - tl.load(logits + target).to(tl.float32))


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and vocabulary. The outputs start as NaN."""
    import torch

    rows, vocabulary = int(values["rows"]), int(values["vocabulary"])
    nan = torch.full((rows,), float("nan"), dtype=torch.float32, device=device)
    return {
        "logits_ptr": 2 * torch.randn(rows, vocabulary, dtype=torch.bfloat16, device=device),
        "target_ptr": torch.randint(vocabulary, (rows,), dtype=torch.int32, device=device),
        "loss_ptr": nan,
        "lse_ptr": nan.clone(),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    logits = tensors["logits_ptr"].double()
    lse = logits.logsumexp(1)
    picked = logits.gather(1, tensors["target_ptr"].long()[:, None])[:, 0]
    return {"loss_ptr": lse - picked, "lse_ptr": lse}
