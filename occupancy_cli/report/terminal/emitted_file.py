"""Whether an emitted file still holds, on a terminal: what of its head has changed, and the lines that differ.

configs.py: no longer what would be emitted
- tools: Triton 3.8.0, ptxas 12.9, occupancy 0.1.0 -> Triton 3.9.0, ptxas 13.4, occupancy 0.1.0
-     triton.Config({'BLOCK_T': 64}, num_warps=4, num_stages=2)
+     triton.Config({'BLOCK_T': 32}, num_warps=8, num_stages=2)
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.report import Report
from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The verdict, then what of its head and what below it differs."""
    found = report.emitted
    assert found is not None
    verdict = "still what would be emitted" if found.holds else "no longer what would be emitted"
    yield Text(f"{found.file}: {verdict}", style="bold green" if found.holds else "bold red")
    for name, value in found.now.items():
        before = found.made_from.get(name, "nothing")
        if name != "date" and before != value:
            yield Text(f"- {name}: {before} -> {value}")
    for line in found.changed:
        yield Text(f"  {line}", style="red" if line.startswith("-") else "green")
    if not found.holds:
        yield Text(f"to write it anew: {found.now['command']}")
