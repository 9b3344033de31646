# ruff: noqa: E501 (a table, one case a line)
"""Small Triton kernels, one kind of memory access each, for `ncu_kernels.py` beside this file.

A case is a kernel with its launch: `make(device)` gives the run-time arguments in the order of the signature, with
fresh random numbers in tensors whose base address is what the case is about (a slice of a tensor is a misaligned base).
Every kernel has a name of its own, since Nsight Compute tells launches apart by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One launch: `kind` groups cases in the counts, `values` are the constexprs and launch options."""

    name: str
    kind: str
    kernel: Any
    grid: tuple[int, ...]
    make: Callable[[str], Arguments]
    values: Mapping[str, Any] = field(default_factory=dict)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def row_copy_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row * stride + at, tl.load(x_ptr + row * stride + at, mask=at < columns), mask=at < columns)


@triton.jit
def strided_copy_kernel(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at * stride))


@triton.jit
def broadcast_kernel(x_ptr, y_ptr, REPEAT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at // REPEAT))


@triton.jit
def uncoalesced_transpose_kernel(x_ptr, y_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    tl.store(y_ptr + c[None, :] * rows + r[:, None], tl.load(x_ptr + r[:, None] * columns + c[None, :], inside), inside)


@triton.jit
def shared_transpose_kernel(x_ptr, y_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.load(x_ptr + r[:, None] * columns + c[None, :])
    tl.store(y_ptr + c[:, None] * rows + r[None, :], tl.trans(tile))


@triton.jit
def row_reduction_kernel(x_ptr, y_ptr, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=(c < columns)[None, :], other=0.0)
    tl.store(y_ptr + r, tl.sum(x, 1))


@triton.jit
def column_reduction_kernel(x_ptr, y_ptr, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.program_id(0) * C + tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=(c < columns)[None, :], other=0.0)
    tl.store(y_ptr + c, tl.sum(x, 0), mask=c < columns)


@triton.jit
def argmax_kernel(x_ptr, y_ptr, columns, C: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + row * columns + c, mask=c < columns, other=float("-inf"))
    tl.store(y_ptr + row, tl.argmax(x, 0))


@triton.jit
def scan_kernel(x_ptr, y_ptr, columns, AXIS: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    at = r[:, None] * columns + tl.arange(0, C)[None, :]
    tl.store(y_ptr + at, tl.cumsum(tl.load(x_ptr + at), AXIS))


@triton.jit
def sort_kernel(x_ptr, y_ptr, C: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, C)
    tl.store(y_ptr + at, tl.sort(tl.load(x_ptr + at)))


@triton.jit
def row_gather_kernel(x_ptr, rows_ptr, y_ptr, stride, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    row = tl.load(rows_ptr + r)
    x = tl.load(x_ptr + row[:, None].to(tl.int64) * stride + c[None, :])
    tl.store(y_ptr + r[:, None] * C + c[None, :], x)


@triton.jit
def element_gather_kernel(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + tl.load(index_ptr + at)))


@triton.jit
def shared_gather_kernel(x_ptr, index_ptr, y_ptr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(y_ptr + at, tl.gather(tl.load(x_ptr + at), tl.load(index_ptr + at), 0))


@triton.jit
def histogram_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x_ptr + at), BINS)
    tl.atomic_add(y_ptr + tl.arange(0, BINS), counts)


@triton.jit
def atomic_kernel(x_ptr, y_ptr, columns, C: tl.constexpr):
    c = tl.arange(0, C)
    x = tl.load(x_ptr + tl.program_id(0) * columns + c, mask=c < columns, other=0.0)
    tl.atomic_add(y_ptr + c, x, mask=c < columns)


@triton.jit
def join_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.interleave(tl.load(x_ptr + at), tl.load(y_ptr + at))
    tl.store(z_ptr + tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK), both)


@triton.jit
def flip_kernel(x_ptr, y_ptr, C: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, C)
    tl.store(y_ptr + tl.program_id(0) * C + (C - 1 - tl.arange(0, C)), tl.load(x_ptr + at))


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, stride, C: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, C)
    x = tl.load(x_ptr + row * stride + c, mask=c < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + c, e / tl.sum(e, 0), mask=c < columns)


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, y_ptr, columns, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    inside = (c < columns)[None, :]
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 1) / columns
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + 1e-5)
    w = tl.load(w_ptr + c, mask=c < columns, other=0.0)
    tl.store(y_ptr + r[:, None] * columns + c[None, :], centred * scale[:, None] * w[None, :], mask=inside)


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    blocks_n = tl.cdiv(n, BLOCK_N)
    row = tl.program_id(0) // blocks_n * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + row[:, None] * stride_am + depth[None, :] * stride_ak
    b = b_ptr + depth[:, None] * stride_bk + column[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = depth < k - start
        x = tl.load(a, mask=(row < m)[:, None] & inside[None, :], other=0.0)
        y = tl.load(b, mask=inside[:, None] & (column < n)[None, :], other=0.0)
        acc = tl.dot(x, y, acc)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    inside_c = (row < m)[:, None] & (column < n)[None, :]
    tl.store(c_ptr + row[:, None] * n + column[None, :], acc.to(c_ptr.dtype.element_ty), mask=inside_c)


@triton.jit
def dequantising_product_kernel(
    a_ptr, b_ptr, scale_ptr, c_ptr, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    scale = tl.load(scale_ptr + column)
    for start in range(0, k, BLOCK_K):
        x = tl.load(a_ptr + row[:, None] * k + start + depth[None, :])
        y = tl.load(b_ptr + (start + depth)[:, None] * n + column[None, :]).to(tl.bfloat16)
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + row[:, None] * n + column[None, :], (acc * scale[None, :]).to(tl.bfloat16))


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, tokens, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * tokens * D
    m, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    q = tl.load(q_ptr + head + m[:, None] * D + d[None, :], mask=(m < tokens)[:, None], other=0.0)
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, tokens, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + head + n[:, None] * D + d[None, :], mask=(n < tokens)[:, None], other=0.0)
        s = tl.where((n < tokens)[None, :], tl.dot(q, tl.trans(k)), float("-inf"))
        higher = tl.maximum(peak, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + head + n[:, None] * D + d[None, :], mask=(n < tokens)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.bfloat16), v, acc * shrink[:, None])
        peak = higher
    o = (acc / total[:, None]).to(tl.bfloat16)
    tl.store(o_ptr + head + m[:, None] * D + d[None, :], o, mask=(m < tokens)[:, None])


