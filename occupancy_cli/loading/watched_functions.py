"""Functions that look outside and raise no audit event: watched where they are called.

`os.stat` and its kin, clocks, randomness. A watched function stands wherever a loaded module holds the original.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

from occupancy_cli.loading.outside_callers import is_own_affair, sort_of
from occupancy_cli.loading.outside_facts import MACHINE_FIGURES
from occupancy_cli.loading.outside_recordings import (
    Recording,
    active,
    counts,
    is_left_out,
    is_of_the_moment,
    looking,
    note,
    note_path,
    path_of,
    refuse,
)


class Watched:
    """A function in the place of `function`, which first tells `look` of a call that counts.

    Not a function itself: as an attribute of a class it must not bind, as the builtins it replaces do not.
    """

    def __init__(self, function: Callable[..., Any], look: Callable[..., None]) -> None:
        self.function, self._look = function, look
        self.__name__ = getattr(function, "__name__", "")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", "") or ""
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active and not getattr(looking, "on", False):
            frame = sys._getframe(1)
            recordings = counts(frame)
            if recordings:
                self._look(recordings, frame, *args, **kwargs)
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.function

    def __hash__(self) -> int:
        return hash(self.function)


Look = Callable[..., None]
# Callers of stat that ask no more than whether a path is a file or a folder.
_ASK_FOR_KIND = {
    "genericpath": {"exists", "isfile", "isdir", "lexists", "isjunction"},
    "posixpath": {"islink", "ismount", "lexists", "exists", "isfile", "isdir", "_joinrealpath", "realpath", "lstat"},
    "pathlib": {"exists", "is_file", "is_dir", "is_symlink", "is_mount", "is_socket", "is_fifo", "is_block_device"}
    | {"is_char_device", "is_junction", "resolve", "_resolve", "walk"},
    "glob": {"_lexists", "_exists", "_isdir"},
    "linecache": {"checkcache", "updatecache", "lazycache"},
    "tempfile": {"_get_default_tempdir", "_sanitize_params", "gettempdir"},
    "shutil": {"_access_check", "which", "copyfile", "_samefile"},
    "importlib.metadata": {"mtime", "lookup"},
    "inspect": {"getsourcefile", "getfile"},
}


def _asks_for_kind(frame: FrameType | None) -> bool:
    for _ in range(3):  # pathlib asks through its own stat()
        if frame is None:
            return False
        name = str(frame.f_globals.get("__name__", ""))
        short = "pathlib" if name.startswith("pathlib") else name
        short = "importlib.metadata" if name.startswith("importlib.metadata") else short
        if frame.f_code.co_name in _ASK_FOR_KIND.get(short, ()):
            return True
        if short != "pathlib":
            return False
        frame = frame.f_back
    return False


def _look_stat(recordings: list[Recording], frame: FrameType, path: Any = None, *_a: Any, **kwargs: Any) -> None:
    path = kwargs.get("fd", path)
    if kwargs.get("dir_fd") is not None:
        refuse("looks at a path from a descriptor", frame, recordings)
        return
    if _is_import_look_up(frame):
        return
    if str(frame.f_globals.get("__name__", "")).startswith("importlib.metadata"):
        # What it listed there before it keeps for as long as the folder's time stays.
        if os.path.isdir(path):  # noqa: PTH112
            note_path("names", path, recordings, frame)
        return
    if frame.f_code.co_name == "getatime":
        refuse("asks when a file was read", frame, recordings)
    note_path("kind" if _asks_for_kind(frame) else "stat", path, recordings, frame)


def _is_import_look_up(frame: FrameType | None) -> bool:
    """Whether the import system looks for a module, which is noted as such, or compares a compiled file's time."""
    for _ in range(5):
        if frame is None or sort_of(frame.f_code.co_filename) not in ("generated", "tool"):
            return False
        if frame.f_code.co_name in ("find_spec", "get_code", "_path_hooks", "_path_importer_cache"):
            return True
        frame = frame.f_back
    return False


def _look_lstat(recordings: list[Recording], frame: FrameType, path: Any = None, *_a: Any, **kwargs: Any) -> None:
    _look_stat(recordings, frame, path, **kwargs)
    _look_link(recordings, frame, path, **kwargs)


