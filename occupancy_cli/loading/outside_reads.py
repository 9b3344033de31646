"""What code that a worker runs looks at outside itself: recorded as facts, or named as what cannot be.

A result may be kept only when everything it was made from can be asked again. So the rule is the reverse of a list of
known reads: **what is neither recorded nor known to read nothing makes the result unkeepable**, with a reason.

1. Python's audit events tell of files opened, folders listed, processes, sockets, libraries, extension modules. An
   event that `_HARMLESS` does not list is a reason not to keep.
2. What raises no event is watched where it is called: `os.stat` and its kin, the environment, the clock, randomness,
   the finders of the import system (which keep what they have seen, so that a look-up that found nothing touches no
   file). `install` puts watched functions in their place wherever a loaded module holds the original, once, before
   any kernel is loaded.
3. Compiled extension modules see the outside without Python. Those of `_INERT_EXTENSIONS` compute on what they are
   given; any other makes the result unkeepable.

Only what a kernel causes counts: a frame of its own, or of a package that no version number stands for, lies between
the read and the next `<module>` of the standard library, of Triton or of PyTorch, whose own imports their versions
cover. The environment counts whoever reads it, but for where things lie on a machine.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib._bootstrap_external as import_system
import os
import random
import stat
import sys
import sysconfig
import threading
import time
import types
import zipimport
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from occupancy_cli.loading.outside_facts import (
    MACHINE_FIGURES,
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

VERSIONED = ("triton", "torch", "numpy", "pydantic", "pydantic_core", "yaml", "elftools", "occupancy_cli")
"""Packages that a version number stands for: the tool's own, and those that are in a result's key or facts."""

# Where things lie on a machine: what Triton, PyTorch and Python read of it decides no result. What a kernel reads does.
_MACHINE_VARIABLES = frozenset(
    {"HOME", "PATH", "PWD", "PYTHONPATH", "LANG", "TERM", "USER", "LOGNAME", "TRITON_HOME", "COLUMNS", "LINES"}
)
# They compute on what they are given; files are opened for them by Python, or by a name that was asked for before.
_INERT_EXTENSIONS = frozenset(
    {
        "yaml",
        "_yaml",
        "pydantic_core",
        "markupsafe",
        "regex",
        "msgpack",
        "orjson",
        "charset_normalizer",
        "_cffi_backend",
    }
    | {"ml_dtypes", "rpds", "_brotli", "simplejson", "ujson", "numpy", "torch", "triton", "kiwisolver", "wrapt"}
)
# Events of reads that the events or functions they lead to tell of, and of what reads nothing outside the process.
_HARMLESS = frozenset(
    {"array.__new__", "builtins.id", "builtins.breakpoint", "builtins.input", "builtins.input/result", "code.__new__"}
    | {"compile", "exec", "marshal.load", "marshal.loads", "marshal.dumps", "pickle.find_class", "object.__getattr__"}
    | {"object.__setattr__", "object.__delattr__", "function.__new__", "gc.get_objects", "gc.get_referents"}
    | {"gc.get_referrers", "sys._getframe", "sys._getframemodulename", "sys._current_frames", "sys._current_exceptions"}
    | {
        "sys.addaudithook",
        "sys.setprofile",
        "sys.settrace",
        "sys.unraisablehook",
        "sys.excepthook",
        "sys.set_asyncgen_hooks",
    }
    | {"sys.set_asyncgen_hooks_firstiter", "sys.set_asyncgen_hooks_finalizer", "sys._debugmallocstats"}
    | {"setopencodehook", "cpython._PySys_ClearAuditHooks", "cpython.PyInterpreterState_New", "cpython.run_command"}
    | {"cpython.run_file", "cpython.run_module", "cpython.run_stdin", "cpython.run_startup", "glob.glob", "glob.glob/2"}
    | {"pathlib.Path.glob", "pathlib.Path.rglob", "os.walk", "os.fwalk", "time.sleep", "signal.pthread_kill", "os.kill"}
    | {"os.killpg", "os.putenv", "os.unsetenv", "os.chdir", "os.fchdir", "os.lockf", "fcntl.flock", "fcntl.lockf"}
    | {"tempfile.mkstemp", "tempfile.mkdtemp", "resource.setrlimit", "mmap.__new__", "_thread.start_new_thread"}
    | {"_thread.start_joinable_thread", "shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree"}
    | {"shutil.move", "shutil.rmtree", "shutil.make_archive", "shutil.unpack_archive", "os.add_dll_directory"}
    | {"ctypes.addressof", "ctypes.create_string_buffer", "ctypes.create_unicode_buffer", "ctypes.get_errno"}
    | {"ctypes.set_errno", "ctypes.set_exception", "sqlite3.connect/handle", "sqlite3.enable_load_extension"}
    | {"time.sleep", "os.mkfifo", "cpython.PyConfig_Set", "sys.monitoring.register_callback", "socket.__new__"}
)
# Events of changes, with the places of the paths that they change.
_CHANGES: dict[str, tuple[int, ...]] = {
    **{f"os.{name}": (0,) for name in ("mkdir", "rmdir", "remove", "truncate", "utime", "chmod", "chown", "chflags")},
    **{f"os.{name}": (0,) for name in ("setxattr", "removexattr", "lchmod", "lchown")},
    **{f"os.{name}": (0, 1) for name in ("rename", "link", "symlink")},
    **{f"shutil.{name}": (0,) for name in ("chown",)},
}
# These keep what they read of the clock and the system to themselves.
_OWN_AFFAIR = ("logging", "threading", "queue", "selectors", "concurrent", "asyncio", "multiprocessing", "tempfile")
_REFUSED_EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a program",
    "os.spawn": "starts a process",
    "pty.spawn": "starts a process",
    "sqlite3.connect": "opens a database",
    "ctypes.dlopen": "loads a library",
    "ctypes.dlsym": "calls a library",
    "fcntl.ioctl": "asks a device",
}
_OF_CHILDREN = ("starts a process", "forks", "starts a program")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_WRITES = os.O_WRONLY | os.O_RDWR
_LISTED = 1024

_busy = threading.local()
_active: list[Recording] = []
_installed = False
_left_out: tuple[str, ...] = ()
_sorts: dict[str, str] = {}
_given: dict[str, str] = dict(os.environ)
_given_folder = ""


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


@contextlib.contextmanager
def recording(*, forced: bool = False) -> Iterator[Recording]:
    """What is looked at while this is active. `forced`: also what the tool itself looks at, to load a kernel."""
    assert _installed, "outside_reads.install() comes first"
    mine = Recording(forced)
    _active.append(mine)
    try:
        yield mine
    finally:
        _active[:] = [each for each in _active if each is not mine]


# --- who reads -------------------------------------------------------------------------------------------------------


def _sort_of(file: str) -> str:
    """Whose code a file is: "stdlib", "versioned", "tool", "generated" or "kernel"."""
    found = _sorts.get(file)
    if found is None:
        found = _sorts[file] = _new_sort(file)
    return found


def _new_sort(file: str) -> str:
    if file.startswith("<"):
        return "generated"
    if file.startswith(_TOOL):
        return "kernel" if file.startswith(_SHIPPED) else "tool"
    packages = max(file.rfind("/site-packages/"), file.rfind("/dist-packages/"))
    if packages >= 0:
        top = file[packages + len("/site-packages/") :].partition("/")[0].removesuffix(".py")
        return "versioned" if top in VERSIONED else "kernel"
    if file.startswith(_STDLIB):
        return "stdlib"
    return "versioned" if file.startswith(_versioned_folders()) else "kernel"


def _versioned_folders() -> tuple[str, ...]:
    # Installed elsewhere, as a checkout. A stand-in for one of them has no file.
    files = [getattr(sys.modules.get(name), "__file__", None) for name in VERSIONED]
    return tuple(f"{os.path.dirname(file)}/" for file in files if isinstance(file, str))  # noqa: PTH120


def _cause(frame: FrameType | None) -> FrameType | None:
    """The kernel's frame that caused a read in `frame`; None when it is not the kernel's."""
    while frame is not None:
        sort = _sort_of(frame.f_code.co_filename)
        if sort == "kernel":
            return frame
        if _is_its_own(frame, sort):
            return None
        frame = frame.f_back
    return None


def _is_its_own(frame: FrameType, sort: str) -> bool:
    """Whether what is read below `frame` is the business of a package that a version number stands for: its imports,
    and the table that `inspect` makes of where modules lie."""
    name = frame.f_code.co_name
    if name == "<module>":
        return sort in ("stdlib", "versioned")
    return name == "getmodule" and sort == "stdlib"


def _is_own_import(frame: FrameType | None) -> bool:
    while frame is not None:
        sort = _sort_of(frame.f_code.co_filename)
        if _is_its_own(frame, sort):
            return True
        if sort == "kernel":
            return False
        frame = frame.f_back
    return False


def _counts(frame: FrameType | None) -> list[Recording]:
    """The recordings that a read in `frame` counts for."""
    if not _active or getattr(_busy, "on", False):
        return []
    _busy.on = True
    try:
        if _cause(frame) is not None:
            return list(_active)
        forced = [each for each in _active if each.forced]
        return forced if forced and not _is_own_import(frame) else []
    finally:
        _busy.on = False


# --- noting ----------------------------------------------------------------------------------------------------------


def _note(kind: Kind, name: str, recordings: Iterable[Recording]) -> None:
    _busy.on = True
    try:
        value: str | None = None
        looked = False
        for each in recordings:
            if (kind, name) not in each.facts:
                if not looked:
                    value, looked = _value_of(kind, name), True
                each.facts[kind, name] = value
    finally:
        _busy.on = False


def _value_of(kind: Kind, name: str) -> str | None:
    if kind == "variable":
        return hashed(name, _given.get(name))
    if kind == "variables":
        return hashed("", "\0".join(sorted(_given.keys() - TOOL_VARIABLES)))
    if kind == "cwd":
        return hashed("", _given_folder)
    return observe(kind, name)


def _refuse(what: str, frame: FrameType | None, recordings: Iterable[Recording]) -> None:
    _busy.on = True
    try:
        caused = _cause(frame)
        where = f"{caused.f_code.co_filename}:{caused.f_lineno} " if caused is not None else ""
        for each in recordings:
            if len(each.refusals) < _LISTED:
                each.refusals[f"{where}{what}"] = None
    finally:
        _busy.on = False


def _path_of(value: Any, recordings: Iterable[Recording]) -> str | None:
    """The absolute path that an argument names, a link staying a link; the working directory is noted where it counts.

    None for what is no path.
    """
    _busy.on = True
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
        _busy.on = False
    if relative:
        _note("cwd", "", recordings)
    return path


def _is_left_out(path: str) -> bool:
    """Whether a path is the worker's own, or one that a version number stands for."""
    if path.startswith(_left_out) or path in _DEVICES:
        return True
    return _sort_of(f"{path}/") in ("stdlib", "versioned", "tool")


