"""What changed since a commit, as git says it, and whether something that a kernel was made from is among it.

Changed are what differs between the working tree and the point where it left `revision` (`git merge-base`), and what is
not tracked. A modified file matters to a kernel that read it; an added or removed one also to a kernel that looked for
it, or listed its folder.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.errors import InputError
from occupancy_cli.loading.outside_facts import Fact, is_of_files

_MOST_S = 60


@dataclass(frozen=True)
class ChangedFiles:
    """Absolute paths: files whose content changed, and files that came or went."""

    modified: frozenset[str]
    moved: frozenset[str]

    def has(self, paths: Iterable[str]) -> bool:
        """Whether one of the files changed in whatever way."""
        return any(os.path.realpath(p) in self.modified | self.moved for p in paths)

    def reach(self, facts: Iterable[Fact]) -> bool:
        """Whether something that was seen outside is, or may be, otherwise since."""
        return any(self._reaches(fact) for fact in facts if is_of_files(fact.kind))

    def _reaches(self, fact: Fact) -> bool:
        place, _, module = (fact.name.partition(":")[2] if fact.kind == "access" else fact.name).partition("\0")
        path = os.path.realpath(place)
        if fact.kind == "module":
            # `import a.b` looks for a: whatever came or went under that name may be another answer.
            looked_for = os.path.join(path, module.partition(".")[0])  # noqa: PTH118 (a hot loop over thousands)
            return any(
                m == f"{looked_for}.py" or m.startswith((f"{looked_for}/", f"{looked_for}.")) for m in self.moved
            )
        if path in self.moved or (fact.kind in ("content", "stat") and path in self.modified):
            return True
        return any(m.startswith(f"{path}/") for m in self.moved)


def changed_since(revision: str, folder: Path | None = None) -> ChangedFiles:
    """What changed since `revision` in the repository around `folder` (default: the working directory).

    An `InputError` says what is missing: git, a repository, the revision, or the history between (a shallow clone).
    """
    folder = folder or Path.cwd()
    where = f"--changed-since {revision}"
    if revision.startswith("-"):
        raise InputError(f"{revision!r} is no revision", where="--changed-since")
    top = Path(_git(folder, where, "rev-parse", "--show-toplevel").rstrip("\n"))
    _git(folder, where, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    base = _git(folder, where, "merge-base", revision, "HEAD").strip()
    modified: set[str] = set()
    moved: set[str] = set()
    words = iter(_git(top, where, "diff", "--name-status", "--no-renames", "-z", base, "--").split("\0"))
    for status in words:
        if status:
            (modified if status == "M" else moved).add(os.path.realpath(top / next(words)))
    untracked = _git(top, where, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    moved |= {os.path.realpath(top / name) for name in untracked if name}
    return ChangedFiles(frozenset(modified), frozenset(moved))


def _git(folder: Path, where: str, *arguments: str) -> str:
    environ = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, errors="surrogateescape", timeout=_MOST_S, check=False, env=environ,
        )  # fmt: skip
    except FileNotFoundError:
        raise InputError(
            "git is not installed", where=where, hint="Leave --changed-since out: all is judged."
        ) from None
    except subprocess.TimeoutExpired:
        raise InputError(f"git {arguments[0]} took more than {_MOST_S} s", where=where) from None
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.strip().splitlines()[-1:] or [f"git ended with {done.returncode}"]
    problem = said[0].removeprefix("fatal: ")
    hint = ""
    if arguments[0] == "rev-parse" and "--verify" in arguments:
        problem = "there is no such commit here"
        hint = "A shallow clone has only its last commits: fetch-depth: 0 in actions/checkout, GIT_DEPTH: 0 in GitLab."
    elif arguments[0] == "merge-base":
        problem = "it and HEAD have no commit in common here"
        hint = "A shallow clone has only its last commits: fetch-depth: 0 in actions/checkout, GIT_DEPTH: 0 in GitLab."
    raise InputError(problem, where=where, hint=hint)
