"""A recommendation on a terminal begins with what to set, what it gains over what, and how sure that is."""

from __future__ import annotations

import dataclasses

from test_page import choice, report

from occupancy_cli.report.choice_parts import Recommendation, Subject, TiedValues
from occupancy_cli.report.terminal import text


def found(**changes: object) -> Recommendation:
    first = report().recommendations[0]
    given = {
        "set_line": "export H=16", "left_open": "left to the autotuner, which is taken to find BLOCK=64",
        "against": "the defaults of its spec", "why": ["iterations of the longest CTA: 11 -> 4"],
        "candidates": 24, "tied": 3,
        "tied_values": [
            TiedValues(name=n, values=v)
            for n, v in (("H", [16]), ("num_ctas", [1]), ("BLOCK", [32, 64]), ("T", list(range(9))))
        ],
    }  # fmt: skip
    return dataclasses.replace(first, **(given | changes))  # type: ignore[arg-type]


def test_the_answer_stands_before_the_table() -> None:
    whole = dataclasses.replace(report(), kernels=[], sweep=[], surface=[], recommendations=[found()])
    lines = str(whole).splitlines()
    assert lines[1:8] == [
        "export H=16",
        "  (left to the autotuner, which is taken to find BLOCK=64)",
        "2.20x as fast, ±9.2 %, as the defaults of its spec: 32.4 -> 14.7 us predicted",
        "tied within ±9.2 %: 3 of 24 settings",
        "- iterations of the longest CTA: 11 -> 4",
        "- every tied setting has H 16",
        "- did not matter within that: BLOCK 32, 64; T 0 to 8 (9 values)",
    ]
    assert "because" not in str(whole)  # a reason that another choice could have had


def test_what_is_kept_alone_or_without_a_rival_is_said() -> None:
    kept = text.gain(found(kept_default=True, against="what is set now (H by the environment variable X)"))
    assert kept == (
        "keep it: nothing is predicted to gain more than the model's own error, ±9.2 %, over what is set now "
        "(H by the environment variable X)"
    )
    assert text.gain(found(default=None)) == "14.7 us predicted; the defaults of its spec cannot launch"
    assert text.sureness(found(tied=1)) == "alone: none of the other 23 settings is within ±9.2 %"
    assert text.sureness(found(tied=None)) == "" and text.open_names(found(tied=1)) == []
    assert text.gain(found(default=choice(32, 3, 32.4))).endswith("32.4 -> 14.7 us predicted")


def test_the_l2_is_said_and_the_batches_where_the_choice_flips_are_marked() -> None:
    at = {48: 16, 64: 16, 80: 32, 96: 16, 112: 16}
    found_at = [found(batch=batch, config={"BLOCK": block}) for batch, block in at.items()]
    about = Subject(kernel="k", source="k.yaml", sha256="", l2="cold")
    whole = dataclasses.replace(
        report(), kernels=[], sweep=[], surface=[], recommendations=found_at, subject=about, single_setting=None
    )
    lines = str(whole).splitlines()
    assert [line.split()[0] for line in lines if line.strip()[:2].isdigit()][-5:] == ["48", "64", "80*", "96*", "112"]
    assert "* another setting than at the batch before" in lines
    assert "cold L2: it holds none of the data" in lines
    few = str(dataclasses.replace(whole, recommendations=found_at[:3]))
    assert "at batch 80 the choice flips: BLOCK 16 -> 32" in few and "at batch 64 the choice" not in few
    warm = dataclasses.replace(about, l2="warm")
    assert "warm L2: it may hold the data" in str(dataclasses.replace(whole, subject=warm))


def test_a_sweep_marks_where_the_best_setting_flips() -> None:
    plain = dataclasses.replace(report(), kernels=[], recommendations=[], surface=[])
    assert "^" not in str(plain)
    side = dataclasses.replace(plain.sweep[2].best, config={"BLOCK": 128})
    flipped = dataclasses.replace(plain, sweep=[*plain.sweep[:2], dataclasses.replace(plain.sweep[2], best=side)])
    text_of = str(flipped)
    assert "- the best setting is another from batch 24 on (^ below the plot)" in text_of
    axis = [i for i, line in enumerate(text_of.splitlines()) if line.strip("- ") == "+"]
    below = text_of.splitlines()[axis[0] + 1]
    assert below.strip() == "^" and len(below) == len(text_of.splitlines()[axis[0]])  # batch 24 is the last column
