"""What a load saw of the outside, as facts that can be asked again: the grounds on which a kept result is used.

    Fact("content", "/repo/tiles.json", "9f86d0...")      a file's content (None: it was not there)
    Fact("names", "/repo/configs", "3a7bd3...")           what a folder listed
    Fact("module", "/repo\\0tuned", "")                    nothing there that an import of `tuned` would take
    Fact("variable", "MODE", "b94d27...")                 an environment variable (None: not set)

A fact holds while `World.observe` gives its value again; a result whose facts all hold would be made again as it was.
Values of the environment are hashed: what is kept must not hold a secret. `outside_reads` records facts in a worker;
the result cache asks for them in the run that looks a result up, which loads neither the kernel nor Triton.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import site
import stat
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "content",
    "names",
    "kind",
    "stat",
    "link",
    "access",
    "module",
    "variable",
    "variables",
    "cwd",
    "interpreter",
    "machine",
]
"""What a fact is about: a file's content, what a folder lists, whether a path is a file or a folder, all that stat says
of it, where a link points, a permission ("mode:path"), what an import would find in a folder ("folder\\0name"), an
environment variable, the names of all, the working directory, how Python starts, a figure of the machine."""

MOST_BYTES = 64 << 20
"""A larger file is not hashed: it would take longer than many a compile. What reads one is not kept."""

TOOL_VARIABLES = frozenset(
    {"TMPDIR", "TRITON_CACHE_DIR", "TRITON_ALWAYS_COMPILE", "TRITON_STORE_BINARY_ONLY"}
    | {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8"}
)
"""What the tool sets in its workers, whatever a user has: no result depends on the user's."""

_SUFFIXES = tuple(importlib.machinery.all_suffixes())


@dataclass(frozen=True)
class Fact:
    """One thing that was seen outside: see `Kind` for `name`. `value` is None for what was not there."""

    kind: Kind
    name: str
    value: str | None

    def __str__(self) -> str:
        folder, _, module = self.name.partition("\0")
        return {
            "module": f"the module {module} in {folder}",
            "variable": f"the variable {self.name}",
            "variables": "the names of the environment's variables",
            "cwd": "the working directory",
            "interpreter": "how Python starts (its version, time zone, PYTHON* variables, .pth files)",
            "machine": f"this machine's {self.name}",
        }.get(self.kind, self.name.partition(":")[2] if self.kind == "access" else self.name)


class World:
    """The outside at one time: what was observed once is not looked at again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], str | None] = {}

    def observe(self, kind: str, name: str) -> str | None:
        """The value that a fact of this kind and name has now."""
        key = (kind, name)
        if key not in self._seen:
            self._seen[key] = observe(kind, name)
        return self._seen[key]

    def holds(self, facts: Iterable[Fact]) -> bool:
        """Whether all of them are as they were."""
        return self.broken(facts) is None

    def broken(self, facts: Iterable[Fact]) -> Fact | None:
        """The first fact that no longer holds."""
        return next((f for f in facts if self.observe(f.kind, f.name) != f.value), None)


def observe(kind: str, name: str) -> str | None:
    """The value of a fact now. Whatever cannot be read is as if it were not there."""
    try:
        return _OBSERVERS[kind](name)
    except (OSError, ValueError):
        return None


def is_of_files(kind: str) -> bool:
    """Whether facts of this kind are of files and folders, which may change during a run."""
    return kind in ("content", "names", "kind", "stat", "link", "access", "module")


def is_written(kind: str, name: str, written: Iterable[str]) -> bool:
    """Whether a fact about files is one that writing the paths `written` changes."""
    path = name.partition(":")[2] if kind == "access" else name.partition("\0")[0]
    return any(each == path or os.path.dirname(each) == path or path.startswith(f"{each}/") for each in written)  # noqa: PTH120


def hashed(name: str, value: str | None) -> str | None:
    """What is kept of a variable's value."""
    if value is None:
        return None
    return hashlib.sha256(f"{name}\0{value}".encode(errors="surrogateescape")).hexdigest()


def _content(name: str) -> str | None:
    about = _stat(name)
    if stat.S_ISDIR(about.st_mode):
        return _names(name)
    if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
        return None
    with _open(name, "rb", buffering=0) as file:
        return hashlib.sha256(file.read(MOST_BYTES + 1)).hexdigest()


