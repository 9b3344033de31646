"""Times taken on a GPU and what comes of them, on a terminal (`report.measured_parts` shows examples)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from occupancy_cli.report.measured_parts import CalibrationFit, Comparison, Measurement, Regret
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The measurement, the fit or the comparison of a Report."""
    if report.measurement is not None:
        yield from _measurement(report.measurement)
    if report.calibration is not None:
        yield from _fit(report.calibration)
    if report.comparison is not None:
        yield from _comparison(report.comparison)


def _measurement(done: Measurement) -> Iterator[RenderableType]:
    parts = [f"{counted(done.written, 'point')} measured in {done.seconds:.1f} s, written to {done.path}"]
    parts += [f"{done.known} were there"] if done.known else []
    parts += [f"{done.left} left for lack of time"] if done.left else []
    yield Text("; ".join(parts))
    if done.marked:
        yield Text(f"{counted(done.marked, 'point')} marked: the clock was held down, or others used the GPU")
    for title, reasons in (("cannot launch", done.cannot_launch), ("failed", done.failed)):
        for reason, count in reasons.items():
            yield Text(f"{title}: {counted(count, 'point')}: {reason}")


def _fit(fit: CalibrationFit) -> Iterator[RenderableType]:
    table = make_table("compiled kernel", "start", "iteration", "sharing", right=(1, 2, 3))
    for each in fit.factors:
        cells = (("start", each.start), ("iteration", each.iteration), ("sharing", each.sharing))
        table.add_row(each.kernel, *(f"{v:.2f}{' ?' if term in each.undetermined else ''}" for term, v in cells))
    yield table
    if any(each.undetermined for each in fit.factors):
        yield Text("? the times do not determine this factor; it stays near the model's own")
    before = "" if fit.error_before_percent is None else f"{fit.error_before_percent:.1f} % before, "
    yield Text(
        f"error of predicted times (rms over {counted(fit.rows, 'point')}): {before}"
        f"{fit.error_after_percent:.1f} % after, fitted to {counted(fit.points, 'point')} of "
        f"{counted(fit.kernels, 'compiled kernel')}"
    )
    yield Text(f"written to {fit.path}")


def _comparison(found: Comparison) -> Iterator[RenderableType]:
    yield Text(
        f"{found.kernel} on {found.gpu}: {counted(found.points, 'point')}, {counted(found.configs, 'config')}, "
        f"{counted(found.cases, 'case')}"
    )
    if found.splits:
        yield _regrets("Choosing the split, for each config and case", found.splits)
    yield _regrets("Choosing config and knobs together, for each case", found.settings)
    shown = [m for m in found.missed if m.regret_percent >= 0.05]
    if shown:
        yield Text("The model's worst choices:")
    for missed in shown:
        yield Text(
            f"  {_pairs(missed.case)}: {_pairs(missed.chosen)} takes {missed.chosen_us:.1f} us, "
            f"{_pairs(missed.best)} {missed.best_us:.1f} us ({missed.regret_percent:.1f} %)"
        )


def _regrets(title: str, regrets: Sequence[Regret]) -> Table:
    table = make_table("regret of", "mean", "p90", "worst", "within 5 %", "groups", title=title, right=(1, 2, 3, 4, 5))
    for each in regrets:
        percents = (f"{value:.1f} %" for value in (each.mean, each.p90, each.worst))
        table.add_row(each.name, *percents, f"{each.within_5:.0f} %", f"{each.groups:,}")
    return table


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{n}={v}" for n, v in values.items())
