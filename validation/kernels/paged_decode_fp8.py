"""Grouped-query attention of one new token over a paged FP8 cache, a CTA for each request and KV head, without splits.

query_ptr, out_ptr      *bf16       [batch, kv_heads x group, DIM], contiguous
key_ptr, value_ptr      *fp8e4nv    [pages, kv_heads, PAGE, DIM]
table_ptr               *i32        [batch, most pages], page numbers of a request in order
length_ptr              *i32        [batch], cached tokens of a request: the bound of the loop
scale_log2e, value_scale    fp32    scale of the scores in base 2, the keys' own included; scale of the values
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def paged_decode_fp8_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    length_ptr,
    out_ptr,
    scale_log2e,
    value_scale,
    group,
    kv_heads,
    stride_table,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    request = tl.program_id(1)
    kv_head = tl.program_id(0)
    row = tl.arange(0, BLOCK_G)
    lane = tl.arange(0, DIM)
    place = ((request * kv_heads + kv_head) * group + row)[:, None] * DIM + lane[None, :]
    query = tl.load(query_ptr + place, mask=(row < group)[:, None], other=0.0)
    length = tl.load(length_ptr + request)
    run_max = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    run_sum = tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, DIM), tl.float32)
    for start in range(0, length, BLOCK_N):
        token = start + tl.arange(0, BLOCK_N)
        valid = token < length
        page = tl.load(table_ptr + request * stride_table + token // PAGE, mask=valid, other=0).to(tl.int64)
        at = ((page * kv_heads + kv_head) * PAGE + token % PAGE) * DIM
        key = tl.load(key_ptr + at[None, :] + lane[:, None], mask=valid[None, :], other=0.0).to(tl.bfloat16)
        score = tl.dot(query, key) * scale_log2e
        score = tl.where(valid[None, :], score, float("-inf"))
        new_max = tl.maximum(run_max, tl.max(score, 1))
        decay = tl.exp2(run_max - new_max)
        weight = tl.exp2(score - new_max[:, None])
        run_sum = run_sum * decay + tl.sum(weight, 1)
        value = tl.load(value_ptr + at[:, None] + lane[None, :], mask=valid[:, None], other=0.0).to(tl.bfloat16)
        acc = tl.dot(weight.to(tl.bfloat16), value, acc * decay[:, None])
        run_max = new_max
    out = acc * (value_scale / run_sum)[:, None]
    tl.store(out_ptr + place, out.to(tl.bfloat16), mask=(row < group)[:, None])


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors by argument name; `values` has batch, kv_heads, group, length, DIM and PAGE. The output starts as NaN."""
    import torch

    batch, kv_heads, group, length, dim, page = (
        int(values[n]) for n in ("batch", "kv_heads", "group", "length", "DIM", "PAGE")
    )
    each = triton.cdiv(length, page)
    half = {"dtype": torch.bfloat16, "device": device}

    def cache() -> torch.Tensor:
        return torch.randn(batch * each, kv_heads, page, dim, **half).to(torch.float8_e4m3fn)

    return {
        "query_ptr": torch.randn(batch, kv_heads * group, dim, **half),
        "key_ptr": cache(),
        "value_ptr": cache(),
        "table_ptr": torch.randperm(batch * each, device=device).reshape(batch, each).int(),
        "length_ptr": torch.full((batch,), length, dtype=torch.int32, device=device),
        "out_ptr": torch.full((batch, kv_heads * group, dim), float("nan"), **half),
        "scale_log2e": dim**-0.5 * math.log2(math.e),
        "value_scale": 0.5,
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs in float64, request by request."""
    import torch

    kv_heads, group, length, dim = (int(values[n]) for n in ("kv_heads", "group", "length", "DIM"))
    query = tensors["query_ptr"]
    out = torch.empty(query.shape, dtype=torch.float64, device=query.device)
    for request in range(query.shape[0]):
        pages = tensors["table_ptr"][request].long()

        def cached(name: str, pages: torch.Tensor = pages) -> torch.Tensor:
            """`[kv_heads, tokens, DIM]`: the pages of the request in order. PyTorch cannot index FP8, so as bytes."""
            taken = tensors[name].view(torch.uint8)[pages].view(torch.float8_e4m3fn).double()
            return taken.transpose(0, 1).flatten(1, 2)[:, :length]

        each = query[request].double().reshape(kv_heads, group, dim)
        score = each @ cached("key_ptr").transpose(1, 2) * (tensors["scale_log2e"] * math.log(2))
        out[request] = (score.softmax(2) @ cached("value_ptr") * tensors["value_scale"]).flatten(0, 1)
    return {"out_ptr": out}
