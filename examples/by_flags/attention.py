"""A paged attention kernel with the signature that serving engines have: 26 arguments and 14 constexprs."""

import triton
import triton.language as tl


@triton.jit
def paged_attention(
    out_ptr,
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    key_scale_ptr,
    value_scale_ptr,
    sinks_ptr,
    alibi_slopes_ptr,
    block_tables_ptr,
    seq_lens_ptr,
    query_starts_ptr,
    softmax_scale,
    softcap,
    num_seqs,
    max_blocks,
    stride_out_token,
    stride_out_head,
    stride_query_token,
    stride_query_head,
    stride_key_block,
    stride_key_slot,
    stride_key_head,
    stride_value_block,
    stride_value_slot,
    stride_value_head,
    stride_tables,
    NUM_QUERY_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_SIZE_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    USE_SINKS: tl.constexpr,
    USE_ALIBI: tl.constexpr,
    USE_SOFTCAP: tl.constexpr,
    USE_SCALES: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    EVICTION: tl.constexpr,
):
    seq = tl.program_id(0)
    kv_head = tl.program_id(1)
    if seq >= num_seqs:
        return
    token = tl.load(query_starts_ptr + seq)
    length = tl.load(seq_lens_ptr + seq)
    rows = tl.arange(0, GROUP_PADDED)
    head = kv_head * GROUP + rows
    heads = (rows < GROUP) & (head < NUM_QUERY_HEADS)
    dim = tl.arange(0, HEAD_SIZE_PADDED)
    dims = dim < HEAD_SIZE
    query = tl.load(
        query_ptr + token * stride_query_token + head[:, None] * stride_query_head + dim[None, :],
        mask=heads[:, None] & dims[None, :],
        other=0.0,
    )
    largest = tl.full([GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    if USE_SINKS:
        largest = tl.load(sinks_ptr + head, mask=heads, other=float("-inf"))
        total += 1.0
    acc = tl.zeros([GROUP_PADDED, HEAD_SIZE_PADDED], tl.float32)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, length - WINDOW) // PAGE_SIZE
    slot = tl.arange(0, PAGE_SIZE)
    for page in range(first, tl.minimum(tl.cdiv(length, PAGE_SIZE), max_blocks)):
        block = tl.load(block_tables_ptr + seq * stride_tables + page).to(tl.int64)
        key_at = block * stride_key_block + slot[None, :] * stride_key_slot + kv_head * stride_key_head
        key = tl.load(
            key_cache_ptr + key_at + dim[:, None], mask=dims[:, None], other=0.0, eviction_policy=EVICTION
        ).to(query.dtype)
        score = tl.dot(query, key, input_precision=PRECISION) * softmax_scale
        if USE_SCALES:
            score *= tl.load(key_scale_ptr)
        if USE_SOFTCAP:
            score = softcap * (2 / (1 + tl.exp(-2 * score / softcap)) - 1)
        position = page * PAGE_SIZE + slot
        if USE_ALIBI:
            slopes = tl.load(alibi_slopes_ptr + head, mask=heads, other=0.0)
            score += slopes[:, None] * (position - length + 1)[None, :]
        keep = position < length
        if CAUSAL and WINDOW > 0:
            keep = keep & (position >= length - WINDOW)
        score = tl.where(keep[None, :], score, float("-inf"))
        new = tl.maximum(largest, tl.max(score, 1))
        p = tl.exp(score - new[:, None])
        shrink = tl.exp(largest - new)
        value_at = block * stride_value_block + slot[:, None] * stride_value_slot + kv_head * stride_value_head
        value = tl.load(
            value_cache_ptr + value_at + dim[None, :], mask=dims[None, :], other=0.0, eviction_policy=EVICTION
        ).to(query.dtype)
        acc = acc * shrink[:, None] + tl.dot(p.to(query.dtype), value, input_precision=PRECISION)
        total = total * shrink + tl.sum(p, 1)
        largest = new
    if USE_SCALES:
        acc *= tl.load(value_scale_ptr)
    tl.store(
        out_ptr + token * stride_out_token + head[:, None] * stride_out_head + dim[None, :],
        (acc / total[:, None]).to(out_ptr.dtype.element_ty),
        mask=heads[:, None] & dims[None, :],
    )
