"""A process for each call: started, followed, and ended with its compiles when the call is cancelled or out of time.

What the process is told and tells is in `answering`. It has a session of its own, and so has each of its compile
workers with a guard that waits for the process to end (`compile.worker_client`): ending it is all that is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from occupancy_cli.compile.worker_client import START
from occupancy_cli.errors import OccupancyError
from occupancy_cli.mcp_server.answering import Call
from occupancy_cli.mcp_server.results import ShortAnswer

_MODULE = "occupancy_cli.mcp_server.answering"
_PACKAGE_IN = str(Path(__file__).resolve().parents[2])
_LONGEST_LINE_BYTES = 1 << 30

Told = Callable[[Mapping[str, Any]], Awaitable[None]]


async def ask(call: Call, limit_s: float, progress: Told, folder: Path) -> ShortAnswer:
    """The answer to a call, asked with `folder` as the working directory; `progress` is told what the process says.

    An `OccupancyError` with its message, for one that takes longer than `limit_s`, or a process that died.
    """
    try:
        with anyio.fail_after(limit_s):
            return await _answer(call, progress, folder)
    except TimeoutError:
        hint = "What was compiled by then is kept: asking again goes on from there." if call.how.cache else ""
        raise OccupancyError(
            f"not done within {limit_s:g} s, the limit of this call", where=call.tool, hint=hint
        ) from None


async def _answer(call: Call, progress: Told, folder: Path) -> ShortAnswer:
    command = [sys.executable, "-c", START, _PACKAGE_IN, _MODULE]
    process: Any = await anyio.open_process(
        command, stdin=PIPE, stdout=PIPE, stderr=None, cwd=folder, start_new_session=True
    )
    try:
        with contextlib.suppress(anyio.BrokenResourceError):  # it died; how, is said below
            await process.stdin.send(f"{call.to_json()}\n".encode())
        lines = BufferedByteReceiveStream(process.stdout)
        while True:
            try:
                line = await lines.receive_until(b"\n", _LONGEST_LINE_BYTES)
            except (anyio.IncompleteRead, anyio.EndOfStream):
                raise OccupancyError(await _how_it_ended(process), where=call.tool) from None
            said = json.loads(line)
            if "answer" in said:
                return ShortAnswer(**said["answer"])
            if "error" in said:
                raise OccupancyError(str(said["error"]))
            await progress(said["progress"])
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _how_it_ended(process: Any) -> str:
    code = await process.wait()
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended by itself with exit code {code}"
    return f"the process that answered {how}"
