"""Where people put the gate: the GitHub Action, the GitLab component and the pre-commit hook, each run as far as it can
be without its service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from locations import ROOT
from typer.testing import CliRunner

from occupancy_cli.cli.app import app
from occupancy_cli.compile.compile_service import triton_version
from occupancy_cli.report.check_formats import FORMATS
from occupancy_cli.spec.kernel_spec import Budgets
from occupancy_cli.spec.project_settings import ProjectSettings, tomllib

SCRIPTS = ROOT / ".github" / "action"
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""
SPEC = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:add
arguments: {x_ptr: "*fp32", n: {type: i32, value: 4096}}
constexprs: {BLOCK: 64}
configs: [{num_warps: 2}]
check: {budgets: {max_registers_per_thread: 255}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of its own, as a job has it after its checkout."""
    folder = tmp_path / "repository"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "ops.py").write_text(KERNEL)
    (folder / "kernels" / "add.yaml").write_text(SPEC)
    (folder / "pyproject.toml").write_text('[tool.occupancy]\ninclude = ["kernels"]\ngpus = ["h200"]\n')
    for arguments in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


def bin_folder(tmp_path: Path) -> str:
    """A folder for PATH with the commands `occupancy` and `python` of this environment."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in (("occupancy", "-m occupancy_cli"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {text} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def script(name: str, folder: Path, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A step's script with the variables of a runner, and nothing else of this environment."""
    runner = {
        "PATH": f"{bin_folder(tmp_path)}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.environ["PYTHONPATH"],
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_ACTIONS": "true",
        "CI": "true",
        "OCCUPANCY_PYTHON": sys.executable,
        "OCCUPANCY_CACHE_DIR": os.environ["OCCUPANCY_CACHE_DIR"],
    }
    (tmp_path / "home").mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", str(SCRIPTS / name)], capture_output=True, text=True, check=False, cwd=folder, env={**runner, **env}
    )


# --- the Action --------------------------------------------------------------------------------------------------


def test_every_input_of_the_action_is_used_and_every_variable_given() -> None:
    text = (ROOT / "action.yml").read_text()
    action = yaml.safe_load(text)
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    steps = action["runs"]["steps"]
    ids = {step["id"] for step in steps if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.", text)) <= ids
    for step in steps:
        if "run" not in step:
            continue
        name = re.search(r"/(\w+\.sh)", step["run"])
        assert name is not None and step["shell"] == "bash"
        asked = set(re.findall(r"\$\{?(OCCUPANCY_\w+)", (SCRIPTS / name[1]).read_text()))
        assert asked <= set(step["env"]), step["name"]
        # What an input says is never part of a script's text.
        assert "${{ inputs" not in step["run"]


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("arguments", "code"), [("", 0), ("--budget max_registers_per_thread=1", 1), ("--gpu h2000", 2)]
)
def test_the_check_of_the_action(project: Path, tmp_path: Path, arguments: str, code: int) -> None:
    output, summary = tmp_path / "output", tmp_path / "summary.md"
    done = script(
        "check.sh", project, tmp_path, GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(summary),
        OCCUPANCY_ARGUMENTS=arguments, OCCUPANCY_SARIF="out/check.sarif", OCCUPANCY_JUNIT="junit.xml",
        OCCUPANCY_PATHS="kernels/add.yaml kernels/*.yaml",
    )  # fmt: skip
    assert (done.returncode, output.read_text()) == (code, f"exit-code={code}\n"), done.stderr
    assert summary.exists() == (code != 2)
    if code != 2:
        assert summary.read_text().startswith("**1 kernel · 1 config · 1 GPU: ")
        assert json.loads((project / "out" / "check.sarif").read_text())["version"] == "2.1.0"
        assert (project / "junit.xml").read_text().startswith("<?xml")
    annotations = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert [a.partition(",title=")[0] for a in annotations] == (
        ["::error file=kernels/add.yaml,line=5"] if code == 1 else []
    )


def test_what_a_person_types_into_an_input_is_never_run(project: Path, tmp_path: Path) -> None:
    hostile = "$(touch PWNED) `touch PWNED` ; touch PWNED"
    done = script("check.sh", project, tmp_path, OCCUPANCY_PATHS=hostile, OCCUPANCY_GPUS=hostile)
    assert done.returncode == 2
    assert not (project / "PWNED").exists()


