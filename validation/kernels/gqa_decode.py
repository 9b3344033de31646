"""Split-K grouped-query attention decode over a paged BF16 cache, and its combine kernel: a kernel to validate with.

It is deliberately written the usual way (loads in the loop, the compiler's pipeline), unlike the shipped sparse MLA
kernel, and nothing in the model was fitted to it. One new token per request attends to all cached tokens; the `group`
query heads of a KV head share its keys and values and fill the rows of a tile.

Launch 1: `split_kernel`, grid `(batch, kv_heads, nsplit)`

    argument            type       typical   meaning
    query_ptr           *bf16                [batch, kv_heads x group, DIM]
    key_ptr, value_ptr  *bf16                [pages, PAGE, kv_heads, DIM]
    table_ptr           *i32                 [batch, most pages], page numbers of a request in order
    length_ptr          *i32                 [batch], cached tokens of a request
    part_max_ptr        *fp32                [batch, nsplit, heads], running maximum of a split, scores in base 2
    part_sum_ptr        *fp32                [batch, nsplit, heads], 0: an empty split
    part_acc_ptr        *fp32                [batch, nsplit, heads, DIM]
    scale_log2e         fp32       0.1275    softmax scale x log2(e)
    group               i32        8         query heads a KV head
    max_length          i32        4096      the longest request
    nsplit              i32        4         never specialized
    tiles_per_split     i32        16        ceil(ceil(max_length / BLOCK_N) / nsplit), set by the heuristic
    stride_query        i32        8192      elements, between requests; heads are DIM apart
    stride_page         i32        131072    elements, between pages
    stride_token        i32        1024      elements, between tokens of a page; KV heads are DIM apart
    stride_table        i32        64        elements, between requests
    DIM                 constexpr  128       head dimension
    PAGE                constexpr  64        tokens a page
    BLOCK_G             constexpr  16        rows of the tile, at least `group`
    BLOCK_N             constexpr  32 .. 128 tokens a tile
    num_warps 4, 8; num_stages 2, 3

Launch 2: `combine_kernel`, grid `(batch, heads)`: part_max_ptr, part_sum_ptr, part_acc_ptr, out_ptr (*bf16 `[batch,
heads, DIM]`, contiguous), nsplit, DIM, BLOCK_S (8 splits at a time).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

CONFIGS = [
    triton.Config({"BLOCK_N": block_n}, num_warps=num_warps, num_stages=num_stages)
    for block_n in (32, 64, 128)
    for num_warps in (4, 8)
    for num_stages in (2, 3)
]


@triton.autotune(configs=CONFIGS, key=["max_length"])
@triton.heuristics(
    {"tiles_per_split": lambda a: triton.cdiv(triton.cdiv(a["max_length"], a["BLOCK_N"]), a["nsplit"])},
)
@triton.jit(do_not_specialize=["nsplit"])
def split_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    length_ptr,
    part_max_ptr,
    part_sum_ptr,
    part_acc_ptr,
    scale_log2e,
    group,
    max_length,
    nsplit,
    tiles_per_split,
    stride_query,
    stride_page,
    stride_token,
    stride_table,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    batch = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    row = tl.arange(0, BLOCK_G)
    row_ok = row < group
    head = kv_head * group + row
    heads = tl.num_programs(1) * group
    part = (batch * nsplit + split) * heads + head
    column = tl.arange(0, DIM)

    first = split * tiles_per_split * BLOCK_N
    length = tl.load(length_ptr + batch)
    tiles = tl.minimum(tiles_per_split, tl.cdiv(length - first, BLOCK_N))
    query = tl.load(
        query_ptr + batch.to(tl.int64) * stride_query + head[:, None] * DIM + column[None, :],
        mask=row_ok[:, None],
        other=0.0,
    )
    run_max = tl.full((BLOCK_G,), float("-inf"), tl.float32)
    run_sum = tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, DIM), tl.float32)
    for tile in range(tiles):
        token = first + tile * BLOCK_N + tl.arange(0, BLOCK_N)
        valid = token < length
        page = tl.load(table_ptr + batch * stride_table + token // PAGE, mask=valid, other=0)
        place = page.to(tl.int64) * stride_page + token % PAGE * stride_token + kv_head * DIM
        key = tl.load(key_ptr + place[:, None] + column[None, :], mask=valid[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale_log2e
        score = tl.where(valid[None, :], score, float("-inf"))
        new_max = tl.maximum(run_max, tl.max(score, 1))  # finite: a tile that is visited has a valid token
        decay = tl.exp2(run_max - new_max)
        weight = tl.exp2(score - new_max[:, None])
        run_sum = run_sum * decay + tl.sum(weight, 1)
        value = tl.load(value_ptr + place[:, None] + column[None, :], mask=valid[:, None], other=0.0)
        acc = tl.dot(weight.to(tl.bfloat16), value, acc * decay[:, None])
        run_max = new_max

    tl.store(part_max_ptr + part, run_max, mask=row_ok)
    tl.store(part_sum_ptr + part, run_sum, mask=row_ok)
    if tiles > 0:
        tl.store(part_acc_ptr + part[:, None].to(tl.int64) * DIM + column[None, :], acc, mask=row_ok[:, None])


@triton.jit(do_not_specialize=["nsplit"])
def combine_kernel(
    part_max_ptr,
    part_sum_ptr,
    part_acc_ptr,
    out_ptr,
    nsplit,
    DIM: tl.constexpr,
    BLOCK_S: tl.constexpr = 8,
):
    batch = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    column = tl.arange(0, DIM)
    run_max = float("-inf")
    run_sum = 0.0
    acc = tl.zeros((DIM,), tl.float32)
    for start in range(0, nsplit, BLOCK_S):
        split = start + tl.arange(0, BLOCK_S)
        part = (batch * nsplit + split) * heads + head
        part_max = tl.load(part_max_ptr + part, mask=split < nsplit, other=float("-inf"))
        part_sum = tl.load(part_sum_ptr + part, mask=split < nsplit, other=0.0)
        row = part_acc_ptr + part[:, None].to(tl.int64) * DIM
        rows = tl.load(row + column[None, :], mask=(part_sum > 0)[:, None], other=0.0)
        new_max = tl.maximum(run_max, tl.max(part_max, 0))
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        decay = tl.exp2(run_max - safe_max)
        weight = tl.exp2(part_max - safe_max)
        run_sum = run_sum * decay + tl.sum(part_sum * weight, 0)
        acc = acc * decay + tl.sum(rows * weight[:, None], 0)
        run_max = new_max
    out = acc / tl.where(run_sum > 0, run_sum, 1.0)
    tl.store(out_ptr + (batch * heads + head).to(tl.int64) * DIM + column, out.to(tl.bfloat16))


class Launch(NamedTuple):
    """The output and Triton's compiled kernels (None under the interpreter)."""

    out: torch.Tensor
    split: Any
    combine: Any


