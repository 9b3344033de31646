"""`report`: one kernel looked at from every side that its spec allows, for a page: does it fit, how full, what to set.

Put together of the answers of other questions: the configs at what is set now and at what is recommended, the
recommendation, the sweep over batch, the least time of each split at each batch, and the GPU with its sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import analyze, compile_points, config_part, stop_above
from occupancy_cli.answers.candidate_times import CandidateTimes, compile_tables
from occupancy_cli.answers.explain import chosen_points, explained_config, to_explain
from occupancy_cli.answers.gpus import gpu_facts
from occupancy_cli.answers.recommend import batches_of, prepare_timed, recommend
from occupancy_cli.answers.sweep import sweep
from occupancy_cli.answers.workload import Workload
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.point_table import candidate_tables
from occupancy_cli.plan.points import points
from occupancy_cli.plan.prepared_kernel import prepare
from occupancy_cli.report import schema
from occupancy_cli.report.choice_parts import SurfacePoint
from occupancy_cli.spec.expression_columns import spread
from occupancy_cli.spec.kernel_spec import ConfigTable
from occupancy_cli.spec.settings import Setting

RECOMMENDED = "recommended"
"""Where the knobs of the second `Kernel` of such a Report are from."""
DEFAULT_SWEEP = tuple(range(8, 129, 8))


@dataclass(frozen=True)
class PageQuestion:
    """The batches that are recommended for (none: the spec's) and those that the time is swept over; `cold` as in
    `Workload`."""

    batches: tuple[int, ...] = ()
    swept: tuple[int, ...] = DEFAULT_SWEEP
    cold: bool = False


def page_report(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    question: PageQuestion,
) -> schema.Report:
    """A Report with all of it. What a spec lacks a page lacks too, and the Report's notes say why."""
    if isinstance(given.spec.configs, ConfigTable):
        raise InputError("a page is of a kernel's configs, not of config tables", where=given.source)
    batch = {"batch": Setting(question.batches[:1], "--batch")} if question.batches else {}
    report = analyze(given, gpu, service, {**sets, **batch}, timed=True, command="report")
    found = replace(report, gpus=[gpu_facts(gpu)])
    if service.interrupted:
        return found
    try:
        prepare_timed(given, gpu, service, sets, Workload(question.batches, cold=question.cold))
        chosen = recommend(given, gpu, service, sets, Workload(question.batches, cold=question.cold))
    except InputError as why:
        return replace(found, notes=[*found.notes, f"nothing is recommended: {why}"])
    first = chosen.recommendations[0]
    named = ",".join(f"{n}={v}" for n, v in {**first.knobs, **first.config}.items())
    knobs = {n: Setting((v,), RECOMMENDED) for n, v in first.knobs.items() if n not in sets}
    at_chosen = analyze(given, gpu, service, {**sets, **batch, **knobs}, timed=True, command="report")
    [with_map] = explained_configs(given, gpu, service, {**sets, **batch, **knobs}, named)
    configs = [with_map if c.config == with_map.config and c.shapes == with_map.shapes else c
               for c in at_chosen.kernels[0].configs]  # fmt: skip
    at_chosen = replace(at_chosen, kernels=[replace(at_chosen.kernels[0], configs=configs)])
    found = replace(
        found,
        kernels=[*found.kernels, *at_chosen.kernels],
        subject=chosen.subject,
        recommendations=chosen.recommendations,
        single_setting=chosen.single_setting,
        notes=list(dict.fromkeys([*found.notes, *at_chosen.notes, *chosen.notes])),
    )
    if "batch" not in given.spec.shapes or len(question.swept) < 2 or service.interrupted:
        return replace(found, interrupted=service.interrupted)
    over = Workload(question.swept, cold=question.cold)
    swept = sweep(given, gpu, service, sets, over)
    surface = surface_of(given, gpu, service, sets, over, swept.sweep)
    return replace(found, sweep=swept.sweep, surface=surface, interrupted=service.interrupted)


def explained_configs(
    given: KernelInput, gpu: GpuProfile, service: CompileService, sets: Mapping[str, Setting], named: str
) -> list[schema.Config]:
    """The configs that `named` (NAME=VALUE,...) picks, with their maps; a compile each."""
    kernel = prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)
    picked = [to_explain(point) for point in chosen_points(points(kernel, gpu, stop_above(gpu, full=False)), [named])]
    analyzed = compile_points(kernel, gpu, service, picked, timed=True)
    return [explained_config(config_part(kernel, gpu, each), gpu, each, [], follow=False) for each in analyzed]


def surface_of(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    workload: Workload,
    swept: Sequence[schema.SweepPoint],
) -> list[SurfacePoint]:
    """The least predicted time of each number of splits at each batch, over all knobs and configs; empty for a kernel
    whose spec has no `nsplit`."""
    kernel = prepare_timed(given, gpu, service, sets, workload)
    if "nsplit" not in given.spec.derived:
        return []
    asked = batches_of(kernel, workload)
    tables = candidate_tables(kernel, gpu, asked, sets, stop_above(gpu, full=False))
    compiled, _ = compile_tables(gpu, service, tables)
    times = CandidateTimes(kernel, gpu, compiled, asked, workload.lengths_at, workload.calibration, workload.cold)
    of_table = [spread(c.table.names["nsplit"], c.table.rows).astype(np.int64) for c in compiled]
    splits = np.array([of_table[t][r] for t, r in zip(times.table.tolist(), times.row.tolist(), strict=True)])
    found = []
    for position, (batch, at_batch) in enumerate(zip(asked, swept, strict=True)):
        which = times.of_batch(position)
        for nsplit in np.unique(splits[which]).tolist():
            mine = which[splits[which] == nsplit]
            least = _fastest(times, mine[np.argsort(times.at_least_us[mine], kind="stable")].tolist())
            if least is None:
                continue
            point = times.analyzed(least).point
            found.append(
                SurfacePoint(
                    batch=batch,
                    nsplit=nsplit,
                    predicted_time_us=round(times.time_us(least), 3),
                    knobs=report_parts.scalars(point.knobs),
                    config=report_parts.scalars({n: v for n, v in point.config.items() if n not in point.knobs}),
                    recommended=at_batch.recommended is not None and at_batch.recommended.nsplit == nsplit,
                    default=at_batch.default is not None and at_batch.default.nsplit == nsplit,
                )
            )
    return found


def _fastest(times: CandidateTimes, ordered: Sequence[int]) -> int | None:
    """The fastest of some candidates, which come in the order of their bounds; None where none has a time."""
    best: int | None = None
    for which in ordered:
        least = times.at_least_us[which]
        if not np.isfinite(least) or (best is not None and least > times.time_us(best)):
            break
        if best is None or times.time_us(which) < times.time_us(best):
            best = which
    return best
