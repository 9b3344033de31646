"""The kernels of `validation/kernels` and what times them: specs, points, numbers, and the files that a run writes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.answers.measure import identity_names
from occupancy_cli.answers.measured_points import point_of
from occupancy_cli.answers.times_file import read_times, sources_sha256
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.prepared_kernel import prepare
from occupancy_cli.spec.settings import parse_settings
from testing import interpreter

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]

measure_kinds = interpreter.load_kernel("validation/h200/measure_kinds.py")
KINDS = measure_kinds.read_kinds()
NAMES = [kind.name for kind in KINDS]
GATE = 6.7e-3
# The interpreter cuts an FP32 number that becomes FP8 off where a GPU rounds it: at most an eighth of it, not a half.
LOOSER = {"group_quantize": 0.125}

ROOT = Path(__file__).resolve().parent.parent

Interpreted = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def service() -> Iterator[CompileService]:
    with CompileService(limits=Limits(120, 0), jobs=2) as one:
        yield one


@pytest.mark.parametrize("name", NAMES)
def test_output_is_within_the_gate_of_the_reference(interpreted: Interpreted, name: str) -> None:
    result = interpreted("kind_cases.py")[name]
    assert result["error"] is not None, result
    assert result["error"] <= LOOSER.get(name, GATE)


def test_every_kernel_is_measured_at_shapes_that_are_held_out() -> None:
    fitted = [kind.name for kind in KINDS if kind.about.get("fit")]
    assert len(KINDS) >= 20 and len(KINDS) - len(fitted) >= 7  # whole kernels that nothing is fitted to
    for kind in KINDS:
        fit, held = kind.about.get("fit", []), kind.about["held"]
        assert not fit or len(fit) == len(held)
        assert all(shape not in fit for shape in held)
    assert sum(len(kind.points()) for kind in KINDS) >= 3000


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_points_are_those_of_the_tool(service: CompileService, kind: Any) -> None:
    gpu = load_gpu("h200")
    kernel = prepare(read_kernel_input(str(kind.path)), gpu, service.describe, {}, {})
    assert set(kind.identity) == set(identity_names(kernel))
    assert kind.sources() == sources_sha256([kernel.source, *(site.source for site in kernel.followers)])
    points = kind.points()
    for point in points[:: max(1, len(points) // 7)]:
        row = {n: point.values[n] for n in kind.identity if n in point.values}
        known = point_of(kernel, gpu, row)
        assert [tuple(plan.grid or ()) for plan in known.launches] == [w.grid for w in point.launches]
        for plan, launch in zip(known.launches, point.launches, strict=True):
            assert {a.name: a.value for a in plan.request.arguments if a.value is not None} == dict(launch.numbers)
            given = {**dict(plan.request.constexprs), **dict(plan.request.options)}
            assert {n: given.get(n, v) for n, v in launch.constexprs} == dict(launch.constexprs)


@pytest.mark.parametrize("gpu", ["h200", "sm120"])
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_spec_analyzes_as_it_is(service: CompileService, kind: Any, gpu: str) -> None:
    sets = parse_settings([f"{name}={value}" for name, value in kind.configs()[0].items()])
    report = analyze(read_kernel_input(str(kind.path)), load_gpu(gpu), service, sets)
    assert report.exit_code == 0
    configs = [config for kernel in report.kernels for config in kernel.configs]
    assert configs and all(config.status == "ok" for config in configs), configs


def test_a_run_writes_times_that_the_tool_reads(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    script = Path(__file__).with_name("kind_measured.py")
    command = [sys.executable, str(script), str(tmp_path), "gemm_split_k", "rms_norm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "kinds.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines if line.get("done")} == {"gemm_split_k", "rms_norm"}
    for name, followers in (("gemm_split_k", 1), ("rms_norm", 0)):
        for l2 in ("warm", "cold"):
            times = read_times(tmp_path / "times" / f"{name}.{l2}.jsonl.gz")
            assert times.header.cold == (l2 == "cold") and times.header.gpu == "h200-sxm"
            assert times.rows and times.usable()[0] == list(times.rows)
            measured = [line for line in lines if (line["kind"], line.get("l2")) == (name, l2) and "us_total" in line]
            assert len(measured) == len(times.rows)
            for point, row in zip(times.rows, measured, strict=True):
                assert row["use"] == "fit" and row["relative_error"] < GATE
                # 10 us a launch, a graph of 50 of them or as many as there are copies, the clock never changing.
                assert (row["us_split"], row["us_total"]) == (10.0, 10.0 * (1 + followers))
                assert (point.figures.us_split, point.figures.us_total) == (row["us_split"], row["us_total"])
                assert row["quartiles_us"] == [row["us_total"]] * 2 and row["spread_percent"] == 0
                assert len(row.get("followers", ())) == followers
                assert (point.figures.copies > 1) == (row["copies"] > 1) == (l2 == "cold")
