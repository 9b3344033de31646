"""Traffic mixes and request lengths as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.spec.traffic import parse_lengths, parse_mix


def test_shares_are_brought_to_one() -> None:
    assert parse_mix("48:1,80:3") == {48: 0.25, 80: 0.75}  # 1 / 4 and 3 / 4
    assert parse_mix("48:0.2, 80:.5, 96:0.3") == pytest.approx({48: 0.2, 80: 0.5, 96: 0.3})


@pytest.mark.parametrize("text", ["", "48", "48:", "48:x", "0:1", "48:1,48:2", "48:0", "48:-1", "48:1;80:2", "48:1e9"])
def test_what_is_no_mix_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--mix"):
        parse_mix(text)


def test_lengths_as_a_list_a_file_and_json(tmp_path: Path) -> None:
    assert parse_lengths("512,512,64") == (512, 512, 64)
    (tmp_path / "a").write_text("512\n512\n64\n")
    (tmp_path / "b").write_text(json.dumps([512, 512, 64]))
    assert parse_lengths(str(tmp_path / "a")) == parse_lengths(str(tmp_path / "b"), batch=3) == (512, 512, 64)


def test_uniform_lengths_cover_the_interval_evenly() -> None:
    lengths = parse_lengths("uniform:1:100", batch=1000)
    assert (min(lengths), max(lengths)) == (1, 100)
    assert sum(lengths) / 1000 == pytest.approx(50.5, abs=0.5)  # the mean of 1 .. 100
    assert lengths == parse_lengths("uniform:1:100", batch=1000)  # the same every time


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("uniform:5:1", 8),
        ("uniform:1:5", None),
        ("512,64", 3),
        ("nosuchfile", None),
        ("1,,x", None),
        ("-1", None),
        ("", None),
    ],
)
def test_what_are_no_lengths_is_refused(text: str, batch: int | None) -> None:
    with pytest.raises(InputError, match="--lengths"):
        parse_lengths(text, batch)


@pytest.mark.parametrize("content", ["[1, 2", "[1.5]", '["a"]', "[" * 5000, "1 2 x", "[true]", ""])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "f").write_text(content)
    with pytest.raises(InputError, match="--lengths"):
        parse_lengths(str(tmp_path / "f"))
