"""How often each of `bins` values occurs: counted in shared memory tile by tile, then added to the total by atomics.

`ctas` CTAs take tiles of BLOCK numbers in turn.

    x_ptr       *i32    [n], from 0 to BINS - 1
    count_ptr   *i32    [BINS]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, count_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    count = tl.zeros((BINS,), tl.int32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        # Past the end: counted as the first bin, and taken away again.
        x = tl.load(x_ptr + at, mask=at < n, other=0)
        count += tl.histogram(x, BINS)
        past = tl.maximum(start + BLOCK - n, 0)
        count -= tl.where(tl.arange(0, BINS) == 0, past, 0)
    tl.atomic_add(count_ptr + tl.arange(0, BINS), count, sem="relaxed")


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has n and BINS. The counts start at zero."""
    import torch

    n, bins = int(values["n"]), int(values["BINS"])
    return {
        "x_ptr": torch.randint(bins, (n,), dtype=torch.int32, device=device),
        "count_ptr": torch.zeros(bins, dtype=torch.int32, device=device),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs, exact."""
    import torch

    return {"count_ptr": torch.bincount(tensors["x_ptr"].long(), minlength=int(values["BINS"]))}
