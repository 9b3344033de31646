"""A worker process seen from outside: send it a request, get an answer, or learn how it ended.

The process has a session of its own, so that what a kernel file starts ends with it. A request that outlasts its time,
or a process that dies, costs that request its answer and nothing else; the next one gets a fresh process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.request import Kind

if TYPE_CHECKING:  # imported when a worker is started: most runs find all they ask for in the cache
    import subprocess
    import tempfile

CAPTURED_CHARACTERS = 4_000

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


class WorkerClient:
    """One worker process, started when first needed: `module` is run as a program and answers JSON lines."""

    def __init__(self, limits: Limits, module: str = "occupancy_cli.compile.worker") -> None:
        self.limits = limits
        self.module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        with _all_lock:
            _all.add(self)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer to `message`; `WorkerFailure` when it gives none."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        deadline = time.monotonic() + self.limits.seconds
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(process, deadline)
        except (BrokenPipeError, EOFError):
            raise self._died(process) from None
        except TimeoutError:
            output = self._captured()
            self.close()
            limit = f"{self.limits.seconds:g} s"
            raise WorkerFailure("timeout", f"not done after {limit}, the limit of one compile", output) from None
        answer: dict[str, Any] = json.loads(line)
        answer["output"] = self._captured()
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        import subprocess
        import tempfile

        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="occupancy-worker-")
        command = [sys.executable, "-u", "-m", self.module, str(self._capture())]
        self._process = subprocess.Popen(
            [*command, str(self.limits.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(self._folder.name),
        )
        with _all_lock:
            _all.add(self)
        return self._process

    def _capture(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "output"

    def _captured(self) -> str:
        try:
            return self._capture().read_text(errors="replace")[-CAPTURED_CHARACTERS:]
        except (OSError, AssertionError):
            return ""

    def _read_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        data = b""
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError
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
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        with _all_lock:
            _all.discard(self)


def close_all() -> None:
    """End every worker of this process."""
    with _all_lock:
        clients = list(_all)
    for client in clients:
        client.close()


atexit.register(close_all)


def _environment(folder: str) -> dict[str, str]:
    """The worker's environment: this one's, the folder this tool was imported from, and a folder for what it writes."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
