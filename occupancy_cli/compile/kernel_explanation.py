"""Where one kernel's shared memory, registers and time go, as it is kept beside its record and as `explain` reads it.

Made in the worker from what the compile leaves (`explaining`), kept as text until it is wanted: other commands pay
nothing for it. Apart from `kernel_record`, which they all import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from occupancy_cli.compile.packed_text import unpacked
from occupancy_cli.readers.kernel_parameters import ParameterPlace
from occupancy_cli.readers.register_life import RegisterUse
from occupancy_cli.readers.shared_map import SharedMap


@dataclass(frozen=True)
class KernelCode:
    """A kernel's machine code, for its accesses and its time to be followed with the values of a launch.

    `packed` is the text of `nvdisasm -c -hex -gi`, `packed_ir` the TTGIR, both as `packed_text` packs them.
    `arguments` are the names of its parameters by their number in `places`; `unmarked` has, by `file:line`, those that
    keep the accesses of a line narrow.
    """

    name: str
    packed: str
    packed_ir: str
    places: tuple[ParameterPlace, ...]
    arguments: tuple[str, ...]
    unmarked: Mapping[str, tuple[str, ...]]

    def text(self) -> str:
        """The disassembly."""
        return unpacked(self.packed)

    def ttgir(self) -> str:
        """The TTGIR."""
        return unpacked(self.packed_ir)


@dataclass(frozen=True)
class KernelExplanation:
    """`registers` is None where the compile ended with shared memory or they could not be read: `note` says why.

    `texts` has each source line that is named, by `file:line`.
    """

    shared_map: SharedMap
    registers: RegisterUse | None
    texts: Mapping[str, str]
    note: str = ""
    code: KernelCode | None = None
