"""What a check found, on a terminal.

ok   softmax.yaml: softmax on H200 SXM: 6 configs, at most 41 % of the cap
FAIL k.yaml: decode on H200 SXM: 12 configs: 11 ok, 1 over budget

FAIL k.yaml:7: decode on H200 SXM, BLOCK 64, num_warps 8: decode: 104,704 bytes ... are 3,328 over the cap of 101,376

Read aloud: a line a kernel and GPU, by the file that was named, with how near the nearest config is to its nearest
limit; then what needs a reader, the gravest last, where a terminal and a log end. In full (`-v`) each rule of each
config has a line.
"""

from __future__ import annotations

from itertools import groupby

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.check_summary import counted, summary_of
from occupancy_cli.report.finding_text import sentence
from occupancy_cli.report.kernel_parts import Finding
from occupancy_cli.report.report import Report
from occupancy_cli.report.view import View

_LEVELS = {
    "ok": ("ok", "green"),
    "violation": ("FAIL", "bold red"),
    "undecided": ("????", "bold yellow"),
    "allowed": ("(??)", "yellow"),
    "note": ("note", "dim"),
}
_GRAVEST_LAST = ("ok", "note", "allowed", "undecided", "violation")


def lines(report: Report, console: Console, view: View) -> list[RenderableType]:
    """A line a kernel and GPU, then a line for every finding that needs a reader; all findings in full."""
    findings = report.findings

    def group(finding: Finding) -> tuple[str, str, str]:
        return (finding.source or finding.file, finding.kernel, finding.gpu)

    of_kernels = sorted((f for f in findings if f.kernel and f.gpu), key=group)
    groups: list[tuple[int, Text]] = []
    for (source, kernel, gpu), members in groupby(of_kernels, key=group):
        mine = list(members)
        level = _level_of(mine)
        name = f"{source}: {kernel}" if source else kernel
        groups.append((_GRAVEST_LAST.index(level), _line(level, f"{name} on {gpu}: {_said_of(mine)}")))
    parts: list[RenderableType] = [text for _, text in sorted(groups, key=lambda g: g[0])]
    shown = [f for level in _GRAVEST_LAST for f in findings if f.level == level and (level != "ok" or view.everything)]
    if parts and shown:
        parts.append(Text(""))
    return [*parts, *(_line(f.level, f"{_place(f)}{sentence(f)}") for f in shown)]


def _level_of(findings: list[Finding]) -> str:
    """The gravest level; what is not in use is no matter beside what is."""
    found = {f.level for f in findings}
    if found == {"note"}:
        return "note"
    return max(found - {"note"}, key=_GRAVEST_LAST.index)


def _said_of(findings: list[Finding]) -> str:
    counts = summary_of(findings)
    said = counted(counts.configs, "config")
    if counts.ok != counts.judged:
        return f"{said}: {', '.join(counts.words())}"
    shares = [share for f in findings if f.level == "ok" and (share := _share(f)) is not None]
    nearest = max(shares, default=None, key=lambda s: s[0])
    if nearest is None:
        return said
    percent, rule = nearest
    return f"{said}, at most {percent:.0f} % of {'the cap' if rule == 'shared-memory-cap' else rule}"


def _share(finding: Finding) -> tuple[float, str] | None:
    """How much of its limit a finding takes in percent, with its rule; None for one without numbers."""
    if not finding.required or not finding.limit:
        return None
    least = finding.rule.startswith("min_")
    part = finding.limit / finding.required if least else finding.required / finding.limit
    return 100 * part, finding.rule


def _place(finding: Finding) -> str:
    if not finding.file:
        return ""
    return f"{finding.file}:{finding.line}: " if finding.line else f"{finding.file}: "


def _line(level: str, text: str) -> Text:
    word, style = _LEVELS[level]
    line = Text(f"{word:4} ", style=style)
    line.append(text, style="")
    return line
