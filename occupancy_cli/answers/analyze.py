"""`analyze`: every config of a kernel, compiled, with its occupancy and the waves of its launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, TimeOn
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import DEFAULTS
from occupancy_cli.model.observations import Variant, observations
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_plan import LaunchPlan
from occupancy_cli.plan.points import Point, points
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.plan.settled_launches import settled_point
from occupancy_cli.report import schema
from occupancy_cli.spec.settings import Setting
from occupancy_cli.version import VERSION


@dataclass(frozen=True)
class AnalyzedPoint:
    """A point with the outcome of each of its launches, the main kernel first; `timed`: a time was asked for."""

    point: Point
    outcomes: tuple[CompileOutcome, ...]
    timed: bool = False


def analyze(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    *,
    full: bool = False,
    timed: bool = False,
    command: str = "analyze",
) -> schema.Report:
    """A Report with one `Config` per config and combination of settings, in the kernel's own order.

    `full` compiles configs over the cap through ptxas too (their registers are then known); `timed` predicts the time
    of each launch whose grid and iterations the spec gives.
    """
    kernel = prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)
    chosen = points(kernel, gpu, stop_above(gpu, full=full))
    analyzed = compile_points(kernel, gpu, service, chosen, timed=timed)
    return schema.Report(
        command=command,
        toolchain=toolchain(service, analyzed),
        gpu=report_parts.gpu_part(gpu),
        kernels=[kernel_part(kernel, gpu, analyzed, pruned_points(kernel, service, chosen))],
        notes=notes_of(service, analyzed),
        interrupted=service.interrupted,
    )


def analyze_on(
    gpus: Sequence[GpuProfile],
    given: KernelInput,
    service: CompileService,
    sets: Mapping[str, Setting],
    *,
    full: bool = False,
    timed: bool = False,
) -> schema.Report:
    """A Report with the kernel once for each of several GPUs, each part with its own; else as `analyze`."""
    found = [analyze(given, gpu, service, sets, full=full, timed=timed) for gpu in gpus]
    assumed = [f"assumed for {r.gpu.name}: {', '.join(r.gpu.assumed)}" for r in found if r.gpu and r.gpu.assumed]
    notes = [
        *assumed,
        *(note for report in found for note in (*(report.gpu.notes if report.gpu else ()), *report.notes)),
    ]
    return replace(
        found[0],
        gpu=None,
        kernels=[replace(kernel, gpu=report.gpu) for report in found for kernel in report.kernels],
        notes=list(dict.fromkeys(notes)),
        interrupted=service.interrupted,
    )


def stop_above(gpu: GpuProfile, *, full: bool) -> int | None:
    """Where a compile may end: at a config over the cap, unless everything is asked for."""
    return None if full else gpu.limits.shared_per_cta_optin_bytes


def compile_points(
    kernel: Kernel,
    gpu: GpuProfile,
    service: CompileService,
    chosen: list[Point],
    *,
    timed: bool = False,
    keep_in: Path | None = None,
) -> list[AnalyzedPoint]:
    """Compile every launch of every point, equal specializations once; `timed`: with each kernel's time on `gpu`.

    With `keep_in` the binaries are left in that folder (see `CompileService.compile_all`).
    """
    wanted = time_on(gpu) if timed else None
    timed_requests: dict[int, CompileRequest] = {}
    requests = []
    for point in chosen:
        for launch in point.launches:
            request = launch.request
            if wanted is not None:
                request = timed_requests.setdefault(id(request), replace(request, time_on=wanted))
            requests.append(request)
    outcomes = iter(service.compile_all(requests, keep_in=keep_in))
    found = []
    for point in chosen:
        compiled = tuple(next(outcomes) for _ in point.launches)
        found.append(AnalyzedPoint(*settled_point(kernel.given, gpu, point, compiled), timed))
    return found


def pruned_points(kernel: Kernel, service: CompileService, chosen: Sequence[Point]) -> frozenset[int]:
    """The ids of the points whose config the kernel's own `prune_configs_by` leaves out for its arguments."""
    pruning = pruning_of(kernel, service)
    if pruning is None:
        return frozenset()
    return frozenset(id(point) for point in chosen if not pruning(point.main.request, point.config))


