"""`occupancy gpus`: the GPUs that have a profile, one of them with its sources, and those of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli.console import Format, counted, make_console, make_table
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.device.detect import DeviceCheck
    from occupancy_cli.gpu.profiles import GpuProfile, Provenance

SCHEMA = "occupancy/gpus/1"


def gpus(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[show] [NAME]...", help="Show these GPUs with sources; none: list all."),
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="Read this machine's GPUs and compare them with their profiles.")
    ] = False,
    output_format: Annotated[
        Format, typer.Option("--format", help="table, or json on standard output.")
    ] = Format.table,
    hw_profiles: Annotated[
        list[Path] | None,
        typer.Option("--hw-profiles", metavar="DIR", help="Folder of GPU profiles that adds to the shipped ones."),
    ] = None,
) -> None:
    """List the known GPUs, show one with the source of every value, or check this machine's against their profiles.

    A value marked * is assumed (no source that can be opened states it), one marked ? is disputed between sources.
    --detect exits with 1 when a device and its profile differ, and with 2 when there is no device or no profile.
    """
    folders = hw_profiles or []
    wanted = [name for i, name in enumerate(names or []) if not (i == 0 and name == "show")]
    if detect:
        if names:
            raise InputError("--detect takes no names", where="gpus", hint="occupancy gpus --detect")
        _detect(folders, output_format)
    elif wanted:
        _show(wanted, folders, output_format)
    elif names:
        raise InputError("no GPU is named", where="gpus show", hint="Such as: occupancy gpus show h100")
    else:
        _list(folders, output_format)


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


def _mark(gpu: GpuProfile, field: str) -> str:
    entry = gpu.provenance.get(field)
    if entry is None:
        return ""
    return ("*" if entry.status == "assumed" else "") + ("?" if entry.disputed else "")


def _amount(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _list(folders: list[Path], output_format: Format) -> None:
    from occupancy_cli.gpu.profiles import list_gpus

    found = list_gpus(folders)
    if output_format is Format.json:
        _print_json({"schema": SCHEMA, "gpus": [as_json(gpu) for gpu in found]})
        return
    console = make_console()
    columns = [column for column in _COLUMNS if console.width >= column.from_width]
    table = make_table(*(c.title for c in columns), right=tuple(i for i, c in enumerate(columns) if c.right))
    for gpu in found:
        table.add_row(*(column.cell(gpu) for column in columns))
    console.print(table)
    console.print(
        f"{len(found)} GPUs. * assumed, ? disputed between sources: `occupancy gpus NAME` has the sources. "
        "FP16 is dense. sm120 or 12.0 in the place of a name: the limits of a compute capability alone."
    )


def _marked(field: str) -> Callable[[GpuProfile], str]:
    return lambda gpu: _amount(getattr(gpu, field)) + _mark(gpu, field)


@dataclass(frozen=True)
class _Column:
    """A column of the list; left out on a terminal narrower than `from_width`."""

    title: str
    cell: Callable[[GpuProfile], str]
    from_width: int = 0
    right: bool = True


_COLUMNS = (
    _Column("Name for --gpu", lambda gpu: gpu.id, right=False),
    _Column("Product", lambda gpu: gpu.name, 100, right=False),
    _Column("CC", lambda gpu: gpu.compute_capability, right=False),
    _Column("SMs", _marked("sm_count")),
    _Column("Shared/CTA", lambda gpu: f"{gpu.limits.shared_per_cta_optin_bytes:,}"),
    _Column("Shared/SM", lambda gpu: f"{gpu.limits.shared_per_sm_bytes:,}", 160),
    _Column("Memory, GB", _marked("memory_gb"), 120),
    _Column("GB/s", _marked("memory_bandwidth_gbps")),
    _Column(
        "L2, MiB", lambda gpu: _amount(gpu.l2_bytes / 2**20 if gpu.l2_bytes else None) + _mark(gpu, "l2_bytes"), 150
    ),
    _Column("FP16 TFLOPS", _marked("fp16_dense_tflops"), 150),
    _Column("Clock, MHz", _marked("boost_clock_mhz"), 160),
    _Column("Also", lambda gpu: ", ".join(gpu.aliases[:3]), 180, right=False),
)


def as_json(gpu: GpuProfile) -> dict[str, Any]:
    """A profile with the provenance of every value: `{"values": {name: {value, status, sources, ...}}, ...}`."""
    return {
        "id": gpu.id,
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "alias_notes": dict(gpu.alias_notes),
        "compute_capability": gpu.compute_capability,
        "limits_only": gpu.limits_only,
        "values": _values(gpu, limits=False),
        "limits": _values(gpu, limits=True),
        "tensor_formats_absent": list(gpu.tensor_formats_absent),
        "notes": [*gpu.notes, *gpu.limits.notes],
    }


def _values(gpu: GpuProfile, *, limits: bool) -> dict[str, Any]:
    from dataclasses import asdict, fields

    owner = gpu.limits if limits else gpu
    values = {}
    for field in fields(owner):
        if field.name in gpu.provenance and not (limits and field.name == "compute_capability"):
            entry = asdict(gpu.provenance[field.name])
            values[field.name] = {"value": getattr(owner, field.name), **{k: v for k, v in entry.items() if v}}
    return values


def _show(names: list[str], folders: list[Path], output_format: Format) -> None:
    from occupancy_cli.device.detect import resolve_gpu

    found = [resolve_gpu(name, folders) for name in names]
    if output_format is Format.json:
        _print_json({"schema": SCHEMA, "gpus": [as_json(gpu) for gpu in found]})
        return
    for gpu in found:
        _show_one(gpu)


def _show_one(gpu: GpuProfile) -> None:
    from dataclasses import fields

    console = make_console()
    console.print(f"{gpu.name} ({gpu.id}), CC {gpu.compute_capability}")
    if gpu.limits_only:
        console.print("Limits only: occupancy can be told, waves cannot, as the number of SMs is not known.")
    if gpu.aliases:
        console.print(f"Also: {', '.join(gpu.aliases)}")
    for alias, note in gpu.alias_notes.items():
        console.print(f"{alias}: {note}")
    if gpu.tensor_formats_absent:
        console.print(f"Without {', '.join(gpu.tensor_formats_absent)} tensor cores")
    sources: dict[str, int] = {}
    remarks: list[str] = []
    table = make_table("Value", "", "Status", "Sources", right=(1,))
    shown = [(f.name, getattr(gpu, f.name)) for f in fields(gpu) if f.name in gpu.provenance]
    shown += [(f.name, getattr(gpu.limits, f.name)) for f in fields(gpu.limits) if f.name != "compute_capability"]
    for name, value in shown:
        entry = gpu.provenance.get(name)
        if entry is None:
            continue
        numbers = [str(sources.setdefault(s, len(sources) + 1)) for s in entry.sources]
        table.add_row(name, _plain(value), entry.status + ("?" if entry.disputed else ""), " ".join(numbers))
        if remark := _remarks(entry, sources):
            remarks.append(f"{name}: {remark}")
    console.print(table)
    for remark in remarks:
        console.print(remark, soft_wrap=True)
    console.print()
    for note in (*gpu.notes, *gpu.limits.notes):
        console.print(f"- {note}", soft_wrap=True)
    for source, number in sources.items():
        console.print(f"[{number}] {source}", soft_wrap=True)
    if gpu.path:
        console.print(f"Profile: {gpu.path}", soft_wrap=True)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(f"{v:,}" for v in value)
    if isinstance(value, (int, float)):
        return f"{value:,}"
    return str(value)


def _remarks(entry: Provenance, sources: dict[str, int]) -> str:
    """Note, other published values with their sources' numbers, and why this one was chosen."""
    parts = [entry.note] if entry.note else []
    for other in entry.disputed:
        numbers = " ".join(f"[{sources.setdefault(s, len(sources) + 1)}]" for s in other.sources)
        told = f"{_plain(other.value)} in {numbers}" if numbers else f"{_plain(other.value)} elsewhere"
        parts.append(f"{told} ({other.note})" if other.note else told)
    if entry.chosen_because:
        parts.append(f"chosen: {entry.chosen_because}")
    return "; ".join(parts)


