"""Which files and folders a kernel's own code reads while it loads (a JSON file of configs, say), and what is in them.

Python says of every file that it opens, and of every folder that it lists, through its audit hooks. What the import
system opens is left out: modules are hashed as modules. So is what a version number stands for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 64 << 20
"""A larger file is known by its size and time of change: to hash it would take longer than many a compile."""

_NOT_CONTENT = ("/proc/", "/sys/", "/dev/")
_NO_SOURCES = (".pyc", ".so", "-info/entry_points.txt")  # to find plugins, those of every package are read
# It lists every folder of packages to find one: what it opens there, it depends on.
_METADATA = str(Path(importlib.util.__file__).parent / "metadata")
_CHANGED = "changed while it was read"
"""Stands for a fingerprint, and equals none: what was read may have been the file before or after."""
_TICK_NS = 10_000_000  # times of files are those of the kernel's last tick, at most this long ago
_active: list[tuple[set[str], set[str]]] = []
_hooked = False


@contextlib.contextmanager
def file_reads() -> Iterator[set[str]]:
    """The absolute paths that are opened for reading, or listed, while this is active; there or not.

    Complete when it ends, and then without what was written too (a log, a cache of the kernel's own).
    """
    global _hooked  # a hook stays for as long as the process
    if not _hooked:
        sys.addaudithook(_on_event)
        _hooked = True
    read: set[str] = set()
    written: set[str] = set()
    _active.append((read, written))
    try:
        yield read
    finally:
        _active[:] = [pair for pair in _active if pair[0] is not read]
        read -= written


def _on_event(event: str, details: tuple[Any, ...]) -> None:
    if not _active or event not in ("open", "os.listdir", "os.scandir"):
        return
    path = details[0]
    writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if path is None:
        path = "."
    reader = sys._getframe(1).f_code.co_filename
    if not isinstance(path, (str, os.PathLike)) or reader.startswith("<frozen "):
        return
    if event != "open" and reader.startswith(_METADATA):
        return
    found = os.path.abspath(os.fspath(path))  # noqa: PTH100 (a link stays a link)
    if not found.startswith(_NOT_CONTENT):
        for read, written in _active:
            (written if writes else read).add(found)


def now_ns() -> int:
    """The time that `as_read` compares times of files with."""
    return time.time_ns() - _TICK_NS


def as_read(path: str, since_ns: int) -> str | None:
    """The fingerprint of what was read since `since_ns`; of a file that changed since, one that no content has.

    A time that is still to come (of another machine's clock) tells nothing.
    """
    found = fingerprint(path)
    with contextlib.suppress(OSError, ValueError):
        after = Path(path).stat()
        if stat.S_ISREG(after.st_mode) and since_ns < after.st_mtime_ns <= time.time_ns():
            return _CHANGED
    return found


def fingerprints(paths: Iterable[str], beside: Iterable[str], since_ns: int) -> dict[str, str | None]:
    """`as_read` by path, without what lies in the folders `beside` and without what is neither file nor folder."""
    left_out = tuple(f"{os.path.abspath(folder)}{os.sep}" for folder in beside)  # noqa: PTH100
    found: dict[str, str | None] = {}
    for path in paths:
        if path.startswith(left_out) or path.endswith(_NO_SOURCES):
            continue
        kind = _kind(path)
        if kind is None or stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            found[path] = as_read(path, since_ns)
    return found


def _kind(path: str) -> int | None:
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return None


def fingerprint(path: str) -> str | None:
    """SHA-256 of a file's content, or of the names in a folder; None when it is not there or cannot be read."""
    try:
        if Path(path).is_dir():
            return hashlib.sha256(
                "\0".join(sorted(p.name for p in Path(path).iterdir())).encode(errors="surrogateescape")
            ).hexdigest()
        about = Path(path).stat()
        if about.st_size > MOST_BYTES:
            return f"{about.st_size} bytes of {about.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
