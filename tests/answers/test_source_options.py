"""The launch that a kernel's file makes is the one that is answered; what is not read leaves a check undecided."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from locations import ROOT

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]

HEAD = "import triton\nimport triton.language as tl\n"
BODY = """
@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: k.py:add
shapes: {n: 4096}
arguments: {x: "*fp32", out: "*fp32", n: {type: i32, value: n}}
constexprs: {BLOCK: 256}
grid: ["ceil_div(n, BLOCK)"]
"""
FLAGS = ("--arg", "x=*fp32", "--arg", "out=*fp32", "--arg", "n=i32=4096")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OCCUPANCY_CACHE_DIR": str(cwd / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, env=env,
    )  # fmt: skip


def kernel_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads(done.stdout)["kernels"]
    return kernel


def test_the_launch_in_the_file_is_answered_and_said(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(HEAD + BODY + "\ndef go(x):\n    add[(16,)](x, x, 4096, BLOCK=512, num_warps=2)\n")
    kernel = kernel_of(run("analyze", "k.py:add", *FLAGS, "--format", "json", cwd=tmp_path))
    (config,) = kernel["configs"]
    assert (config["config"]["BLOCK"], config["resources"]["threads_per_cta"]) == (512, 64)
    assert kernel["notes"] == [
        "launched in k.py:10 with BLOCK 512, num_warps 2",
        "defaults: num_stages 3 (launches in the file give none)",
    ]
    assert kernel["not_read"] == []
    # A spec's own constexprs win over the launch's.
    (tmp_path / "k.yaml").write_text(SPEC)
    (config,) = kernel_of(run("analyze", "k.yaml", "--format", "json", cwd=tmp_path))["configs"]
    assert (config["config"]["num_warps"], config["launch"]["grid"]) == (2, [16])


def test_where_nothing_gives_options_the_answer_says_defaults(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(HEAD + BODY)
    kernel = kernel_of(run("analyze", "k.py:add", *FLAGS, "--set", "BLOCK=64", "--format", "json", cwd=tmp_path))
    assert kernel["notes"] == ["defaults: num_warps 4, num_stages 3 (nothing in the file gives options)"]
    both = ("--set", "num_warps=8", "--set", "num_stages=2")
    kernel = kernel_of(run("analyze", "k.py:add", *FLAGS, "--set", "BLOCK=64", *both, "--format", "json", cwd=tmp_path))
    assert kernel["notes"] == []


@pytest.mark.parametrize(
    ("around", "launch", "word"),
    [
        ("from no_such_tuner import tune\n@tune(plan='fast')", "", "@tune"),
        ("from no_such_tuner import entry\n@entry()", "", "@entry"),
        ("", "def go(x, w):\n    add[(16,)](x, x, 4096, BLOCK=256, num_warps=w)\n", "num_warps=w"),
    ],
)
def test_what_is_not_read_is_named_and_check_ends_undecided(
    tmp_path: Path, around: str, launch: str, word: str
) -> None:
    (tmp_path / "k.py").write_text(HEAD + around + BODY + launch)
    (tmp_path / "k.yaml").write_text(SPEC)
    kernel = kernel_of(run("analyze", "k.yaml", "--format", "json", cwd=tmp_path))
    assert [word in text for text in kernel["not_read"]] == [True]
    checked = run("check", "k.yaml", "--format", "json", cwd=tmp_path)
    assert checked.returncode == 2
    findings = json.loads(checked.stdout)["findings"]
    assert [f["rule"] for f in findings if f["level"] == "undecided"] == ["not-read"]
    # A person who lists the configs has decided it.
    (tmp_path / "k.yaml").write_text(SPEC + "configs: [{num_warps: 4, num_stages: 2}]\n")
    assert run("check", "k.yaml", cwd=tmp_path).returncode == 0


def test_check_leaves_out_what_the_kernel_prunes(tmp_path: Path) -> None:
    tuner = """
def small(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= 256]


