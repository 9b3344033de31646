"""The Report, `occupancy/report/1`: what every command found, in one form that every renderer reads.

`occupancy schema report` prints it as a JSON Schema. Units are in the names; shared memory is in bytes. A value that
is not known is null, and `unknown` or `notes` beside it says why. Fields are only ever added within version 1.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA: Literal["occupancy/report/1"] = "occupancy/report/1"

Scalar = int | float | bool | str | None
ITERATIONS_FROM = "who says how many iterations a CTA runs: spec, or IR (the compiled kernel's); null: nobody"
Level = Literal["ok", "violation", "undecided", "note"]
EntryStatus = Literal["ok", "over_cap", "failed", "undecided"]


# Plain dataclasses, checked by the type checker: what builds a Report is this tool, and a schema that also validates
# takes longer to set up than the rest of a run whose results are known. `json_schema` makes pydantic read them.


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
    assumed: list[str] = field(
        default_factory=list, metadata={"description": "fields whose value has no documented source"}
    )
    notes: list[str] = field(default_factory=list)


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
    slack: dict[str, int] = field(metadata={"description": "how much each resource may grow before a CTA is lost"})
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
    """A predicted time with its terms; `unknown` pairs what was missing with what that makes uncertain."""

    time_us: float | None
    binding: str | None
    terms: dict[str, float]
    unknown: list[tuple[str, str]] = field(default_factory=list)
    iterations_from: str | None = field(default=None, metadata={"description": ITERATIONS_FROM})


@dataclass(frozen=True, kw_only=True)
class Follower:
    """A kernel launched after the main one."""

    kernel: str
    resources: Resources | None
    occupancy: Occupancy | None
    launch: Launch | None
    time: Time | None = None
    error: Error | None = None


@dataclass(frozen=True, kw_only=True)
class Error:
    """Why a config has no result; `output` is what the compiler printed."""

    kind: str
    message: str
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One config of one kernel at one set of knobs and shapes.

    `status` is ok, over_cap (compiled, and can never launch on this GPU) or failed (`error` says why).
    """

    config: dict[str, Scalar]
    knobs: dict[str, Scalar] = field(default_factory=dict)
    shapes: dict[str, Scalar] = field(default_factory=dict)
    derived: dict[str, Scalar] = field(default_factory=dict)
    given: dict[str, Scalar] = field(
        default_factory=dict, metadata={"description": "derived names that --set gave a value"}
    )
    status: Literal["ok", "over_cap", "failed"]
    fits: bool | None
    over_bytes: int
    reason: str = ""
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    launch: Launch | None = None
    time: Time | None = None
    followed_by: list[Follower] = field(default_factory=list)
    error: Error | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel and its configs. `settings` says where each value came from (spec default, environment, --set)."""

    name: str
    source: str
    kernel: str
    settings: dict[str, str] = field(default_factory=dict)
    observations: list[str] = field(
        default_factory=list, metadata={"description": "what the configs say when put side by side"}
    )
    tuned: bool = field(
        default=False,
        metadata={"description": "whether its configs are an autotuner's, which drops what cannot launch"},
    )
    notes: list[str] = field(
        default_factory=list,
        metadata={"description": "where its options are from: the launch or decorator in its file"},
    )
    not_read: list[str] = field(
        default_factory=list,
        metadata={"description": "what its file says of its launch and was not read, with the line: not in the answer"},
    )
    configs: list[Config]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A setting with its predicted time."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float | None
    launch: Launch | None
    ctas_per_sm: int | None
    warps_per_sm: int | None
    partials_bytes: int | None = None
    terms: dict[str, float] = field(default_factory=dict)
    binding: str | None = None


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to set for one batch. `predicted_speedup_vs_default` is the incumbent's predicted time over this one's."""

    batch: int
    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float | None
    predicted_speedup_vs_default: float | None
    kept_default: bool
    model_error_percent: float
    reasons: list[str]
    exports: list[str]
    chosen: Choice
    default: Choice | None
    runner_up: Choice | None
    cannot_launch: list[str] = field(default_factory=list)
    constexpr_knobs: list[str] = field(
        default_factory=list, metadata={"description": "knobs that decide what a config takes"}
    )
    launchable: list[dict[str, Scalar]] = field(
        default_factory=list,
        metadata={"description": "configs that can launch, each with the constexpr knobs it does so at"},
    )
    pareto: list[Choice] = field(
        default_factory=list, metadata={"description": "no other beats these in both time and partials"}
    )
    iterations_from: dict[str, str] = field(
        default_factory=dict, metadata={"description": f"of each kernel, {ITERATIONS_FROM}"}
    )


