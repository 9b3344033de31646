"""Values that a person gives for a line: what they stand for, and what is refused."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.source.given_values import ASK, parse_values, with_values

SCRIPT = """\
import triton
def step(x):
    if x.sum() > 3:
        return "over"
    elif (n := x.count()) > (
        5
    ):
        return n
    longest = x.max(); other = 2
    total = []
    for i in range(longest):
        total.append(i)
    while x.more():
        total.append(-1)
    return total
@triton.jit
def kernel(x):
    if x > 3:
        return
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


class Zeros:
    """What stands for a result: it knows nothing but zero."""

    def sum(self) -> int:
        return 0

    count = max = more = sum


@pytest.mark.parametrize(
    ("values", "returns"),
    [
        ([], []),
        (["train.py:3=True"], "over"),
        (["train.py:5=True"], 0),  # n is what x.count() gave
        (["train.py:9=2"], [0, 1]),
        (["train.py:9=2", "train.py:11=[7, 8, 9]"], [7, 8, 9]),
        (["train.py:15='all'"], "all"),
    ],
)
def test_a_value_takes_the_place_of_what_its_line_computes(
    script: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], returns: Any
) -> None:
    given = parse_values(values)
    monkeypatch.setattr(builtins, ASK, lambda number, _computed=None: given[number].value, raising=False)
    tree = with_values(script.read_bytes(), str(script), [(g.line, i) for i, g in enumerate(given)])
    names: dict[str, Any] = {}
    tree.body = tree.body[1:2]  # the function alone, without the import of triton
    exec(compile(tree, str(script), "exec"), names)
    assert names["step"](Zeros()) == returns


def test_a_line_within_a_long_condition_is_that_condition(script: Path) -> None:
    (given,) = parse_values([f"{script}:6=false"])
    assert (given.line, given.value, given.stands_for) == (5, False, "`if (n := x.count()) > 5`")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.py=True", "is no value for a line"),
        ("train.py:3=x > 1", "'x > 1' is no Python literal"),
        ("gone.py:3=True", "no such file"),
        ("train.py:2=True", "line 2 of train.py has no condition, assignment, return or loop"),
        ("train.py:11=3", "a `for` goes through a list"),
        ("train.py:13=True", "the loop would never end"),
        ("train.py:18=True", "the line is in the Triton kernel kernel"),
    ],
)
def test_what_cannot_be_meant_is_refused(script: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        parse_values([text])


def test_one_line_has_one_value(script: Path) -> None:
    with pytest.raises(InputError, match=r"the line has a value already: train\.py:3=True"):
        parse_values(["train.py:3=True", "./train.py:3=False"])
