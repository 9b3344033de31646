"""What a command printed with `--format json`, held to the published schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from occupancy_cli.report import schema


def valid_report(text: str) -> dict[str, Any]:
    """The Report in `text`, which has to be by the published schema and to come back equal."""
    report: dict[str, Any] = json.loads(text)
    jsonschema.validate(report, json.loads(schema.PUBLISHED.read_text(encoding="utf-8")))
    assert schema.report_from_json(text).to_json() == text.rstrip("\n")
    return report
