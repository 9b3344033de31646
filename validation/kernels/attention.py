"""Causal attention of a prompt with grouped heads, over all earlier tokens or over a window of them.

    query_ptr, out_ptr      *bf16   [batch, heads, tokens, DIM], contiguous
    key_ptr, value_ptr      *bf16   [batch, heads / group, tokens, DIM]
    window                  i32     tokens that each token sees, itself included; 0: all earlier ones

A CTA takes BLOCK_M tokens of a head. It walks the tiles of keys that all of its tokens see without a mask, and those
at either edge with one: three loops whose bounds follow from the program id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def walk(
    query, key_ptr, value_ptr, row, scale_log2e, tokens, window, first, last, acc, run_max, run_sum,
    MASKED: tl.constexpr, DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attend to the tokens from `first` to `last`."""
    lane = tl.arange(0, DIM)
    for start in range(first, last, BLOCK_N):
        token = start + tl.arange(0, BLOCK_N)
        inside = token < tokens
        key = tl.load(key_ptr + token[None, :] * DIM + lane[:, None], mask=inside[None, :], other=0.0)
        score = tl.dot(query, key) * scale_log2e
        if MASKED:
            seen = token[None, :] <= row[:, None]
            if window > 0:
                seen = seen & (token[None, :] > row[:, None] - window)
            score = tl.where(seen, score, -1e30)  # finite: a row that sees nothing yet keeps finite figures
        new_max = tl.maximum(run_max, tl.max(score, 1))
        decay = tl.exp2(run_max - new_max)
        weight = tl.exp2(score - new_max[:, None])
        run_sum = run_sum * decay + tl.sum(weight, 1)
        value = tl.load(value_ptr + token[:, None] * DIM + lane[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weight.to(tl.bfloat16), value, acc * decay[:, None])
        run_max = new_max
    return acc, run_max, run_sum


@triton.jit
def attention_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    scale_log2e,
    heads,
    group,
    tokens,
    window,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    block = tl.program_id(0)
    head = tl.program_id(1)
    request = head // heads
    kv_head = request * (heads // group) + head % heads // group
    key_ptr += kv_head.to(tl.int64) * tokens * DIM
    value_ptr += kv_head.to(tl.int64) * tokens * DIM
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    lane = tl.arange(0, DIM)
    place = head.to(tl.int64) * tokens * DIM + row[:, None] * DIM + lane[None, :]
    query = tl.load(query_ptr + place, mask=(row < tokens)[:, None], other=0.0)
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)
    run_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    run_sum = tl.zeros((BLOCK_M,), tl.float32)

    end = tl.minimum((block + 1) * BLOCK_M, tokens)
    whole_end = block * BLOCK_M // BLOCK_N * BLOCK_N
    if window > 0:
        first = tl.maximum(block * BLOCK_M - window + 1, 0) // BLOCK_N * BLOCK_N
        whole = tl.cdiv(tl.maximum((block + 1) * BLOCK_M - window, 0), BLOCK_N) * BLOCK_N
        whole = tl.minimum(whole, whole_end)
        acc, run_max, run_sum = walk(
            query, key_ptr, value_ptr, row, scale_log2e, tokens, window, first, whole, acc, run_max, run_sum,
            True, DIM, BLOCK_N,
        )  # fmt: skip
    else:
        whole = 0
    acc, run_max, run_sum = walk(
        query, key_ptr, value_ptr, row, scale_log2e, tokens, window, whole, whole_end, acc, run_max, run_sum,
        False, DIM, BLOCK_N,
    )  # fmt: skip
    acc, run_max, run_sum = walk(
        query, key_ptr, value_ptr, row, scale_log2e, tokens, window, whole_end, end, acc, run_max, run_sum,
        True, DIM, BLOCK_N,
    )  # fmt: skip
    out = acc / run_sum[:, None]
    tl.store(out_ptr + place, out.to(tl.bfloat16), mask=(row < tokens)[:, None])


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has batch, heads, group, tokens and DIM. The output starts as NaN."""
    import torch

    batch, heads, group, tokens, dim = (int(values[n]) for n in ("batch", "heads", "group", "tokens", "DIM"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "query_ptr": torch.randn(batch, heads, tokens, dim, **half),
        "key_ptr": torch.randn(batch, heads // group, tokens, dim, **half),
        "value_ptr": torch.randn(batch, heads // group, tokens, dim, **half),
        "out_ptr": torch.full((batch, heads, tokens, dim), float("nan"), **half),
        "scale_log2e": dim**-0.5 * math.log2(math.e),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs, head by head, in FP32 with exact masks: float64 takes too long for long prompts."""
    import torch

    query = tensors["query_ptr"]
    out = torch.empty(query.shape, dtype=torch.float32, device=query.device)
    tokens, group, window = query.shape[2], int(values["group"]), int(values["window"])
    at = torch.arange(tokens, device=query.device)
    hidden = at[None, :] > at[:, None]
    if window > 0:
        hidden |= at[None, :] <= at[:, None] - window
    for request in range(query.shape[0]):
        for head in range(query.shape[1]):
            key, value = (tensors[n][request, head // group].float() for n in ("key_ptr", "value_ptr"))
            score = query[request, head].float() @ key.T * query.shape[3] ** -0.5
            out[request, head] = score.masked_fill_(hidden, float("-inf")).softmax(1) @ value
    return {"out_ptr": out.double()}