def _look_link(recordings: list[Recording], frame: FrameType, path: Any = None, *_a: Any, **kwargs: Any) -> None:
    if kwargs.get("dir_fd") is not None:
        refuse("looks at a path from a descriptor", frame, recordings)
        return
    found = path_of(path, recordings)
    if found is not None and found.startswith("/proc/"):
        refuse(f"reads {found}", frame, recordings)
    else:
        note_path("link", path, recordings, frame)


def _look_access(recordings: list[Recording], frame: FrameType, path: Any, mode: int, **kwargs: Any) -> None:
    if kwargs.get("dir_fd") is not None or kwargs.get("effective_ids") or not kwargs.get("follow_symlinks", True):
        refuse("looks at a path from a descriptor", frame, recordings)
        return
    found = path_of(path, recordings)
    if found is None or is_left_out(found):
        return
    if is_of_the_moment("access", found):
        refuse(f"reads {found}", frame, recordings)
    else:
        note("access", f"{mode}:{found}", recordings)


def _look_folder(recordings: list[Recording], _frame: FrameType, *_a: Any, **_k: Any) -> None:
    note("cwd", "", recordings)


def _look_machine(name: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *args: Any, **_k: Any) -> None:
        if args not in ((), (0,)):
            refuse(f"asks the system ({name})", frame, recordings)
        else:
            note("machine", name, recordings)

    return look


def _look_dir_fd(what: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *_a: Any, **kwargs: Any) -> None:
        if any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            refuse(what, frame, recordings)

    return look


def _look_made(recordings: list[Recording], frame: FrameType, path: Any = None, *_a: Any, **kwargs: Any) -> None:
    if kwargs.get("dir_fd") is not None:
        refuse("makes a file from a descriptor", frame, recordings)
    else:  # whether it succeeds tells whether the path was there
        note_path("kind", path, recordings, frame)


def refusing(what: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *_a: Any, **_k: Any) -> None:
        if not (what.startswith(_MAY_BE_OWN) and is_own_affair(frame)):
            refuse(what, frame, recordings)

    return look


_MAY_BE_OWN = ("reads the clock", "takes a random number", "reads the number of a process")


def look_time_of(recordings: list[Recording], frame: FrameType, seconds: Any = None, *_a: Any, **_k: Any) -> None:
    if seconds is None and not is_own_affair(frame):
        refuse("reads the clock", frame, recordings)


def look_seed(
    recordings: list[Recording], frame: FrameType, _self: Any = None, a: Any = None, *_a: Any, **_k: Any
) -> None:
    if a is None and not is_own_affair(frame):
        refuse("takes a random number", frame, recordings)


