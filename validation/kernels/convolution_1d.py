"""Causal depthwise convolution over time, four taps, then SiLU: what precedes a state-space layer.

x_ptr, y_ptr    *bf16   [batch, time, channels], contiguous
weight_ptr      *fp32   [4, channels]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def convolution_1d_kernel(x_ptr, weight_ptr, y_ptr, time, channels, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    step = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    request = tl.program_id(2).to(tl.int64) * time * channels
    known = (channel < channels)[None, :]
    acc = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
    for tap in tl.static_range(4):
        source = step + (tap - 3)
        inside = ((source >= 0) & (source < time))[:, None] & known
        x = tl.load(x_ptr + request + source[:, None] * channels + channel[None, :], mask=inside, other=0.0)
        weight = tl.load(weight_ptr + tap * channels + channel, mask=channel < channels, other=0.0)
        acc += x.to(tl.float32) * weight[None, :]
    y = acc / (1.0 + tl.exp(-acc))
    place = request + step[:, None] * channels + channel[None, :]
    tl.store(y_ptr + place, y.to(tl.bfloat16), mask=(step < time)[:, None] & known)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has batch, time and channels. The output starts as NaN."""
    import torch

    shape = tuple(int(values[n]) for n in ("batch", "time", "channels"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(shape, **half),
        "weight_ptr": torch.randn(4, shape[2], dtype=torch.float32, device=device),
        "y_ptr": torch.full(shape, float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64."""
    import torch

    x, weight = tensors["x_ptr"].double(), tensors["weight_ptr"].double()
    padded = torch.nn.functional.pad(x, (0, 0, 3, 0))
    time = x.shape[1]
    return {"y_ptr": torch.nn.functional.silu(sum(padded[:, t : t + time] * weight[t] for t in range(4)))}
