"""Where each config of a kernel is written: the line of its `triton.Config`, or that of the spec that lists it.

place_of({"BLOCK": 64, "num_warps": 8}, places)     ("kernels/mla.py", 32)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.plan.check_selection import SelectedKernel, shown_path
from occupancy_cli.plan.prepared_kernel import Kernel


@dataclass(frozen=True)
class ConfigPlaces:
    """Where each config of a kernel is written, and where the kernel itself is, for a config written nowhere."""

    configs: tuple[tuple[Mapping[str, Any], str, int | None], ...]
    file: str
    line: int | None


def config_places(kernel: Kernel, selected: SelectedKernel) -> ConfigPlaces:
    """The Python line of each `triton.Config`, or the line of the spec that lists it."""
    found: list[tuple[Mapping[str, Any], str, int | None]] = []
    given, tuned = selected.given, kernel.description.autotune
    if kernel.from_source.configs is None:
        if given.spec.configs == "autotune" and tuned is not None:
            written_out = _written_out(kernel, selected)
            for config, (file, line) in zip(tuned.configs, tuned.places, strict=True):
                if file and str(Path(file).resolve()) != written_out:
                    found.append((config, shown_path(file), line))
        elif isinstance(given.spec.configs, list) and not given.from_flags:
            listed_in = shown_path(given.document.path)
            for i, config in enumerate(given.spec.configs):
                at = given.document.line(("configs", i))
                if at is not None:
                    found.append((config, listed_in, at))
    return ConfigPlaces(tuple(found), selected.file, selected.line)


def _written_out(kernel: Kernel, selected: SelectedKernel) -> str:
    """The file that was made of a notebook's cells, whose lines say nothing to a reader; "" where none was."""
    loaded = kernel.source.file
    if loaded is None:
        return ""
    named = selected.given.folder / selected.given.spec.kernel.rpartition(":")[0]
    loaded = str(Path(loaded).resolve())
    return "" if loaded == str(named.resolve()) else loaded


def place_of(config: Mapping[str, Any], places: ConfigPlaces) -> tuple[str, int | None]:
    """The file and line of a config; of the kernel where nothing says which."""
    for written, file, line in places.configs:
        if all(config.get(n) == v for n, v in written.items()):
            return file, line
    return places.file, places.line
