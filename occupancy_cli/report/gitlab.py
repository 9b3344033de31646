"""A check as a GitLab code quality report: a JSON list, an object a finding.

    [{"description": "mla on H200: 102,400 bytes …", "check_name": "shared-memory-cap", "fingerprint": "3f…",
      "severity": "major", "location": {"path": "kernels/mla.yaml", "lines": {"begin": 32}}}]

Form: docs.gitlab.com, "Code Quality report format".
"""

from __future__ import annotations

from occupancy_cli.report.finding_text import fingerprint, sentence
from occupancy_cli.report.report import json_text
from occupancy_cli.report.schema import Report
from occupancy_cli.report.visible_text import visible

_SEVERITY = {"violation": "major", "undecided": "minor"}
_NO_FILE = "pyproject.toml"  # a location must name a file; a kernel given by flags has none


def render_gitlab(report: Report) -> str:
    """The report's text. What holds, and what is only noted, is no issue of code quality."""
    issues = [
        {
            "description": sentence(finding),
            "check_name": finding.rule,
            "fingerprint": fingerprint(finding),
            "severity": _SEVERITY[finding.level],
            "location": {"path": visible(finding.file) or _NO_FILE, "lines": {"begin": finding.line or 1}},
        }
        for finding in report.findings
        if finding.level in _SEVERITY
    ]
    return json_text(issues, indent=2) + "\n"
