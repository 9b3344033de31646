"""The repository keeps its own rules: tests and studies stand apart, and what the documents name is there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT, TESTS

import occupancy_cli

VALIDATION = ROOT / "validation"


def imported(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def modules(folder: Path) -> dict[str, Path]:
    """Python files below a folder by the name under which its own files import them, its recorded data apart."""
    found = sorted(path for path in folder.rglob("*.py") if "data" not in path.relative_to(folder).parts)
    return {path.stem: path for path in found}


def test_what_is_tested_is_this_tree() -> None:
    assert Path(occupancy_cli.__file__).parent == ROOT / "occupancy_cli"


# These have paths of studies as text: to find such names, and to tell the sources of profiles apart.
NAMES_ALONE = (Path(__file__), TESTS / "gpu" / "test_profiles.py")


def test_tests_and_validation_do_not_import_each_other() -> None:
    if not (VALIDATION / "regret.py").is_file():
        pytest.skip("a source distribution has no studies")
    tests, studies = modules(TESTS), modules(VALIDATION)
    own = {"tests", "validation"}
    for ours, theirs in ((tests, studies), (studies, tests)):
        foreign = (own | theirs.keys()) - ours.keys()
        for path in ours.values():
            assert not imported(path) & foreign, path
    # Nor does one run or read what the other has: each keeps its own data, and `testing` has what both run.
    for ours, their_folder in ((tests, VALIDATION), (studies, TESTS)):
        for path in ours.values():
            for text in re.findall(rf"[\"']({their_folder.name}(?:/[\w./]+)?)[\"']", path.read_text(encoding="utf-8")):
                assert path in NAMES_ALONE or not (ROOT / text).exists(), f"{path} names {text}"


BODIES = {
    "here": "import triton",
    "elsewhere": "import subprocess, sys\n    subprocess.run([sys.executable, '-c', 'import triton.language'])",
    "left": "import pathlib\n    pathlib.Path(__file__).with_name('left').write_text('')",
}


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "not marked"])
def test_tests_that_do_what_they_may_not_fail(tmp_path: Path, marked: bool) -> None:
    """The rules of `conftest.py`, seen in a small tree where importing Triton costs nothing."""
    folder = tmp_path / "tests"
    for name in ("conftest.py", "testing/triton_watch/sitecustomize.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    folder.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['compiles']\n")
    (tmp_path / "triton").mkdir()
    for name in ("__init__.py", "language.py"):
        (tmp_path / "triton" / name).write_text("")
    mark = "@pytest.mark.compiles\n" if marked else ""
    tests = [
        f"{mark}def test_{name}():\n    {body}\n" for name, body in BODIES.items() if not (marked and name == "left")
    ]
    (folder / "test_small.py").write_text("\n".join(["import pytest\n", *tests]))
    env = {name: value for name, value in os.environ.items() if name != "OCCUPANCY_TESTS_TRITON_NOTES"}
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (0 if marked else 1), done.stdout
    told = re.findall(r"^tests/.*::test_(\w+) imports Triton", done.stdout, re.MULTILINE)
    told += re.findall(r"^A test wrote into the source tree .*: tests/(\w+)$", done.stdout, re.MULTILINE)
    assert told == ([] if marked else ["here", "elsewhere", "left"]), done.stdout


def defined(module: str) -> set[str] | None:
    """Names that a module of the package has, by its text; None for a name that is no module of it."""
    path = ROOT.joinpath(*module.split("."))
    file = next((f for f in (path / "__init__.py", path.with_suffix(".py")) if f.is_file()), None)
    if file is None:
        return None
    names = {f.stem for f in path.glob("*")}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # `__init__` loads what it exports when it is asked for, by these names
    return names


@pytest.mark.parametrize("folder", ["validation", "benchmarks", "examples"])
def test_studies_import_what_the_package_has(folder: str) -> None:
    """They run seldom: a name that moved would stay unnoticed."""
    if not list((ROOT / folder).rglob("*.py")):
        pytest.skip(f"a source distribution has no {folder}")
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("occupancy_cli"):
                known = defined(str(node.module))
                assert known is not None, f"{path}:{node.lineno}: no module {node.module}"
                unknown = {alias.name for alias in node.names} - known
                assert not unknown, f"{path}:{node.lineno}: {node.module} has no {unknown}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    known = defined(alias.name) if alias.name.startswith("occupancy_cli") else set()
                    assert known is not None, f"{path}:{node.lineno}: no module {alias.name}"


def test_every_path_that_the_architecture_page_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./-]+/[\w./-]*)`", text) + re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "docs" / path).exists() or (ROOT / "occupancy_cli" / path).exists(), (
            f"docs/architecture.md names {path}"
        )
    layers = re.search(r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert layers is not None
    for folder in re.findall(r"\w+", layers[1]):
        assert re.search(rf"\b{folder}\b", text), f"docs/architecture.md does not say what {folder} is"
