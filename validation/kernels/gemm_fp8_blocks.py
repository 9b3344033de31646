"""C = A x B in FP8 with scales: a row's groups of 128 along K for A, blocks of 128 x 128 for B; sums in FP32.

a_ptr           *fp8e4nv    [m, k], contiguous
b_ptr           *fp8e4nv    [n, k], contiguous
a_scale_ptr     *fp32       [m, k / 128]
b_scale_ptr     *fp32       [n / 128, k / 128], both rounded up
c_ptr           *bf16       [m, n]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def gemm_fp8_blocks_kernel(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    c_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    width = GROUP_M * tiles_n
    first = tl.program_id(0) // width * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    row = (first + tl.program_id(0) % width % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = (tl.program_id(0) % width // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, 128)
    groups = tl.cdiv(k, 128)
    a = a_ptr + row[:, None].to(tl.int64) * k + depth[None, :]
    b = b_ptr + column[None, :].to(tl.int64) * k + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(groups):
        inside = depth < k - group * 128
        x = tl.load(a + group * 128, mask=(row < m)[:, None] & inside[None, :], other=0.0)
        y = tl.load(b + group * 128, mask=inside[:, None] & (column < n)[None, :], other=0.0)
        a_scale = tl.load(a_scale_ptr + row * groups + group, mask=row < m, other=0.0)
        b_scale = tl.load(b_scale_ptr + column // 128 * groups + group, mask=column < n, other=0.0)
        acc += tl.dot(x, y) * a_scale[:, None] * b_scale[None, :]
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(c_ptr + row[:, None].to(tl.int64) * n + column[None, :], acc.to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has m, n and k. The output starts as NaN."""
    import torch

    m, n, k = (int(values[name]) for name in ("m", "n", "k"))
    groups = triton.cdiv(k, 128)

    def scales(rows: int) -> torch.Tensor:
        return 0.5 + torch.rand(rows, groups, dtype=torch.float32, device=device)

    return {
        "a_ptr": torch.randn(m, k, device=device).to(torch.float8_e4m3fn),
        "b_ptr": torch.randn(n, k, device=device).to(torch.float8_e4m3fn),
        "a_scale_ptr": scales(m),
        "b_scale_ptr": scales(triton.cdiv(n, 128)),
        "c_ptr": torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    n, k = int(values["n"]), int(values["k"])
    a_scale = tensors["a_scale_ptr"].double().repeat_interleave(128, 1)[:, :k]
    b_scale = tensors["b_scale_ptr"].double().repeat_interleave(128, 1).repeat_interleave(128, 0)[:n, :k]
    return {"c_ptr": (tensors["a_ptr"].double() * a_scale) @ (tensors["b_ptr"].double() * b_scale).T}
