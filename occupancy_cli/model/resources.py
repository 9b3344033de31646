"""What one CTA of a compiled kernel takes from an SM, as the compiler reported it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelResources:
    """Resources of one compiled config under one specialization.

    `shared_bytes` is the launch's dynamic shared memory per CTA (Triton's `metadata.shared`), without the 1 KB that
    the system reserves; `static_shared_bytes` what the binary declares statically beyond that reservation (0 for
    kernels Triton makes). `registers_per_thread` and `spill_bytes` come from the cubin; `spill_bytes` is local memory
    per thread in bytes as the driver's LOCAL_SIZE_BYTES reports it (Triton's own `n_spills` is that divided by 4).
    Both are None when the compile stopped at shared memory. `num_warps` counts every warp the CTA runs, those of warp
    specialization included, so `threads_per_cta` = 32 x `num_warps`.
    """

    shared_bytes: int
    num_warps: int
    threads_per_cta: int
    registers_per_thread: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int = 0
    num_ctas: int = 1
    tmem_columns: int = 0
