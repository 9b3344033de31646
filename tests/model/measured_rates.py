"""What a made-up GPU of these tests says of its launches and its L2, as a profile that was measured in part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredRates:
    """Fields of `gpu.sm_rates.LaunchGpu`; None: an H200's is taken."""

    l2_near_bytes: int | None = None
    memory_bandwidth_measured_gbps: float | None = None
    l2_read_bytes_per_cycle: float | None = 27.7
    l2_write_bytes_per_cycle: float | None = 17.0
    l2_write_few_sms_bytes_per_cycle: float | None = None
    kernel_gap_us: float | None = None
    cta_turnover_us: float | None = None
    cta_handout_us: float | None = None
