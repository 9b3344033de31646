"""How a run ends when the machine fails it: an output nobody reads, a full disk, a folder that is gone, our own fault.

Every end is an exit code and at most one sentence on standard error: 141 without a word when the reader of our output
went away (as a program that SIGPIPE ends), else 2. `OCCUPANCY_DEBUG=1` shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from occupancy_cli.errors import OccupancyError

READER_GONE = 141


class ReaderGone(Exception):
    """Whoever read our standard output no longer does."""


class Output:
    """Standard output whose failures say what failed: libraries turn a broken pipe into an exit code of 1."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`; `ReaderGone` or an `OccupancyError` when that cannot be."""
        with _named_failures():
            return int(self._stream.write(text))

    def flush(self) -> None:
        """Flush; fails as `write` does."""
        with _named_failures():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _named_failures() -> Any:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as bad:
        raise OccupancyError(f"cannot write: {bad.strerror}", where="standard output") from None


def prepare_streams() -> None:
    """Put `Output` in place; a stream that was closed before we began is one that cannot be written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # `>&-`: descriptor 1 or 2 is closed
            stream = Path("/dev/full" if name == "stdout" else os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
        # A name that the locale cannot write is shown by its code points.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = Output(sys.stdout)


def finish_streams() -> None:
    """Write out what is buffered; raises as `Output` does."""
    sys.stdout.flush()


def drop_output() -> None:
    """Let the interpreter's own flush at exit go nowhere: what it would say has been said."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    return os.environ.get("OCCUPANCY_DEBUG", "") not in ("", "0")
