"""The measured constants of a GPU beside its profile, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from occupancy_cli.report.device_parts import MeasuredValue
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View

FAR_PERCENT = 10.0


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """A table of the constants, one of what has no field, one of bandwidth, and where the profile lies."""
    found = report.measured_gpu
    if found is None:
        return
    beside = f"profile {found.profile}" if found.profile else "no profile has this name"
    yield Text(f"{found.device}, driver {found.driver}, SM clock {found.clock_mhz:,.0f} MHz: {beside}")
    table = make_table("Value", "Measured", "Spread %", "Profile", "Difference %", "How", right=(1, 2, 3, 4))
    for each in found.values:
        stated = "not stated" if each.profile is None else figure(each.profile)
        difference = "" if each.difference_percent is None else f"{each.difference_percent:+.1f}"
        table.add_row(each.field, figure(each.value), f"{each.spread_percent:.1f}", stated, difference, each.how)
    yield table
    rates = make_table("Rate of an SM", "Measured", "Spread %", "How", right=(1, 2))
    for each in found.rates:
        rates.add_row(each.field, figure(each.value), f"{each.spread_percent:.1f}", each.how)
    yield rates
    curve = make_table("Reads", "CTAs/SM", "Bytes in flight/SM", "GB/s", "Cycles under way", right=(1, 2, 3, 4))
    for point in found.curves:
        curve.add_row(
            point.memory,
            str(point.ctas_per_sm),
            f"{point.bytes_in_flight:,}",
            f"{point.gbps:,.0f}",
            f"{point.latency_cycles:,.0f}",
        )
    yield curve
    yield Text(_verdict(found.values, found.profile))
    yield Text(f"Written to {found.path} in {found.seconds:.0f} s: --gpu {found.path} uses it.")


def _verdict(values: list[MeasuredValue], profile: str | None) -> str:
    stated = [v for v in values if v.difference_percent is not None]
    if not stated:
        return "The profile states none of these." if profile else "There is no profile to compare with."
    far = [v.field for v in stated if abs(v.difference_percent or 0.0) > FAR_PERCENT]
    if not far:
        return f"{counted(len(stated), 'value')} that both state: within {FAR_PERCENT:.0f} %."
    return (
        f"{len(far)} of {counted(len(stated), 'value')} that both state differ by over {FAR_PERCENT:.0f} %: "
        + ", ".join(far)
    )


def figure(value: float) -> str:
    """A number with its thousands apart, four digits of a fraction."""
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.4g}"
