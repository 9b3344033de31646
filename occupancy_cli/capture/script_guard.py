"""The process between a capture and its script: whatever ends the capture, the script and its folder end with it.

    python -m occupancy_cli.capture.script_guard ALIVE RESULT FOLDER PARENT COMMAND...

ALIVE is a pipe that the capture holds open for as long as it lives. When it closes, for whatever reason (TERM, KILL),
or when the process that had started the capture, PARENT, is gone, every process that the script has started is ended,
in sessions of their own too, and FOLDER is removed. A capture that is to outlive its parent is started with `nohup`.
RESULT is a pipe that is told the script's process id, and later its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans of the script become this process's children
_LOOK_SECONDS = 0.2
_MOST_SECONDS = 5.0


def main() -> None:
    """Start the command, wait for its end or the capture's, and clear up."""
    alive, result, folder, parent = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, *((signal.SIGHUP,) if hangs_up else ())):
        # A handler, for what is ignored would be in the script too.
        signal.signal(sign, lambda *_: None)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    capture = os.getppid()
    try:
        script = subprocess.Popen(sys.argv[5:])
        _tell(result, script.pid)
        code: int | None = None
        while not _closed(alive, _LOOK_SECONDS if code is None else None):
            if code is None and (code := script.poll()) is not None:
                end_descendants()
                _tell(result, code)
            elif code is None and hangs_up and parent > 1 and not _is_there(parent):
                with contextlib.suppress(OSError):
                    os.kill(capture, signal.SIGHUP)
    finally:
        end_descendants()
        shutil.rmtree(folder, ignore_errors=True)


def _closed(pipe: int, seconds: float | None) -> bool:
    """Whether the other end closes within that time; nothing is ever written to it."""
    ready, _, _ = select.select([pipe, _CHILDREN[0]], [], [], seconds)
    if _CHILDREN[0] in ready:
        os.read(_CHILDREN[0], 1 << 10)
    return pipe in ready


def _tell(pipe: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, f"{number}\n".encode())


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def _stat(pid: int) -> list[str]:
    """State and parent of a process, as /proc has them after its name; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or ["Z"])[0]


def _descendants() -> list[int]:
    """What this process has started, and what that has started, those that are only to be waited for left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) and stat[0] not in "ZX":
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        own = children.get(todo.pop(), [])
        found += own
        todo += own
    return found


def end_descendants() -> None:
    """Kill them all, those that are started meanwhile too."""
    deadline = time.monotonic() + _MOST_SECONDS
    while (left := _descendants()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


_CHILDREN = os.pipe()


def _wake_when_a_child_ends() -> None:
    for end in _CHILDREN:
        os.set_blocking(end, False)
    signal.set_wakeup_fd(_CHILDREN[1], warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)


if __name__ == "__main__":
    _wake_when_a_child_ends()
    main()
