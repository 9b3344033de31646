"""Triton's internals by name and kind: what a Triton that moved one says, before anything is compiled or captured."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from occupancy_cli.compile import triton_internals
from occupancy_cli.compile.triton_internals import INTERNALS, check_internals, require_internals
from occupancy_cli.errors import MissingDependencyError


def test_this_triton_has_all_of_them() -> None:
    assert check_internals() == []


def test_each_is_named_once_for_a_version() -> None:
    for version in ((3, minor) for minor in range(4, 10)):
        there = [one.path for one in INTERNALS if one.since <= version <= one.until]
        assert len(there) == len(set(there)), version


@pytest.mark.parametrize(
    ("path", "put", "says"),
    [
        ("triton.runtime.jit.JITFunction.create_binder", None, "is gone; it is needed to bind arguments"),
        (
            "triton.runtime.jit.JITFunction.run",
            lambda self, grid: None,
            "takes (self, grid), not (argument 1, grid=, warm",
        ),
        ("triton.testing.do_bench", 3, "is of type int, not a function"),
        ("triton.runtime.autotuner.Autotuner._bench", None, "is gone; it is needed to see configs being tried"),
        ("triton.backends.nvidia.compiler.CUDAOptions", dict, "is a class, not a dataclass"),
        ("triton.compiler.compile", lambda src: None, "takes (src), not (argument 1, target=, options=)"),
    ],
)
def test_one_that_moved_is_named_with_what_it_is_now(
    monkeypatch: pytest.MonkeyPatch, path: str, put: object, says: str
) -> None:
    owner, _, name = path.rpartition(".")
    found = triton_internals._found(owner)
    if put is None:
        monkeypatch.delattr(found, name)
    else:
        monkeypatch.setattr(found, name, put)
    with pytest.raises(MissingDependencyError) as failed:
        require_internals(("compile", "capture"))
    assert f"{path} {says}" in failed.value.problem
    assert failed.value.problem.startswith(f"Triton {triton_internals.VERSION}: ")


def test_an_attribute_of_its_objects_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.jit import JITFunction

    jit = triton_internals._specimens()["JITFunction"]
    assert isinstance(jit, JITFunction)
    monkeypatch.delattr(jit, "device_caches")
    assert [str(one) for one in check_internals(("compile",))] == [
        "triton.runtime.jit.JITFunction().device_caches is gone; it is needed to forget other targets, and to bind"
        " arguments"
    ]


def test_what_has_a_fall_back_is_reported_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia.compiler import CUDABackend

    monkeypatch.delattr(CUDABackend, "make_llir")
    (moved,) = check_internals()
    assert moved.internal.fallback == "every config is compiled in full"
    require_internals(("compile", "capture"))


# The worker and the script's process of a Triton that lost one: the failure comes at their start.
BROKEN = """
from triton.runtime.jit import JITFunction
del JITFunction.create_binder
"""


@pytest.mark.compiles
def test_a_worker_fails_at_its_start_by_name(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("raise RuntimeError('the kernel file is not even loaded')")
    script = BROKEN + textwrap.dedent(
        """
        import sys
        from occupancy_cli.compile import worker
        from occupancy_cli.compile.request import KernelSource, Target
        from occupancy_cli.compile.worker_messages import Describe
        try:
            worker._answer(Describe(KernelSource("k", sys.argv[1]), Target(120, 101376, 188, 65536)))
        except Exception as failed:
            print(worker._failure(failed).message)
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path / "kernel.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "triton.runtime.jit.JITFunction.create_binder is gone" in done.stdout


@pytest.mark.compiles
def test_a_capture_fails_at_its_start_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("raise RuntimeError('the script is not even started')")
    records = tmp_path / "records"
    plan = {"script": str(tmp_path / "script.py"), "arguments": [], "module": False, "live": True, "target": None}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "records": str(records), "most_per_kernel": 1}))
    script = f"{BROKEN}\nfrom occupancy_cli.capture import script_process\nraise SystemExit(script_process.main())"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "plan.json")], check=False)
    assert done.returncode == 2
    assert "triton.runtime.jit.JITFunction.create_binder is gone" in records.read_text()
