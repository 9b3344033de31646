"""The channel between a worker process and its client: one line a message, each with a token that its answer repeats.

The token is new with every request and comes over a pipe that only the worker's own loop reads. A line without it was
not written by that loop: a kernel file has found the channel and written to it. Then nothing that this process says can
be told from what the kernel says, and the request ends with that.

In the worker both pipes are moved away from the low descriptors, to places that nothing inherits, before a kernel is
loaded: what a kernel file prints, or closes, is not the channel.
"""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

_LOWEST = 200


class ForgedAnswer(Exception):
    """The channel has a line that the worker's own loop did not write."""


def new_token() -> str:
    """A token for one request."""
    return os.urandom(16).hex()


def request_line(token: str, text: str) -> bytes:
    """A request as the worker reads it."""
    return f"{token} {text}\n".encode()


def answer_in(token: str, line: bytes) -> str:
    """The answer in a line; `ForgedAnswer` when it is none to the request with that token."""
    try:
        found, _, text = line.decode().rstrip("\n").partition(" ")
    except UnicodeDecodeError as bad:
        raise ForgedAnswer from bad
    if found != token:
        raise ForgedAnswer
    return text


class WorkerEnd:
    """The worker's end: iterate for requests, `answer` each. Made before anything else is opened or loaded."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = 1000 if soft == resource.RLIM_INFINITY else min(soft, 1000) - 16
        lowest = max(10, min(_LOWEST, highest))
        base = lowest + int.from_bytes(os.urandom(4), "big") % max(1, highest - lowest)
        self._requests = os.fdopen(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, base), encoding="utf-8")
        self._answers = os.fdopen(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, base), "w", encoding="utf-8")
        self.descriptors = (self._requests.fileno(), self._answers.fileno())
        self._token = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._requests:
            self._token, _, text = line.rstrip("\n").partition(" ")
            yield text

    def answer(self, text: str) -> None:
        """Answer the request at hand."""
        self._answers.write(f"{self._token} {text}\n")
        self._answers.flush()
