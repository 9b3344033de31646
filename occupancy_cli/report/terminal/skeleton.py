"""What `init` wrote, on a terminal; the text itself where it goes to standard output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """One line, or the skeleton's text."""
    found = report.skeleton
    assert found is not None
    if found.path is None:
        yield Text(found.text.removesuffix("\n"), no_wrap=True)  # a folded line of it would be another file
        return
    count = len(found.guessed)
    what = "nothing is guessed" if count == 0 else f"{count} {'guess' if count == 1 else 'guesses'} to look over"
    yield Text(f"{found.path}: {what}, then: occupancy analyze {found.path}")
