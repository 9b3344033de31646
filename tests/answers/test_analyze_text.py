"""A kernel as a compiler wrote it: TTIR and TTGIR are compiled on, PTX goes to ptxas, a cubin is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from locations import ROOT
from report_schema import valid_report

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]
TTIR = """
module {
  tt.func public @scale(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %y: !tt.ptr<f32> {tt.divisibility = 16 : i32}) {
    %at = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %from = tt.addptr %xs, %at : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %v = tt.load %from : tensor<1024x!tt.ptr<f32>>
    %d = arith.addf %v, %v : tensor<1024xf32>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %to = tt.addptr %ys, %at : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    tt.store %to, %d : tensor<1024x!tt.ptr<f32>>
    tt.return
  }
}
"""
COMPILE = """
import json, sys
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
done = triton.compile(sys.argv[1], target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
here = Path(sys.argv[1]).parent
for kind in ("ttgir", "ptx"):
    (here / f"scale.{kind}").write_text(done.asm[kind])
(here / "scale.cubin").write_bytes(done.asm["cubin"])
(here / "kept.json").write_text(json.dumps({"name": "scale", "shared": done.metadata.shared, "num_warps": 8}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TTIR, and what Triton makes of it for an H100 with 8 warps."""
    made = tmp_path_factory.mktemp("dump")
    (made / "scale.ttir").write_text(TTIR)
    env = {**os.environ, "TRITON_CACHE_DIR": str(made / "triton")}
    subprocess.run([sys.executable, "-c", COMPILE, str(made / "scale.ttir")], check=True, env=env)
    return made


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OCCUPANCY_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", "analyze", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env=env,
    )  # fmt: skip


def config_of(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    report = valid_report(done.stdout)
    (kernel,) = report["kernels"]
    assert kernel["name"] == "scale"
    return report["gpu"], kernel["configs"][0]


def test_each_form_of_a_kernel_has_the_same_answer(folder: Path) -> None:
    found = {}
    for kind, more in (
        ("ttir", ["--set", "num_warps=8", "--gpu", "sm90"]),
        ("ttgir", []),
        ("ptx", ["--set", "shared_bytes=0"]),
        ("cubin", ["--set", "shared_bytes=0", "--set", "num_warps=8"]),
    ):
        gpu, config = config_of(run(folder, f"scale.{kind}", *more, "--format", "json"))
        assert gpu["compute_capability"] == "9.0"
        found[kind] = config["resources"]
    assert found["ttir"]["threads_per_cta"] == 256 and found["ttir"]["registers_per_thread"] > 0
    assert all(resources == found["ttir"] for resources in found.values())


def test_what_a_file_does_not_say_is_asked_for_or_read_beside_it(folder: Path) -> None:
    done = run(folder, "scale.cubin")
    assert done.returncode == 2
    assert "cubin does not say shared_bytes and num_warps" in done.stderr
    assert "--set shared_bytes=VALUE --set num_warps=VALUE" in done.stderr
    beside = folder / "scale.json"
    beside.write_bytes((folder / "kept.json").read_bytes())
    try:
        _, config = config_of(run(folder, "scale.cubin", "--gpu", "h200", "--grid", "sm_count,2", "--format", "json"))
    finally:
        beside.unlink()
    assert config["resources"]["threads_per_cta"] == json.loads((folder / "kept.json").read_text())["num_warps"] * 32
    assert config["launch"]["grid"] == [132, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scale.ttgir", "--gpu", "5090"], "it is for sm_90, and GeForce RTX 5090 is sm_120"),
        (["scale.ttgir", "--set", "num_warps=4"], "unknown setting of a launch of TTGIR 'num_warps'"),
        (["scale.ttgir", "--arg", "x=*fp32"], "a compiled kernel takes no --arg"),
        (["none.ttgir"], "no such file"),
        (["empty.ttgir"], "it has no public tt.func"),
        (["empty.cubin"], "not a readable cubin"),
        (["empty.ptx"], "PTX with 0 kernels"),
    ],
)
def test_what_cannot_be_answered_says_why(folder: Path, arguments: list[str], said: str) -> None:
    for kind in ("ttgir", "cubin", "ptx"):
        (folder / f"empty.{kind}").write_text("// nothing\n")
    done = run(folder, *arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
