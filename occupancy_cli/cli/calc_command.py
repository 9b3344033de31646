"""`occupancy calc`: the occupancy of one kernel from its numbers, or of many from JSON Lines.

One kernel: the limits table, what more CTAs per SM take of each resource, and on request a chart over one resource.
Many kernels: see `occupancy_cli.cli.calc_rows`. Needs neither Triton nor a GPU.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli.console import Format, counted, make_console, make_table
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import DEFAULT_GPU

if TYPE_CHECKING:
    from rich.console import Console

    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.model.occupancy import Change, NextCta, Occupancy, Plateau, Slack

SCHEMA = "occupancy/calc/1"
_CLIFF_ROWS = 5
_ROWS_PER_WRITE = 4096
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


# An argument of the model -> the option that gives it.
_OPTIONS = {
    "threads_per_cta": "--threads",
    "registers_per_thread": "--regs",
    "shared_bytes": "--shared",
    "static_shared_bytes": "--static-shared",
    "carveout_bytes": "--carveout",
    "num_ctas": "--num-ctas",
    "tmem_columns": "--tmem",
}


class Sweep(str, enum.Enum):
    """What `--sweep` goes over; the model's name of it."""

    regs = "regs"
    shared = "shared"
    warps = "warps"

    @property
    def resource(self) -> str:
        return "registers" if self is Sweep.regs else self.value


def calc(
    gpu: Annotated[
        str, typer.Option("--gpu", help="GPU: a product (5090, h100), a compute capability (sm120) or local.")
    ] = DEFAULT_GPU,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads per CTA, those of warp specialization included.")
    ] = None,
    num_warps: Annotated[
        int | None, typer.Option("--num-warps", help="Warps per CTA, in the place of threads.")
    ] = None,
    regs: Annotated[
        int | None, typer.Option("--regs", help="Registers per thread. Left out: not known, and no limit by them.")
    ] = None,
    shared: Annotated[
        int | None, typer.Option("--shared", help="Dynamic shared memory per CTA in bytes (Triton's metadata.shared).")
    ] = None,
    static_shared: Annotated[
        int, typer.Option("--static-shared", help="Static shared memory per CTA in bytes, without the system's 1 KB.")
    ] = 0,
    carveout: Annotated[
        int | None, typer.Option("--carveout", help="Shared part of the L1 array in bytes. Left out: the largest.")
    ] = None,
    num_ctas: Annotated[int, typer.Option("--num-ctas", help="CTAs per cluster.")] = 1,
    tmem: Annotated[int, typer.Option("--tmem", help="Tensor memory columns per CTA (CC 10.x and 11.0).")] = 0,
    sweep: Annotated[Sweep | None, typer.Option("--sweep", help="Chart the occupancy over one resource.")] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Answer every row of a JSON Lines file (- for standard input) as JSON Lines.",
        ),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="table, or json on standard output.")
    ] = Format.table,
    hw_profiles: Annotated[
        list[Path] | None,
        typer.Option("--hw-profiles", metavar="DIR", help="Folder of GPU profiles that adds to the shipped ones."),
    ] = None,
) -> None:
    """Occupancy from threads, registers and shared memory: every limit, what binds, what the next CTA takes.

    With --input FILE, one answer a row: keys threads (or num_warps), regs, shared; a key that a row leaves out takes
    the option's value. A row that cannot be answered gives a row with "error", and the exit code is then 2.
    """
    from occupancy_cli.device.detect import resolve_gpu

    folders = hw_profiles or []
    if threads is not None and num_warps is not None:
        raise InputError("--threads and --num-warps are given both", where="--num-warps", hint="One of them is enough.")
    if num_warps is not None:
        if num_warps < 1:
            raise InputError(f"{num_warps} is not possible: it is at least 1", where="--num-warps")
        threads = 32 * num_warps
    profile = resolve_gpu(gpu, folders)
    kernel: dict[str, Any] = {
        "threads_per_cta": threads,
        "registers_per_thread": regs,
        "shared_bytes": shared,
        "static_shared_bytes": static_shared,
        "carveout_bytes": carveout,
        "num_ctas": num_ctas,
        "tmem_columns": tmem,
    }
    if input_file is not None:
        if sweep is not None:
            raise InputError("a chart is of one kernel, and --input gives many", where="--sweep")
        _answer_file(input_file, {k: v for k, v in kernel.items() if v is not None}, profile, folders)
        return
    for option, name in (("--threads", "threads_per_cta"), ("--shared", "shared_bytes")):
        if kernel[name] is None:
            raise InputError(
                "is missing", where=option, hint="Such as: occupancy calc --threads 128 --regs 168 --shared 61568"
            )
    _answer_one(profile, kernel, sweep, output_format)