def test_the_key_of_the_cache_follows_what_is_checked_in(project: Path, tmp_path: Path) -> None:
    def key() -> dict[str, str]:
        done = script("cache_key.sh", project, tmp_path)
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    first = key()
    assert first == key()
    assert re.fullmatch(r"occupancy-[\w.]+-triton-[\w.+]+-[0-9a-f]{16}", first["key"])
    assert first["key"].startswith(first["restore"])
    (project / "kernels" / "ops.py").write_text(KERNEL + "\n# changed\n")
    second = key()
    assert (second["key"] != first["key"], second["restore"]) == (True, first["restore"])


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"OCCUPANCY_INSTALL": "none"}, None),
        ({}, [str(ROOT)]),
        ({"OCCUPANCY_INSTALL": "occupancy-cli==1", "OCCUPANCY_TRITON": "3.9.0"}, ["occupancy-cli==1", "triton==3.9.0"]),
    ],
)
def test_what_the_action_installs(project: Path, tmp_path: Path, env: dict[str, str], wanted: list[str] | None) -> None:
    said = tmp_path / "said"
    fake = tmp_path / "fake_python"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {said}\n')
    fake.chmod(0o755)
    assert script("install.sh", project, tmp_path, OCCUPANCY_PYTHON=str(fake), **env).returncode == 0
    arguments = said.read_text().splitlines() if said.exists() else None
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    assert arguments == (None if wanted is None else [*pip, *wanted])


# --- the GitLab component ----------------------------------------------------------------------------------------


def component(**inputs: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component's inputs and its job, with values put in as GitLab does."""
    head, _, body = (ROOT / "templates" / "check.yml").read_text().partition("\n---\n")
    given = yaml.safe_load(head)["spec"]["inputs"]
    values = {name: inputs.get(name, spec["default"]) for name, spec in given.items()}
    assert set(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", body)) == set(values)
    text = re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: values[found[1]], body)
    jobs: dict[str, dict[str, Any]] = yaml.safe_load(text)
    (job,) = jobs.values()
    return given, job


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(("arguments", "code"), [("", 0), ("--budget max_registers_per_thread=1", 1)])
def test_the_gitlab_job(project: Path, tmp_path: Path, arguments: str, code: int) -> None:
    _, job = component(arguments=arguments)
    install, check = job["script"]
    assert install.startswith("python -m pip install ")
    env = {**os.environ, "PATH": f"{bin_folder(tmp_path)}:{os.environ['PATH']}", "CI": "true"}
    done = subprocess.run(["sh", "-c", check], cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    reports = job["artifacts"]["reports"]
    issues = json.loads((project / reports["codequality"]).read_text())
    assert [i["location"]["path"] for i in issues] == ["kernels/add.yaml"] * code
    assert (project / reports["junit"]).read_text().startswith("<?xml")


# --- pre-commit --------------------------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_the_pre_commit_hook_runs(project: Path, tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= set(hook)
    env = {**os.environ, "PATH": f"{bin_folder(tmp_path)}:{os.environ['PATH']}"}
    command = [*hook["entry"].split(), *hook.get("args", [])]
    assert subprocess.run(command, cwd=project, env=env, capture_output=True, check=False).returncode == 0
    (project / "kernels" / "add.yaml").write_text(SPEC.replace("255", "1"))
    assert subprocess.run(command, cwd=project, env=env, capture_output=True, check=False).returncode == 1


# --- docs/ci.md and examples/ci ----------------------------------------------------------------------------------


def test_what_the_page_says_is_so() -> None:
    """Every key, budget, option and format that the page names is one."""
    text = (ROOT / "docs" / "ci.md").read_text()
    known = {n for n in Budgets.model_fields if n not in ("gpus", "configs", "batches")}
    table = text.partition("| budget | |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) - {"each", "one"} == known
    for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        ProjectSettings.model_validate(tomllib.loads(block)["tool"]["occupancy"])
    for block in re.findall(r"```yaml\n(check:.*?)```", text, re.DOTALL):
        for budgets in yaml.safe_load(block)["check"]["budgets"]:
            Budgets.model_validate(budgets)
    help_text = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "300"}).output
    for option in set(re.findall(r"(?<![\w`-])`?(--[a-z][a-z-]+)", text.partition("## pytest")[0])) - {"--rm"}:
        assert option in help_text, option
    for name in FORMATS:
        assert name in text.partition("## Elsewhere")[2]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_example_repository_passes_its_gate_and_a_change_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "ci"
    shutil.copytree(ROOT / "examples" / "ci", folder)
    command = [sys.executable, "-m", "occupancy_cli", "check"]
    if triton_version() not in ("3.9.0",):
        pytest.skip("its baseline was written with Triton 3.9.0")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kernel = folder / "kernels" / "softmax.py"
    kernel.write_text(kernel.read_text().replace("num_warps=8", "num_warps=1"))
    done = subprocess.run([*command, "--format", "github"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert "::warning file=kernels/softmax.py,line=16,title=Not as the baseline has it::" in done.stdout
