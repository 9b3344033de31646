"""A sweep over batch on a terminal: a plot of time over batch, or the table of its figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from occupancy_cli.report.choice_parts import SweepPoint, SweepSide
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.view import View

PLOT_ROWS = 16
_MOST_FLIPS = 12


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """A sweep: a plot of time over batch, or the table of its figures; then what to set, and where batch costs."""
    yield Text(text.headline("over batch", report.gpu, report.toolchain), style="bold")
    if report.anchor is not None:
        anchor = report.anchor
        scaled = f"times are scaled by {anchor.factor:.3g} to meet {anchor.measured_ms:g} ms at batch {anchor.batch}"
        yield Text(scaled, style="dim")
    if view.plot and len(report.sweep) > 1:
        # A pipe has no width; a plot needs one.
        width = console.width if console.is_terminal else shutil.get_terminal_size().columns
        yield from _plot(report.sweep, min(width, 120))
    else:
        yield _table(report.sweep, console.width)
    single = report.single_setting
    if single is not None:
        yield Text(f"recommended for all: {text.pairs({**single.knobs, **single.config})}")
        yield from (Text(line, style="green") for line in single.exports)
    flips = text.flips([(p.batch, {**p.best.knobs, **p.best.config}) for p in report.sweep])
    if flips:
        shown = ", ".join(map(str, list(flips)[:_MOST_FLIPS]))
        more = f" and {len(flips) - _MOST_FLIPS} more" if len(flips) > _MOST_FLIPS else ""
        marked = " (^ below the plot)" if view.plot and len(report.sweep) > 1 else ""
        yield Text(f"- the best setting is another from batch {shown}{more} on{marked}")
    if said := text.l2_said(report.subject):
        yield Text(said, style="dim")
    for worse, better in _drops(report.sweep):
        yield Text(
            f"- as it is set now, batch {worse.batch} is slower in requests per second than batch {better.batch}: "
            f"{_rate(worse):,.0f} against {_rate(better):,.0f}"
        )


def _rate(point: SweepPoint) -> float:
    assert point.default is not None
    return point.default.requests_per_s


def _drops(points: list[SweepPoint], most: int = 3) -> list[tuple[SweepPoint, SweepPoint]]:
    """The deepest falls of throughput with batch under what is set now: (the slower batch, the best one before it)."""
    best: SweepPoint | None = None
    found = []
    for point in points:
        if point.default is None:
            continue
        if best is not None and _rate(point) < 0.98 * _rate(best):
            found.append((point, best))
        if best is None or _rate(point) > _rate(best):
            best = point
    found.sort(key=lambda pair: _rate(pair[0]) / _rate(pair[1]))
    return found[:most]


def _plot(points: list[SweepPoint], width: int) -> Iterator[Text]:
    """Time over batch: `o` what is set now, `+` recommended for all, `*` where both fall on one cell."""
    series = [(p.batch, p.default, p.recommended) for p in points]
    times = [s.predicted_time_us for _, *sides in series for s in sides if s is not None]
    top = max(times)
    label = len(f"{top:,.0f}")
    columns = max(20, width - label - 4)
    first, last = points[0].batch, points[-1].batch
    grid = [[" "] * columns for _ in range(PLOT_ROWS)]
    for batch, *sides in series:
        x = round((batch - first) / max(1, last - first) * (columns - 1))
        for mark, side in zip("o+", sides, strict=True):
            if side is None:
                continue
            y = PLOT_ROWS - 1 - round(side.predicted_time_us / top * (PLOT_ROWS - 1))
            grid[y][x] = "*" if grid[y][x] not in (" ", mark) else mark
    yield Text(f"{'us':>{label}}   o as it is set now   + recommended for all   * both", style="dim")
    for i, row in enumerate(grid):
        value = top * (PLOT_ROWS - 1 - i) / (PLOT_ROWS - 1)
        mark = f"{value:>{label},.0f}" if i % 5 == 0 else " " * label
        yield Text(f"{mark} |{''.join(row).rstrip()}")
    yield Text(f"{' ' * label} +{'-' * columns}")
    flips = text.flips([(p.batch, {**p.best.knobs, **p.best.config}) for p in points])
    if flips:
        below = [" "] * columns
        for batch in flips:
            below[round((batch - first) / max(1, last - first) * (columns - 1))] = "^"
        yield Text(f"{' ' * label}  {''.join(below).rstrip()}")
    yield Text(f"{' ' * label}  {first}{str(last).rjust(columns - len(str(first)))}")
    yield Text(f"{' ' * label}  {'batch'.center(columns)}".rstrip(), style="dim")


def _table(points: list[SweepPoint], width: int) -> Table:
    wide = width >= 110
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1) if wide else (0, 0))
    for header in (
        "batch",
        "now\nus",
        "waves",
        "CTAs\n/SM",
        "req/s",
        "all\nus",
        "waves",
        "CTAs\n/SM",
        "req/s",
        "best\nus",
    ):
        table.add_column(Text(header), justify="right", no_wrap=True)
    for point in points:
        cells = [str(point.batch), *_cells(point.default), *_cells(point.recommended)]
        table.add_row(*(Text(c) for c in [*cells, f"{point.best.predicted_time_us:,.1f}"]))
    return table


def _cells(side: SweepSide | None) -> list[str]:
    if side is None:
        return ["-"] * 4
    waves = "-" if side.waves is None else f"{side.waves:.2f}"
    return [f"{side.predicted_time_us:,.1f}", waves, str(side.ctas_per_sm), f"{side.requests_per_s:,.0f}"]
