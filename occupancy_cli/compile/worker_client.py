"""A worker process seen from outside: send it a request, get an answer, or learn how it ended.

The process has a session of its own, so that what a kernel file starts ends with it, and a guard: a shell that waits
for this process to end, however it ends, and then ends that session and removes its folder. A request that outlasts
its time, or a process that dies or answers what was not asked, costs that request its answer and nothing else; the next
one gets a fresh process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.request import Kind

if TYPE_CHECKING:  # imported when a worker is started: most runs find all they ask for in the cache
    import subprocess
    import tempfile

CAPTURED_CHARACTERS = 4_000
# How often a silent worker is looked at: a process that it started may hold its pipe open after it is gone.
_LOOK_SECONDS = 0.5
_CAPTURE = "output"
_GUARD = 'read _; kill -9 -"$1"; rm -rf "$2"'

# As `python -m`, but without the working directory on the path: a file there called random.py or queue.py must not take
# the place of the standard library's. The first argument is where this package lies, if it is not installed.
START = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
here = sys.argv.pop(1)
if here not in sys.path:
    sys.path.insert(0, here)
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""

_all: set[WorkerClient] = set()
_all_lock = threading.Lock()


@dataclass(frozen=True)
class Limits:
    """Time and memory that one compile may take."""

    seconds: float = 120.0
    memory_bytes: int = 8 << 30


class WorkerFailure(Exception):
    """A request without an answer: the worker died or ran out of time. `output` is what it had printed."""

    def __init__(self, kind: Kind, message: str, output: str = "") -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        return (WorkerFailure, (self.kind, self.message, self.output))


@dataclass(frozen=True)
class Reply:
    """A worker's answer, and the end of what was printed meanwhile."""

    text: str
    output: str


class WorkerClient:
    """One worker process, started when first needed: `module` is run as a program and answers lines of text.

    What they say is between the caller and the worker; see `worker_channel` for how they are told from what a kernel
    file writes.
    """

    def __init__(self, limits: Limits, module: str = "occupancy_cli.compile.worker") -> None:
        self.limits = limits
        self.module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._changing = threading.Lock()
        with _all_lock:
            _all.add(self)

    def ask(self, text: str, kernel: str = "") -> Reply:
        """The worker's answer to `text`; `WorkerFailure` when it gives none. `kernel` says whose file it loads."""
        from occupancy_cli.compile import worker_channel

        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        deadline = time.monotonic() + self.limits.seconds
        token = worker_channel.new_token()
        try:
            process.stdin.write(worker_channel.request_line(token, text))
            process.stdin.flush()
            line = self._read_line(process, deadline)
        except (BrokenPipeError, EOFError, ValueError):  # ValueError: closed meanwhile
            raise self._died(process) from None
        except TimeoutError:
            output = self._captured()
            self.close()
            limit = f"{self.limits.seconds:g} s"
            raise WorkerFailure("timeout", f"not done after {limit}, the limit of one compile", output) from None
        output = self._captured()
        try:
            return Reply(worker_channel.answer_in(token, line), output)
        except worker_channel.ForgedAnswer:
            self.refuse()
            raise WorkerFailure("crash", refused_answer(kernel), output) from None

    def refuse(self) -> None:
        """End a process that answered what it was not asked: what else it says cannot be told apart either."""
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        import subprocess
        import tempfile

        self.close()
        folder = tempfile.TemporaryDirectory(prefix="occupancy-worker-")
        process = subprocess.Popen(
            [
                *(sys.executable, "-u", "-c", START, str(Path(__file__).resolve().parents[2]), self.module),
                *(f"{folder.name}/{_CAPTURE}", str(self.limits.memory_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(folder.name),
        )
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(process.pid), folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with self._changing:
            self._process, self._guard, self._folder = process, guard, folder
        with _all_lock:
            _all.add(self)
        return process

    def _captured(self) -> str:
        folder = self._folder
        if folder is None:
            return ""
        try:
            with (Path(folder.name) / _CAPTURE).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * CAPTURED_CHARACTERS))
                return file.read().decode(errors="replace")[-CAPTURED_CHARACTERS:]
        except OSError:
            return ""

    def _read_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        data = b""
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ended = process.poll() is not None
            if not select.select([fd], [], [], 0 if ended else min(left, _LOOK_SECONDS))[0]:
                if ended:
                    raise EOFError
                continue
            part = os.read(fd, 1 << 16)
            if not part:
                raise EOFError
            data += part
        return data

    def _died(self, process: subprocess.Popen[bytes]) -> WorkerFailure:
        from subprocess import TimeoutExpired

        with contextlib.suppress(TimeoutExpired):
            process.wait(5)
        code = process.returncode
        output = self._captured()
        self.close()
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            why = f"the compiler process was ended by {name}"
        else:
            why = f"the compiler process ended by itself with exit code {code}"
        return WorkerFailure("crash", why, output)

    def close(self) -> None:
        """End the process and whatever it started, at once."""
        with self._changing:
            process, self._process = self._process, None
            guard, self._guard = self._guard, None
            folder, self._folder = self._folder, None
        for started in filter(None, (guard, process)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            for pipe in (started.stdin, started.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if folder is not None:
            with contextlib.suppress(OSError):  # a second Ctrl-C in the midst of it, among others
                folder.cleanup()
        with _all_lock:
            _all.discard(self)


def refused_answer(kernel: str) -> str:
    """Why an answer that is none is refused."""
    by = f"code that {kernel} loads writes to the compiler process's answers" if kernel else "another code wrote it"
    return f"the compiler process answered what was not asked: {by}"


def close_all() -> None:
    """End every worker of this process."""
    with _all_lock:
        clients = list(_all)
    for client in clients:
        client.close()


atexit.register(close_all)


def _forget_workers() -> None:
    """A forked child has none: those it finds here are its parent's, which its end must not take along.

    Nor may its copies of their pipes hide from them that the parent is gone.
    """
    global _all_lock
    nowhere = os.open(os.devnull, os.O_RDWR)
    for client in _all:
        for started in filter(None, (client._process, client._guard)):
            if started.stdin is not None and not started.stdin.closed:
                os.dup2(nowhere, started.stdin.fileno())
    os.close(nowhere)
    _all.clear()
    _all_lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_workers)


def _environment(folder: str) -> dict[str, str]:
    """The worker's environment: this one's, the folder this tool was imported from, and a folder for what it writes."""
    return os.environ | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": folder,
        # What a kernel's file makes of sets and of text files must not differ from one process to the next.
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
    }
