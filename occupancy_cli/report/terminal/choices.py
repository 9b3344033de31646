"""Recommendations on a terminal: what is set now beside what to use, or a row a batch; then one setting for all."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from occupancy_cli.report.choice_parts import Choice, Recommendation
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.terminal.layout import Column, lay_out
from occupancy_cli.report.view import View

MANY = 4
"""More batches than this get a row each, not a table each."""


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """All recommendations of a Report."""
    if len(report.recommendations) > MANY:
        yield from _by_batch(report, console.width)
    else:
        for recommendation in report.recommendations:
            yield from _recommendation(report, recommendation)
        settings = [(r.batch, {**r.knobs, **r.config}) for r in report.recommendations]
        for batch, changes in text.flips(settings).items():
            yield Text(f"at batch {batch} the choice flips: {', '.join(changes)}")
        if said := text.l2_said(report.subject):
            yield Text(said, style="dim")
    if report.single_setting is not None:
        single = report.single_setting
        cost = f"{(single.slowdown - 1) * 100:.1f} % over each batch's own best"
        yield Text(f"One setting for all batches ({cost}):", style="bold")
        yield Text(f"  {text.pairs({**single.knobs, **single.config})}")
        yield from (Text(f"  {line}", style="green") for line in single.exports)


def _recommendation(report: Report, found: Recommendation) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(text.headline(f"batch {found.batch}", report.gpu, report.toolchain), style="bold")
    ]
    sides = [("now", found.default), ("use", found.chosen), ("next best", found.runner_up)]
    choices = [(label, choice) for label, choice in sides if choice is not None]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for label, _ in choices:
        table.add_column(Text(label), justify="right", style="bold" if label == "use" else "")
    columns = [_choice_lines(choice, found) for _, choice in choices]
    for name in dict.fromkeys(n for column in columns for n in column):
        # num_ctas is 1 but for clusters, and says nothing where all have it.
        if name != "num_ctas" or any(column.get(name) != "1" for column in columns):
            table.add_row(Text(name), *(Text(column.get(name, "-")) for column in columns))
    parts[1:1] = [
        *_answer(found),
        *(Text(f"- {line}") for line in [*found.why, *text.straggling(found), *text.open_names(found)]),
    ]
    parts.append(table)
    if found.cannot_launch:
        shown = found.cannot_launch[:3]
        more = f" (and {len(found.cannot_launch) - 3} more)" if len(found.cannot_launch) > 3 else ""
        parts.append(Text(f"cannot launch: {'; '.join(shown)}{more}", style="red"))
    return parts


def _answer(found: Recommendation) -> list[RenderableType]:
    """What to set, what that gains and against what, and how sure that is."""
    parts: list[RenderableType] = []
    if found.set_line:
        parts.append(Text(found.set_line, style="bold green"))
    if found.left_open:
        parts.append(Text(f"  ({found.left_open})"))
    parts += [Text(line) for line in (text.gain(found), text.sureness(found)) if line]
    return parts


def _by_batch(report: Report, width: int) -> list[RenderableType]:
    """A row a batch: what to use, and how it compares with what is set now."""
    names = list(dict.fromkeys(n for r in report.recommendations for n in {**r.knobs, **r.config}))
    values = [{**r.knobs, **r.config} for r in report.recommendations]
    same = {n: values[0].get(n) for n in names if all(v.get(n) == values[0].get(n) for v in values)}
    varying = [n for n in names if n not in same]
    short = [text.short(n).replace("_", "\n_", 1) for n in varying]
    headers = [*short, "nsplit", "CTAs\n/SM", "waves", "predicted\nus", "against\nnow"]
    rows = []
    for found, row in zip(report.recommendations, values, strict=True):
        ratio = found.predicted_speedup_vs_default
        cells = [*(str(row.get(n, "-")) for n in varying), text.number(found.nsplit)]
        cells += [text.number(found.chosen.ctas_per_sm), text.waves(found.chosen.launch)]
        cells.append("-" if found.predicted_time_us is None else f"{found.predicted_time_us:,.1f}")
        cells.append("kept" if found.kept_default else "-" if ratio is None else f"{ratio:.2f}x")
        rows.append(cells)
    settings = [(r.batch, {**r.knobs, **r.config}) for r in report.recommendations]
    flips = text.flips(settings)
    marks = [f"{r.batch}{'*' if r.batch in flips else ' ' if flips else ''}" for r in report.recommendations]
    batches = Column("batch", marks)
    columns = [Column(header, [row[i] for row in rows]) for i, header in enumerate(headers)]
    tables = lay_out([batches], columns, width, gap=1)
    parts: list[RenderableType] = [Text(text.headline("by batch", report.gpu, report.toolchain), style="bold")]
    if same:
        parts.append(Text(text.pairs(same), style="dim"))
    failed = dict.fromkeys(why for r in report.recommendations for why in r.cannot_launch)
    said = [Text("* another setting than at the batch before", style="dim")] if flips else []
    said += [Text(line, style="dim") for line in (text.l2_said(report.subject),) if line]
    return [*parts, *tables, *said, *(Text(f"cannot launch: {why}", style="red") for why in list(failed)[:3])]


def _choice_lines(choice: Choice, found: Recommendation) -> dict[str, str]:
    base = found.default.predicted_time_us if found.default else None
    time_us = choice.predicted_time_us
    partials = {} if not choice.partials_bytes else {"partials, bytes": f"{choice.partials_bytes:,}"}
    return {
        **{n: str(v) for n, v in {**choice.knobs, **choice.config}.items()},
        **({} if choice.nsplit is None else {"nsplit": str(choice.nsplit)}),
        "CTAs/SM": text.number(choice.ctas_per_sm),
        "warps/SM": text.number(choice.warps_per_sm),
        "waves": text.waves(choice.launch),
        "last wave": text.tail(choice.launch),
        **partials,
        "predicted us": "-" if time_us is None else f"{time_us:.1f}",
        "speed against now": "-" if base is None or not time_us else f"{base / time_us:.2f}x",
    }
