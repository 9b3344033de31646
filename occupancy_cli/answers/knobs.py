"""`knobs`: what tunes the kernels of a file or package, as a Report. The reading itself: `source.source_knobs`."""

from __future__ import annotations

from collections.abc import Callable

from occupancy_cli.answers.report_parts import mirrored
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.report.source_parts import Knobs
from occupancy_cli.source.source_knobs import locate, read_knobs
from occupancy_cli.version import VERSION


def knobs_of(target: str, progress: Callable[[int, int, str], None] | None = None) -> tuple[Report, bool]:
    """A Report with the knobs of `target`, and whether that is one file or kernel, which is shown in full."""
    path, kernel = locate(target)
    found = mirrored(read_knobs(path, kernel=kernel, progress=progress), Knobs)
    report = Report(command="knobs", toolchain=Toolchain(occupancy=VERSION), knobs=found)
    return report, not path.is_dir() or kernel is not None
