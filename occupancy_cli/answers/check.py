"""`check`: do the configs that are used fit every GPU named, and keep their budgets?

Undecided is not passed: a config that did not compile, or a limit whose value is only assumed, makes the answer
"cannot tell". What is wrong with one file, kernel or config is a finding on it, and everything else is judged: first
every kernel is planned, then all that they need is compiled together, then each config is held to its budgets.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint, notes_of, pruned_points, time_on, toolchain
from occupancy_cli.answers.baseline import BaselineRequest, Result, held_to, read_lock, result_of
from occupancy_cli.answers.by_spec import AskedGpu
from occupancy_cli.answers.check_budgets import figures_of, judge_config
from occupancy_cli.answers.check_findings import not_read, problem, pruned
from occupancy_cli.answers.check_places import config_places, place_of
from occupancy_cli.answers.check_tables import table_findings, table_results
from occupancy_cli.answers.table_entries import Tables
from occupancy_cli.answers.weighs_most import OF_REGISTERS, OF_SHARED_MEMORY, weighs_most
from occupancy_cli.compile.compile_service import CompileService, SourcesChanged
from occupancy_cli.compile.request import CompileOutcome, CompileRequest
from occupancy_cli.errors import OccupancyError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.plan.changed_files import ChangedFiles
from occupancy_cli.plan.check_selection import SelectedKernel, Selection
from occupancy_cli.plan.points import Point, points
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.plan.settled_launches import settled_point
from occupancy_cli.report import schema
from occupancy_cli.spec.budget_layers import (
    BUDGETS_OF_SHARED_MEMORY,
    OF_ACCESSES,
    BudgetLayer,
    Limit,
    batches_of,
    limits_for,
    matches,
    rules_of,
    spec_layers,
)
from occupancy_cli.spec.kernel_spec import ConfigTable
from occupancy_cli.spec.settings import Setting

# Beyond so many what weighs most is left to `explain`: each is one more compile.
_MOST_EXPLAINED = 24
# Nothing was looked at then: a person cannot mean that it may be so.
_NEVER_ALLOWED = frozenset({"input", "baseline"})


@dataclass(frozen=True)
class CheckQuestion:
    """What is asked of the kernels beside their own specs.

    `gpus` are asked for by name and win; `project_gpus` are for kernels that name none. Budgets `before` are common
    ones that a kernel's own win over, those `after` win over all. `allow_unknown` has patterns of what may stay open.
    With `changed`, kernels that nothing among it was read for are left out.
    """

    gpus: tuple[str, ...] = ()
    project_gpus: tuple[str, ...] = ()
    sets: Mapping[str, Setting] = field(default_factory=dict)
    before: tuple[BudgetLayer, ...] = ()
    after: tuple[BudgetLayer, ...] = ()
    allow_unknown: tuple[str, ...] = ()
    baseline: BaselineRequest | None = None
    changed: ChangedFiles | None = None


def check(selection: Selection, question: CheckQuestion, default: AskedGpu, service: CompileService) -> schema.Report:
    """A Report with one finding per config, kernel, GPU and rule, and the count of it all.

    `default` is the GPU where nobody names one, and finds the others. Raises for a GPU of the question that there is
    not, and `SourcesChanged`; what else is wrong is a finding on the file that it is wrong in.
    """
    started = time.monotonic()
    for name in question.gpus:
        default.resolve(name)
    baseline = question.baseline
    lock = read_lock(baseline.path) if baseline is not None and baseline.action != "write" else None
    run = _Run(question, default, service)
    for failed in selection.problems:
        run.found.append(problem(failed.error, file=failed.file))
    try:
        for selected in selection.kernels:
            run.plan(selected)
    except KeyboardInterrupt:
        service.interrupted = True
    run.judge()
    run.explain()
    if service.interrupted and not run.found:
        raise KeyboardInterrupt
    findings, unused = allowed(run.found, question.allow_unknown)
    made_with = toolchain(service, run.everything)
    if baseline is not None and not service.interrupted:
        more, said = held_to(baseline, lock, run.results, findings, made_with, run.unchanged)
        findings += more
        run.notes += said
    return schema.Report(
        command="check",
        toolchain=made_with,
        findings=findings,
        check=schema.CheckRun(
            seconds=round(time.monotonic() - started, 3),
            helpers=selection.helpers,
            pruned=run.pruned,
            unchanged=len(run.unchanged),
            allowed=sum(f.level == "allowed" for f in findings),
        ),
        notes=[*run.notes, *unused, *notes_of(service, run.everything)],
        interrupted=service.interrupted,
    )


def allowed(findings: Iterable[schema.Finding], patterns: Sequence[str]) -> tuple[list[schema.Finding], list[str]]:
    """The findings with those undecided ones "allowed" whose rule, or rule and message, fits a pattern; and a note for
    each pattern that fits none. A file that could not be read is never allowed: nothing is known of what it holds."""
    used: set[str] = set()
    made = []
    for finding in findings:
        fits: list[str] = []
        if finding.level == "undecided" and finding.rule not in _NEVER_ALLOWED:
            said = (finding.rule, f"{finding.rule}: {' '.join(finding.message.split())}")
            fits = [p for p in patterns if any(fnmatch.fnmatchcase(text, p) for text in said)]
        used.update(fits)
        made.append(replace(finding, level="allowed") if fits else finding)
    return made, [f"--allow-unknown {p} fits nothing that is unknown here" for p in patterns if p not in used]


# --- one run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Planned:
    """A kernel on a GPU with its points, and for each of them the same at every batch that a budget names.

    `about` are the findings on the kernel as a whole.
    """

    selected: SelectedKernel
    kernel: Kernel
    gpu: GpuProfile
    layers: tuple[BudgetLayer, ...]
    points: tuple[Point, ...]
    at_batches: tuple[Mapping[int, Point], ...]
    timed: bool
    about: tuple[schema.Finding, ...]

    def requests(self) -> Iterator[CompileRequest]:
        """Everything to compile, in the order in which `outcomes` are taken back."""
        wanted = time_on(self.gpu) if self.timed else None
        for point, batches in zip(self.points, self.at_batches, strict=True):
            for each in (point, *batches.values()):
                for launch in each.launches:
                    yield launch.request if wanted is None else replace(launch.request, time_on=wanted)

    def analyzed(self, point: Point, outcomes: Iterator[CompileOutcome]) -> AnalyzedPoint:
        """A point with the next of the outcomes; a launch that no GPU takes is a failed one."""
        compiled = tuple(next(outcomes) for _ in point.launches)
        return AnalyzedPoint(*settled_point(self.kernel.given, self.gpu, point, compiled), self.timed)


class _Run:
    """The findings of one check as they come together."""

    def __init__(self, question: CheckQuestion, default: AskedGpu, service: CompileService) -> None:
        self.question, self.default, self.service = question, default, service
        self.found: list[schema.Finding] = []
        self.everything: list[AnalyzedPoint] = []
        self.notes: list[str] = []
        self.results: list[Result] = []
        """What the configs came to, for a baseline."""
        self.pruned = 0
        self.unchanged: set[tuple[str, str]] = set()
        self._planned: list[_Planned] = []
        self._to_explain: list[tuple[int, CompileRequest]] = []
        """Where in `found` a finding is that could say more, and the launch that it is about."""
        self._ids: dict[str, str] = {}

    def gpu_id(self, name: str) -> str:
        """The id of the GPU that a budget names."""
        if name not in self._ids:
            self._ids[name] = self.default.resolve(name).id
        return self._ids[name]

    # --- planning ---

    def plan(self, selected: SelectedKernel) -> None:
        """Plan a kernel on each of its GPUs; what stands in the way is its finding."""
        problems: dict[str, list[str]] = {}
        first: dict[str, OccupancyError] = {}
        gpus = list[GpuProfile]()
        try:
            gpus = self._gpus_of(selected)
            if isinstance(selected.given.spec.configs, ConfigTable):
                self._tables(selected, gpus)
                return
        except SourcesChanged:
            raise
        except OccupancyError as bad:
            self.found.append(problem(bad, selected=selected))
            return
        for gpu in gpus:
            try:
                self._plan_on(selected, gpu)
            except SourcesChanged:
                raise
            except OccupancyError as bad:
                first.setdefault(str(bad), bad)
                problems.setdefault(str(bad), []).append(gpu.name)
        for text, names in problems.items():
            # What is wrong on every GPU is no matter of the GPU.
            for name in [""] if len(names) == len(gpus) else names:
                self.found.append(problem(first[text], selected=selected, gpu=name))

    def _gpus_of(self, selected: SelectedKernel) -> list[GpuProfile]:
        spec, document = selected.given.spec, selected.given.document
        if self.question.gpus:
            return _distinct(map(self.default.resolve, self.question.gpus))
        if selected.gpus:
            return _distinct(map(self.default.resolve, selected.gpus))
        if spec.check.gpus:
            found = []
            for i, name in enumerate(spec.check.gpus):
                with _standing_at(document.where(("check", "gpus", i))):
                    found.append(self.default.resolve(name))
            return _distinct(found)
        if self.question.project_gpus:
            return _distinct(map(self.default.resolve, self.question.project_gpus))
        if isinstance(spec.configs, ConfigTable):
            return []
        profile = self.default.profile()
        note = f"no GPU is named for some kernels: they are judged on {profile.name} (--gpu, or check: {{gpus: [...]}})"
        if note not in self.notes:
            self.notes.append(note)
        return [profile]

    def _is_unchanged(self, selected: SelectedKernel, kernel: Kernel, gpu: GpuProfile) -> bool:
        """Whether nothing that a kernel was made from is among what changed; what is not known counts as changed."""
        changed = self.question.changed
        if changed is None or changed.has([selected.file, selected.given.document.path]):
            return False
        for source in (kernel.source, *(site.source for site in kernel.followers)):
            seen = self.service.seen_by(source, target_of(gpu))
            if seen is None or changed.reach(seen):
                return False
        return True

    def _layers(self, selected: SelectedKernel) -> tuple[BudgetLayer, ...]:
        own = spec_layers(selected.given.spec, selected.given.document)
        layers = (*self.question.before, *own, *selected.budgets, *self.question.after)
        for layer in layers:
            for name in layer.budgets.gpus:
                with _standing_at(layer.where):
                    self.gpu_id(name)
        return layers

    def _plan_on(self, selected: SelectedKernel, gpu: GpuProfile) -> None:
        layers = self._layers(selected)
        rules = rules_of(layers)
        kernel = prepare(
            selected.given, gpu, self.service.describe, self.question.sets, os.environ, readings=self.service.readings
        )
        if self._is_unchanged(selected, kernel, gpu):
            self.unchanged.add((selected.file, selected.given.name))
            return
        settings = _each_knob_value(kernel, self.question.sets)
        records = self.question.baseline is not None
        stop = _stop(rules, records)(gpu)
        chosen = points(kernel, gpu, stop, settings)
        _refuse_unknown_names(selected, kernel, layers, chosen)
        left_out = pruned_points(kernel, self.service, chosen)
        kept = [p for p in chosen if id(p) not in left_out]
        if OF_ACCESSES & rules:
            from occupancy_cli.answers.explain import to_explain

            kept = [to_explain(p) for p in kept]
        batches = _points_at(kernel, gpu, stop, settings, kept, batches_of(layers))
        timed = "max_predicted_time_us" in rules or (records and selected.given.spec.grid is not None)
        about = list(not_read(selected, kernel, gpu))
        if left_out:
            self.pruned += len(left_out)
            about.append(pruned(selected, gpu, len(left_out), len(chosen)))
        planned = _Planned(selected, kernel, gpu, layers, tuple(kept), batches, timed, tuple(about))
        self._planned.append(planned)

    # --- judging ---

    def judge(self) -> None:
        """Compile what is planned, all of it together, and hold each config to its budgets."""
        requests = [request for planned in self._planned for request in planned.requests()]
        outcomes = iter(self.service.compile_all(requests))
        for planned in self._planned:
            self._judge(planned, outcomes)

    def _judge(self, planned: _Planned, outcomes: Iterator[CompileOutcome]) -> None:
        findings: list[schema.Finding] = []
        requests: dict[int, CompileRequest] = {}
        any_fits = False
        one_is_enough = False
        places = config_places(planned.kernel, planned.selected)
        for point, at_batches in zip(planned.points, planned.at_batches, strict=True):
            analyzed = planned.analyzed(point, outcomes)
            more = {batch: planned.analyzed(p, outcomes) for batch, p in at_batches.items()}
            self.everything += [analyzed, *more.values()]
            values = {**point.knobs, **point.config}
            used = _is_used(planned.selected, values)
            limits = limits_for(planned.layers, planned.gpu.id, values, self.gpu_id)
            file, line = place_of(point.config, places)
            base: dict[str, Any] = {
                "kernel": planned.selected.given.name,
                "gpu": planned.gpu.name,
                "config": report_parts.scalars(point.config),
                "knobs": report_parts.scalars(point.knobs),
                "source": planned.selected.file,
                "file": file,
                "line": line,
            }
            judged = list(judge_config(planned.kernel, planned.gpu, analyzed, more, used, limits, base))
            found = [finding for finding, _ in judged]
            requests |= {id(finding): request for finding, request in judged}
            one_is_enough |= limits.get("fits", Limit(None)).value == "one"
            any_fits |= used and all(f.level == "ok" for f in found if f.rule in _OF_FIT)
            findings += found
            if self.question.baseline is not None and analyzed.outcomes[0].resources is not None:
                figures = figures_of(planned.kernel, planned.gpu, analyzed)
                self.results.append(result_of(base, planned.gpu.id, figures))
        if one_is_enough and any_fits:
            findings = [_need_not_fit(f) for f in findings]
        for finding in findings:
            if finding.level == "violation" and finding.rule in OF_SHARED_MEMORY | OF_REGISTERS:
                self._to_explain.append((len(self.found), requests[id(finding)]))
            self.found.append(finding)
        self.found += planned.about

    def explain(self) -> None:
        """Say of what breaks a limit of shared memory or registers which buffer or line weighs most in it."""
        chosen = self._to_explain[:_MOST_EXPLAINED]
        requests = [replace(request, explain=True, time_on=None) for _, request in chosen]
        for (at, _), outcome in zip(chosen, self.service.compile_all(requests), strict=True):
            finding = self.found[at]
            text = "" if outcome.explanation is None else weighs_most(finding.rule, outcome.explanation.read())
            if text:
                self.found[at] = replace(finding, message=f"{finding.message}; {text}")
        if len(self._to_explain) > len(chosen):
            left = len(self._to_explain) - len(chosen)
            self.notes.append(f"what weighs most is said of {len(chosen)} findings; {left:,} more: `occupancy explain`")

    def _tables(self, selected: SelectedKernel, gpus: Sequence[GpuProfile]) -> None:
        """The entries of a spec's config tables, each on the GPU that its file names or on those asked for."""
        layers = self._layers(selected)
        records = self.question.baseline is not None
        stop = _stop(rules_of(layers), records)
        sets = self.question.sets
        explain = bool(OF_ACCESSES & rules_of(layers))
        tables = Tables(selected.given, gpus or None, self.default.resolve, self.service, sets, stop, explain=explain)
        self.everything += [AnalyzedPoint(j.point, (j.outcome,)) for j in tables.judged if j.point and j.outcome]
        if records:
            self.results += table_results(selected, tables)
        self.found += table_findings(selected, tables, lambda gpu, v: limits_for(layers, gpu.id, v, self.gpu_id))


