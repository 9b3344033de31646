"""How two maps of shared memory differ, buffer by buffer.

Buffers are of one kind when they come from the same source line for the same purpose; where lines have moved, when they
have the same text, value and purpose. Of several of one kind the first is the first, in program order.

A total grows without any buffer growing when two that shared an address no longer do: so each buffer is told with those
whose addresses it takes a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from occupancy_cli.report.explain_parts import Buffer, SharedMemoryMap
from occupancy_cli.report.fit_parts import BufferChange

Pair = tuple[Buffer | None, Buffer | None]


def buffer_changes(before: SharedMemoryMap, after: SharedMemoryMap) -> list[BufferChange]:
    """Every buffer that is not the same on both sides, those that matter for the total first."""
    shared_before, shared_after = _sharing(before.buffers), _sharing(after.buffers)
    found = []
    for one, other in _paired(before.buffers, after.buffers):
        change = _change(one, other, shared_before.get(id(one), []), shared_after.get(id(other), []))
        if change is not None:
            found.append(change)
    return sorted(found, key=lambda c: (-_weight(c), c.value, c.purpose))


def _weight(change: BufferChange) -> int:
    at_peak = change.at_peak_before or change.at_peak_after
    return (abs((change.after_bytes or 0) - (change.before_bytes or 0)) + 1) * (1000 if at_peak else 1)


def _paired(before: Sequence[Buffer], after: Sequence[Buffer]) -> list[Pair]:
    left = sorted(before, key=lambda b: (b.live_from, b.offset))
    right = sorted(after, key=lambda b: (b.live_from, b.offset))
    pairs: list[Pair] = []
    keys: tuple[Callable[[Buffer], Hashable], ...] = (_by_place, _by_text, _by_value)
    for key in keys:
        waiting: dict[Hashable, list[Buffer]] = {}
        for buffer in right:
            waiting.setdefault(key(buffer), []).append(buffer)
        still = []
        for buffer in left:
            same = waiting.get(key(buffer))
            if same and key(buffer) is not None:
                pairs.append((buffer, same.pop(0)))
            else:
                still.append(buffer)
        taken = {id(other) for _, other in pairs}
        left, right = still, [buffer for buffer in right if id(buffer) not in taken]
    return [*pairs, *((buffer, None) for buffer in left), *((None, buffer) for buffer in right)]


def _by_place(buffer: Buffer) -> Hashable:
    source = buffer.source
    if source is None:
        return None
    return (source.file, source.line, tuple(source.called_from), source.text, buffer.purpose)


def _by_text(buffer: Buffer) -> Hashable:
    return None if buffer.source is None else (buffer.source.text, buffer.value, buffer.purpose)


def _by_value(buffer: Buffer) -> Hashable:
    return (buffer.value, buffer.purpose) if buffer.value else None


def _sharing(buffers: Sequence[Buffer]) -> dict[int, list[str]]:
    """By the id of a buffer, the names of those that take some of its addresses at other times."""
    found: dict[int, list[str]] = {}
    for buffer in buffers:
        names = [
            name_of(other)
            for other in buffers
            if other is not buffer
            and buffer.offset < other.offset + other.bytes
            and other.offset < buffer.offset + buffer.bytes
        ]
        found[id(buffer)] = sorted(set(names))
    return found


def name_of(buffer: Buffer) -> str:
    """A buffer in a few words."""
    if buffer.value:
        return buffer.value
    return f"{buffer.purpose} at line {buffer.source.line}" if buffer.source else buffer.purpose


def _what(buffer: Buffer | None) -> str:
    if buffer is None:
        return ""
    copies = f" x {buffer.copies}" if buffer.copies > 1 else ""
    return f"{'x'.join(map(str, buffer.shape))} {buffer.dtype}{copies}".strip()


def _change(
    before: Buffer | None, after: Buffer | None, shared_before: list[str], shared_after: list[str]
) -> BufferChange | None:
    said = _said(before, after, shared_before, shared_after)
    some = before or after
    if not said or some is None:
        return None
    return BufferChange(
        value=some.value,
        purpose=some.purpose,
        before_bytes=before.bytes if before else None,
        after_bytes=after.bytes if after else None,
        before=_what(before),
        after=_what(after),
        at_peak_before=before is not None and before.at_peak,
        at_peak_after=after is not None and after.at_peak,
        shared_before=shared_before,
        shared_after=shared_after,
        said=said,
        source_before=before.source if before else None,
        source_after=after.source if after else None,
    )


def _said(before: Buffer | None, after: Buffer | None, shared_before: list[str], shared_after: list[str]) -> str:
    if before is None or after is None:
        return "gone" if after is None else "new"
    said = []
    if before.bytes != after.bytes:
        said.append(f"{'grew' if after.bytes > before.bytes else 'shrank'} by {abs(after.bytes - before.bytes):,}")
        if before.copies != after.copies:
            said.append(f"{before.copies} copies became {after.copies}")
        elif before.dtype != after.dtype:
            said.append(f"{before.dtype} became {after.dtype}")
    if shared_before and not shared_after:
        said.append("no longer shares an address")
    elif shared_after and not shared_before:
        said.append("now shares an address")
    if before.at_peak != after.at_peak:
        said.append("now at the peak" if after.at_peak else "no longer at the peak")
    return ", ".join(said)
