"""GPUs with the source of every value, those of this machine beside their profiles or measured: `gpus`, `verify`.

    sm_count  132  measured  1 2
    GPU 0: NVIDIA H200, CC 9.0: profile h200-sxm
    sm_count  132  132  equal

Read aloud: sources 1 and 2, listed below the table, say 132 SMs, and so does the driver of this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.part_values import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATION, Scalar, prose

Value = Scalar | list[int]


@dataclass(frozen=True, kw_only=True)
class DisputedValue:
    """Another value that some source publishes, and what is known against it."""

    value: Value
    sources: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SourcedValue:
    """A value with its status (documented, measured, assumed) and sources; why this one and not those of `disputed`."""

    value: Value
    status: str
    sources: list[str] = field(default_factory=list)
    note: str = ""
    disputed: list[DisputedValue] = field(default_factory=list)
    chosen_because: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """A profile. `limits` are those that all GPUs of its compute capability share."""

    id: str
    name: str
    aliases: list[str]
    alias_notes: dict[str, str]
    compute_capability: str
    limits_only: bool
    values: dict[str, SourcedValue]
    limits: dict[str, SourcedValue]
    tensor_formats_absent: list[str]
    notes: list[str]
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class DeviceField:
    """One value on the device and in the profile (null: the profile does not state it)."""

    field: str
    device: Scalar
    profile: Scalar
    equal: bool
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU of this machine, the id of its profile (null: none fits) and every value compared."""

    index: int
    name: str
    compute_capability: str
    profile: str | None
    fields: list[DeviceField]
    differences: list[str]

    @property
    def exit_code(self) -> int:
        """2 without a profile, 1 when a value differs from it."""
        if self.profile is None:
            return EXIT_UNDECIDED
        return EXIT_VIOLATION if self.differences else EXIT_OK


@dataclass(frozen=True, kw_only=True)
class MeasuredValue:
    """A constant of the GPU as timed: its median and spread, the profile's value beside it (null: it states none) and
    by how much the measured one is larger; `how` says what was timed."""

    field: str
    value: float
    spread_percent: float
    profile: float | None
    difference_percent: float | None
    how: str


@dataclass(frozen=True, kw_only=True)
class BandwidthPoint:
    """Reading with so many CTAs on every SM and so many bytes of each SM in flight; `latency_cycles` is how long these
    are then under way."""

    memory: str
    ctas_per_sm: int
    bytes_in_flight: int
    gbps: float
    latency_cycles: float


@dataclass(frozen=True, kw_only=True)
class MeasuredGpu:
    """The constants of a GPU of this machine, and the profile that they were written to. `rates` are beside it: what
    instructions of an SM take, and operations a cycle of its tensor cores."""

    path: str
    device: str
    driver: str
    profile: str | None
    clock_mhz: float
    seconds: float
    values: list[MeasuredValue]
    rates: list[MeasuredValue]
    curves: list[BandwidthPoint]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a compiled kernel by the model and by the driver; not `compared`: shown, and not judged."""

    model: int
    driver: int
    compared: bool = True


@dataclass(frozen=True, kw_only=True)
class VerifiedLaunch:
    """One compiled kernel: its config, the specialization it was compiled for, a point that launches it, its figures.

    `differs` names the figures that are not equal; `problem` says why there are none.
    """

    kernel: str
    config: dict[str, Scalar]
    specialization: str
    example: dict[str, Scalar]
    figures: dict[str, Figure]
    differs: list[str]
    problem: str = prose("")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All compiled kernels of one spec: how many, how many with a figure that differs, how many without an answer."""

    kernel: str
    gpu: str
    kernels: int
    differences: int
    undecided: int
    launches: list[VerifiedLaunch]

    @property
    def exit_code(self) -> int:
        """1 when a figure differs, else 2 when a kernel could not be compiled or loaded, or there is none, else 0."""
        if self.differences:
            return EXIT_VIOLATION
        return EXIT_UNDECIDED if self.undecided or not self.launches else EXIT_OK