def _note_path(kind: Kind, value: Any, recordings: list[Recording], frame: FrameType | None) -> None:
    path = _path_of(value, recordings)
    if path is None:
        _refuse("looks at what has no path", frame, recordings)
        return
    if _is_left_out(path):
        return
    if kind in ("content", "names") and f"{path}/".startswith(("/proc/", "/sys/", "/dev/")):
        _refuse(f"reads {path}", frame, recordings)
        return
    if kind == "content":
        recordings = [each for each in recordings if path not in each.owned]
        problem = _unreadable(path)
        if problem:
            _refuse(f"reads {path}, {problem}", frame, recordings)
            return
    _note(kind, path, recordings)


def _unreadable(path: str) -> str:
    """Why a file's content cannot be recorded; empty when it can."""
    _busy.on = True
    try:
        about = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return ""
    finally:
        _busy.on = False
    if stat.S_ISREG(about.st_mode):
        return f"more than {MOST_BYTES >> 20} MiB" if about.st_size > MOST_BYTES else ""
    return "" if stat.S_ISDIR(about.st_mode) else "which is no file"


# --- events ----------------------------------------------------------------------------------------------------------


def _on_event(event: str, details: tuple[Any, ...]) -> None:
    if not _active or event in _HARMLESS or getattr(_busy, "on", False):
        return
    frame = sys._getframe(1)
    recordings = _counts(frame)
    if not recordings:
        return
    if event == "open":
        _on_open(details, recordings, frame)
    elif event in ("os.listdir", "os.scandir"):
        if frame.f_code.co_name == "_fill_cache" and _sort_of(frame.f_code.co_filename) == "generated":
            return  # the import system: which of the names it takes is noted where it looks for one
        _note_path("names", details[0], recordings, frame)
    elif event in _CHANGES:
        for place in _CHANGES[event]:
            path = _path_of(details[place], recordings)
            if path is not None and not _is_left_out(path):
                _note("kind", path, recordings)  # whether it succeeds tells whether the path was there
                for each in recordings:
                    each.written.add(path)
    elif event == "import":
        _on_extension(details, recordings, frame)
    elif event == "sqlite3.connect" and details[0] == ":memory:":
        pass
    else:
        _refuse(_REFUSED_EVENTS.get(event) or f"does what is not recorded ({event})", frame, recordings)