@triton.jit
def descriptor_product_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BLOCK, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [BLOCK_K, BLOCK])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BLOCK, BLOCK])
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK_K):
        acc = tl.dot(a.load([tl.program_id(0) * BLOCK, start]), b.load([start, tl.program_id(1) * BLOCK]), acc)
    c.store([tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK], acc.to(tl.bfloat16))


# Launches


def _normal(*shape: int, dtype: torch.dtype, device: str, skip: int = 0) -> torch.Tensor:
    """Random numbers; `skip` elements lie between an aligned address and the tensor's base."""
    count = skip
    size = 1
    for n in shape:
        size *= n
    whole = torch.randn(count + size, dtype=torch.float32, device=device)
    return whole.to(dtype)[skip:].view(*shape)


BF16, FP32, FP16, FP8, INT8 = torch.bfloat16, torch.float32, torch.float16, torch.float8_e4m3fn, torch.int8


def _copy(n: int, dtype: torch.dtype, skip: int = 0, skip_out: int = 0) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x = _normal(n, dtype=dtype, device=device, skip=skip)
        y = _normal(n, dtype=dtype, device=device, skip=skip_out)
        return {"x_ptr": x, "y_ptr": y, "n": n}

    return make


def _rows(rows: int, columns: int, stride: int, dtype: torch.dtype) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x, y = (_normal(rows, stride, dtype=dtype, device=device) for _ in range(2))
        return {"x_ptr": x, "y_ptr": y, "columns": columns, "stride": stride}

    return make


def _two(sizes: tuple[int, int], dtype: torch.dtype, out: torch.dtype | None = None, **numbers: int):  # type: ignore[no-untyped-def]
    def make(device: str) -> Arguments:
        x = _normal(sizes[0], dtype=dtype, device=device)
        y = _normal(sizes[1], dtype=out or dtype, device=device)
        return {"x_ptr": x, "y_ptr": y, **numbers}

    return make


def _rows_of(count: int, rows: int, stride: int, width: int, dtype: torch.dtype) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x = _normal(rows, stride, dtype=dtype, device=device)
        y = _normal(count, width, dtype=dtype, device=device)
        chosen = torch.randperm(rows, device=device)[:count].to(torch.int32)
        return {"x_ptr": x, "rows_ptr": chosen, "y_ptr": y, "stride": stride}

    return make


