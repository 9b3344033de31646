"""Reports as text for a terminal: a headline, a table, then what a reader should know, in sentences."""

from __future__ import annotations

from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from occupancy_cli.report import entries_table, text
from occupancy_cli.report.layout import Column, lay_out, needed_width
from occupancy_cli.report.schema import Choice, Config, Finding, Kernel, Recommendation, Report

WIDE = 110
MANY = 4
"""More batches than this get a row each, not a table each."""
_LEVELS = {"ok": ("ok", "green"), "violation": ("FAIL", "bold red"), "undecided": ("????", "bold yellow")}


def render(report: Report, console: Console) -> None:
    """Print a Report."""
    console.print(Group(*_parts(report, console.width)))


def _parts(report: Report, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for kernel in report.kernels:
        parts += _kernel(report, kernel, width)
    if len(report.recommendations) > MANY:
        parts += _by_batch(report, width)
    else:
        for recommendation in report.recommendations:
            parts += _recommendation(report, recommendation)
    if report.single_setting is not None:
        single = report.single_setting
        cost = f"{(single.slowdown - 1) * 100:.1f} % over each batch's own best"
        parts += [
            Text(f"One setting for all batches ({cost}):", style="bold"),
            Text(f"  {text.pairs({**single.knobs, **single.config})}"),
            *(Text(f"  {line}", style="green") for line in single.exports),
        ]
    for tables in report.tables:
        parts += entries_table.parts(report, tables)
    if report.findings:
        parts += _findings(report.findings)
    if report.gpu is not None:
        parts += [Text(f"note: {n}", style="yellow") for n in report.gpu.notes]
        if report.gpu.assumed:
            parts.append(Text(f"note: assumed for this GPU: {', '.join(report.gpu.assumed)}", style="yellow"))
    parts += [Text(f"note: {n}", style="yellow") for n in report.notes]
    if report.interrupted:
        parts.append(Text("interrupted: what was done by then is above", style="bold yellow"))
    return parts


# --- analyze -----------------------------------------------------------------------------------------------------


def _kernel(report: Report, kernel: Kernel, width: int) -> list[RenderableType]:
    constant, varying = text.split_columns(kernel.configs)
    origins = {n: o for n, o in kernel.settings.items() if o != "spec default"}
    same = [f"{n} {v}" + (f" ({origins[n]})" if n in origins else "") for n, v in constant.items()]
    parts: list[RenderableType] = [Text(text.headline(kernel.name, report.gpu, report.toolchain), style="bold")]
    if same:
        parts.append(Text(", ".join(same), style="dim"))
    parts += _config_table(kernel.configs, varying, width)
    parts += _cannot_launch(kernel, varying, report)
    parts += [Text(f"not read: {line}", style="yellow") for line in kernel.not_read]
    parts += [Text(f"- {line}") for line in (*kernel.notes, *kernel.observations)]
    parts += _followers(kernel)
    parts += [Text(f"- {note}") for note in dict.fromkeys(n for c in kernel.configs for n in c.notes) if note]
    return parts


def _config_table(configs: list[Config], varying: list[str], width: int) -> list[RenderableType]:
    """The configs at full width where that fits, else without spaces to spare, else in several tables."""
    for wide in (True, False) if width >= WIDE else (False,):
        keys, columns = _config_columns(configs, varying, wide)
        if not wide or needed_width([*keys, *columns], gap=2) <= width:
            return lay_out(keys, columns, width, gap=2 if wide else 0)
    raise AssertionError("the last layout is taken in any case")


def _config_columns(configs: list[Config], varying: list[str], wide: bool) -> tuple[list[Column], list[Column]]:
    """The columns that name a config, and those that say what it needs and gets."""
    with_grid = wide and any(c.launch is not None for c in configs)
    keys = []
    for name in varying:
        header = text.short(name)
        cells = [str(text.values_of(config).get(name, "-")) for config in configs]
        keys.append(Column(header if wide else header.replace("_", "\n_", 1), cells))
    headers: list[tuple[str, bool]] = [
        ("shared\nbytes", True),
        ("regs", True),
        ("spill\nbytes", True),
        ("fits", False),
        ("CTAs\n/SM", True),
        ("warps\n/SM", True),
        ("limited by", False),
    ]
    headers += [("next CTA at", False)] if wide else []
    headers += [("grid", False)] if with_grid else []
    headers += [("waves", True), ("last\nwave", True)]
    timed = any(c.time is not None for c in configs)
    headers += [("predicted\nus", True), ("bound by", False)] if timed else []
    rows = []
    for config in configs:
        row = _row(config, wide, with_grid)
        if config.time is not None:
            row.append("-" if config.time.time_us is None else f"{config.time.time_us:,.1f}")
            row.append(config.time.binding or "-")
        rows.append(row + ["-"] * (len(headers) - len(row)))
    columns = [
        Column(header, [row[i] for row in rows], right, folds=header in ("limited by", "bound by"))
        for i, (header, right) in enumerate(headers)
    ]
    return keys, columns


def _row(config: Config, wide: bool, with_grid: bool) -> list[str | Text]:
    if config.status == "failed":
        return ["-", "-", "-", Text("failed", style="bold red")]
    resources, occupancy = config.resources, config.occupancy
    assert resources is not None and occupancy is not None
    fits = Text("yes", style="green")
    if not config.fits:
        no = "no, " if wide else "no "
        over = f"{no}{config.over_bytes:,} over" if wide else f"{no}+{config.over_bytes:,}"
        fits = Text(over if config.over_bytes else "no", style="bold red")
    warps = f"{occupancy.warps_per_sm} of {occupancy.max_warps_per_sm}"
    row: list[str | Text] = [
        text.number(resources.shared_bytes),
        text.number(resources.registers_per_thread),
        text.number(resources.spill_bytes),
        fits,
        str(occupancy.ctas_per_sm),
        warps if wide else warps.replace(" of ", "/"),
        (", " if wide else " ").join(occupancy.limited_by),
    ]
    if wide:
        row.append(_next_cta(config))
    if with_grid:
        row.append(text.grid(config.launch.grid) if config.launch else "-")
    return [*row, text.waves(config.launch), text.tail(config.launch)]


def _next_cta(config: Config) -> str:
    occupancy = config.occupancy
    if occupancy is None or not config.fits:
        return "-"
    following = occupancy.next_cta
    parts = []
    if "shared" in following.binding:
        parts.append("-" if following.shared_bytes is None else f"{following.shared_bytes:,} B")
    if "registers" in following.binding:
        regs = following.registers_per_thread
        parts.append("-" if regs is None else f"{regs} regs")
    if "warps" in following.binding:
        parts.append(f"{text.number(following.warps_per_cta)} warps")
    return ", ".join(parts) or "-"


def _cannot_launch(kernel: Kernel, varying: list[str], report: Report) -> list[RenderableType]:
    parts: list[RenderableType] = []
    over = [c for c in kernel.configs if c.status == "over_cap"]
    for config in over:
        values = text.values_of(config)
        which = text.pairs({n: values[n] for n in varying if n in values}) or "the config"
        parts.append(Text(f"{which} cannot launch: {config.reason}", style="red"))
    if over and kernel.tuned:
        parts += [
            Text(
                "@triton.autotune catches the OutOfResources of such a config, takes its time as infinite, and drops "
                "it without a word: nothing at run time says that it was never tried."
            ),
        ]
    elif over:
        parts.append(Text("Launched, it raises triton.runtime.errors.OutOfResources."))
    for config in kernel.configs:
        if config.status == "failed" and config.error is not None:
            values = text.values_of(config)
            which = text.pairs({n: values[n] for n in varying if n in values}) or "the config"
            parts.append(Text(f"{which} failed ({config.error.kind}): {config.error.message}", style="red"))
    return parts


def _followers(kernel: Kernel) -> list[RenderableType]:
    lines: dict[str, None] = {}
    for config in kernel.configs:
        for follower in config.followed_by:
            if follower.resources is None or follower.occupancy is None:
                why = follower.error.message if follower.error else "unknown"
                lines[f"- then {follower.kernel}: failed: {why}"] = None
                continue
            waves = text.waves(follower.launch)
            lines[
                f"- then {follower.kernel}: {follower.resources.shared_bytes:,} bytes shared, "
                f"{text.number(follower.resources.registers_per_thread)} registers, "
                f"{follower.occupancy.ctas_per_sm} CTAs/SM"
                + (f", grid {text.grid(follower.launch.grid)}, {waves} waves" if follower.launch else "")
            ] = None
    return [Text(line) for line in list(lines)[:4]]


# --- recommend ---------------------------------------------------------------------------------------------------


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
    parts.append(table)
    parts += [Text(f"- {reason}") for reason in found.reasons]
    parts += [Text(line, style="green") for line in found.exports]
    if found.cannot_launch:
        shown = found.cannot_launch[:3]
        more = f" (and {len(found.cannot_launch) - 3} more)" if len(found.cannot_launch) > 3 else ""
        parts.append(Text(f"cannot launch: {'; '.join(shown)}{more}", style="red"))
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
    batches = Column("batch", [str(found.batch) for found in report.recommendations])
    columns = [Column(header, [row[i] for row in rows]) for i, header in enumerate(headers)]
    tables = lay_out([batches], columns, width, gap=1)
    parts: list[RenderableType] = [Text(text.headline("by batch", report.gpu, report.toolchain), style="bold")]
    if same:
        parts.append(Text(text.pairs(same), style="dim"))
    failed = dict.fromkeys(why for r in report.recommendations for why in r.cannot_launch)
    return [*parts, *tables, *(Text(f"cannot launch: {why}", style="red") for why in list(failed)[:3])]


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


# --- check -------------------------------------------------------------------------------------------------------


def _findings(findings: list[Finding]) -> list[RenderableType]:
    """A line for every finding that needs a reader, then one a kernel, GPU and rule for all that holds."""
    parts: list[RenderableType] = [_finding(f) for f in findings if f.level in ("violation", "undecided")]
    parts += [_finding(f) for f in findings if f.level == "note"]

    def group(finding: Finding) -> tuple[str, str, str, str]:
        return (finding.file, finding.kernel, finding.gpu, finding.rule)

    good = sorted((f for f in findings if f.level == "ok"), key=group)
    for (_, kernel, gpu, rule), members in groupby(good, key=group):
        held = list(members)
        # The one that is nearest to its limit speaks for all.
        least = rule.startswith("min_")
        worst = (min if least else max)(held, key=lambda f: f.required or 0)
        limit = ""
        if worst.required is not None:
            needed = f"{worst.required:,} {worst.unit}, {worst.limit:,} are asked for"
            limit = f", at least {needed}" if least else f", at most {worst.required:,} of {worst.limit:,} {worst.unit}"
        line = Text("ok   ", style="green")
        count = f"{len(held)} {'launch' if len(held) == 1 else 'launches'}"
        line.append(f"{_place(worst)}{kernel} on {gpu}: {rule} holds for {count}{limit}", style="")
        parts.append(line)
    return parts


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}: " if finding.file and finding.line else ""


def _finding(finding: Finding) -> Text:
    word, style = _LEVELS.get(finding.level, ("note", "dim"))
    config = text.pairs({n: v for n, v in {**finding.knobs, **finding.config}.items() if (n, v) != ("num_ctas", 1)})
    line = Text(f"{word:4} ", style=style)
    line.append(
        f"{_place(finding)}{finding.kernel} on {finding.gpu}{config and f', {config}'}: {finding.message}", style=""
    )
    return line
