"""Config tables: does each entry fit the GPU that its file names (or the one asked for), does it fill it, what else?

An entry is launched as the engine would: its key as the batch, its config, the names in its file's name. Entries of
one specialization are one compile, however many files they stand in.

What counts as waste, of an entry that fits:
- fewer CTAs than SMs (some SMs have nothing to do in the whole launch);
- a launch of several waves that keeps the machine less than `LEAST_EFFICIENCY` percent busy (a nearly empty last wave);
- fewer than `LEAST_WARPS_PER_SM` warps per SM (a scheduler, of which an SM has four, then has one warp to issue from,
  and each of its stalls is idle time);
- local memory: registers that spill.
The first two need the spec's grid, the last two the whole compile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint, notes_of, stop_above, toolchain
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.errors import InputError, UnknownNameError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.model.occupancy import Occupancy, occupancy_of
from occupancy_cli.model.waves import WaveSchedule
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import Point, make_point
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.plan.settled_launches import settled
from occupancy_cli.report import schema
from occupancy_cli.spec.config_tables import DEVICE, TableEntry, nearest_entries, read_tables
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import ConfigTable
from occupancy_cli.spec.settings import Setting, one_value

LEAST_WARPS_PER_SM = 8
LEAST_EFFICIENCY = 60.0
GPU_ARCH = "gpu_arch"

ResolveGpu = Callable[[str], GpuProfile]


@dataclass(frozen=True)
class Judged:
    """One entry on one GPU. `problem` says why it could not be decided; then there is no outcome."""

    entry: TableEntry
    gpu: GpuProfile | None
    point: Point | None = None
    outcome: CompileOutcome | None = None
    problem: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def occupancy(self) -> Occupancy | None:
        """The occupancy of what was compiled."""
        if self.gpu is None or self.outcome is None or self.outcome.resources is None:
            return None
        return occupancy_of(self.gpu, self.outcome.resources)

    @property
    def waves(self) -> WaveSchedule | None:
        """The waves of its launch; None without a grid."""
        occupancy = self.occupancy
        if self.gpu is None or self.point is None or occupancy is None or not occupancy.launchable:
            return None
        assert self.outcome is not None and self.outcome.resources is not None
        return report_parts.waves_of(self.gpu, self.outcome.resources, occupancy, self.point.main.grid)

    @property
    def status(self) -> schema.EntryStatus:
        """ok, over_cap, failed (did not compile) or undecided (its GPU or a name in it is not known)."""
        if self.problem:
            return "undecided"
        occupancy = self.occupancy
        if occupancy is None:
            return "failed"
        return "ok" if occupancy.launchable else "over_cap"

    @property
    def reason(self) -> str:
        """Why it cannot launch, or why that is not known."""
        if self.problem:
            return self.problem
        occupancy = self.occupancy
        if occupancy is None:
            return self.outcome.message if self.outcome is not None else ""
        return occupancy.reason

    def wastes(self) -> list[str]:
        """How it wastes its GPU (see the module's docstring), in words."""
        occupancy, waves = self.occupancy, self.waves
        if self.gpu is None or self.outcome is None or occupancy is None or not occupancy.launchable:
            return []
        found = []
        sms = self.gpu.sm_count
        if waves is not None and sms is not None and waves.ctas < sms:
            found.append(f"{waves.ctas} CTAs on {sms} SMs")
        resources = self.outcome.resources
        assert resources is not None
        if resources.registers_per_thread is None:
            return found
        efficiency = None if waves is None else waves.efficiency_percent
        if waves is not None and efficiency is not None and waves.full_waves and efficiency < LEAST_EFFICIENCY:
            found.append(f"{waves.waves:.2f} waves, {efficiency:.0f} % busy")
        if occupancy.warps_per_sm < LEAST_WARPS_PER_SM:
            found.append(f"{occupancy.warps_per_sm} warps per SM")
        if resources.spill_bytes:
            found.append(f"{resources.spill_bytes:,} bytes a thread spill")
        return found


@dataclass(frozen=True)
class Replacement:
    """A config to use instead of an entry's: that of another entry of its file, or its own with fewer stages."""

    judged: Judged
    text: str


class Tables:
    """The tables of one spec on one or several GPUs: their entries, judged; replacements on request.

    `gpus` None: each entry on the GPU in its file's name, found by `resolve`. `stop` is where compiles may end for a
    GPU (`CompileRequest.stop_above`), `explain` whether explanations are wanted. Several values of the
    key in `sets` look at the nearest entry of each file.
    """

    def __init__(
        self,
        given: KernelInput,
        gpus: Sequence[GpuProfile] | None,
        resolve: ResolveGpu,
        service: CompileService,
        sets: Mapping[str, Setting],
        stop: Callable[[GpuProfile], int | None],
        *,
        explain: bool = False,
    ) -> None:
        table = given.spec.configs
        assert isinstance(table, ConfigTable)
        self.given, self.table, self.service, self.stop = given, table, service, stop
        self._gpus, self._resolve, self._explain = gpus, resolve, explain
        self._where = given.document.where(("configs",))
        self._sets = {n: s for n, s in sets.items() if n != table.key}
        self._keys = sets[table.key].values if table.key in sets else None
        self._kernels: dict[str, Kernel] = {}
        self._devices: dict[str, GpuProfile | str] = {}
        self._requests: set[str] = set()
        self.entries = read_tables(table, given.folder, self._where)
        self.judged = tuple(self._compile(list(self._candidates())))

    @property
    def distinct(self) -> int:
        """How many specializations were compiled or looked up."""
        return len(self._requests)

    def of_file(self, judged: Judged) -> list[TableEntry]:
        """The entries of the same file, those with the nearest key first."""
        key = judged.point.names[self.table.key] if judged.point is not None else judged.entry.key
        mine = [e for e in self.entries if e.file == judged.entry.file]
        return sorted(mine, key=lambda e: (abs(math.log2(e.key / key)), e.key))

    # --- planning ---

    def _candidates(self) -> Iterator[tuple[TableEntry, GpuProfile | None, int, str]]:
        for entry, key in self._asked():
            for gpu, problem in self._gpus_of(entry):
                yield entry, gpu, key, problem

    def _asked(self) -> Iterator[tuple[TableEntry, int]]:
        if self._keys is None:
            yield from ((e, e.key) for e in self.entries)
            return
        for key in self._keys:
            if not isinstance(key, int) or key < 1:
                raise InputError(f"{key!r} is no {self.table.key}", where=f"--set {self.table.key}")
            yield from ((e, key) for e in nearest_entries(self.entries, key))

    def _gpus_of(self, entry: TableEntry) -> Iterator[tuple[GpuProfile | None, str]]:
        if self._gpus is not None:
            yield from ((gpu, "") for gpu in self._gpus)
            return
        if entry.device is None:
            yield None, "the file's name names no GPU"
            return
        found = self._device(entry.device)
        yield (None, found) if isinstance(found, str) else (found, "")

    def _device(self, name: str) -> GpuProfile | str:
        if name not in self._devices:
            meant = self.table.devices.get(name)
            try:
                self._devices[name] = self._resolve(name if meant is None else meant)
            except UnknownNameError:
                if meant is not None:
                    raise
                self._devices[name] = f"no profile of a GPU {name}"
            except InputError as several:
                self._devices[name] = f"{name}: {several.problem}"
        return self._devices[name]

    def kernel_on(self, gpu: GpuProfile) -> Kernel:
        """The kernel as it is planned for the GPU."""
        if gpu.id not in self._kernels:
            names = {self.table.key, GPU_ARCH} | {n for e in self.entries for n in e.names}
            kernel = prepare(
                self.given, gpu, self.service.describe, self._sets, os.environ, names, readings=self.service.readings
            )
            valid = {*kernel.description.constexprs, *LAUNCH_OPTIONS}
            for name in self.table.values:
                if name not in valid:
                    where = self.given.document.where(("configs", "values", name))
                    raise unknown_name(
                        f"constexpr of {kernel.description.name} or launch option", name, valid, where=where
                    )
            self._kernels[gpu.id] = kernel
        return self._kernels[gpu.id]

    def plan(self, entry: TableEntry, gpu: GpuProfile, key: int, change: Mapping[str, Any] | None = None) -> Judged:
        """The launch of one entry's config (with `change` made to it) at the batch `key`, not compiled yet."""
        kernel = self.kernel_on(gpu)
        known = {*kernel.description.constexprs, *LAUNCH_OPTIONS}
        config = {**entry.config, **(change or {})}
        for name in config:
            if name not in known and name not in self.table.values:
                return Judged(entry, gpu, problem=f"{name} is no constexpr of {kernel.description.name}", config=config)
        settings = {n: one_value(s.values, n, "--set") for n, s in kernel.settings.items()}
        override = {n: one_value(s.values, n, "--set") for n, s in kernel.overrides.items()}
        named = {n: v for n, v in entry.names.items() if n not in self._sets}
        settings |= named | {self.table.key: key, GPU_ARCH: gpu.arch}
        full = {**config}
        for name, value in self.table.values.items():
            where = self.given.document.where(("configs", "values", name))
            full[name] = parse_expression(value, where)({**settings, **config, **override}, where)
        point = make_point(kernel, gpu, settings, full, override, self.stop(gpu))
        if self._explain:
            from occupancy_cli.answers.explain import to_explain

            point = to_explain(point)
        return Judged(entry, gpu, point, config=config)

    def _compile(self, chosen: Iterable[tuple[TableEntry, GpuProfile | None, int, str]]) -> list[Judged]:
        planned = [
            Judged(entry, None, problem=problem, config=entry.config) if gpu is None else self.plan(entry, gpu, key)
            for entry, gpu, key, problem in chosen
        ]
        return self.compile(planned)

    def compile(self, planned: Sequence[Judged]) -> list[Judged]:
        """The same with outcomes, each specialization compiled once."""
        requests = [j.point.main.request for j in planned if j.point is not None]
        self._requests |= {r.key() for r in requests}
        outcomes = iter(self.service.compile_all(requests))
        return [j if j.point is None else self._settled(j, next(outcomes)) for j in planned]

    def _settled(self, judged: Judged, outcome: CompileOutcome) -> Judged:
        """With the outcome of its launch, which no GPU takes where its grid is over the limits."""
        assert judged.point is not None and judged.gpu is not None
        plan, outcome = settled(self.given, judged.gpu, judged.point.main, outcome)
        return replace(judged, point=replace(judged.point, main=plan), outcome=outcome)

    # --- what instead ---

    def replacements(self, *, wasteful: bool = False) -> dict[int, Replacement]:
        """For each judged entry over the cap (by its position), what to launch instead; `wasteful`: for those too.

        Over the cap: the entry's own config with fewer stages where two or more then fit, if `wasteful` looks further
        than the file; else the config of the nearest entry of its file that fits at its batch. Wasteful: the nearest
        entry with fewer of its faults.
        """
        asked: dict[int, list[tuple[Judged, str]]] = {}
        for at, judged in enumerate(self.judged):
            if judged.gpu is None or judged.point is None or judged.status not in ("ok", "over_cap"):
                continue
            if judged.status == "over_cap" or (wasteful and judged.wastes()):
                asked[at] = list(self._alternatives(judged, fewer_stages=wasteful and judged.status == "over_cap"))
        flat = iter(self.compile([j for options in asked.values() for j, _ in options]))
        found: dict[int, Replacement] = {}
        for at, options in asked.items():
            faults = self.judged[at].wastes()
            for _, text in options:
                judged = next(flat)
                better = judged.status == "ok" and (not faults or len(judged.wastes()) < len(faults))
                if better and at not in found:
                    found[at] = Replacement(judged, text)
        return found

    def _alternatives(self, judged: Judged, *, fewer_stages: bool) -> Iterator[tuple[Judged, str]]:
        assert judged.gpu is not None and judged.point is not None
        key = judged.point.names[self.table.key]
        stages = judged.config.get("num_stages")
        if fewer_stages and isinstance(stages, int):
            for fewer in range(stages - 1, 1, -1):
                change = {"num_stages": fewer}
                yield self.plan(judged.entry, judged.gpu, key, change), f"the same with num_stages {fewer}"
        seen = {repr(sorted(judged.config.items()))}
        for entry in self.of_file(judged):
            same = repr(sorted(entry.config.items()))
            if same not in seen:
                seen.add(same)
                yield self.plan(entry, judged.gpu, key), f"the entry of {self.table.key} {entry.key}"


# --- commands ----------------------------------------------------------------------------------------------------


def analyze_tables(
    given: KernelInput,
    gpus: Sequence[GpuProfile] | None,
    resolve: ResolveGpu,
    service: CompileService,
    sets: Mapping[str, Setting],
    *,
    command: str = "analyze",
) -> schema.Report:
    """A Report with the tables of a spec: what does not fit, what wastes its GPU, what to use instead.

    `command` "recommend" looks further for what to use instead: fewer stages, and entries that waste less.
    """
    tables = Tables(given, gpus, resolve, service, sets, lambda gpu: stop_above(gpu, full=False))
    replacements = tables.replacements(wasteful=command == "recommend")
    analyzed = [AnalyzedPoint(j.point, (j.outcome,)) for j in tables.judged if j.point and j.outcome]
    return schema.Report(
        command=command,
        toolchain=toolchain(service, analyzed),
        gpu=report_parts.gpu_part(gpus[0]) if gpus is not None and len(gpus) == 1 else None,
        tables=[
            schema.ConfigTables(
                kernel=given.name,
                source=given.source,
                key=tables.table.key,
                files=len({e.file for e in tables.entries}),
                specializations=tables.distinct,
                entries=[_entry_part(tables, judged, replacements.get(at)) for at, judged in enumerate(tables.judged)],
            )
        ],
        notes=notes_of(service, analyzed),
        interrupted=service.interrupted,
    )


def _entry_part(tables: Tables, judged: Judged, instead: Replacement | None) -> schema.TableEntry:
    occupancy, outcome = judged.occupancy, judged.outcome
    resources = outcome.resources if outcome is not None else None
    at = judged.entry.key if judged.point is None else judged.point.names[tables.table.key]
    return schema.TableEntry(
        file=judged.entry.file.name,
        line=judged.entry.line,
        entry=judged.entry.key,
        at=at,
        device=judged.entry.device,
        gpu=None if judged.gpu is None else judged.gpu.id,
        gpu_name=judged.entry.device or "" if judged.gpu is None else judged.gpu.name,
        names=report_parts.scalars({n: v for n, v in judged.entry.names.items() if n != DEVICE}),
        config=report_parts.scalars(judged.config),
        status=judged.status,
        shared_bytes=None if occupancy is None else occupancy.shared_bytes + occupancy.static_shared_bytes,
        cap_bytes=None if occupancy is None else occupancy.shared_cap_bytes,
        over_bytes=0 if occupancy is None else occupancy.over_bytes,
        reason=judged.reason,
        registers_per_thread=None if resources is None else resources.registers_per_thread,
        ctas_per_sm=None if occupancy is None or not occupancy.exact else occupancy.ctas_per_sm,
        launch=report_parts.launch_part(judged.waves),
        wastes=judged.wastes(),
        instead=None if instead is None else _instead_part(instead),
    )


def _instead_part(instead: Replacement) -> schema.Instead:
    occupancy = instead.judged.occupancy
    return schema.Instead(
        config=report_parts.scalars(instead.judged.config),
        what=instead.text,
        shared_bytes=0 if occupancy is None else occupancy.shared_bytes + occupancy.static_shared_bytes,
        wastes=instead.judged.wastes(),
    )
