"""Ctrl-C and kill -9: what is done is printed, no process stays, no file is half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from occupancy_cli.compile.result_cache import ResultCache

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]

SLOW = """
import os, time, triton
import triton.language as tl

@triton.heuristics({"WAIT": lambda args: time.sleep(600) or 1 if args["BLOCK"] == 64 else 1})
@triton.jit
def slow(x_ptr, BLOCK: tl.constexpr, WAIT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * WAIT)
"""


@pytest.fixture
def running(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """`analyze` with one config done and the other never: started, and waited for until the first is in the cache."""
    (tmp_path / "slow.py").write_text(SLOW)
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "occupancy_cli", "analyze", "slow.py:slow", "--arg", "x_ptr=*fp32"]
    process = subprocess.Popen(
        [*command, "--set", "BLOCK=32,64", "--jobs", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "OCCUPANCY_CACHE_DIR": str(cache)},
    )  # fmt: skip
    for _ in range(600):
        if cache.is_dir() and ResultCache(cache).info().records >= 2:  # the description and one config
            return process, tmp_path
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the first config was never compiled")


def children(folder: Path) -> list[str]:
    """Processes that work for this test: those with its folder open as their working directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder and (entry / "stat").read_text().rpartition(")")[2].split()[
                    0
                ] != "Z":
                    found.append(entry.name)
            except OSError:
                continue
    return found


def gone(folder: Path) -> bool:
    for _ in range(100):
        if not children(folder):
            return True
        time.sleep(0.1)
    return False


def test_ctrl_c_prints_what_is_done_and_leaves_nothing(running: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = running
    assert len(children(folder)) >= 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted: what was done by then is above" in out
    assert "not compiled: interrupted" in out
    assert "Traceback" not in out + err
    assert [line for line in out.splitlines() if line.split()[:1] == ["32"] and "yes" in line]
    assert gone(folder)
    assert ResultCache(folder / "cache").info().trouble == ""


SPEC = """
schema: occupancy/kernel-spec/1
kernel: slow.py:slow
shapes: {block: BLOCKS}
arguments: {x_ptr: "*fp32"}
constexprs: {BLOCK: block, WAIT: 1}
"""


def test_after_ctrl_c_nothing_more_is_begun_and_check_says_what_it_knows(tmp_path: Path) -> None:
    """Three specs, the second's config never ends. After Ctrl-C what is known of the others is printed, with 130."""
    (tmp_path / "slow.py").write_text(SLOW)
    for name, block in (("a.yaml", 32), ("b.yaml", 64), ("c.yaml", 16)):
        (tmp_path / name).write_text(SPEC.replace("BLOCKS", str(block)))
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-m", "occupancy_cli", "check", "a.yaml", "b.yaml", "c.yaml", "-j", "2", "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "OCCUPANCY_CACHE_DIR": str(cache)},
    )  # fmt: skip
    for _ in range(600):
        if cache.is_dir() and ResultCache(cache).info().records >= 3:  # what the kernel is, a.yaml's config, c.yaml's
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["interrupted"] is True
    assert [f["level"] for f in report["findings"] if f["level"] != "note"] == ["ok", "undecided", "ok"]
    assert gone(tmp_path)
    assert ResultCache(cache).info().records == 3


def test_kill_9_leaves_no_worker_and_a_sound_cache(running: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = running
    process.kill()
    process.communicate()
    assert gone(folder)
    cache = ResultCache(folder / "cache")
    assert (cache.info().records >= 2, cache.trouble) == (True, "")


def test_kill_9_ends_a_compiler_that_hangs_and_removes_its_files(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    hanging = tmp_path / "ptxas"
    hanging.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo release 12.9, V12.9.86 && exit\necho >> {tmp_path}/begun\nsleep 600\n'
    )
    hanging.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "occupancy_cli", "analyze", "slow.py:slow", "--arg", "x_ptr=*fp32", "--no-cache"]
    process = subprocess.Popen(
        [*command, "--set", "BLOCK=32"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
        env={**os.environ, "TRITON_PTXAS_PATH": str(hanging), "TRITON_PTXAS_BLACKWELL_PATH": str(hanging),
             "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    for _ in range(600):
        if (tmp_path / "begun").exists():
            break
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert gone(tmp_path)
    for _ in range(100):
        if not list((tmp_path / "tmp").iterdir()):
            return
        time.sleep(0.1)
    raise AssertionError(list((tmp_path / "tmp").iterdir()))