def _detect(folders: list[Path], output_format: Format) -> None:
    from occupancy_cli.device.detect import check_device, detect_devices
    from occupancy_cli.gpu.profiles import list_gpus

    known = list_gpus(folders)
    checks = [check_device(device, known) for device in detect_devices()]
    if output_format is Format.json:
        _print_json({"schema": SCHEMA, "devices": [check_as_json(check) for check in checks]})
    else:
        _print_checks(checks)
    if not checks or any(check.profile is None for check in checks):
        raise typer.Exit(2)
    if any(check.differences for check in checks):
        raise typer.Exit(1)


def check_as_json(check: DeviceCheck) -> dict[str, Any]:
    """A device, the id of its profile (null: none fits) and every field compared."""
    from dataclasses import asdict

    return {
        "index": check.device.index,
        "name": check.device.name,
        "compute_capability": check.device.compute_capability,
        "profile": check.profile.id if check.profile else None,
        "fields": [asdict(field) for field in check.fields],
        "differences": [field.field for field in check.differences],
    }


def _print_checks(checks: list[DeviceCheck]) -> None:
    console = make_console()
    if not checks:
        console.print("The driver shows no GPU.")
    for check in checks:
        device = check.device
        fits = f"profile {check.profile.id}" if check.profile else "no profile has this name"
        console.print(f"GPU {device.index}: {device.name}, CC {device.compute_capability}: {fits}")
        table = make_table("Value", "Device", "Profile", "", "Remarks", right=(1, 2))
        for field in check.fields:
            profile = "not stated" if field.profile is None else _plain(field.profile)
            verdict = "" if field.profile is None else "equal" if field.equal else "differs"
            table.add_row(field.field, _plain(field.device), profile, verdict, field.remark)
        console.print(table)
        if check.profile is not None:
            differing = len(check.differences)
            console.print(
                f"{counted(differing, 'value')} {'differs' if differing == 1 else 'differ'}"
                if differing
                else "Every value that both state is equal."
            )
