"""Running sums along the rows of an FP32 matrix: a row a CTA, tile by tile, the sum so far carried on.

x_ptr, y_ptr    *fp32   [rows, columns], contiguous
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def row_scan_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    carried = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + column, mask=column < columns, other=0.0)
        tl.store(y_ptr + row + column, carried + tl.cumsum(x, 0), mask=column < columns)
        carried += tl.sum(x, 0)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and columns. The output starts as NaN."""
    import torch

    shape = int(values["rows"]), int(values["columns"])
    single = {"dtype": torch.float32, "device": device}
    return {"x_ptr": torch.randn(shape, **single), "y_ptr": torch.full(shape, float("nan"), **single)}


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    return {"y_ptr": tensors["x_ptr"].double().cumsum(1)}
