"""Linear attention by chunks: out_t = sum over s up to t of (q_t . k_s) v_s, with the sum of k x v carried as a state.

    query_ptr, key_ptr      *bf16   [batch x heads, tokens, DIM], contiguous
    value_ptr, out_ptr      *bf16   [batch x heads, tokens, values]

A CTA takes BLOCK_V columns of a head's values and walks its chunks in order: within a chunk the masked product, from
earlier chunks the state, which stays in registers and passes through BF16 for the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def linear_attention_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    tokens,
    values,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    lane = tl.arange(0, DIM)
    step = tl.arange(0, CHUNK)
    state = tl.zeros((DIM, BLOCK_V), tl.float32)
    for start in range(0, tokens, CHUNK):
        token = start + step
        inside = token < tokens
        place = (head * tokens + token)[:, None]
        query = tl.load(query_ptr + place * DIM + lane[None, :], mask=inside[:, None], other=0.0)
        key = tl.load(key_ptr + place * DIM + lane[None, :], mask=inside[:, None], other=0.0)
        value = tl.load(value_ptr + place * values + column[None, :], mask=inside[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key))
        score = tl.where(step[:, None] >= step[None, :], score, 0.0).to(tl.bfloat16)
        out = tl.dot(score, value, tl.dot(query, state.to(tl.bfloat16)))
        tl.store(out_ptr + place * values + column[None, :], out.to(tl.bfloat16), mask=inside[:, None])
        state = tl.dot(tl.trans(key), value, state)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has batch, heads, tokens, values and DIM. The output starts as NaN."""
    import torch

    batch, heads, tokens, columns, dim = (int(values[n]) for n in ("batch", "heads", "tokens", "values", "DIM"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "query_ptr": torch.randn(batch * heads, tokens, dim, **half) * dim**-0.5,
        "key_ptr": torch.randn(batch * heads, tokens, dim, **half),
        "value_ptr": torch.randn(batch * heads, tokens, columns, **half),
        "out_ptr": torch.full((batch * heads, tokens, columns), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in FP32, head by head, without chunks."""
    import torch

    out = torch.empty(tensors["out_ptr"].shape, dtype=torch.float64, device=tensors["out_ptr"].device)
    for head in range(out.shape[0]):
        query, key, value = (tensors[n][head].float() for n in ("query_ptr", "key_ptr", "value_ptr"))
        out[head] = ((query @ key.T).tril_() @ value).double()
    return {"out_ptr": out}
