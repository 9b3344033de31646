"""Nsight Compute's recorded samples of warp states: time by source line, as `explain` tells it, lies where they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testing import interpreter

pytestmark = pytest.mark.slow

stalls = interpreter.load_kernel("validation/stalls.py")


@pytest.fixture(scope="module")
def compared() -> list[Any]:
    return [found for launch in stalls.read_record() if (found := stalls.compare(launch)) is not None]


def test_the_line_with_most_samples_is_the_one_with_most_cycles(compared: list[Any]) -> None:
    assert len(compared) == 42
    assert sum(each.same_top for each in compared) >= 37


def test_shares_of_the_first_lines_lie_within_ten_points(compared: list[Any]) -> None:
    errors = [error for each in compared for error in each.errors]
    assert sum(error <= stalls.POINTS for error in errors) >= 0.85 * len(errors)


def test_other_shares_are_seen(compared: list[Any]) -> None:
    one = next(each for each in compared if each.name == "copy_fp64")
    assert one.same_top and max(one.errors) < stalls.POINTS
    # The cycles of its lines dealt out the other way round.
    lines = sorted(one.simulated, key=one.simulated.get)
    turned = dict(zip(lines, [one.simulated[n] for n in reversed(lines)], strict=True))
    wrong = replace(one, simulated=turned)
    assert not wrong.same_top and max(wrong.errors) > stalls.POINTS


def test_ctas_without_work_count_as_such(compared: list[Any]) -> None:
    # 1,056 CTAs, one of which has something to count: as if all had, the first line would lie 30 points off.
    one = next(each for each in compared if each.name == "histogram_last")
    assert max(one.errors[:2]) < stalls.POINTS
