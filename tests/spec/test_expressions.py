"""Expressions: what they compute, what they refuse, and that no text can hang, exhaust or reach Python."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_cli.errors import InputError
from occupancy_cli.spec.expressions import LARGEST, parse_expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),  # 2 + 12
        ("ceil_div(16, 6)", 3),  # 6 + 6 + 4
        ("ceil_div(-7, 2)", -3),  # -3.5 up
        ("next_power_of_2(513)", 1024),
        ("next_power_of_2(0)", 1),
        ("clamp(256 // 80, 1, 32)", 3),  # 3.2 down
        ("clamp(0, 1, 32)", 1),
        ("min(3, 2, 5) + max(1, 2)", 4),
        ("-7 % 3", 2),  # as Python: -9 + 2
        ("7 / 2", 3.5),
        ("1 if batch > 64 else 2", 1),
        ("batch * (512 + 64)", 46080),  # 80 x 576
        ("not (1 < 2 < 3)", False),
        ("1 < 2 and 0", False),
    ],
)
def test_values(text: str, value: float) -> None:
    assert parse_expression(text)({"batch": 80}) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9**9**9", "'**' is not allowed"),
        ("1 << 900", "not allowed"),
        ("__import__('os')", "no function here"),
        ("().__class__", "not allowed"),
        ("'a' * 9", "not allowed"),
        ("[1] * 9", "not allowed"),
        ("lambda: 1", "not allowed"),
        ("(x := 1)", "not allowed"),
        ("f'{1}'", "not allowed"),
        ("1 +", "cannot be read"),
        ("batch ==", "cannot be read"),
        ("btach + 1", "did you mean batch"),
        ("1 // 0", "division by zero"),
        ("ceil_div(1, 0)", "division by zero"),
        ("1 " + "+ 1 " * 400, "1,602 characters"),
        ("1" * 400, "64 bits"),
        ("1e999", "not a finite number"),
        ("9223372036854775807 + 1", "64 bits"),
        ("min(1)", "takes 2 or more"),
        ("clamp(1, 2)", "takes 3 values, not 2"),
        ("min(a=1)", "takes 2 or more"),
        ("", "cannot be read"),
        ("-" * 900 + "1", "nested more than"),
        ("(" * 300 + "1" + ")" * 300, "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_refusals(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_expression(text)({"batch": 80})
    assert says in str(caught.value)


def test_an_error_shows_the_place() -> None:
    with pytest.raises(InputError) as caught:
        parse_expression("1 + batsh * 2", "k.yaml:3: derived.x")({"batch": 1})
    line, marker = caught.value.hint.splitlines()
    assert line[marker.index("^") :].startswith("batsh")
    assert str(caught.value).startswith("k.yaml:3: derived.x: unknown name 'batsh'")


NAMES = st.sampled_from(["a", "b", "min", "max", "ceil_div", "clamp", "next_power_of_2", "1", "99", "2.5", "true"])
TOKENS = st.lists(st.one_of(NAMES, st.sampled_from([*"+-*/%(),<>=:[]{}.'\"! \n", "//", "**", " if ", " else "])))


@settings(max_examples=1500, deadline=None)
@given(st.one_of(TOKENS.map("".join), st.text(max_size=60)))
def test_any_text_gives_a_bounded_number_or_an_input_error(text: str) -> None:
    try:
        value = parse_expression(text)({"a": 7, "b": -3})
    except InputError:
        return
    assert isinstance(value, (int, float))
    assert isinstance(value, float) or -LARGEST - 1 <= value <= LARGEST


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_ceil_div_is_the_least_integer_not_below(a: int, b: int) -> None:
    value = parse_expression("ceil_div(a, b)")({"a": a, "b": b})
    assert (value - 1) * b < a <= value * b


def test_the_parser_of_python_prints_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_expression("1if 2 else 3")({}) == 1
