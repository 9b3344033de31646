"""What memory accesses take, line by line, the most wasteful first.

    waste by source line: sectors of global memory, wavefronts of shared memory, against the least possible
    copy.py:36   16 accesses, 8 of 8 B a lane   2,097,152 sectors, 8.0x the least
                 tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
                 width: 8 accesses of 2 B a lane where 16 B would go at once: n = 262,141 is no multiple of 16

A line's waste is what its accesses take beyond the least: sectors, and wavefronts of all its executions, both of 32
lanes. Where executions are not known, figures are those of one execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from occupancy_cli.report.explain_parts import MemoryAccess, SourceText
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.explained import indented, place

_MOST_LINES = 8
_MOST_CAUSES = 4
_SLACK = 1.001


@dataclass(frozen=True)
class _Line:
    """The accesses of one source line, and what they take and could take: in the launch, or each once."""

    source: SourceText | None
    accesses: tuple[MemoryAccess, ...]
    whole_launch: bool
    sectors: float
    least_sectors: float
    wavefronts: float
    least_wavefronts: float

    @property
    def waste(self) -> float:
        return (self.sectors - self.least_sectors) + (self.wavefronts - self.least_wavefronts)


def lines(accesses: Sequence[MemoryAccess], width: int) -> Iterator[Text]:
    """The lines that take more than the least, then how many do not, and what is not known."""
    found = sorted(_by_line(accesses), key=lambda line: -line.waste)
    wasteful = [line for line in found if line.waste > 0 or _named(line)]
    known = sum(a.basis != "unknown" for a in accesses)
    yield Text(
        f"memory accesses: {counted(len(accesses), 'instruction')} on {counted(len(found), 'line')}, "
        f"{counted(len(wasteful), 'line')} of them with more than the least sectors or wavefronts",
        style="bold",
    )
    for line in wasteful[:_MOST_LINES]:
        yield from _line(line, width)
    if len(wasteful) > _MOST_LINES:
        yield Text(
            f"  and {counted(len(wasteful) - _MOST_LINES, 'more line')} (--format json has them all)", style="dim"
        )
    if known < len(accesses):
        reasons = dict.fromkeys(a.reason for a in accesses if a.basis == "unknown")
        count = counted(len(accesses) - known, "access", "accesses")
        yield from indented(f"unknown for {count}: {'; '.join(reasons)}", width, 2)
    assumed = dict.fromkeys(part for a in accesses if a.basis == "assumed" for part in a.reason.split("; "))
    if assumed:
        count = counted(sum(a.basis == "assumed" for a in accesses), "access", "accesses")
        yield from indented(f"assumed for {count}: {'; '.join(assumed)}", width, 2)


def _named(line: _Line) -> bool:
    return any(cause.kind in ("width", "not pipelined") for a in line.accesses for cause in a.causes)


def _by_line(accesses: Sequence[MemoryAccess]) -> list[_Line]:
    grouped: dict[tuple[str, int], list[MemoryAccess]] = {}
    for access in accesses:
        key = ("", 0) if access.source is None else (access.source.file, access.source.line)
        grouped.setdefault(key, []).append(access)
    made = []
    for group in grouped.values():
        known = [a for a in group if a.basis != "unknown"]
        whole = all(a.executed is not None for a in known)

        def total(figure: str, known: list[MemoryAccess] = known, whole: bool = whole) -> float:
            return sum((getattr(a, figure) or 0.0) * ((a.executed or 0) if whole else 1) for a in known)

        made.append(
            _Line(
                group[0].source,
                tuple(group),
                whole,
                total("sectors_per_access"),
                total("least_sectors_per_access"),
                total("wavefronts_per_access"),
                total("least_wavefronts"),
            )
        )
    return made


def _line(line: _Line, width: int) -> Iterator[Text]:
    each = "" if line.whole_launch else " an execution"
    takes = [
        f"{taken:,.0f} {what}{each}, {taken / least:.1f}x the least"
        for taken, least, what in (
            (line.sectors, line.least_sectors, "sectors"),
            (line.wavefronts, line.least_wavefronts, "wavefronts"),
        )
        if taken > least * _SLACK and least
    ]
    kinds: dict[str, int] = {}
    for access in line.accesses:
        kinds[access.op] = kinds.get(access.op, 0) + 1
    ops = ", ".join(f"{n} {op}" for op, n in sorted(kinds.items(), key=lambda item: -item[1])[:3])
    head = "; ".join([f"{place(line.source)}  {ops}", *takes])
    yield from indented(head, width, 2)
    if line.source is not None and line.source.text:
        yield from indented(line.source.text, width, 6)
    causes = dict.fromkeys((c.kind, c.text) for a in line.accesses for c in a.causes)
    for kind, text in list(causes)[:_MOST_CAUSES]:
        yield from indented(f"{kind}: {text}", width, 6)
    if len(causes) > _MOST_CAUSES:
        yield from indented(f"and {counted(len(causes) - _MOST_CAUSES, 'more cause')}", width, 6)
