"""The gate inside pytest, run as people run it: in a project of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""
SPEC = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:add
arguments: {x_ptr: "*fp32", n: {type: i32, value: 4096}}
constexprs: {BLOCK: 64}
configs:
  - {num_warps: 1}
  - {num_warps: 2}
"""
TESTS = """
import pytest


def test_ordinary():
    assert True


def test_fits(occupancy_fits):
    report = occupancy_fits("kernels/add.yaml", gpu=["h200"], max_spill_bytes=0)
    assert [f.level for f in report.findings] == ["ok"] * 4


def test_by_flags(occupancy_fits):
    occupancy_fits("kernels/ops.py:add", gpu="h200", arguments=["x_ptr=*fp32", "n=i32=4096"], sets={"BLOCK": 64})


def test_does_not_fit(occupancy_fits):
    occupancy_fits("kernels/add.yaml", gpu="h200", max_registers_per_thread=1)


def test_typo(occupancy_fits):
    occupancy_fits("kernels/add.yaml", gpu="h200", max_registers=1)
"""
PROJECT = '[tool.occupancy]\ninclude = ["kernels"]\ngpus = ["h200"]\n'


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Loaded by its name, so that the plugin of this tree is tested whatever is installed.
    plugin = ("-p", "no:occupancy", "-p", "occupancy_cli.cli.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "ops.py").write_text(KERNEL)
    (tmp_path / "kernels" / "add.yaml").write_text(SPEC)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


@pytest.mark.compiles
@pytest.mark.one_triton
def test_an_item_for_each_config_beside_the_ordinary_tests(project: Path) -> None:
    (project / "kernels" / "bad.yaml").write_text("schema: occupancy/kernel-spec/1\nkernel: [\n")
    done = run(project, "--occupancy", "-v", "-p", "no:randomly")
    lines = done.stdout.splitlines()
    results = {line.split(" ")[0]: line.split()[1] for line in lines if "::" in line and " " in line and "%" in line}
    assert results == {
        "test_it.py::test_ordinary": "PASSED",
        "test_it.py::test_fits": "PASSED",
        "test_it.py::test_by_flags": "PASSED",
        "test_it.py::test_does_not_fit": "FAILED",
        "test_it.py::test_typo": "FAILED",
        "kernels/add.yaml::add[H200_SXM-num_warps:1-num_stages:3]": "PASSED",
        "kernels/add.yaml::add[H200_SXM-num_warps:2-num_stages:3]": "PASSED",
        "kernels/bad.yaml::input": "FAILED",
    }, done.stdout
    assert "kernels/bad.yaml:3: not valid YAML" in done.stdout
    assert "registers per thread, budget at most 1 (--budget)" in done.stdout
    assert "Did you mean max_registers_per_thread" in done.stdout
    assert done.returncode == 1


@pytest.mark.compiles
@pytest.mark.one_triton
def test_kernels_alone_and_some_of_them(project: Path) -> None:
    done = run(project, "--occupancy", "-q", "-m", "occupancy", "-k", "num_warps:2")
    assert "1 passed, 6 deselected" in done.stdout, done.stdout
    done = run(project, "-q", "--collect-only")
    assert "5 tests collected" in done.stdout  # without the flag nothing of ours


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--occupancy-path=nowhere"], "nowhere: no such file"),
        (["--occupancy-gpu=h2000"], "unknown GPU 'h2000'"),
    ],
)
def test_what_was_typed_wrong_is_a_usage_error(project: Path, arguments: list[str], says: str) -> None:
    done = run(project, "--occupancy", *arguments)
    assert done.returncode == 4  # pytest's own for a usage error
    assert says in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
