"""What git says changed, and which kernels that matters to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.loading.outside_facts import Fact
from occupancy_cli.plan.changed_files import ChangedFiles, changed_since


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a branch `main` of one commit, and HEAD on another branch with one of its own."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "repo"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name in ("a.py", "b.py", "gone.py", "sub/c.py"):
        (folder / name).write_text("1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "checkout", "-qb", "work")
    (folder / "a.py").write_text("2\n")
    git(folder, "commit", "-qam", "second")
    (folder / "sub" / "c.py").write_text("2\n")
    (folder / "gone.py").unlink()
    (folder / "new file.py").write_text("1\n")
    monkeypatch.chdir(folder / "sub")
    return folder


def test_committed_and_not_yet_committed_changes_count(repository: Path) -> None:
    root = os.path.realpath(repository)
    found = changed_since("main")
    assert found.modified == {f"{root}/a.py", f"{root}/sub/c.py"}
    assert found.moved == {f"{root}/gone.py", f"{root}/new file.py"}
    assert changed_since("HEAD").modified == {f"{root}/sub/c.py"}


def test_what_main_did_since_is_not_ours(repository: Path) -> None:
    git(repository, "stash", "-qu")
    git(repository, "checkout", "-q", "main")
    (repository / "b.py").write_text("2\n")
    git(repository, "commit", "-qam", "third")
    git(repository, "checkout", "-q", "work")
    found = changed_since("main")
    assert found.modified | found.moved == {f"{os.path.realpath(repository)}/a.py"}


@pytest.mark.parametrize(("revision", "says"), [("nowhere", "no such commit here"), ("--all", "is no revision")])
def test_a_revision_that_there_is_not(repository: Path, revision: str, says: str) -> None:
    with pytest.raises(InputError) as bad:
        changed_since(revision)
    assert says in str(bad.value)


def test_no_repository_and_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not a git repository"):
        changed_since("main")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="git is not installed"):
        changed_since("main")


def test_a_shallow_clone_says_what_it_lacks(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=work", f"file://{repository}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    with pytest.raises(InputError, match="fetch-depth: 0") as bad:
        changed_since("origin/main")
    assert "no such commit here" in str(bad.value)


@pytest.mark.parametrize(
    ("fact", "reached"),
    [
        (Fact("content", "/p/read.py", "1"), True),
        (Fact("stat", "/p/read.py", "1"), True),
        (Fact("kind", "/p/read.py", "1"), False),  # it is still a file
        (Fact("content", "/p/other.py", "1"), False),
        (Fact("kind", "/p/came.py", None), True),
        (Fact("names", "/p", "1"), True),
        (Fact("names", "/q", "1"), False),
        (Fact("module", "/p\0came", None), True),
        (Fact("module", "/p\0came.inner", None), True),
        (Fact("module", "/p\0cam", None), False),
        (Fact("module", "/p\0read", "1"), False),  # modified: found where it was, and its content is a fact of its own
        (Fact("module", "/p\0package", None), True),
        (Fact("variable", "/p/read.py", "1"), False),
    ],
)
def test_what_a_change_reaches(fact: Fact, reached: bool) -> None:
    changed = ChangedFiles(frozenset({"/p/read.py"}), frozenset({"/p/came.py", "/p/package/__init__.py"}))
    assert changed.reach([fact]) == reached
