"""`recommend`: the knobs and config with the shortest predicted time, beside what is used now.

Candidates are every value that the spec lists for a knob (unless `--set` fixes it) x every config, each with the
resources of its own specialization. What is used now is the knobs' present values with the config that the spec says
is in use; where it does not say, the one that an autotuner would pick there, which is taken to be the fastest predicted
one.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint, notes_of, pruning_of, stop_above, toolchain
from occupancy_cli.answers.candidate_choice import best_common, choose
from occupancy_cli.answers.candidate_times import CandidateTimes, compile_tables
from occupancy_cli.answers.choice_reasons import Standing, against, set_line, standing, why
from occupancy_cli.answers.stragglers import straggler_of
from occupancy_cli.answers.times_file import sources_sha256
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Ranking, Scored, SingleSetting, Untimed, pareto, rank
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_work import iterations_from, timing_of
from occupancy_cli.plan.point_table import PointTable, candidate_tables, setting_tables
from occupancy_cli.plan.points import (
    Point,
    knob_candidates,
    main_config,
    make_point,
    names_of,
    overrides_of,
    with_defaults,
)
from occupancy_cli.plan.prepared_kernel import Kernel, is_in_use, prepare
from occupancy_cli.report import schema
from occupancy_cli.spec.settings import Setting, one_value

COMMON_MOST = 128
MOST_COMPARED = 8
"""Of more batches a Report does not say what the tied settings of each have."""


@dataclass(frozen=True)
class ChosenPoint:
    """A point that is a candidate, and whether its knobs are those used now."""

    point: Point
    incumbent: bool


def recommend(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    workload: Workload,
) -> schema.Report:
    """A Report with a recommendation for each batch and, for several, the best single setting.

    Raises `InputError` when the GPU's SM count is unknown, the spec has no grid, neither it nor the kernel's IR tells
    the iterations of a CTA, or nothing can launch.
    """
    kernel = prepare_timed(given, gpu, service, sets, workload)
    ranked, everything = rank_batches(kernel, gpu, service, sets, workload, stands=True)
    found = [_part(kernel, gpu, each) for each in ranked]
    single = None
    if len(ranked) > 1:
        best = common_setting(kernel, gpu, service, [each.ranking for each in ranked], workload)
        single = schema.SingleSetting(
            knobs=report_parts.scalars(dict(best.knobs)),
            config=report_parts.scalars(dict(best.config)),
            slowdown=round(best.slowdown, 4),
            exports=exports(kernel, dict(best.knobs)),
        )
    return schema.Report(
        command="recommend",
        toolchain=toolchain(service, everything),
        gpu=report_parts.gpu_part(gpu),
        subject=subject(kernel, workload),
        recommendation=found[0] if len(found) == 1 else None,
        recommendations=found,
        single_setting=single,
        notes=[*notes_of(service, everything, kernel), *ranking_notes(ranked)],
        interrupted=service.interrupted,
    )


def subject(kernel: Kernel, workload: Workload) -> schema.Subject:
    """What is recommended for, as a Report says it."""
    given = kernel.given
    spec = () if given.from_flags else (given.document.path,)
    return schema.Subject(
        kernel=given.name,
        source=given.source,
        sha256=sources_sha256([kernel.source, *(site.source for site in kernel.followers)], spec),
        l2="cold" if workload.cold else "warm",
        lengths=workload.lengths,
    )


def prepare_timed(
    given: KernelInput, gpu: GpuProfile, service: CompileService, sets: Mapping[str, Setting], workload: Workload
) -> Kernel:
    """The kernel, once it is clear that its launches can be timed."""
    batches = workload.batches
    if gpu.sm_count is None:
        raise InputError(
            f"{gpu.name} has no SM count, so no waves and no time", where="--gpu", hint="Name a product, such as 5090."
        )
    if "batch" not in given.spec.shapes and batches:
        raise InputError("the spec has no shape named `batch`", where=given.document.where(("shapes",)))
    if given.spec.grid is None:
        raise InputError("a recommendation needs `grid`", where=given.document.where(("grid",)))
    if workload.lengths is not None and given.spec.work.ragged is None:
        raise InputError(
            "--lengths needs `work.ragged` in the spec",
            where=given.document.where(("work",)),
            hint="See `schema spec`.",
        )
    return prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)


def batches_of(kernel: Kernel, workload: Workload) -> tuple[int, ...]:
    """The batches asked about; the spec's own when none are."""
    if workload.batches:
        return workload.batches
    return tuple(int(v) for v in kernel.settings["batch"].values) if "batch" in kernel.settings else (1,)


