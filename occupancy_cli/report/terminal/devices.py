"""The GPUs of this machine beside their profiles, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table
from occupancy_cli.report.terminal.gpu_facts import written

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """A table a device; one line when there is none."""
    if not report.devices:
        yield Text("The driver shows no GPU.")
    for device in report.devices or []:
        fits = f"profile {device.profile}" if device.profile else "no profile has this name"
        yield Text(f"GPU {device.index}: {device.name}, CC {device.compute_capability}: {fits}")
        table = make_table("Value", "Device", "Profile", "", "Remarks", right=(1, 2))
        for each in device.fields:
            profile = "not stated" if each.profile is None else written(each.profile)
            verdict = "" if each.profile is None else "equal" if each.equal else "differs"
            table.add_row(each.field, written(each.device), profile, verdict, each.remark)
        yield table
        differing = len(device.differences)
        if device.profile is not None and differing:
            yield Text(f"{counted(differing, 'value')} {'differs' if differing == 1 else 'differ'}")
        elif device.profile is not None:
            yield Text("Every value that both state is equal.")
