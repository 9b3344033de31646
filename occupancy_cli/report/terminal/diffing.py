"""Two sides of a kernel beside each other, on a terminal: the figures, then the buffers and lines behind them.

Triton 3.6.0 -> Triton 3.9.0
                    before    after   change
shared bytes        32,832   36,928   +4,096
    acc (layout conversion): 4,096 -> 4,096 bytes, no longer shares an address; mla.py:84 tl.store(...)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.diff_parts import ConfigDiff, Diff, FigureChange, HolderChange
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.explained import indented, place
from occupancy_cli.report.terminal.fitting import buffer_lines
from occupancy_cli.report.terminal.layout import Column, lay_out
from occupancy_cli.report.view import View

_MOST_CONFIGS = 4
_MOST_BUFFERS = 8
_MOST_HOLDERS = 6


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """Every Diff of a Report."""
    for found in report.diffs:
        yield from _diff(found, min(console.width, 200))


def _diff(found: Diff, width: int) -> Iterator[RenderableType]:
    yield Text(f"{found.kernel}: {found.before} -> {found.after}", style="bold")
    different = [c for c in found.configs if not c.same]
    same = len(found.configs) - len(different)
    if same:
        yield Text(f"{counted(same, 'config')} without a difference", style="green")
    for config in different[:_MOST_CONFIGS]:
        yield from _config(config, width)
    rest = different[_MOST_CONFIGS:]
    if rest:
        said = f"{counted(len(rest), 'more config')} with differences (--config NAME=VALUE,... or --format json)"
        yield Text(said, style="dim")
    for side, configs in ((found.before, found.only_before), (found.after, found.only_after)):
        if configs:
            shown = "; ".join(text.pairs(c) for c in configs[:2])
            more = f" and {len(configs) - 2} more" if len(configs) > 2 else ""
            yield from indented(f"only in {side}: {shown}{more}", width, indent=0)
    yield from (Text(f"note: {note}", style="yellow") for note in found.notes)


def _config(config: ConfigDiff, width: int) -> Iterator[RenderableType]:
    same = {n: v for n, v in config.before.items() if config.after.get(n, v) == v}
    changed = [f"{n} {v} -> {config.after[n]}" for n, v in config.before.items() if n in config.after and n not in same]
    yield Text()
    yield from indented(", ".join([*changed, text.pairs(same)] if same else changed), width, indent=0)
    known = [f for f in config.figures if f.before is not None or f.after is not None]
    shown = [
        f for f in known if f.before != f.after or f.name in ("shared_bytes", "registers_per_thread", "ctas_per_sm")
    ]
    keys = [Column("", [f.name.replace("_", " ").replace("limits.", "CTAs/SM by ") for f in shown], right=False)]
    columns = [
        Column("before", [_figure(f.before) for f in shown]),
        Column("after", [_figure(f.after) for f in shown]),
        Column("change", [_change(f) for f in shown]),
    ]
    yield from lay_out(keys, columns, width, gap=1)
    yield from buffer_lines(config.buffers, width, _MOST_BUFFERS)
    yield from _registers(config.registers, width)


def _figure(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _change(figure: FigureChange) -> str:
    one, other = figure.before, figure.after
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)) or one == other:
        return "" if one != other else "="
    if figure.name == "predicted_time_us" and one:
        return f"{100 * (other - one) / one:+.1f} %"
    return f"{other - one:+,.2f}" if isinstance(other - one, float) else f"{other - one:+,}"


def _registers(changes: Sequence[HolderChange], width: int) -> Iterator[Text]:
    if not changes:
        return
    yield Text("    registers at the peak, by the line that holds them:", style="dim")
    for each in changes[:_MOST_HOLDERS]:
        name = f"{each.value} " if each.value else ""
        where = f"{place(each.source)} {each.source.text if each.source else ''}"
        yield from indented(f"{name}{each.before} -> {each.after}; {where}", width, indent=6)
    if len(changes) > _MOST_HOLDERS:
        yield Text(f"      and {counted(len(changes) - _MOST_HOLDERS, 'more line')}", style="dim")
