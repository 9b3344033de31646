"""Configs that come to the same TTGIR are compiled once, and each has exactly the result of a compile of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.compiles

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    a = tl.arange(0, 64)
    acc = tl.zeros([64, 64], tl.float32)
    for k in range(0, n, BLOCK):
        x = tl.load(x_ptr + a[:, None] * n + k + tl.arange(0, BLOCK)[None, :])
        acc = tl.dot(x, tl.trans(x), acc)
    tl.store(y_ptr + a[:, None] * 64 + a[None, :], acc)
"""
# A process of its own: what counts ptxas runs, and this file's kernels, must not stay in the test process.
PROBE = """
import json, sys
from triton.backends.nvidia.compiler import CUDABackend
from occupancy_cli.compile import triton_front
from occupancy_cli.compile.shared_allocation import FinishedCompiles
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.loading.target_gpu import target_of
import finished_kernels

calls = []
make_cubin = CUDABackend.make_cubin
CUDABackend.make_cubin = lambda *a, **k: calls.append(1) or make_cubin(*a, **k)
triton_front.install_driver(target_of(load_gpu("h200")))
finished = FinishedCompiles()
out = {}
for name in ("add", "total"):
    kernel = getattr(finished_kernels, name)
    for warps in (2, 4):
        for stages in (2, 3, 4):
            kind = "bf16" if name == "total" else "fp32"
            values = {n: triton_front.TensorStandIn(t, 16) for n, t in (("x_ptr", kind), ("y_ptr", "fp32"))}
            values |= {"n": 4096, "BLOCK": 64, "num_warps": warps, "num_stages": stages}
            each = []
            for known in (finished, None):
                del calls[:]
                found = triton_front.compile_launch(kernel, values, stop_above=None, finished=known)
                plain = {n: v.hex() if isinstance(v, bytes) else v for n, v in found.items()}
                each.append((len(calls), plain))
            out[f"{name} {warps} {stages}"] = [each[0][0], each[1][0], each[0][1] == each[1][1]]
# What is known whole may be asked for up to its shared memory alone.
whole = triton_front.compile_launch(kernel, values, stop_above=0, finished=finished)
out["stopped"] = ["cubin" in whole, whole["shared_bytes"] > 0]
print(json.dumps(out))
"""


def test_equal_ttgir_is_compiled_once_with_the_same_result(tmp_path: Path) -> None:
    import json

    (tmp_path / "finished_kernels.py").write_text(KERNEL)
    (tmp_path / "probe.py").write_text(PROBE)
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_ALWAYS_COMPILE": "1"}
    env["TRITON_DEFAULT_FP_FUSION"] = "1"
    done = subprocess.run(
        [sys.executable, "probe.py"], capture_output=True, text=True, check=False, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("stopped") == [False, True]
    assert all(same for _, _, same in found.values())  # to the byte of the cubin
    assert all(alone == 1 for _, alone, _ in found.values())
    ran = {name: count for name, (count, _, _) in found.items()}
    # Nothing is pipelined in `add`: its stages change nothing. In `total` each number of stages is another kernel.
    assert ran == {f"add {w} {s}": int(s == 2) for w in (2, 4) for s in (2, 3, 4)} | {
        f"total {w} {s}": 1 for w in (2, 4) for s in (2, 3, 4)
    }


def test_what_is_kept_has_an_end() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    from occupancy_cli.compile.shared_allocation import FinishedCompiles

    finished = FinishedCompiles()
    for number in range(FinishedCompiles.MOST + 1):
        finished.add(str(number), {"allocated": "text" if number % 2 else ""})
    assert finished.get("0", with_text=False) is None
    assert finished.get("1", with_text=True) is not None
    assert finished.get("2", with_text=True) is None
    assert finished.get("2", with_text=False) is not None