def _on_open(details: tuple[Any, ...], recordings: list[Recording], frame: FrameType | None) -> None:
    path, _mode, flags = details
    if isinstance(path, int):  # of a descriptor that was opened before
        return
    writes = isinstance(flags, int) and flags & _WRITES
    if not writes or (flags & _WRITES == os.O_RDWR and not flags & os.O_TRUNC):
        _note_path("content", _source_of(path, frame), recordings, frame)
    if writes and (found := _path_of(path, recordings)) is not None and not _is_left_out(found):
        if flags & os.O_EXCL:
            _note("kind", found, recordings)
        for each in recordings:
            each.written.add(found)
            if flags & os.O_TRUNC:
                each.owned.add(found)


def _source_of(path: Any, frame: FrameType | None) -> Any:
    """The source that a compiled file of the import system's stands for; any other path as it is."""
    if isinstance(path, str) and path.endswith(".pyc") and "__pycache__" in path and frame is not None:
        with contextlib.suppress(ValueError):
            return import_system.source_from_cache(path)
    return path


def _on_extension(details: tuple[Any, ...], recordings: list[Recording], frame: FrameType | None) -> None:
    name, file = details[0], details[1]
    if not isinstance(file, str) or _sort_of(file) in ("stdlib", "versioned", "tool"):
        return
    if str(name).partition(".")[0] in _INERT_EXTENSIONS:
        _note_path("content", file, recordings, frame)
    else:
        _refuse(f"imports {name}, which is compiled: what it reads is not seen", frame, recordings)


