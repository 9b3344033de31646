"""Split-K sparse MLA decode on tensor cores, in the DeepSeek-V4 shape, and the kernel that combines its splits.

One new token per request attends to the `topk` cached tokens that an indexer chose for it. Keys and values are the same
512 latent values per token (448 without position + 64 RoPE), shared by all heads, so the kernel reads each token once
and uses it twice: `scores = query . latent`, `output = softmax(scores) . latent`. A CTA takes one request, one group of
BLOCK_H heads and one split of the request's tokens, in tiles of BLOCK_T tokens, with an online softmax in base 2.

Paged cache (uint8 `[pages, page_bytes]`, 64 tokens a page, `PAGE_BYTES` = 37,376; base and pages 16-byte aligned):

    offset in page   bytes            content
    576 t            448              token t: latent without position, FP8 E4M3
    576 t + 448      128              token t: RoPE part, 64 BF16
    36,864 + 8 t     7 (+ 1 unused)   token t: a UE8M0 scale byte e for each 64 of its FP8 values: times 2^(e - 127)

A scale byte of 0 reads as 0 (2^-127 is below the smallest normal float), 255 is no number.

Launch 1: `split_kernel`, grid `(batch, ceil(heads / BLOCK_H), nsplit)`

    argument            type       typical     meaning
    query_ptr           *bf16                  [batch, heads, 512], last dimension contiguous, 448 + 64 as in the cache
    kv_fp8_ptr          *fp8e4nv               the cache, viewed as bytes of FP8
    kv_scale_ptr        *i64                   the cache, viewed as 8-byte words: a token's eight scale bytes are one
    kv_rope_ptr         *bf16                  the cache, viewed as BF16
    indices_ptr         *i32                   [batch, topk], slots (page * 64 + place in page); -1 is skipped
    topk_length_ptr     *i32                   [batch], how many indices of a request count; 0: its output is zeros
    part_max_ptr        *fp32                  [batch, nsplit, heads], running maximum of a split, scores in base 2
    part_sum_ptr        *fp32                  [batch, nsplit, heads], sum of 2^(score - maximum); 0: an empty split
    part_acc_ptr        *fp32                  [batch, nsplit, heads, 512]; not written for an empty split
    scale_log2e         fp32       0.0601      softmax scale x log2(e), for instance 24^-1 x log2(e)
    heads               i32        16          heads on this GPU
    topk                i32        512
    topk_rounded        i32        512         `topk` up to a power of two: the autotuner's key, not read by the kernel
    nsplit              i32        3           never specialized
    tiles_per_split     i32        11          ceil(ceil(topk / BLOCK_T) / nsplit), the heuristic sets it; at 1 Triton
                                               makes it a constant, the loop goes and half the registers with it
    stride_query_batch  i32        8192        elements
    stride_query_head   i32        512         elements
    stride_indices      i32        512         elements, between requests
    stride_page         i32        4672        8-byte words, between pages
    BLOCK_H             constexpr  16, 32      heads a CTA
    BLOCK_T             constexpr  16, 32, 64  tokens a tile
    num_warps 4, 8; num_stages 2 (the kernel prefetches by hand: the compiler's pipeline finds nothing to do)

Launch 2: `combine_kernel`, grid `(batch, heads)`, num_warps 4, merges the splits

    part_max_ptr, part_sum_ptr, part_acc_ptr   as above
    out_ptr             *bf16                  [batch, heads, 512], last dimension contiguous
    heads               i32        16
    nsplit              i32        3           never specialized
    stride_out_batch    i32        8192        elements
    stride_out_head     i32        512         elements
    BLOCK_S             constexpr  8           splits read at a time

Knobs, read from the environment by `sparse_mla_decode` at each call: `SGLANG_SM120_MMA_BLOCK_H` (default 32) and
`SGLANG_SM120_MMA_TARGET_CTAS` (default 256). `split_count` says how the latter becomes `nsplit`.

Importing this module needs Triton alone; torch is imported by the host functions that use it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

PAGE_TOKENS = 64
NOPE_DIM = 448
ROPE_DIM = 64
LATENT_DIM = NOPE_DIM + ROPE_DIM
GROUP_DIM = 64  # FP8 values that share a scale byte
TOKEN_BYTES = NOPE_DIM + 2 * ROPE_DIM
SCALE_BYTES = 8  # seven used
PAGE_BYTES = PAGE_TOKENS * (TOKEN_BYTES + SCALE_BYTES)

DEFAULT_BLOCK_H = 32
DEFAULT_TARGET_CTAS = 256

_PAGE = tl.constexpr(PAGE_TOKENS)
_TOKEN_BYTES = tl.constexpr(TOKEN_BYTES)
_LATENT = tl.constexpr(LATENT_DIM)

SPLIT_CONFIGS = [
    triton.Config({"BLOCK_T": block_t}, num_warps=num_warps, num_stages=2)
    for block_t in (16, 32, 64)
    for num_warps in (4, 8)
]


@triton.jit
def _slots(row_ptr, offset, end):
    """The slots at `offset` of a request's indices; -1 (no token) from `end` on."""
    return tl.load(row_ptr + offset, mask=offset < end, other=-1)


