"""`occupancy cache`: where results are remembered, how many, which kernels are not and why; verify or forget them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show


class Action(str, enum.Enum):
    """What to do with the cache."""

    info = "info"
    path = "path"
    size = "size"
    stats = "stats"
    verify = "verify"
    clear = "clear"


def cache(
    action: Annotated[
        Action,
        typer.Argument(
            help="info (or stats): what is kept, and which kernels are not. path, size: that alone. verify: read every "
            "result, and say which would be used today. clear: forget them."
        ),
    ] = Action.info,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Show the result cache, verify or clear it. It lies in OCCUPANCY_CACHE_DIR, else in XDG_CACHE_HOME or ~/.cache."""
    from occupancy_cli.answers.installation import result_cache

    report = result_cache(clear=action is Action.clear, verify=action is Action.verify)
    if action in (Action.path, Action.size) and output_format is options.Format.table and report.cache is not None:
        typer.echo(report.cache.path if action is Action.path else str(report.cache.size_bytes))
        return
    show(report, output_format)