CLOCKS: tuple[str, ...] = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
)
CLOCKS += ("process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns")
OF_THE_ZONE = ("localtime", "ctime", "mktime", "strftime")
_OS_REFUSED = {
    "reads the number of a process": ("getpid", "getppid", "getpgid", "getpgrp", "getsid"),
    "asks of a process": ("pidfd_open",),
    "takes a random number": ("urandom", "getrandom"),
    "reads the load of the machine": ("getloadavg", "times"),
    "asks a file system": ("statvfs", "fstatvfs", "pathconf", "fpathconf"),
    "asks the system": (
        *("sysconf", "confstr", "getpriority", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval"),
        *("sched_get_priority_max", "sched_get_priority_min", "getgrouplist", "ttyname", "getxattr", "listxattr"),
        *("umask", "nice"),
    ),
}
WATCHED_IN_OS: dict[str, Look] = {
    "stat": _look_stat,
    "fstat": _look_stat,
    "lstat": _look_lstat,
    "readlink": _look_link,
    "access": _look_access,
    "getcwd": _look_folder,
    "getcwdb": _look_folder,
    "open": _look_dir_fd("opens a path from a descriptor"),
    "link": _look_dir_fd("links a path from a descriptor"),
    "mkdir": _look_dir_fd("makes a folder from a descriptor"),
    "mkfifo": _look_made,
    "mknod": _look_made,
    **{name: _look_machine(name) for name in MACHINE_FIGURES},
    **{name: refusing(what) for what, names in _OS_REFUSED.items() for name in names},
}


class _Entry:
    """A `DirEntry` that tells what it is asked beyond the listing."""

    __slots__ = ("_entry",)

    def __init__(self, entry: os.DirEntry[Any]) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return os.DirEntry

    def __fspath__(self) -> Any:
        return self._entry.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        frame = sys._getframe(1)
        if recordings := counts(frame):
            note_path("stat", self._entry.path, recordings, frame)
        return self._entry.stat(follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        frame = sys._getframe(1)
        if recordings := counts(frame):
            note_path("stat", self._entry.path, recordings, frame)
        return self._entry.inode()


class _Entries:
    """The iterator that `os.scandir` gives, of entries that tell what they are asked."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return _Entry(next(self._entries))

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


class WatchedScandir(Watched):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entries = self.function(*args, **kwargs)
        return _Entries(entries) if counts(sys._getframe(1)) else entries


def watch_dates() -> None:
    """`datetime.now` and its kin: the classes are compiled, so others stand in their place that make the same."""

    def tell(frame: FrameType) -> None:
        if (recordings := counts(frame)) and not is_own_affair(frame):
            refuse("reads the clock", frame, recordings)

    def in_place_of(real: Any, clocks: tuple[str, ...]) -> Any:
        class Same(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, real)

            def __subclasscheck__(cls, other: type) -> bool:
                return issubclass(other, real)

            def __eq__(cls, other: object) -> bool:
                return other is cls or other is real

            def __hash__(cls) -> int:
                return hash(real)

        def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = real if cls is watched else cls
            return real.__new__(made, *args, **kwargs)

        def clock(name: str) -> Any:
            def now(cls: Any, *args: Any, **kwargs: Any) -> Any:
                tell(sys._getframe(1))
                return getattr(real, name)(*args, **kwargs)

            return classmethod(now)

        body = {"__new__": construct, "__module__": real.__module__, "__doc__": real.__doc__}
        watched: Any = Same(real.__name__, (real,), body | {name: clock(name) for name in clocks})
        return watched

    for name, clocks in (
        ("datetime", ("now", "utcnow", "today", "fromtimestamp")),
        ("date", ("today", "fromtimestamp")),
    ):
        original = getattr(datetime, name)
        replace_everywhere(original, in_place_of(original, clocks), only=lambda n: n not in ("_pydatetime", "pickle"))


def replace_everywhere(original: Any, watched: Any, only: Callable[[str], bool] = lambda _name: True) -> None:
    """Put `watched` wherever a loaded module, or a class of one, holds `original`."""
    for name, module in list(sys.modules.items()):
        if module is None or name == __name__ or name.endswith(".outside_facts") or not only(name):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(module, attribute, watched)
            elif isinstance(value, type) and value.__module__ == name:
                for inner, held in list(vars(value).items()):
                    if held is original or (isinstance(held, staticmethod) and held.__func__ is original):
                        with contextlib.suppress(AttributeError, TypeError):
                            setattr(value, inner, watched)


def watch(owner: types.ModuleType, name: str, look: Look, kind: type[Watched] = Watched) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return
    watched = kind(original, look)
    replace_everywhere(original, watched)
    setattr(owner, name, watched)
    for group in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
        known: set[Any] = getattr(os, group, set())
        if owner is os and original in known:
            known.add(watched)


WATCHED_ELSEWHERE: dict[str, tuple[tuple[str, str], ...]] = {
    "takes a random number": (
        *(
            ("random", n)
            for n in ("random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle")
        ),
        *(
            ("random", n)
            for n in ("gauss", "normalvariate", "lognormvariate", "expovariate", "betavariate", "triangular")
        ),
        *(("random", n) for n in ("gammavariate", "paretovariate", "weibullvariate", "vonmisesvariate", "getrandbits")),
        *(("random", n) for n in ("randbytes", "getstate", "binomialvariate")),
        *(("uuid", n) for n in ("uuid1", "uuid4", "getnode")),
    ),
    "asks the system": (
        *(("pwd", n) for n in ("getpwnam", "getpwuid", "getpwall")),
        *(("grp", n) for n in ("getgrnam", "getgrgid", "getgrall")),
        *(("resource", n) for n in ("getrusage", "getrlimit", "prlimit", "getpagesize")),
        *(("locale", n) for n in ("localeconv", "setlocale", "getlocale", "nl_langinfo")),
        *(("_posixshmem", n) for n in ("shm_open",)),
        *(("_gdbm", n) for n in ("open",)),
        *(("_dbm", n) for n in ("open",)),
    ),
    "starts a process": (*(("_posixsubprocess", n) for n in ("fork_exec",)),),
    "reads the number of a process": (("_thread", "get_native_id"),),
}
"""Functions outside `os` and `time` whose call makes a result unkeepable, by why."""