def _names(name: str) -> str | None:
    found = []
    with _scandir(name) as entries:
        for entry in entries:
            sort = "folder" if entry.is_dir() else "file" if entry.is_file() else "?"
            found.append(f"{sort}{' link' if entry.is_symlink() else ''} {entry.name}")
    return hashlib.sha256("\0".join(sorted(found)).encode(errors="surrogateescape")).hexdigest()


def _kind(name: str) -> str | None:
    mode = _stat(name).st_mode
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _all_of_stat(name: str) -> str | None:
    s = _stat(name)
    link = _lstat(name)
    size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
    return repr(
        (s.st_mode, s.st_ino, s.st_dev, s.st_uid, s.st_gid, size, s.st_mtime_ns, link.st_mode, link.st_mtime_ns)
    )


def _link(name: str) -> str | None:
    return hashlib.sha256(os.fsencode(_readlink(name))).hexdigest() if stat.S_ISLNK(_lstat(name).st_mode) else "no link"


def _access(name: str) -> str | None:
    mode, _, path = name.partition(":")
    return str(_may(path, int(mode)))


def _module(name: str) -> str | None:
    """What the import system would find of a module in a folder: each of its candidates that is there."""
    folder, _, module = name.partition("\0")
    found = [suffix for suffix in _SUFFIXES if _is_file(f"{folder}/{module}{suffix}")]
    try:
        if stat.S_ISDIR(_stat(f"{folder}/{module}").st_mode):
            inside = [f"/__init__{s}" for s in _SUFFIXES if _is_file(f"{folder}/{module}/__init__{s}")]
            found += inside or ["/"]
    except OSError:
        pass
    return " ".join(found)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(_stat(path).st_mode)
    except OSError:
        return False


def _variable(name: str) -> str | None:
    return hashed(name, os.environ.get(name))


def _variables(_name: str) -> str | None:
    return hashed("", "\0".join(sorted(os.environ.keys() - TOOL_VARIABLES)))


def _is_python_setting(name: str) -> bool:
    """Whether Python itself may read a variable as it starts. `PYTHON` alone is a Makefile's, not Python's."""
    return name.startswith("PYTHON") and name != "PYTHON" and name not in TOOL_VARIABLES


@functools.lru_cache(maxsize=1)
def interpreter() -> str:
    """Everything that decides how a Python process of this interpreter starts, and where its imports look.

    The value is of the start of this process: what it has done to its own environment since decides nothing.
    """
    said = [sys.version, sys.prefix, sys.base_prefix, sys.executable, *time.tzname, str(time.timezone)]
    said += sorted(f"{n}={v}" for n, v in os.environ.items() if _is_python_setting(n))
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 (a tenth of the time)
        except OSError:
            names = []
        said.append(f"{folder} {bool(names)}")
        # They add to the search path, or put a finder there.
        starts = [
            n for n in names if n.endswith(".pth") or n.startswith(("__editable__", "sitecustomize", "usercustom"))
        ]
        said += [f"{n} {observe('content', f'{folder}/{n}')}" for n in starts]
    return hashlib.sha256("\0".join(said).encode(errors="surrogateescape")).hexdigest()


_MACHINE = {
    "uname": lambda: tuple(os.uname()),
    "cpu_count": os.cpu_count,
    "sched_getaffinity": lambda: sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    **{
        n: getattr(os, n) for n in ("getuid", "geteuid", "getgid", "getegid", "getgroups", "getlogin") if hasattr(os, n)
    },
    **{n: getattr(os, n) for n in ("getresuid", "getresgid", "process_cpu_count") if hasattr(os, n)},
}
"""Figures of the machine and its user that a kernel may ask for, by the name of the function in `os`."""

MACHINE_FIGURES = frozenset(_MACHINE)


def _machine(name: str) -> str | None:
    return hashed(name, repr(_MACHINE[name]()))


_OBSERVERS = {
    "content": _content,
    "names": _names,
    "kind": _kind,
    "stat": _all_of_stat,
    "link": _link,
    "access": _access,
    "module": _module,
    "variable": _variable,
    "variables": _variables,
    "cwd": lambda _name: hashed("", os.getcwd()),  # noqa: PTH109
    "interpreter": lambda _name: interpreter(),
    "machine": _machine,
}

# As they were when this was imported: a worker puts others in their place, which record what is asked.
_stat, _lstat, _readlink, _scandir, _may, _open = os.stat, os.lstat, os.readlink, os.scandir, os.access, open
