"""The names that the source's own lines give to values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_cli.readers.ttgir import SourceLine

_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)\s*(?::[^=]+)?[-+*/|&^]?=(?!=)")


def assigned_name(lines: tuple[SourceLine, ...], texts: Mapping[str, str]) -> str:
    """The name that the outermost line gives its value: `acc` of `acc = tl.dot(a, b, acc)`; "" where it gives none."""
    for each in reversed(lines):
        found = _ASSIGNED.match(texts.get(f"{each.file}:{each.line}", ""))
        if found:
            return found[1]
    return ""
