"""Grouped GEMM of a mixture-of-experts layer: every token row times the weights of the expert it was routed to.

Each token goes to `top_k` experts. The host sorts the (token, choice) pairs by expert and pads each expert's share to a
multiple of BLOCK_M (`align_tokens`), so that one block of rows needs one expert's weights. The kernel runs one grid
over blocks of rows x blocks of output columns: expert boundaries cost padding, not launches.

Launch: `moe_grouped_gemm_kernel`, grid `(ceil(sorted ids / BLOCK_M) x ceil(N / BLOCK_N),)`. The grid is sized for the
most padded case, since how much there is to pad lies on the GPU; CTAs past `padded_count` return at once. GROUP_M
consecutive blocks of rows share their weights in L2.

    argument            type             typical   meaning
    a_ptr               *fp8e4nv, *bf16            [rows, K], rows: tokens (TOP_K = top_k) or tokens x top_k (TOP_K 1)
    b_ptr               *fp8e4nv, *bf16            [experts, N, K], K contiguous
    c_ptr               *bf16                      [tokens x top_k, N], row i is pair i = token x top_k + choice
    a_scale_ptr         *fp32                      [rows], times each row of A; read where HAS_SCALES
    b_scale_ptr         *fp32                      [experts, N], times each row of B; read where HAS_SCALES
    topk_weight_ptr     *fp32                      [tokens x top_k]; read where WEIGHTED
    sorted_id_ptr       *i32                       [most padded], pairs by expert; `pairs` marks padding
    expert_id_ptr       *i32                       [most padded / BLOCK_M], each block's expert
    padded_count_ptr    *i32                       [1], sorted ids in use, a multiple of BLOCK_M
    pairs               i32              640       tokens x top_k (batch 80, 8 experts a token), never specialized
    N                   i32              4096      output columns
    K                   i32              2048
    stride_a            i32              2048      elements, between rows
    stride_b_expert     i32              8388608   elements, between experts
    stride_b            i32              2048      elements, between rows of one expert
    stride_c            i32              4096      elements, between rows
    TOP_K               constexpr        8, 1      pairs that share a row of A
    HAS_SCALES          constexpr        True      for FP8 A and B; False for BF16
    WEIGHTED            constexpr        False     multiply by the routing weight (the second GEMM of a layer)
    EVEN_K              constexpr        True      K is a multiple of BLOCK_K: the heuristic sets it
    BLOCK_M             constexpr        16 .. 128 rows a CTA: chosen before tuning, because the sorting depends on it
    BLOCK_N             constexpr        64 .. 256 columns a CTA
    BLOCK_K             constexpr        64, 128   depth of a step
    GROUP_M             constexpr        1, 8      blocks of rows that are walked before the next block of columns
    num_warps 4, 8; num_stages 3, 4 (A and B tiles are pipelined through shared memory)

FP8 times FP8 and BF16 times BF16 run on tensor cores as they are; FP8 weights under BF16 activations are widened first.
HAS_SCALES needs both scale arrays; a per-tensor scale is an array of one repeated value.

Importing this module needs Triton alone; torch is imported by the host functions that use it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch


def _config(block_n: int, block_k: int, group_m: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config(
        {"BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}, num_warps=num_warps, num_stages=num_stages
    )


# Narrow tiles and deep pipelines for decode, wide ones for prefill. GROUP_M 1 where an expert rarely fills two blocks.
CONFIGS = [
    _config(64, 64, 1, 4, 4),
    _config(64, 128, 1, 4, 3),
    _config(64, 128, 1, 4, 4),
    _config(128, 64, 1, 4, 4),
    _config(128, 64, 8, 4, 3),
    _config(128, 128, 1, 4, 3),
    _config(128, 128, 1, 8, 4),
    _config(128, 128, 8, 8, 3),
    _config(256, 64, 8, 8, 3),
    _config(256, 64, 8, 8, 4),
    _config(256, 128, 8, 8, 3),
]


@triton.autotune(configs=CONFIGS, key=["N", "K", "BLOCK_M"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit(do_not_specialize=["pairs"])
def moe_grouped_gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    a_scale_ptr,
    b_scale_ptr,
    topk_weight_ptr,
    sorted_id_ptr,
    expert_id_ptr,
    padded_count_ptr,
    pairs,
    N,
    K,
    stride_a,
    stride_b_expert,
    stride_b,
    stride_c,
    TOP_K: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    WEIGHTED: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    blocks_m = tl.cdiv(tl.load(padded_count_ptr), BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    cta = tl.program_id(0)
    if cta >= blocks_m * blocks_n:
        return
    # Rows first within a group of GROUP_M, then the next block of columns: a tile of weights serves the whole group.
    group = cta // (GROUP_M * blocks_n)
    group_rows = tl.minimum(blocks_m - group * GROUP_M, GROUP_M)
    within = cta % (GROUP_M * blocks_n)
    block_m = group * GROUP_M + within % group_rows
    block_n = within // group_rows

    pair = tl.load(sorted_id_ptr + block_m * BLOCK_M + tl.arange(0, BLOCK_M))
    pair_ok = pair < pairs
    row = tl.where(pair_ok, pair, 0) // TOP_K
    expert = tl.load(expert_id_ptr + block_m).to(tl.int64)
    column = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    column_ok = column < N
    depth = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + row[:, None].to(tl.int64) * stride_a + depth[None, :]
    b_tile = b_ptr + expert * stride_b_expert + column[None, :].to(tl.int64) * stride_b + depth[:, None]

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_tile, mask=pair_ok[:, None], other=0.0)
            b = tl.load(b_tile, mask=column_ok[None, :], other=0.0)
        else:
            depth_ok = depth < K - step * BLOCK_K
            a = tl.load(a_tile, mask=pair_ok[:, None] & depth_ok[None, :], other=0.0)
            b = tl.load(b_tile, mask=column_ok[None, :] & depth_ok[:, None], other=0.0)
        if a.dtype != b.dtype:
            b = b.to(a.dtype)
        acc = tl.dot(a, b, acc)
        a_tile += BLOCK_K
        b_tile += BLOCK_K

    if HAS_SCALES:
        a_scale = tl.load(a_scale_ptr + row)
        b_scale = tl.load(b_scale_ptr + expert * N + column, mask=column_ok, other=0.0)
        acc = acc * a_scale[:, None] * b_scale[None, :]
    if WEIGHTED:
        acc = acc * tl.load(topk_weight_ptr + pair, mask=pair_ok, other=0.0)[:, None]
    c_tile = c_ptr + pair[:, None].to(tl.int64) * stride_c + column[None, :]
    tl.store(c_tile, acc.to(tl.bfloat16), mask=pair_ok[:, None] & column_ok[None, :])


class Routing(NamedTuple):
    """Pairs sorted by expert: sorted_ids, expert_ids, padded_count as the kernel takes them (int32)."""

    sorted_ids: torch.Tensor
    expert_ids: torch.Tensor
    padded_count: torch.Tensor


class Launch(NamedTuple):
    """What `launch` ran: the output, and what Triton compiled for it (None under the interpreter)."""

    out: torch.Tensor
    kernel: Any


def most_padded(pairs: int, experts: int, block_m: int) -> int:
    """The most sorted ids, a multiple of `block_m`, that `pairs` pairs over `experts` experts can need.

    Every expert in use wastes at most block_m - 1 rows, and no more experts are in use than there are pairs.
    """
    return triton.cdiv(pairs + min(pairs, experts) * (block_m - 1), block_m) * block_m


def pick_block_m(pairs: int, experts: int) -> int:
    """BLOCK_M for an even share of the pairs per expert: a power of two from 16 to 128."""
    return min(128, max(16, triton.next_power_of_2(triton.cdiv(pairs, experts))))


def align_tokens(topk_ids: torch.Tensor, experts: int, block_m: int) -> Routing:
    """Sort the pairs of `topk_ids` (int `[tokens, top_k]`, 0 .. experts - 1) by expert, each padded to `block_m`.

    Sizes depend on shapes alone and nothing is copied to the host, so it can be captured in a CUDA graph.
    """
    import torch

    flat = topk_ids.reshape(-1).long()
    pairs, device = flat.numel(), flat.device
    size = most_padded(pairs, experts, block_m)
    order = torch.argsort(flat, stable=True)
    by_expert = flat[order]
    counts = torch.zeros(experts, dtype=torch.long, device=device).scatter_add_(0, flat, torch.ones_like(flat))
    padded = (counts + block_m - 1) // block_m * block_m
    ends = padded.cumsum(0)
    place_in_expert = torch.arange(pairs, device=device) - (counts.cumsum(0) - counts)[by_expert]

    sorted_ids = torch.full((size,), pairs, dtype=torch.int32, device=device)
    sorted_ids[(ends - padded)[by_expert] + place_in_expert] = order.int()
    starts = torch.arange(0, size, block_m, device=device)
    expert_ids = torch.searchsorted(ends, starts, right=True).clamp(max=experts - 1).int()
    return Routing(sorted_ids, expert_ids, ends[-1:].int())


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    topk_ids: torch.Tensor,
    *,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    topk_weights: torch.Tensor | None = None,
    block_m: int | None = None,
    config: triton.Config | None = None,
) -> Launch:
    """Sort, then run the grouped GEMM: out BF16 `[tokens, top_k, N]`.

    a `[tokens or tokens x top_k, K]`, b `[experts, N, K]` (BF16 or FP8 E4M3, contiguous), topk_ids `[tokens, top_k]`,
    a_scale fp32 `[rows of a]` and b_scale fp32 `[experts, N]` both or neither, topk_weights fp32 `[tokens, top_k]`.
    `config` None lets the autotuner choose; give one inside a CUDA-graph capture.
    """
    import torch

    tokens, top_k = topk_ids.shape
    pairs = tokens * top_k
    experts, n, k = b.shape
    if a.dim() != 2 or a.shape[1] != k or a.shape[0] not in (tokens, pairs) or a.stride(1) != 1:
        raise ValueError(f"a must be [{tokens} or {pairs}, {k}] with a contiguous last dimension")
    if not b.is_contiguous():
        raise ValueError("b must be contiguous [experts, N, K]")
    if a.dtype != b.dtype and not (a.dtype == torch.bfloat16 and b.dtype == torch.float8_e4m3fn):
        raise ValueError(f"a {a.dtype} with b {b.dtype}: BF16 or FP8 E4M3 both, or BF16 activations with FP8 weights")
    if (a_scale is None) != (b_scale is None):
        raise ValueError("a_scale and b_scale go together")
    out = torch.empty((pairs, n), dtype=torch.bfloat16, device=a.device)
    if pairs == 0:
        return Launch(out.reshape(tokens, top_k, n), None)

    block_m = pick_block_m(pairs, experts) if block_m is None else block_m
    routing = align_tokens(topk_ids, experts, block_m)
    blocks_m = routing.sorted_ids.numel() // block_m
    kernel, options = (
        (moe_grouped_gemm_kernel, {}) if config is None else (moe_grouped_gemm_kernel.fn, config.all_kwargs())
    )
    unread = torch.empty(0, dtype=torch.float32, device=a.device)
    compiled = kernel[lambda meta: (blocks_m * triton.cdiv(n, meta["BLOCK_N"]),)](
        a,
        b,
        out,
        unread if a_scale is None else a_scale.contiguous(),
        unread if b_scale is None else b_scale.contiguous(),
        unread if topk_weights is None else topk_weights.float().contiguous(),
        routing.sorted_ids,
        routing.expert_ids,
        routing.padded_count,
        pairs,
        n,
        k,
        a.stride(0),
        b.stride(0),
        b.stride(1),
        out.stride(0),
        TOP_K=top_k if a.shape[0] == tokens else 1,
        HAS_SCALES=a_scale is not None,
        WEIGHTED=topk_weights is not None,
        BLOCK_M=block_m,
        **options,
    )
    return Launch(out.reshape(tokens, top_k, n), compiled)


def moe_grouped_gemm(a: torch.Tensor, b: torch.Tensor, topk_ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """The output of `launch` alone."""
    return launch(a, b, topk_ids, **options).out


def reference(
    a: torch.Tensor,
    b: torch.Tensor,
    topk_ids: torch.Tensor,
    *,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    topk_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same product in plain float64, expert by expert: `[tokens, top_k, N]`."""
    import torch

    tokens, top_k = topk_ids.shape
    experts, n, _ = b.shape
    rows = a.float().double()
    if a_scale is not None:
        rows = rows * a_scale.double()[:, None]
    if a.shape[0] == tokens:
        rows = rows.repeat_interleave(top_k, dim=0)
    flat = topk_ids.reshape(-1)
    out = torch.zeros((tokens * top_k, n), dtype=torch.float64, device=a.device)
    for expert in range(experts):
        weights = b[expert].float().double()
        if b_scale is not None:
            weights = weights * b_scale[expert].double()[:, None]
        out[flat == expert] = rows[flat == expert] @ weights.T
    if topk_weights is not None:
        out = out * topk_weights.double().reshape(-1, 1)
    return out.reshape(tokens, top_k, n)


