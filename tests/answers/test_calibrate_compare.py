"""`occupancy calibrate` and `compare` on times made by a formula: what is known of them has to come out."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from report_schema import valid_report
from typer.testing import CliRunner

from occupancy_cli.answers.calibrate import SCHEMA, calibrate, read_calibration, spread
from occupancy_cli.answers.compare import compare, summary
from occupancy_cli.answers.measure import measure
from occupancy_cli.answers.measured_points import measured_kernel
from occupancy_cli.answers.times_file import Times, read_times
from occupancy_cli.cli.app import app
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.split_rules import (
    flash_attention,
    power_of_two,
    share_of_sms,
    snapped,
    target_ceil,
    target_floor,
)
from occupancy_cli.plan.kernel_input import read_kernel_input
from testing.split_sum import FormulaTimer, machine, write_kernel

H200 = load_gpu("h200")


def service() -> CompileService:
    return CompileService(limits=Limits(120, 0), jobs=2, cache=ResultCache())


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kernel(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module")
def measured(spec: Path) -> Path:
    """Times of 3 batches x 2 configs x 4 splits by the formula 3 + 0.5 x tiles a split microseconds."""
    out = spec.parent / "times.jsonl"
    with CompileService(limits=Limits(120, 0), jobs=2) as one:
        measure(
            read_kernel_input(str(spec)),
            H200,
            one,
            machine(FormulaTimer()),
            {},
            out,
            kernel_text=str(spec),
            batches=(8, 64, 512),
        )
    return out


@pytest.mark.compiles
@pytest.mark.one_triton
def test_calibration_brings_predictions_to_the_times(spec: Path, measured: Path) -> None:
    with service() as one:
        fitted = calibrate(read_times(measured), read_kernel_input(str(spec)), H200, one)
    assert fitted.rows == 24 and fitted.points == 24
    # split_sum at BLOCK 256 and at 512 (its specializations take the same registers: one entry each), and combine.
    assert fitted.kernels == 3
    assert fitted.error_before_percent is not None
    # The formula is linear in the iterations of a CTA, as the model is; it does not know waves, as the model does.
    assert fitted.error_after_percent < 0.4 * fitted.error_before_percent
    text = fitted.file.to_yaml()
    path = measured.with_name("calibration.yaml")
    path.write_text(text)
    again = read_calibration(path)
    assert again.calibration == fitted.file.calibration
    assert (again.gpu, again.triton, again.l2) == ("h200-sxm", one.triton, "warm")


@pytest.mark.compiles
@pytest.mark.one_triton
def test_comparison_knows_the_best(spec: Path, measured: Path) -> None:
    with service() as one:
        found = compare(read_times(measured), read_kernel_input(str(spec)), H200, one)
    assert (found.points, found.configs, found.cases) == (24, 2, 3)
    by_name = {r.name: r for r in found.splits}
    # Best is always the most splits, 4. BLOCK 256: 16 tiles, 4 a split, 3 + 0.5 x 4 = 5 us; BLOCK 512: 8 tiles, 4 us.
    # TARGET 16 is nsplit 2 at batch 8 (8 and 4 tiles: 7 and 5 us) and 1 at 64 and 512 (16 and 8 tiles: 11 and 7 us):
    # 40, 25, 120, 75, 120, 75 %, whose mean is 75.83.
    assert by_name["the default"].mean == pytest.approx(75.833, abs=0.01)
    assert by_name["the default"].worst == pytest.approx(120)
    # TARGET_CTAS 256, floor: 256 // 8 = 32 -> 4 splits, 256 // 64 = 4, 256 // 512 -> 1: 0, 0, 0, 0, 120, 75 %.
    assert by_name["TARGET_CTAS=256, floor"].mean == pytest.approx(195 / 6)
    assert by_name["TARGET_CTAS=256, floor"].within_5 == pytest.approx(100 * 4 / 6)
    settings = {r.name: r for r in found.settings}
    # Everything together: BLOCK 512 at nsplit 4 is best at 5 - 1 = 4 + ... = 3 + 0.5 x 2 = 4 us in each case.
    assert settings["the default"].mean == pytest.approx(100 * ((5 / 4 - 1) + 2 * (7 / 4 - 1)) / 3)
    assert all(m.best["nsplit"] == 4 and m.best["BLOCK"] == 512 and m.best_us == 4 for m in found.missed)


@pytest.mark.compiles
@pytest.mark.one_triton
def test_times_of_something_else_are_refused(spec: Path, measured: Path) -> None:
    times = read_times(measured)
    given = read_kernel_input(str(spec))

    def with_header(**changed: object) -> Times:
        return Times(times.path, dataclasses.replace(times.header, **changed), times.rows)

    with service() as one:
        with pytest.raises(InputError, match="not on h100-sxm"):
            calibrate(times, given, load_gpu("h100-sxm"), one)
        for asks in (calibrate, compare):
            with pytest.raises(InputError, match=r"times.jsonl:1: .*with Triton 2\.0"):
                asks(with_header(triton="2.0"), given, H200, one)
            with pytest.raises(InputError, match=r"times.jsonl:1: device is 'NVIDIA A100'"):
                asks(with_header(device="NVIDIA A100"), given, H200, one)
        with pytest.raises(InputError, match="source has changed"):
            calibrate(with_header(source_sha256="0" * 64), given, H200, one)
        # A study may take them all the same, and is told.
        found = measured_kernel(with_header(triton="2.0"), given, H200, one, same_triton=False)
        assert "with Triton 2.0" in found.notes[0]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_command_lines(spec: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibration.yaml"
    result = CliRunner().invoke(app, ["calibrate", str(measured), "-o", str(out)])
    assert result.exit_code == 0, result.output
    fitted = CliRunner().invoke(app, ["calibrate", str(measured), "-o", str(out), "--format", "json"])
    assert valid_report(fitted.stdout)["calibration"]["rows"] == 24
    assert "error of predicted times (rms over 24 points)" in result.output and SCHEMA in out.read_text()
    arguments = ["recommend", str(spec), "--batch", "64", "--format", "json", "--calibration", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--gpu", "h200"])
    # The formula: 3 + 0.5 x tiles a split. The best is BLOCK 512 at 4 splits: 3 + 0.5 x 2 = 4 us; the default is 7 us.
    found = json.loads(result.stdout)["recommendation"]
    assert found["config"]["BLOCK"] == 512 and found["nsplit"] == 4
    assert found["predicted_time_us"] == pytest.approx(4, rel=0.1)
    result = CliRunner().invoke(app, [*arguments, "--gpu", "h100"])
    assert result.exit_code != 0 and "another GPU: h200-sxm, not h100-sxm" in str(result.exception)
    result = CliRunner().invoke(app, ["compare", str(measured), "--calibration", str(out)])
    assert result.exit_code == 0, result.output
    assert "the model, calibrated" in result.output and "FlashAttention's heuristic" in result.output
    data = valid_report(CliRunner().invoke(app, ["compare", str(measured), "--format", "json"]).stdout)
    assert data["schema"] == "occupancy/report/1" and data["comparison"]["points"] == 24
    assert data["comparison"]["incumbent"] == "the defaults of the knobs"
    points = data["comparison"]["predictions"]
    assert len(points) == 24
    for point in points:
        # nsplit 1 has the kernel that adds up, too: terms of both, whose times are one after the other.
        low, high = point["interval_us"]
        assert low < point["predicted_us"] < high and len(point["terms"]) == 2
        assert all(terms["launch_us"] == 0.8 for terms in point["terms"])
        # 3 + 0.5 x tiles a split, of 4096 tokens.
        tiles = 4096 // point["names"]["BLOCK"]
        assert point["measured_us"] in {3 + 0.5 * math.ceil(tiles / nsplit) for nsplit in range(1, 5)}
    named = ["compare", str(measured), "--format", "json", "--incumbent"]
    data = valid_report(CliRunner().invoke(app, [*named, "BLOCK=256"]).stdout)["comparison"]
    # The best of BLOCK 256 takes 3 + 0.5 x 4 = 5 us, of all 4 us.
    (of_it,) = [r for r in data["settings"] if r["name"] == "the incumbent"]
    assert data["incumbent"] == "BLOCK=256" and of_it["mean"] == pytest.approx(25.0)
    wrong = CliRunner().invoke(app, [*named, "BLOK=256"])
    assert isinstance(wrong.exception, InputError) and "BLOK" in str(wrong.exception)


def test_a_calibration_is_good_for_one_gpu_kernel_triton_and_l2(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"schema: {SCHEMA}\nkernel: k\nsource_sha256: abc\ngpu: h200-sxm\ntriton: 3.6.0\nl2: warm\n"
        "calibration: {factors: {'k: 4 warps': [1.1, 0.9, 1.0]}, points: 3, fit_error_percent: 2.0, undetermined: []}\n"
    )
    file = read_calibration(path)
    assert file.calibration.factors[0][1].start == 1.1
    same = {"gpu": "h200-sxm", "triton": "3.6.0", "source_sha256": "abc", "cold": False}
    file.check(**same)
    for change, what in (
        ({"gpu": "b200"}, "another GPU: h200-sxm, not b200"),
        ({"triton": "3.9.0"}, "another Triton version: 3.6.0, not 3.9.0"),
        ({"source_sha256": "def"}, "another source of the kernel"),
        ({"cold": True}, "another L2 state: warm, not cold"),
    ):
        with pytest.raises(InputError, match=what):
            file.check(**{**same, **change})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("schema: occupancy/calibration/1", "schema: x"), "is no calibration"),
        (("gpu: h200-sxm\n", ""), "the key 'gpu' is missing"),
        (("gpu: h200-sxm\n", "gpu: h200-sxm\nextra: 1\n"), "unknown key 'extra'"),
        (("points: 3", "points: many"), "the factors cannot be read"),
    ],
)
def test_broken_calibrations_are_named(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    path = tmp_path / "c.yaml"
    text = (
        f"schema: {SCHEMA}\nkernel: k\nsource_sha256: abc\ngpu: h200-sxm\ntriton: 3.6.0\nl2: warm\n"
        "calibration: {factors: {}, points: 3, fit_error_percent: 2.0, undetermined: []}\n"
    )
    path.write_text(text.replace(*change))
    with pytest.raises(InputError, match=problem):
        read_calibration(path)


def test_summary() -> None:
    found = summary("x", [0.0, 10.0, 2.0, 4.0])
    # Sorted 0, 2, 4, 10: the 90th percentile lies at place 0.9 x 3 = 2.7, 4 + 0.7 x (10 - 4) = 8.2.
    assert (found.mean, found.worst, found.within_5, found.groups) == (4.0, 10.0, 75.0, 4)
    assert found.p90 == pytest.approx(8.2)


def test_rules() -> None:
    row = {"grid": [80, 1, 3], "nsplit": 3, "tiles": 32, "tiles_per_split": 11, "ctas_per_sm": 2}
    assert target_floor(256)(row, 132) == 3  # 256 // 80
    assert target_ceil(256)(row, 132) == 4
    assert power_of_two(row, 132) == 2  # 264 / 80 = 3.3
    assert share_of_sms(row, 132) == 2  # 16 / 9 x 132 = 234.7, // 80
    # 80 < 0.8 x 132. Efficiency of s splits, 80 s / 132 over its ceiling: 1: .61, 2: .61, 3: .91, 4: .81, 5: .76, 6:
    # .91, 7: .85, 8: .97, 9: .91, 10: .87, 11: .95, 13: .98, 16: .97, 32: .97 at most; 85 % of .98 is .837: 3 splits.
    assert flash_attention(row, 132) == 3
    assert flash_attention({**row, "grid": [112, 1, 3]}, 132) == 1  # 112 >= 105.6
    rows = [{**row, "nsplit": n, "grid": [80, 1, n]} for n in (2, 4, 8)]
    assert snapped(target_floor(256))(rows, 132)["nsplit"] == 2  # 3 was not measured: down to 2
    assert snapped(target_floor(80))(rows, 132)["nsplit"] == 2  # 1 is below all: the least


def test_spread_takes_both_ends() -> None:
    class Shape:
        def __init__(self, programs: int) -> None:
            self.programs, self.total_iterations, self.working = programs, 1.0, programs

    rows = [
        type("M", (), {"candidate": type("C", (), {"launches": [type("L", (), {"shape": Shape(n)})]})})()
        for n in range(20, 0, -1)
    ]
    chosen = [m.candidate.launches[0].shape.programs for m in spread(rows, 4)]
    assert chosen == [1, 7, 14, 20]  # places 0, 6.33 -> 6, 12.67 -> 13, 19 of 1 .. 20


TWO_WAYS = """
import triton
import triton.language as tl