def launch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: torch.Tensor,
    length: torch.Tensor,
    softmax_scale: float,
    *,
    nsplit: int,
    max_length: int,
    config: triton.Config | None = None,
) -> Launch:
    """Run both kernels: query `[batch, heads, DIM]`, key and value `[pages, PAGE, kv_heads, DIM]`, BF16, contiguous.

    table int32 `[batch, most pages]`, length int32 `[batch]`, none above `max_length` (a host value: no copy is made).
    """
    import torch

    batch, heads, dim = query.shape
    page_tokens, kv_heads = key.shape[1], key.shape[2]
    group = heads // kv_heads
    for name, tensor in (("query", query), ("key", key), ("value", value), ("table", table), ("length", length)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
    if heads % kv_heads or key.shape != value.shape:
        raise ValueError(f"{heads} heads over {kv_heads} KV heads, key {key.shape}, value {value.shape} do not fit")
    part_max = torch.empty((batch, nsplit, heads), dtype=torch.float32, device=query.device)
    part_sum = torch.empty_like(part_max)
    part_acc = torch.empty((batch, nsplit, heads, dim), dtype=torch.float32, device=query.device)
    out = torch.empty_like(query)
    kernel, options = (split_kernel, {}) if config is None else (split_kernel.fn, config.all_kwargs())
    split = kernel[(batch, kv_heads, nsplit)](
        query,
        key,
        value,
        table,
        length,
        part_max,
        part_sum,
        part_acc,
        scale_log2e=softmax_scale * math.log2(math.e),
        group=group,
        max_length=max_length,
        nsplit=nsplit,
        stride_query=query.stride(0),
        stride_page=key.stride(0),
        stride_token=key.stride(1),
        stride_table=table.stride(0),
        DIM=dim,
        PAGE=page_tokens,
        BLOCK_G=max(16, triton.next_power_of_2(group)),
        **options,
    )
    combine = combine_kernel[(batch, heads)](part_max, part_sum, part_acc, out, nsplit, DIM=dim, num_warps=4)
    return Launch(out, split, combine)


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: torch.Tensor,
    length: torch.Tensor,
    softmax_scale: float,
) -> torch.Tensor:
    """The same attention in plain float64, request by request: `[batch, heads, DIM]`."""
    import torch

    batch, heads, dim = query.shape
    page_tokens, kv_heads = key.shape[1], key.shape[2]
    out = torch.zeros(query.shape, dtype=torch.float64, device=query.device)
    for request in range(batch):
        tokens = int(length[request])
        if tokens == 0:
            continue
        pages = table[request, : triton.cdiv(tokens, page_tokens)].long()
        keys = key[pages].double().reshape(-1, kv_heads, dim)[:tokens]
        values = value[pages].double().reshape(-1, kv_heads, dim)[:tokens]
        grouped = query[request].double().reshape(kv_heads, heads // kv_heads, dim)
        weights = torch.softmax(torch.einsum("kgd,tkd->kgt", grouped, keys) * softmax_scale, dim=2)
        out[request] = torch.einsum("kgt,tkd->kgd", weights, values).reshape(heads, dim)
    return out


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors for a launch with these shapes, by argument name: what `occupancy measure` times.

    `values` has batch, kv_heads, group, max_length, nsplit, DIM and PAGE. Every request has max_length tokens in pages
    of its own, in random order.
    """
    import torch

    batch, kv_heads, group, longest, nsplit, dim, page = (
        int(values[name]) for name in ("batch", "kv_heads", "group", "max_length", "nsplit", "DIM", "PAGE")
    )
    each, heads = triton.cdiv(longest, page), kv_heads * group
    pages = batch * each
    half = {"dtype": torch.bfloat16, "device": device}
    part = {"dtype": torch.float32, "device": device}
    return {
        "query_ptr": torch.randn(batch, heads, dim, **half),
        "key_ptr": torch.randn(pages, page, kv_heads, dim, **half),
        "value_ptr": torch.randn(pages, page, kv_heads, dim, **half),
        "table_ptr": torch.randperm(pages, device=device).reshape(batch, each).int(),
        "length_ptr": torch.full((batch,), longest, dtype=torch.int32, device=device),
        "part_max_ptr": torch.empty((batch, nsplit, heads), **part),
        "part_sum_ptr": torch.empty((batch, nsplit, heads), **part),
        "part_acc_ptr": torch.empty((batch, nsplit, heads, dim), **part),
        "out_ptr": torch.empty(batch, heads, dim, **half),
        "scale_log2e": dim**-0.5 * math.log2(math.e),
    }