def _elements(count: int, size: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x = _normal(size, dtype=FP32, device=device)
        index = torch.randint(size, (count,), dtype=torch.int32, device=device)
        return {"x_ptr": x, "index_ptr": index, "y_ptr": _normal(count, dtype=FP32, device=device)}

    return make


def _gathered(rows: int, columns: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x, y = (_normal(rows, columns, dtype=FP32, device=device) for _ in range(2))
        index = torch.randint(rows, (rows, columns), dtype=torch.int32, device=device)
        return {"x_ptr": x, "index_ptr": index, "y_ptr": y}

    return make


def _bins(count: int, bins: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x = torch.randint(bins, (count,), dtype=torch.int32, device=device)
        return {"x_ptr": x, "y_ptr": torch.zeros(bins, dtype=torch.int32, device=device)}

    return make


def _joined(count: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x, y = (_normal(count, dtype=BF16, device=device) for _ in range(2))
        return {"x_ptr": x, "y_ptr": y, "z_ptr": _normal(2 * count, dtype=BF16, device=device)}

    return make


def _norm(rows: int, columns: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        x, y = (_normal(rows, columns, dtype=BF16, device=device) for _ in range(2))
        w = _normal(columns, dtype=FP32, device=device)
        return {"x_ptr": x, "w_ptr": w, "y_ptr": y, "columns": columns}

    return make


def _product(
    m: int, n: int, k: int, dtype: torch.dtype, a_rows: bool = True, b_rows: bool = True, skip: int = 0
) -> Callable[[str], Arguments]:
    """A times B; `a_rows` and `b_rows` say whether the rows of A and B lie contiguous, or their columns."""

    def make(device: str) -> Arguments:
        a = _normal(m, k, dtype=dtype, device=device, skip=skip)
        b = _normal(k, n, dtype=dtype, device=device)
        c = _normal(m, n, dtype=FP32 if dtype is FP32 else BF16, device=device)
        strides_a = (k, 1) if a_rows else (1, m)
        strides_b = (n, 1) if b_rows else (1, k)
        names = ("stride_am", "stride_ak", "stride_bk", "stride_bn")
        strides = dict(zip(names, (*strides_a, *strides_b), strict=True))
        return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": m, "n": n, "k": k, **strides}

    return make


def _dequantised(m: int, n: int, k: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        a = _normal(m, k, dtype=BF16, device=device)
        b = torch.randint(-8, 8, (k, n), dtype=INT8, device=device)
        scale, c = _normal(n, dtype=FP32, device=device), _normal(m, n, dtype=BF16, device=device)
        return {"a_ptr": a, "b_ptr": b, "scale_ptr": scale, "c_ptr": c, "n": n, "k": k}

    return make


def _attended(heads: int, tokens: int, depth: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        q, k, v, o = (_normal(heads, tokens, depth, dtype=BF16, device=device) for _ in range(4))
        return {"q_ptr": q, "k_ptr": k, "v_ptr": v, "o_ptr": o, "tokens": tokens}

    return make


def _described(m: int, n: int, k: int) -> Callable[[str], Arguments]:
    def make(device: str) -> Arguments:
        a, b, c = (_normal(r, s, dtype=BF16, device=device) for r, s in ((m, k), (k, n), (m, n)))
        return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": m, "n": n, "k": k}

    return make


def _tile(m: int, n: int, k: int, warps: int = 4, stages: int = 3, **more: int) -> dict[str, int]:
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages, **more}


_EVEN, _ODD = 262_144, 262_141
CASES: tuple[Case, ...] = (
    *(
        Case(f"copy_{name}", "copy", copy_kernel, (blocks,), make, {"BLOCK": block})
        for name, blocks, block, make in (
            ("bf16", 256, 1024, _copy(_EVEN, BF16)),
            ("bf16_odd_size", 256, 1024, _copy(_ODD, BF16)),
            ("fp32_odd_size", 128, 2048, _copy(_ODD, FP32)),
            ("fp32_size_of_4", 128, 2048, _copy(262_140, FP32)),
            ("int8", 64, 4096, _copy(_EVEN, INT8)),
            ("fp8_odd_size", 64, 4096, _copy(_ODD, FP8)),
            ("fp64", 256, 1024, _copy(_EVEN, torch.float64)),
            ("bf16_base_2", 256, 1024, _copy(_EVEN, BF16, skip=1)),
            ("bf16_base_8", 256, 1024, _copy(_EVEN, BF16, skip=4)),
            ("fp32_base_16", 256, 1024, _copy(_EVEN, FP32, skip=4, skip_out=4)),
            ("fp32_base_4_out", 256, 1024, _copy(_EVEN, FP32, skip_out=1)),
        )
    ),
    Case("rows_even", "rows", row_copy_kernel, (40,), _rows(40, 2048, 2048, BF16), {"BLOCK": 1024}),
    Case("rows_odd_stride", "rows", row_copy_kernel, (40,), _rows(40, 2041, 2041, BF16), {"BLOCK": 1024}),
    Case("rows_stride_of_16", "rows", row_copy_kernel, (40,), _rows(40, 2000, 2064, FP32), {"BLOCK": 512}),
    Case("stride_2", "strided", strided_copy_kernel, (64,), _two((2 << 16, 1 << 16), FP32, stride=2), {"BLOCK": 1024}),
    Case("stride_7", "strided", strided_copy_kernel, (64,), _two((7 << 16, 1 << 16), BF16, stride=7), {"BLOCK": 1024}),
    Case("stride_32", "strided", strided_copy_kernel, (16,), _two((1 << 19, 1 << 14), FP32, stride=32), {"BLOCK": 1024}),
    Case("broadcast_8", "broadcast", broadcast_kernel, (16,), _two((1 << 11, 1 << 14), FP32), {"REPEAT": 8, "BLOCK": 1024}),
    Case("broadcast_3", "broadcast", broadcast_kernel, (16,), _two((1 << 13, 1 << 14), BF16), {"REPEAT": 3, "BLOCK": 1024}),
    *(
        Case(f"transpose_direct_{name}", "transpose", uncoalesced_transpose_kernel, (4, 8),
             _two((256 * 512, 256 * 512), dtype, rows=256 - odd, columns=512 - odd), {"R": 64, "C": 64})
        for name, dtype, odd in (("fp32", FP32, 0), ("bf16_odd", BF16, 3))
    ),
    *(
        Case(f"transpose_shared_{name}", "transpose", shared_transpose_kernel, (4, 8),
             _two((256 * 512, 256 * 512), dtype, rows=256, columns=512), {"R": 64, "C": 64, "num_warps": warps})
        for name, dtype, warps in (("fp32", FP32, 4), ("bf16", BF16, 8), ("int8", INT8, 4))
    ),
    *(
        Case(f"row_sum_{name}", "reduction", row_reduction_kernel, (16,),
             _two((16 * r * columns, 16 * r), dtype, columns=columns), {"R": r, "C": c, "num_warps": warps})
        for name, dtype, columns, r, c, warps in (
            ("one_row", FP32, 1024, 1, 1024, 4), ("tile_bf16", BF16, 250, 16, 256, 4), ("eight_warps", FP32, 512, 8, 512, 8),
        )
    ),
    *(
        Case(f"column_sum_{name}", "reduction", column_reduction_kernel, (8,),
             _two((r * columns, columns), dtype, columns=columns), {"R": r, "C": c, "num_warps": warps})
        for name, dtype, columns, r, c, warps in (
            ("tall", FP32, 256, 256, 32, 4), ("bf16_odd", BF16, 509, 64, 64, 8),
        )
    ),
    Case("argmax", "reduction", argmax_kernel, (16,), _two((16 * 1000, 16), FP32, torch.int32, columns=1000), {"C": 1024}),
    *(
        Case(f"scan_axis_{axis}", "scan", scan_kernel, (8,), _two((8 * r * c, 8 * r * c), FP32, columns=c),
             {"AXIS": axis, "R": r, "C": c, "num_warps": 4})
        for axis, r, c in ((0, 128, 32), (1, 8, 512))
    ),
    Case("sort", "scan", sort_kernel, (8,), _two((8 * 512, 8 * 512), FP32), {"C": 512}),
    Case("gather_rows", "gather", row_gather_kernel, (32,), _rows_of(512, 4096, 256, 256, BF16), {"R": 16, "C": 256}),
    Case("gather_rows_odd", "gather", row_gather_kernel, (32,), _rows_of(512, 4096, 131, 128, BF16), {"R": 16, "C": 128}),
    Case("gather_elements", "gather", element_gather_kernel, (16,), _elements(1 << 14, 1 << 20), {"BLOCK": 1024}),
    Case("gather_shared", "gather", shared_gather_kernel, (1,), _gathered(64, 64), {"R": 64, "C": 64}),
    Case("histogram", "atomic", histogram_kernel, (16,), _bins(16 * 1024, 256), {"BLOCK": 1024, "BINS": 256}),
    Case("atomic_add", "atomic", atomic_kernel, (16,), _two((16 * 1000, 1000), FP32, columns=1000), {"C": 1024}),
    Case("interleave", "layout", join_kernel, (16,), _joined(1 << 14), {"BLOCK": 1024}),
    Case("flip", "layout", flip_kernel, (16,), _two((1 << 14, 1 << 14), FP32), {"C": 1024}),
    Case("softmax", "norm", softmax_kernel, (64,), _rows(64, 1000, 1000, BF16), {"C": 1024}),
    Case("softmax_odd", "norm", softmax_kernel, (64,), _rows(64, 999, 999, BF16), {"C": 1024, "num_warps": 8}),
    Case("layer_norm", "norm", layer_norm_kernel, (16,), _norm(64, 768), {"R": 4, "C": 1024}),
    Case("wgmma_bf16", "product", product_kernel, (8,), _product(256, 512, 256, BF16), _tile(128, 128, 64, 8)),
    Case("wgmma_bf16_transposed", "product", product_kernel, (8,), _product(256, 512, 256, BF16, False, False), _tile(128, 128, 64, 4)),
    Case("wgmma_bf16_odd_depth", "product", product_kernel, (8,), _product(256, 512, 250, BF16), _tile(128, 128, 64, 4)),
    Case("wgmma_bf16_base_2", "product", product_kernel, (8,), _product(256, 512, 256, BF16, skip=1), _tile(128, 128, 64, 4)),
    Case("wgmma_fp8", "product", product_kernel, (8,), _product(256, 512, 256, FP8, True, False), _tile(128, 128, 128, 4)),
    Case("wgmma_tf32", "product", product_kernel, (16,), _product(256, 512, 256, FP32, True, False), _tile(64, 128, 32, 4)),
    Case("mma_bf16", "product", product_kernel, (32,), _product(64, 512, 256, BF16), _tile(16, 64, 64, 4)),
    Case("mma_bf16_transposed", "product", product_kernel, (32,), _product(64, 512, 256, BF16, False, False), _tile(16, 64, 64, 2)),
    Case("mma_fp8", "product", product_kernel, (32,), _product(64, 512, 256, FP8), _tile(16, 64, 64, 4)),
    Case("mma_tf32", "product", product_kernel, (32,), _product(64, 512, 256, FP32), _tile(16, 64, 32, 4)),
    Case("mma_fp16_two_stages", "product", product_kernel, (64,), _product(130, 500, 256, FP16), _tile(32, 32, 32, 4, 2)),
    Case("descriptor_product", "product", descriptor_product_kernel, (2, 4), _described(256, 512, 256), {"BLOCK": 128, "BLOCK_K": 64, "num_warps": 4}),
    Case("dequantised_wgmma", "dequantise", dequantising_product_kernel, (2, 8), _dequantised(128, 512, 256), _tile(64, 64, 64, 4)),
    Case("dequantised_mma", "dequantise", dequantising_product_kernel, (2, 8), _dequantised(32, 512, 256), _tile(16, 64, 64, 4)),
    Case("attention", "attention", attention_kernel, (2, 2), _attended(2, 256, 64), {"BLOCK_M": 128, "BLOCK_N": 64, "D": 64, "num_warps": 4}),
    Case("attention_odd", "attention", attention_kernel, (2, 2), _attended(2, 250, 128), {"BLOCK_M": 128, "BLOCK_N": 64, "D": 128, "num_warps": 8}),
    Case("attention_decode", "attention", attention_kernel, (1, 4), _attended(4, 16, 128), {"BLOCK_M": 16, "BLOCK_N": 32, "D": 128, "num_warps": 4}),
    Case("spills_in_loop", "spills", attention_kernel, (4, 2), _attended(2, 256, 128), {"BLOCK_M": 64, "BLOCK_N": 64, "D": 128, "num_warps": 4, "maxnreg": 104}),
    Case("spills_mma", "spills", product_kernel, (8,), _product(64, 512, 128, BF16), _tile(32, 128, 32, 2, 2, maxnreg=64)),
)  # fmt: skip
