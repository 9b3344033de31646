"""`occupancy cache`: where results are remembered, how many, which kernels are not and why; verify or forget them."""

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
    path = "path"
    size = "size"
    stats = "stats"
    verify = "verify"
    clear = "clear"


_MOST_CHANGES = 5


def cache(
    action: Annotated[
        Action,
        typer.Argument(
            help="info (or stats): what is kept, and which kernels are not. path, size: that alone. verify: read every "
            "result, and say which would be used today. clear: forget them."
        ),
    ] = Action.info,
    output_format: options.FormatOption = Format.table,
) -> None:
    """Show the result cache, verify or clear it. It lies in OCCUPANCY_CACHE_DIR, else in XDG_CACHE_HOME or ~/.cache."""
    from occupancy_cli.compile.result_cache import ResultCache

    store = ResultCache()
    check = store.verify() if action is Action.verify else None
    removed = store.clear() if action is Action.clear else None
    info = store.info()
    if output_format is Format.json:
        said = {"schema": "occupancy/cache/1", **asdict(info), "removed": removed, "notice": store.notice}
        typer.echo(json.dumps({**said, "verified": None if check is None else asdict(check)}, indent=2))
        return
    if action in (Action.path, Action.size):
        typer.echo(info.path if action is Action.path else str(info.size_bytes))
        return
    if store.notice:
        typer.echo(store.notice)
    if removed is not None:
        typer.echo(f"removed {removed:,} results")
    typer.echo(f"{info.path}: {info.records:,} results, {info.size_bytes:,} bytes")
    if info.triton_versions:
        typer.echo(f"Triton versions: {', '.join(info.triton_versions)}")
    if check is not None:
        typer.echo(f"{check.holding:,} would be used today, {check.stale:,} are of sources that have changed since")
        for what, count in check.changes[:_MOST_CHANGES]:
            typer.echo(f"  {what}: {count:,}")
        if len(check.changes) > _MOST_CHANGES:
            typer.echo(f"  and {len(check.changes) - _MOST_CHANGES:,} more")
        if check.damaged:
            typer.echo(f"{check.damaged:,} were damaged and are removed")
    for each in info.unkept:
        typer.echo(f"not kept: {each.kernel}")
        for reason in each.reasons:
            typer.echo(f"  {reason}")
    if info.trouble:
        typer.echo(f"not usable: {info.trouble}")