@dataclass(frozen=True)
class RankedBatch:
    """A batch's ranking, of the candidates that matter alone; the configs that can launch, by the least time of each;
    why others cannot; of each kernel who says how many iterations a CTA runs; what its own pruning left out; and, where
    that was asked for, how the choice stands among the others."""

    ranking: Ranking
    launchable: tuple[dict[str, schema.Scalar], ...]
    failed: tuple[str, ...]
    iterations_from: Mapping[str, str]
    pruned: tuple[str, ...] = ()
    standing: Standing | None = None
    straggler: schema.Straggler | None = None


def rank_batches(
    kernel: Kernel,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    workload: Workload,
    *,
    stands: bool = False,
) -> tuple[list[RankedBatch], list[AnalyzedPoint]]:
    """A ranking of all candidates at each batch, and points that stand for all that was compiled.

    `stands`: also how each choice stands among the candidates, which times those near it.
    """
    asked = batches_of(kernel, workload)
    named: Sequence[int | None] = asked if "batch" in kernel.settings else (None,)
    tables = candidate_tables(kernel, gpu, named, sets, stop_above(gpu, full=False))
    tables, pruned = _without_pruned(kernel, service, tables)
    compiled, everything = compile_tables(gpu, service, tables)
    times = CandidateTimes(
        kernel, gpu, compiled, asked, workload.lengths_at, workload.calibration, workload.cold
    )  # fmt: skip
    configs, family = _families(kernel, times)
    count = max(2, COMMON_MOST // len(asked))
    found: list[RankedBatch] = []
    said: dict[str, str] = {}
    for position, batch in enumerate(asked):
        which = times.of_batch(position)
        failed = list(dict.fromkeys(times.failures[i] for i in times.failure[which].tolist() if i >= 0))
        chosen = choose(times, which, family, count)
        untimed = which[times.untimed[which]].tolist()
        if not chosen.top and not untimed:
            raise InputError(f"no config can launch on {gpu.name}: {'; '.join(failed[:3])}", where=kernel.given.source)
        now = which[times.now[which] & np.isfinite(times.at_least_us[which])].tolist()
        wanted = sorted({*chosen.top, *chosen.pareto, *(untimed if chosen.top else untimed[:1])})
        candidates = [_timed(kernel, gpu, batch, times, i, workload) for i in wanted]
        place = {each.candidate.setting: i for i, each in zip(wanted, candidates, strict=True)}
        incumbent = None
        if now:
            fastest = min(now, key=lambda i: (times.time_us(i), i))
            incumbent = _timed(kernel, gpu, batch, times, fastest, workload)
            place.setdefault(incumbent.candidate.setting, fastest)
        ranking = rank(gpu, candidates, incumbent)
        launchable = tuple(configs[family[i]] for i in chosen.launchable)
        said = said or _iterations_from(kernel, gpu, times.analyzed(wanted[0]), workload.lengths_at(batch))
        stood = standing(times, which, ranking, compared=len(asked) <= MOST_COMPARED) if stands else None
        waits = None
        if stands and workload.lengths is not None:
            waits = straggler_of(kernel, gpu, batch, times.analyzed(place[ranking.chosen.candidate.setting]), workload,
                                 ranking.chosen)  # fmt: skip
        found.append(RankedBatch(ranking, launchable, tuple(_grouped(failed)), said, tuple(pruned), stood, waits))
    return found, everything


def _without_pruned(
    kernel: Kernel, service: CompileService, tables: list[PointTable]
) -> tuple[list[PointTable], list[str]]:
    """The tables without the candidates that the kernel's own `prune_configs_by` leaves out, and what to say of it."""
    pruning = pruning_of(kernel, service)
    if pruning is None:
        return tables, []
    kept: list[PointTable] = []
    tried: dict[str, bool] = {}  # what is set now stands among its batch's choices too
    for table in tables:
        points = [table.point(row) for row in range(table.rows)]
        keeps = [pruning(point.main.request, point.config) for point in points]
        tried |= {repr((p.shapes, p.knobs, p.config)): kept for p, kept in zip(points, keeps, strict=True)}
        rows = np.flatnonzero(keeps)
        if len(rows):
            kept.append(table if len(rows) == table.rows else table.only(rows))
    if not kept:
        raise InputError("prune_configs_by leaves out every config for these arguments", where=kernel.given.source)
    left_out = list(tried.values()).count(False)
    return kept, [f"prune_configs_by leaves out {left_out} of {len(tried)} candidates"] if left_out else []


def _iterations_from(
    kernel: Kernel, gpu: GpuProfile, analyzed: AnalyzedPoint, lengths: tuple[int, ...]
) -> dict[str, str]:
    """Of each kernel that a point launches, who says how many iterations a CTA runs."""
    return {
        plan.request.source.kernel: said
        for plan, outcome in zip(analyzed.point.launches, analyzed.outcomes, strict=True)
        if (said := iterations_from(kernel.given, plan, timing_of(gpu, outcome), lengths)) is not None
    }


def ranking_notes(ranked: Sequence[RankedBatch]) -> list[str]:
    """What a reader should know of candidates that were not tried, and of iterations that the spec does not give."""
    return [*(ranked[0].pruned if ranked else ())] + [
        f"iterations of a CTA of {name}: {said}"
        for name, said in (ranked[0].iterations_from.items() if ranked else ())
        if said != "spec"
    ]


def _timed(
    kernel: Kernel, gpu: GpuProfile, batch: int, times: CandidateTimes, which: int, workload: Workload
) -> Scored | Untimed:
    """One of many candidates with its time and what it is made of."""
    candidate, why = candidate_of(kernel, gpu, batch, times.analyzed(which), workload)
    assert candidate is not None, why
    return times.timed(which, candidate)


def _families(kernel: Kernel, times: CandidateTimes) -> tuple[list[dict[str, schema.Scalar]], list[int]]:
    """The distinct configs of the candidates, with the knobs that are constexprs, and the number of each one's."""
    names = [n for n in kernel.given.spec.knobs if n in kernel.description.constexprs]
    configs: list[dict[str, schema.Scalar]] = []
    _, firsts, kinds = np.unique(times.main_kinds(), return_index=True, return_inverse=True)
    number = np.empty(len(firsts), dtype=np.int64)
    for kind in np.argsort(firsts).tolist():
        point = times.analyzed(int(firsts[kind])).point
        shown = report_parts.scalars(
            {n: v for n, v in point.knobs.items() if n in names}
            | {n: v for n, v in point.config.items() if n not in point.knobs}
        )
        if shown not in configs:
            configs.append(shown)
        number[kind] = configs.index(shown)
    return configs, number[kinds.reshape(-1)].tolist()


def common_setting(
    kernel: Kernel,
    gpu: GpuProfile,
    service: CompileService,
    rankings: Sequence[Ranking],
    workload: Workload,
    *,
    scored: bool = False,
) -> SingleSetting:
    """The one setting that is best over the batches of `rankings`, by the mix of the workload if it has one.

    `scored`: with its time at every batch (`by_batch`).

    An environment variable is one value for a whole server, and the value that is best at one batch may not be among
    the candidates of another. Tried at every batch: what is set now, and the best few of each batch, `COMMON_MOST` in
    all. Only settings are timed exactly whose bound leaves a chance.
    """
    settings: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}
    for ranking in rankings:
        few = max(1, COMMON_MOST // len(rankings))
        for each in [*ranking.ranked[:few], *([ranking.incumbent] if ranking.incumbent else [])]:
            settings[each.candidate.setting] = (dict(each.candidate.knobs), dict(each.candidate.config))
    batches = [ranking.batch for ranking in rankings]
    named: Sequence[int | None] = batches if "batch" in kernel.settings else (None,)
    tables = setting_tables(kernel, gpu, named, list(settings.values()), stop_above(gpu, full=False))
    compiled, _ = compile_tables(gpu, service, [table for table, _ in tables])
    calibration, cold = workload.calibration, workload.cold
    times = CandidateTimes(
        kernel, gpu, compiled, batches, workload.lengths_at, calibration, cold, distinct=False
    )  # fmt: skip
    where = np.empty((len(settings), len(batches)), dtype=np.int64)
    for t, (_, numbers) in enumerate(tables):
        mine = np.flatnonzero(times.table == t)
        where[numbers[times.row[mine]], times.batch[mine]] = mine
    best, slowdown = best_common(times, where, batches, workload.mix)
    by_batch = []
    for batch, which in zip(batches, where[best].tolist(), strict=True) if scored else ():
        found = _timed(kernel, gpu, batch, times, which, workload)
        if isinstance(found, Untimed):
            raise InputError(f"no setting can be timed at batch {batch}; {found.why}", where="recommendation")
        by_batch.append((batch, found))
    knobs, config = list(settings)[best]
    return SingleSetting(knobs, config, slowdown, tuple(by_batch))


def candidate_points(
    kernel: Kernel, gpu: GpuProfile, batch: int | None, sets: Mapping[str, Setting], *, full: bool = False
) -> list[ChosenPoint]:
    """Every candidate at one batch: configs x knob values; those that launch the same once, the incumbent's first.

    `batch` is None for a kernel without a shape of that name. `full` compiles configs over the cap to the end.
    """
    spec = kernel.given.spec
    where = kernel.given.document.path
    values = {
        name: batch if name == "batch" and batch is not None else one_value(setting.values, name, where)
        for name, setting in kernel.settings.items()
        if name not in spec.knobs or name not in sets
    }
    first = {n: kernel.settings[n].values[0] for n in spec.knobs}
    values = dict(with_defaults(kernel, values | first))
    now = {n: values[n] for n in spec.knobs}
    found: dict[Any, ChosenPoint] = {}
    for config, override in itertools.product(kernel.configs, overrides_of(kernel)):
        for knobs in [now, *_knob_choices(kernel, values, config, override, list(spec.knobs), sets)]:
            point = make_point(kernel, gpu, values | knobs, config, override, stop_above(gpu, full=full))
            same = (repr(point.config), tuple((p.grid, p.request.identity_text()) for p in point.launches))
            today = knobs == now and is_in_use(spec, main_config(config, override))
            found.setdefault(same, ChosenPoint(point, today))
    return list(found.values())


def _knob_choices(
    kernel: Kernel,
    values: Mapping[str, Any],
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    left: Sequence[str],
    sets: Mapping[str, Setting],
) -> Iterator[dict[str, Any]]:
    """Every combination of knob values, knob by knob, since one knob's candidates may depend on another's value."""
    if not left:
        yield {n: values[n] for n in kernel.given.spec.knobs}
        return
    name, *rest = left
    if name in sets:
        candidates: Sequence[Any] = sets[name].values
    else:
        candidates = knob_candidates(kernel, name, names_of(kernel, values, config, override)) or (values[name],)
    for value in candidates:
        yield from _knob_choices(kernel, {**values, name: value}, config, override, rest, sets)


def _grouped(failed: Iterable[str]) -> list[str]:
    """`A and B: reason` for the configs that share one."""
    by_reason: dict[str, list[str]] = {}
    for text in failed:
        which, _, reason = text.partition(": ")
        by_reason.setdefault(reason, []).append(which)
    return [f"{' and '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _part(kernel: Kernel, gpu: GpuProfile, ranked: RankedBatch) -> schema.Recommendation:
    ranking = ranked.ranking
    chosen = choice_part(gpu, ranking.chosen)
    assert chosen is not None
    stood = ranked.standing
    line, left = set_line(kernel, ranking.chosen)
    constexpr_knobs = [n for n in kernel.given.spec.knobs if n in kernel.description.constexprs]
    return schema.Recommendation(
        batch=ranking.batch,
        knobs=chosen.knobs,
        config=chosen.config,
        nsplit=chosen.nsplit,
        predicted_time_us=chosen.predicted_time_us,
        predicted_speedup_vs_default=None if ranking.predicted_ratio is None else round(ranking.predicted_ratio, 3),
        kept_default=ranking.kept_incumbent,
        model_error_percent=ranking.error_percent,
        reasons=list(ranking.reasons),
        exports=exports(kernel, chosen.knobs),
        set_line=line,
        left_open=left,
        against=against(kernel),
        why=why(gpu, ranking),
        candidates=None if stood is None else stood.candidates,
        tied=None if stood is None else stood.tied,
        tied_values=[]
        if stood is None
        else [schema.TiedValues(name=n, values=list(v)) for n, v in stood.tied_values.items()],
        straggler=ranked.straggler,
        chosen=chosen,
        default=choice_part(gpu, ranking.incumbent),
        runner_up=choice_part(gpu, ranking.runner_up),
        cannot_launch=[*ranked.failed, *(each.why for each in ranking.cannot_launch)],
        constexpr_knobs=constexpr_knobs,
        launchable=list(ranked.launchable),
        iterations_from=dict(ranked.iterations_from),
        pareto=[c for s in pareto(ranking.ranked) if (c := choice_part(gpu, s)) is not None],
    )


def choice_part(gpu: GpuProfile, scored: Scored | None) -> schema.Choice | None:
    if scored is None:
        return None
    main = scored.candidate.launches[0]
    occupancy = occupancy_of(gpu, main.resources)
    return schema.Choice(
        knobs=report_parts.scalars(dict(scored.candidate.knobs)),
        config=report_parts.scalars(dict(scored.candidate.config)),
        nsplit=scored.candidate.nsplit,
        predicted_time_us=round(scored.time_us, 3),
        launch=report_parts.launch_part(report_parts.waves_of(gpu, main.resources, occupancy, main.shape.grid)),
        ctas_per_sm=occupancy.ctas_per_sm,
        warps_per_sm=occupancy.warps_per_sm,
        partials_bytes=scored.candidate.partial_bytes or None,
        terms={n: round(v, 4) for n, v in scored.estimates[0].terms.items()},
        binding=scored.estimates[0].binding,
        interval_us=report_parts.rounded_interval(scored.interval_us),
    )


def exports(kernel: Kernel, knobs: Mapping[str, Any]) -> list[str]:
    """`export NAME=value` for every knob that an environment variable sets, its value quoted for a shell."""
    spec = kernel.given.spec
    return [
        f"export {knob.env}={shlex.quote(str(knobs[name]))}"
        for name, knob in spec.knobs.items()
        if knob.env and name in knobs
    ]
