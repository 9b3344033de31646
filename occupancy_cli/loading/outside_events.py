"""Python's audit events: which are reads to record, which change something, and which cannot be recorded.

An event that `_HARMLESS` does not list, and that no other table here does, is a reason not to keep a result.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib._bootstrap_external as import_system
import os
import sys
from types import FrameType
from typing import Any

from occupancy_cli.loading.outside_callers import sort_of
from occupancy_cli.loading.outside_recordings import (
    Recording,
    active,
    counts,
    is_left_out,
    looking,
    note,
    note_path,
    path_of,
    refuse,
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
    | {"pathlib.Path.glob", "pathlib.Path.rglob", "os.walk", "os.fwalk", "time.sleep"}
    | {"os.putenv", "os.unsetenv", "os.fchdir"}
    | {"tempfile.mkstemp", "tempfile.mkdtemp", "resource.setrlimit", "mmap.__new__", "_thread.start_new_thread"}
    | {"_thread.start_joinable_thread", "shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree"}
    | {"shutil.move", "shutil.rmtree", "shutil.make_archive", "shutil.unpack_archive", "os.add_dll_directory"}
    | {"ctypes.addressof", "ctypes.create_string_buffer", "ctypes.create_unicode_buffer", "ctypes.get_errno"}
    | {"ctypes.set_errno", "ctypes.set_exception", "sqlite3.connect/handle"}
    | {"os.mkfifo", "cpython.PyConfig_Set", "sys.monitoring.register_callback", "socket.__new__"}
)
# Events of changes, with the places of the paths that they change.
_CHANGES: dict[str, tuple[int, ...]] = {
    **{f"os.{name}": (0,) for name in ("mkdir", "rmdir", "remove", "truncate", "utime", "chmod", "chown", "chflags")},
    **{f"os.{name}": (0,) for name in ("setxattr", "removexattr", "lchmod", "lchown")},
    **{f"os.{name}": (0, 1) for name in ("rename", "link", "symlink")},
    **{f"shutil.{name}": (0,) for name in ("chown",)},
}
# These keep what they read of the clock and the system to themselves.
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
    "fcntl.flock": "asks for a lock",
    "fcntl.lockf": "asks for a lock",
    "os.lockf": "asks for a lock",
    "os.kill": "asks of a process",
    "os.killpg": "asks of a process",
    "signal.pthread_kill": "asks of a process",
}
_LOCKS = ("fcntl.flock", "fcntl.lockf", "os.lockf")
_WRITES = os.O_WRONLY | os.O_RDWR


def on_event(event: str, details: tuple[Any, ...]) -> None:
    """The audit hook: record what an event tells, where it counts."""
    if not active or event in _HARMLESS or getattr(looking, "on", False):
        return
    frame = sys._getframe(1)
    recordings = counts(frame)
    if not recordings:
        return
    if event == "open":
        _on_open(details, recordings, frame)
    elif event in ("os.listdir", "os.scandir"):
        if frame.f_code.co_name == "_fill_cache" and sort_of(frame.f_code.co_filename) == "generated":
            return  # the import system: which of the names it takes is noted where it looks for one
        note_path("names", details[0], recordings, frame)
    elif event in _CHANGES:
        for place in _CHANGES[event]:
            path = path_of(details[place], recordings)
            if path is not None and not is_left_out(path):
                note("kind", path, recordings)  # whether it succeeds tells whether the path and its folder were there
                note("kind", os.path.dirname(path), recordings)  # noqa: PTH120
                for each in recordings:
                    each.written.add(path)
    elif event == "import":
        _on_extension(details, recordings, frame)
    elif event == "os.chdir":
        note_path("kind", details[0], recordings, frame)
    elif event in _LOCKS and not _may_fail(event, details):
        pass  # it waits for the lock, however long
    else:
        refuse(_REFUSED_EVENTS.get(event) or f"does what is not recorded ({event})", frame, recordings)


def _may_fail(event: str, details: tuple[Any, ...]) -> bool:
    """Whether a lock is only tried, so that its state, which other processes change, is told."""
    command = details[1]
    if not isinstance(command, int):
        return True
    return command in (os.F_TLOCK, os.F_TEST) if event == "os.lockf" else bool(command & fcntl.LOCK_NB)


def _on_open(details: tuple[Any, ...], recordings: list[Recording], frame: FrameType | None) -> None:
    path, _mode, flags = details
    if isinstance(path, int):  # of a descriptor that was opened before
        return
    writes = isinstance(flags, int) and flags & _WRITES
    if not writes or (flags & _WRITES == os.O_RDWR and not flags & os.O_TRUNC):
        note_path("content", _source_of(path, frame), recordings, frame)
    if writes and (found := path_of(path, recordings)) is not None and not is_left_out(found):
        note("kind", os.path.dirname(found), recordings)  # without it, it fails  # noqa: PTH120
        if flags & os.O_EXCL:
            note("kind", found, recordings)
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
    if not isinstance(file, str) or sort_of(file) in ("stdlib", "versioned", "tool"):
        return
    if str(name).partition(".")[0] in _INERT_EXTENSIONS:
        note_path("content", file, recordings, frame)
    else:
        refuse(f"imports {name}, which is compiled: what it reads is not seen", frame, recordings)
