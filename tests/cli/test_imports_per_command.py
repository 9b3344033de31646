"""What each command imports: of ours by folder, and of others the heavy ones. Time is not measured here, cause is.

Pydantic is typer's own from 0.27 on (it checks each option's value with it), and yaml reads a GPU profile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"rich", "pydantic", "yaml", "numpy", "triton", "torch", "multiprocessing", "distributed"}
PROBE = """
import json, sys
from occupancy_cli.cli.app import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, 1, 2, None), end.code
finally:
    sys.stderr.write("\\nIMPORTED " + json.dumps(sorted(sys.modules)) + "\\n")
"""
CALC = ("calc", "--threads", "128", "--regs", "168", "--shared", "61568")
PARTS = {
    "machine_parts", "occupancy_parts", "kernel_parts", "check_parts", "choice_parts", "calculation_parts",
    "audit_parts", "capture_parts", "device_parts", "installation_parts", "measured_parts", "source_parts",
    "explain_parts", "fit_parts", "diff_parts",
}  # fmt: skip


def imported(*arguments: str, folder: Path) -> set[str]:
    """The modules of a run, the second of two, so that what can be remembered is."""
    command = [sys.executable, "-c", PROBE, *arguments]
    env = {**os.environ, "OCCUPANCY_CACHE_DIR": str(folder), "NO_COLOR": "1"}
    for _ in range(2 if arguments[0] in ("analyze", "check", "recommend") else 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    line = next(line for line in done.stderr.splitlines() if line.startswith("IMPORTED "))
    return set(json.loads(line.removeprefix("IMPORTED ")))


def heavy(modules: set[str], *apart: str) -> set[str]:
    return {m.partition(".")[0] for m in modules} & HEAVY - set(apart)


def parts(modules: set[str]) -> set[str]:
    """The modules of Report parts among them."""
    return {m.rpartition(".")[2] for m in modules if m.startswith("occupancy_cli.report.")} & PARTS


def test_help_imports_no_part_and_nothing_heavy(tmp_path: Path) -> None:
    modules = imported("--help", folder=tmp_path)
    assert heavy(modules, "pydantic") == set() and parts(modules) == set()
    ours = {m for m in modules if m.startswith(("occupancy_cli.answers", "occupancy_cli.gpu", "occupancy_cli.spec"))}
    assert ours == set() and not {m for m in modules if m.endswith("_command")}


@pytest.mark.parametrize(
    ("arguments", "heavy_ones", "made"),
    [
        (CALC, {"rich", "yaml"}, {"machine_parts", "occupancy_parts", "calculation_parts"}),
        ((*CALC, "--format", "json"), {"yaml"}, {"machine_parts", "occupancy_parts", "calculation_parts"}),
        (("gpus", "h200", "--format", "json"), {"yaml"}, {"machine_parts", "device_parts"}),
        (("cache", "--format", "json"), set(), {"machine_parts", "installation_parts"}),
    ],
)
def test_a_light_command_imports_its_own_parts(
    arguments: tuple[str, ...], heavy_ones: set[str], made: set[str], tmp_path: Path
) -> None:
    modules = imported(*arguments, folder=tmp_path)
    assert heavy(modules, "pydantic", "multiprocessing") == heavy_ones
    assert parts(modules) == made


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (("analyze", "--format", "json"), {"machine_parts", "occupancy_parts", "kernel_parts"}),
        (
            ("check", "sparse_mla_decode", "--format", "json"),
            {"machine_parts", "occupancy_parts", "kernel_parts", "check_parts"},
        ),
    ],
)
def test_a_warm_run_imports_no_compiler(arguments: tuple[str, ...], made: set[str]) -> None:
    modules = imported(*arguments, folder=Path(os.environ["OCCUPANCY_CACHE_DIR"]))  # what other tests compiled is there
    assert not {m.partition(".")[0] for m in modules} & {"triton", "torch", "distributed", "rich"}
    assert parts(modules) == made
