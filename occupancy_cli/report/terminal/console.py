"""The console that Reports are printed to: full width when standard output is no terminal, text escaped by default."""

from __future__ import annotations

import sys
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A file or a pipe has no width of its own: wide enough that no cell and no line is ever cut or folded there, where a CI
# system could take what follows a fold for the start of a line.
_NO_TERMINAL_WIDTH = 1_000_000


def make_console(file: Any = None) -> Console:
    """A console on standard output (or `file`). Names and paths are printed as they are: markup is off.

    FORCE_COLOR puts colours into standard output that is no terminal, such as a CI log, and folds nothing there.
    """
    stream = sys.stdout if file is None else file
    is_terminal = Console(file=file).is_terminal and (file is not None or stream.isatty())
    width = None if is_terminal else _NO_TERMINAL_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def make_plain_console(file: Any) -> Console:
    """A console on a file that people read as text: no colours, whatever the environment says, and nothing folded."""
    plain: dict[str, Any] = {"force_terminal": False, "no_color": True, "markup": False, "highlight": False}
    return Console(file=file, width=_NO_TERMINAL_WIDTH, emoji=False, **plain)


class PlainTable(Table):
    """A table whose cells are text, never markup."""

    def add_row(self, *cells: Any, **settings: Any) -> None:
        """A row; `cells` are texts."""
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **settings)


def make_table(*headers: str, title: str = "", right: tuple[int, ...] = ()) -> PlainTable:
    """A table with `headers`; the columns numbered in `right` are set flush right."""
    table = PlainTable(
        box=SIMPLE_HEAD,
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, header in enumerate(headers):
        # The first column names the row: the others fold around it.
        justify: Literal["left", "right"] = "right" if index in right else "left"
        table.add_column(Text(header), justify=justify, overflow="fold", no_wrap=index == 0)
    return table


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 CTA", "2 CTAs", "1,024 bytes"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
