"""Split-K sparse MLA decode on tensor cores, in the DeepSeek-V4 shape, and the kernel that combines its splits.

One new token per request attends to the `topk` cached tokens that an indexer chose for it. Keys and values are the same
512 latent values per token (448 without position + 64 RoPE), shared by all heads, so the kernel reads each token once
and uses it twice: `scores = query . latent`, `output = softmax(scores) . latent`. A CTA takes one request, one group of
BLOCK_H heads and one split of the request's tokens, in tiles of BLOCK_T tokens, with an online softmax in base 2.

Paged cache (uint8 `[pages, page_bytes]`, 64 tokens a page, `PAGE_BYTES` = 37,376, 16-byte aligned):

    offset                 bytes           content
    576 t                  448             token t: latent without position, FP8 E4M3
    576 t + 448            128             token t: RoPE part, 64 BF16
    36,864 + 8 t           7 (+ 1 unused)  token t: one UE8M0 scale byte (2^(e - 127)) per 64 FP8 values

Launch 1: `split_kernel`, grid `(batch, ceil(heads / BLOCK_H), nsplit)`

    argument            type     typical   meaning
    query_ptr           *bf16              [batch, heads, 512], last dimension contiguous, 448 + 64 as in the cache
    kv_fp8_ptr          *fp8e4nv           the cache, viewed as bytes of FP8
    kv_scale_ptr        *i64               the cache, viewed as 8-byte words: a token's eight scale bytes are one word
    kv_rope_ptr         *bf16              the cache, viewed as BF16
    indices_ptr         *i32               [batch, topk], token slots (page * 64 + place in the page), -1 is skipped
    topk_length_ptr     *i32               [batch], how many of a request's indices count; 0 gives an output of zeros
    part_max_ptr        *fp32              [batch, nsplit, heads], running maximum of a split, in base-2 units
    part_sum_ptr        *fp32              [batch, nsplit, heads], sum of 2^(score - maximum); 0 for an empty split
    part_acc_ptr        *fp32              [batch, nsplit, heads, 512]; not written for an empty split
    scale_log2e         fp32     0.0601    softmax scale x log2(e)
    heads               i32      16        heads on this GPU
    topk                i32      512
    topk_rounded        i32      512       `topk` up to a power of two: the autotuner's key, not read by the kernel
    nsplit              i32      3         never specialized
    tiles_per_split     i32      11        ceil(ceil(topk / BLOCK_T) / nsplit), set by the heuristic; 1 drops the loop
    stride_query_batch  i32      8192      elements
    stride_query_head   i32      512       elements
    stride_indices      i32      512       elements, between requests
    stride_page         i32      4672      8-byte words, between pages
    BLOCK_H             constexpr 16, 32   heads a CTA
    BLOCK_T             constexpr 16, 32, 64   tokens a tile

Launch 2: `combine_kernel`, grid `(batch, heads)`, merges the splits: part_max_ptr, part_sum_ptr, part_acc_ptr as above,
out_ptr (*bf16 `[batch, heads, 512]`), heads, nsplit (i32), stride_out_batch, stride_out_head (i32, elements).

Knobs, read by `sparse_mla_decode` at each call: `SGLANG_SM120_MMA_BLOCK_H` (default 32) and
`SGLANG_SM120_MMA_TARGET_CTAS` (default 256). `split_count` says how the latter becomes `nsplit`.

Importing this module needs Triton alone; torch is imported by the host functions that use it.
"""

from __future__ import annotations

import os
from typing import Any

import triton
import triton.language as tl

PAGE_TOKENS = 64
NOPE_DIM = 448
ROPE_DIM = 64
LATENT_DIM = NOPE_DIM + ROPE_DIM
GROUP_DIM = 64  # FP8 values that share a scale byte
TOKEN_BYTES = NOPE_DIM + 2 * ROPE_DIM
SCALE_BYTES = 8  # seven used
PAGE_BYTES = PAGE_TOKENS * (TOKEN_BYTES + SCALE_BYTES)

