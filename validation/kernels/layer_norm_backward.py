"""LayerNorm backward: the gradient of the input by rows, those of weight and bias summed in two launches.

`backward_kernel` runs `ctas` CTAs, each over the rows pid, pid + ctas, …; it keeps its share of the weight's and bias'
gradients in registers and stores them at the end. `sum_kernel` then adds the `ctas` shares by columns.

    x_ptr, dy_ptr, dx_ptr       *bf16   [rows, columns], contiguous
    weight_ptr                  *bf16   [columns]
    mean_ptr, rstd_ptr          *fp32   [rows], as the forward pass left them
    part_dw_ptr, part_db_ptr    *fp32   [ctas, columns]
    dw_ptr, db_ptr              *fp32   [columns]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def backward_kernel(
    x_ptr, dy_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, part_dw_ptr, part_db_ptr, rows, columns, WIDTH: tl.constexpr
):
    pid = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    sum_dw = tl.zeros((WIDTH,), tl.float32)
    sum_db = tl.zeros((WIDTH,), tl.float32)
    for row in range(pid, rows, tl.num_programs(0)):
        place = row * columns + column
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + place, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - mean) * rstd, 0.0)
        scaled = weight * dy
        along = tl.sum(normal * scaled, 0) / columns
        shift = tl.sum(scaled, 0) / columns
        dx = (scaled - normal * along - shift) * rstd
        tl.store(dx_ptr + place, dx.to(tl.bfloat16), mask=inside)
        sum_dw += dy * normal
        sum_db += dy
    tl.store(part_dw_ptr + pid * columns + column, sum_dw, mask=inside)
    tl.store(part_db_ptr + pid * columns + column, sum_db, mask=inside)


@triton.jit
def sum_kernel(part_dw_ptr, part_db_ptr, dw_ptr, db_ptr, parts, columns, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    db = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for start in range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        inside = (part < parts)[:, None] & (column < columns)[None, :]
        place = part[:, None] * columns + column[None, :]
        dw += tl.load(part_dw_ptr + place, mask=inside, other=0.0)
        db += tl.load(part_db_ptr + place, mask=inside, other=0.0)
    tl.store(dw_ptr + column, tl.sum(dw, 0), mask=column < columns)
    tl.store(db_ptr + column, tl.sum(db, 0), mask=column < columns)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows, columns and ctas. What is written starts as NaN."""
    import torch

    rows, columns, ctas = int(values["rows"]), int(values["columns"]), int(values["ctas"])
    half = {"dtype": torch.bfloat16, "device": device}
    single = {"dtype": torch.float32, "device": device}
    nan = float("nan")
    x = 0.5 + torch.randn(rows, columns, **half)
    wide = x.float()
    return {
        "x_ptr": x,
        "dy_ptr": torch.randn(rows, columns, **half),
        "weight_ptr": torch.randn(columns, **half),
        "mean_ptr": wide.mean(1),
        "rstd_ptr": (wide.var(1, unbiased=False) + 1e-5).rsqrt(),
        "dx_ptr": torch.full((rows, columns), nan, **half),
        "part_dw_ptr": torch.full((ctas, columns), nan, **single),
        "part_db_ptr": torch.full((ctas, columns), nan, **single),
        "dw_ptr": torch.full((columns,), nan, **single),
        "db_ptr": torch.full((columns,), nan, **single),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    x, dy, weight = (tensors[n].double() for n in ("x_ptr", "dy_ptr", "weight_ptr"))
    mean, rstd = (tensors[n].double()[:, None] for n in ("mean_ptr", "rstd_ptr"))
    normal, scaled = (x - mean) * rstd, weight * dy
    along = (normal * scaled).mean(1, keepdim=True)
    dx = (scaled - normal * along - scaled.mean(1, keepdim=True)) * rstd
    return {"dx_ptr": dx, "dw_ptr": (dy * normal).sum(0), "db_ptr": dy.sum(0)}
