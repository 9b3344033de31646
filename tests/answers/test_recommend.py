"""Recommendations end to end: one batch, several, a mix, ragged requests, sweeps, and what is emitted really works."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from locations import ROOT

from occupancy_cli.cli.made_by import made_by
from occupancy_cli.errors import InputError
from occupancy_cli.report import schema
from occupancy_cli.report.emit import FORMS, checked, emitted, read_head
from occupancy_cli.report.provenance import Provenance

MADE = Provenance("occupancy recommend --batch 80,96 --set num_warps=8 --emit configs", "2026-01-02")
pytestmark = [pytest.mark.compiles, pytest.mark.one_triton, pytest.mark.usefixtures("shipped_compiled")]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(shipped_compiled: None) -> schema.Report:
    """Batches 80 and 96 of the shipped kernel on the default GPU, with few configs to keep it quick."""
    return schema.report_from_json(run("recommend", "--batch", "80,96", "--set", "num_warps=8", "--format", "json"))


def test_each_batch_has_its_own_and_all_have_one(report: schema.Report) -> None:
    assert [r.batch for r in report.recommendations] == [80, 96]
    assert report.recommendation is None  # several batches: `recommendations` has them
    single = report.single_setting
    assert single is not None and single.slowdown >= 1
    assert len(single.exports) == 2
    for found in report.recommendations:
        assert len(found.reasons) == 3
        assert found.chosen.predicted_time_us <= found.default.predicted_time_us  # type: ignore[operator]
        fastest = found.pareto[0]
        assert all(p.predicted_time_us >= fastest.predicted_time_us for p in found.pareto)  # type: ignore[operator]
        partials = [p.partials_bytes or 0 for p in found.pareto]
        assert partials == sorted(partials, reverse=True)


def test_the_default_loses_throughput_from_80_to_96_and_the_recommendation_does_not() -> None:
    """The case: 256 // 96 = 2 splits of 16 tiles where 256 // 80 = 3 splits had 11, on the same slots."""
    points = {p["batch"]: p for p in json.loads(run("sweep", "--batch", "80,96", "--format", "json"))["sweep"]}
    assert points[96]["default"]["nsplit"] == 2
    assert points[80]["default"]["nsplit"] == 3
    assert points[96]["default"]["requests_per_s"] < points[80]["default"]["requests_per_s"]
    assert points[96]["best"]["requests_per_s"] > points[96]["default"]["requests_per_s"]


def test_an_anchor_scales_every_time_by_one_factor() -> None:
    plain = json.loads(run("sweep", "--batch", "80,96", "--format", "json"))
    anchored = json.loads(run("sweep", "--batch", "80,96", "--format", "json", "--anchor", "batch=80,ms=51.2"))
    factor = 51_200 / plain["sweep"][0]["default"]["predicted_time_us"]
    assert anchored["sweep"][0]["default"]["predicted_time_us"] == pytest.approx(51_200, rel=1e-4)
    for before, after in zip(plain["sweep"], anchored["sweep"], strict=True):
        for side in ("default", "recommended", "best"):
            scaled = before[side]["predicted_time_us"] * factor
            assert after[side]["predicted_time_us"] == pytest.approx(scaled, rel=1e-3)


def test_a_straggler_is_seen() -> None:
    """One request of 512 tokens among short ones takes as long as its own tiles; even requests of 32 do not."""
    short, straggler = ",".join(["32"] * 40), ",".join(["32"] * 39 + ["512"])

    def time_us(lengths: str) -> float:
        found = json.loads(run("recommend", "--lengths", lengths, "--set", "TARGET_CTAS=1", "--format", "json"))
        return float(found["recommendation"]["chosen"]["predicted_time_us"])

    assert time_us(straggler) > 2 * time_us(short)


def test_sweep_as_csv_and_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run("sweep", "--batch", "80,96", "--format", "csv").splitlines()
    assert rows[0].startswith("batch,setting,BLOCK_H,TARGET_CTAS,BLOCK_T,num_warps")
    assert len(rows) == 1 + 2 * 3
    monkeypatch.setenv("COLUMNS", "70")  # a pipe is as wide as the environment says
    plot = run("sweep", "--batch", "80,96")
    axis = next(line for line in plot.splitlines() if line.strip("- ") == "+")
    assert len(axis) == 70 - 2  # of the width, two columns stay free
    assert "o as it is set now" in plot
    assert "batch 96 is slower in requests per second than batch 80" in plot


def executed(text: str) -> dict[str, Any]:
    """What the emitted Python defines, on its own: it imports what it needs."""
    names: dict[str, Any] = {}
    exec(text, names)  # what a person would paste
    return names


def test_emitted_configs_and_pruning_leave_out_what_cannot_launch(report: schema.Report) -> None:
    names = executed(emitted("configs", report, MADE) + emitted("prune", report, MADE))
    config = names["triton"].Config
    assert names["CONFIGS"]
    every = [config({"BLOCK_T": t}, num_warps=8, num_stages=2) for t in (16, 32, 64)]

    def kept(block_h: int) -> list[int]:
        return [c.kwargs["BLOCK_T"] for c in names["prune_configs"](every, {"heads": 16}, BLOCK_H=block_h)]

    assert kept(16) == [16, 32, 64]
    assert kept(32) == [16, 32]  # 64 rows at BLOCK_H 32 need 102,400 of 101,376 bytes
    assert [c.kwargs["BLOCK_T"] for c in names["prune_configs"](every, {}, BLOCK_H=7)] == [16, 32, 64]  # unknown: all


