"""The model beside this machine's driver, on a terminal: a row a compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from occupancy_cli.report.device_parts import Figure
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View

_SHOWN = ("registers per thread", "local bytes per thread", "static shared bytes", "CTAs/SM")
_CLUSTERS = "clusters on the GPU, at most"


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The verification of a Report."""
    found = report.verification
    assert found is not None
    headers = ("kernel", "config", "specialization", "regs", "local B", "static B", "CTAs/SM", "clusters", "")
    table = make_table(*headers, right=(3, 4, 5, 6))
    for launch in found.launches:
        table.add_row(
            launch.kernel,
            " ".join(f"{n}={v}" for n, v in launch.config.items()),
            launch.specialization,
            *(_both(launch.figures.get(name)) for name in (*_SHOWN, _CLUSTERS)),
            launch.problem or ("differs" if launch.differs else "equal"),
        )
    yield table
    said = "the driver says the same of all"
    if found.undecided:
        said = f"{found.differences} differ, {found.undecided} not decided"
    elif found.differences:
        said = f"model / driver differ in {found.differences}"
    tools = f"Triton {report.toolchain.triton}, ptxas {report.toolchain.ptxas or 'unknown'}"
    yield Text(f"{found.kernel} on {found.gpu}: {counted(found.kernels, 'compiled kernel')}; {said} ({tools})")


def _both(figure: Figure | None) -> str:
    """One number when both say it, else "model / driver"."""
    if figure is None:
        return ""
    if figure.model == figure.driver:
        return f"{figure.model:,}"
    return f"{figure.model:,} / {figure.driver:,}"
