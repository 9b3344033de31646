"""A check as GitHub annotations: a workflow command a finding, then the summary.

    ::error file=kernels/mla.yaml,line=32,title=Shared memory over the cap::mla on H200, BLOCK 64: 102,400 bytes …

Form and escapes: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit's `command.ts`. GitHub
shows at most ten annotations of a kind a step: violations come first.
"""

from __future__ import annotations

from occupancy_cli.report.check_summary import last_line
from occupancy_cli.report.finding_rules import rule_of
from occupancy_cli.report.finding_text import sentence
from occupancy_cli.report.schema import Finding, Report
from occupancy_cli.report.visible_text import visible

_COMMANDS = {"violation": "error", "undecided": "warning"}


def render_github(report: Report) -> str:
    """The text of the annotations, a line each."""
    wanted = [f for level in _COMMANDS for f in report.findings if f.level == level]
    return "\n".join([*(_annotation(f) for f in wanted), visible(last_line(report))]) + "\n"


def _annotation(finding: Finding) -> str:
    properties = {"title": rule_of(finding.rule).title}
    if finding.file:
        properties = {"file": finding.file, **({"line": str(finding.line)} if finding.line else {}), **properties}
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.level]} {shown}::{_data(sentence(finding))}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