def pruning_of(kernel: Kernel, service: CompileService) -> Callable[[CompileRequest, Mapping[str, Any]], bool] | None:
    """Whether a kernel's own `prune_configs_by` keeps a config for a launch; None for a kernel that prunes none.

    A name that --set gives a value is asked for, whatever configs the autotuner has.
    """
    autotune = kernel.description.autotune
    if autotune is None or not autotune.prunes or kernel.given.spec.configs != "autotune":
        return None
    tuned = {n for c in autotune.configs for n in c}
    known: dict[CompileRequest, list[dict[str, Any]]] = {}

    def keeps(request: CompileRequest, config: Mapping[str, Any]) -> bool:
        # What the pruning function sees is the call without the config: many points share it.
        constexprs = tuple((n, v) for n, v in request.constexprs if n not in tuned)
        call = replace(request, constexprs=constexprs, options=())
        if call not in known:
            known[call] = service.pruned_configs(call)
        whole = {**DEFAULTS, **config}
        return any(all(whole.get(n) == v for n, v in c.items() if n not in kernel.overrides) for c in known[call])

    return keeps


def kernel_part(
    kernel: Kernel, gpu: GpuProfile, analyzed: list[AnalyzedPoint], pruned: frozenset[int] = frozenset()
) -> schema.Kernel:
    """A kernel's part of a Report; `pruned` has the ids of points whose config the autotuner skips."""
    times = _times(kernel, gpu, [each for each in analyzed if each.timed])
    settings = {**kernel.settings, **kernel.overrides}
    return schema.Kernel(
        name=kernel.given.name,
        source=kernel.given.source,
        kernel=str(kernel.source),
        settings={n: s.origin for n, s in settings.items()},
        observations=_observations(gpu, analyzed),
        tuned=kernel.given.spec.tuned
        or (kernel.given.spec.configs == "autotune" and kernel.description.autotune is not None),
        notes=list(kernel.from_source.notes),
        not_read=list(kernel.from_source.not_read),
        configs=[
            config_part(kernel, gpu, each, times.get(id(each.point)), id(each.point) in pruned) for each in analyzed
        ],
    )


def _observations(gpu: GpuProfile, analyzed: list[AnalyzedPoint]) -> list[str]:
    variants = [
        Variant(
            {**each.point.shapes, **each.point.knobs, **each.point.config},
            each.outcomes[0].resources,
            occupancy_of(gpu, each.outcomes[0].resources),
        )
        for each in analyzed
        if each.outcomes[0].resources is not None
    ]
    return observations(variants)


def config_part(
    kernel: Kernel,
    gpu: GpuProfile,
    analyzed: AnalyzedPoint,
    times: LaunchTimes | None = None,
    pruned: bool = False,
) -> schema.Config:
    """One config: fits or not, occupancy, waves, the times of its launches where they were asked for; `pruned`: the
    autotuner skips it."""
    point, outcome = analyzed.point, analyzed.outcomes[0]
    derived = {n: point.names[n] for n in kernel.given.spec.derived if n in point.names}
    given = report_parts.scalars({n: v for n, v in derived.items() if n in kernel.overrides})
    config = report_parts.scalars({**point.config, "maxnreg": point.config.get("maxnreg")})
    knobs, shapes = report_parts.scalars(point.knobs), report_parts.scalars(point.shapes)
    notes = [*point.main.assumed, *outcome.notes]
    if pruned:
        notes.append("prune_configs_by leaves this config out for these arguments: it is not tried")
    if outcome.resources is None:
        return schema.Config(
            config=config,
            knobs=knobs,
            shapes=shapes,
            derived=report_parts.scalars(derived),
            given=given,
            status="failed",
            fits=None,
            over_bytes=0,
            reason=outcome.message,
            error=report_parts.error_part(outcome),
            notes=notes,
        )
    occupancy = occupancy_of(gpu, outcome.resources)
    waves = report_parts.waves_of(gpu, outcome.resources, occupancy, point.main.grid)
    return schema.Config(
        config=config,
        knobs=knobs,
        shapes=shapes,
        derived=report_parts.scalars(derived),
        given=given,
        status="ok" if occupancy.launchable else "over_cap",
        fits=occupancy.launchable,
        over_bytes=occupancy.over_bytes,
        reason=occupancy.reason,
        resources=report_parts.resources_part(outcome.resources),
        occupancy=report_parts.occupancy_part(occupancy),
        launch=report_parts.launch_part(waves),
        predicted_time_us=times.total_us if times else None,
        time=times.launches[0] if times else None,
        followed_by=[
            _follower(gpu, plan, result, times.launches[number] if times else None)
            for number, (plan, result) in enumerate(zip(point.followers, analyzed.outcomes[1:], strict=True), start=1)
        ],
        notes=notes,
    )