@functools.lru_cache(maxsize=1)
def _measured_weights(experts: int, n: int, k: int, device: str) -> torch.Tensor:
    """FP8 weights `[experts, n, k]`, kept from one point of a measurement to the next."""
    import torch

    return torch.randn(experts, n, k, device=device, dtype=torch.bfloat16).to(torch.float8_e4m3fn)


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors for a launch with these shapes, by argument name: what `occupancy measure` times.

    `values` has batch, topk, experts, N, K and BLOCK_M. Every expert gets an equal share of the pairs, one more for
    some where they do not divide, as the spec's work assumes.
    """
    import torch

    tokens, top_k, experts, n, k, block_m = (
        int(values[name]) for name in ("batch", "topk", "experts", "N", "K", "BLOCK_M")
    )
    pairs = tokens * top_k
    topk_ids = (torch.arange(pairs, device=device) % experts).reshape(tokens, top_k)
    routing = align_tokens(topk_ids[torch.randperm(tokens, device=device)], experts, block_m)
    return {
        "a_ptr": torch.randn(tokens, k, device=device).to(torch.float8_e4m3fn),
        "b_ptr": _measured_weights(experts, n, k, device),
        "c_ptr": torch.empty((pairs, n), dtype=torch.bfloat16, device=device),
        "a_scale_ptr": torch.rand(tokens, device=device) + 0.5,
        "b_scale_ptr": torch.rand(experts, n, device=device) + 0.5,
        "topk_weight_ptr": torch.rand(pairs, device=device),
        "sorted_id_ptr": routing.sorted_ids,
        "expert_id_ptr": routing.expert_ids,
        "padded_count_ptr": routing.padded_count,
    }
