"""What of a kernel weighs most in a limit that it breaks, in a clause: the buffer of shared memory, or the source line.

    most of it is 98,304 bytes for `a` (pipelined load, 3 copies of 128x128 bf16), mm.py:14: a = tl.load(a_ptrs)

Read from the same explanation as `explain` shows whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from occupancy_cli.answers.assigned_names import assigned_name
from occupancy_cli.plan.check_selection import shown_path

if TYPE_CHECKING:
    from occupancy_cli.compile.kernel_explanation import KernelExplanation
    from occupancy_cli.readers.ttgir import SourceLine

OF_SHARED_MEMORY = frozenset({"shared-memory-cap", "max_shared_bytes"})
OF_REGISTERS = frozenset({"max_registers_per_thread", "max_spill_bytes"})


def weighs_most(rule: str, read: KernelExplanation) -> str:
    """The clause for a rule; "" for a rule that has none, or where the compile does not tell."""
    if rule in OF_SHARED_MEMORY:
        return _buffer(read)
    use = read.registers
    if use is None:
        return ""
    if rule == "max_spill_bytes" and use.spills:
        spill = max(use.spills, key=lambda s: (s.in_loop, s.bytes))
        where = place_text(spill.source, read.texts)
        return f"{spill.bytes:,} bytes are spilled{' in a loop' if spill.in_loop else ''} at {where}" if where else ""
    where = place_text(use.peak_source, read.texts)
    return f"{use.peak:,} live at once at {where}" if where else ""


def _buffer(read: KernelExplanation) -> str:
    at_peak = read.shared_map.peak
    if not at_peak:
        return ""
    heaviest = max(at_peak, key=lambda b: b.bytes)
    name = heaviest.value or assigned_name(heaviest.source, read.texts)
    shape = "x".join(map(str, heaviest.shape))
    what = f"{heaviest.copies} copies of {shape}" if heaviest.copies > 1 else shape
    about = ", ".join(part for part in (heaviest.purpose, f"{what} {heaviest.dtype}".strip()) if part)
    share = "most of it is" if heaviest.bytes * 2 > read.shared_map.total_bytes else "the largest part is"
    where = place_text(heaviest.source, read.texts)
    of = f" for `{name}`" if name else ""
    return f"{share} {heaviest.bytes:,} bytes{of} ({about}){f', {where}' if where else ''}"


def place_text(lines: tuple[SourceLine, ...], texts: Mapping[str, str]) -> str:
    """`mm.py:14: a = tl.load(a_ptrs)`, the innermost of the lines; "" where the compiler names no file."""
    if not lines or not lines[0].file:
        return ""
    first = lines[0]
    text = texts.get(f"{first.file}:{first.line}", "").strip()
    return f"{shown_path(first.file)}:{first.line}{f': {text}' if text else ''}"
