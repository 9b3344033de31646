"""One kernel's occupancy on a terminal: every limit, what binds, what more CTAs take, and a chart over one resource.

`report.calculation_parts` shows an example and reads it aloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from occupancy_cli.report.calculation_parts import Calculation
    from occupancy_cli.report.machine_parts import Gpu
    from occupancy_cli.report.occupancy_parts import NextCta
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View

_CLIFF_ROWS = 5
_BAR = 40
_NAMES = {
    "shared": "shared memory",
    "registers": "registers",
    "warps": "warps",
    "ctas": "CTAs",
    "barriers": "barriers",
    "tmem": "tensor memory",
    "cluster": "cluster",
}
_CLIFF_TITLES = {
    "shared": "Shared bytes/CTA",
    "registers": "Regs/thread",
    "warps": "Warps/CTA",
    "tmem": "TMEM columns/CTA",
}


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The calculation of a Report."""
    found, gpu = report.calculation, report.gpu
    assert found is not None and gpu is not None
    yield from map(Text, _headline(gpu, found))
    yield Text("")
    yield _limits(gpu, found)
    yield from _cliffs(found)
    if found.over is not None:
        block = "█" if (console.encoding or "").lower().startswith("utf") else "#"
        yield _chart(found, block)


def _headline(gpu: Gpu, found: Calculation) -> list[str]:
    """GPU, kernel, answer: one line each, and one for everything that is not known."""
    sms = f"{gpu.sm_count} SMs" if gpu.sm_count else "limits only, so no waves"
    if "sm_count" in gpu.assumed:
        sms += " (assumed)"
    taken, occupancy = found.resources, found.occupancy
    registers = "registers not known"
    if taken.registers_per_thread is not None:
        registers = counted(taken.registers_per_thread, "register") + " per thread"
    shared = counted(taken.shared_bytes, "byte") + " of shared memory"
    if taken.static_shared_bytes:
        shared += f" and {taken.static_shared_bytes:,} static"
    parts = [
        f"{counted(taken.threads_per_cta, 'thread')} ({counted(taken.num_warps, 'warp')})",
        registers,
        shared,
    ]
    if taken.tmem_columns:
        parts.append(f"{taken.tmem_columns} columns of tensor memory")
    if taken.num_ctas > 1:
        parts.append(f"clusters of {taken.num_ctas} CTAs")
    said = [f"{gpu.name}, CC {gpu.compute_capability}, {sms}", ", ".join(parts), ""]
    if found.fits:
        bound = "at most " if occupancy.unknown else ""
        binding = " and ".join(_NAMES[name] for name in occupancy.limited_by)
        said.append(
            f"{bound}{counted(occupancy.ctas_per_sm, 'CTA')} per SM: {occupancy.warps_per_sm} of "
            f"{occupancy.max_warps_per_sm} warps, {occupancy.percent:.1f} %, limited by {binding}"
        )
    else:
        said.append(f"cannot launch: {found.reason}")
    said.extend(f"unknown: {text}" for text in occupancy.unknown.values())
    return said


def _limits(gpu: Gpu, found: Calculation) -> Table:
    taken = found.resources
    parts = [f"{taken.shared_bytes:,}"]
    if taken.static_shared_bytes:
        parts.append(f"{taken.static_shared_bytes:,} static")
    if gpu.shared_reserved_per_cta_bytes:
        parts.append(f"{gpu.shared_reserved_per_cta_bytes:,} system")
    exact = taken.shared_bytes + taken.static_shared_bytes + gpu.shared_reserved_per_cta_bytes
    rounded = f", in steps of {gpu.shared_alloc_granularity_bytes}"
    detail = " + ".join(parts) + ("" if exact == found.shared_allocated_bytes else rounded)
    registers = "not known"
    if found.registers_allocated_per_cta is not None:
        per_warp = found.registers_allocated_per_cta // taken.num_warps
        registers = f"{found.registers_allocated_per_cta:,} ({counted(taken.num_warps, 'warp')} x {per_warp:,})"
    parts_of_sm = gpu.sm_subpartitions or 1
    rows = {
        "shared": (f"{found.shared_allocated_bytes:,} ({detail})", f"{found.carveout_bytes:,} bytes"),
        "registers": (
            registers,
            f"{gpu.registers_per_sm:,} ({parts_of_sm} x {gpu.registers_per_sm // parts_of_sm:,})",
        ),
        "warps": (f"{taken.num_warps}", f"{gpu.max_warps_per_sm}"),
        "ctas": ("1", f"{gpu.max_ctas_per_sm}"),
        "tmem": (f"{taken.tmem_columns} columns", f"{gpu.tmem_columns_per_sm} columns"),
        "cluster": (f"cluster of {taken.num_ctas}", "not known" if gpu.cluster_supported else "no clusters"),
    }
    table = make_table("Limit", "One CTA takes", "The SM has", "CTAs/SM", "", right=(3,))
    for name, limit in found.occupancy.limits.items():
        without = "unknown" if name in found.occupancy.unknown else "no limit"
        binds = "binds" if name in found.occupancy.limited_by else ""
        table.add_row(_NAMES[name], *rows[name], without if limit is None else f"{limit}", binds)
    return table


