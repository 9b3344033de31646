"""C = A x W with W in four bits: two weights a byte along N, a scale for each group of 128 along K.

    a_ptr       *bf16   [m, k], contiguous
    w_ptr       *u8     [k, n / 2], contiguous; columns 2j in the low half, 2j + 1 in the high half
    scale_ptr   *bf16   [k / 128, n]
    c_ptr       *bf16   [m, n]

Weights count from -8 to 7. Dequantised in registers, so the product's second operand passes through a conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def gemm_int4_kernel(
    a_ptr, w_ptr, scale_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    pair = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + row[:, None].to(tl.int64) * k + depth[None, :]
    w = w_ptr + depth[:, None].to(tl.int64) * (n // 2) + pair[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        x = tl.load(a + start, mask=(row < m)[:, None], other=0.0)
        packed = tl.load(w + start * (n // 2), mask=(pair < n // 2)[None, :], other=0).to(tl.int32)
        scale = tl.load(scale_ptr + start // 128 * n + column, mask=column < n, other=0.0)
        both = tl.join(packed & 15, packed >> 4).reshape(BLOCK_K, BLOCK_N)
        weight = (both - 8).to(tl.float32) * scale[None, :].to(tl.float32)
        acc = tl.dot(x, weight.to(tl.bfloat16), acc)
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(c_ptr + row[:, None].to(tl.int64) * n + column[None, :], acc.to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has m, n and k. The output starts as NaN."""
    import torch

    m, n, k = (int(values[name]) for name in ("m", "n", "k"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "a_ptr": torch.randn(m, k, **half),
        "w_ptr": torch.randint(256, (k, n // 2), dtype=torch.uint8, device=device),
        "scale_ptr": 0.5 + torch.rand(k // 128, n, **half),
        "c_ptr": torch.full((m, n), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    import torch

    packed = tensors["w_ptr"].int()
    weight = torch.stack([packed & 15, packed >> 4], 2).flatten(1).double() - 8
    scaled = weight * tensors["scale_ptr"].double().repeat_interleave(128, 0)
    return {"c_ptr": tensors["a_ptr"].double() @ scaled}
