"""How a run ends when the machine fails it: an output nobody reads, a full disk, a folder that is gone, our own fault.

Every end is an exit code and at most one sentence on standard error: 141 without a word when the reader of our output
went away (as a program that SIGPIPE ends), else 2. `OCCUPANCY_DEBUG=1` shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from occupancy_cli.errors import OccupancyError

READER_GONE = 141
_LONGEST_NAME = 200


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


def sentence(bad: BaseException) -> str:
    """What an unexpected failure comes to, in a sentence, and how to see more."""
    if isinstance(bad, FileNotFoundError) and not _has_working_directory():
        return "the working directory no longer exists"
    if isinstance(bad, OSError) and bad.strerror:
        name = "" if bad.filename is None else f"{_shortened(os.fsdecode(bad.filename))}: "
        return f"{name}{bad.strerror}"
    if isinstance(bad, RuntimeError) and str(bad).startswith("Symlink loop"):  # pathlib, before Python 3.13
        return f"{_shortened(str(bad).rpartition('from ')[2].strip(chr(39)))}: is a link that leads to itself"
    if isinstance(bad, MemoryError):
        return "out of memory"
    last = traceback.extract_tb(bad.__traceback__)[-1:]
    at = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    said = f": {bad}" if str(bad) else ""
    return f"an error of occupancy itself: {type(bad).__name__}{said}{at}\nOCCUPANCY_DEBUG=1 shows where it came from."


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    return os.environ.get("OCCUPANCY_DEBUG", "") not in ("", "0")


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}… ({len(name):,} characters)"
