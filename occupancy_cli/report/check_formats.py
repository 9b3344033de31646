"""The formats that a check is written in, by the names that `--format` and `--output-file` take.

    text_of(report, "sarif")      what goes into the file, or onto standard output

`table` is for a terminal, `json` the Report, `jsonl` a line a finding and one for the whole, the others are what CI
systems read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from io import StringIO

from occupancy_cli.report.report import Report

# Each format's renderer lies in a module of its own, which a run that does not ask for it need not import.
_RENDERERS = {
    "markdown": ("check_markdown", "render_check_markdown"),
    "github": ("github", "render_github"),
    "gitlab": ("gitlab", "render_gitlab"),
    "sarif": ("sarif", "render_sarif"),
    "junit": ("junit", "render_junit"),
    "jsonl": ("check_lines", "render_jsonl"),
}
FORMATS = ("table", "json", *_RENDERERS)


def text_of(report: Report, name: str) -> str:
    """A check's Report in the format `name`, with its last line end."""
    if name == "json":
        return report.to_json() + "\n"
    if name == "table":
        return _table(report)
    module, function = _RENDERERS[name]
    render: Callable[[Report], str] = getattr(import_module(f"occupancy_cli.report.{module}"), function)
    return render(report)


def _table(report: Report) -> str:
    """What a terminal would be shown, without colours and as wide as it takes."""
    from occupancy_cli.report.terminal import render
    from occupancy_cli.report.terminal.console import make_plain_console

    text = StringIO()
    render(report, make_plain_console(text))
    return text.getvalue()
