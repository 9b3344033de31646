"""The compiled kernels of a Triton cache, ranked by what can be gained: what `audit` answers.

    Score  Kernel  Warps  Regs  Spill B  Shared B  CTAs/SM  Warps/SM  One CTA more per SM
     0.82  matmul      4   168        0    61,568        1   4 of 48  11,392 shared bytes less (61,568 to 50,176)

Read aloud: 18 % less shared memory would double the resident warps of `matmul`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.occupancy_parts import Occupancy, Resources


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How far a resource has to go down: from `current` to `at_most`."""

    resource: str
    unit: str
    current: int
    at_most: int | None


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What one more CTA per SM would bring, in all of `cuts` together; `score` is the ranking's number."""

    score: float
    ctas_per_sm: int
    warps_per_sm: int
    cuts: list[Cut]
    text: str


@dataclass(frozen=True, kw_only=True)
class AuditedKernel:
    """One compiled kernel; without an occupancy `unknown` says why. `entry` is its folder in the cache."""

    kernel: str
    entry: str
    source: str | None
    arch: int
    triton: str | None
    num_stages: int | None
    maxnreg: int | None
    resources: Resources
    gpu: str
    fits: bool | None
    over_bytes: int
    reason: str
    shared_cap_bytes: int | None
    occupancy: Occupancy | None
    gain: Gain | None
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """Something in the cache that is no whole kernel for an NVIDIA GPU, and why."""

    path: str
    state: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A whole cache, best gain first; judged on the Report's `gpu`, or, where that is null, each on its own target."""

    root: str
    rule: str
    kernels: list[AuditedKernel]
    set_aside: list[SetAside]
    counts: dict[str, int] = field(metadata={"description": "kernels, and what was set aside, by reason"})
