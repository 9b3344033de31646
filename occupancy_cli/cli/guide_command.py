"""`occupancy guide`: the order of questions to ask, on one page, for an assistant or a person in a hurry."""

from __future__ import annotations

import typer


def guide() -> None:
    """Print which question to ask first, which next, and what each answer is good for. One page of Markdown."""
    from occupancy_cli.data_files import guide_text

    typer.echo(guide_text(), nl=False)
