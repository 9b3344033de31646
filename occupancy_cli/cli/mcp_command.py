"""`occupancy mcp`: the questions of this tool for an assistant, over the Model Context Protocol."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli.compiling import CompileOptions, compiles_on_this_machine
from occupancy_cli.errors import InputError, MissingDependencyError


@compiles_on_this_machine
def mcp(
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="FOLDER",
            help="A folder that clients may name files in, whatever roots they have. Repeatable. "
            "Default: the client's roots, or the working directory for one without.",
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", min=1, help="Seconds that one call may take.")] = 600.0,
    *,
    how: CompileOptions,
) -> None:
    """Serve analyze, recommend, check, explain, fit, diff, calc and gpus to an MCP client on standard input and output.

    Needs the extra `mcp`. docs/mcp.md says how to register it with a client.
    """
    if importlib.util.find_spec("mcp") is None or importlib.util.find_spec("mcp_types") is None:
        raise MissingDependencyError(
            "`occupancy mcp` needs the package `mcp`, version 2",
            hint="Install it: python -m pip install 'occupancy-cli[mcp]'",
        )
    for folder in roots or []:
        if not folder.is_dir():
            raise InputError(f"no such folder: {folder}", where="--root")
    from occupancy_cli.mcp_server.answering import HowToCompile
    from occupancy_cli.mcp_server.server import Settings, serve

    if sys.stdin.isatty():
        typer.echo("occupancy mcp: waiting for a client on standard input (see docs/mcp.md); Ctrl-D ends it", err=True)
    compiling = HowToCompile(how.jobs, how.timeout, how.memory_gb, cache=not how.no_cache)
    folders = tuple(roots) if roots else (Path.cwd(),)
    serve(Settings(folders, bool(roots), time_limit, compiling))
