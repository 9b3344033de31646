"""Where shared memory and registers go, on a terminal: a chart of addresses over program order, then what each part is.

    address           v peak
          0   aaaaaaaaaaaaaaaaaa....
     16,384   bbbbbbbbbbbbbbbbbbcccc
                  [---- loop ---]
    a       0  16,384  query_a 32x256 bf16   operand kept for the loop   196-570  mla.py:179

A row of the chart is a band of addresses that no buffer begins or ends in, a column a stretch of the program in which
none begins or ends to live, wider the more operations it has. A letter is a buffer, a dot is free.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from string import ascii_letters

from rich.console import RenderableType
from rich.text import Text

from occupancy_cli.report.explain_parts import Buffer, OptionTried, RegisterUse, SharedMemoryMap, SourceText
from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.terminal import text
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.layout import Column, lay_out
from occupancy_cli.report.view import View

WIDE = 120
_WIDEST_CHART = 160
_MOST_CONFIGS = 3
_MOST_HOLDERS = 10
_MOST_SPILLS = 8


def lines(kernel: Kernel, width: int, view: View) -> Iterator[RenderableType]:
    """The explanation of a kernel's configs: of all where few are asked for, else of the first ones."""
    explained = [c for c in kernel.configs if c.shared_map is not None]
    _, varying = text.split_columns(kernel.configs)
    width = min(width, 200)
    for config in explained[:_MOST_CONFIGS]:
        yield Text()
        values = text.values_of(config)
        which = text.pairs({n: values[n] for n in varying if n in values}) or "the config"
        yield from _config(which, config, width, view)
    if len(explained) > _MOST_CONFIGS:
        yield Text()
        yield Text(
            f"{len(explained) - _MOST_CONFIGS} more configs are not shown: name one by --config NAME=VALUE,... "
            "(--format json has them all)",
            style="dim",
        )


def _config(which: str, config: Config, width: int, view: View) -> Iterator[RenderableType]:
    found = config.shared_map
    assert found is not None
    yield Text(f"{which}: {found.total_bytes:,} bytes of shared memory", style="bold")
    if found.buffers:
        yield from _chart(found, width)
        yield from _buffers(found, width)
        yield from _peak(found)
    if config.register_use is not None:
        yield from _registers(config.register_use, width)
    if config.accesses:
        from occupancy_cli.report.terminal import accesses

        yield from accesses.lines(config.accesses, width)
    if config.line_times is not None:
        from occupancy_cli.report.terminal import line_times

        yield from line_times.lines(config.line_times, width)
    yield from _options(config.options_tried, config, width)
    if view.lines:
        yield from _listing(config, width)


# --- the chart ---------------------------------------------------------------------------------------------------


def _chart(found: SharedMemoryMap, width: int) -> Iterator[Text]:
    label = max(len("address"), len(f"{found.total_bytes:,}"))
    columns = min(width, _WIDEST_CHART) - label - 3
    edges = sorted({e for b in found.buffers for e in (b.live_from, b.live_to + 1)} | {found.peak_at})
    starts = _columns(edges, columns)
    bands = sorted({0, found.total_bytes} | {e for b in found.buffers for e in (b.offset, b.offset + b.bytes)})
    drawn = starts[edges[-1]]
    at_peak = starts[found.peak_at]
    yield Text(f"{'address':>{label}}   {' ' * at_peak}v peak", style="dim")
    for low, high in itertools.pairwise(bands):
        row = ["."] * drawn
        for letter, buffer in zip(_letters(found.buffers), found.buffers, strict=True):
            if buffer.offset <= low and high <= buffer.offset + buffer.bytes:
                first, last = starts[buffer.live_from], starts[buffer.live_to + 1]
                row[first:last] = letter * (last - first)
        yield Text(f"{low:>{label},}   {''.join(row)}")
    for loop in found.loops:
        begin, end = _column_of(loop.first, edges, starts), _column_of(loop.last + 1, edges, starts)
        if end - begin >= 2:
            name = " loop " if end - begin >= 8 else ""
            yield Text(f"{' ' * (label + 3 + begin)}[{name.center(end - begin - 2, '-')}]", style="dim")


def _letters(buffers: Sequence[Buffer]) -> list[str]:
    return [ascii_letters[i] if i < len(ascii_letters) else "#" for i in range(len(buffers))]


