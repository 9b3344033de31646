"""RMS norm forward over the rows of a BF16 matrix: each row held in registers, or read twice in a loop.

`rms_norm_kernel` takes ROWS rows a CTA and a whole row a tile; `rms_norm_looped_kernel` a row a CTA in tiles of BLOCK
columns: once to sum squares, once to scale, so that what decides is whether the second pass finds the row in the L1.

    x_ptr, y_ptr    *bf16   [rows, columns], contiguous
    weight_ptr      *bf16   [columns]
    epsilon         fp32
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, rows, columns, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None].to(tl.int64) * columns + column[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / columns + epsilon)
    tl.store(y_ptr + place, (x * scale[:, None] * weight[None, :]).to(tl.bfloat16), mask=inside)


@triton.jit
def rms_norm_looped_kernel(x_ptr, weight_ptr, y_ptr, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + column, mask=column < columns, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + column, mask=column < columns, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + column, (x * scale * weight).to(tl.bfloat16), mask=column < columns)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and columns. The output starts as NaN."""
    import torch

    rows, columns = int(values["rows"]), int(values["columns"])
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(rows, columns, **half),
        "weight_ptr": torch.randn(columns, **half),
        "y_ptr": torch.full((rows, columns), float("nan"), **half),
        "epsilon": 1e-5,
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    x = tensors["x_ptr"].double()
    scale = (x.square().mean(1, keepdim=True) + tensors["epsilon"]).rsqrt()
    return {"y_ptr": x * scale * tensors["weight_ptr"].double()}
