"""`check`: do the configs that a spec declares to be used fit every GPU named, and keep its budgets?

Undecided is not passed: a config that did not compile, or a limit whose value is only assumed, makes the answer
"cannot tell".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint, compile_points, notes_of, pruned_points, toolchain
from occupancy_cli.answers.table_entries import ResolveGpu, Tables
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import unknown_name
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.cluster_rules import cluster_doubt
from occupancy_cli.model.occupancy import Occupancy, occupancy_of
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import Kernel, Point, points, prepare
from occupancy_cli.report import schema
from occupancy_cli.spec.config_tables import TableEntry
from occupancy_cli.spec.kernel_spec import Budgets, ConfigTable
from occupancy_cli.spec.settings import Setting


def check(
    kernels: Sequence[tuple[KernelInput, Sequence[GpuProfile]]],
    service: CompileService,
    sets: Mapping[str, Setting],
    resolve: ResolveGpu | None = None,
) -> schema.Report:
    """A Report with one finding per config, kernel, GPU and rule.

    A spec of config tables may come with no GPUs: each entry is then checked on the one that its file names, which
    `resolve` finds.
    """
    findings: list[schema.Finding] = []
    everything: list[AnalyzedPoint] = []
    try:
        for given, gpus in kernels:
            for found, analyzed in _checked(given, gpus, service, sets, resolve):
                findings += found
                everything += analyzed
                if service.interrupted:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not findings:
            raise
        service.interrupted = True
    return schema.Report(
        command="check",
        toolchain=toolchain(service, everything),
        findings=findings,
        notes=notes_of(service, everything),
        interrupted=service.interrupted,
    )


def _checked(
    given: KernelInput,
    gpus: Sequence[GpuProfile],
    service: CompileService,
    sets: Mapping[str, Setting],
    resolve: ResolveGpu | None,
) -> Iterator[tuple[list[schema.Finding], list[AnalyzedPoint]]]:
    """The findings of one spec, GPU by GPU, and what was compiled for them."""
    budgets = given.spec.check.budgets
    needs_registers = bool(budgets.model_dump(exclude_none=True, exclude={"max_shared_bytes"}))
    if isinstance(given.spec.configs, ConfigTable):
        stop = _stop(needs_registers)
        tables = Tables(given, gpus or None, resolve or load_gpu, service, sets, stop)
        judged = [AnalyzedPoint(j.point, (j.outcome,)) for j in tables.judged if j.point and j.outcome]
        yield list(_table_findings(tables)), judged
        return
    for gpu in gpus:
        kernel = prepare(given, gpu, service.describe, sets, os.environ)
        chosen = _each_knob_value(kernel, gpu, _stop(needs_registers)(gpu), sets)
        pruned = pruned_points(kernel, service, chosen)
        analyzed = compile_points(kernel, gpu, service, [p for p in chosen if id(p) not in pruned])
        found = [*_findings(kernel, gpu, analyzed), *_not_read(kernel, gpu), *_pruned(kernel, gpu, chosen, pruned)]
        yield found, analyzed


def _stop(needs_registers: bool) -> Callable[[GpuProfile], int]:
    """Where compiles may end: the cap alone is known at shared-memory allocation, registers need the whole compile."""
    return lambda gpu: gpu.limits.shared_per_cta_optin_bytes if needs_registers else -1


def _table_findings(tables: Tables) -> Iterator[schema.Finding]:
    """What each entry comes to: where it holds at the spec's line, else at the line of the entry itself."""
    document = tables.given.document
    spec_place: dict[str, Any] = {"file": shown_path(document.path), "line": document.line(("configs",))}
    budgets = tables.given.spec.check.budgets
    unknown: dict[str, list[TableEntry]] = {}
    for judged in tables.judged:
        entry = judged.entry
        if judged.gpu is None:
            unknown.setdefault(judged.problem, []).append(entry)
            continue
        base: dict[str, Any] = {
            "kernel": tables.given.name,
            "gpu": judged.gpu.name,
            "config": report_parts.scalars(judged.config),
            "knobs": {tables.table.key: entry.key},
        }
        entry_place: dict[str, Any] = {"file": shown_path(str(entry.file)), "line": entry.line}
        if judged.point is None or judged.outcome is None:
            yield schema.Finding(level="undecided", rule="config", message=judged.problem, **entry_place, **base)
            continue
        analyzed = AnalyzedPoint(judged.point, (judged.outcome,))
        for finding in _of_config(judged.gpu, analyzed, True, budgets, base):
            yield replace(finding, **(spec_place if finding.level == "ok" else entry_place))
    for problem, entries in unknown.items():
        files = len({e.file for e in entries})
        yield schema.Finding(
            level="undecided",
            kernel=tables.given.name,
            gpu=entries[0].device or "an unnamed GPU",
            config={},
            rule="gpu",
            message=f"{problem}: {len(entries):,} entries in {files:,} tables (see `devices`, or give --gpu)",
            **spec_place,
        )