# --- watched functions -----------------------------------------------------------------------------------------------


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
        if _active and not getattr(_busy, "on", False):
            frame = sys._getframe(1)
            recordings = _counts(frame)
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
        _refuse("looks at a path from a descriptor", frame, recordings)
        return
    if _is_import_look_up(frame):
        return
    if str(frame.f_globals.get("__name__", "")).startswith("importlib.metadata"):
        # What it listed there before it keeps for as long as the folder's time stays.
        if os.path.isdir(path):  # noqa: PTH112
            _note_path("names", path, recordings, frame)
        return
    if frame.f_code.co_name == "getatime":
        _refuse("asks when a file was read", frame, recordings)
    _note_path("kind" if _asks_for_kind(frame) else "stat", path, recordings, frame)


def _is_import_look_up(frame: FrameType | None) -> bool:
    """Whether the import system looks for a module, which is noted as such, or compares a compiled file's time."""
    for _ in range(5):
        if frame is None or _sort_of(frame.f_code.co_filename) not in ("generated", "tool"):
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
        _refuse("looks at a path from a descriptor", frame, recordings)
        return
    found = _path_of(path, recordings)
    if found is not None and found.startswith("/proc/"):
        _refuse(f"reads {found}", frame, recordings)
    else:
        _note_path("link", path, recordings, frame)


def _look_access(recordings: list[Recording], frame: FrameType, path: Any, mode: int, **kwargs: Any) -> None:
    if kwargs.get("dir_fd") is not None or kwargs.get("effective_ids") or not kwargs.get("follow_symlinks", True):
        _refuse("looks at a path from a descriptor", frame, recordings)
        return
    found = _path_of(path, recordings)
    if found is None or _is_left_out(found):
        return
    _note("access", f"{mode}:{found}", recordings)


def _look_folder(recordings: list[Recording], _frame: FrameType, *_a: Any, **_k: Any) -> None:
    _note("cwd", "", recordings)


