"""Words that the warps of a launch keep in memory of their own: shared memory by CTA, local memory by lane.

Only so far as addresses depend on them: an index that goes through shared memory, an address that is spilled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from occupancy_cli.readers.warp_values import OPAQUE, U64, Bools, Lanes, Value, merge

MOST_WORDS = 1 << 22


class SharedWords:
    """The words of shared memory of each CTA that is run; what nobody wrote is opaque."""

    def __init__(self, ctas: int, threads: int, size_bytes: int) -> None:
        words = size_bytes // 4
        self.words = words if words * ctas <= MOST_WORDS else 0
        self.cta = np.repeat(np.arange(ctas), threads)
        self.bits = np.zeros((ctas, self.words), dtype=np.uint32)
        self.token = np.zeros((ctas, self.words), dtype=np.uint64)
        self.opaque = np.ones((ctas, self.words), dtype=bool)
        self.align = 32

    def _places(self, low: Value, running: Bools) -> np.ndarray | None:
        """The word each lane's address lies in, or None where that depends on data or is outside."""
        if low is None or low.token is not None or not self.words:
            return None
        places = np.broadcast_to(low.bits >> np.uint32(2), running.shape).astype(np.int64)
        return places if bool(np.all(places[running] < self.words - 4)) else None

    def store(self, low: Value, running: Bools, values: Sequence[Value]) -> None:
        """Write one word a value to consecutive words of each running lane."""
        places = self._places(low, running)
        if places is None:
            self.opaque[:] = True
            return
        for i, value in enumerate(values):
            at = self.cta[running], places[running] + i
            self.opaque[at] = value is None
            if value is not None:
                self.bits[at] = np.broadcast_to(value.bits, running.shape)[running]
                self.token[at] = 0 if value.token is None else np.broadcast_to(value.token, running.shape)[running]
                self.align = min(self.align, value.align)

    def load(self, low: Value, running: Bools, count: int, unlike: Callable[[], U64]) -> list[Value]:
        """Consecutive words of each lane."""
        places = self._places(low, running)
        if places is None:
            return [OPAQUE] * count
        places = np.where(running, places, 0)
        found: list[Value] = []
        for i in range(count):
            at = self.cta, places + i
            opaque = self.opaque[at]
            if bool(opaque[running].all()):
                found.append(OPAQUE)
                continue
            token = np.where(opaque, unlike(), self.token[at]) if opaque.any() else self.token[at]
            held = Lanes(self.bits[at], token if token.any() else None, 0 if opaque.any() else self.align)
            found.append(held)
        return found


class LocalWords:
    """Words of local memory, at addresses that are the same number in every lane (as spills are)."""

    def __init__(self) -> None:
        self.words: dict[int, Value] = {}

    def store(self, low: Value, values: Sequence[Value], mask: Bools | None, unlike: Callable[[], U64]) -> None:
        """Write one word a value from the address on."""
        at = _one_place(low)
        if at is None:
            self.words.clear()
            return
        for i, value in enumerate(values):
            new = value if mask is None else merge(mask, value, self.words.get(at + 4 * i, OPAQUE), unlike)
            self.words[at + 4 * i] = new

    def load(self, low: Value, count: int) -> list[Value]:
        """Consecutive words."""
        at = _one_place(low)
        return [OPAQUE if at is None else self.words.get(at + 4 * i, OPAQUE) for i in range(count)]


def _one_place(low: Value) -> int | None:
    if low is None or low.token is not None:
        return None
    first = int(low.bits.flat[0])
    return first if bool(np.all(low.bits == first)) else None
