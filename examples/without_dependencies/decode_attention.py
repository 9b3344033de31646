"""A kernel as it lies in a serving engine: the module imports the engine, PyTorch and a CUDA extension at its top.

None of `torch`, `my_engine` and `my_engine_cuda` has to be installed to analyze it (see `analyze.sh`); the report names
the stand-ins that were used. `my_engine.flags.ROW_LIMIT` is a value that only `checked_kernel` needs, and that no
stand-in has: analyzing that kernel says so.
"""

from __future__ import annotations

import os

import my_engine_cuda
import torch
import triton
import triton.language as tl
from my_engine import flags
from my_engine.platforms import current_platform
from my_engine.utils import direct_register_custom_op

BLOCK_H = int(os.environ.get("MY_ENGINE_BLOCK_H", "16"))
TARGET_CTAS = int(os.environ.get("MY_ENGINE_TARGET_CTAS", "256"))
ROW_LIMIT = tl.constexpr(flags.ROW_LIMIT)

NUM_WARPS = [4, 8] if not current_platform.is_rocm() else [4]
CONFIGS = [
    triton.Config({"BLOCK_N": block_n}, num_warps=num_warps, num_stages=num_stages)
    for block_n in (16, 32, 64)
    for num_warps in NUM_WARPS
    for num_stages in (1, 2)
]


@triton.autotune(configs=CONFIGS, key=["head_dim"])
@triton.heuristics({"EVEN_N": lambda args: args["tokens"] % args["BLOCK_N"] == 0})
@triton.jit
def decode_kernel(
    query_ptr,
    kv_ptr,
    out_ptr,
    scale,
    tokens,
    head_dim,
    stride_query,
    stride_kv,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EVEN_N: tl.constexpr,
):
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    dims = tl.arange(0, BLOCK_D)
    query = tl.load(query_ptr + heads[:, None] * stride_query + dims[None, :])
    total = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    weight = tl.zeros((BLOCK_H,), tl.float32)
    for start in range(0, tokens, BLOCK_N):
        at = start + tl.arange(0, BLOCK_N)
        rows = kv_ptr + at[:, None] * stride_kv + dims[None, :]
        kv = tl.load(rows) if EVEN_N else tl.load(rows, mask=at[:, None] < tokens, other=0.0)
        score = tl.exp(tl.dot(query, tl.trans(kv)) * scale)
        weight += tl.sum(score, 1)
        total += tl.dot(score.to(kv.dtype), kv)
    result = total / weight[:, None]
    tl.store(out_ptr + heads[:, None] * stride_query + dims[None, :], result.to(out_ptr.dtype.element_ty))


@triton.jit
def checked_kernel(out_ptr, rows):
    tl.store(out_ptr, tl.minimum(rows, ROW_LIMIT))


def num_splits(batch: int, heads: int) -> int:
    return max(1, min(TARGET_CTAS // max(1, batch * triton.cdiv(heads, BLOCK_H)), 8))


@torch.inference_mode()
def decode(query: torch.Tensor, kv: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(query)
    batch, heads, dim = query.shape
    nsplit = num_splits(batch, heads)
    grid = (nsplit, triton.cdiv(heads, BLOCK_H))
    decode_kernel[grid](
        query, kv, out, scale, kv.shape[0], dim, query.stride(1), kv.stride(0), BLOCK_H=BLOCK_H, BLOCK_D=dim
    )
    my_engine_cuda.synchronize()
    return out


direct_register_custom_op("my_engine_decode", decode)
