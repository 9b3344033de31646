"""A grouped GEMM over experts, launched with configs from JSON tables as serving engines ship them."""

import triton
import triton.language as tl


@triton.jit
def grouped_gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    expert_ids_ptr,
    N,
    K,
    num_tokens,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(N, BLOCK_SIZE_N)
    group = pid // (GROUP_SIZE_M * blocks_n)
    first = group * GROUP_SIZE_M
    size = min(tl.cdiv(num_tokens, BLOCK_SIZE_M) - first, GROUP_SIZE_M)
    pid_m = first + (pid % (GROUP_SIZE_M * blocks_n)) % size
    pid_n = (pid % (GROUP_SIZE_M * blocks_n)) // size
    row = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    col = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    at = tl.arange(0, BLOCK_SIZE_K)
    expert = tl.load(expert_ids_ptr + pid_m).to(tl.int64)
    a = a_ptr + row[:, None] * K + at[None, :]
    b = b_ptr + expert * N * K + col[None, :] * K + at[:, None]
    acc = tl.zeros([BLOCK_SIZE_M, BLOCK_SIZE_N], tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        left = K - k * BLOCK_SIZE_K
        x = tl.load(a + k * BLOCK_SIZE_K, mask=(row[:, None] < num_tokens) & (at[None, :] < left), other=0.0)
        y = tl.load(b + k * BLOCK_SIZE_K, mask=(col[None, :] < N) & (at[:, None] < left), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(
        c_ptr + row[:, None] * N + col[None, :],
        acc.to(tl.bfloat16),
        mask=(row[:, None] < num_tokens) & (col[None, :] < N),
    )
