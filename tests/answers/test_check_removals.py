"""Taking something away never turns a red gate green: a kernel file, what it imports, the baseline, a GPU's name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]

KERNEL = """
import triton
import triton.language as tl
from steps import plus_one


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, plus_one(tl.load(x_ptr + at, mask=at < n)), mask=at < n)
"""
STEPS = """
import triton


@triton.jit
def plus_one(x):
    return x + 1
"""
SPEC = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:add
arguments: {x_ptr: "*fp32", n: {type: i32, value: 4096}}
configs: [{BLOCK: 64, num_warps: 2}]
"""
# Red by one GPU alone, and by the budget of that GPU.
PROJECT = """\
[tool.occupancy]
include = ["kernels"]
gpus = ["h200", "rtx-pro-6000"]
baseline = "occupancy.lock.json"
budgets = [{ gpus = ["h200"], max_registers_per_thread = 1 }]
"""


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "occupancy_cli", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def delete(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def without(text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "pyproject.toml"
        before = file.read_text()
        file.write_text(re.sub(text, "", before))
        assert file.read_text() != before

    return edit


def kernel_and_spec(folder: Path) -> None:
    shutil.rmtree(folder / "kernels")
    (folder / "kernels").mkdir()


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("red")
    (folder / "kernels").mkdir()
    (folder / "kernels" / "ops.py").write_text(KERNEL)
    (folder / "kernels" / "steps.py").write_text(STEPS)
    (folder / "kernels" / "add.yaml").write_text(SPEC)
    (folder / "pyproject.toml").write_text(PROJECT)
    # The budget is broken while the baseline is written too.
    assert check(folder, "--write-baseline", "occupancy.lock.json").returncode == 1
    assert check(folder).returncode == 1
    return folder


@pytest.mark.parametrize(
    ("take_away", "code"),
    [
        (delete("kernels/ops.py"), 2),
        (delete("kernels/add.yaml"), 2),
        (kernel_and_spec, 2),
        (delete("kernels/steps.py"), 2),
        (delete("occupancy.lock.json"), 2),
        (without('"h200", '), 2),  # the GPU that fails: the baseline still has it
        (without("gpus = .*\n(?=baseline)"), 2),
        (without(', "rtx-pro-6000"'), 1),
        (without("include = .*\n"), 2),
    ],
)
def test_a_red_gate_stays_red(red: Path, tmp_path: Path, take_away: Callable[[Path], None], code: int) -> None:
    folder = tmp_path / "repository"
    shutil.copytree(red, folder)
    take_away(folder)
    done = check(folder)
    assert done.returncode == code, done.stdout + done.stderr
