"""What a saved change did, on a terminal: a line for each config that differs.

BLOCK 64, num_warps 4: shared 50,176 -> 67,584 bytes (+17,408), registers 214 -> 238 (+24), CTAs/SM 2 -> 1 (-1)
3 other configs are as they were
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from occupancy_cli.report.diff_parts import ConfigDiff, Diff
from occupancy_cli.report.terminal.text import pairs
from occupancy_cli.report.visible_report import visible_part

_SHOWN = {
    "status": ("", ""),
    "shared_bytes": ("shared", " bytes"),
    "registers_per_thread": ("registers", ""),
    "spill_bytes": ("spilled", " bytes"),
    "ctas_per_sm": ("CTAs/SM", ""),
    "warps_per_sm": ("warps/SM", ""),
    "waves": ("waves", ""),
    "predicted_time_us": ("predicted", " us"),
}


def change_lines(diff: Diff) -> Iterator[Text]:
    """The lines of a Diff between two Reports of `analyze`."""
    diff = visible_part(diff)
    same = 0
    for config in diff.configs:
        said = [_figure(f.name, f.before, f.after) for f in config.figures if f.name in _SHOWN and f.before != f.after]
        if said:
            yield Text(f"{_name(config, diff)}: {', '.join(said)}")
        else:
            same += 1
    for values, what in [(v, "is gone") for v in diff.only_before] + [(v, "is new") for v in diff.only_after]:
        yield Text(f"{pairs(values)}: {what}")
    if same:
        other = "other " if same < len(diff.configs) else ""
        yield Text(f"{same} {other}{'config is as it was' if same == 1 else 'configs are as they were'}", style="dim")


def _name(config: ConfigDiff, diff: Diff) -> str:
    """A config by the values that tell it from the others."""
    every = [each.after for each in diff.configs]
    telling = {n: v for n, v in config.after.items() if any(other.get(n) != v for other in every)}
    return pairs(telling) or diff.kernel


def _figure(name: str, before: Any, after: Any) -> str:
    label, unit = _SHOWN[name]
    change = ""
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        change = f" ({_number(after - before, '+')})"
    return f"{label} {_number(before)} -> {_number(after)}{unit}{change}".strip()


def _number(value: Any, sign: str = "") -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:{sign},.2f}"
    return f"{value:{sign},}" if isinstance(value, int) else str(value)
