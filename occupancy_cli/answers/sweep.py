"""`sweep`: predicted time over batch, of what is set now, of the one setting recommended for all, and of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import notes_of, toolchain
from occupancy_cli.answers.recommend import (
    batches_of,
    common_setting,
    exports,
    prepare_timed,
    rank_batches,
    ranking_notes,
    subject,
)
from occupancy_cli.answers.workload import Workload
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Scored
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.report import schema
from occupancy_cli.spec.settings import Setting


@dataclass(frozen=True)
class AnchorPoint:
    """A measured time of what is set now, in milliseconds, at one batch."""

    batch: int
    ms: float


def sweep(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    workload: Workload,
    anchor: AnchorPoint | None = None,
) -> schema.Report:
    """A Report with one `SweepPoint` a batch.

    With an anchor every time is multiplied by one factor, so that what is set now takes the measured time at the
    anchor's batch, which must be among the batches.
    """
    kernel = prepare_timed(given, gpu, service, sets, workload)
    batches = batches_of(kernel, workload)
    if anchor is not None and anchor.batch not in batches:
        raise InputError(f"batch {anchor.batch} is not in the sweep", where="--anchor", hint="Add it to --batch.")
    ranked, everything = rank_batches(kernel, gpu, service, sets, workload)
    rankings = [each.ranking for each in ranked]
    single = common_setting(kernel, gpu, service, rankings, workload, scored=True) if len(rankings) > 1 else None
    common = dict(single.by_batch) if single else {r.batch: r.chosen for r in rankings}
    factor = 1.0
    if anchor is not None:
        now = next(r.incumbent for r in rankings if r.batch == anchor.batch)
        if now is None:
            raise InputError("what is set now cannot launch, so nothing was measured", where="--anchor")
        factor = 1000 * anchor.ms / now.time_us
    points = [
        schema.SweepPoint(
            batch=ranking.batch,
            default=_side(gpu, ranking.incumbent, factor),
            recommended=_side(gpu, common.get(ranking.batch), factor),
            best=_best(gpu, ranking.ranked, factor),
            model_error_percent=ranking.error_percent,
        )
        for ranking in rankings
    ]
    return schema.Report(
        command="sweep",
        toolchain=toolchain(service, everything),
        gpu=report_parts.gpu_part(gpu),
        subject=subject(kernel, workload),
        sweep=points,
        anchor=None
        if anchor is None
        else schema.Anchor(batch=anchor.batch, measured_ms=anchor.ms, factor=round(factor, 4)),
        single_setting=None
        if single is None
        else schema.SingleSetting(
            knobs=report_parts.scalars(dict(single.knobs)),
            config=report_parts.scalars(dict(single.config)),
            slowdown=round(single.slowdown, 4),
            exports=exports(kernel, dict(single.knobs)),
        ),
        notes=[*notes_of(service, everything, kernel), *ranking_notes(ranked)],
        interrupted=service.interrupted,
    )


def _best(gpu: GpuProfile, ranked: Sequence[Scored], factor: float) -> schema.SweepSide:
    side = _side(gpu, ranked[0], factor)
    assert side is not None
    return side


def _side(gpu: GpuProfile, scored: Scored | None, factor: float) -> schema.SweepSide | None:
    if scored is None:
        return None
    main = scored.candidate.launches[0]
    occupancy = occupancy_of(gpu, main.resources)
    waves = report_parts.launch_part(report_parts.waves_of(gpu, main.resources, occupancy, main.shape.grid))
    time_us = scored.time_us * factor
    return schema.SweepSide(
        knobs=report_parts.scalars(dict(scored.candidate.knobs)),
        config=report_parts.scalars(dict(scored.candidate.config)),
        nsplit=scored.candidate.nsplit,
        predicted_time_us=round(time_us, 3),
        ctas_per_sm=occupancy.ctas_per_sm,
        waves=waves.waves if waves else None,
        efficiency_percent=waves.efficiency_percent if waves else None,
        requests_per_s=round(scored.candidate.batch / time_us * 1e6, 1),
    )
