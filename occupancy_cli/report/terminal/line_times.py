"""What warps wait for, line by line, and the critical sequence of an iteration.

    time: a CTA takes 26,310 cycles, an iteration of its main loop 1,204; simulated, 2 CTAs on an SM, caches cold
     38.0 %    9,998  mla.py:213  shared memory 6,100, product 2,600, latency 1,298  acc_a += tl.dot(weight, latent_a)
    critical sequence of an iteration, in program order (< carried by the loop):
     61.0 %      734  PRMT, waits for memory < of LDG.E.U8  mla.py:126  tl.load(...)

A warp spends 9,998 of its 26,310 cycles at instructions of line 213, 6,100 of them until shared memory has answered.
The other way round, an iteration takes 1,204 cycles because a load of the iteration before takes 734 of them to arrive.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from occupancy_cli.report.explain_parts import CriticalLink, LineTimes
from occupancy_cli.report.terminal.console import counted
from occupancy_cli.report.terminal.explained import indented, place

_MOST_LINES = 10
_LEAST_PERCENT = 2.0
_LEAST_WAIT = 0.5


def lines(times: LineTimes, width: int) -> Iterator[Text]:
    """The lines that take most, then the critical sequence."""
    yield from _bold(_takes(times), width)
    shown = times.lines[:_MOST_LINES]
    places = max((len(place(each.source)) for each in shown), default=0)
    for each in shown:
        waits = sorted(each.waits.items(), key=lambda item: -item[1])[:3]
        what = ", ".join(f"{name} {cycles:,.0f}" for name, cycles in waits if cycles >= _LEAST_WAIT)
        line = f"{each.percent:>5.1f} %  {each.cycles:>7,.0f}  {place(each.source):<{places}}  {what}"
        yield from _beside(line, each.source.text if each.source else "", width)
    rest = times.lines[_MOST_LINES:]
    if rest:
        yield Text(f"{sum(r.percent for r in rest):>5.1f} %  {counted(len(rest), 'other line')}", style="dim")
    yield from _sequence(times, width)


def _takes(times: LineTimes) -> str:
    found = []
    if times.covers == "cta":
        found.append(f"a CTA takes {times.cycles:,.0f} cycles")
    if times.iteration_cycles is not None:
        found.append(f"an iteration of its main loop {times.iteration_cycles:,.0f}")
    where = f"simulated, {counted(times.ctas_per_sm, 'CTA')} on an SM, caches cold"
    return f"time: {', '.join(found)}{'' if times.covers == 'cta' else ' cycles'}; {where}"


def _sequence(times: LineTimes, width: int) -> Iterator[Text]:
    shown = [link for link in times.sequence if link.percent >= _LEAST_PERCENT]
    if not shown:
        return
    of = "a CTA" if times.iteration_cycles is None else "an iteration"
    yield from _bold(f"critical sequence of {of}, in program order (< carried by the loop):", width)
    for link in shown:
        where = f"{place(link.source)}  {link.source.text if link.source else ''}".rstrip()
        yield from _beside(_step(link), where, width)
    hidden = [link for link in times.sequence if link.percent < _LEAST_PERCENT]
    if hidden:
        share = sum(link.percent for link in hidden)
        yield Text(f"{share:>5.1f} %  {counted(len(hidden), 'step')} below {_LEAST_PERCENT:g} % each", style="dim")


def _step(link: CriticalLink) -> str:
    behind = f" {'< ' if link.carried else ''}of {link.result_of}" if link.result_of else ""
    count = f" x {link.instructions}" if link.instructions > 1 else ""
    return f"{link.percent:>5.1f} %  {link.cycles:>7,.0f}  {link.opcode}{count}, waits for {link.waits_for}{behind}"


def _beside(line: str, said: str, width: int) -> Iterator[Text]:
    """A line and what is said of it: on one line where there is room."""
    line = line.rstrip()
    if len(line) + len(said) + 2 <= width:
        yield Text(f"{line}  {said}".rstrip())
        return
    yield from (Text(line),) if len(line) <= width else indented(line, width, indent=0)
    yield from indented(said, width)


def _bold(said: str, width: int) -> Iterator[Text]:
    for line in indented(said, width, indent=0):
        line.stylize("bold")
        yield line
