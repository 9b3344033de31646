"""One BF16 GEMM an expert over rows that lie expert by expert, with the experts' first rows read from memory.

    a_ptr       *bf16   [experts x share, k], contiguous
    b_ptr       *bf16   [experts, k, n], contiguous
    first_ptr   *i32    [experts + 1], the first row of each expert
    c_ptr       *bf16   [experts x share, n]

A CTA whose rows lie past its expert's returns at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def grouped_gemm_kernel(
    a_ptr,
    b_ptr,
    first_ptr,
    c_ptr,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    expert = tl.program_id(2)
    first = tl.load(first_ptr + expert)
    last = tl.load(first_ptr + expert + 1)
    row = first + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if first + tl.program_id(1) * BLOCK_M < last:
        depth = tl.arange(0, BLOCK_K)
        a = a_ptr + row[:, None].to(tl.int64) * k + depth[None, :]
        b = b_ptr + expert.to(tl.int64) * k * n + depth[:, None].to(tl.int64) * n + column[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            x = tl.load(a + start, mask=(row < last)[:, None], other=0.0)
            y = tl.load(b + start * n, mask=(column < n)[None, :], other=0.0)
            acc = tl.dot(x, y, acc)
        inside = (row < last)[:, None] & (column < n)[None, :]
        tl.store(c_ptr + row[:, None].to(tl.int64) * n + column[None, :], acc.to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has experts, share, n and k. Every expert has `share` rows; output NaN."""
    import torch

    experts, share, n, k = (int(values[name]) for name in ("experts", "share", "n", "k"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "a_ptr": torch.randn(experts * share, k, **half),
        "b_ptr": torch.randn(experts, k, n, **half),
        "first_ptr": torch.arange(experts + 1, dtype=torch.int32, device=device) * share,
        "c_ptr": torch.full((experts * share, n), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64, expert by expert."""
    import torch

    experts, share = int(values["experts"]), int(values["share"])
    a = tensors["a_ptr"].unflatten(0, (experts, share))
    products = [a[e].double() @ tensors["b_ptr"][e].double() for e in range(experts)]
    return {"c_ptr": torch.cat(products)}
