"""What came from outside and is printed: nothing in it steers a terminal or a CI system."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from occupancy_cli.report.visible_text import visible, visible_lines


def test_escapes_by_hand() -> None:
    assert visible("plain × text, 1 µs – 中") == "plain × text, 1 µs – 中"
    assert visible("a\x1b[31mb\x00\x7f\x9b") == r"a\x1b[31mb\x00\x7f\x9b"
    assert visible("one\r\ntwo\tthree\u2028four\u202e") == r"one\r\ntwo\tthree\u2028four\u202e"
    assert visible("\udcff") == r"\udcff"  # a byte of a file name that is no UTF-8


def test_a_line_that_a_ci_system_would_obey() -> None:
    said = visible_lines("bad\n::error file=x::gone\n  ##[group]y\nplain :: here")
    assert said == "bad\n\\::error file=x::gone\n  \\##[group]y\nplain :: here"


@given(st.text())
def test_nothing_that_steers_is_left(text: str) -> None:
    for shown in (visible(text), visible_lines(text).replace("\n", "")):
        assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert not any(line.lstrip().startswith(("::", "##[")) for line in visible_lines(text).split("\n"))
    assert visible_lines(text) == text or visible(text) != text or "::" in text or "##[" in text or "\r" in text
