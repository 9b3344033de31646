"""Thousands of points at once are timed as each is alone: the same candidates, shapes and times to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_oracle import alike, score

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.candidate_choice import choose
from occupancy_cli.answers.candidate_times import CandidateTimes, compile_tables
from occupancy_cli.answers.recommend import candidate_points
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.launch_time import Factors
from occupancy_cli.model.ranking import Scored
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.point_table import candidate_tables
from occupancy_cli.plan.prepared_kernel import prepare
from occupancy_cli.spec.settings import parse_settings
from testing.split_sum import SPEC, write_kernel

H200 = load_gpu("h200")
SPLIT = "  split: {tiles: tiles, tiles_per_split: tiles_per_split, axis: 1}\n"
EVERY_SPLIT = SPEC.replace('to: "min(tiles, 4)"', "to: tiles")
SPECS = {
    "split": EVERY_SPLIT,
    "nothing said": EVERY_SPLIT.replace("work:\n" + SPLIT, ""),
    "lengths": EVERY_SPLIT.replace(
        SPLIT,
        SPLIT + "  ragged: {axis: 0, iterations: "
        '"clamp(ceil_div(length, BLOCK) - pid1 * tiles_per_split, 0, tiles_per_split)"}\n',
    ),
}


@pytest.fixture(scope="module")
def service() -> Iterator[CompileService]:
    with CompileService(limits=Limits(120, 0), jobs=2, cache=ResultCache()) as one:
        yield one


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(("said", "cold"), [("split", True), ("nothing said", False), ("lengths", False)])
def test_points_together_are_timed_as_alone(said: str, cold: bool, tmp_path: Path, service: CompileService) -> None:
    write_kernel(tmp_path)
    spec = tmp_path / "split_sum.yaml"
    spec.write_text(SPECS[said])
    sets = parse_settings(["tokens=3000"])  # 12 and 6 tiles: splits that do and do not come out even
    kernel = prepare(read_kernel_input(str(spec)), H200, service.describe, sets, {})
    chance = random.Random(said)
    batches = sorted(chance.sample(range(1, 100), 2))
    lengths = "uniform:100:3000" if said == "lengths" else None
    calibration = None
    if cold:
        points = [p.point for p in candidate_points(kernel, H200, batches[0], sets)]
        held = {
            launch.specialization
            for each in compile_points(kernel, H200, service, points, timed=True)
            for launch in candidate_of(kernel, H200, batches[0], each, Workload(lengths=lengths))[0].launches
        }
        factors = {name: Factors(*(chance.uniform(0.7, 1.4) for _ in range(3))) for name in sorted(held)}
        calibration = Calibration(tuple(factors.items()), 8, 1.0)
    workload = Workload(tuple(batches), None, lengths, cold, calibration)
    compiled, _ = compile_tables(H200, service, candidate_tables(kernel, H200, batches, sets, None))
    times = CandidateTimes(kernel, H200, compiled, batches, workload.lengths_at, calibration, cold)
    for position, batch in enumerate(batches):
        points = [p.point for p in candidate_points(kernel, H200, batch, sets)]
        alone = {}
        for each in compile_points(kernel, H200, service, points, timed=True):
            candidate, why = candidate_of(kernel, H200, batch, each, workload)
            assert candidate is not None, why
            scored = score(H200, candidate, calibration, cold)
            assert isinstance(scored, Scored)
            alone[candidate.setting] = scored
        which = times.of_batch(position)
        together = {}
        for i in which.tolist():
            candidate, why = candidate_of(kernel, H200, batch, times.analyzed(i), workload)
            assert candidate is not None, why
            together[candidate.setting] = (i, times.timed(i, candidate))
        assert together.keys() == alone.keys()
        for setting, (i, scored) in together.items():
            assert isinstance(scored, Scored) and alike(scored) == alike(alone[setting])
            assert times.time_us(i) == scored.time_us
            assert times.at_least_us[i] <= scored.time_us
            assert times.partial_bytes[i] == alone[setting].candidate.partial_bytes
        best = choose(times, which, dict.fromkeys(which.tolist(), 0), 3)
        assert [times.time_us(i) for i in best.top] == pytest.approx(sorted(s.time_us for s in alone.values())[:3])


@pytest.mark.compiles
@pytest.mark.one_triton
def test_iterations_come_from_the_ir_where_the_spec_has_none(tmp_path: Path, service: CompileService) -> None:
    """`for tile in range(tiles_per_split)`: every CTA runs it so often, the combine kernel nsplit times."""
    write_kernel(tmp_path)
    spec = tmp_path / "split_sum.yaml"
    spec.write_text(SPECS["nothing said"].replace("    work: {iterations: nsplit}\n", ""))
    kernel = prepare(read_kernel_input(str(spec)), H200, service.describe, {}, {})
    found = candidate_points(kernel, H200, 8, parse_settings(["TARGET=24"]))
    for each in compile_points(kernel, H200, service, [p.point for p in found], timed=True):
        candidate, why = candidate_of(kernel, H200, 8, each)
        assert candidate is not None, why
        # 4096 tokens are 16 tiles of 256 or 8 of 512; TARGET 24 over batch 8 is 3 splits, of 6 or 3 tiles each. TARGET
        # as it is set now, 16, is 2 splits of 8 or 4.
        tiles = 4096 // dict(candidate.config)["BLOCK"]
        splits = dict(candidate.knobs)["TARGET"] // 8
        main, combine = (launch.shape for launch in candidate.launches)
        assert main.grid == (8, splits) and main.runs == ((8 * splits, -(-tiles // splits)),)
        assert combine.grid == (8,) and combine.runs == ((8, splits),)
