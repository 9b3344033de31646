"""`occupancy audit`: every compiled kernel of a Triton cache, ranked by what can be gained."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format, counted, make_console, make_table

if TYPE_CHECKING:
    from rich.console import Console

    from occupancy_cli.answers.audit import Audit, AuditedKernel

SCHEMA = "occupancy/audit/1"
WIDE = 150


def audit(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A Triton cache, or TorchInductor's. Left out: TRITON_CACHE_DIR, else ~/.triton/cache.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="Judge all kernels on this GPU. Left out: each on the target it was built for."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Rows of the table; 0: all.")] = 40,
    hw_profiles: options.ProfilesOption = None,
    output_format: options.FormatOption = Format.table,
) -> None:
    """Find the compiled kernels in a Triton cache that could gain most from one more CTA per SM.

    Rank: (resident warps that one more CTA per SM would add, relative to now) x (the part of the binding resource that
    may stay); kernels that cannot launch come first. Reads files only: no GPU, no Triton, nothing of the cache runs.
    Entries that are corrupt, partial or built for other devices are counted and named.
    """
    from occupancy_cli.answers.audit import audit as judge
    from occupancy_cli.gpu.profiles import load_gpu
    from occupancy_cli.readers.triton_cache import default_triton_cache, read_triton_cache

    profile = None if gpu is None else options.resolve_gpu(gpu, hw_profiles)
    with _progress() as progress:
        cache = read_triton_cache(folder or default_triton_cache(), progress=progress)
    result = judge(cache, lambda arch: load_gpu(f"sm{arch}", hw_profiles or []), profile)
    if output_format is Format.json:
        typer.echo(json.dumps(as_json(result), indent=2, ensure_ascii=False))
        return
    _print(result, make_console(), top)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, str], None] | None]:
    """A count on standard error while a large cache is read; None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the cache") as status:

        def show(seen: int, _name: str) -> None:
            if seen % 100 == 0:
                status.update(f"reading the cache: {seen:,} folders")

        yield show


def as_json(result: Audit) -> dict[str, Any]:
    """The audit as data. `score` is the ranking's number; null occupancy: `unknown` says why."""
    from occupancy_cli.answers.audit import BLIND_SPOT, RULE

    return {
        "schema": SCHEMA,
        "command": "audit",
        "root": result.cache.root,
        "gpu": None if result.gpu is None else result.gpu.id,
        "rule": RULE,
        "notes": [*result.notes, BLIND_SPOT],
        "kernels": [_row_json(row) for row in result.kernels],
        "set_aside": [{"path": a.path, "state": a.state, "why": a.why} for a in result.cache.set_aside],
        "counts": {"kernels": len(result.kernels), **result.cache.counts()},
    }


def _row_json(row: AuditedKernel) -> dict[str, Any]:
    from dataclasses import asdict

    kernel, found, gain = row.kernel, row.occupancy, row.gain
    return {
        "kernel": kernel.name,
        "entry": kernel.entry,
        "source": kernel.source or None,
        "arch": kernel.arch,
        "triton": kernel.triton,
        "num_stages": kernel.num_stages,
        "maxnreg": kernel.maxnreg,
        "resources": asdict(kernel.resources),
        "gpu": row.gpu,
        "occupancy": None
        if found is None
        else {
            "launchable": found.launchable,
            "reason": found.reason,
            "over_bytes": found.over_bytes,
            "ctas_per_sm": found.ctas_per_sm,
            "warps_per_sm": found.warps_per_sm,
            "max_warps_per_sm": found.max_warps_per_sm,
            "limits": dict(found.limits),
            "limited_by": list(found.limited_by),
            "unknown": dict(found.unknown),
        },
        "gain": None
        if gain is None
        else {
            "score": round(gain.score, 4),
            "ctas_per_sm": gain.ctas_per_sm,
            "warps_per_sm": gain.warps_per_sm,
            "cuts": [
                {"resource": c.resource, "unit": c.unit, "current": c.current, "at_most": c.at_most} for c in gain.cuts
            ],
            "text": gain.text,
        },
        "unknown": row.unknown,
    }


