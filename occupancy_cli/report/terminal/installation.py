"""What this installation has and remembers, on a terminal (`report.installation_parts` shows examples)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import make_table

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.terminal.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The cache, or the parts of the toolchain."""
    if report.installation is not None:
        table = make_table("part", "", "found", "without it")
        for part in report.installation.parts:
            table.add_row(part.part, "ok" if part.ok else "missing", part.found, part.disables)
        yield table
    cache = report.cache
    if cache is not None:
        if cache.removed is not None:
            yield Text(f"removed {cache.removed:,} results")
        yield Text(f"{cache.path}: {cache.records:,} results, {cache.size_bytes:,} bytes")
        if cache.triton_versions:
            yield Text(f"Triton versions: {', '.join(cache.triton_versions)}")
        if cache.trouble:
            yield Text(f"not usable: {cache.trouble}")
