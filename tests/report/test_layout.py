"""Tables at any width: a cell is never cut, since a cut number is a wrong number."""

from __future__ import annotations

import os

import pytest
from rich.console import Console, Group

from occupancy_cli.report.terminal.layout import Column, lay_out, needed_width

KEYS = [Column("BLOCK\n_M", ["64", "128"]), Column("warps", ["4", "8"])]
COLUMNS = [
    Column("shared\nbytes", ["36,864", "163,840"]),
    Column("spill\nbytes", ["0", "1,112"]),
    Column("limited by", ["shared registers", "shared"], right=False, folds=True),
    Column("waves", ["5.45", "10.89"]),
    Column("last\nwave", ["45 %", "89 %"]),
]
WHOLE = {"36,864", "163,840", "1,112", "shared", "registers", "5.45", "10.89", "45", "89", "64", "128"}


def lines_at(width: int, gap: int = 0) -> list[str]:
    console = Console(width=width, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    console.print(Group(*lay_out(KEYS, COLUMNS, width, gap)))
    return console.export_text().splitlines()


def test_the_width_that_a_table_needs() -> None:
    # Columns of 5, 5, 7, 5, 16, 5 and 4 characters, 6 separators, an edge each side: 47 + 6 + 2. Folded, "registers"
    # (9) is the widest of the fifth: 40 + 6 + 2.
    assert needed_width([*KEYS, *COLUMNS], gap=0) == 55
    assert needed_width([*KEYS, *COLUMNS], gap=0, folded=True) == 48
    # Each gap beside a separator adds its spaces 6 times.
    assert needed_width([*KEYS, *COLUMNS], gap=2) == 55 + 12
    # What is said of the width is what rich takes.
    assert max(map(len, lines_at(200))) == 55 and max(map(len, lines_at(200, gap=1))) == 55 + 6


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_no_cell_is_cut_at_any_width(gap: int) -> None:
    for width in range(12, 90):
        lines = lines_at(width, gap)
        assert {word.strip(",:") for line in lines for word in line.split()} >= WHOLE, width
        assert all(len(line) <= width for line in lines), width


def test_columns_fold_before_they_go_to_a_second_table_and_not_beside_one() -> None:
    rules = {width: sum("─" in line for line in lines_at(width)) for width in (55, 48, 47, 12)}
    assert rules == {55: 1, 48: 1, 47: 2, 12: 0}  # at 12 columns not one fits beside the names: sentences
    assert any("shared registers" in line for line in lines_at(55))
    assert not any("shared registers" in line for line in lines_at(48))
    assert any("shared registers" in line for line in lines_at(47))
