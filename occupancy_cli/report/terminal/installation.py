"""What this installation has and remembers, on a terminal (`report.installation_parts` shows examples)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import make_table

if TYPE_CHECKING:
    from occupancy_cli.report.installation_parts import CacheVerification
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View

_MOST_CHANGES = 5


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The cache, or the parts of the toolchain."""
    if report.installation is not None:
        table = make_table("part", "", "found", "without it")
        for part in report.installation.parts:
            table.add_row(part.part, "ok" if part.ok else "missing", part.found, part.disables)
        yield table
        for part in report.installation.parts:
            if not part.ok and part.get:
                yield Text(f"to get {part.part}: {part.get}")
    cache = report.cache
    if cache is not None:
        if cache.notice:
            yield Text(cache.notice)
        if cache.removed is not None:
            yield Text(f"removed {cache.removed:,} results")
        yield Text(f"{cache.path}: {cache.records:,} results, {cache.size_bytes:,} bytes")
        if cache.triton_versions:
            yield Text(f"Triton versions: {', '.join(cache.triton_versions)}")
        if cache.verified is not None:
            yield from _verified(cache.verified)
        for kernel in cache.unkept:
            yield Text(f"not kept: {kernel.kernel}")
            yield from (Text(f"  {reason}") for reason in kernel.reasons)
        if cache.trouble:
            yield Text(f"not usable: {cache.trouble}")


def _verified(found: CacheVerification) -> Iterator[RenderableType]:
    yield Text(f"{found.holding:,} would be used today, {found.stale:,} are of sources that have changed since")
    for what, count in found.changes[:_MOST_CHANGES]:
        yield Text(f"  {what}: {count:,}")
    if len(found.changes) > _MOST_CHANGES:
        yield Text(f"  and {len(found.changes) - _MOST_CHANGES:,} more")
    if found.damaged:
        yield Text(f"{found.damaged:,} were damaged and are removed")
