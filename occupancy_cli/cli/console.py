"""The console that commands print to: full width when standard output is no terminal, text escaped by default."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# A file or a pipe has no width of its own: wide enough that no table cell is ever cut or wrapped there.
_NO_TERMINAL_WIDTH = 4_000


class Format(str, enum.Enum):
    """How the answer is printed."""

    table = "table"
    json = "json"


def make_console(file: Any = None) -> Console:
    """A console on standard output (or `file`). Names and paths are printed as they are: markup is off."""
    from rich.console import Console

    probe = Console(file=file)
    width = None if probe.is_terminal else _NO_TERMINAL_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def make_table(*headers: str, title: str = "", right: tuple[int, ...] = ()) -> Table:
    """A table with `headers`; the columns numbered in `right` are set flush right. Cells are text, never markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
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
