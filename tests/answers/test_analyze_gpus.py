"""One kernel on several GPUs: a part for each in the Report, one table for people."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT
from report_schema import valid_report

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]
SPEC = """
schema: occupancy/kernel-spec/1
kernel: small.py:plain
shapes: {n: 64}
arguments: {x_ptr: "*fp32", n: {type: i32, value: n}}
configs: [{num_warps: 2}, {num_warps: 8}]
grid: [sm_count * 2]
"""


def test_gpus_stand_side_by_side(kernel_file: Path) -> None:
    (kernel_file.parent / "small.yaml").write_text(SPEC)

    def run(*arguments: str) -> str:
        asked = ["analyze", "small.yaml", "--gpu", "h200", "--gpu", "5090", *arguments]
        done = subprocess.run(
            [sys.executable, "-m", "occupancy_cli", *asked],
            capture_output=True, text=True, check=False, cwd=kernel_file.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    report = valid_report(run("--format", "json"))
    assert report["gpu"] is None
    assert [k["gpu"]["id"] for k in report["kernels"]] == ["h200-sxm", "rtx-5090"]
    # Each has its own grid: 132 and 170 SMs. 2 warps a CTA and 32 CTAs of an SM are 64 of 64 warps on an H200; a 5090
    # has 48 warps, which are 24 such CTAs.
    assert [k["configs"][0]["launch"]["grid"] for k in report["kernels"]] == [[264], [340]]
    assert [k["configs"][0]["occupancy"]["ctas_per_sm"] for k in report["kernels"]] == [32, 24]
    rows = [line.split() for line in run().splitlines() if re.match(r"\s+(H200|GeForce)", line)]
    # Config by config, the GPUs beside one another.
    assert [(row[0], row[row.index("yes") - 4]) for row in rows] == [
        ("H200", "2"), ("GeForce", "2"), ("H200", "8"), ("GeForce", "8"),
    ]  # fmt: skip
    assert json.loads(run("--gpu", "h200", "--format", "json"))["kernels"][0]["gpu"]["id"] == "h200-sxm"