def _answer_file(name: str, defaults: dict[str, Any], gpu: GpuProfile, folders: list[Path]) -> None:
    from occupancy_cli.cli.calc_rows import Count, answer_rows
    from occupancy_cli.device.detect import resolve_gpu

    count = Count()

    def answer(lines: Iterable[str]) -> None:
        answers = answer_rows(lines, defaults, gpu, lambda other: resolve_gpu(other, folders), count)
        try:
            # In blocks: a write for every row would cost as much as the row.
            while block := list(islice(answers, _ROWS_PER_WRITE)):
                sys.stdout.write("\n".join(block) + "\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} is not UTF-8 text: {error}", where="--input") from None

    if name == "-":
        answer(sys.stdin)
    else:
        try:
            file = Path(name).open(encoding="utf-8-sig")  # noqa: SIM115 - entered below, so that only opening is caught here
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror or error}", where="--input") from None
        with file:
            answer(file)
    if count.errors:
        print(f"{count.errors:,} of {counted(count.rows, 'row')} could not be answered", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2)


def _answer_one(gpu: GpuProfile, kernel: dict[str, Any], sweep: Sweep | None, output_format: Format) -> None:
    from occupancy_cli.model import occupancy as model

    try:
        found = model.occupancy(gpu, **kernel)
    except InputError as error:
        raise InputError(
            error.problem, where=_OPTIONS.get(error.where, error.where), hint=error.hint, **error.data
        ) from None
    cliffs = model.cliffs(gpu, **kernel)
    plateaus = model.sweep(gpu, sweep.resource, **kernel) if sweep else ()
    if output_format is Format.json:
        import json

        print(json.dumps(as_json(gpu, found, cliffs, sweep, plateaus), indent=2, ensure_ascii=False))  # noqa: T201
        return
    console = make_console()
    for line in headline(gpu, found):
        console.print(line)
    console.print()
    _print_limits(console, gpu, found)
    _print_cliffs(console, found, cliffs)
    if sweep:
        _print_sweep(console, found, sweep, plateaus)


def as_json(
    gpu: GpuProfile,
    found: Occupancy,
    cliffs: tuple[NextCta, ...],
    sweep: Sweep | None = None,
    plateaus: tuple[Plateau, ...] = (),
) -> dict[str, Any]:
    """The answer for one kernel, schema `occupancy/calc/1`: sizes in bytes, limits in CTAs per SM, null for unknown."""
    from dataclasses import asdict

    answer = {
        "schema": SCHEMA,
        "gpu": {
            "id": gpu.id,
            "name": gpu.name,
            "compute_capability": gpu.compute_capability,
            "sm_count": gpu.sm_count,
            "sm_count_status": gpu.status("sm_count"),
        },
        "occupancy": asdict(found),
        "cliffs": [asdict(level) for level in cliffs],
    }
    if sweep:
        answer["sweep"] = {"over": sweep.resource, "ranges": [asdict(p) for p in plateaus]}
    return answer


def headline(gpu: GpuProfile, found: Occupancy) -> list[str]:
    """GPU, kernel, answer: one line each, and one for everything that is not known."""
    sms = f"{gpu.sm_count} SMs" if gpu.sm_count else "limits only, so no waves"
    if gpu.sm_count and gpu.status("sm_count") == "assumed":
        sms += " (assumed)"
    registers = "registers not known"
    if found.registers_per_thread is not None:
        registers = counted(found.registers_per_thread, "register") + " per thread"
    shared = counted(found.shared_bytes, "byte") + " of shared memory"
    if found.static_shared_bytes:
        shared += f" and {found.static_shared_bytes:,} static"
    parts = [
        f"{counted(found.threads_per_cta, 'thread')} ({counted(found.warps_per_cta, 'warp')})",
        registers,
        shared,
    ]
    if found.tmem_columns:
        parts.append(f"{found.tmem_columns} columns of tensor memory")
    if found.num_ctas > 1:
        parts.append(f"clusters of {found.num_ctas} CTAs")
    lines = [f"{gpu.name}, CC {gpu.compute_capability}, {sms}", ", ".join(parts), ""]
    if found.launchable:
        bound = "at most " if not found.exact else ""
        binding = " and ".join(_NAMES[name] for name in found.limited_by)
        lines.append(
            f"{bound}{counted(found.ctas_per_sm, 'CTA')} per SM: {found.warps_per_sm} of {found.max_warps_per_sm} "
            f"warps, {found.percent:.1f} %, limited by {binding}"
        )
    else:
        lines.append(f"cannot launch: {found.reason}")
    lines.extend(f"unknown: {text}" for text in found.unknown.values())
    return lines


