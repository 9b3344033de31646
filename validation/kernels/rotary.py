"""Rotary position embedding of BF16 heads: the two halves of a head are turned by an angle of their position.

x_ptr, y_ptr        *bf16   [tokens, heads, DIM], contiguous
cos_ptr, sin_ptr    *fp32   [tokens, DIM / 2]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, HALF: tl.constexpr, HEADS: tl.constexpr):
    token = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    lane = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + token * HALF + lane)[None, :]
    sin = tl.load(sin_ptr + token * HALF + lane)[None, :]
    place = (token.to(tl.int64) * heads + head)[:, None] * (2 * HALF) + lane[None, :]
    inside = (head < heads)[:, None]
    low = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x_ptr + place + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + place, (low * cos - high * sin).to(tl.bfloat16), mask=inside)
    tl.store(y_ptr + place + HALF, (high * cos + low * sin).to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has tokens, heads and HALF. The output starts as NaN."""
    import torch

    tokens, heads, half = (int(values[n]) for n in ("tokens", "heads", "HALF"))
    angle = 6.3 * torch.rand(tokens, half, dtype=torch.float32, device=device)
    kind = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(tokens, heads, 2 * half, **kind),
        "cos_ptr": angle.cos(),
        "sin_ptr": angle.sin(),
        "y_ptr": torch.full((tokens, heads, 2 * half), float("nan"), **kind),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    import torch

    low, high = tensors["x_ptr"].double().chunk(2, 2)
    cos, sin = (tensors[n].double()[:, None] for n in ("cos_ptr", "sin_ptr"))
    return {"y_ptr": torch.cat([low * cos - high * sin, high * cos + low * sin], 2)}
