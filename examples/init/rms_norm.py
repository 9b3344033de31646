"""A kernel without a spec. `occupancy init rms_norm.py:rms_norm` draws one up; `rms_norm.yaml` is that, filled."""

import os

import triton
import triton.language as tl

ROWS_PER_CTA = int(os.environ.get("RMS_NORM_ROWS", "4"))


@triton.autotune(
    configs=[triton.Config({}, num_warps=w, num_stages=s) for w in (4, 8) for s in (1, 2)],
    key=["n_cols"],
)
@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, stride_row, n_rows, n_cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < n_rows) & (col < n_cols)
    x = tl.load(x_ptr + row * stride_row + col, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / n_cols + eps)
    weight = tl.load(weight_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * stride_row + col, x * scale[:, None] * weight, mask=mask)


def run(x, weight, out, eps=1e-6):
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    rms_norm[(triton.cdiv(n_rows, ROWS_PER_CTA),)](
        x, weight, out, x.stride(0), n_rows, n_cols, eps, ROWS=ROWS_PER_CTA, BLOCK=block
    )
