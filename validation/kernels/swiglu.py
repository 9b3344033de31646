"""SwiGLU: y = silu(gate) * up, where gate and up are the halves of a row.

x_ptr   *bf16   [rows, 2 x columns], contiguous: gate, then up
y_ptr   *bf16   [rows, columns]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None].to(tl.int64) * (2 * columns) + column[None, :]
    gate = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + place + columns, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(y_ptr + row[:, None].to(tl.int64) * columns + column[None, :], y.to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has rows and columns. The output starts as NaN."""
    import torch

    rows, columns = int(values["rows"]), int(values["columns"])
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(rows, 2 * columns, **half),
        "y_ptr": torch.full((rows, columns), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    import torch

    gate, up = tensors["x_ptr"].double().chunk(2, 1)
    return {"y_ptr": torch.nn.functional.silu(gate) * up}
