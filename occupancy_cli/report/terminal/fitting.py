"""The smallest changes that reach a goal, on a terminal.

2 CTAs/SM: 3 of 24 candidates reach it
num_stages 3 -> 2   49,152 bytes   168 regs   2 CTAs/SM   61.2 us   -4.1 %
    a shrank by 16,384, 3 copies became 2  mm.py:14  a = tl.load(a_ptrs)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.fit_parts import BufferChange, Fit, FitCandidate
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.explained import indented, place
from occupancy_cli.report.terminal.layout import Column, lay_out
from occupancy_cli.report.view import View

_MOST_BUFFERS = 4
_MOST_PROPOSALS = 8


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The search and its proposals."""
    assert report.fit is not None
    found, width = report.fit, min(console.width, 200)
    yield Text(text.headline(found.kernel, report.gpu, report.toolchain), style="bold")
    yield Text(text.pairs({n: v for n, v in found.base.values.items() if v is not None}), style="dim")
    yield Text(_headline(found), style="bold green" if found.base.reaches or found.proposals else "bold red")
    shown = found.proposals[:_MOST_PROPOSALS]
    yield from _table([found.base, *shown, *([found.nearest] if found.nearest else [])], width)
    for candidate in shown:
        yield Text(f"{_changes(candidate)}:{' costs ' + ', '.join(candidate.costs) if candidate.costs else ''}")
        yield from buffer_lines(candidate.buffers, width)
    if len(found.proposals) > len(shown):
        yield Text(f"and {counted(len(found.proposals) - len(shown), 'more proposal')} (--format json)", style="dim")
    yield from _nearest(found, width)


def _headline(found: Fit) -> str:
    if found.base.reaches:
        return f"{found.goal}: reached as it is"
    if found.reason:
        return f"{found.goal}: {found.reason}"
    tried = f"{counted(found.tried, 'candidate')} compiled ({', '.join(found.varied)})"
    tried += f", {found.failed} did not compile" if found.failed else ""
    tried += f", {found.left_out} left out (--limit)" if found.left_out else ""
    number = len(found.proposals)
    said = counted(number, "smallest set of changes", "smallest sets of changes") if number else "nothing"
    return f"{found.goal}: {said} {'reach' if number > 1 else 'reaches'} it; {tried}"


def _changes(candidate: FitCandidate) -> str:
    if not candidate.changes:
        return "as it is"
    return ", ".join(
        f"{c.name} {'none' if c.before is None else c.before} -> {'none' if c.after is None else c.after}"
        for c in candidate.changes
    )


def _table(candidates: Sequence[FitCandidate], width: int) -> list[RenderableType]:
    keys = [Column("change", [_changes(c) for c in candidates], right=False, folds=True)]
    columns = [
        Column("shared\nbytes", [f"{c.shared_bytes:,}" for c in candidates]),
        Column("regs", [text.number(c.registers_per_thread) for c in candidates]),
        Column("spill\nbytes", [text.number(c.spill_bytes) for c in candidates]),
        Column("CTAs\n/SM", [str(c.ctas_per_sm) for c in candidates]),
        Column("warps\n/SM", [str(c.warps_per_sm) for c in candidates]),
        Column("predicted\nus", ["-" if c.time_us is None else f"{c.time_us:,.1f}" for c in candidates]),
        Column(
            "time", ["-" if c.time_change_percent is None else f"{c.time_change_percent:+.1f} %" for c in candidates]
        ),
    ]
    return lay_out(keys, columns, width, gap=1)


def buffer_lines(changes: Sequence[BufferChange], width: int, most: int = _MOST_BUFFERS) -> Iterator[Text]:
    """Changes of buffers, a line each, with the source line."""
    for change in changes[:most]:
        what = change.value or change.purpose
        sizes = f"{text.number(change.before_bytes, 'none')} -> {text.number(change.after_bytes, 'none')} bytes"
        source = change.source_after or change.source_before
        said = f"{what} ({change.purpose}): {sizes}, {change.said}; {place(source)} {source.text if source else ''}"
        yield from indented(said, width, indent=4)
    if len(changes) > most:
        yield Text(f"    and {counted(len(changes) - most, 'more buffer')}", style="dim")


def _nearest(found: Fit, width: int) -> Iterator[Text]:
    near = found.nearest
    if near is None:
        return
    units = {"shared": "bytes of shared memory", "registers": "registers a thread", "spills": "bytes still spilled"}
    unit = units.get(near.short_of, near.short_of)
    too_many = "" if near.short_of == "spills" else " too many"
    yield from indented(f"nearest: {_changes(near)}, {near.short_by:,} {unit}{too_many}", width, indent=0)
    way = found.in_the_way
    if way is not None:
        where = f"{place(way.source)} {way.source.text if way.source else ''}"
        yield from indented(f"in the way: {way.what}, {way.amount:,} {way.unit}; {where}", width, indent=0)