def _cliffs(found: Calculation) -> Iterator[RenderableType]:
    """The level of now, with the room left in it, and the next ones, with what they take."""
    occupancy, taken = found.occupancy, found.resources
    now = {
        "shared": taken.shared_bytes,
        "registers": taken.registers_per_thread,
        "warps": taken.num_warps,
        "tmem": taken.tmem_columns,
    }
    resources = [r for r in now if _asks(found.cliffs[0], r) is not None or r in occupancy.slack]
    shown = [c for c in found.cliffs if c.ctas_per_sm > occupancy.ctas_per_sm][:_CLIFF_ROWS]
    table = make_table(
        "CTAs/SM", "Warps/SM", "Occupancy", *(_CLIFF_TITLES[r] for r in resources),
        title="What more CTAs take of each resource, the others as now", right=tuple(range(3 + len(resources))),
    )  # fmt: skip
    if found.fits:
        table.add_row(
            f"now {occupancy.ctas_per_sm}",
            f"{occupancy.warps_per_sm}",
            f"{occupancy.percent:.1f} %",
            *(f"{now[r]:,} (+{occupancy.slack[r]:,})" for r in resources),
        )
    for level in shown:
        warps = level.ctas_per_sm * taken.num_warps
        known = warps <= occupancy.max_warps_per_sm
        table.add_row(
            f"{level.ctas_per_sm}",
            f"{warps}" if known else "",
            f"{100 * warps / occupancy.max_warps_per_sm:.1f} %" if known else "",
            *(_cost(level, r) for r in resources),
        )
    yield table
    if not shown:
        yield Text(f"{occupancy.ctas_per_sm} CTAs is what an SM holds at most.")
        return
    room = "now: (+) what may be added before a CTA is lost; " if found.fits else ""
    together = ", and fewer warps also make up for registers" if any(len(c.binding) > 1 for c in shown) else ""
    yield Text(f"{room}below: at most so much, (-) less than now; a level takes its whole row{together}.")


def _asks(level: NextCta, resource: str) -> tuple[int | None, int | None] | None:
    """(at most, less than now) of one resource; None for one that the kernel does not use."""
    asked = {
        "shared": (level.shared_bytes, level.shared_bytes_less),
        "registers": (level.registers_per_thread, level.registers_per_thread_less),
        "warps": (level.warps_per_cta, level.warps_per_cta_less),
        "tmem": (level.tmem_columns, level.tmem_columns_less),
    }[resource]
    return None if asked == (None, None) else asked


def _cost(level: NextCta, resource: str) -> str:
    at_most, less = _asks(level, resource) or (None, None)
    if at_most is None:
        return "never"
    return f"<= {at_most:,} (-{less:,})" if less else "as now"


def _chart(found: Calculation, block: str) -> Table:
    over = found.over or ""
    taken = found.resources
    now = {"registers": taken.registers_per_thread, "shared": taken.shared_bytes, "warps": taken.num_warps}[over]
    table = make_table(_CLIFF_TITLES[over], "CTAs/SM", "Warps/SM", "Occupancy", "", "", right=(0, 1, 2, 3))
    for each in found.ranges:
        here = now is not None and each.least <= now <= each.most
        table.add_row(
            f"{each.least:,}" if each.least == each.most else f"{each.least:,} to {each.most:,}",
            f"{each.ctas_per_sm}",
            f"{each.warps_per_sm}",
            f"{each.percent:.1f} %" if each.ctas_per_sm else "cannot launch",
            block * max(round(_BAR * each.percent / 100), 1 if each.ctas_per_sm else 0),
            "now" if here else "",
        )
    return table
