"""What was read of compiled kernels for the launches of this run and of earlier ones.

A binary serves many launches, and what its CTAs load hangs on their arguments (`plan.launch_loads`). To read its text
for one takes about a tenth of a second. What comes of it follows from the text and the arguments alone, so it is kept
in the result cache by the hash of the text, with nothing that could change meanwhile. Imports numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.compile.kernel_record import MODEL_VERSION
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.typed_json import WrongData, from_json, to_json
from occupancy_cli.model.cta_work import CtaWork
from occupancy_cli.readers.ir_validity import Holds
from occupancy_cli.version import VERSION

MOST_READINGS = 64
"""So many are kept of one text."""


@dataclass(frozen=True)
class Reading:
    """The work of a CTA in every launch for which all of `holds` is so."""

    holds: tuple[Holds, ...]
    work: CtaWork


class KeptReadings:
    """The readings of texts, with those of earlier runs; what is new is written by `flush`."""

    def __init__(self, cache: ResultCache | None) -> None:
        self._cache = cache
        self._new: dict[str, list[Reading]] = {}

    def of(self, text: str) -> list[Reading]:
        """What is known of a text, by earlier runs too."""
        key = _key(text)
        return [*self._kept(key), *self._new.get(key, ())]

    def add(self, text: str, reading: Reading) -> None:
        """Note what was read of a text."""
        self._new.setdefault(_key(text), []).append(reading)

    def flush(self) -> None:
        """Write what is new."""
        if self._cache is not None:
            for key, new in self._new.items():
                kept = [reading for reading in self._kept(key) if reading not in new]
                self._cache.put_derived(key, to_json(tuple([*new, *kept][:MOST_READINGS])))
        self._new.clear()

    def _kept(self, key: str) -> Sequence[Reading]:
        text = self._cache.derived(key) if self._cache is not None else None
        if text is None:
            return ()
        try:
            return from_json(tuple[Reading, ...], text)
        except WrongData:
            return ()


def _key(text: str) -> str:
    return hashlib.sha256(f"{VERSION} {MODEL_VERSION} {text}".encode()).hexdigest()
