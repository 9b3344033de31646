"""Config tables on a terminal: a line a GPU, then what does not fit and what to use instead, then what wastes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.kernel_parts import ConfigTables, TableEntry
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.view import View

MOST_LINES = 20


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The tables of every spec of a Report."""
    for tables in report.tables:
        yield from _tables(report, tables)


def _tables(report: Report, tables: ConfigTables) -> list[RenderableType]:
    """The lines of one spec's tables."""
    entries = tables.entries
    count = f"{tables.files} table{'s' * (tables.files != 1)}, {len(entries)} entries, "
    count += f"{tables.specializations} distinct launches"
    found: list[RenderableType] = [Text(f"{tables.kernel}: {count}, Triton {report.toolchain.triton}", style="bold")]

    def by_gpu(entry: TableEntry) -> tuple[str, str]:
        return (entry.gpu or "", entry.gpu_name)

    for (gpu, name), members in groupby(sorted(entries, key=by_gpu), key=by_gpu):
        mine = list(members)
        found.append(_summary(name, mine) if gpu else _undecided(name, mine))
    over = [e for e in entries if e.status == "over_cap"]
    found += _section("do not fit", over, tables.key, "red")
    found += _section("did not compile", [e for e in entries if e.status == "failed"], tables.key, "red")
    odd = [e for e in entries if e.status == "undecided" and e.gpu is not None]
    found += _section("could not be decided", odd, tables.key, "yellow")
    found += _section("fit, but waste the GPU", [e for e in entries if e.wastes], tables.key, "yellow")
    return found


def _summary(gpu: str, entries: Sequence[TableEntry]) -> Text:
    fits = [e for e in entries if e.status == "ok"]
    over = sum(e.status == "over_cap" for e in entries)
    line = f"on {gpu}: {len(fits)} fit"
    if fits:
        largest = max(fits, key=lambda e: e.shared_bytes or 0)
        line += f" (at most {text.number(largest.shared_bytes)} of {text.number(largest.cap_bytes)} bytes)"
    line += f", {over} do not"
    wasteful = sum(bool(e.wastes) for e in entries)
    line += f", {wasteful} waste it" if wasteful else ""
    other = len(entries) - len(fits) - over
    return Text(line + (f", {other} undecided" if other else ""), style="red" if over else "")


def _undecided(device: str, entries: Sequence[TableEntry]) -> Text:
    files = len({e.file for e in entries})
    line = f"{device or 'no GPU named'}: entries undecided: {len(entries)}, in tables: {files}; {entries[0].reason}"
    return Text(f"{line}; ask for one by --gpu, or name it under `devices`", style="yellow")


def _section(title: str, entries: Sequence[TableEntry], key: str, style: str) -> list[RenderableType]:
    """One line for each config, with the entries that share it."""
    if not entries:
        return []
    lines: dict[tuple[str, ...], list[TableEntry]] = {}
    for entry in entries:
        why = "; ".join(entry.wastes) if entry.wastes else _why(entry)
        instead = "" if entry.instead is None else f"{entry.instead.what} ({_config(entry.instead.config)})"
        if entry.instead is not None and not entry.wastes:
            instead += f", {entry.instead.shared_bytes:,} bytes"
        lines.setdefault((entry.gpu_name, _config(entry.config), why, instead), []).append(entry)
    found: list[RenderableType] = [Text(f"{len(entries)} {title}:", style=f"bold {style}")]
    for (gpu, config, why, instead), members in list(lines.items())[:MOST_LINES]:
        line = Text(f"  {config} on {gpu}: {why}: {_places(members, key)}", style=style)
        if instead:
            line.append(f"\n    use {instead}", style="green")
        elif members[0].status == "over_cap":
            line.append("\n    no entry of its file fits", style=style)
        found.append(line)
    if len(lines) > MOST_LINES:
        found.append(
            Text(f"  and {len(lines) - MOST_LINES} more configs (--format json lists every entry)", style="dim")
        )
    return found


def _why(entry: TableEntry) -> str:
    if entry.status == "over_cap" and entry.over_bytes:
        return f"{text.number(entry.shared_bytes)} bytes, {entry.over_bytes:,} over"
    return entry.reason


def _config(config: dict[str, object] | object) -> str:
    assert isinstance(config, dict)
    return text.pairs(config)


def _places(entries: Sequence[TableEntry], key: str) -> str:
    by_file: dict[str, list[int]] = {}
    for entry in entries:
        by_file.setdefault(entry.file, []).append(entry.at)
    shown = [f"{file} {key} {', '.join(map(str, at))}" for file, at in list(by_file.items())[:2]]
    more = f" and {len(by_file) - 2} more files" if len(by_file) > 2 else ""
    return "; ".join(shown) + more
