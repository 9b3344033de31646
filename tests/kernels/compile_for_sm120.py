"""Compiles four configs of the sparse MLA split kernel for sm120 with Triton alone and prints their shared memory.

Independent of the tool, so that it can serve as an oracle: the kernel's own `warmup` under a driver that only answers
which target to compile for.
"""

from __future__ import annotations

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from testing import interpreter


class TargetOnly(DriverBase):
    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 120, 32)

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        raise NotImplementedError

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0


class Pointer:
    """A tensor argument: an element type (Triton's name for it) at a 16-byte aligned address."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 16

    def ptr_range(self) -> int:
        return 0


def main() -> None:
    triton.runtime.driver.set_active(TargetOnly())
    kernel = interpreter.load_kernel("kernels/sparse_mla_decode.py").split_kernel.fn.fn
    pointers = [Pointer(dtype) for dtype in ("bf16", "fp8e4nv", "i64", "bf16", "i32", "i32", "fp32", "fp32", "fp32")]
    for block_h, block_t in ((16, 16), (32, 16), (16, 64), (32, 64)):
        compiled = kernel.warmup(
            *pointers,
            scale_log2e=0.06,
            heads=16,
            topk=512,
            topk_rounded=512,
            nsplit=2,
            tiles_per_split=512 // block_t // 2,
            stride_query_batch=16 * 512,
            stride_query_head=512,
            stride_indices=512,
            stride_page=4672,
            BLOCK_H=block_h,
            BLOCK_T=block_t,
            num_warps=8,
            num_stages=2,
            grid=(80, 1, 2),
        )
        print(json.dumps({"BLOCK_H": block_h, "BLOCK_T": block_t, "shared_bytes": compiled.metadata.shared}))


if __name__ == "__main__":
    main()