@triton.jit
def _gather(kv_fp8_ptr, kv_scale_ptr, kv_rope_ptr, slot, stride_page):
    """One tile of the cache as it is stored: scale words, FP8 columns in parts of 256, 128 and 64, RoPE columns."""
    valid = slot >= 0
    slot = tl.where(valid, slot, 0)
    page = (slot // _PAGE).to(tl.int64) * stride_page
    place = slot % _PAGE
    mask = valid[:, None]
    words = tl.load(kv_scale_ptr + page + _PAGE * (_TOKEN_BYTES // 8) + place, mask=valid, other=0)
    token = kv_fp8_ptr + (page * 8 + place * _TOKEN_BYTES)[:, None]
    raw_a = tl.load(token + tl.arange(0, 256)[None, :], mask=mask, other=0.0)
    raw_b = tl.load(token + 256 + tl.arange(0, 128)[None, :], mask=mask, other=0.0)
    raw_c = tl.load(token + 384 + tl.arange(0, 64)[None, :], mask=mask, other=0.0)
    rope = kv_rope_ptr + (page * 4 + place * (_TOKEN_BYTES // 2) + 224)[:, None]
    key_r = tl.load(rope + tl.arange(0, 64)[None, :], mask=mask, other=0.0)
    return words, raw_a, raw_b, raw_c, key_r


@triton.jit
def _dequantize(raw, words, START: tl.constexpr, WIDTH: tl.constexpr):
    """Columns START .. START + WIDTH of a tile in BF16. Exact: E4M3 times a power of two."""
    shift = ((START + tl.arange(0, WIDTH)) // 64 * 8).to(tl.int64)
    exponent = ((words[:, None] >> shift[None, :]) & 0xFF).to(tl.int32)
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

    first = split * tiles_per_split * BLOCK_T
    end = tl.minimum(tl.minimum(tl.load(topk_length_ptr + batch), topk), first + tiles_per_split * BLOCK_T)
    if first >= end:  # an empty split: combine_kernel reads no accumulator where the sum is 0
        tl.store(part_max_ptr + part, tl.full((BLOCK_H,), float("-inf"), tl.float32), mask=head_ok)
        tl.store(part_sum_ptr + part, tl.zeros((BLOCK_H,), tl.float32), mask=head_ok)
        return
    tiles = tl.minimum(tiles_per_split, tl.cdiv(end - first, BLOCK_T))

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

    # Slots are read two tiles ahead and the cache one tile ahead, into registers: a gather waits for no index, and its
    # latency passes behind the dots of the tile before. Shared memory then holds the query and one dequantized tile,
    # and the compiler's own pipeline (num_stages) has nothing left to do.
    row_ptr = indices_ptr + batch.to(tl.int64) * stride_indices
    offset = first + tl.arange(0, BLOCK_T)
    slot = _slots(row_ptr, offset, end)
    next_slot = _slots(row_ptr, offset + BLOCK_T, end)
    words, raw_a, raw_b, raw_c, next_r = _gather(kv_fp8_ptr, kv_scale_ptr, kv_rope_ptr, slot, stride_page)

    for tile in range(tiles):
        valid = slot >= 0
        key_a = _dequantize(raw_a, words, 0, 256)
        key_b = _dequantize(raw_b, words, 256, 128)
        key_c = _dequantize(raw_c, words, 384, 64)
        key_r = next_r

        slot = next_slot
        next_slot = _slots(row_ptr, offset + (tile + 2) * BLOCK_T, end)
        words, raw_a, raw_b, raw_c, next_r = _gather(kv_fp8_ptr, kv_scale_ptr, kv_rope_ptr, slot, stride_page)

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
    BLOCK_S: tl.constexpr = 8,
):
    batch = tl.program_id(0)
    head = tl.program_id(1)
    column = tl.arange(0, _LATENT)
    run_max = float("-inf")
    run_sum = 0.0
    acc = tl.zeros((_LATENT,), tl.float32)
    # BLOCK_S splits at a time: their accumulator rows are in flight together, and one rescale serves them all.
    for start in range(0, nsplit, BLOCK_S):
        split = start + tl.arange(0, BLOCK_S)
        part = (batch * nsplit + split) * heads + head
        part_max = tl.load(part_max_ptr + part, mask=split < nsplit, other=float("-inf"))
        part_sum = tl.load(part_sum_ptr + part, mask=split < nsplit, other=0.0)
        row = part_acc_ptr + part[:, None].to(tl.int64) * _LATENT
        rows = tl.load(row + column[None, :], mask=(part_sum > 0)[:, None], other=0.0)

        new_max = tl.maximum(run_max, tl.max(part_max, 0))
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        decay = tl.exp2(run_max - safe_max)
        weight = tl.exp2(part_max - safe_max)
        run_sum = run_sum * decay + tl.sum(part_sum * weight, 0)
        acc = acc * decay + tl.sum(rows * weight[:, None], 0)
        run_max = new_max

    out = acc / tl.where(run_sum > 0, run_sum, 1.0)
    out_row = out_ptr + batch.to(tl.int64) * stride_out_batch + head * stride_out_head
    tl.store(out_row + column, out.to(tl.bfloat16))


class Launch(NamedTuple):
    """What `launch` ran: the output, how often the tokens were split, and what Triton compiled for it.

    `split` and `combine` are Triton's compiled kernels (None under the interpreter); an autotuned split kernel is the
    configuration that won.
    """

    out: torch.Tensor
    nsplit: int
    split: Any
    combine: Any


def knob(name: str, default: int) -> int:
    """The positive integer in environment variable `name`, or `default` where it is unset or empty."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ValueError(f"{name}={text!r} is not a positive whole number")
    return value


def split_count(batch: int, heads: int, block_h: int, topk: int, block_t: int, target_ctas: int) -> int:
    """How many splits bring the grid near `target_ctas` CTAs without exceeding it.

    floor(target_ctas / (batch x head groups)), at least 1, at most one split a tile of `block_t` tokens.
    """
    without_splits = batch * triton.cdiv(heads, block_h)
    return max(1, min(target_ctas // max(1, without_splits), triton.cdiv(topk, block_t)))


def launch(
    query: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor,
    softmax_scale: float,
    *,
    block_h: int,
    nsplit: int,
    config: triton.Config | None = None,
) -> Launch:
    """Run both kernels with this BLOCK_H and number of splits; `config` None lets the autotuner choose BLOCK_T.

    Shapes, dtypes and the cache layout are those in the module's docstring. Give `config` inside a CUDA-graph capture,
    where no tuning may run.
    """
    import torch

    batch, heads, topk = _check_inputs(query, cache, indices, topk_length)
    if block_h not in (16, 32, 64):
        raise ValueError(f"BLOCK_H {block_h} is not 16, 32 or 64: tl.dot takes no fewer than 16 rows")
    if nsplit < 1:
        raise ValueError(f"nsplit {nsplit} is below 1")
    device = query.device
    part_max = torch.empty((batch, nsplit, heads), dtype=torch.float32, device=device)
    part_sum = torch.empty((batch, nsplit, heads), dtype=torch.float32, device=device)
    part_acc = torch.empty((batch, nsplit, heads, LATENT_DIM), dtype=torch.float32, device=device)
    out = torch.empty((batch, heads, LATENT_DIM), dtype=torch.bfloat16, device=device)
    if batch == 0:
        return Launch(out, nsplit, None, None)

    kernel, options = (split_kernel, {}) if config is None else (split_kernel.fn, config.all_kwargs())
    split = kernel[(batch, triton.cdiv(heads, block_h), nsplit)](
        query,
        cache.view(torch.float8_e4m3fn),
        cache.view(torch.int64),
        cache.view(torch.bfloat16),
        indices,
        topk_length,
        part_max,
        part_sum,
        part_acc,
        scale_log2e=softmax_scale * math.log2(math.e),
        heads=heads,
        topk=topk,
        topk_rounded=triton.next_power_of_2(topk),
        nsplit=nsplit,
        stride_query_batch=query.stride(0),
        stride_query_head=query.stride(1),
        stride_indices=indices.stride(0),
        stride_page=cache.stride(0) // 8,
        BLOCK_H=block_h,
        **options,
    )
    combine = combine_kernel[(batch, heads)](
        part_max, part_sum, part_acc, out, heads, nsplit, out.stride(0), out.stride(1), num_warps=4
    )
    return Launch(out, nsplit, split, combine)


def sparse_mla_decode(
    query: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor,
    softmax_scale: float,
    *,
    config: triton.Config | None = None,
) -> torch.Tensor:
    """Sparse MLA decode of one token per request: BF16 `[batch, heads, 512]`.

    query `[batch, heads, 512]` BF16, cache uint8 `[pages, page_bytes]` in the layout of the module's docstring, indices
    int32 `[batch, topk]`, topk_length int32 `[batch]`. BLOCK_H and the number of splits follow the two environment
    variables; BLOCK_T and num_warps come from `config`, or from the autotuner where it is None. A tuned launch caps the
    splits by the smallest BLOCK_T tried, since the choice is not known beforehand: with a larger tile some are empty.
    """
    block_h = knob("SGLANG_SM120_MMA_BLOCK_H", DEFAULT_BLOCK_H)
    target_ctas = knob("SGLANG_SM120_MMA_TARGET_CTAS", DEFAULT_TARGET_CTAS)
    block_t = min(c.kwargs["BLOCK_T"] for c in (SPLIT_CONFIGS if config is None else [config]))
    nsplit = split_count(query.shape[0], query.shape[1], block_h, indices.shape[1], block_t, target_ctas)
    return launch(query, cache, indices, topk_length, softmax_scale, block_h=block_h, nsplit=nsplit, config=config).out


def _check_inputs(
    query: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, topk_length: torch.Tensor
) -> tuple[int, int, int]:
    """(batch, heads, topk) of inputs that fit each other."""
    import torch

    if query.dtype != torch.bfloat16 or query.dim() != 3 or query.shape[2] != LATENT_DIM or query.stride(2) != 1:
        raise ValueError(f"query must be BF16 [batch, heads, {LATENT_DIM}] with a contiguous last dimension")
    if cache.dtype != torch.uint8 or cache.dim() != 2 or cache.shape[1] < PAGE_BYTES or cache.stride(1) != 1:
        raise ValueError(f"cache must be uint8 [pages, at least {PAGE_BYTES}] with contiguous pages")
    if cache.stride(0) % 16 or cache.storage_offset() % 16:
        raise ValueError("cache pages must start at multiples of 16 bytes")
    batch, heads = int(query.shape[0]), int(query.shape[1])
    if indices.dtype != torch.int32 or indices.dim() != 2 or indices.shape[0] != batch or indices.stride(1) != 1:
        raise ValueError(f"indices must be int32 [batch = {batch}, topk] with a contiguous last dimension")
    if topk_length.dtype != torch.int32 or topk_length.shape != (batch,) or not topk_length.is_contiguous():
        raise ValueError(f"topk_length must be contiguous int32 [batch = {batch}]")
    return batch, heads, int(indices.shape[1])


def pack_cache(latent: torch.Tensor) -> torch.Tensor:
    """A cache that holds `latent` (float `[tokens, 512]`): slot t is row t, FP8 scales rounded up to a power of two."""
    import torch

    tokens = latent.shape[0]
    pages = triton.cdiv(tokens, PAGE_TOKENS)
    groups = latent[:, :NOPE_DIM].double().reshape(tokens, NOPE_DIM // GROUP_DIM, GROUP_DIM)
    largest = groups.abs().amax(2).clamp(min=2.0**-100)
    exponent = torch.ceil(torch.log2(largest / 448.0))  # 448: the largest E4M3 value
    fp8 = (groups / torch.exp2(exponent)[:, :, None]).float().to(torch.float8_e4m3fn).reshape(tokens, NOPE_DIM)
    rope = latent[:, NOPE_DIM:].to(torch.bfloat16).contiguous()

    token_bytes = torch.zeros((pages * PAGE_TOKENS, TOKEN_BYTES), dtype=torch.uint8, device=latent.device)
    token_bytes[:tokens, :NOPE_DIM] = fp8.view(torch.uint8)
    token_bytes[:tokens, NOPE_DIM:] = rope.view(torch.uint8)
    scale_bytes = torch.zeros((pages * PAGE_TOKENS, SCALE_BYTES), dtype=torch.uint8, device=latent.device)
    scale_bytes[:tokens, : NOPE_DIM // GROUP_DIM] = (exponent + 127).to(torch.uint8)
    return torch.cat([token_bytes.reshape(pages, -1), scale_bytes.reshape(pages, -1)], dim=1)


def unpack_cache(cache: torch.Tensor) -> torch.Tensor:
    """The float64 latents `[pages * 64, 512]` that `cache` holds."""
    import torch

    pages = cache.shape[0]
    split_at = PAGE_TOKENS * TOKEN_BYTES
    tokens = cache[:, :split_at].reshape(pages * PAGE_TOKENS, TOKEN_BYTES)
    fp8 = tokens[:, :NOPE_DIM].contiguous().view(torch.float8_e4m3fn).float().double()
    rope = tokens[:, NOPE_DIM:].contiguous().view(torch.bfloat16).double()
    scales = cache[:, split_at:PAGE_BYTES].reshape(pages * PAGE_TOKENS, SCALE_BYTES)[:, : NOPE_DIM // GROUP_DIM]
    factor = torch.exp2(scales.double() - 127.0).repeat_interleave(GROUP_DIM, dim=1)
    return torch.cat([fp8 * factor, rope], dim=1)


def reference(
    query: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor,
    softmax_scale: float,
) -> torch.Tensor:
    """The same attention in plain float64, request by request: `[batch, heads, 512]`."""
    import torch

    latents = unpack_cache(cache)
    out = torch.zeros(query.shape, dtype=torch.float64, device=query.device)
    for request in range(query.shape[0]):
        slots = indices[request, : max(0, int(topk_length[request]))]
        chosen = latents[slots[slots >= 0].long()]
        if chosen.shape[0]:
            scores = query[request].double() @ chosen.T * softmax_scale
            out[request] = torch.softmax(scores, dim=1) @ chosen
    return out


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors for a launch with these shapes, by argument name: what `occupancy measure` times.

    `values` has batch, heads, topk and nsplit. Every request has its own `topk` tokens, scattered over a cache that
    holds twice as many as all requests need (64 MB at least), and all of them count.
    """
    import torch

    batch, heads, topk, nsplit = (int(values[name]) for name in ("batch", "heads", "topk", "nsplit"))
    pages = max(2 * batch * topk, 1 << 17) // PAGE_TOKENS
    some = pack_cache(torch.randn(64 * PAGE_TOKENS, LATENT_DIM, device=device))
    cache = some.repeat(triton.cdiv(pages, 64), 1)[:pages].contiguous()
    slots = torch.randperm(pages * PAGE_TOKENS, device=device)[: batch * topk]
    part = {"dtype": torch.float32, "device": device}
    return {
        "query_ptr": torch.randn(batch, heads, LATENT_DIM, device=device).bfloat16(),
        "kv_fp8_ptr": cache.view(torch.float8_e4m3fn),
        "kv_scale_ptr": cache.view(torch.int64),
        "kv_rope_ptr": cache.view(torch.bfloat16),
        "indices_ptr": slots.reshape(batch, topk).int(),
        "topk_length_ptr": torch.full((batch,), topk, dtype=torch.int32, device=device),
        "part_max_ptr": torch.empty((batch, nsplit, heads), **part),
        "part_sum_ptr": torch.empty((batch, nsplit, heads), **part),
        "part_acc_ptr": torch.empty((batch, nsplit, heads, LATENT_DIM), **part),
        "out_ptr": torch.empty((batch, heads, LATENT_DIM), dtype=torch.bfloat16, device=device),
        "scale_log2e": 0.0417 * math.log2(math.e),
    }
