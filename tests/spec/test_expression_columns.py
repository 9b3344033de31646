"""Expressions over columns give, row by row, what they give alone: the same value of one kind, or the same error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_cli.spec.expression_columns import at, codes, column_of, evaluate, spread
from occupancy_cli.spec.expressions import ExpressionError, parse_expression

NAMES = ("a", "b", "c")


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "/", "%", "<", ">=", "==", "and", "or"]), parts)
    calls = st.tuples(st.sampled_from(["min", "max", "ceil_div"]), parts, parts)
    return st.one_of(
        binary.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        calls.map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(parts, parts, parts).map(lambda t: f"clamp({t[0]}, {t[1]}, {t[2]})"),
        st.tuples(parts, parts, parts).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        parts.map(lambda t: f"next_power_of_2({t})"),
        parts.map(lambda t: f"-abs({t})"),
        parts.map(lambda t: f"(not {t})"),
    )


texts = st.recursive(
    st.one_of(st.sampled_from([*NAMES, "true"]), st.integers(0, 40).map(str), st.just("2.5")), joined, max_leaves=8
)
numbers = st.one_of(
    st.integers(-20, 600), st.booleans(), st.floats(-9, 9, allow_nan=False), st.integers(2**52, 2**63 - 1)
)
columns = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6)
whole = st.lists(st.tuples(*[st.integers(-20, 600)] * 3), min_size=1, max_size=6)


@settings(max_examples=600, deadline=None)
@given(texts, st.one_of(whole, columns))
def test_every_row_is_what_it_is_alone(text: str, rows: list[tuple]) -> None:
    expression = parse_expression(text)
    alone = []
    try:
        for row in rows:
            alone.append(expression(dict(zip(NAMES, row, strict=True))))
        failed = None
    except ExpressionError as bad:
        failed = bad.problem
    env = {name: column_of([row[i] for row in rows]) for i, name in enumerate(NAMES)}
    if failed is not None:
        with pytest.raises(ExpressionError) as caught:
            evaluate(expression, env)
        assert caught.value.problem == failed
        return
    found = evaluate(expression, env)
    together = [at(found, i) for i in range(len(rows))]
    assert together == alone
    assert [type(v) for v in together] == [type(v) for v in alone]


def test_one_value_stays_one_value() -> None:
    assert evaluate(parse_expression("a // 2"), {"a": 9}) == 4
    assert spread(4, 3).tolist() == [4, 4, 4]
    # batch * head_groups * splits of two batches and two splits: 80 * 2 * 1, 80 * 2 * 3, 96 * 2 * 1, 96 * 2 * 3
    env = {"batch": np.array([80, 80, 96, 96]), "head_groups": 2, "splits": np.array([1, 3, 1, 3])}
    assert evaluate(parse_expression("batch * head_groups * splits"), env).tolist() == [160, 480, 192, 576]


def test_integers_that_a_float_cannot_hold_are_left_to_python() -> None:
    # (2**62 + 1) / 1 is 2**62 as a float; // keeps it, and 4 times it does not fit 64 bits.
    env = {"a": np.array([2**62 + 1])}
    assert evaluate(parse_expression("a // 1"), env).tolist() == [2**62 + 1]
    with pytest.raises(ExpressionError, match="64 bits"):
        evaluate(parse_expression("a * 4"), env)


def test_rows_that_agree_share_a_code() -> None:
    found = codes([np.array([1, 1, 2, 1]), column_of(["x", "x", "x", 1])], 4)
    assert found[0] == found[1]
    assert len({*found.tolist()}) == 3
