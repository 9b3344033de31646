"""A check in Markdown, for a job's summary or a comment on a pull request: the summary, then a table of what is wrong.

**1 kernel · 4 configs · 1 GPU: 3 ok, 1 over budget, 0 unknown**

| | where | what |
|---|---|---|
| over budget | kernels/mla.yaml:32 | mla on H200, BLOCK 64: 102,400 bytes … |
"""

from __future__ import annotations

import re

from occupancy_cli.report.check_summary import last_line, left_out
from occupancy_cli.report.finding_text import sentence
from occupancy_cli.report.schema import Report
from occupancy_cli.report.visible_text import visible

_WORDS = {"violation": "over budget", "undecided": "unknown", "allowed": "allowed", "note": "note"}
# What Markdown or the HTML in it could take for more than text.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-!|&~$@])")
_MOST_ROWS = 200


def render_check_markdown(report: Report) -> str:
    """The Markdown text."""
    lines = [f"**{last_line(report)}**"]
    shown = [f for level in _WORDS for f in report.findings if f.level == level]
    if shown:
        lines += ["", "| | where | what |", "|---|---|---|"]
    for finding in shown[:_MOST_ROWS]:
        place = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
        lines.append(f"| {_WORDS[finding.level]} | {escaped(place)} | {escaped(sentence(finding))} |")
    if len(shown) > _MOST_ROWS:
        lines.append(f"\n… and {len(shown) - _MOST_ROWS:,} more.")
    said = [*left_out(report), *report.notes]
    lines += ["", *(f"- {escaped(text)}" for text in said)] if said else []
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", visible(text)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")
