"""`explain`: maps that add up to the launch's bytes on every Triton, and what a terminal of any width shows."""

from __future__ import annotations

import io
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from locations import DATA, ROOT
from report_schema import valid_report
from rich.console import Console
from small_gemm import small_gemm
from typer.testing import CliRunner

from occupancy_cli.answers.explain import chosen_points
from occupancy_cli.answers.explained import assigned_name, register_use_part, shared_map_part
from occupancy_cli.answers.time_parts import line_times_part
from occupancy_cli.cli.app import app
from occupancy_cli.compile.kernel_explanation import KernelExplanation
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.gpu.sm_rates import sm_rates
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.wait_trace import ColdStart
from occupancy_cli.plan.launch_plan import LaunchPlan
from occupancy_cli.plan.points import Point
from occupancy_cli.readers.line_times import LineTimes, read_line_times
from occupancy_cli.readers.machine_work import traced
from occupancy_cli.readers.register_life import instruction_sources, read_register_use
from occupancy_cli.readers.sass import parse_sass
from occupancy_cli.readers.shared_map import read_shared_map
from occupancy_cli.readers.ttgir import SourceLine
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import render
from occupancy_cli.report.view import View


def _xz(*parts: str) -> str:
    return lzma.open(DATA.joinpath(*parts), "rt").read()


def _times(resources: KernelResources) -> LineTimes:
    text, gpu = _xz("disassembled", "sparse_mla_decode_lines.txt.xz"), load_gpu("rtx-pro-6000")
    code = parse_sass(text)
    found = traced(None, code, gpu, sm_rates(gpu), resources, 2, {1: 8.0}, ColdStart(100.0, 300.0, 300.0))
    assert found is not None
    return read_line_times(code, found, instruction_sources(text, code.name), 2, counted=True)


@pytest.fixture(scope="module")
def recorded() -> Report:
    """A Report made from what the recorded compile left."""
    source = (ROOT / "kernels" / "sparse_mla_decode.py").read_text().splitlines()
    texts = {f"kernels/sparse_mla_decode.py:{n}": line.strip() for n, line in enumerate(source, 1)}
    shared = read_shared_map(_xz("allocated", "sparse_mla_decode_3.9.0.mlir.xz"))
    texts |= {name.replace("kernels/", ""): text for name, text in texts.items()}
    use = read_register_use(
        _xz("disassembled", "sparse_mla_decode_lives.txt.xz"), _xz("disassembled", "sparse_mla_decode_lines.txt.xz")
    )
    resources = KernelResources(50_176, 4, 128, 255, 200)
    config = Config(
        config={"BLOCK_T": 16, "num_warps": 4},
        status="ok",
        fits=True,
        over_bytes=0,
        shared_map=shared_map_part(shared, texts),
        register_use=register_use_part(KernelExplanation(shared, use, texts), resources),
        line_times=line_times_part(_times(resources), texts),
    )
    # Without an occupancy the renderer has no table of configs to show beside it.
    kernel = Kernel(name="decode", source="decode.yaml", kernel="k.py:k", configs=[replace(config, status="failed")])
    return Report(command="explain", toolchain=Toolchain(occupancy="1", triton="3.9.0", ptxas=None), kernels=[kernel])


def _shown(report: Report, width: int, view: View | None = None) -> str:
    out = io.StringIO()
    render(report, Console(file=out, width=width, markup=False, highlight=False), view or View())
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_lost(recorded: Report, width: int) -> None:
    shown = _shown(recorded, width, View(lines=True))
    assert all(len(line) <= width for line in shown.splitlines())
    for said in (
        "50,176 bytes",
        "16,384  query_a 32x256 bf16",
        "operand kept for the loop",
        "v peak",
        "acc_a",
        "critical sequence of an iteration",
        "of LDG.E",
    ):
        assert said in shown, said
    assert "255 allocated, 200 bytes a thread spilled; 245 live at the peak" in " ".join(shown.split())


def test_a_pipe_is_not_a_million_columns_wide(recorded: Report) -> None:
    assert max(map(len, _shown(recorded, 1_000_000).splitlines())) <= 220


