"""What a GPU offers a kernel: `GpuProfile` (one product) and `ComputeCapability` (the limits that its kind shares).

Values alone: no file is read here. Each number's `Provenance` says where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# documented: NVIDIA's own documents, headers and tools print it.
# measured:   read from a device (a driver query) or timed on one; the source says with what.
# assumed:    neither is known for this product; the note says where the figure comes from.
STATUSES = ("documented", "measured", "assumed")


@dataclass(frozen=True)
class Disputed:
    """Another value that some source publishes; `sources` are addresses, `note` says what is known against it."""

    value: int | float | str
    sources: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Provenance:
    """Where one value comes from. `chosen_because` says why this value and not one of `disputed`."""

    status: str
    sources: tuple[str, ...] = ()
    note: str = ""
    disputed: tuple[Disputed, ...] = ()
    chosen_because: str = ""


@dataclass(frozen=True)
class ComputeCapability:
    """The limits that all GPUs of one compute capability share.

    `_bytes` are bytes, `_regs`/`registers` 32-bit registers, `_warps` warps of 32 threads. A CTA may have
    `shared_per_cta_optin_bytes` of shared memory (dynamic and static together); the system takes
    `shared_reserved_per_cta_bytes` more for itself, and the sum is rounded up to `shared_alloc_granularity_bytes`.
    `carveouts_bytes` are the sizes that the shared part of the L1 array can be set to, ascending.
    `max_cluster_size_nonportable` is None where no source states it, and both cluster sizes are None where clusters
    do not exist. `tmem_columns_per_sm` is 0 where there is no tensor memory.
    """

    compute_capability: str
    max_threads_per_cta: int
    max_warps_per_sm: int
    max_threads_per_sm: int
    max_ctas_per_sm: int
    barriers_per_sm: int
    registers_per_sm: int
    max_registers_per_cta: int
    max_registers_per_thread: int
    register_alloc_unit_regs: int
    warp_alloc_granularity_warps: int
    sm_subpartitions: int
    shared_per_sm_bytes: int
    shared_per_cta_default_bytes: int
    shared_per_cta_optin_bytes: int
    shared_reserved_per_cta_bytes: int
    shared_alloc_granularity_bytes: int
    carveouts_bytes: tuple[int, ...]
    unified_l1_shared_bytes: int
    cluster_supported: bool
    tmem_columns_per_sm: int
    max_cluster_size_portable: int | None = None
    max_cluster_size_nonportable: int | None = None
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)

    @property
    def arch(self) -> int:
        """The number in `sm_120` and in Triton's target: 120 for compute capability 12.0."""
        return arch_of(self.compute_capability)


@dataclass(frozen=True)
class GpuProfile:
    """One GPU product, or (when `limits_only`) any GPU of one compute capability.

    Rates are dense, without sparsity, tensor cores with FP32 accumulate (`fp16_` also stands for bf16; `fp4_` is
    block-scaled), in 1e12 operations a second; `memory_bandwidth_gbps` is theoretical, in 1e9 bytes a second;
    `memory_gb` the marketed capacity, `memory_bytes` what a device reports. Latencies are in SM clock cycles. None
    means that no source was found, unless the format is in `tensor_formats_absent`: then the GPU does not have it.

    What only a measurement tells (`device.gpu_constants`): bytes that an SM reads from the L2 or writes to it in a
    cycle, while all SMs move bytes of their own, few do, or many read the `same`; what the L2 holds at its near
    latency and before DRAM answers (`l2_near_bytes`, `l2_effective_bytes`), and the L1 without shared memory; bytes of
    shared memory that an SM reads a cycle; cycles between two instructions of a scheduler; a graph's node
    (`launch_us`), the gap between two kernels that fill the GPU, from the end of a CTA to the next in its place, and
    one more CTA handed out.

    `provenance` has an entry for every value that is not None, the shared limits included, by field name.
    """

    id: str
    name: str
    compute_capability: str
    limits: ComputeCapability
    aliases: tuple[str, ...] = ()
    alias_notes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    device_names: tuple[str, ...] = ()
    sm_count: int | None = None
    boost_clock_mhz: float | None = None
    tensor_clock_mhz: float | None = None
    memory_gb: float | None = None
    memory_bytes: int | None = None
    memory_bandwidth_gbps: float | None = None
    memory_bandwidth_measured_gbps: float | None = None
    l2_bytes: int | None = None
    fp4_dense_tflops: float | None = None
    fp8_dense_tflops: float | None = None
    fp16_dense_tflops: float | None = None
    tf32_dense_tflops: float | None = None
    int8_dense_tops: float | None = None
    fp8_dense_fp16acc_tflops: float | None = None
    fp16_dense_fp16acc_tflops: float | None = None
    fp32_tflops: float | None = None
    tdp_w: float | None = None
    shared_latency_cycles: float | None = None
    l1_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    dram_latency_cycles: float | None = None
    l2_read_bytes_per_cycle: float | None = None
    l2_read_few_sms_bytes_per_cycle: float | None = None
    l2_read_same_bytes_per_cycle: float | None = None
    l2_write_bytes_per_cycle: float | None = None
    l2_write_few_sms_bytes_per_cycle: float | None = None
    l2_near_bytes: int | None = None
    l2_effective_bytes: int | None = None
    l1_effective_bytes: int | None = None
    shared_bytes_per_cycle: float | None = None
    issue_cycles: float | None = None
    launch_us: float | None = None
    kernel_gap_us: float | None = None
    cta_turnover_us: float | None = None
    cta_handout_us: float | None = None
    tensor_formats_absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)
    path: str = field(default="", compare=False, repr=False)

    @property
    def arch(self) -> int:
        """The number in `sm_120` and in Triton's target: 120 for compute capability 12.0."""
        return arch_of(self.compute_capability)

    @property
    def limits_only(self) -> bool:
        """True for `sm120` and its like: occupancy can be told, waves cannot, as the number of SMs is not known."""
        return self.sm_count is None

    def status(self, name: str) -> str:
        """The status of the value `name`: documented, measured, assumed, or "unknown" where there is none."""
        entry = self.provenance.get(name)
        return entry.status if entry else "unknown"


def arch_of(compute_capability: str) -> int:
    """120 for "12.0"."""
    major, minor = compute_capability.split(".")
    return int(major) * 10 + int(minor)
