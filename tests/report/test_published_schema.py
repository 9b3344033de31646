"""The published JSON Schema is what the classes say, and what every command prints with `--format json` is by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fake_cuda import H200, FakeDriver
from locations import ROOT
from report_schema import valid_report
from typer.testing import CliRunner

from occupancy_cli.answers.calculated_rows import Count, answer_rows
from occupancy_cli.cli.app import COMMANDS, app
from occupancy_cli.device import detect
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.report import schema

CALC = ["calc", "--threads", "128", "--regs", "168", "--shared", "61568"]
# A run of each command that needs no compile, and of those that compile one that a test marked so runs.
LIGHT = {
    "calc": [*CALC, "--sweep", "regs"],
    "gpus": ["gpus"],
    "gpus of this machine": ["gpus", "--detect"],
    "init": ["init", "kernels/sparse_mla_decode.py:split_kernel", "-o", "-"],
    "knobs": ["knobs", "kernels"],
    "audit": ["audit", "FOLDER"],
    "cache": ["cache"],
}
COMPILING = {
    "analyze": ["analyze", "--set", "BLOCK_H=16", "--time"],
    "recommend": ["recommend", "--batch", "80,81", "--set", "BLOCK_H=16"],
    "sweep": ["sweep", "--batch", "80,81", "--set", "BLOCK_H=16"],
    "report": ["report", "--batch", "80", "--sweep", "80,81", "--set", "BLOCK_H=16"],
    "check": ["check", "kernels"],
    "doctor": ["doctor"],
}
# Their Reports are read in tests of their own, which have a made-up driver, times or a script to run.
ELSEWHERE = {
    "diff": "tests/answers/test_diff.py",
    "fit": "tests/answers/test_fit.py",
    "explain": "tests/answers/test_explain.py",
    "verify": "tests/answers/test_verify.py",
    "compare": "tests/answers/test_calibrate_compare.py",
    "calibrate": "tests/answers/test_calibrate_compare.py",
    "measure": "tests/answers/test_measure.py",
    "capture": "tests/capture/test_capture_session.py",
    "mcp": "tests/mcp_server/test_mcp_tools.py",
}
NO_REPORT = ("schema", "guide", "plot", "watch", "completion", "manual")


def printed(arguments: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(detect, "driver_library", lambda: FakeDriver(H200))
    given = [str(folder) if a == "FOLDER" else a for a in arguments]
    done = CliRunner().invoke(app, [*given, "--format", "json"])
    assert done.exit_code == 0, (done.output, done.exception)
    report = valid_report(done.stdout)
    assert report["command"] == arguments[0]
    return report


def test_the_published_file_is_current() -> None:
    made = schema.published_text()
    assert schema.PUBLISHED.read_text(encoding="utf-8") == made, "run: python -m occupancy_cli.report.schema"


def test_every_command_is_read_here_or_elsewhere() -> None:
    assert {*(a[0] for a in (*LIGHT.values(), *COMPILING.values())), *ELSEWHERE, *NO_REPORT} == set(COMMANDS)
    assert all((ROOT / path).is_file() and "valid_report" in (ROOT / path).read_text() for path in ELSEWHERE.values())


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_command(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed(LIGHT[name], monkeypatch, tmp_path)


@pytest.mark.compiles
@pytest.mark.parametrize("name", COMPILING)
def test_a_command_that_compiles(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed(COMPILING[name], monkeypatch, tmp_path)


def test_lines_of_calc() -> None:
    rows = ['{"threads": 128, "regs": 168, "shared": 61568, "id": {"a": [1]}}', '{"threads": 128, "gpu": "b200"}', "x"]
    rows.append('{"threads": 128, "shared": 0, "gpu": "b200", "tmem": 33, "num_ctas": 2}')
    row = schema.json_schema("CalculatedRow")
    for line in answer_rows(rows, {}, load_gpu("h200"), load_gpu, Count()):
        jsonschema.validate(json.loads(line), row)