def _columns(edges: Sequence[int], columns: int) -> dict[int, int]:
    """The column at which each moment stands: at least one for each stretch, the rest by operations."""
    stretches = len(edges) - 1
    spare = max(0, columns - stretches)
    whole = max(1, edges[-1] - edges[0])
    return {edge: i + spare * (edge - edges[0]) // whole for i, edge in enumerate(edges)}


def _column_of(moment: int, edges: Sequence[int], starts: dict[int, int]) -> int:
    """The column of a moment that need not be an edge: that of the nearest edge at or before it."""
    before = [edge for edge in edges if edge <= moment]
    return starts[before[-1]] if before else 0


# --- the buffers -------------------------------------------------------------------------------------------------


def _buffers(found: SharedMemoryMap, width: int) -> Iterator[Text]:
    rows = []
    for letter, buffer in zip(_letters(found.buffers), found.buffers, strict=True):
        exactly = "" if buffer.bytes_exact else "<="
        peak = "*" if buffer.at_peak else " "
        lives = f"{buffer.live_from}-{buffer.live_to}"
        rows.append(
            (
                [
                    f"{letter}{peak}",
                    f"{buffer.offset:,}",
                    f"{exactly}{buffer.bytes:,}",
                    _what(buffer),
                    buffer.purpose,
                    lives,
                ],
                buffer.source,
            )
        )
    headers = ["", "offset", "bytes", "what", "for", "lives"]
    widths = [max(len(row[i]) for row in [headers, *(r for r, _ in rows)]) for i in range(len(headers))]
    room = width - sum(widths) - 2 * len(widths)
    yield Text((_joined(headers, widths) + ("  source" if room >= 8 else "")).rstrip(), style="dim")
    for row, source in rows:
        line = _joined(row, widths)
        where, said = place(source), source.text if source is not None else ""
        if len(where) + len(said) + 2 <= room:
            yield Text(f"{line}  {where}  {said}".rstrip())
            continue
        if sum(widths) + 2 * len(widths) + len(where) <= width:
            yield Text(f"{line}  {where}".rstrip())
            yield from indented(said, width)
        else:
            yield from indented(line, width, indent=0)
            yield from indented(f"{where}  {said}", width)


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    right = (1, 2)
    return "  ".join(
        f"{c:>{w}}" if i in right else f"{c:<{w}}" for i, (c, w) in enumerate(zip(cells, widths, strict=True))
    )


def indented(said: str, width: int, indent: int = 8) -> Iterator[Text]:
    """Text in lines of at most `width`, each with an indent: a fold of the terminal would lose it."""
    if not said.strip():
        return
    pad = " " * indent
    for line in textwrap.wrap(said.rstrip(), max(20, width), initial_indent=pad, subsequent_indent=pad or " " * 8):
        yield Text(line, style="dim" if indent else "")


def _what(buffer: Buffer) -> str:
    shape = "x".join(map(str, buffer.shape))
    copies = f" x {buffer.copies}" if buffer.copies > 1 else ""
    return f"{buffer.value} {shape} {buffer.dtype}{copies}".strip()


def place(source: SourceText | None) -> str:
    """`file.py:126 < 201`: a line, and those that it is called from."""
    if source is None:
        return "-"
    calls = [
        c.rpartition(":")[2] if _name(c.rpartition(":")[0]) == _name(source.file) else _name(c)
        for c in source.called_from
    ]
    called = f" < {' < '.join(calls)}" if calls else ""
    return f"{_name(source.file)}:{source.line}{called}"


def _name(file: str) -> str:
    return PurePath(file).name


def _peak(found: SharedMemoryMap) -> Iterator[Text]:
    at = [b for b in found.buffers if b.at_peak]
    largest = sorted(at, key=lambda b: -b.bytes)[:4]
    said = ", ".join(f"{_called(b)} {b.bytes:,}" for b in largest)
    more = f" and {counted(len(at) - 4, 'more', 'more')}" if len(at) > 4 else ""
    free = f"; {found.peak_unused_bytes:,} bytes below the top are free then" if found.peak_unused_bytes else ""
    yield Text(f"* the peak, at operation {found.peak_at}: {said}{more}{free}")


def _called(buffer: Buffer) -> str:
    return buffer.value or f"{buffer.purpose} of line {buffer.source.line if buffer.source else '?'}"


# --- registers ---------------------------------------------------------------------------------------------------


def _registers(use: RegisterUse, width: int) -> Iterator[Text]:
    loop = ", in a loop" if use.peak_in_loop else ""
    spilled = f", {use.spill_bytes:,} bytes a thread spilled" if use.spill_bytes else ", nothing spilled"
    yield Text(
        f"registers: {use.allocated} allocated{spilled}; {use.peak_live} live at the peak, "
        f"{place(use.peak_source)} ({use.peak_opcode}{loop})",
        style="bold",
    )
    shown = use.holders[:_MOST_HOLDERS]
    names = max((len(h.value) for h in shown), default=0)
    places = max((len(place(h.source)) for h in shown), default=0)
    for holder in shown:
        line = f"{holder.registers:>5}  {holder.value:<{names}}  {place(holder.source):<{places}}  "
        said = f"{holder.source.text if holder.source else ''}  ({holder.written_by})"
        if len(line) + len(said) <= width:
            yield Text(line + said)
        else:
            yield Text(line.rstrip())
            yield from indented(said, width)
    rest = use.holders[_MOST_HOLDERS:]
    if rest:
        yield Text(f"{sum(h.registers for h in rest):>5}  {counted(len(rest), 'other line')}", style="dim")
    yield from _spills(use, width)


def _spills(use: RegisterUse, width: int) -> Iterator[Text]:
    if not use.spills:
        return
    inside = [s for s in use.spills if s.in_loop]
    reloads, stores = sum(s.loads for s in inside), sum(s.stores for s in inside)
    if inside:
        paid = f"{counted(reloads, 'reload')} and {counted(stores, 'store')}"
        yield Text(f"spills: {paid} a trip of a loop, on {counted(len(inside), 'line')}:", style="yellow")
    else:
        yield Text(f"spills: none in a loop; {counted(len(use.spills), 'line')} outside", style="yellow")
    for spill in use.spills[:_MOST_SPILLS]:
        where = "in a loop" if spill.in_loop else "outside  "
        counts = f"{spill.loads:>3} reloads  {spill.stores:>3} stores  {spill.bytes:>4} B"
        line = f"  {where}  {counts}  {place(spill.source)}  "
        said = spill.source.text if spill.source else ""
        if len(line) + len(said) <= width:
            yield Text((line + said).rstrip())
        else:
            yield Text(line.rstrip())
            yield from indented(said, width)
    if len(use.spills) > _MOST_SPILLS:
        rest = use.spills[_MOST_SPILLS:]
        yield Text(f"  and {counted(len(rest), 'more line')}, {sum(s.bytes for s in rest):,} B", style="dim")


def _options(tried: Sequence[OptionTried], config: Config, width: int) -> Iterator[RenderableType]:
    if not tried or config.resources is None or config.occupancy is None:
        return
    now = config.occupancy
    rows = [
        [
            "as it is",
            text.number(config.resources.registers_per_thread),
            text.number(config.resources.spill_bytes),
            str(now.ctas_per_sm),
            str(now.warps_per_sm),
            "",
        ]
    ]
    for each in tried:
        rows.append(
            [
                text.pairs(each.change),
                *(
                    text.number(n)
                    for n in (each.registers_per_thread, each.spill_bytes, each.ctas_per_sm, each.warps_per_sm)
                ),
                each.reason,
            ]
        )
    keys = [Column("tried", [row[0] for row in rows], right=False)]
    headers = ["regs", "spill\nbytes", "CTAs\n/SM", "warps\n/SM"]
    columns = [Column(h, [row[i + 1] for row in rows]) for i, h in enumerate(headers)]
    if any(row[5] for row in rows):
        columns.append(Column("", [row[5] for row in rows], right=False, folds=True))
    yield from lay_out(keys, columns, width, gap=1)


# --- the source, line by line ------------------------------------------------------------------------------------


@dataclass
class _Line:
    """What stands beside one source line."""

    text: str
    buffers: int = 0
    registers: int = 0
    held: int = 0
    reloads: int = 0
    percent: float = 0.0
    wavefronts: _Taken = field(default_factory=lambda: _Taken())
    sectors: _Taken = field(default_factory=lambda: _Taken())


@dataclass
class _Taken:
    """Wavefronts or sectors of a line's accesses, against the least."""

    taken: float = 0.0
    least: float = 0.0

    def add(self, each: float | None, least: float | None, executed: int | None) -> None:
        times = 1 if executed is None else executed
        self.taken += (each or 0.0) * times
        self.least += (least or 0.0) * times

    def __str__(self) -> str:
        more = self.taken > self.least * 1.001 and self.least
        return f"{self.taken / self.least:.1f}x" if more else ""


def _listing(config: Config, width: int) -> Iterator[RenderableType]:
    found: dict[tuple[str, int], _Line] = {}

    def at(source: SourceText | None) -> _Line:
        place = ("", 0) if source is None else (source.file, source.line)
        return found.setdefault(place, _Line("(no line)" if source is None else source.text))

    for buffer in config.shared_map.buffers if config.shared_map else []:
        at(buffer.source).buffers += buffer.bytes
    if config.register_use is not None:
        for each in config.register_use.lines:
            line = at(each.source)
            line.registers = max(line.registers, each.registers)
        for holder in config.register_use.holders:
            at(holder.source).held += holder.registers
        for spill in config.register_use.spills:
            at(spill.source).reloads += spill.loads + spill.stores
    for access in config.accesses:
        line = at(access.source)
        line.wavefronts.add(access.wavefronts_per_access, access.least_wavefronts, access.executed)
        line.sectors.add(access.sectors_per_access, access.least_sectors_per_access, access.executed)
    for timed in config.line_times.lines if config.line_times else []:
        at(timed.source).percent += timed.percent
    for file in dict.fromkeys(place[0] for place in sorted(found)):
        yield Text(file or "without a line in the source", style="bold")
        yield Text("  line    bytes  live  held  spills  conflicts  sectors  time %", style="dim")
        for (name, number), line in sorted(found.items()):
            if name != file:
                continue
            cells = [f"{n:,}" if n else "" for n in (line.buffers, line.registers, line.held, line.reloads)]
            head = f"{number or '':>6}  {cells[0]:>7}  {cells[1]:>4}  {cells[2]:>4}  {cells[3]:>6}  "
            time = f"{line.percent:.1f}" if line.percent >= 0.05 else ""
            head += f"{line.wavefronts!s:>9}  {line.sectors!s:>7}  {time:>6}  "
            room = max(20, width - len(head))
            wrapped = textwrap.wrap(line.text, room) or [""]
            yield Text((head + wrapped[0]).rstrip())
            for more in wrapped[1:]:
                yield Text(" " * len(head) + more)
