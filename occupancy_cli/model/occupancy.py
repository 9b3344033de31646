"""How many CTAs of a kernel fit on one SM, what binds, and how far the next CTA is.

    from occupancy_cli import load_gpu, occupancy
    occ = occupancy(load_gpu("rtx-pro-6000"), threads_per_cta=128, registers_per_thread=168, shared_bytes=61568)
    occ.ctas_per_sm, occ.warps_per_sm, occ.percent      # 1, 4, 8.33
    occ.limits                                          # {"shared": 1, "registers": 3, "warps": 12, "ctas": 24}
    occ.limited_by                                      # ("shared",)
    occ.next_cta.shared_bytes                           # 50176: at most this much for a second CTA
    occ.next_cta["shared"].less                         # 11392 bytes less than now
    occ.slack["shared"].more                            # 39808 bytes more before the one CTA is lost

The rules are those of the CUDA driver and of NVIDIA's `cuda_occupancy.h` (CUDA Toolkit 13):

- shared memory: dynamic + static + the bytes that the system reserves per CTA, rounded up to the allocation unit,
  against the carveout; at most the opt-in cap for one CTA. The carveout is the one asked for (rounded up to a supported
  size), or the smallest supported one that holds a CTA when the one asked for does not; the largest when none is asked.
- registers: per thread x 32, rounded up to 256, a warp. Each of the SM's four sub-partitions holds a quarter of the
  registers, so warps per SM are 4 x floor(quarter / registers of a warp). A launch is refused when the registers of a
  CTA, its warps rounded up to four, exceed the limit per CTA.
- warps: threads rounded up to whole warps, against the SM's warps; CTAs: the SM's CTAs.

Beyond that header: tensor memory (compute capability 10.x and 11.0), whose columns are allocated in powers of two of at
least 32 (PTX ISA, tcgen05.alloc). The driver does not count it: a CTA that cannot get its columns is resident and
waits in its first instructions, so it does no work, and counts here as not there.

Clusters (num_ctas > 1) are placed whole within one GPC. How many SMs each GPC of a given board has is published
nowhere, so the number of resident clusters is not known; `ctas_per_sm` is what one SM can hold, and `unknown` says so.

Every function here is pure. What is not known is None, and `unknown` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cluster_rules import cluster_refusal, cluster_unknown
from occupancy_cli.model.cta_demands import CLUSTER, REGISTERS, NextCta, Slack, cta_demands
from occupancy_cli.model.resources import KernelResources

UNKNOWN_REGISTERS_REASON = "the number of registers is not known, so neither is the limit they set"


@dataclass(frozen=True)
class Occupancy:
    """CTAs of one kernel per SM of one GPU.

    `limits` has every limit as if it were alone, in CTAs per SM: "shared", "registers", "warps", "ctas" always, "tmem"
    where the kernel uses tensor memory, "barriers" where more than one named barrier is given, "cluster" for num_ctas
    > 1. None there means that the resource sets no limit, or that the limit is not known: then `unknown` has it, with
    the reason. `limited_by` names all limits equal to `ctas_per_sm`.

    `launchable` is False when a limit that is known forbids the launch: `reason` says which and by how much, and
    `over_bytes` is what shared memory is over its cap (0 when it is not). With something unknown, `ctas_per_sm` is an
    upper bound (`exact` is False).
    """

    gpu: str
    compute_capability: str
    threads_per_cta: int
    warps_per_cta: int
    registers_per_thread: int | None
    shared_bytes: int
    static_shared_bytes: int
    num_ctas: int
    tmem_columns: int
    carveout_bytes: int
    shared_allocated_bytes: int
    shared_cap_bytes: int
    registers_allocated_per_cta: int | None
    ctas_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    percent: float
    limits: Mapping[str, int | None] = field(hash=False)
    limited_by: tuple[str, ...]
    next_cta: NextCta
    slack: Mapping[str, Slack] = field(hash=False)
    launchable: bool
    reason: str
    over_bytes: int
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def exact(self) -> bool:
        """False when something unknown could still lower `ctas_per_sm`."""
        return not self.unknown


def occupancy(
    gpu: GpuProfile,
    *,
    threads_per_cta: int,
    registers_per_thread: int | None,
    shared_bytes: int,
    static_shared_bytes: int = 0,
    carveout_bytes: int | None = None,
    num_ctas: int = 1,
    tmem_columns: int = 0,
    num_barriers: int = 1,
) -> Occupancy:
    """The occupancy of a kernel on `gpu`.

    `threads_per_cta` counts every thread of a CTA, those of warp-specialized partitions included (the compiled
    metadata has it; `num_warps` x 32 is too few there). `registers_per_thread` is None when the compile stopped before
    ptxas: the register limit is then unknown. `shared_bytes` is dynamic shared memory per CTA as launched (Triton's
    `metadata.shared`), `static_shared_bytes` the static part, neither with the 1 KB that the system reserves.
    `carveout_bytes` asks for a split of the L1 array, None for the largest shared part. `num_ctas` is the size of a
    cluster, `tmem_columns` the tensor memory of a CTA, `num_barriers` the named barriers it uses.

    Raises `InputError` for what no launch can have: fewer than 1 thread, more than 255 registers per thread, negative
    bytes. What a launch can ask for and the GPU refuses (1,056 threads, too much shared memory, tensor memory that is
    not there) is an answer: `launchable` False, with the reason.
    """
    limits = gpu.limits
    kernel = cta_demands(
        limits,
        threads_per_cta=threads_per_cta,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        static_shared_bytes=static_shared_bytes,
        carveout_bytes=carveout_bytes,
        num_ctas=num_ctas,
        tmem_columns=tmem_columns,
        num_barriers=num_barriers,
    )
    unknown: dict[str, str] = {}
    by_name: dict[str, int | None] = kernel.limits_by_name()
    if registers_per_thread is None:
        unknown[REGISTERS] = UNKNOWN_REGISTERS_REASON
    cluster_reason = cluster_refusal(limits, num_ctas)
    if num_ctas > 1 and not cluster_reason:
        unknown[CLUSTER] = cluster_unknown(limits, num_ctas)

    known = [limit for limit in by_name.values() if limit is not None]
    ctas = min(known)
    allocated = kernel.shared_allocated()
    over = max(0, shared_bytes + static_shared_bytes - limits.shared_per_cta_optin_bytes)
    return Occupancy(
        gpu=gpu.id,
        compute_capability=gpu.compute_capability,
        threads_per_cta=threads_per_cta,
        warps_per_cta=kernel.warps,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        static_shared_bytes=static_shared_bytes,
        num_ctas=num_ctas,
        tmem_columns=tmem_columns,
        carveout_bytes=kernel.carveout(),
        shared_allocated_bytes=allocated,
        shared_cap_bytes=limits.shared_per_cta_optin_bytes,
        registers_allocated_per_cta=kernel.registers_allocated(),
        ctas_per_sm=ctas,
        warps_per_sm=ctas * kernel.warps,
        max_warps_per_sm=limits.max_warps_per_sm,
        percent=100.0 * ctas * kernel.warps / limits.max_warps_per_sm,
        limits=by_name,
        limited_by=tuple(name for name, limit in by_name.items() if limit == ctas),
        next_cta=kernel.changes_for(ctas + 1, by_name),
        slack=kernel.slack(ctas) if ctas else {},
        launchable=ctas > 0,
        reason="" if ctas else "; ".join(r for r in (*kernel.refusals(), cluster_reason) if r),
        over_bytes=over,
        unknown=unknown,
    )


@functools.lru_cache(maxsize=4096)
def occupancy_of(gpu: GpuProfile, resources: KernelResources) -> Occupancy:
    """The occupancy of a compiled kernel: `occupancy` with what the compiler reported. Points of a sweep share it."""
    return occupancy(
        gpu,
        threads_per_cta=resources.threads_per_cta,
        registers_per_thread=resources.registers_per_thread,
        shared_bytes=resources.shared_bytes,
        static_shared_bytes=resources.static_shared_bytes,
        num_ctas=resources.num_ctas,
        tmem_columns=resources.tmem_columns,
    )


def refusal(gpu: GpuProfile, **kernel: Any) -> str:
    """Why the launch is refused, "" when it is not: `Occupancy.reason` by itself; arguments as `occupancy`'s."""
    demands = cta_demands(gpu.limits, **kernel)
    return "; ".join(r for r in (*demands.refusals(), cluster_refusal(gpu.limits, demands.num_ctas)) if r)
