"""Recommendations over many batches are those of every point planned, timed and ranked by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch_oracle import alike, best_single_setting, score

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.recommend import (
    COMMON_MOST,
    candidate_points,
    common_setting,
    prepare_timed,
    rank_batches,
    ranking_notes,
    recommend,
)
from occupancy_cli.answers.sweep import sweep
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.compile.kept_readings import KeptReadings
from occupancy_cli.compile.kernel_record import KeptTimes, KernelDescription, Parameter, digest_of
from occupancy_cli.compile.kernel_times import Iterations, KernelTimes
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource, Target
from occupancy_cli.compile.typed_json import to_json
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.cta_work import CtaWork, Stream
from occupancy_cli.model.kernel_timing import KernelTiming, PartTiming
from occupancy_cli.model.launch_time import Factors
from occupancy_cli.model.ranking import Ranking, Scored, pareto, rank
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.points import make_point
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.spec.settings import Setting

SPEC: dict[str, Any] = {
    "schema": "occupancy/kernel-spec/1",
    "kernel": "made_up.py:split",
    "shapes": {"batch": 8, "heads": 32, "topk": 500},
    "knobs": {
        "BLOCK_H": {"default": 32, "values": [16, 32]},
        "TARGET": {"default": 64, "values": {"for": "s", "from": 1, "to": "tiles", "value": "batch * groups * s"}},
    },
    "derived": {
        "groups": "ceil_div(heads, BLOCK_H)",
        "tiles": "ceil_div(topk, BLOCK_T)",
        "nsplit": "clamp(TARGET // (batch * groups), 1, 40)",
        "per": "ceil_div(tiles, nsplit)",
    },
    "configs": {"product": {"BLOCK_T": [16, 32, 64], "num_warps": [4, 8]}},
    "grid": ["batch", "groups", "nsplit"],
    "arguments": {
        "x_ptr": "*bf16",
        "batch": {"type": "i32"},
        "nsplit": {"type": "i32", "value": "nsplit"},
        "per": {"type": "i32", "value": "per"},
        "stride": {"type": "i64", "value": "batch * 512"},
    },
    "work": {
        "split": {"tiles": "tiles", "tiles_per_split": "per"},
        "ragged": {"axis": 0, "iterations": "clamp(ceil_div(min(length, topk), BLOCK_T) - pid2 * per, 0, per)"},
        "epilogue_bytes": "2048 * BLOCK_H",
    },
    "partials_bytes": "batch * nsplit * heads * 16",
    "followed_by": [
        {
            "kernel": "made_up.py:combine",
            "grid": ["batch", "heads"],
            "arguments": {"x_ptr": "*fp32", "nsplit": {"type": "i32", "value": "nsplit"}},
            "work": {"iterations": "ceil_div(nsplit, 8)"},
        }
    ],
}


class MadeUp:
    """Stands in for the compile service: resources and timings drawn by chance, the same for the same binary."""

    def __init__(self, gpu: GpuProfile, iterations: Iterations | None = None) -> None:
        self.gpu, self.cache, self.triton, self.interrupted = gpu, None, "3.9.0", False
        self.iterations = iterations or Iterations(None, False, "the main loop is a `while`")
        self.asked = 0

    def readings(self) -> KeptReadings:
        return KeptReadings(None)

    def describe(self, source: KernelSource, _target: Target) -> KernelDescription:
        arguments = ["x_ptr", "batch", "nsplit", "per", "stride"] if source.kernel == "split" else ["x_ptr", "nsplit"]
        constexprs = ["BLOCK_H", "BLOCK_T"] if source.kernel == "split" else []
        params = [Parameter(n, n in constexprs, "", None, False, True) for n in (*arguments, *constexprs)]
        return KernelDescription(source.kernel, tuple(params), None, ())

    def compile_all(self, requests: Sequence[CompileRequest], **_options: Any) -> list[CompileOutcome]:
        self.asked += len(requests)
        return [self.outcome(r) for r in requests]

    def outcome(self, request: CompileRequest) -> CompileOutcome:
        by_chance = random.Random(request.identity_text().replace(str(request.source.file), ""))
        values = dict(request.constexprs)
        warps = dict(request.options).get("num_warps", 4)
        if values.get("BLOCK_T") == 64 and values.get("BLOCK_H") == 32:
            return CompileOutcome(KernelResources(102_400, warps, 32 * warps))
        if values.get("BLOCK_T") == 64 and warps == 4:
            return CompileOutcome(None, "crash", "the compiler stopped")
        main = request.source.kernel == "split"
        resources = KernelResources(
            by_chance.choice([20_000, 30_000, 49_000]) if main else 0, warps, 32 * warps, by_chance.choice([64, 96]), 0
        )
        start, each = by_chance.uniform(900, 9000), by_chance.uniform(500, 4000)
        busy = by_chance.uniform(0.3, 1.0)
        parts = tuple(PartTiming(i, c, 1.3 * c, (("issue", busy * c),)) for i, c in enumerate((start, each)))
        axes = by_chance.choice([((0, 1), (2, 1)), ((1, 1),), ((0, 1), (1, 1), (2, 1))])
        work = CtaWork(
            2e3, 8e3, 1e3, (), timing=KernelTiming(280, 690, parts), main=1,
            streams=(Stream(0, 0, 2e3, 2e3, axes=axes), Stream(1, 1, 8e3, 8e3, axes=axes)),
        )  # fmt: skip
        times = KeptTimes(to_json(KernelTimes(self.iterations, work)))
        return CompileOutcome(resources, times={digest_of(self.gpu): times}, toolchain=(("ptxas", "12.9"),))


@pytest.fixture
def gpu() -> GpuProfile:
    return load_gpu("rtx-pro-6000")


def kernel_at(
    folder: Path, gpu: GpuProfile, service: MadeUp, spec: dict[str, Any], workload: Workload, **sets: Any
) -> tuple[Kernel, dict[str, Setting]]:
    (folder / "made_up.py").write_text("")
    path = folder / "made_up.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    given = {n: Setting(v if isinstance(v, tuple) else (v,), "--set") for n, v in sets.items()}
    return prepare_timed(read_kernel_input(str(path)), gpu, service, given, workload), given  # type: ignore[arg-type]


def one_by_one(
    kernel: Kernel, gpu: GpuProfile, service: MadeUp, batch: int, sets: dict[str, Setting], workload: Workload
) -> Ranking:
    """All candidates of a batch, each planned and timed by itself."""
    named = batch if "batch" in kernel.settings else None
    chosen = candidate_points(kernel, gpu, named, sets)
    analyzed = compile_points(kernel, gpu, service, [c.point for c in chosen], timed=True)  # type: ignore[arg-type]
    found = [
        (c.incumbent, candidate)
        for c, each in zip(chosen, analyzed, strict=True)
        if (candidate := candidate_of(kernel, gpu, batch, each, workload)[0]) is not None
    ]
    scored = [(incumbent, score(gpu, c, workload.calibration, workload.cold)) for incumbent, c in found]
    now = [s for incumbent, s in scored if incumbent and isinstance(s, Scored)]
    return rank(gpu, [s for _, s in scored], min(now, key=lambda s: s.time_us, default=None))


def configs_of(ranking: Ranking) -> list[dict[str, Any]]:
    """The configs of a whole ranking, by the least time of each."""
    seen: list[dict[str, Any]] = []
    for scored in ranking.ranked:
        config = {"BLOCK_H": dict(scored.candidate.knobs)["BLOCK_H"], **dict(scored.candidate.config)}
        if config not in seen:
            seen.append(config)
    return seen


WORKLOADS = {
    "a range": Workload(tuple(range(1, 40, 4))),
    "cold": Workload((3, 50, 190), cold=True),
    "a mix": Workload((48, 80, 96), {48: 0.2, 80: 0.5, 96: 0.3}),
    "ragged": Workload((5, 30), lengths="uniform:40:500"),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_batch_is_ranked_as_all_its_points_one_by_one(tmp_path: Path, gpu: GpuProfile, name: str) -> None:
    workload, service = WORKLOADS[name], MadeUp(gpu)
    kernel, sets = kernel_at(tmp_path, gpu, service, SPEC, workload)
    ranked, _ = rank_batches(kernel, gpu, service, sets, workload)  # type: ignore[arg-type]
    whole = [one_by_one(kernel, gpu, service, batch, sets, workload) for batch in workload.batches]
    for few, all_of_them in zip(ranked, whole, strict=True):
        found = few.ranking
        for which in ("chosen", "runner_up", "incumbent"):
            assert alike(getattr(found, which)) == alike(getattr(all_of_them, which))
        assert (found.reasons, found.error_percent) == (all_of_them.reasons, all_of_them.error_percent)
        assert [alike(s) for s in pareto(found.ranked)] == [alike(s) for s in pareto(all_of_them.ranked)]
        few_of, all_of = (list(map(alike, r.ranked[: COMMON_MOST // len(whole)])) for r in (found, all_of_them))
        assert few_of == all_of
        assert list(few.launchable) == configs_of(all_of_them)
        assert set(few.failed) == {
            "BLOCK_H=16 BLOCK_T=64 num_warps=4: the compiler stopped",
            "BLOCK_H=32 BLOCK_T=64 num_warps=4 and BLOCK_H=32 BLOCK_T=64 num_warps=8: 102,400 bytes of shared memory "
            "per CTA are 1,024 over the cap of 101,376 (CC 12.0)",
        }
    single = common_setting(
        kernel, gpu, service, [each.ranking for each in ranked], workload, scored=True  # type: ignore[arg-type]
    )  # fmt: skip
    alone = common_one_by_one(kernel, gpu, service, whole, workload)
    assert (single.knobs, single.config) == (alone.knobs, alone.config)
    assert single.slowdown == pytest.approx(alone.slowdown, rel=1e-9)
    assert [(b, alike(s)) for b, s in single.by_batch] == [(b, alike(s)) for b, s in alone.by_batch]


def common_one_by_one(
    kernel: Kernel, gpu: GpuProfile, service: MadeUp, rankings: list[Ranking], workload: Workload
) -> Any:
    """The best single setting, with every setting that is good somewhere timed everywhere."""
    settings = {}
    for ranking in rankings:
        best = [*ranking.ranked[: max(1, COMMON_MOST // len(rankings))]]
        for scored in [*best, *([ranking.incumbent] if ranking.incumbent else [])]:
            settings[scored.candidate.setting] = None
    widened = []
    for ranking in rankings:
        base = {n: s.values[0] for n, s in kernel.settings.items()} | {"batch": ranking.batch}
        chosen = [make_point(kernel, gpu, base | dict(k), dict(c), {}, 101_376) for k, c in settings]
        analyzed = compile_points(kernel, gpu, service, chosen, timed=True)  # type: ignore[arg-type]
        candidates = [candidate_of(kernel, gpu, ranking.batch, each, workload)[0] for each in analyzed]
        known = [c for c in candidates if c is not None]
        widened.append(rank(gpu, [score(gpu, c, workload.calibration, workload.cold) for c in known]))
    return best_single_setting(widened, workload.mix)


def test_a_calibration_and_settings_count_too(tmp_path: Path, gpu: GpuProfile) -> None:
    service = MadeUp(gpu)
    plain = Workload((9, 100))
    kernel, sets = kernel_at(tmp_path, gpu, service, SPEC, plain, TARGET=(64, 100, 1000), num_warps=8, heads=64)
    first = rank_batches(kernel, gpu, service, sets, plain)[0][0].ranking  # type: ignore[arg-type]
    assert {dict(s.candidate.knobs)["TARGET"] for s in first.ranked} <= {64, 100, 1000}
    assert {dict(s.candidate.config)["num_warps"] for s in first.ranked} == {8}
    name = first.chosen.candidate.launches[0].specialization
    workload = Workload((9, 100), calibration=Calibration(((name, Factors(3.0, 3.0, 1.0)),), 8, 1.0))
    found = rank_batches(kernel, gpu, service, sets, workload)[0][0].ranking  # type: ignore[arg-type]
    whole = one_by_one(kernel, gpu, service, 9, sets, workload)
    for which in ("chosen", "runner_up", "incumbent"):
        assert alike(getattr(found, which)) == alike(getattr(whole, which))
    assert found.chosen != first.chosen


def test_what_is_compiled_does_not_grow_with_the_batches(tmp_path: Path, gpu: GpuProfile) -> None:
    asked = []
    for batches in (range(1, 20), range(1, 200)):
        service, workload = MadeUp(gpu), Workload(tuple(batches))
        kernel, sets = kernel_at(tmp_path, gpu, service, SPEC, workload)
        rank_batches(kernel, gpu, service, sets, workload)  # type: ignore[arg-type]
        asked.append(service.asked)
    assert asked[0] == asked[1]


def test_iterations_come_from_the_ir_where_the_spec_gives_none(tmp_path: Path, gpu: GpuProfile) -> None:
    """The same kernel with and without `work`: what the IR says comes to the same, so the recommendation does too."""
    workload = Workload((6, 64))
    count = "clamp(((topk + 63) // 64) - pid2 * per, 0, per)"
    spec = {k: v for k, v in SPEC.items() if k != "followed_by"} | {"configs": [{"BLOCK_T": 64, "num_warps": 8}]}
    spec["arguments"] = {**SPEC["arguments"], "batch": {"type": "i32", "value": "topk"}}
    given = {**spec, "work": {"iterations": count}}
    told = Iterations(count.replace("topk", "batch"))
    answers = []
    for each, service in ((given, MadeUp(gpu)), ({**spec, "work": {}}, MadeUp(gpu, told))):
        kernel, sets = kernel_at(tmp_path, gpu, service, each, workload, BLOCK_H=16)
        ranked, _ = rank_batches(kernel, gpu, service, sets, workload)  # type: ignore[arg-type]
        answers.append([r.ranking.chosen.time_us for r in ranked])
        found = one_by_one(kernel, gpu, service, 6, sets, workload)
        assert alike(found.chosen) == alike(ranked[0].ranking.chosen)
        shape = found.chosen.candidate.launches[0].shape
        # 500 tokens are 8 tiles of 64; whatever the split, every tile is dealt to a CTA of each of 6 x 2 rows.
        assert shape.total_iterations == 6 * 2 * 8
        said = "IR" if each["work"] == {} else "spec"
        assert ranked[0].iterations_from == {"split": said}
        assert ranking_notes(ranked) == (["iterations of a CTA of split: IR"] if said == "IR" else [])
    assert answers[0] == answers[1]


def test_iterations_that_nobody_knows_are_said_to_be_unknown(tmp_path: Path, gpu: GpuProfile) -> None:
    workload, service = Workload((6,)), MadeUp(gpu)
    kernel, sets = kernel_at(tmp_path, gpu, service, {**SPEC, "work": {}}, workload)
    with pytest.raises(InputError, match=r"iterations of split are unknown: .* the main loop is a `while`"):
        rank_batches(kernel, gpu, service, sets, workload)  # type: ignore[arg-type]


def test_reports_of_one_batch_and_of_a_sweep_agree(tmp_path: Path, gpu: GpuProfile) -> None:
    service, workload = MadeUp(gpu), Workload((4, 60))
    kernel, sets = kernel_at(tmp_path, gpu, service, SPEC, workload)
    report = recommend(kernel.given, gpu, service, sets, workload)  # type: ignore[arg-type]
    plot = sweep(kernel.given, gpu, service, sets, workload)  # type: ignore[arg-type]
    assert [p.best.predicted_time_us for p in plot.sweep if p.best] == [
        min(c.predicted_time_us or 0.0 for c in r.pareto) for r in report.recommendations
    ]
    assert plot.single_setting == report.single_setting
