"""BF16 rows to FP8 (e4m3) in groups of 128 with an FP32 scale each: group maximum, scale, round.

x_ptr       *bf16       [groups, 128], contiguous
q_ptr       *fp8e4nv    [groups, 128]
scale_ptr   *fp32       [groups]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def group_quantize_kernel(x_ptr, q_ptr, scale_ptr, groups, GROUPS: tl.constexpr):
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    place = group[:, None].to(tl.int64) * 128 + tl.arange(0, 128)[None, :]
    inside = group < groups
    x = tl.load(x_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 1), 1e-10) / 448.0
    q = (x / scale[:, None]).to(tl.float8e4nv)
    tl.store(q_ptr + place, q, mask=inside[:, None])
    tl.store(scale_ptr + group, scale, mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has groups. The outputs start as NaN."""
    import torch

    groups = int(values["groups"])
    nan = torch.full((groups, 128), float("nan"), dtype=torch.float32, device=device)
    return {
        "x_ptr": torch.randn(groups, 128, dtype=torch.bfloat16, device=device),
        "q_ptr": nan.to(torch.float8_e4m3fn),
        "scale_ptr": nan[:, 0].clone(),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs: scales in float64, numbers as PyTorch rounds them."""
    import torch

    x = tensors["x_ptr"].float()
    scale = x.abs().amax(1).clamp(min=1e-10) / 448.0
    return {"q_ptr": (x / scale[:, None]).to(torch.float8_e4m3fn).double(), "scale_ptr": scale.double()}