@triton.autotune([triton.Config({"BLOCK": b}) for b in (128, 256, 1 << 30)], ["n"],
                 prune_configs_by={"early_config_prune": small})"""
    (tmp_path / "k.py").write_text(HEAD + tuner + BODY)
    text = SPEC.replace("constexprs: {BLOCK: 256}\n", "configs: autotune\n")
    (tmp_path / "k.yaml").write_text(text)
    checked = run("check", "k.yaml", "--format", "json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    findings = json.loads(checked.stdout)["findings"]
    (pruned,) = [f for f in findings if f["rule"] == "pruned"]
    assert pruned["level"] == "note" and "1 of 3 configs" in pruned["message"]
    assert [f["config"]["BLOCK"] for f in findings if f["rule"] == "shared-memory-cap"] == [128, 256]


def test_recommend_tries_what_the_kernel_keeps(tmp_path: Path) -> None:
    tuner = """
def wide_for_many(configs, named_args, **kwargs):
    return [c for c in configs if (c.kwargs["BLOCK"] > 128) == (named_args["n"] > 4096)]


@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 128, 256)], ["n"],
                 prune_configs_by={"early_config_prune": wide_for_many})"""
    (tmp_path / "k.py").write_text(HEAD + tuner + BODY)
    spec = SPEC.replace("constexprs: {BLOCK: 256}\n", "configs: autotune\n").replace("n: 4096", "n: 4096, batch: 4096")
    (tmp_path / "k.yaml").write_text(spec.replace("value: n}", "value: batch}") + "work: {iterations: 1}\n")
    done = run("recommend", "k.yaml", "--batch", "4096,8192", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tried = [sorted(c["BLOCK"] for c in each["launchable"]) for each in report["recommendations"]]
    assert tried == [[64, 128], [256]]
    assert "prune_configs_by leaves out 3 of 6 candidates" in report["notes"]
    # What --set asks for is tried, whatever warps the autotuner's configs have.
    asked = run("analyze", "k.yaml", "--set", "num_warps=2", "--format", "json", cwd=tmp_path)
    notes = [config["notes"] for config in kernel_of(asked)["configs"]]
    assert [len(each) for each in notes] == [0, 0, 1]


def test_a_notebook_is_a_module_of_its_definitions(tmp_path: Path) -> None:
    cells = [HEAD, "%time x = 1\nraise SystemExit(3)", "SIZE = tl.constexpr(64)\nunused = open('/nonexistent')"]
    cells.append(BODY.replace("* BLOCK +", "* BLOCK * SIZE // 64 +"))
    book = {"cells": [{"cell_type": "code", "source": c.splitlines(keepends=True)} for c in cells]}
    (tmp_path / "my book.ipynb").write_text(json.dumps(book))
    done = run("analyze", "my book.ipynb:add", *FLAGS, "--set", "BLOCK=64", "--format", "json", cwd=tmp_path)
    (config,) = kernel_of(done)["configs"]
    assert config["resources"]["registers_per_thread"] > 0


MADE = """
def make(width, dtype):
    WIDTH = tl.constexpr(width)
    DTYPE = tl.constexpr(dtype)

    @triton.jit
    def kernel(x, out, n):
        i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
        tl.store(out + i, tl.load(x + i, mask=i < n).to(DTYPE), mask=i < n)

    def launch(x, out, n):
        kernel[(n // width,)](x, out, n, num_warps=2)

    return launch
"""


@pytest.mark.one_triton
def test_a_kernel_that_a_function_makes(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(HEAD + MADE)
    (tmp_path / "k.yaml").write_text(
        SPEC.replace("k.py:add", "k.py:make(512, tl.float16).kernel").replace("constexprs: {BLOCK: 256}\n", "")
        .replace("BLOCK", "512")
    )  # fmt: skip
    kernel = kernel_of(run("analyze", "k.yaml", "--format", "json", cwd=tmp_path))
    (config,) = kernel["configs"]
    assert (config["resources"]["threads_per_cta"], config["launch"]["grid"]) == (64, [8])
    assert kernel["notes"][0].startswith("launched in k.py:14 with num_warps 2")
    # Its name alone says what is missing.
    done = run("analyze", "k.py:kernel", *FLAGS, cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "made inside the function make (line 9)" in done.stderr and "make(width=..., dtype=...).kernel" in done.stderr
    )
