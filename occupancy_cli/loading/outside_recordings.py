"""What was seen: facts to ask again, paths that the code wrote itself, and what cannot be recorded.

A recording takes what is noted while it is active. What is looked at to note something is not noted itself: `looking`
is on meanwhile, a thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from occupancy_cli.loading.outside_callers import cause, is_own_import, sort_of
from occupancy_cli.loading.outside_facts import (
    MOST_BYTES,
    TOOL_VARIABLES,
    Fact,
    Kind,
    World,
    hashed,
    interpreter,
    is_of_files,
    is_written,
    observe,
)

_OF_CHILDREN = ("starts a process", "forks", "starts a program")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_LISTED = 1024

looking = threading.local()
"""`looking.on` while this thread looks at something to note it."""
active: list[Recording] = []
"""The recordings that are being made."""

_left_out: tuple[str, ...] = ()
given: dict[str, str] = dict(os.environ)
"""The environment that this process was started with."""

_given_folder = ""
_begun = False


@dataclass
class Recording:
    """What was seen while it was active, in the order of the first look.

    `facts` by kind and name; `written` has the paths that the code itself made or wrote, `owned` those whose whole
    content it wrote; `refusals` says why the result is not to be kept.
    """

    forced: bool = False
    facts: dict[tuple[Kind, str], str | None] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    owned: set[str] = field(default_factory=set)
    refusals: dict[str, None] = field(default_factory=dict)

    def add(self, other: Recording) -> None:
        """Take what `other` saw as seen here too; what was seen before it stays as it was then."""
        for key, value in other.facts.items():
            self.facts.setdefault(key, value)
        self.written |= other.written
        self.owned |= other.owned
        self.refusals.update(other.refusals)

    def without_what_children_write(self) -> Recording:
        """The same, of sources alone where the code starts processes: it may be they that change the files it reads.

        A result with such a refusal is never kept; whether its sources stayed the same still decides a report.
        """
        if not any(reason.endswith(_OF_CHILDREN) for reason in self.refusals):
            return self
        sources = {
            k: v for k, v in self.facts.items() if k[0] == "module" or (k[0] == "content" and k[1].endswith(".py"))
        }
        return Recording(self.forced, sources, self.written, self.owned, self.refusals)

    def as_facts(self) -> tuple[Fact, ...]:
        """The facts, sorted."""
        return tuple(Fact(kind, name, value) for (kind, name), value in sorted(self.facts.items(), key=lambda i: i[0]))

    def changed(self) -> Fact | None:
        """A file or folder that is no longer as it was seen, and that the code itself did not write."""
        world = World()
        for (kind, name), value in self.facts.items():
            if is_of_files(kind) and world.observe(kind, name) != value and not is_written(kind, name, self.written):
                return Fact(kind, name, value)
        return None


def begin(private: Iterable[str]) -> bool:
    """Leave out the folders `private`, which are the worker's own; at first also remember how the process was started.

    True for the first call.
    """
    global _begun, _left_out, _given_folder
    _left_out = (*_left_out, *(f"{os.path.abspath(folder)}/" for folder in private))  # noqa: PTH100
    if _begun:
        return False
    with contextlib.suppress(OSError):
        _given_folder = os.getcwd()  # noqa: PTH109
    interpreter()
    _begun = True
    return True


def given_environment() -> dict[str, str]:
    """The environment that this process was started with. What it sets itself follows from the sources."""
    return dict(given)


def given_folder() -> str | None:
    """What is kept of the working directory that this process was started in."""
    return hashed("", _given_folder)


@contextlib.contextmanager
def recording(*, forced: bool = False) -> Iterator[Recording]:
    """What is looked at while this is active. `forced`: also what the tool itself looks at, to load a kernel."""
    assert _begun, "outside_reads.install() comes first"
    mine = Recording(forced)
    active.append(mine)
    try:
        yield mine
    finally:
        active[:] = [each for each in active if each is not mine]


def counts(frame: FrameType | None) -> list[Recording]:
    """The recordings that a read in `frame` counts for."""
    if not active or getattr(looking, "on", False):
        return []
    looking.on = True
    try:
        if cause(frame) is not None:
            return list(active)
        forced = [each for each in active if each.forced]
        return forced if forced and not is_own_import(frame) else []
    finally:
        looking.on = False


def note(kind: Kind, name: str, recordings: Iterable[Recording]) -> None:
    looking.on = True
    try:
        value: str | None = None
        looked = False
        for each in recordings:
            if (kind, name) not in each.facts:
                if not looked:
                    value, looked = _value_of(kind, name), True
                each.facts[kind, name] = value
    finally:
        looking.on = False


def _value_of(kind: Kind, name: str) -> str | None:
    if kind == "variable":
        return hashed(name, given.get(name))
    if kind == "variables":
        return hashed("", "\0".join(sorted(given.keys() - TOOL_VARIABLES)))
    if kind == "cwd":
        return hashed("", _given_folder)
    return observe(kind, name)


def refuse(what: str, frame: FrameType | None, recordings: Iterable[Recording]) -> None:
    looking.on = True
    try:
        caused = cause(frame)
        where = f"{caused.f_code.co_filename}:{caused.f_lineno} " if caused is not None else ""
        for each in recordings:
            if len(each.refusals) < _LISTED:
                each.refusals[f"{where}{what}"] = None
    finally:
        looking.on = False


def path_of(value: Any, recordings: Iterable[Recording]) -> str | None:
    """The absolute path that an argument names, a link staying a link; the working directory is noted where it counts.

    None for what is no path.
    """
    looking.on = True
    try:
        if value is None:
            value = "."
        if isinstance(value, int):
            value = os.readlink(f"/proc/self/fd/{value}")  # noqa: PTH115
            if not value.startswith("/"):  # a pipe, a socket
                return None
        text = os.fsdecode(value)
        if not os.path.isabs(text):  # noqa: PTH117
            relative, text = True, os.path.join(os.getcwd(), text)  # noqa: PTH109, PTH118
        else:
            relative = False
        path = os.path.normpath(text) if "/.." not in text else text
    except (TypeError, ValueError, OSError):
        return None
    finally:
        looking.on = False
    if relative:
        note("cwd", "", recordings)
    return path


def is_left_out(path: str) -> bool:
    """Whether a path is the worker's own, or one that a version number stands for."""
    if path.startswith(_left_out) or path in _DEVICES:
        return True
    return sort_of(f"{path}/") in ("stdlib", "versioned", "tool")


