"""What a check found, on a terminal.

FAIL k.yaml:7: decode on H200, BLOCK 64, num_warps 8: decode: 104,704 bytes ... are 3,328 over the cap of 101,376
ok   k.yaml:7: decode on H200: shared-memory-cap holds for 6 launches, at most 61,568 of 101,376 bytes ...
"""

from __future__ import annotations

from itertools import groupby

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.finding_text import sentence
from occupancy_cli.report.kernel_parts import Finding
from occupancy_cli.report.report import Report
from occupancy_cli.report.view import View

_LEVELS = {
    "ok": ("ok", "green"),
    "violation": ("FAIL", "bold red"),
    "undecided": ("????", "bold yellow"),
    "allowed": ("(??)", "yellow"),
}


def lines(report: Report, console: Console, view: View) -> list[RenderableType]:
    """A line for every finding that needs a reader, then one a kernel, GPU and rule for all that holds."""
    findings = report.findings
    parts: list[RenderableType] = [_finding(f) for f in findings if f.level in ("violation", "undecided")]
    parts += [_finding(f) for f in findings if f.level in ("allowed", "note")]

    def group(finding: Finding) -> tuple[str, str, str, str]:
        return (finding.source or finding.file, finding.kernel, finding.gpu, finding.rule)

    good = sorted((f for f in findings if f.level == "ok"), key=group)
    for (_, kernel, gpu, rule), members in groupby(good, key=group):
        held = list(members)
        # The one that is nearest to its limit speaks for all.
        least = rule.startswith("min_")
        worst = (min if least else max)(held, key=lambda f: f.required or 0)
        limit = ""
        if worst.required is not None:
            value, asked = _number(worst.required), _number(worst.limit)
            needed = f"{value} {worst.unit}, {asked} are asked for"
            limit = f", at least {needed}" if least else f", at most {value} of {asked} {worst.unit}"
        line = Text("ok   ", style="green")
        count = f"{len(held)} {'launch' if len(held) == 1 else 'launches'}"
        line.append(f"{_place(worst)}{kernel} on {gpu}: {rule} holds for {count}{limit}", style="")
        parts.append(line)
    return parts


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")


def _place(finding: Finding) -> str:
    if not finding.file:
        return ""
    return f"{finding.file}:{finding.line}: " if finding.line else f"{finding.file}: "


def _finding(finding: Finding) -> Text:
    word, style = _LEVELS.get(finding.level, ("note", "dim"))
    line = Text(f"{word:4} ", style=style)
    line.append(f"{_place(finding)}{sentence(finding)}", style="")
    return line
