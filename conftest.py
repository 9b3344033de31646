"""What both suites share, `tests/` and `validation/`: a result cache of their own, and what no test may do.

A test that imports Triton, in whatever process, is marked `compiles`, or it fails: the rest, without what is marked
`slow`, is the set that is run while one works (`-m "not compiles"`), and stays quick. And no test writes into the tree
that it stands in. `testing/` has what their processes share.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent

# Processes that tests start find the package of this tree and note when they import Triton (see `sitecustomize.py`).
_WATCH = ROOT / "testing" / "triton_watch"
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(_WATCH), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)
# Nor do the knobs of the user's environment reach them.
for _name in ("SGLANG_SM120_MMA_BLOCK_H", "SGLANG_SM120_MMA_TARGET_CTAS", "OCCUPANCY_HW_PROFILES"):
    os.environ.pop(_name, None)
_INTERPRETED_S = 300
_COMPILED_S = 600
_NOTES = "OCCUPANCY_TESTS_TRITON_NOTES"
# What runs in this process is seen here: the audit hook stays for good, and looks while an unmarked test runs.
_imports_here: list[str] = []
_watching = False


def _watch_this_process(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event == "import" and str(arguments[0]).partition(".")[0] == "triton":
        _imports_here.append("this process")


sys.addaudithook(_watch_this_process)


def pytest_configure(config: pytest.Config) -> None:
    """`not compiles` asks for the quick set: what takes as long without Triton is left out of it too."""
    if config.option.markexpr == "not compiles":
        config.option.markexpr = "not compiles and not slow"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give a test its result cache, and watch an unmarked one with the fixtures that it is the first to ask for."""
    global _watching
    base = _basetemp(item.config)
    if item.get_closest_marker("compiles") is not None:
        # The processes of one test run share it, as users' processes do: what one compiled, the others find.
        os.environ["OCCUPANCY_CACHE_DIR"] = str(_shared(item.config) / "result-cache")
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


def _shared(config: pytest.Config) -> Path:
    """A folder that all processes of this test run have in common."""
    return _basetemp(config).parent if hasattr(config, "workerinput") else _basetemp(config)


@functools.cache
def _interpreted(cases_file: Path, shared: Path) -> dict[str, dict[str, Any]]:
    # Whichever process of the test run comes first runs the cases; the others wait for what it keeps.
    with (shared / f"{cases_file.stem}.jsonl").open("a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        text = kept.read()
        if not text:
            done = subprocess.run(
                [sys.executable, str(cases_file)], env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
                capture_output=True, text=True, timeout=_INTERPRETED_S, check=False,
            )  # fmt: skip
            if done.returncode:
                pytest.fail(f"{cases_file.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
            text = done.stdout
            kept.write(text)
            kept.flush()
    return {row.pop("case"): row for row in map(json.loads, text.splitlines())}


@pytest.fixture(scope="session")
def shipped_compiled(request: pytest.FixtureRequest) -> None:
    """What the shipped kernel's settings for batches 80 and 96 take is in the result cache: compiled once a test run.

    For tests of answers about it. Whichever process of the run comes first compiles, with all cores; the others wait
    instead of compiling the same beside it.
    """
    shared = _shared(request.config)
    with (shared / "shipped-compiled").open("a+") as done:
        fcntl.flock(done, fcntl.LOCK_EX)
        done.seek(0)
        if done.read():
            return
        subprocess.run(
            [sys.executable, "-m", "occupancy_cli", "sweep", "--batch", "80,96", "--format", "json"],
            env=os.environ | {"OCCUPANCY_CACHE_DIR": str(shared / "result-cache")}, cwd=ROOT, stdout=subprocess.DEVNULL,
            timeout=_COMPILED_S, check=True,
        )  # fmt: skip
        done.write("done")


@pytest.fixture
def interpreted(request: pytest.FixtureRequest) -> Callable[[str], dict[str, dict[str, Any]]]:
    """`interpreted(cases_file)`: the results by case, of a file beside the test that runs once under Triton's
    interpreter. Skips without torch, unless it is required.

    A process of its own: TRITON_INTERPRET has to be set before a kernel's file is imported and would reach every other
    test of this one. A cases file prints one JSON object a case: `{"case": name, ...}`.
    """
    if importlib.util.find_spec("torch") is None:
        message = "torch is not installed: the kernels' numbers were not checked"
        if os.environ.get("OCCUPANCY_REQUIRE_TORCH") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return lambda name: _interpreted(request.path.with_name(name), _shared(request.config))
