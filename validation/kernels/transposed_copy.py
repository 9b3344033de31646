"""y = x transposed, in BF16 tiles: reads along rows of x, writes along rows of y, the turn in shared memory.

x_ptr   *bf16   [rows, columns], contiguous
y_ptr   *bf16   [columns, rows]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def transposed_copy_kernel(x_ptr, y_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None].to(tl.int64) * columns + column[None, :], mask=inside, other=0.0)
    turned = (column < columns)[:, None] & (row < rows)[None, :]
    tl.store(y_ptr + column[:, None].to(tl.int64) * rows + row[None, :], tl.trans(x), mask=turned)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and columns. The output starts as NaN."""
    import torch

    rows, columns = int(values["rows"]), int(values["columns"])
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(rows, columns, **half),
        "y_ptr": torch.full((columns, rows), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    return {"y_ptr": tensors["x_ptr"].double().T}