def _print_limits(console: Console, gpu: GpuProfile, found: Occupancy) -> None:
    limits = gpu.limits
    rows: dict[str, tuple[str, str]] = {}
    parts = [f"{found.shared_bytes:,}"]
    if found.static_shared_bytes:
        parts.append(f"{found.static_shared_bytes:,} static")
    if limits.shared_reserved_per_cta_bytes:
        parts.append(f"{limits.shared_reserved_per_cta_bytes:,} system")
    rounded = f", in steps of {limits.shared_alloc_granularity_bytes}"
    exact = found.shared_bytes + found.static_shared_bytes + limits.shared_reserved_per_cta_bytes
    detail = " + ".join(parts) + ("" if exact == found.shared_allocated_bytes else rounded)
    rows["shared"] = (f"{found.shared_allocated_bytes:,} ({detail})", f"{found.carveout_bytes:,} bytes")
    if found.registers_allocated_per_cta is None:
        taken = "not known"
    else:
        per_warp = found.registers_allocated_per_cta // found.warps_per_cta
        taken = f"{found.registers_allocated_per_cta:,} ({counted(found.warps_per_cta, 'warp')} x {per_warp:,})"
    quarter = limits.registers_per_sm // limits.sm_subpartitions
    rows["registers"] = (taken, f"{limits.registers_per_sm:,} ({limits.sm_subpartitions} x {quarter:,})")
    rows["warps"] = (f"{found.warps_per_cta}", f"{limits.max_warps_per_sm}")
    rows["ctas"] = ("1", f"{limits.max_ctas_per_sm}")
    rows["tmem"] = (f"{found.tmem_columns} columns", f"{limits.tmem_columns_per_sm} columns")
    rows["cluster"] = (f"cluster of {found.num_ctas}", "not known" if limits.cluster_supported else "no clusters")
    table = make_table("Limit", "One CTA takes", "The SM has", "CTAs/SM", "", right=(3,))
    for name, limit in found.limits.items():
        without = "unknown" if name in found.unknown else "no limit"
        shown = without if limit is None else f"{limit}"
        table.add_row(_NAMES[name], *rows[name], shown, "binds" if name in found.limited_by else "")
    console.print(table)


def _print_cliffs(console: Console, found: Occupancy, cliffs: tuple[NextCta, ...]) -> None:
    """The level of now, with the room left in it, and the next ones, with what they take."""
    shown = [c for c in cliffs if c.ctas > found.ctas_per_sm][:_CLIFF_ROWS]
    resources = [change.resource for change in cliffs[0]]
    titles = {
        "shared": "Shared bytes/CTA",
        "registers": "Regs/thread",
        "warps": "Warps/CTA",
        "tmem": "TMEM columns/CTA",
        "barriers": "Barriers/CTA",
    }
    table = make_table(
        "CTAs/SM", "Warps/SM", "Occupancy", *(titles[r] for r in resources),
        title="What more CTAs take of each resource, the others as now", right=tuple(range(3 + len(resources))),
    )  # fmt: skip
    if found.launchable:
        table.add_row(
            f"now {found.ctas_per_sm}",
            f"{found.warps_per_sm}",
            f"{found.percent:.1f} %",
            *(_room(found.slack[r]) for r in resources),
        )
    for level in shown:
        warps = level.ctas * found.warps_per_cta
        known = warps <= found.max_warps_per_sm
        table.add_row(
            f"{level.ctas}",
            f"{warps}" if known else "",
            f"{100 * warps / found.max_warps_per_sm:.1f} %" if known else "",
            *(_cost(level[r]) for r in resources),
        )
    console.print(table)
    if not shown:
        console.print(f"{found.ctas_per_sm} CTAs is what an SM holds at most.")
        return
    room = "now: (+) what may be added before a CTA is lost; " if found.launchable else ""
    together = ", and fewer warps also make up for registers" if any(len(level.binding) > 1 for level in shown) else ""
    console.print(f"{room}below: at most so much, (-) less than now; a level takes its whole row{together}.")


def _room(slack: Slack) -> str:
    """What a resource may grow by before a CTA is lost."""
    return f"{slack.current:,} (+{slack.more:,})"


def _cost(change: Change) -> str:
    if change.at_most is None:
        return "never"
    if change.less:
        return f"<= {change.at_most:,} (-{change.less:,})"
    return "as now"


def _print_sweep(console: Console, found: Occupancy, sweep: Sweep, plateaus: tuple[Plateau, ...]) -> None:
    now = {
        Sweep.regs: found.registers_per_thread,
        Sweep.shared: found.shared_bytes,
        Sweep.warps: found.warps_per_cta,
    }[sweep]
    titles = {Sweep.regs: "Regs/thread", Sweep.shared: "Shared bytes/CTA", Sweep.warps: "Warps/CTA"}
    block = "█" if (console.encoding or "").lower().startswith("utf") else "#"
    table = make_table(titles[sweep], "CTAs/SM", "Warps/SM", "Occupancy", "", "", right=(0, 1, 2, 3))
    for plateau in plateaus:
        span = f"{plateau.least:,}" if plateau.least == plateau.most else f"{plateau.least:,} to {plateau.most:,}"
        here = now is not None and plateau.least <= now <= plateau.most
        bar = block * max(round(_BAR * plateau.percent / 100), 1 if plateau.ctas_per_sm else 0)
        table.add_row(
            span,
            f"{plateau.ctas_per_sm}",
            f"{plateau.warps_per_sm}",
            f"{plateau.percent:.1f} %" if plateau.ctas_per_sm else "cannot launch",
            bar,
            "now" if here else "",
        )
    console.print(table)
