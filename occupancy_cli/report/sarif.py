"""A check as SARIF 2.1.0, which GitHub, Azure DevOps and editors read.

Violations are errors, what cannot be decided is a warning; configs that are not in use, and what is allowed to be
unknown, are notes; what holds is left out. Fingerprints stay the same from run to run (`finding_text.fingerprint`), so
that a reader tells new from known.
Form: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from occupancy_cli.report.finding_rules import rule_of
from occupancy_cli.report.finding_text import fingerprint, sentence
from occupancy_cli.report.report import json_text
from occupancy_cli.report.schema import Finding, Report
from occupancy_cli.report.visible_text import visible

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"violation": "error", "undecided": "warning", "allowed": "note", "note": "note"}


def render_sarif(report: Report) -> str:
    """The log's text: one run."""
    shown = [f for f in report.findings if f.level in _LEVELS]
    names = sorted({f.rule for f in shown})
    run = {
        "tool": {
            "driver": {
                "name": "occupancy",
                "version": report.toolchain.occupancy,
                "semanticVersion": report.toolchain.occupancy,
                "rules": [_rule(name) for name in names],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not report.interrupted}],
        "results": [_result(f, names.index(f.rule)) for f in shown],
    }
    return json_text({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    rule = rule_of(name)
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.replace("-", "_").split("_")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.asks},
        "help": {"text": rule.helps or rule.asks},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.level],
        "message": {"text": sentence(finding)},
        "partialFingerprints": {"occupancy/v1": fingerprint(finding)},
    }
    if finding.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(visible(finding.file), safe="/.-_~")}}
        if finding.line:
            place["region"] = {"startLine": finding.line}
        result["locations"] = [{"physicalLocation": place}]
    return result
