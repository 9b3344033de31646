"""A Triton cache on a terminal: what cannot launch, what could gain most, what was set aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from occupancy_cli.report.audit_parts import Audit, AuditedKernel
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View

WIDE = 150


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The audit of a Report, `view.most_rows` rows of it (None: all)."""
    result = report.audit
    assert result is not None
    where = "each on its own target" if report.gpu is None else f"on {report.gpu.name} ({report.gpu.id})"
    yield Text(f"{result.root}: {counted(len(result.kernels), 'compiled kernel')}, {where}")
    if result.kernels:
        yield from _failures(result)
        rows = [r for r in result.kernels if r.fits is not False]
        shown = rows[: view.most_rows]
        if shown:
            yield Text(result.rule)
            yield _table(shown, console.width >= WIDE)
        if len(shown) < len(rows):
            yield Text(f"{len(rows) - len(shown):,} more (--top 0 shows all).")
        spilling = sum(bool(r.resources.spill_bytes) for r in result.kernels)
        if spilling:
            yield Text(f"{spilling:,} of {len(result.kernels):,} spill registers to local memory.")
    yield from _set_aside(result)


def _failures(result: Audit) -> Iterator[RenderableType]:
    """A line for each kernel that cannot launch, its binaries together: autotuners leave many."""
    failed: dict[tuple[str, str], list[AuditedKernel]] = {}
    for row in result.kernels:
        if row.fits is False:
            failed.setdefault((row.kernel, row.gpu), []).append(row)
    if not failed:
        return
    binaries = sum(map(len, failed.values()))
    yield Text(f"{binaries:,} of these cannot launch:", style="bold red")
    for (name, gpu), rows in failed.items():
        overs = sorted({r.over_bytes for r in rows if r.over_bytes})
        if len(rows) == 1 or not overs:
            reason = rows[0].reason
        else:
            span = f"{overs[0]:,}" if len(overs) == 1 else f"{overs[0]:,} to {overs[-1]:,}"
            cap = rows[0].shared_cap_bytes
            reason = f"{len(rows)} binaries are {span} bytes of shared memory over the cap of {cap:,}"
        yield Text(f"  {name} on {gpu}: {reason}")


def _table(rows: Sequence[AuditedKernel], wide: bool) -> Table:
    headers = ["Score", "Kernel", "Warps", "Regs", "Spill B", "Shared B", "CTAs/SM", "Warps/SM", "One CTA more per SM"]
    table = make_table(
        *headers, *(("Limited by", "Stages", "Built for", "Source") if wide else ()), right=(0, 2, 3, 4, 5, 6, 7)
    )
    for row in rows:
        resources, found = row.resources, row.occupancy
        if found is None or row.gain is None:
            score, ctas, warps, limits, text = "-", "-", "-", "-", row.unknown
        else:
            score, ctas, text = f"{row.gain.score:.2f}", str(found.ctas_per_sm), row.gain.text
            warps, limits = f"{found.warps_per_sm} of {found.max_warps_per_sm}", ", ".join(found.limited_by)
        built = f"sm{row.arch}" + (f", Triton {row.triton}" if row.triton else "")
        stages = "-" if row.num_stages is None else str(row.num_stages)
        table.add_row(
            score,
            row.kernel,
            str(resources.num_warps),
            str(resources.registers_per_thread),
            f"{resources.spill_bytes or 0:,}",
            f"{resources.shared_bytes + resources.static_shared_bytes:,}",
            ctas,
            warps,
            text,
            *((limits, stages, built, _short_source(row.source or "") or row.entry) if wide else ()),
        )
    return table


def _short_source(source: str) -> str:
    return "/".join(source.rsplit("/", 2)[-2:])


def _set_aside(result: Audit) -> Iterator[RenderableType]:
    counts = {state: n for state, n in result.counts.items() if n and state != "kernels"}
    if not counts:
        return
    yield Text(f"Set aside: {', '.join(f'{n:,} {state}' for state, n in counts.items())}.")
    for state in counts:
        items = [a for a in result.set_aside if a.state == state]
        if state == "other":
            continue
        for item in items[:20]:
            yield Text(f"  {state}: {item.path}: {item.why}")
        if len(items) > 20:
            yield Text(f"  {state}: {len(items) - 20:,} more (--format json names all)")
