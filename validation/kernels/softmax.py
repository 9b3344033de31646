"""Softmax over the rows of a BF16 matrix by `ctas` CTAs, each of which takes every ctas-th row.

x_ptr, y_ptr    *bf16   [rows, columns], contiguous
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    inside = column < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = row * columns + column
        x = tl.load(x_ptr + place, mask=inside, other=float("-inf")).to(tl.float32)
        weight = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + place, (weight / tl.sum(weight, 0)).to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and columns. The output starts as NaN."""
    import torch

    shape = int(values["rows"]), int(values["columns"])
    half = {"dtype": torch.bfloat16, "device": device}
    return {"x_ptr": 2 * torch.randn(shape, **half), "y_ptr": torch.full(shape, float("nan"), **half)}


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    return {"y_ptr": tensors["x_ptr"].double().softmax(1)}
