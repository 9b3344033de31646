"""The machine and the tools that the numbers are for.

"toolchain": {"occupancy": "0.1", "triton": "3.9.0", "ptxas": "12.9"},
"gpu": {"id": "h200-sxm", "name": "H200 SXM", "compute_capability": "9.0", "sm_count": 132, ...}
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Versions that decided the numbers. Null: not used (no compile took place)."""

    occupancy: str
    triton: str | None = None
    ptxas: str | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The GPU that was asked about. `sm_count` is null for a compute capability alone: then waves are unknown."""

    id: str
    name: str
    compute_capability: str
    sm_count: int | None
    max_warps_per_sm: int
    max_ctas_per_sm: int
    registers_per_sm: int
    shared_per_sm_bytes: int
    shared_per_cta_optin_bytes: int
    shared_reserved_per_cta_bytes: int
    boost_clock_mhz: float | None = None
    memory_bandwidth_gbps: float | None = None
    sm_subpartitions: int | None = None
    shared_alloc_granularity_bytes: int | None = None
    tmem_columns_per_sm: int | None = None
    cluster_supported: bool | None = None
    assumed: list[str] = field(
        default_factory=list, metadata={"description": "fields whose value has no documented source"}
    )
    notes: list[str] = field(default_factory=list)
