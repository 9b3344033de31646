"""A kernel's explanation as parts of a Report: files as a reader names them, values by the source's own names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_cli.answers.assigned_names import assigned_name
from occupancy_cli.report.explain_parts import (
    Buffer,
    OperationRange,
    RegisterHolder,
    RegisterLine,
    RegisterUse,
    SharedMemoryMap,
    SourceText,
    SpillLine,
)

if TYPE_CHECKING:
    from occupancy_cli.compile.kernel_explanation import KernelExplanation
    from occupancy_cli.model.resources import KernelResources
    from occupancy_cli.readers.shared_map import SharedMap
    from occupancy_cli.readers.ttgir import SourceLine


def shared_map_part(read: SharedMap, texts: Mapping[str, str]) -> SharedMemoryMap:
    """The map with its source lines; `texts` by `file:line`."""
    peak = set(map(id, read.peak))
    held = sum(b.bytes for b in read.peak)
    return SharedMemoryMap(
        total_bytes=read.total_bytes,
        operations=read.operations,
        peak_at=read.peak_at,
        peak_unused_bytes=max(0, read.total_bytes - held),
        loops=[OperationRange(first=first, last=last) for first, last in read.loops],
        buffers=[
            Buffer(
                offset=b.offset,
                bytes=b.bytes,
                bytes_exact=b.bytes_exact,
                shape=list(b.shape),
                dtype=b.dtype,
                copies=b.copies,
                purpose=b.purpose,
                value=b.value or assigned_name(b.source, texts),
                live_from=b.live_from,
                live_to=b.live_to,
                at_peak=id(b) in peak,
                source=source_part(b.source, texts),
            )
            for b in read.buffers
        ],
    )


def register_use_part(read: KernelExplanation, resources: KernelResources) -> RegisterUse | None:
    """Registers by line; None where they were not read."""
    use, texts = read.registers, read.texts
    if use is None or resources.registers_per_thread is None:
        return None
    return RegisterUse(
        allocated=resources.registers_per_thread,
        peak_live=use.peak,
        spill_bytes=resources.spill_bytes or 0,
        peak_opcode=use.peak_opcode,
        peak_in_loop=use.peak_in_loop,
        peak_source=source_part(use.peak_source, texts),
        holders=[
            RegisterHolder(
                registers=h.registers,
                value=assigned_name(h.source, texts),
                written_by=h.written_by,
                source=source_part(h.source, texts),
            )
            for h in use.holders
        ],
        lines=[RegisterLine(registers=each.registers, source=source_part(each.source, texts)) for each in use.lines],
        spills=[
            SpillLine(
                stores=s.stores,
                loads=s.loads,
                bytes=s.bytes,
                in_loop=s.in_loop,
                source=source_part(s.source, texts),
            )
            for s in use.spills
        ],
    )


def source_part(lines: tuple[SourceLine, ...], texts: Mapping[str, str]) -> SourceText | None:
    """The innermost line, and those that it is called from; None where the compiler names no file."""
    if not lines or not lines[0].file:
        return None
    first = lines[0]
    return SourceText(
        file=_shown(first.file),
        line=first.line,
        text=texts.get(f"{first.file}:{first.line}", ""),
        called_from=[f"{_shown(each.file)}:{each.line}" for each in lines[1:]],
    )


def _shown(file: str) -> str:
    """A file as a person would type it: from here where it lies below."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
