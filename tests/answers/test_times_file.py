"""A file of times is read strictly: what no launch gives is an error that names the line, whatever the rest says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.answers.times_file import Measurement, read_times
from occupancy_cli.errors import InputError

HEADER = {
    "schema": "occupancy/times/1", "kernel": "k.yaml", "source_sha256": "0" * 64, "gpu": "h200-sxm", "device": "H200",
    "compute_capability": "9.0", "sm_count": 132, "triton": "3.9.0", "ptxas": "12.9", "torch": "2.9.0", "l2": "warm",
    "cold": False, "launches_per_replay": 10, "replays": 10, "identity": ["batch", "BLOCK", "num_warps", "maxnreg"],
}  # fmt: skip
POINT = {
    "batch": 8, "BLOCK": 64, "num_warps": 4, "grid": [64, 2], "smem": 0, "regs": 16, "spills": 0, "ctas_per_sm": 16,
    "us_split": 3.0, "us_total": 4.0, "spread_percent": 1.0, "sm_clock_mhz": 1980,
}  # fmt: skip


def written(path: Path, *points: Any, **header: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**HEADER, **header}, *points)))
    return path


def test_a_file_in_order(tmp_path: Path) -> None:
    times = read_times(written(tmp_path / "t.jsonl", POINT, {**POINT, "batch": 64, "sm_clock_mhz": None}))
    first = times.rows[0]
    assert isinstance(first, Measurement) and first.line == 2
    assert first.names == {"batch": 8, "BLOCK": 64, "num_warps": 4}
    assert (first.figures.us_total, first.figures.grid, first.figures.smem) == (4.0, (64, 2), 0)
    # As the line has it, but for what says nothing.
    assert first.row == {**POINT, "grid": (64, 2)}
    assert "sm_clock_mhz" not in times.rows[1].row


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"us_total": math.nan}, "us_total: nan is no number"),
        ({"us_total": math.inf}, "us_total is inf: a launch takes"),
        ({"us_total": 1e308}, "us_total is 1e"),
        ({"us_total": 0}, "us_total is 0"),
        ({"us_total": -1.0}, "us_total is -1"),
        ({"us_total": "4"}, "us_total: '4' is no number"),
        ({"us_total": True}, "us_total: True is no number"),
        ({"us_split": math.nan}, "us_split: nan"),
        ({"us_split": -3.0}, "us_split is -3"),
        ({"us_split": {}}, "us_split: {} is no number"),
        ({"spread_percent": -1}, "spread_percent is -1"),
        ({"spread_percent": math.inf}, "spread_percent is inf"),
        ({"sm_clock_mhz": 0}, "sm_clock_mhz is 0"),
        ({"grid": []}, None),
        ({"grid": [0]}, "grid is [0]"),
        ({"grid": [1, 1, 1, 1]}, "grid is [1, 1, 1, 1]"),
        ({"grid": "64"}, "grid: '64' is no list"),
        ({"smem": -1}, "smem is -1"),
        ({"regs": 1.5}, "regs: 1.5 is no whole number"),
        ({"throttled": "hot"}, "throttled: 'hot' is no list"),
        ({"shared": 1}, "shared: 1 is no true or false"),
        ({"num_warps": 3}, "num_warps is 3: a power of two"),
        ({"num_warps": 128}, "num_warps is 128"),
        ({"num_warps": [4]}, "num_warps: [4] is no value"),
        ({"num_warps": 4.0}, "num_warps is 4.0"),
        ({"maxnreg": 0}, "maxnreg is 0"),
        ({"batch": {}}, "batch: {} is no value"),
        ({"batch": "x"}, "batch is 'x'; on line 2 it is a whole number"),
        ({"batch": 1.5}, "batch is 1.5; on line 2 it is a whole number"),
        ({"BLOKC": 64}, "unknown name of a point 'BLOKC'"),
        ({"batch": 8}, "the point of line 2 again"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_line(tmp_path: Path, wrong: dict[str, Any], says: str | None) -> None:
    path = written(tmp_path / "t.jsonl", POINT, {**POINT, "batch": 9, **wrong}, {**POINT, "batch": 10})
    if says is None:
        assert len(read_times(path).rows) == 3
        return
    with pytest.raises(InputError) as caught:
        read_times(path)
    assert says in caught.value.problem
    assert caught.value.where == f"{path}:3"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sm_count": "132"}, "sm_count: '132' is no whole number"),
        ({"cold": "no"}, "cold: 'no' is no true or false"),
        ({"identity": "batch"}, "identity: 'batch' is no list"),
        ({"gpus": 1}, "gpus is not known here"),
    ],
)
def test_a_wrong_first_line_is_one_error(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match="first line is not in order") as caught:
        read_times(written(tmp_path / "t.jsonl", POINT, **wrong))
    assert says in caught.value.problem and caught.value.where.endswith(":1")


def test_a_line_that_is_no_point(tmp_path: Path) -> None:
    for line in ([1], "x", None):
        with pytest.raises(InputError, match="a point is an object"):
            read_times(written(tmp_path / "t.jsonl", line, POINT))
    path = written(tmp_path / "t.jsonl", POINT)
    path.write_text(path.read_text() + '{"batch": 9, "us_to')  # the writer was stopped
    assert len(read_times(path).rows) == 1
