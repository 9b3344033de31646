"""C = A x B in BF16: plain with tiles in groups, split along K, persistent, and by equal shares of all iterations.

    a_ptr       *bf16           [m, k], contiguous
    b_ptr       *bf16           [k, n], contiguous
    c_ptr       *bf16           [m, n]; *fp32 in `stream_k_kernel`, added into
    part_ptr    *fp32           [splits, m, n], of `split_k_kernel`, which `sum_splits_kernel` adds up

`GROUP_M` rows of tiles are walked together before the next columns, so that what they share is still in the L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of tile number `tile`: groups of GROUP_M rows, column by column inside a group."""
    width = GROUP_M * tiles_n
    first = tile // width * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return first + tile % width % height, tile % width // height


@triton.jit
def product_over_k(
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    tile_m,
    tile_n,
    first,
    last,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The FP32 tile of A x B over the steps `first` to `last` of BLOCK_K."""
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + row[:, None].to(tl.int64) * k + depth[None, :]
    b = b_ptr + depth[:, None].to(tl.int64) * n + column[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        start = step * BLOCK_K
        inside = depth < k - start
        x = tl.load(a + start, mask=(row < m)[:, None] & inside[None, :], other=0.0)
        y = tl.load(b + start * n, mask=inside[:, None] & (column < n)[None, :], other=0.0)
        acc = tl.dot(x, y, acc)
    return acc


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tile_m, tile_n = tile_place(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
    steps = tl.cdiv(k, BLOCK_K)
    acc = product_over_k(a_ptr, b_ptr, m, n, k, tile_m, tile_n, 0, steps, BLOCK_M, BLOCK_N, BLOCK_K)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(c_ptr + row[:, None].to(tl.int64) * n + column[None, :], acc.to(tl.bfloat16), mask=inside)


@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    part_ptr,
    m,
    n,
    k,
    steps_per_split,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tile_m, tile_n = tile_place(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
    split = tl.program_id(1)
    first = split * steps_per_split
    last = tl.minimum(first + steps_per_split, tl.cdiv(k, BLOCK_K))
    acc = product_over_k(a_ptr, b_ptr, m, n, k, tile_m, tile_n, first, last, BLOCK_M, BLOCK_N, BLOCK_K)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row < m)[:, None] & (column < n)[None, :]
    part = part_ptr + split.to(tl.int64) * m * n
    tl.store(part + row[:, None].to(tl.int64) * n + column[None, :], acc, mask=inside)


@triton.jit
def sum_splits_kernel(part_ptr, c_ptr, count, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        acc += tl.load(part_ptr + split * count + at, mask=at < count, other=0.0)
    tl.store(c_ptr + at, acc.to(tl.bfloat16), mask=at < count)


@triton.jit
def persistent_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = product_over_k(a_ptr, b_ptr, m, n, k, tile_m, tile_n, 0, steps, BLOCK_M, BLOCK_N, BLOCK_K)
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = (row < m)[:, None] & (column < n)[None, :]
        tl.store(c_ptr + row[:, None].to(tl.int64) * n + column[None, :], acc.to(tl.bfloat16), mask=inside)


@triton.jit
def stream_k_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    share = tl.cdiv(tiles_m * tiles_n * steps, tl.num_programs(0))
    at = tl.program_id(0) * share
    end = tl.minimum(at + share, tiles_m * tiles_n * steps)
    while at < end:
        tile = at // steps
        first = at % steps
        last = tl.minimum(steps, first + end - at)
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = product_over_k(a_ptr, b_ptr, m, n, k, tile_m, tile_n, first, last, BLOCK_M, BLOCK_N, BLOCK_K)
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = (row < m)[:, None] & (column < n)[None, :]
        place = c_ptr + row[:, None].to(tl.int64) * n + column[None, :]
        if last - first == steps:
            tl.store(place, acc, mask=inside)
        else:
            tl.atomic_add(place, acc, mask=inside, sem="relaxed")
        at += last - first


def _operands(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    import torch

    m, n, k = (int(values[name]) for name in ("m", "n", "k"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {"a_ptr": torch.randn(m, k, **half), "b_ptr": torch.randn(k, n, **half)}


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has m, n, k and, of the split kernel, splits. What is written starts NaN."""
    import torch

    m, n = int(values["m"]), int(values["n"])
    tensors = _operands(values, device)
    tensors["c_ptr"] = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device)
    if "splits" in values:
        shape = int(values["splits"]), m, n
        tensors["part_ptr"] = torch.full(shape, float("nan"), dtype=torch.float32, device=device)
    return tensors


def stream_k_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors of `stream_k_kernel` by argument name; the output, which is added into, starts at zero."""
    import torch

    output = torch.zeros(int(values["m"]), int(values["n"]), dtype=torch.float32, device=device)
    return {**_operands(values, device), "c_ptr": output}


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    return {"c_ptr": tensors["a_ptr"].double() @ tensors["b_ptr"].double()}