_PAGE = tl.constexpr(PAGE_TOKENS)
_TOKEN_BYTES = tl.constexpr(TOKEN_BYTES)
_LATENT = tl.constexpr(LATENT_DIM)

SPLIT_CONFIGS = [
    triton.Config({"BLOCK_T": block_t}, num_warps=num_warps, num_stages=2)
    for block_t in (16, 32, 64)
    for num_warps in (4, 8)
]


@triton.jit
def _load_nope(token_ptr, scale_words, valid, START: tl.constexpr, WIDTH: tl.constexpr):
    """Columns START .. START + WIDTH of the tile's latents, dequantized to BF16 (exact: powers of two)."""
    column = START + tl.arange(0, WIDTH)
    raw = tl.load(token_ptr[:, None] + column[None, :], mask=valid[:, None], other=0.0)
    shift = (column // 64 * 8).to(tl.int64)
    exponent = ((scale_words[:, None] >> shift[None, :]) & 0xFF).to(tl.int32)
    scale = (exponent << 23).to(tl.float32, bitcast=True)
    return (raw.to(tl.float32) * scale).to(tl.bfloat16)


def _tiles_per_split(args: dict[str, Any]) -> int:
    return triton.cdiv(triton.cdiv(args["topk"], args["BLOCK_T"]), args["nsplit"])


@triton.autotune(configs=SPLIT_CONFIGS, key=["topk_rounded"])
@triton.heuristics({"tiles_per_split": _tiles_per_split})
@triton.jit(do_not_specialize=["topk_rounded", "nsplit"])
def split_kernel(
    query_ptr,
    kv_fp8_ptr,
    kv_scale_ptr,
    kv_rope_ptr,
    indices_ptr,
    topk_length_ptr,
    part_max_ptr,
    part_sum_ptr,
    part_acc_ptr,
    scale_log2e,
    heads,
    topk,
    topk_rounded,
    nsplit,
    tiles_per_split,
    stride_query_batch,
    stride_query_head,
    stride_indices,
    stride_page,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    batch = tl.program_id(0)
    split = tl.program_id(2)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    head_ok = head < heads
    part = (batch * nsplit + split) * heads + head

    length = tl.minimum(tl.load(topk_length_ptr + batch), topk)
    first = split * tiles_per_split * BLOCK_T
    if first >= length:  # an empty split: combine_kernel reads no accumulator where the sum is 0
        tl.store(part_max_ptr + part, tl.full((BLOCK_H,), float("-inf"), tl.float32), mask=head_ok)
        tl.store(part_sum_ptr + part, tl.zeros((BLOCK_H,), tl.float32), mask=head_ok)
        return
    if isinstance(tiles_per_split, tl.constexpr):  # specialized to 1: say so, and the loop goes away
        tiles = 1
    else:
        tiles = tl.minimum(tiles_per_split, tl.cdiv(length - first, BLOCK_T))

    # The latent's 512 columns in powers of two: 256 + 128 + 64 without position, 64 RoPE. No padded column is
    # loaded, multiplied or accumulated.
    query_row = query_ptr + batch.to(tl.int64) * stride_query_batch + head[:, None] * stride_query_head
    c256 = tl.arange(0, 256)[None, :]
    c128 = tl.arange(0, 128)[None, :]
    c64 = tl.arange(0, 64)[None, :]
    query_a = tl.load(query_row + c256, mask=head_ok[:, None], other=0.0)
    query_b = tl.load(query_row + 256 + c128, mask=head_ok[:, None], other=0.0)
    query_c = tl.load(query_row + 384 + c64, mask=head_ok[:, None], other=0.0)
    query_r = tl.load(query_row + 448 + c64, mask=head_ok[:, None], other=0.0)
    acc_a = tl.zeros((BLOCK_H, 256), tl.float32)
    acc_b = tl.zeros((BLOCK_H, 128), tl.float32)
    acc_c = tl.zeros((BLOCK_H, 64), tl.float32)
    acc_r = tl.zeros((BLOCK_H, 64), tl.float32)
    run_max = tl.full((BLOCK_H,), float("-inf"), tl.float32)
    run_sum = tl.zeros((BLOCK_H,), tl.float32)

    for tile in range(tiles):
        offset = first + tile * BLOCK_T + tl.arange(0, BLOCK_T)
        slot = tl.load(indices_ptr + batch.to(tl.int64) * stride_indices + offset, mask=offset < length, other=-1)
        valid = slot >= 0
        slot = tl.where(valid, slot, 0)
        page = (slot // _PAGE).to(tl.int64) * stride_page
        place = slot % _PAGE

        words = tl.load(kv_scale_ptr + page + _PAGE * (_TOKEN_BYTES // 8) + place, mask=valid, other=0)
        token = kv_fp8_ptr + page * 8 + place * _TOKEN_BYTES
        key_a = _load_nope(token, words, valid, 0, 256)
        key_b = _load_nope(token, words, valid, 256, 128)
        key_c = _load_nope(token, words, valid, 384, 64)
        rope = kv_rope_ptr + page * 4 + place * (_TOKEN_BYTES // 2) + 224
        key_r = tl.load(rope[:, None] + c64, mask=valid[:, None], other=0.0)

        score = tl.dot(query_a, tl.trans(key_a))
        score = tl.dot(query_b, tl.trans(key_b), score)
        score = tl.dot(query_c, tl.trans(key_c), score)
        score = tl.dot(query_r, tl.trans(key_r), score)
        score = tl.where(valid[None, :], score * scale_log2e, float("-inf"))

        new_max = tl.maximum(run_max, tl.max(score, 1))
        # While no token of a row was valid its maximum is -inf, and -inf - -inf would be NaN.
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        decay = tl.exp2(run_max - safe_max)
        weight = tl.exp2(score - safe_max[:, None])
        run_sum = run_sum * decay + tl.sum(weight, 1)
        run_max = new_max

        weight = weight.to(tl.bfloat16)
        acc_a = tl.dot(weight, key_a, acc_a * decay[:, None])
        acc_b = tl.dot(weight, key_b, acc_b * decay[:, None])
        acc_c = tl.dot(weight, key_c, acc_c * decay[:, None])
        acc_r = tl.dot(weight, key_r, acc_r * decay[:, None])

    tl.store(part_max_ptr + part, run_max, mask=head_ok)
    tl.store(part_sum_ptr + part, run_sum, mask=head_ok)
    acc_row = part_acc_ptr + part[:, None].to(tl.int64) * _LATENT
    tl.store(acc_row + c256, acc_a, mask=head_ok[:, None])
    tl.store(acc_row + 256 + c128, acc_b, mask=head_ok[:, None])
    tl.store(acc_row + 384 + c64, acc_c, mask=head_ok[:, None])
    tl.store(acc_row + 448 + c64, acc_r, mask=head_ok[:, None])


@triton.jit(do_not_specialize=["nsplit"])
def combine_kernel(
    part_max_ptr,
    part_sum_ptr,
    part_acc_ptr,
    out_ptr,
    heads,
    nsplit,
    stride_out_batch,
    stride_out_head,
):
    batch = tl.program_id(0)
    head = tl.program_id(1)
    column = tl.arange(0, _LATENT)
    first = batch * nsplit * heads + head

    # The maximum first, from nsplit scalars, so that the accumulator loads below depend on nothing but their address.
    top = float("-inf")
    for split in range(nsplit):
        top = tl.maximum(top, tl.load(part_max_ptr + first + split * heads))
    top = tl.where(top == float("-inf"), 0.0, top)

    total = 0.0
    acc = tl.zeros((_LATENT,), tl.float32)
    for split in range(nsplit):
        part = first + split * heads
        part_sum = tl.load(part_sum_ptr + part)
        weight = tl.exp2(tl.load(part_max_ptr + part) - top)
        rows = tl.load(part_acc_ptr + part.to(tl.int64) * _LATENT + column, mask=part_sum > 0, other=0.0)
        acc += weight * rows
        total += weight * part_sum
    out = acc / tl.where(total > 0, total, 1.0)
    out_row = out_ptr + batch.to(tl.int64) * stride_out_batch + head * stride_out_head
    tl.store(out_row + column, out.to(tl.bfloat16))
