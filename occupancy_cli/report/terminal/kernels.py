"""Kernels and their configs on a terminal: a headline, a row a config, then what a reader should know, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.kernel_parts import Config, Kernel
from occupancy_cli.report.report import Report
from occupancy_cli.report.terminal import text
from occupancy_cli.report.terminal.layout import Column, lay_out, needed_width
from occupancy_cli.report.view import View

WIDE = 110


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """All kernels of a Report; one that was asked about on several GPUs is one table."""
    kernels = report.kernels
    if len(kernels) > 1 and all(kernel.gpu is not None for kernel in kernels):
        kernels = [_side_by_side(kernels, report)]
    for kernel in kernels:
        yield from _kernel(report, kernel, console.width)
        if any(config.shared_map is not None for config in kernel.configs):
            from occupancy_cli.report.terminal import explained

            yield from explained.lines(kernel, console.width, view)


def _side_by_side(kernels: list[Kernel], report: Report) -> Kernel:
    """The parts of a kernel on several GPUs as one, config by config, with the GPU as what tells its rows apart."""
    named = [(kernel.gpu.name if kernel.gpu else "", kernel) for kernel in kernels]
    rows = [[replace(c, shapes={"GPU": gpu, **c.shapes}) for c in kernel.configs] for gpu, kernel in named]
    configs = [config for beside in zip_longest(*rows) for config in beside if config is not None]

    def said(field: str) -> list[str]:
        lines = [(gpu, line) for gpu, kernel in named for line in getattr(kernel, field)]
        everywhere = {line for _, line in lines if sum(line == other for _, other in lines) == len(kernels)}
        return list(dict.fromkeys(line if line in everywhere else f"{gpu}: {line}" for gpu, line in lines))

    return replace(
        kernels[0],
        name=f"{kernels[0].name} on {len(kernels)} GPUs, Triton {report.toolchain.triton}",
        configs=configs,
        observations=said("observations"),
        notes=said("notes"),
        not_read=said("not_read"),
    )


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
            row.append("-" if config.predicted_time_us is None else f"{config.predicted_time_us:,.1f}")
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
    failed: dict[tuple[str, str], list[Config]] = {}
    for config in kernel.configs:
        if config.status == "failed" and config.error is not None:
            failed.setdefault((config.error.kind, config.error.message), []).append(config)
    for (kind, message), alike in failed.items():
        values = text.values_of(alike[0])
        which = text.pairs({n: values[n] for n in varying if n in values}) or "the config"
        if len(alike) > 1:
            all_of_them = len(alike) == len(kernel.configs)
            which = f"all {len(alike)} configs" if all_of_them else f"{which} and {len(alike) - 1} more"
        parts.append(Text(f"{which} failed ({kind}): {message}", style="red"))
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
