"""y = gelu(a + b) over `n` FP32 or BF16 numbers: the elementwise kernel to validate with.

`n` decides the width of its accesses: of 16 numbers' multiples they are 16 bytes wide, of any other as wide as one
number. The activation is the tanh form, written with an exponential.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def vector_gelu_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
    x = a + b
    inner = 1.5957691216057308 * (x + 0.044715 * x * x * x)  # 2 sqrt(2 / pi)
    y = x / (1.0 + tl.exp(-inner))
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has n. The output starts as NaN."""
    import torch

    half = {"dtype": torch.bfloat16, "device": device}
    n = int(values["n"])
    return {
        "a_ptr": torch.randn(n, **half),
        "b_ptr": torch.randn(n, **half),
        "y_ptr": torch.full((n,), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    import torch

    x = tensors["a_ptr"].double() + tensors["b_ptr"].double()
    return {"y_ptr": torch.nn.functional.gelu(x, approximate="tanh")}