def is_of_the_moment(kind: Kind, path: str) -> bool:
    """Whether a path shows what the kernel or a device says at the time: another process would see something else.

    That there is such a file is a fact, but for one of a process.
    """
    if not f"{path}/".startswith(("/proc/", "/sys/", "/dev/")) or path.startswith("/dev/shm/"):
        return False
    of = path.split("/")[2:3]
    return kind in ("content", "names", "stat") or (bool(of) and (of[0].isdigit() or of[0] in ("self", "thread-self")))


def note_path(kind: Kind, value: Any, recordings: list[Recording], frame: FrameType | None) -> None:
    path = path_of(value, recordings)
    if path is None:
        refuse("looks at what has no path", frame, recordings)
        return
    if is_left_out(path):
        return
    if is_of_the_moment(kind, path):
        refuse(f"reads {path}", frame, recordings)
        return
    if kind == "content":
        recordings = [each for each in recordings if path not in each.owned]
        problem = _unreadable(path)
        if problem:
            refuse(f"reads {path}, {problem}", frame, recordings)
            return
    note(kind, path, recordings)


def _unreadable(path: str) -> str:
    """Why a file's content cannot be recorded; empty when it can."""
    looking.on = True
    try:
        about = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return ""
    finally:
        looking.on = False
    if stat.S_ISREG(about.st_mode):
        return f"more than {MOST_BYTES >> 20} MiB" if about.st_size > MOST_BYTES else ""
    return "" if stat.S_ISDIR(about.st_mode) else "which is no file"
