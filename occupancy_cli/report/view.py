"""How much of a Report a terminal is shown; JSON always has all of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class View:
    """`everything`: also what few readers want; `most_rows` of a long table; `plot`: a plot where there is one.

    `lines`: the source line by line.
    """

    everything: bool = False
    most_rows: int | None = None
    plot: bool = True
    lines: bool = False


WHOLE = View()
