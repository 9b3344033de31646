"""The Report as JSON: what it writes is what the schema says, and comes back equal."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from occupancy_cli.report import schema


def _report() -> schema.Report:
    finding = schema.Finding(
        level="ok",
        kernel="k ×",
        gpu="h200",
        config={"BLOCK": 64, "num_warps": 4},
        rule="launch",
        message="fits",
        line=3,
    )
    time = schema.Time(time_us=float("inf"), binding=None, terms={"dram": 1.5}, unknown=[("grid", "waves")])
    config = schema.Config(config={"BLOCK": 64}, status="ok", fits=True, over_bytes=0, time=time)
    kernel = schema.Kernel(name="k", source="k.py", kernel="k", configs=[config])
    return schema.Report(
        command="check", toolchain=schema.Toolchain(occupancy="1"), kernels=[kernel], findings=[finding]
    )


def test_json_names_keys_as_the_schema_does_and_has_no_number_that_json_has_not() -> None:
    text = _report().to_json()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["schema"] == "occupancy/report/1" and "schema_" not in data
    assert data["kernels"][0]["configs"][0]["time"] == {
        "time_us": None, "binding": None, "terms": {"dram": 1.5}, "unknown": [["grid", "waves"]],
        "iterations_from": None, "interval_us": None,
    }  # fmt: skip
    assert "k ×" in text  # as it is, not as \u00d7
    assert set(data) == set(schema.json_schema()["properties"])


def test_json_comes_back_equal_and_a_wrong_value_is_refused() -> None:
    text = _report().to_json()
    assert schema.report_from_json(text).to_json() == text
    with pytest.raises(ValidationError):
        schema.report_from_json(text.replace('"level": "ok"', '"level": "good"'))
