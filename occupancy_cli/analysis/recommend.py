"""`recommend`: the knobs and config with the shortest predicted time, beside what is used now.

Candidates are every value that the spec lists for a knob (unless `--set` fixes it) x every config, each with the
resources of its own specialization. What is used now is the knobs' present values with the config that an autotuner
would pick there, which is taken to be the fastest predicted one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_cli.analysis import build
from occupancy_cli.analysis.analyze import AnalyzedPoint, compile_points, notes_of, stop_above, toolchain
from occupancy_cli.analysis.plan import (
    Kernel,
    Point,
    knob_candidates,
    make_point,
    names_of,
    prepare,
)
from occupancy_cli.analysis.work import launch_shape, work_of
from occupancy_cli.compile.service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.intake.expressions import parse_expression
from occupancy_cli.intake.kernel_input import KernelInput
from occupancy_cli.intake.settings import Setting, one_value
from occupancy_cli.intake.traffic import parse_lengths
from occupancy_cli.model.cost import Calibration
from occupancy_cli.model.profiles import GpuProfile
from occupancy_cli.model.search import (
    Candidate,
    KernelLaunch,
    Ranking,
    Scored,
    SingleSetting,
    best_single_setting,
    pareto,
    rank,
    score,
)
from occupancy_cli.report import schema

COMMON_MOST = 128


@dataclass(frozen=True)
class Workload:
    """What is asked of a recommendation beside the kernel: the batches (with `mix`, their shares of steps), the tokens
    of each request (`lengths`), whether the launch finds its data in the L2 (`cold`: it does not), and measurements."""

    batches: tuple[int, ...] = ()
    mix: Mapping[int, float] | None = None
    lengths: str | None = None
    cold: bool = False
    calibration: Calibration | None = None

    def lengths_at(self, batch: int) -> tuple[int, ...]:
        """The tokens of each request at a batch; empty when all have as many."""
        return () if self.lengths is None else parse_lengths(self.lengths, batch)


EVEN = Workload()


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

    Raises `InputError` when the GPU's SM count is unknown, the spec has no grid or work, or nothing can launch.
    """
    kernel = prepare_timed(given, gpu, service, sets, workload)
    rankings, failed, everything = rank_batches(kernel, gpu, service, sets, workload)
    found = [_part(kernel, gpu, ranking, failed[ranking.batch]) for ranking in rankings]
    single = None
    if len(rankings) > 1:
        best = common_setting(kernel, gpu, service, rankings, workload)
        single = schema.SingleSetting(
            knobs=build.scalars(dict(best.knobs)),
            config=build.scalars(dict(best.config)),
            slowdown=round(best.slowdown, 4),
            exports=exports(kernel, dict(best.knobs)),
        )
    return schema.Report(
        command="recommend",
        toolchain=toolchain(service, everything),
        gpu=build.gpu_part(gpu),
        recommendation=found[0] if len(found) == 1 else None,
        recommendations=found,
        single_setting=single,
        notes=notes_of(service, everything),
        interrupted=service.interrupted,
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
    if given.spec.grid is None or (given.spec.work.iterations is None and given.spec.work.split is None):
        raise InputError(
            "a recommendation needs `grid` and `work.iterations` (or `work.split`)",
            where=given.document.where(("work",)),
        )
    if workload.lengths is not None and given.spec.work.ragged is None:
        raise InputError(
            "--lengths needs `work.ragged` in the spec",
            where=given.document.where(("work",)),
            hint="See `schema spec`.",
        )
    return prepare(given, gpu, service.describe, sets, os.environ)


def batches_of(kernel: Kernel, workload: Workload) -> tuple[int, ...]:
    """The batches asked about; the spec's own when none are."""
    if workload.batches:
        return workload.batches
    return tuple(int(v) for v in kernel.settings["batch"].values) if "batch" in kernel.settings else (1,)


def rank_batches(
    kernel: Kernel, gpu: GpuProfile, service: CompileService, sets: Mapping[str, Setting], workload: Workload
) -> tuple[list[Ranking], dict[int, list[str]], list[AnalyzedPoint]]:
    """A ranking of all candidates at each batch, why others cannot launch, and all that was compiled."""
    asked = batches_of(kernel, workload)
    chosen = {batch: candidate_points(kernel, gpu, batch, sets) for batch in asked}
    flat = [c.point for batch in asked for c in chosen[batch]]
    analyzed = iter(compile_points(kernel, gpu, service, flat, timed=True))
    rankings = []
    everything: list[AnalyzedPoint] = []
    failed: dict[int, list[str]] = {}
    for batch in asked:
        mine = [(c, next(analyzed)) for c in chosen[batch]]
        everything += [a for _, a in mine]
        ranking, failed[batch] = _rank(kernel, gpu, batch, mine, workload)
        rankings.append(ranking)
    return rankings, failed, everything


def common_setting(
    kernel: Kernel, gpu: GpuProfile, service: CompileService, rankings: Sequence[Ranking], workload: Workload
) -> SingleSetting:
    """The one setting that is best over the batches of `rankings`, by the mix of the workload if it has one."""
    return best_single_setting(_with_common_settings(kernel, gpu, service, rankings, workload), workload.mix)


def _with_common_settings(
    kernel: Kernel, gpu: GpuProfile, service: CompileService, rankings: Sequence[Ranking], workload: Workload
) -> list[Ranking]:
    """The rankings with the settings that are good somewhere scored everywhere: one setting has to serve all batches.

    An environment variable is one value for a whole server, and the value that is best at one batch may not be among
    the candidates of another. Taken along: what is set now, and the best few of each batch, `COMMON_MOST` in all.
    """
    settings: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}
    for ranking in rankings:
        few = max(1, COMMON_MOST // len(rankings))
        best = [*ranking.ranked[:few], *([ranking.incumbent] if ranking.incumbent else [])]
        for scored in best:
            settings[scored.candidate.setting] = (dict(scored.candidate.knobs), dict(scored.candidate.config))
    override = {n: one_value(s.values, n, "--set") for n, s in kernel.overrides.items()}
    widened = []
    for ranking in rankings:
        base = {n: s.values[0] for n, s in kernel.settings.items()} | {"batch": ranking.batch}
        chosen = [
            make_point(kernel, gpu, base | knobs, config, override, stop_above(gpu, full=False))
            for knobs, config in settings.values()
        ]
        candidates = [
            candidate
            for each in compile_points(kernel, gpu, service, chosen, timed=True)
            if (candidate := candidate_of(kernel, gpu, ranking.batch, each, workload)[0]) is not None
        ]
        incumbent = ranking.incumbent.candidate if ranking.incumbent else None
        widened.append(rank(gpu, candidates, incumbent, calibration=workload.calibration, cold=workload.cold))
    return widened


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
    now = {n: kernel.settings[n].values[0] for n in spec.knobs}
    override = {n: one_value(s.values, n, "--set") for n, s in kernel.overrides.items()}
    found: dict[Any, ChosenPoint] = {}
    for config in kernel.configs:
        for knobs in [now, *_knob_choices(kernel, values | now, config, override, list(spec.knobs), sets)]:
            point = make_point(kernel, gpu, values | knobs, config, override, stop_above(gpu, full=full))
            same = (repr(point.config), tuple((p.grid, p.request.identity_text()) for p in point.launches))
            found.setdefault(same, ChosenPoint(point, knobs == now))
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


def _rank(
    kernel: Kernel,
    gpu: GpuProfile,
    batch: int,
    mine: Sequence[tuple[ChosenPoint, AnalyzedPoint]],
    workload: Workload,
) -> tuple[Ranking, list[str]]:
    candidates: list[Candidate] = []
    incumbents: list[Candidate] = []
    failed: dict[str, None] = {}
    for chosen, analyzed in mine:
        candidate, why = candidate_of(kernel, gpu, batch, analyzed, workload)
        if candidate is None:
            failed[why] = None
            continue
        candidates.append(candidate)
        if chosen.incumbent:
            incumbents.append(candidate)
    if not candidates:
        reason = "; ".join(list(failed)[:3])
        raise InputError(f"no config can launch on {gpu.name}: {reason}", where=kernel.given.source)
    calibration, cold = workload.calibration, workload.cold
    scored = [s for s in (score(gpu, c, calibration, cold)[0] for c in incumbents) if s is not None]
    incumbent = min(scored, key=lambda s: s.time_us).candidate if scored else None
    return rank(gpu, candidates, incumbent, calibration=calibration, cold=cold), _grouped(failed)


def _grouped(failed: Iterable[str]) -> list[str]:
    """`A and B: reason` for the configs that share one."""
    by_reason: dict[str, list[str]] = {}
    for text in failed:
        which, _, reason = text.partition(": ")
        by_reason.setdefault(reason, []).append(which)
    return [f"{' and '.join(names)}: {reason}" for reason, names in by_reason.items()]


def candidate_of(
    kernel: Kernel, gpu: GpuProfile, batch: int, analyzed: AnalyzedPoint, workload: Workload = EVEN
) -> tuple[Candidate | None, str]:
    """A compiled point as a candidate, or None and why it cannot launch. `InputError` where no work is given."""
    point = analyzed.point
    launches = []
    for plan, outcome in zip(point.launches, analyzed.outcomes, strict=True):
        if outcome.resources is None:
            return None, f"{_short(point)}: {outcome.message}"
        occupancy = build.occupancy_on(gpu, outcome.resources)
        if not occupancy.launchable:
            return None, f"{_short(point)}: {occupancy.reason}"
        shape = launch_shape(kernel.given, plan, workload.lengths_at(batch))
        if shape is None:
            raise InputError(
                f"the work of {plan.request.source.kernel} is not given",
                where=kernel.given.document.where((*plan.at, "work")),
                hint="Give its grid and work.iterations.",
            )
        work = work_of(kernel, gpu, plan, outcome)
        launches.append(KernelLaunch(plan.request.source.kernel, outcome.resources, occupancy, work, shape))
    nsplit = point.names.get("nsplit")
    partials = kernel.given.spec.partials_bytes
    where = kernel.given.document.where(("partials_bytes",))
    return (
        Candidate(
            batch=batch,
            knobs=tuple(point.knobs.items()),
            config=tuple((n, v) for n, v in point.config.items() if n not in point.knobs),
            launches=tuple(launches),
            nsplit=None if nsplit is None else int(nsplit),
            partial_bytes=0 if partials is None else int(parse_expression(partials, where)(point.names, where)),
        ),
        "",
    )


def _short(point: Point) -> str:
    return " ".join(f"{n}={v}" for n, v in point.config.items() if n not in ("num_stages", "num_ctas"))


def _part(kernel: Kernel, gpu: GpuProfile, ranking: Ranking, failed: Sequence[str]) -> schema.Recommendation:
    chosen = choice_part(gpu, ranking.chosen)
    assert chosen is not None
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
        chosen=chosen,
        default=choice_part(gpu, ranking.incumbent),
        runner_up=choice_part(gpu, ranking.runner_up),
        cannot_launch=[*failed, *(why for _, why in ranking.cannot_launch)],
        constexpr_knobs=constexpr_knobs,
        launchable=list(_distinct(_with_knobs(s, constexpr_knobs) for s in ranking.ranked)),
        pareto=[c for s in pareto(ranking.ranked) if (c := choice_part(gpu, s)) is not None],
    )


