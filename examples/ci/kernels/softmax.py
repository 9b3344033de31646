"""Softmax over the rows of a matrix, a row at a time."""

import triton
import triton.language as tl


@triton.jit
def _exp_sum(row):
    values = tl.exp(row - tl.max(row, axis=0))
    return values, tl.sum(values, axis=0)


@triton.autotune(
    configs=[
        triton.Config({}, num_warps=4),
        triton.Config({}, num_warps=8),
    ],
    key=["columns"],
)
@triton.jit
def softmax(out_ptr, in_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(in_ptr + row * stride + at, mask=at < columns, other=-float("inf"))
    values, total = _exp_sum(values.to(tl.float32))
    tl.store(out_ptr + row * stride + at, values / total, mask=at < columns)


@triton.jit
def scale(x_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