def _look_machine(name: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *args: Any, **_k: Any) -> None:
        if args not in ((), (0,)):
            _refuse(f"asks the system ({name})", frame, recordings)
        else:
            _note("machine", name, recordings)

    return look


def _look_dir_fd(what: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *_a: Any, **kwargs: Any) -> None:
        if any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            _refuse(what, frame, recordings)

    return look


def _refusing(what: str) -> Look:
    def look(recordings: list[Recording], frame: FrameType, *_a: Any, **_k: Any) -> None:
        if not (what.startswith(_MAY_BE_OWN) and _is_own_affair(frame)):
            _refuse(what, frame, recordings)

    return look


_MAY_BE_OWN = ("reads the clock", "takes a random number", "reads the number of a process")


def _is_own_affair(frame: FrameType | None) -> bool:
    """Whether a read of the clock and the like stays inside the module of the standard library that reads."""
    while frame is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    if frame is None or _sort_of(frame.f_code.co_filename) != "stdlib":
        return False
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OWN_AFFAIR


def _look_time_of(recordings: list[Recording], frame: FrameType, seconds: Any = None, *_a: Any, **_k: Any) -> None:
    if seconds is None and not _is_own_affair(frame):
        _refuse("reads the clock", frame, recordings)


def _look_seed(
    recordings: list[Recording], frame: FrameType, _self: Any = None, a: Any = None, *_a: Any, **_k: Any
) -> None:
    if a is None and not _is_own_affair(frame):
        _refuse("takes a random number", frame, recordings)


