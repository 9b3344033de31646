"""GPUs on a terminal: the list of all, or each that was named with the source of every value.

A value marked * is assumed (no source that can be opened states it), one marked ? is disputed between sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import make_table

if TYPE_CHECKING:
    from occupancy_cli.report.device_parts import GpuFacts, SourcedValue, Value
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The GPUs of a Report: one by one with their sources (`view.everything`), or in a list."""
    if view.everything:
        for gpu in report.gpus:
            yield from _one(gpu)
        return
    columns = [column for column in _COLUMNS if console.width >= column.from_width]
    table = make_table(*(c.title for c in columns), right=tuple(i for i, c in enumerate(columns) if c.right))
    for gpu in report.gpus:
        table.add_row(*(column.cell(gpu) for column in columns))
    yield table
    yield Text(
        f"{len(report.gpus)} GPUs. * assumed, ? disputed between sources: `occupancy gpus NAME` has the sources. "
        "FP16 is dense. sm120 or 12.0 in the place of a name: the limits of a compute capability alone."
    )


def _number(gpu: GpuFacts, name: str) -> float | None:
    entry = gpu.limits.get(name) or gpu.values.get(name)
    return entry.value if entry is not None and isinstance(entry.value, (int, float)) else None


def _amount(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _mark(gpu: GpuFacts, name: str) -> str:
    entry = gpu.values.get(name)
    if entry is None:
        return ""
    return ("*" if entry.status == "assumed" else "") + ("?" if entry.disputed else "")


def _marked(name: str, unit: float = 1) -> Callable[[GpuFacts], str]:
    def cell(gpu: GpuFacts) -> str:
        value = _number(gpu, name)
        return _amount(value / unit if value and unit != 1 else value) + _mark(gpu, name)

    return cell


@dataclass(frozen=True)
class _Column:
    """A column of the list; left out on a terminal narrower than `from_width`."""

    title: str
    cell: Callable[[GpuFacts], str]
    from_width: int = 0
    right: bool = True


_COLUMNS = (
    _Column("Name for --gpu", lambda gpu: gpu.id, right=False),
    _Column("Product", lambda gpu: gpu.name, 100, right=False),
    _Column("CC", lambda gpu: gpu.compute_capability, right=False),
    _Column("SMs", _marked("sm_count")),
    _Column("Shared/CTA", lambda gpu: _amount(_number(gpu, "shared_per_cta_optin_bytes"))),
    _Column("Shared/SM", lambda gpu: _amount(_number(gpu, "shared_per_sm_bytes")), 160),
    _Column("Memory, GB", _marked("memory_gb"), 120),
    _Column("GB/s", _marked("memory_bandwidth_gbps")),
    _Column("L2, MiB", _marked("l2_bytes", 2**20), 150),
    _Column("FP16 TFLOPS", _marked("fp16_dense_tflops"), 150),
    _Column("Clock, MHz", _marked("boost_clock_mhz"), 160),
    _Column("Also", lambda gpu: ", ".join(gpu.aliases[:3]), 180, right=False),
)


def _one(gpu: GpuFacts) -> Iterator[RenderableType]:
    yield Text(f"{gpu.name} ({gpu.id}), CC {gpu.compute_capability}")
    if gpu.limits_only:
        yield Text("Limits only: occupancy can be told, waves cannot, as the number of SMs is not known.")
    if gpu.aliases:
        yield Text(f"Also: {', '.join(gpu.aliases)}")
    for alias, note in gpu.alias_notes.items():
        yield Text(f"{alias}: {note}")
    if gpu.tensor_formats_absent:
        yield Text(f"Without {', '.join(gpu.tensor_formats_absent)} tensor cores")
    sources: dict[str, int] = {}
    remarks: list[str] = []
    table = make_table("Value", "", "Status", "Sources", right=(1,))
    for name, entry in (*gpu.values.items(), *gpu.limits.items()):
        numbers = [str(sources.setdefault(s, len(sources) + 1)) for s in entry.sources]
        table.add_row(name, written(entry.value), entry.status + ("?" if entry.disputed else ""), " ".join(numbers))
        if remark := _remarks(entry, sources):
            remarks.append(f"{name}: {remark}")
    yield table
    yield from map(Text, remarks)
    yield Text("")
    yield from (Text(f"- {note}") for note in gpu.notes)
    yield from (Text(f"[{number}] {source}") for source, number in sources.items())
    if gpu.path:
        yield Text(f"Profile: {gpu.path}")


def written(value: Value) -> str:
    """A value of a profile or a device."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(f"{v:,}" for v in value)
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _remarks(entry: SourcedValue, sources: dict[str, int]) -> str:
    """Note, other published values with their sources' numbers, and why this one was chosen."""
    parts = [entry.note] if entry.note else []
    for other in entry.disputed:
        numbers = " ".join(f"[{sources.setdefault(s, len(sources) + 1)}]" for s in other.sources)
        told = f"{written(other.value)} in {numbers}" if numbers else f"{written(other.value)} elsewhere"
        parts.append(f"{told} ({other.note})" if other.note else told)
    if entry.chosen_because:
        parts.append(f"chosen: {entry.chosen_because}")
    return "; ".join(parts)
