"""`occupancy cache`: where results are remembered, how many, and how to forget them."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format


class Action(str, enum.Enum):
    """What to do with the cache."""

    info = "info"
    clear = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="info, or clear: forget every result.")] = Action.info,
    output_format: options.FormatOption = Format.table,
) -> None:
    """Show the result cache, or clear it. It lies in OCCUPANCY_CACHE_DIR, else in XDG_CACHE_HOME or ~/.cache."""
    from occupancy_cli.compile.result_cache import ResultCache

    store = ResultCache()
    removed = store.clear() if action is Action.clear else None
    info = store.info()
    if output_format is Format.json:
        typer.echo(json.dumps({"schema": "occupancy/cache/1", **asdict(info), "removed": removed}, indent=2))
        return
    if removed is not None:
        typer.echo(f"removed {removed:,} results")
    typer.echo(f"{info.path}: {info.records:,} results, {info.size_bytes:,} bytes")
    if info.triton_versions:
        typer.echo(f"Triton versions: {', '.join(info.triton_versions)}")
    if info.trouble:
        typer.echo(f"not usable: {info.trouble}")
