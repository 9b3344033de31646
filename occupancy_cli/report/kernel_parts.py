"""Kernels and their configs, compiled; config tables; and what a check found of them.

{"config": {"BLOCK_T": 16, "num_warps": 4}, "status": "over_cap", "fits": false, "over_bytes": 3328,
 "reason": "104,704 bytes of shared memory per CTA are 3,328 over the cap of 101,376 (CC 12.0)", ...}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from occupancy_cli.report.machine_parts import Gpu
from occupancy_cli.report.occupancy_parts import Launch, Occupancy, Resources, Time
from occupancy_cli.report.part_values import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATION, Scalar, prose

if TYPE_CHECKING:
    from occupancy_cli.report.explain_parts import (
        LineTimes,
        MemoryAccess,
        OptionTried,
        RegisterUse,
        SharedMemoryMap,
    )

Level = Literal["ok", "violation", "undecided", "allowed", "note"]
EntryStatus = Literal["ok", "over_cap", "failed", "undecided"]


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
    message: str = prose()
    output: str = prose("")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One config of one kernel at one set of knobs and shapes.

    `status` is ok, over_cap (compiled, and can never launch on this GPU) or failed (`error` says why). Where its shared
    memory, registers and time go (`shared_map`, `register_use`, `options_tried`, `line_times`) and what its accesses
    take (`accesses`) is for `explain` alone.
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
    reason: str = prose("")
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    launch: Launch | None = None
    predicted_time_us: float | None = field(
        default=None, metadata={"description": "of this kernel and those that follow it, as `recommend` predicts it"}
    )
    time: Time | None = None
    followed_by: list[Follower] = field(default_factory=list)
    error: Error | None = None
    notes: list[str] = field(default_factory=list, metadata={"prose": True})
    shared_map: SharedMemoryMap | None = None
    register_use: RegisterUse | None = None
    options_tried: list[OptionTried] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    line_times: LineTimes | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel and its configs. `settings` says where each value came from (spec default, environment, --set).

    `gpu` is the one that these configs are for where several were asked about; else it is the Report's.
    """

    name: str
    gpu: Gpu | None = None
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

    @property
    def exit_code(self) -> int:
        """2 when a config did not compile."""
        return EXIT_UNDECIDED if any(config.status == "failed" for config in self.configs) else EXIT_OK


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
    reason: str = prose("")
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

    @property
    def exit_code(self) -> int:
        """2 when an entry did not compile."""
        return EXIT_UNDECIDED if any(entry.status == "failed" for entry in self.entries) else EXIT_OK


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a check: what was looked at, and whether it holds.

    `source` is the file that was asked for, a spec or a Python file; `file` and `line` are where the config is written,
    or the kernel, or what is wrong. "allowed" is what is unknown and was allowed to be.
    """

    level: Level
    kernel: str
    gpu: str
    config: dict[str, Scalar]
    knobs: dict[str, Scalar] = field(default_factory=dict)
    rule: str
    message: str = prose()
    source: str = ""
    file: str = ""
    line: int | None = None
    required: int | float | None = None
    limit: int | float | None = None
    unit: str = ""

    @property
    def exit_code(self) -> int:
        """1 for a violation, 2 for what could not be decided."""
        return {"violation": EXIT_VIOLATION, "undecided": EXIT_UNDECIDED}.get(self.level, EXIT_OK)