def shown_path(path: str) -> str:
    """`path` as it is shortest to read: relative to the working directory where it lies in it."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def _each_knob_value(kernel: Kernel, gpu: GpuProfile, stop: int, sets: Mapping[str, Setting]) -> list[Point]:
    """The points to look at: a constexpr knob in every value that the spec lists, all else as it is set."""
    settings = dict(kernel.settings)
    for name, knob in kernel.given.spec.knobs.items():
        if name in kernel.description.constexprs and isinstance(knob.values, list) and knob.values and name not in sets:
            settings[name] = Setting(tuple(knob.values), "spec values")
    return points(kernel, gpu, stop, settings)


def _findings(kernel: Kernel, gpu: GpuProfile, analyzed: Sequence[AnalyzedPoint]) -> Iterator[schema.Finding]:
    use = kernel.given.spec.check.use
    line = kernel.given.document.line(("configs",)) or kernel.given.document.line(("kernel",))
    known = {n for each in analyzed for n in each.point.config} | set(kernel.given.spec.knobs)
    if use != "all":
        for i, match in enumerate(use):
            for name in match:
                if name not in known:
                    where = kernel.given.document.where(("check", "use", i, name))
                    raise unknown_name("constexpr, knob or launch option", name, known, where=where)
    for each in analyzed:
        used = use == "all" or any(_matches(each.point, match) for match in use)
        base: dict[str, Any] = {
            "kernel": kernel.given.name,
            "gpu": gpu.name,
            "config": report_parts.scalars(each.point.config),
            "knobs": report_parts.scalars(each.point.knobs),
            "file": "" if kernel.given.from_flags else shown_path(kernel.given.document.path),
            "line": line,
        }
        yield from _of_config(gpu, each, used, kernel.given.spec.check.budgets, base)


def _about(kernel: Kernel, gpu: GpuProfile) -> dict[str, Any]:
    """What a finding on a kernel as a whole says of where it stands."""
    return {
        "kernel": kernel.given.name,
        "gpu": gpu.name,
        "config": {},
        "file": "" if kernel.given.from_flags else shown_path(kernel.given.document.path),
        "line": kernel.given.document.line(("kernel",)),
    }


def _not_read(kernel: Kernel, gpu: GpuProfile) -> Iterator[schema.Finding]:
    """What the kernel's file says of its launch and was not read: the launch judged here may be another."""
    for text in kernel.from_source.not_read:
        yield schema.Finding(level="undecided", rule="not-read", message=text, **_about(kernel, gpu))
    for text in kernel.from_source.notes:
        yield schema.Finding(level="note", rule="source", message=text, **_about(kernel, gpu))


def _pruned(
    kernel: Kernel, gpu: GpuProfile, chosen: Sequence[Point], pruned: frozenset[int]
) -> Iterator[schema.Finding]:
    """The configs that the kernel's own pruning leaves out, counted: its autotuner never launches them."""
    if pruned:
        left = len(pruned)
        message = f"prune_configs_by leaves out {left} of {len(chosen)} configs for these arguments: not judged"
        yield schema.Finding(level="note", rule="pruned", message=message, **_about(kernel, gpu))


