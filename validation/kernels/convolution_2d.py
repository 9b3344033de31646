"""3 x 3 convolution of BF16 images, padded by one, as a product over taps and channels without unfolding the image.

    x_ptr       *bf16   [images, height, width, channels], contiguous
    w_ptr       *bf16   [3, 3, channels, filters], contiguous
    y_ptr       *bf16   [images, height, width, filters]

The rows of a tile are pixels, its columns filters; each tap reads the pixels shifted, zeros past the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def convolution_2d_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    images,
    height,
    width,
    channels,
    filters,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pixel = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    image = pixel // (height * width)
    across = pixel % width
    down = pixel // width % height
    steps = tl.cdiv(channels, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(9 * steps):
        tap = step // steps
        channel = step % steps * BLOCK_K + depth
        source_x = across + (tap % 3 - 1)
        source_y = down + (tap // 3 - 1)
        seen = (image < images) & (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
        place = ((image * height + source_y) * width + source_x) * channels
        known = channel < channels
        x = tl.load(x_ptr + place[:, None] + channel[None, :], mask=seen[:, None] & known[None, :], other=0.0)
        place_w = (tap * channels + channel) * filters
        w = tl.load(
            w_ptr + place_w[:, None] + column[None, :], mask=known[:, None] & (column < filters)[None, :], other=0.0
        )
        acc = tl.dot(x, w, acc)
    inside = (image < images)[:, None] & (column < filters)[None, :]
    tl.store(y_ptr + pixel[:, None] * filters + column[None, :], acc.to(tl.bfloat16), mask=inside)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has images, height, width, channels and filters. The output starts as NaN."""
    import torch

    images, height, width, channels, filters = (
        int(values[n]) for n in ("images", "height", "width", "channels", "filters")
    )
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "x_ptr": torch.randn(images, height, width, channels, **half),
        "w_ptr": torch.randn(3, 3, channels, filters, **half),
        "y_ptr": torch.full((images, height, width, filters), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64: the nine shifted images, each times its tap."""
    import torch

    x, w = tensors["x_ptr"].double(), tensors["w_ptr"].double()
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    height, width = x.shape[1:3]
    taps = ((i, j) for i in range(3) for j in range(3))
    return {"y_ptr": sum(padded[:, i : i + height, j : j + width] @ w[i, j] for i, j in taps)}