@triton.jit
def constant(out_ptr, SPLITS: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0) * SPLITS + tl.program_id(1), 1.0)


@triton.jit
def argument(out_ptr, splits):
    tl.store(out_ptr + tl.program_id(0) * splits + tl.program_id(1), 1.0)
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_knob_that_is_a_constexpr_is_compared_like_one_that_is_an_argument(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(TWO_WAYS)
    found = {}
    for name, arguments in (("constant", ""), ("argument", ", splits: {type: i32, value: SPLITS}")):
        spec = tmp_path / f"{name}.yaml"
        spec.write_text(
            f"schema: occupancy/kernel-spec/1\nkernel: k.py:{name}\nshapes: {{batch: 8}}\n"
            "knobs: {SPLITS: {default: 3, values: [2, 4]}}\nderived: {nsplit: SPLITS}\n"
            f'arguments: {{out_ptr: "*fp32"{arguments}}}\nconfigs: [{{num_warps: 4}}]\ngrid: [batch, SPLITS]\n'
        )
        with service() as one:
            header = {
                "schema": "occupancy/times/1", "kernel": spec.name, "gpu": "h200-sxm", "device": "NVIDIA H200",
                "source_sha256": "", "compute_capability": "9.0", "sm_count": 132, "triton": one.triton, "ptxas": "12",
                "torch": "2", "l2": "warm", "cold": False, "launches_per_replay": 1, "replays": 1,
                "identity": ["batch", "SPLITS", "nsplit", "num_warps"],
            }  # fmt: skip
            rows = [
                {"batch": b, "SPLITS": s, "nsplit": s, "num_warps": 4, "grid": [b, s], "us_total": b + 3.0 / s}
                for b in (8, 64)
                for s in (2, 4)
            ]
            times = tmp_path / f"{name}.jsonl"
            times.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
            found[name] = compare(read_times(times), read_kernel_input(str(spec)), H200, one)
    constant, argument = found["constant"], found["argument"]
    assert (constant.configs, constant.cases) == (argument.configs, argument.cases) == (1, 2)
    # One config at each batch: two groups. The default of 3 was not measured, so the split below it, 2, stands for it:
    # 8 + 1.5 over 8 + 0.75 is 8.57 % more at batch 8.
    default = {name: next(r for r in each.splits if r.name == "the default") for name, each in found.items()}
    assert default["constant"] == default["argument"]
    assert default["constant"].groups == 2 and default["constant"].worst == pytest.approx(100 * (9.5 / 8.75 - 1))