def test_the_emitted_lookup_is_static(report: schema.Report) -> None:
    setting_for = executed(emitted("function", report, MADE))["setting_for"]
    assert setting_for(1) == setting_for(80) != {}
    assert setting_for(81) == setting_for(96) == setting_for(4000)
    table = json.loads(emitted("table", report, MADE))
    assert table["batches"]["80"] == setting_for(80)
    assert table["gpu"] == "rtx-pro-6000-workstation"


def test_exports_are_the_single_setting(report: schema.Report) -> None:
    assert report.single_setting is not None
    text = emitted("exports", report, MADE)
    assert text.splitlines()[-2:] == report.single_setting.exports
    shown = "echo $SGLANG_SM120_MMA_BLOCK_H $SGLANG_SM120_MMA_TARGET_CTAS"
    done = subprocess.run(["sh", "-eu", "-c", f"{text}{shown}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(report.single_setting.knobs[n]) for n in ("BLOCK_H", "TARGET_CTAS")]


@pytest.mark.parametrize("form", FORMS)
def test_all_that_is_emitted_begins_with_what_it_was_made_from(form: str, report: schema.Report) -> None:
    text = emitted(form, report, MADE)
    head = read_head(text, "file")
    assert list(head) == ["kernel", "sha256", "gpu", "tools", "error", "command", "date"]
    assert head["kernel"] == "sparse_mla_decode" and (head["command"], head["date"]) == (MADE.command, MADE.date)
    assert head["gpu"] == "RTX PRO 6000 Blackwell Workstation Edition (rtx-pro-6000-workstation), warm L2"
    assert re.fullmatch(r"[0-9a-f]{64} of its files and spec", head["sha256"])
    assert re.fullmatch(r"Triton \d\S+, ptxas \d\S+, occupancy \d\S+", head["tools"]) and head["error"].startswith("±")
    if form != "table":
        assert text.startswith("# Written by ")
    same = checked(text, "file", form, report, dataclasses.replace(MADE, date="2026-12-31"))
    assert same.holds and same.exit_code == 0 and same.changed == []
    # Another layout of the same Python is the same; another value is not.
    if form in ("configs", "prune", "function"):
        laid_out = ast.unparse(ast.parse(text))
        head_lines = [line for line in text.splitlines() if line.startswith("# ")]
        assert checked("\n".join(["X = 1", *head_lines, laid_out]), "file", form, report, MADE).holds
    body = re.sub(r"(BLOCK_\w\W{1,3})\d+", r"\g<1>7", text)
    other = checked(body, "file", form, report, MADE)
    assert body != text and not other.holds and other.exit_code == 1 and other.changed


def test_a_file_is_asked_whether_it_still_holds(tmp_path: Path) -> None:
    question = ["recommend", "--batch", "80", "--set", "num_warps=8", "--set", "BLOCK_H=16"]
    file = tmp_path / "configs.py"
    file.write_text(run(*question, "--emit", "configs"))
    date = f"# date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    assert date in file.read_text()
    assert (
        "# command: occupancy recommend --batch 80 --set num_warps=8 --set BLOCK_H=16 --emit configs\n"
        in file.read_text()
    )
    assert run("recommend", "--check-emitted", str(file)).startswith(f"{file}: still what would be emitted\nnote:")

    def asked(*more: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "occupancy_cli", "recommend", "--check-emitted", str(file), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        return done.returncode, done.stdout, done.stderr

    text = file.read_text()
    file.write_text(text.replace("num_warps=8", "num_warps=4").replace("--set num_warps=4", "--set num_warps=8"))
    code, out, _ = asked()
    assert code == 1 and "no longer what would be emitted" in out and "num_warps=4" in out
    valid = json.loads(asked("--format", "json")[1])["emitted"]
    assert valid["holds"] is False and valid["now"]["kernel"] == "sparse_mla_decode"
    for spoiled, said in (
        ("x = 1\n", "has no head"),
        (text.replace("recommend --batch", "recommend --executor dask://x:1 --batch"), "--executor is none of"),
        (text.replace("command: occupancy recommend", "command: rm -rf"), "is no such command"),
    ):
        file.write_text(spoiled)
        code, _, err = asked()
        assert code == 2 and said in err
    file.write_text(text)
    code, _, err = asked("--batch", "96")
    assert code == 2 and "--batch 96 is given too" in err


def test_the_date_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert made_by(["recommend", "a b"]) == Provenance("occupancy recommend 'a b'", "1970-01-02")


def test_nothing_to_emit_is_an_error() -> None:
    with pytest.raises(InputError, match="no recommendation"):
        emitted("table", schema.Report(command="check", toolchain=schema.Toolchain(occupancy="0")), MADE)
