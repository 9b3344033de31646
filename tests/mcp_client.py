"""A client of `occupancy mcp`: the SDK's own, over the standard input and output of a real process."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

if os.environ.get("OCCUPANCY_REQUIRE_MCP") != "1":
    pytest.importorskip("mcp_types", reason="the extra `mcp` is not installed")

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters

T = TypeVar("T")


def client(folder: Path, *options: str, roots: list[Path] | None = None, **settings: Any) -> Client:
    """A client whose server runs in `folder` with these options; `roots` are what it tells, None: it has none."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "occupancy_cli", "mcp", *options], env=dict(os.environ), cwd=folder
    )

    async def listed(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=folder.as_uri()) for folder in roots or []])

    callback = None if roots is None else listed
    return Client(server, list_roots_callback=callback, read_timeout_seconds=300, **settings)


def talk(conversation: Callable[[Client], Awaitable[T]], folder: Path, *options: str, **settings: Any) -> T:
    """What a conversation with a server comes to."""

    async def run() -> T:
        async with client(folder, *options, **settings) as one:
            return await conversation(one)

    return anyio.run(run)


def text_of(result: Any) -> str:
    """The text of a tool's answer."""
    return str(result.content[0].text)


def report_of(result: Any) -> dict[str, Any]:
    """The Report in a tool's structured answer; fails with the text of one that is an error."""
    assert not result.is_error, text_of(result)
    found: dict[str, Any] = result.structured_content["report"]
    return found
