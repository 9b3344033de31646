"""What the tests of the package share: a kernel file to write into, a compile service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.worker_client import Limits


@pytest.fixture(scope="module")
def service() -> Iterator[CompileService]:
    """A compile service for the tests of a module, whose worker has Triton imported. It keeps nothing."""
    with CompileService(limits=Limits(120, 0), jobs=1) as one:
        yield one


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    """A small Triton kernel with an autotuner and a heuristic, in a file of its own."""
    path = tmp_path / "small.py"
    path.write_text(SMALL_KERNEL)
    return path


SMALL_KERNEL = """
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (2, 4)],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + at)
    else:
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x * factor, mask=at < n)


@triton.jit
def plain(x_ptr, n, BLOCK: tl.constexpr = 32):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
