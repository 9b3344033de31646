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


def test_tests_and_validation_do_not_import_each_other() -> None:
    if not (VALIDATION / "regret.py").is_file():
        pytest.skip("a source distribution has no studies")
    tests, studies = modules(TESTS), modules(VALIDATION)
    own = {"tests", "validation"}
    for ours, theirs in ((tests, studies), (studies, tests)):
        foreign = (own | theirs.keys()) - ours.keys()
        for path in ours.values():
            assert not imported(path) & foreign, path
    # Nor do studies read what the tests recorded: each keeps its own data.
    for path in studies.values():
        assert "tests" not in re.findall(r"[\"'](tests)[\"'/]", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import triton", "is not marked"),
        (
            "import subprocess, sys\n    subprocess.run([sys.executable, '-c', 'import triton.language'])",
            "is not marked",
        ),
        ("import pathlib\n    pathlib.Path(__file__).with_name('left').write_text('')", "wrote into the source tree"),
    ],
    ids=["triton here", "triton in a process", "a file in the tree"],
)
def test_a_test_that_may_not_fails(tmp_path: Path, body: str, said: str) -> None:
    """The rules of `conftest.py`, seen in a tree of two files."""
    folder = tmp_path / "tests"
    (folder / "triton_watch").mkdir(parents=True)
    env = {name: value for name, value in os.environ.items() if name != "OCCUPANCY_TESTS_TRITON_NOTES"}
    for name in ("conftest.py", "locations.py", "triton_watch/sitecustomize.py"):
        (folder / name).write_bytes((TESTS / name).read_bytes())
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['compiles']\n")
    # A stand-in for Triton: what matters is that it is imported.
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("")
    (tmp_path / "triton" / "language.py").write_text("")
    for mark, passes in (("@pytest.mark.compiles\n", "not marked" in said), ("", False)):
        (folder / "test_one.py").write_text(f"import pytest\n\n{mark}def test_one():\n    {body}\n")
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is passes, done.stdout
        assert (said in done.stdout) is not passes, done.stdout
        (folder / "left").unlink(missing_ok=True)


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
