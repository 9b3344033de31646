"""Where one kernel's shared memory and registers go, as it is kept beside its record and as `explain` reads it.

Made in the worker from what the compile leaves (`explaining`), kept as text until it is wanted: other commands pay
nothing for it. Apart from `kernel_record`, which they all import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from occupancy_cli.readers.register_life import RegisterUse
from occupancy_cli.readers.shared_map import SharedMap


@dataclass(frozen=True)
class KernelExplanation:
    """`registers` is None where the compile ended with shared memory or they could not be read: `note` says why.

    `texts` has each source line that is named, by `file:line`.
    """

    shared_map: SharedMap
    registers: RegisterUse | None
    texts: Mapping[str, str]
    note: str = ""