def time_on(gpu: GpuProfile) -> TimeOn:
    """The GPU as a request names it, with the folder of its profile's own file for the worker that has to load it."""
    from occupancy_cli.compile.kernel_record import digest_of

    return TimeOn(gpu.id, digest_of(gpu), (str(Path(gpu.path).parent),) if gpu.path else ())


@dataclass(frozen=True)
class LaunchTimes:
    """The times of a point's launches, and of all of them one after the other (None where one has no time)."""

    launches: tuple[schema.Time | None, ...]
    total_us: float | None


def _times(kernel: Kernel, gpu: GpuProfile, analyzed: Sequence[AnalyzedPoint]) -> dict[int, LaunchTimes]:
    """The times of points that were compiled with times, by the id of the point."""
    if not analyzed:
        return {}
    from occupancy_cli.plan.launch_work import iterations_from, times_of, timing_of

    found = {}
    estimates = times_of(kernel, gpu, [(each.point, each.outcomes) for each in analyzed])
    for each, timed in zip(analyzed, estimates, strict=True):
        parts = tuple(
            report_parts.time_part(estimate, iterations_from(kernel.given, plan, timing_of(gpu, outcome)))
            for plan, outcome, estimate in zip(each.point.launches, each.outcomes, timed, strict=True)
        )
        known = [e.time_us for e in timed if e is not None and e.time_us is not None]
        total_us = round(sum(known), 3) if len(known) == len(timed) else None
        found[id(each.point)] = LaunchTimes(parts, total_us)
    return found


def _follower(gpu: GpuProfile, plan: LaunchPlan, outcome: CompileOutcome, time: schema.Time | None) -> schema.Follower:
    name = plan.request.source.kernel
    if outcome.resources is None:
        return schema.Follower(
            kernel=name, resources=None, occupancy=None, launch=None, error=report_parts.error_part(outcome)
        )
    occupancy = occupancy_of(gpu, outcome.resources)
    return schema.Follower(
        kernel=name,
        resources=report_parts.resources_part(outcome.resources),
        occupancy=report_parts.occupancy_part(occupancy),
        launch=report_parts.launch_part(report_parts.waves_of(gpu, outcome.resources, occupancy, plan.grid)),
        time=time,
    )


def toolchain(service: CompileService, analyzed: list[AnalyzedPoint]) -> schema.Toolchain:
    """Versions, as the outcomes report them."""
    versions = {name: v for each in analyzed for outcome in each.outcomes for name, v in outcome.toolchain}
    return schema.Toolchain(occupancy=VERSION, triton=service.triton, ptxas=versions.get("ptxas") or None)


def notes_of(service: CompileService, analyzed: list[AnalyzedPoint], *kernels: Kernel) -> list[str]:
    """What a reader should know of the run as a whole; of `kernels` what their files say and was not read."""
    notes = list(dict.fromkeys(n for k in kernels for n in (*k.from_source.notes, *k.from_source.not_read)))
    assumed = {note for each in analyzed for plan in each.point.launches for note in plan.assumed}
    return [*notes, *sorted(assumed)]