def _with_knobs(scored: Scored, names: Sequence[str]) -> dict[str, schema.Scalar]:
    knobs = {n: v for n, v in scored.candidate.knobs if n in names}
    return build.scalars({**knobs, **dict(scored.candidate.config)})


def _distinct(configs: Iterable[dict[str, schema.Scalar]]) -> Iterator[dict[str, schema.Scalar]]:
    seen: list[dict[str, schema.Scalar]] = []
    for config in configs:
        if config not in seen:
            seen.append(config)
            yield config


def choice_part(gpu: GpuProfile, scored: Scored | None) -> schema.Choice | None:
    if scored is None:
        return None
    main = scored.candidate.launches[0]
    occupancy = build.occupancy_on(gpu, main.resources)
    return schema.Choice(
        knobs=build.scalars(dict(scored.candidate.knobs)),
        config=build.scalars(dict(scored.candidate.config)),
        nsplit=scored.candidate.nsplit,
        predicted_time_us=round(scored.time_us, 3),
        launch=build.launch_part(build.waves_of(gpu, main.resources, occupancy, main.shape.grid)),
        ctas_per_sm=occupancy.ctas_per_sm,
        warps_per_sm=occupancy.warps_per_sm,
        partials_bytes=scored.candidate.partial_bytes or None,
        terms={n: round(v, 4) for n, v in scored.estimates[0].terms.items()},
        binding=scored.estimates[0].binding,
    )


def exports(kernel: Kernel, knobs: Mapping[str, Any]) -> list[str]:
    """`export NAME=value` for every knob that an environment variable sets."""
    spec = kernel.given.spec
    return [f"export {knob.env}={knobs[name]}" for name, knob in spec.knobs.items() if knob.env and name in knobs]
