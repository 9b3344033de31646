"""`occupancy cache`: where results are remembered, how many, and how to forget them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.show import show


class Action(str, enum.Enum):
    """What to do with the cache."""

    info = "info"
    clear = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="info, or clear: forget every result.")] = Action.info,
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Show the result cache, or clear it. It lies in OCCUPANCY_CACHE_DIR, else in XDG_CACHE_HOME or ~/.cache."""
    from occupancy_cli.answers.installation import result_cache

    show(result_cache(clear=action is Action.clear), output_format)