def _print(result: Audit, console: Console, top: int) -> None:
    from occupancy_cli.answers.audit import BLIND_SPOT, RULE

    cache = result.cache
    where = "each on its own target" if result.gpu is None else f"on {result.gpu.name} ({result.gpu.id})"
    console.print(f"{cache.root}: {counted(len(result.kernels), 'compiled kernel')}, {where}", soft_wrap=True)
    if result.kernels:
        _print_failures(result, console)
        rows = [r for r in result.kernels if r.occupancy is None or r.occupancy.launchable]
        shown = rows[: top or None]
        if shown:
            console.print(RULE, soft_wrap=True)
            _print_table(shown, console)
        if len(shown) < len(rows):
            console.print(f"{len(rows) - len(shown):,} more (--top 0 shows all).")
        spilling = sum(bool(r.kernel.resources.spill_bytes) for r in result.kernels)
        if spilling:
            console.print(f"{spilling:,} of {len(result.kernels):,} spill registers to local memory.")
        for note in (*result.notes, BLIND_SPOT):
            console.print(note, soft_wrap=True)
    _print_set_aside(result, console)


def _print_failures(result: Audit, console: Console) -> None:
    """A line for each kernel that cannot launch, its binaries together: autotuners leave many."""
    failed: dict[tuple[str, str], list[AuditedKernel]] = {}
    for row in result.kernels:
        if row.occupancy is not None and not row.occupancy.launchable:
            failed.setdefault((row.kernel.name, row.gpu), []).append(row)
    if not failed:
        return
    binaries = sum(map(len, failed.values()))
    console.print(f"{binaries:,} of these cannot launch:", style="bold red")
    for (name, gpu), rows in failed.items():
        overs = sorted({r.occupancy.over_bytes for r in rows if r.occupancy is not None and r.occupancy.over_bytes})
        if len(rows) == 1 or not overs:
            first = rows[0].occupancy
            reason = "" if first is None else first.reason
        else:
            span = f"{overs[0]:,}" if len(overs) == 1 else f"{overs[0]:,} to {overs[-1]:,}"
            cap = next(r.occupancy.shared_cap_bytes for r in rows if r.occupancy is not None)
            reason = f"{len(rows)} binaries are {span} bytes of shared memory over the cap of {cap:,}"
        console.print(f"  {name} on {gpu}: {reason}", soft_wrap=True)


def _print_table(rows: list[AuditedKernel], console: Console) -> None:
    wide = console.width >= WIDE
    headers = ["Score", "Kernel", "Warps", "Regs", "Spill B", "Shared B", "CTAs/SM", "Warps/SM", "One CTA more per SM"]
    table = make_table(
        *headers, *(("Limited by", "Stages", "Built for", "Source") if wide else ()), right=(0, 2, 3, 4, 5, 6, 7)
    )
    for row in rows:
        kernel, resources, found = row.kernel, row.kernel.resources, row.occupancy
        if found is None or row.gain is None:
            score, ctas, warps, limits, text = "-", "-", "-", "-", row.unknown
        else:
            score, ctas, text = f"{row.gain.score:.2f}", str(found.ctas_per_sm), row.gain.text
            warps, limits = f"{found.warps_per_sm} of {found.max_warps_per_sm}", ", ".join(found.limited_by)
        built = f"sm{kernel.arch}" + (f", Triton {kernel.triton}" if kernel.triton else "")
        stages = "-" if kernel.num_stages is None else str(kernel.num_stages)
        table.add_row(
            score,
            kernel.name,
            str(resources.num_warps),
            str(resources.registers_per_thread),
            f"{resources.spill_bytes:,}",
            f"{resources.shared_bytes + resources.static_shared_bytes:,}",
            ctas,
            warps,
            text,
            *((limits, stages, built, _short_source(kernel.source) or kernel.entry) if wide else ()),
        )
    console.print(table)


def _short_source(source: str) -> str:
    return "/".join(source.rsplit("/", 2)[-2:])


def _print_set_aside(result: Audit, console: Console) -> None:
    counts = {state: n for state, n in result.cache.counts().items() if n}
    if not counts:
        return
    console.print(f"Set aside: {', '.join(f'{n:,} {state}' for state, n in counts.items())}.")
    for state in counts:
        items = [a for a in result.cache.set_aside if a.state == state]
        if state == "other":
            continue
        for item in items[:20]:
            console.print(f"  {state}: {item.path}: {item.why}", soft_wrap=True)
        if len(items) > 20:
            console.print(f"  {state}: {len(items) - 20:,} more (--format json names all)")
