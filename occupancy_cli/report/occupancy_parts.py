"""What a CTA takes, how many of them an SM holds, and how a launch fills the GPU.

    "occupancy": {"ctas_per_sm": 1, "warps_per_sm": 4, "max_warps_per_sm": 48, "percent": 8.33,
                  "limits": {"shared": 1, "registers": 3, "warps": 12, "ctas": 24}, "limited_by": ["shared"],
                  "next_cta": {"ctas_per_sm": 2, "shared_bytes": 50176, "shared_bytes_less": 11392, ...}, ...}

Read aloud: one CTA of 4 warps per SM, as shared memory has room for no second one, which at most 50,176 bytes would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ITERATIONS_FROM = "who says how many iterations a CTA runs: spec, or IR (the compiled kernel's); null: nobody"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a CTA takes. `registers_per_thread` and `spill_bytes` are null when the compile ended at shared memory.

    `shared_bytes` is dynamic shared memory without the 1 KB that the system reserves; `spill_bytes` is local memory per
    thread as the driver's LOCAL_SIZE_BYTES reports it; `num_warps` counts every warp of the CTA.
    """

    shared_bytes: int
    registers_per_thread: int | None
    spill_bytes: int | None
    num_warps: int
    threads_per_cta: int
    static_shared_bytes: int = 0
    num_ctas: int = 1
    tmem_columns: int = 0


@dataclass(frozen=True, kw_only=True)
class NextCta:
    """What the next CTA per SM asks of each resource: the value at most, and how much less than now that is."""

    ctas_per_sm: int
    reachable: bool
    binding: list[str]
    shared_bytes: int | None
    shared_bytes_less: int | None
    registers_per_thread: int | None
    registers_per_thread_less: int | None
    warps_per_cta: int | None
    warps_per_cta_less: int | None = None
    tmem_columns: int | None = None
    tmem_columns_less: int | None = None


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """CTAs and warps per SM. `limits` has each limit as if alone, in CTAs; null: no limit, or unknown."""

    ctas_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    percent: float
    limits: dict[str, int | None]
    limited_by: list[str]
    next_cta: NextCta
    slack: dict[str, int] = field(
        default_factory=dict, metadata={"description": "how much each resource may grow before a CTA is lost"}
    )
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The grid on the machine: slots are SMs x CTAs/SM. Null where the grid or the SM count is not known."""

    grid: list[int]
    ctas: int
    slots: int | None
    waves: float | None
    full_waves: int | None
    tail_ctas: int | None
    tail_percent: float | None
    efficiency_percent: float | None


@dataclass(frozen=True, kw_only=True)
class Time:
    """A predicted time with its terms; `unknown` pairs what was missing with what that makes uncertain, `interval_us`
    holds nine of ten times so predicted."""

    time_us: float | None
    binding: str | None
    terms: dict[str, float]
    unknown: list[tuple[str, str]] = field(default_factory=list)
    iterations_from: str | None = field(default=None, metadata={"description": ITERATIONS_FROM})
    interval_us: list[float] | None = None