def test_buffers_of_the_chart_lie_where_the_map_says(recorded: Report) -> None:
    lines = _shown(recorded, 120).splitlines()
    chart = {line.split()[0]: line.split()[1] for line in lines if len(line.split()) == 2 and "aaaa" in line}
    assert set(chart) == {"0", "128", "4,096", "8,192"}  # query_a: 0 to 16,384, cut where scratch of the end ends
    at = next(line.index("v peak") for line in lines if "v peak" in line)
    weight = next(line for line in lines if line.strip().startswith("49,408"))
    assert weight[at] == "q", "the weights set the peak"


def test_lines_list_what_each_holds(recorded: Report) -> None:
    shown = _shown(recorded, 200, View(lines=True))
    line = next(each for each in shown.splitlines() if each.strip().startswith("225 ") and "acc_a" in each)
    assert "64" in line.split()  # registers of acc_a that live at the peak


def test_a_name_comes_from_the_outermost_line_that_gives_one() -> None:
    texts = {"k.py:3": "return x", "k.py:9": "acc += tl.dot(a, b)", "k.py:5": "y = f(x)", "k.py:7": "if a == b:"}
    assert assigned_name((SourceLine("k.py", 3), SourceLine("k.py", 9)), texts) == "acc"
    assert assigned_name((SourceLine("k.py", 5), SourceLine("k.py", 7)), texts) == "y"
    assert assigned_name((SourceLine("k.py", 7),), texts) == ""


def _point(**config: Any) -> Point:
    return Point({}, {"batch": 8}, config, {}, LaunchPlan(None, (), None, None, {}))  # type: ignore[arg-type]


def test_configs_are_picked_by_their_values() -> None:
    everything = [_point(BLOCK=16, num_warps=4), _point(BLOCK=16, num_warps=8), _point(BLOCK=32, num_warps=8)]
    assert chosen_points(everything, []) == everything
    assert chosen_points(everything, ["BLOCK=16"]) == everything[:2]
    assert chosen_points(everything, ["num_warps=8,BLOCK=32", "BLOCK=16,num_warps=4"]) == [everything[2], everything[0]]
    with pytest.raises(InputError, match="BLOK") as unknown:
        chosen_points(everything, ["BLOK=16"])
    assert "BLOCK" in str(unknown.value)
    with pytest.raises(InputError, match="no config has BLOCK 64"):
        chosen_points(everything, ["BLOCK=64"])
    with pytest.raises(InputError, match="together"):
        chosen_points(everything, ["BLOCK=32,num_warps=4"])
    with pytest.raises(InputError, match="no NAME=VALUE"):
        chosen_points(everything, ["BLOCK"])


@pytest.mark.compiles
def test_every_map_adds_up_on_this_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    command = ["explain", *small_gemm(tmp_path), "--set", "num_stages=3"]
    done = CliRunner().invoke(app, [*command, "--format", "json"])
    assert done.exit_code == 0, (done.output, done.exception)
    report = valid_report(done.stdout)
    (config,) = report["kernels"][0]["configs"]
    found, shared = config["shared_map"], config["resources"]["shared_bytes"]
    assert found["total_bytes"] == shared == max(b["offset"] + b["bytes"] for b in found["buffers"])
    assert all(b["bytes_exact"] for b in found["buffers"])
    # 64 x 64 BF16 are 8,192 bytes a copy; how many copies num_stages 3 keeps is the version's own.
    pipelined = [b for b in found["buffers"] if b["purpose"] == "pipelined load"]
    assert [b["shape"] for b in pipelined] == [[64, 64]] * 2 and all(
        b["bytes"] == 8192 * b["copies"] for b in pipelined
    )
    assert {b["source"]["text"].partition(" ")[0] for b in pipelined} == {"a", "b"}
    use = config["register_use"]
    assert use["peak_live"] <= use["allocated"] == config["resources"]["registers_per_thread"]
    assert sum(h["registers"] for h in use["holders"]) == use["peak_live"]
    times = config["line_times"]
    assert times["covers"] == "cta" and 0 < times["iteration_cycles"] < times["cycles"]
    assert sum(each["percent"] for each in times["lines"]) == pytest.approx(100, abs=1)
    assert sum(link["percent"] for link in times["sequence"]) == pytest.approx(100, abs=1)
    assert [list(t["change"]) for t in config["options_tried"]][:2] == [["num_warps"], ["num_warps"]]
    # Known already: neither explain nor analyze compiles anything, and analyze says what it said before.
    again = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert again["kernels"] == report["kernels"]