_OF_FIT = frozenset({"compiles", "shared-memory-cap", "launch"})


def _need_not_fit(finding: schema.Finding) -> schema.Finding:
    if finding.rule not in _OF_FIT or finding.level not in ("violation", "undecided"):
        return finding
    return replace(finding, level="note", message=f"{finding.message} (another config of it fits: budget fits one)")


@contextlib.contextmanager
def _standing_at(where: str) -> Iterator[None]:
    """While active, an error without a place of its own says that it stands at `where`."""
    try:
        yield
    except OccupancyError as bad:
        bad.where = bad.where or where
        raise


def _distinct(gpus: Iterable[GpuProfile]) -> list[GpuProfile]:
    return list({gpu.id: gpu for gpu in gpus}.values())


def _stop(rules: frozenset[str], records: bool) -> Callable[[GpuProfile], int]:
    """Where compiles may end: the cap alone is known at shared-memory allocation, registers need the whole compile."""
    needs_registers = records or bool(rules - BUDGETS_OF_SHARED_MEMORY)
    return lambda gpu: gpu.limits.shared_per_cta_optin_bytes if needs_registers else -1


def _each_knob_value(kernel: Kernel, sets: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings to look at: a constexpr knob in every value that the spec lists, all else as it is set."""
    settings = dict(kernel.settings)
    for name, knob in kernel.given.spec.knobs.items():
        if name in kernel.description.constexprs and isinstance(knob.values, list) and knob.values and name not in sets:
            settings[name] = Setting(tuple(knob.values), "spec values")
    return settings


def _points_at(
    kernel: Kernel,
    gpu: GpuProfile,
    stop: int,
    settings: Mapping[str, Setting],
    kept: Sequence[Point],
    batches: Sequence[int],
) -> tuple[Mapping[int, Point], ...]:
    """For each point, the same config and knobs at every batch."""
    if not batches:
        return tuple({} for _ in kept)
    if "batch" not in kernel.given.spec.shapes:
        raise unknown_name(
            "shape", "batch", kernel.given.spec.shapes, where=kernel.given.document.where(("check", "budgets"))
        )
    at = {
        batch: {_which(p): p for p in points(kernel, gpu, stop, {**settings, "batch": Setting((batch,), "budget")})}
        for batch in batches
    }
    return tuple({batch: found[_which(p)] for batch, found in at.items()} for p in kept)


def _which(point: Point) -> str:
    shapes = {n: v for n, v in point.shapes.items() if n != "batch"}
    return repr([sorted(part.items()) for part in (point.knobs, point.config, shapes)])


def _is_used(selected: SelectedKernel, values: Mapping[str, Any]) -> bool:
    declared = selected.given.spec.check.use
    use = selected.use if declared == "all" and selected.use is not None else declared
    return use == "all" or any(matches(values, wanted) for wanted in use)


def _refuse_unknown_names(
    selected: SelectedKernel, kernel: Kernel, layers: Sequence[BudgetLayer], chosen: Sequence[Point]
) -> None:
    """Refuse a name that no config has where configs are picked by their values: it would pick none, silently."""
    known = {n for point in chosen for n in point.config} | set(kernel.given.spec.knobs)
    use = kernel.given.spec.check.use
    wanted: list[tuple[Mapping[str, Any], str]] = []
    if use != "all":
        wanted += [(w, kernel.given.document.where(("check", "use", i))) for i, w in enumerate(use)]
    wanted += [(w, selected.given.source) for w in selected.use or ()]
    for names, where in wanted:
        for name in names:
            if name not in known:
                raise unknown_name("constexpr, knob or launch option", name, known, where=f"{where}.{name}")
    if wanted and not any(_is_used(selected, {**p.knobs, **p.config}) for p in chosen):
        raise OccupancyError(
            "no config has the values that are declared as used", where=wanted[0][1], hint="See `occupancy analyze`."
        )
    for layer in layers:
        # Budgets of a project are for many kernels: a name that this one lacks says that they are not for it.
        if layer.origin:
            continue
        for name in (n for configs in layer.budgets.configs for n in configs):
            if name not in known:
                raise unknown_name("constexpr, knob or launch option", name, known, where=layer.where)