_CLOCKS: tuple[str, ...] = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
)
_CLOCKS += ("process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns")
_OF_THE_ZONE = ("localtime", "ctime", "mktime", "strftime")
_OS_REFUSED = {
    "reads the number of a process": ("getpid", "getppid", "getpgid", "getpgrp", "getsid"),
    "takes a random number": ("urandom", "getrandom"),
    "reads the load of the machine": ("getloadavg", "times"),
    "asks a file system": ("statvfs", "fstatvfs", "pathconf", "fpathconf"),
    "asks the system": (
        *("sysconf", "confstr", "getpriority", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval"),
        *("sched_get_priority_max", "sched_get_priority_min", "getgrouplist", "ttyname", "getxattr", "listxattr"),
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
    **{name: _look_machine(name) for name in MACHINE_FIGURES},
    **{name: _refusing(what) for what, names in _OS_REFUSED.items() for name in names},
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
        if recordings := _counts(frame):
            _note_path("stat", self._entry.path, recordings, frame)
        return self._entry.stat(follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        frame = sys._getframe(1)
        if recordings := _counts(frame):
            _note_path("stat", self._entry.path, recordings, frame)
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


class _WatchedScandir(Watched):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entries = self.function(*args, **kwargs)
        return _Entries(entries) if _counts(sys._getframe(1)) else entries


def _watch_environment() -> None:
    """Reads of `os.environ` and `os.environb`, one variable or all of them."""
    cls: Any = type(os.environ)
    read = cls.__getitem__

    def note(name: Any, frame: FrameType) -> None:
        if not _active or getattr(_busy, "on", False):
            return
        text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
        if not text or text in TOOL_VARIABLES:
            return
        recordings = list(_active)
        if _cause(frame) is None and (text in _MACHINE_VARIABLES or _hands_on(frame)):
            return
        _note("variable", text, recordings)

    def getitem(self: Any, name: Any) -> Any:
        note(name, sys._getframe(1))
        return read(self, name)

    def whole(original: Callable[..., Any]) -> Callable[..., Any]:
        def every(self: Any, *args: Any) -> Any:
            frame = sys._getframe(1)
            if recordings := _counts(frame):
                _note("variables", "", recordings)
                if original.__name__ not in ("__iter__", "__len__"):
                    for name in list(_given):
                        note(name, frame)
            return original(self, *args)

        return every

    cls.__getitem__ = getitem
    for name in ("__iter__", "__len__", "copy", "__repr__", "__or__", "__ror__"):
        if name in vars(cls):
            setattr(cls, name, whole(vars(cls)[name]))
    for environ in (os.environ, getattr(os, "environb", None)):
        if environ is None:
            continue
        data = vars(environ).pop("_data")
        _raw_data[id(environ)] = data

    def raw(self: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_globals.get("__name__") != "os" and (recordings := _counts(frame)):
            _note("variables", "", recordings)
            for name in list(_given):
                note(name, frame)
        return _raw_data[id(self)]

    cls._data = property(raw, lambda self, data: _raw_data.__setitem__(id(self), data))
    system = sys.modules["posix"]
    if hasattr(system, "environ"):
        system.environ = _RawEnvironment(system.environ, note)  # type: ignore[attr-defined]


_raw_data: dict[int, Any] = {}


class _RawEnvironment(dict[Any, Any]):
    """`posix.environ`, as the process was started with: any look at it is a look at all of it."""

    def __init__(self, values: Any, note: Callable[[Any, FrameType], None]) -> None:
        super().__init__(values)
        self._note = note

    def _look(self, frame: FrameType) -> None:
        if recordings := _counts(frame):
            _note("variables", "", recordings)
            for name in list(_given):
                self._note(name, frame)

    def __getitem__(self, name: Any) -> Any:
        self._look(sys._getframe(1))
        return super().__getitem__(name)

    def __iter__(self) -> Any:
        self._look(sys._getframe(1))
        return super().__iter__()

    def __len__(self) -> int:
        self._look(sys._getframe(1))
        return super().__len__()

    def __contains__(self, name: object) -> bool:
        self._look(sys._getframe(1))
        return super().__contains__(name)

    def get(self, name: Any, default: Any = None) -> Any:
        self._look(sys._getframe(1))
        return super().get(name, default)

    def keys(self) -> Any:
        self._look(sys._getframe(1))
        return super().keys()

    def items(self) -> Any:
        self._look(sys._getframe(1))
        return super().items()

    def values(self) -> Any:
        self._look(sys._getframe(1))
        return super().values()

    def copy(self) -> Any:
        self._look(sys._getframe(1))
        return super().copy()


def _hands_on(frame: FrameType | None) -> bool:
    """Whether the environment is read to be handed to a child process (ptxas), whose shell level and last command
    change from run to run."""
    while frame is not None:
        if frame.f_code.co_name in ("_execute_child", "_posix_spawn") and "subprocess" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _watch_imports() -> None:
    """The finders of the import system: what was looked for in which folder or archive, found or not."""
    finder: Any = import_system.FileFinder
    find = finder.find_spec

    def find_spec(self: Any, name: str, target: Any = None) -> Any:
        if _active and not getattr(_busy, "on", False):
            frame = sys._getframe(1)
            folder = os.path.normpath(self.path or ".")
            tail = name.rpartition(".")[2]
            recordings = _counts(frame)
            path = _path_of(folder, recordings) if recordings or not os.path.isabs(folder) else folder  # noqa: PTH117
            # Where a versioned package looks before it comes to where packages lie, another module may appear.
            counts = bool(recordings) or (path is not None and not path.endswith(("/site-packages", "/dist-packages")))
            if path is not None and counts and _sort_of(f"{path}/") not in ("stdlib", "versioned", "tool"):
                _note("module", f"{path}\0{tail}", recordings or list(_active))
        return find(self, name, target)

    finder.find_spec = find_spec
    archive: Any = zipimport.zipimporter
    find_in_archive = archive.find_spec

    def find_spec_in_archive(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if recordings := _counts(frame):
            _note_path("content", self.archive, recordings, frame)
        return find_in_archive(self, *args, **kwargs)

    archive.find_spec = find_spec_in_archive
    read = archive.get_data

    def get_data(self: Any, *args: Any) -> Any:
        frame = sys._getframe(1)
        if recordings := _counts(frame):
            _note_path("content", self.archive, recordings, frame)
        return read(self, *args)

    archive.get_data = get_data
    entries: Any = import_system.PathFinder
    importer = vars(entries)["_path_importer_cache"].__func__

    def path_importer_cache(cls: Any, path: Any) -> Any:
        found = importer(cls, path)
        frame = sys._getframe(1)
        if found is None and (recordings := _counts(frame)):
            _note_path("kind", path, recordings, frame)
        return found

    entries._path_importer_cache = classmethod(path_importer_cache)
    # A compiled file stands for its source by the source's time of change: it may be of another text.
    load: Any = import_system.ExtensionFileLoader
    execute = load.exec_module

    def exec_module(self: Any, module: Any) -> None:
        execute(self, module)
        if module.__name__ == "numpy.random.mtrand":
            for name in module.__all__:
                if callable(value := getattr(module, name)) and not isinstance(value, type) and name != "seed":
                    setattr(module, name, Watched(value, _refusing("takes a random number")))

    load.exec_module = exec_module
    system: Any = import_system
    cached = system.cache_from_source

    def cache_from_source(path: Any, *args: Any, **kwargs: Any) -> Any:
        text = os.fsdecode(path)
        if _sort_of(text) == "kernel" and "/site-packages/" not in text and "/dist-packages/" not in text:
            raise NotImplementedError("a kernel's own files are compiled from their text")
        return cached(path, *args, **kwargs)

    system.cache_from_source = cache_from_source


def _watch_dates() -> None:
    """`datetime.now` and its kin: the classes are compiled, so others stand in their place that make the same."""

    def note(frame: FrameType) -> None:
        if (recordings := _counts(frame)) and not _is_own_affair(frame):
            _refuse("reads the clock", frame, recordings)

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
                note(sys._getframe(1))
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
        _replace_everywhere(original, in_place_of(original, clocks), only=lambda n: n not in ("_pydatetime", "pickle"))


def _replace_everywhere(original: Any, watched: Any, only: Callable[[str], bool] = lambda _name: True) -> None:
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


def _watch(owner: types.ModuleType, name: str, look: Look, kind: type[Watched] = Watched) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return
    watched = kind(original, look)
    _replace_everywhere(original, watched)
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
}
"""Functions outside `os` and `time` whose call makes a result unkeepable, by why."""


def install(private: Iterable[str] = ()) -> None:
    """Watch this process from now on. `private` are the worker's own folders. Call it before a kernel is loaded."""
    global _installed, _left_out, _given_folder
    _left_out = (*_left_out, *(f"{os.path.abspath(folder)}/" for folder in private))  # noqa: PTH100
    if _installed:
        return
    with contextlib.suppress(OSError):
        _given_folder = os.getcwd()  # noqa: PTH109
    interpreter()
    for modules in WATCHED_ELSEWHERE.values():
        for module, _ in modules:
            with contextlib.suppress(ImportError):
                __import__(module)
    for name, look in WATCHED_IN_OS.items():
        _watch(os, name, look)
    _watch(os, "scandir", lambda *_a: None, _WatchedScandir)
    for name in _CLOCKS:
        _watch(time, name, _refusing("reads the clock"))
    for name in _OF_THE_ZONE:
        _watch(time, name, _refusing("reads the clock or its zone"))
    for name in ("gmtime", "asctime"):
        _watch(time, name, _look_time_of)
    for what, functions in WATCHED_ELSEWHERE.items():
        for module, name in functions:
            if module in sys.modules and not isinstance(getattr(sys.modules[module], name, None), Watched):
                _watch(sys.modules[module], name, _refusing(what))
    seed = random.Random.seed

    def watched_seed(self: Any, a: Any = None, version: int = 2) -> None:
        frame = sys._getframe(1)
        if recordings := _counts(frame):
            _look_seed(recordings, frame, self, a)
        seed(self, a, version)

    random.Random.seed = watched_seed  # type: ignore[method-assign]
    _watch_dates()
    _watch_environment()
    _watch_imports()
    sys.addaudithook(_on_event)
    _installed = True


def given_environment() -> dict[str, str]:
    """The environment that this process was started with. What it sets itself follows from the sources."""
    return dict(_given)


def given_folder() -> str | None:
    """What is kept of the working directory that this process was started in."""
    return hashed("", _given_folder)


def is_kernels_own(file: str, module: str) -> bool:
    """Whether a module's source is neither the standard library's nor what a version number stands for."""
    return _sort_of(file) == "kernel" and module.partition(".")[0] not in VERSIONED


_TOOL = f"{Path(__file__).resolve().parents[1]}/"
_SHIPPED = f"{_TOOL}_shipped/"
_STDLIB = f"{sysconfig.get_paths()['stdlib']}/"
