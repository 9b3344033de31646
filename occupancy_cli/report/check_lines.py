"""A check as JSON Lines: an object a finding, then one for the whole, each with a `kind`.

{"kind": "finding", "level": "violation", "kernel": "mla", "gpu": "H200 SXM", "rule": "shared-memory-cap", ...}
{"kind": "summary", "kernels": 14, "configs": 96, "gpus": 2, "ok": 91, "violations": 3, ..., "exit_code": 1}
"""

from __future__ import annotations

import dataclasses

from occupancy_cli.report.check_summary import summary_of
from occupancy_cli.report.report import Report, json_text, plain


def render_jsonl(report: Report) -> str:
    """The lines."""
    lines = [{"kind": "finding", **plain(finding)} for finding in report.findings]
    run = {} if report.check is None else plain(report.check)
    counts = dataclasses.asdict(summary_of(report.findings))
    last = {"interrupted": report.interrupted, "exit_code": report.exit_code, "notes": report.notes}
    lines.append({"kind": "summary", **counts, **run, **last, "toolchain": plain(report.toolchain)})
    return "".join(json_text(line) + "\n" for line in lines)
