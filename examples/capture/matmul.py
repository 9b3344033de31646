"""A matmul with an autotuned Triton kernel, written for a CUDA device: what `occupancy capture` is tried on.

    occupancy capture examples/capture/matmul.py -o captured/ --gpu rtx-pro-6000
    occupancy capture examples/capture/matmul.py 4096 4096 4096 -o captured/

Nothing here knows of the capture. With a GPU, `python matmul.py` runs the kernel and checks the product.
"""

import sys

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3),
        (128, 64, 32, 4, 4),
        (128, 128, 64, 8, 3),
        (128, 256, 64, 8, 4),
    )
]


def leave_room(configs, named_args, **_kwargs):
    """No block taller than the matrix."""
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["M"]]


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": leave_room})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    ACTIVATION: tl.constexpr,
    OUT_TYPE: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (pid // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (pid % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        a_mask = (rows < M)[:, None] if EVEN_K else (rows < M)[:, None] & (inner < left)[None, :]
        b_mask = (columns < N)[None, :] if EVEN_K else (inner < left)[:, None] & (columns < N)[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + (k + inner)[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (k + inner)[:, None] * stride_bk + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    if ACTIVATION == "relu":
        total = relu(total)
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], total.to(OUT_TYPE), mask=mask)


def matmul(a, b, activation=""):
    """The product of two bf16 matrices, with rows that lie one after another."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), ACTIVATION=activation, OUT_TYPE=tl.bfloat16
    )
    return c


def main():
    """Launch it once at the sizes given as arguments."""
    m, n, k = (int(size) for size in sys.argv[1:4]) if len(sys.argv) > 3 else (512, 1024, 4096)
    a = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
    b = torch.randn((k, n), device="cuda", dtype=torch.bfloat16)
    c = matmul(a, b, activation="relu")
    expected = torch.relu(a @ b)
    print(f"{m} x {n} x {k} on {torch.cuda.get_device_name()}: largest difference {(c - expected).abs().max():.3f}")


if __name__ == "__main__":
    main()