@dataclass(frozen=True, kw_only=True)
class SingleSetting:
    """The one setting that is best over all batches asked about."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    slowdown: float
    exports: list[str]


@dataclass(frozen=True, kw_only=True)
class SweepSide:
    """One setting at one batch of a sweep."""

    knobs: dict[str, Scalar]
    config: dict[str, Scalar]
    nsplit: int | None
    predicted_time_us: float
    ctas_per_sm: int
    waves: float | None
    efficiency_percent: float | None
    requests_per_s: float = field(
        metadata={"description": "batch over the predicted time of this kernel and its followers"}
    )


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One batch: what is set now, the one setting recommended for all batches, and the best for this batch."""

    batch: int
    default: SweepSide | None
    recommended: SweepSide | None
    best: SweepSide


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A measurement of what is set now, and the factor that all times of the sweep were multiplied by to meet it."""

    batch: int
    measured_ms: float
    factor: float


@dataclass(frozen=True, kw_only=True)
class Instead:
    """A config to launch in the place of a table's entry, and where it is from."""

    config: dict[str, Scalar]
    what: str
    shared_bytes: int
    wastes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """One entry of a config table on one GPU, launched at the key `at` (its own, or the one asked for).

    `status` is ok, over_cap, failed (did not compile) or undecided (the GPU of its file's name has no profile, or a
    name in it is not the kernel's); `wastes` says how an entry that fits leaves its GPU idle.
    """

    file: str
    line: int
    entry: int
    at: int
    device: str | None
    gpu: str | None
    gpu_name: str
    names: dict[str, Scalar]
    config: dict[str, Scalar]
    status: EntryStatus
    shared_bytes: int | None
    cap_bytes: int | None
    over_bytes: int
    reason: str = ""
    registers_per_thread: int | None = None
    ctas_per_sm: int | None = None
    launch: Launch | None = None
    wastes: list[str] = field(default_factory=list)
    instead: Instead | None = None


@dataclass(frozen=True, kw_only=True)
class ConfigTables:
    """The config tables of one spec. `specializations` is how many distinct compiles the entries came to."""

    kernel: str
    source: str
    key: str
    files: int
    specializations: int
    entries: list[TableEntry]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a check: what was looked at, and whether it holds."""

    level: Level
    kernel: str
    gpu: str
    config: dict[str, Scalar]
    knobs: dict[str, Scalar] = field(default_factory=dict)
    rule: str
    message: str
    file: str = ""
    line: int | None = None
    required: int | None = None
    limit: int | None = None
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a command found."""

    schema_: Literal["occupancy/report/1"] = field(default=SCHEMA, metadata={"alias": "schema"})
    command: str
    toolchain: Toolchain
    gpu: Gpu | None = None
    kernels: list[Kernel] = field(default_factory=list)
    recommendation: Recommendation | None = None
    recommendations: list[Recommendation] = field(default_factory=list)
    single_setting: SingleSetting | None = None
    sweep: list[SweepPoint] = field(default_factory=list)
    anchor: Anchor | None = None
    findings: list[Finding] = field(default_factory=list)
    tables: list[ConfigTables] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def to_json(self) -> str:
        """The report as indented JSON."""
        return json.dumps(_plain(self), indent=2, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A part of the Report as JSON-ready data, keys as the schema names them; what is not finite becomes null."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if dataclasses.is_dataclass(value):
        return {f.metadata.get("alias", f.name): _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def report_from_json(text: str) -> Report:
    """The Report that `to_json` wrote, checked against the schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Report).validate_json(text)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the Report."""
    from pydantic import TypeAdapter

    return TypeAdapter(Report).json_schema(by_alias=True)
