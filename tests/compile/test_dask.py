"""Compiles on another engine: a real dask scheduler and two workers on loopback, one of them killed mid-run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dask, pytest.mark.compiles, pytest.mark.one_triton]

if os.environ.get("OCCUPANCY_REQUIRE_DASK") != "1":
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")

KERNEL = """
import os, time, triton
import triton.language as tl

with open(os.environ["SEEN"], "a") as seen:
    seen.write("loaded\\n")

def waited(args):
    time.sleep(float(os.environ.get("WAIT", "0")))
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"block {args['BLOCK']}\\n")
    return 1

@triton.heuristics({"ONE": waited})
@triton.jit
def copy(x_ptr, BLOCK: tl.constexpr, ONE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * ONE)
"""
BLOCKS = [16, 32, 64, 128, 256, 512]


class Cluster:
    """A scheduler and two single-threaded workers, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "copying.py").write_text(KERNEL)
        self.env = {**os.environ, "SEEN": str(folder / "seen"), "WAIT": "1.5"}
        self.env["OCCUPANCY_CACHE_DIR"] = str(folder / "cache")
        arguments = ["--port", "0", "--no-dashboard", "--host", "127.0.0.1"]
        arguments += ["--scheduler-file", str(folder / "scheduler.json")]
        self.scheduler = self._start("distributed.cli.dask_scheduler", *arguments)
        for _ in range(300):
            if (folder / "scheduler.json").exists() and (folder / "scheduler.json").read_text().strip():
                break
            time.sleep(0.1)
        self.address = json.loads((folder / "scheduler.json").read_text())["address"].removeprefix("tcp://")
        arguments = [f"tcp://{self.address}", "--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory"]
        self.workers = [
            self._start("distributed.cli.dask_worker", *arguments, str(folder / f"worker{i}")) for i in range(2)
        ]

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env=self.env, cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def seen(self) -> list[str]:
        path = self.folder / "seen"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_worker_killed_mid_run_loses_and_doubles_nothing(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "occupancy_cli", "analyze", "copying.py:copy", "--arg", "x_ptr=*fp32"]
    command += ["--set", "BLOCK=" + ",".join(map(str, BLOCKS)), "--format", "json"]
    process = subprocess.Popen(
        [*command, "--executor", f"dask://{cluster.address}"], env=cluster.env, cwd=cluster.folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(900):
        if sum(line.startswith("block") for line in cluster.seen()) >= 2:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    cluster.workers[0].kill()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    configs = json.loads(out)["kernels"][0]["configs"]
    assert [c["config"]["BLOCK"] for c in configs] == BLOCKS
    assert {c["status"] for c in configs} == {"ok"}
    # A config may have been begun twice (once on the worker that died), never more often.
    begun = [line for line in cluster.seen() if line.startswith("block")]
    assert set(begun) == {f"block {b}" for b in BLOCKS}
    assert len(begun) <= len(BLOCKS) + 2


def test_a_scheduler_that_is_not_there_is_one_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "occupancy_cli", "analyze", "--executor", "dask://127.0.0.1:1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "no dask scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_cluster_of_the_documents_compiles(tmp_path: Path) -> None:
    """The example of docs/how-to/distributed.md, a LocalCluster with two worker processes, as it stands there."""
    from console_blocks import blocks_of
    from locations import ROOT

    (example,) = (b for b in blocks_of(ROOT / "docs" / "how-to" / "distributed.md") if b.file)
    (tmp_path / example.file).write_text(example.text)
    done = subprocess.run(
        [sys.executable, example.file], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[b, "ok"] for b in ("128", "256", "512", "1024")]
