"""What all tests share: a result cache of their own, a kernel folder to write into, and two things that no test may do.

A test that imports Triton, in whatever process, is marked `compiles`, or it fails: the rest is the set that is run
while one works, and stays quick. And no test writes into the tree that it stands in.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from locations import ROOT, TESTS

# Processes that tests start find the package of this tree and note when they import Triton (see `sitecustomize.py`).
_WATCH = TESTS / "triton_watch"
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(_WATCH), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)
# Nor do the knobs of the user's environment reach them.
for _name in ("SGLANG_SM120_MMA_BLOCK_H", "SGLANG_SM120_MMA_TARGET_CTAS", "OCCUPANCY_HW_PROFILES"):
    os.environ.pop(_name, None)
_NOTES = "OCCUPANCY_TESTS_TRITON_NOTES"
# What runs in this process is seen here: the audit hook stays for good, and looks while an unmarked test runs.
_imports_here: list[str] = []
_watching = False


def _watch_this_process(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event == "import" and str(arguments[0]).partition(".")[0] == "triton":
        _imports_here.append("this process")


sys.addaudithook(_watch_this_process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give a test its result cache, and watch an unmarked one with the fixtures that it is the first to ask for."""
    global _watching
    base = _basetemp(item.config)
    if item.get_closest_marker("compiles") is not None:
        # The processes of one test run share it, as users' processes do: what one compiled, the others find.
        shared = base.parent if hasattr(item.config, "workerinput") else base
        os.environ["OCCUPANCY_CACHE_DIR"] = str(shared / "result-cache")
        return (yield)
    # An empty one each: in what others compiled, one that needs a compile would pass for one that needs none.
    os.environ["OCCUPANCY_CACHE_DIR"] = str(base / f"result-cache-{hashlib.sha256(item.nodeid.encode()).hexdigest()}")
    notes = base / "triton-notes"
    notes.unlink(missing_ok=True)
    _imports_here.clear()
    os.environ[_NOTES], _watching = str(notes), True
    try:
        return (yield)
    finally:
        _watching = False
        del os.environ[_NOTES]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail an unmarked test by whose doing Triton was imported."""
    yield
    if not _watching:
        return
    notes = Path(os.environ[_NOTES])
    seen = [*_imports_here, *(notes.read_text().splitlines() if notes.exists() else [])]
    if seen:
        pytest.fail(
            f"{item.nodeid} imports Triton and is not marked: put @pytest.mark.compiles on it "
            f"(in {'; '.join(dict.fromkeys(seen))})",
            pytrace=False,
        )


def _tree() -> dict[str, tuple[int, int]]:
    """Size and time of each file of this tree, but for caches and what is built."""
    found = {}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in ("__pycache__", "build", "dist")]
        for path in (Path(folder) / name for name in files if not name.startswith(".")):
            about = path.stat()
            found[str(path.relative_to(ROOT))] = (about.st_size, about.st_mtime_ns)
    return found


_tree_before: dict[str, tuple[int, int]] = {}


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # a worker of pytest-xdist leaves that to its controller
        _tree_before.update(_tree())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run after which the tree is not as it was."""
    if hasattr(session.config, "workerinput"):
        return
    after = _tree()
    changed = sorted(p for p in _tree_before.keys() | after.keys() if _tree_before.get(p) != after.get(p))
    if changed:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.line("")
            reporter.line(f"A test wrote into the source tree (or you did meanwhile): {', '.join(changed)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _basetemp(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()


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
