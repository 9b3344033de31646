"""`occupancy manual`: the man page."""

from __future__ import annotations

import typer


def manual() -> None:
    """Print the man page, every command in it: occupancy manual | man -l -

    To install it: occupancy manual > ~/.local/share/man/man1/occupancy.1
    """
    from occupancy_cli.cli.manual import man_page

    typer.echo(man_page(), nl=False)