def _matches(point: Point, match: Mapping[str, Any]) -> bool:
    values = {**point.knobs, **point.config}
    return all(values.get(name) in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in match.items())


def _of_config(
    gpu: GpuProfile, each: AnalyzedPoint, used: bool, budgets: Budgets, base: Mapping[str, Any]
) -> Iterator[schema.Finding]:
    names = [plan.request.source.kernel for plan in each.point.launches[: len(each.outcomes)]]
    for name, outcome in zip(names, each.outcomes, strict=True):
        if outcome.kind == "launch":
            fails: schema.Level = "violation" if used else "note"
            yield schema.Finding(level=fails, rule="launch", message=f"{name}: {outcome.message}", **base)
            continue
        if outcome.resources is None:
            level: schema.Level = "undecided" if used else "note"
            message = f"{name} did not compile: {outcome.message}"
            yield schema.Finding(level=level, rule="compiles", message=message, **base)
            continue
        occupancy = occupancy_of(gpu, outcome.resources)
        yield _cap(gpu, name, occupancy, used, base)
        if used and name == names[0] and occupancy.launchable:
            yield from _budgets(outcome.resources, occupancy, budgets, base)


def _cap(gpu: GpuProfile, name: str, occupancy: Occupancy, used: bool, base: Mapping[str, Any]) -> schema.Finding:
    needs, cap = occupancy.shared_bytes + occupancy.static_shared_bytes, occupancy.shared_cap_bytes
    numbers: dict[str, Any] = {"required": needs, "limit": cap, "unit": "bytes of shared memory"}
    status = gpu.limits.provenance.get("shared_per_cta_optin_bytes")
    if not occupancy.launchable:
        level: schema.Level = "violation" if used else "note"
        rule = "shared-memory-cap" if occupancy.over_bytes else "launch"
        extra = "" if used else " (not declared as used)"
        return schema.Finding(level=level, rule=rule, message=f"{name}: {occupancy.reason}{extra}", **numbers, **base)
    if status is not None and status.status == "assumed":
        message = f"{name}: the cap of {gpu.name}, {cap:,} bytes, is assumed, not documented"
        return schema.Finding(level="undecided", rule="shared-memory-cap", message=message, **numbers, **base)
    doubt = cluster_doubt(gpu.limits, occupancy.num_ctas)
    if doubt and used:
        return schema.Finding(level="undecided", rule="launch", message=f"{name}: {doubt} (num_ctas)", **base)
    message = f"{name}: {needs:,} of {cap:,} bytes of shared memory"
    return schema.Finding(level="ok", rule="shared-memory-cap", message=message, **numbers, **base)


def _budgets(
    resources: Any, occupancy: Occupancy, budgets: Budgets, base: Mapping[str, Any]
) -> Iterator[schema.Finding]:
    rules = (
        ("max_shared_bytes", resources.shared_bytes, "bytes of shared memory"),
        ("max_registers_per_thread", resources.registers_per_thread, "registers per thread"),
        ("max_spill_bytes", resources.spill_bytes, "bytes of local memory per thread"),
        ("min_ctas_per_sm", occupancy.ctas_per_sm, "CTAs/SM"),
        ("min_warps_per_sm", occupancy.warps_per_sm, "warps/SM"),
    )
    for rule, value, unit in rules:
        limit = getattr(budgets, rule)
        if limit is None:
            continue
        if value is None or (rule.startswith("min") and not occupancy.exact):
            message = f"{unit} are not known, the budget {rule} is {limit:,}"
            yield schema.Finding(level="undecided", rule=rule, message=message, **base)
            continue
        holds = value <= limit if rule.startswith("max") else value >= limit
        sign = "at most" if rule.startswith("max") else "at least"
        message = f"{value:,} {unit}, budget {sign} {limit:,}"
        numbers: dict[str, Any] = {"required": value, "limit": limit, "unit": unit}
        yield schema.Finding(level="ok" if holds else "violation", rule=rule, message=message, **numbers, **base)
