"""A small product that every Triton compiles in about a second, and the command line that names it."""

from __future__ import annotations

from pathlib import Path

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, k, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for at in range(0, k, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * k + at + rows[None, :])
        b = tl.load(b_ptr + (at + rows)[:, None] * BLOCK + rows[None, :])
        acc = tl.dot(a, b, acc)
    top = tl.max(acc, 1)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], acc - top[:, None])
"""


def small_gemm(folder: Path, name: str = "gemm.py") -> list[str]:
    """The kernel in a file of `folder`, as arguments of a command: 64 x 64 tiles of BF16, K 512."""
    file = folder / name
    file.write_text(KERNEL)
    types = ("a_ptr=*bf16", "b_ptr=*bf16", "c_ptr=*fp32", "k=i32=512")
    flags = [part for each in types for part in ("--arg", each)]
    return [f"{file}:gemm", *flags, "--set", "BLOCK=64", "--grid", "400", "--gpu", "rtx-pro-6000"]
