"""Tables that never cut a cell, whatever the width: as many tables as it takes, each with the columns that name a row.

Where a terminal has no room, rich cuts cells off at the right, and a cut number is a wrong number (67,584 becomes
67,58). So the columns that fit are counted here first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Column:
    """A column: its header (lines), a cell a row, flush right or left; `folds`: its cells may break at spaces."""

    header: str
    cells: Sequence[str | Text]
    right: bool = True
    folds: bool = False

    def width(self, *, folded: bool = False) -> int:
        """Characters that its widest line takes; `folded`: its widest word."""
        texts = [*self.header.split("\n"), *map(_plain, self.cells)]
        if folded and self.folds:
            texts = [word for text in texts for word in text.split()]
        return max((len(text) for text in texts), default=0)


def _plain(cell: str | Text) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def needed_width(columns: Sequence[Column], gap: int, *, folded: bool = False) -> int:
    """Characters that a table of `columns` takes: an edge each side, and `gap` + 1 between two columns."""
    return 2 + (gap + 1) * (len(columns) - 1) + sum(c.width(folded=folded) for c in columns)


def lay_out(keys: Sequence[Column], columns: Sequence[Column], width: int, gap: int = 0) -> list[RenderableType]:
    """`columns` in as few tables as `width` has room for, `keys` before them in each; in sentences where not one fits.

    `gap` (0 to 2): spaces between columns beside the one that separates them.
    """
    groups: list[list[Column]] = []
    # Cells fold where that spares a second table, and not beside one.
    folded = needed_width([*keys, *columns], gap, folded=True) <= width
    for column in columns:
        if groups and (folded or needed_width([*keys, *groups[-1], column], gap) <= width):
            groups[-1].append(column)
        else:
            groups.append([column])
    if any(needed_width([*keys, *group], gap, folded=True) > width for group in groups):
        return _sentences(keys, columns)
    return [_table([*keys, *group], gap) for group in groups]


def _table(columns: Sequence[Column], gap: int) -> Table:
    padding = ((0, 0), (0, 1, 0, 0), (0, 1))[gap]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=padding)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.header), justify=justify, no_wrap=not column.folds, overflow="fold")
    for row in zip(*(c.cells for c in columns), strict=True):
        table.add_row(*(Text(c) if isinstance(c, str) else c for c in row))
    return table


def _sentences(keys: Sequence[Column], columns: Sequence[Column]) -> list[RenderableType]:
    def said(some: Sequence[Column], row: int) -> str:
        return ", ".join(f"{c.header.replace(chr(10), ' ').replace(' _', '_')} {_plain(c.cells[row])}" for c in some)

    rows = len((*keys, *columns)[0].cells) if (keys or columns) else 0
    return [Text(": ".join(filter(None, (said(keys, row), said(columns, row))))) for row in range(rows)]
