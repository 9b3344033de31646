"""The times of thousands of points: what they compile to, a bound on each at once, exact times of those that matter.

Made of the tables of `point_table`. Rows that launch the same count once, the first of them; what cannot launch has a
reason. A row becomes a `Candidate` when it is asked for, and the model then says what it says of any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.answers.analyze import AnalyzedPoint, time_on
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome, CompileRequest
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.launch_batch import Launches, Shapes
from occupancy_cli.model.launch_time import KernelLaunch, launch_model
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Candidate, Scored, Untimed, timed
from occupancy_cli.plan.launch_plan import LaunchPlan, argument_value
from occupancy_cli.plan.launch_work import (
    iteration_names,
    launch_shape,
    loads_of,
    split_axis,
    timing_of,
    trip_count_of,
    work_with,
)
from occupancy_cli.plan.point_table import LaunchColumns, PointTable, columns_of_value, settled_table
from occupancy_cli.plan.points import Point
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.plan.settled_launches import settled_point
from occupancy_cli.spec.expression_columns import Value, at, codes, evaluate, is_column, spread, take
from occupancy_cli.spec.expressions import parse_expression

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Lengths = Callable[[int], tuple[int, ...]]
_WORK_SHAPES = ("iterations", "split", "ragged")  # of a spec's work, what says how it is dealt out


@dataclass(frozen=True)
class Compiled:
    """A table with the outcome of each kind of each of its launches, and a number that launches of one binary share."""

    table: PointTable
    outcomes: tuple[tuple[CompileOutcome, ...], ...]
    binaries: tuple[Ints, ...]

    def analyzed(self, row: int) -> AnalyzedPoint:
        """A row as a compiled point."""
        table = self.table
        found = tuple(o[int(c.kinds[row])] for o, c in zip(self.outcomes, table.launches, strict=True))
        return AnalyzedPoint(*settled_point(table.kernel.given, table.gpu, table.point(row), found), True)


def compile_tables(
    gpu: GpuProfile, service: CompileService, tables: Sequence[PointTable]
) -> tuple[list[Compiled], list[AnalyzedPoint]]:
    """The tables with what their rows compile to, and a point of every main kernel, for what a Report says of all."""
    order: list[tuple[int, int, int, int, int]] = []
    for t, table in enumerate(tables):
        for number, columns in enumerate(table.launches):
            for kind, row in enumerate(columns.firsts.tolist()):
                order.append((int(table.batch[row]), t, row, number, kind))
    order.sort()
    timed = time_on(gpu)
    requests: list[CompileRequest] = []
    for _, t, _, number, kind in order:
        requests.append(replace(tables[t].plan(number, kind).request, time_on=timed))
    found = {
        (t, number, kind): (outcome, request.identity_text())
        for (_, t, _, number, kind), outcome, request in zip(
            order, service.compile_all(requests), requests, strict=True
        )
    }
    numbers: dict[str, int] = {}
    compiled = []
    for t, table in enumerate(tables):
        outcomes, binaries = [], []
        for number, columns in enumerate(table.launches):
            mine = [found[t, number, kind] for kind in range(len(columns.firsts))]
            outcomes.append(tuple(outcome for outcome, _ in mine))
            names = [numbers.setdefault(text, len(numbers)) for _, text in mine]
            binaries.append(np.array(names, dtype=np.int64)[columns.kinds])
        compiled.append(Compiled(settled_table(table, outcomes), tuple(outcomes), tuple(binaries)))
    # Of each table, one point for each kind of each launch: all that is assumed, all that compiled.
    shown = {(t, row): None for _, t, row, _, _ in order}
    return compiled, [compiled[t].analyzed(row) for t, row in shown]


class CandidateTimes:
    """Points of several tables that launch differently, in the order of their batches, configs and knobs.

    `batch`, `table` and `row` say where each is from, `now` which have the knobs that are set now. `at_least_us` is
    infinite for what cannot launch or has no time; `partial_bytes` is the memory for partial results.
    """

    def __init__(
        self,
        kernel: Kernel,
        gpu: GpuProfile,
        compiled: Sequence[Compiled],
        batches: Sequence[int],
        lengths: Lengths,
        calibration: Calibration | None,
        cold: bool,
        *,
        distinct: bool = True,
    ) -> None:
        self._kernel, self._gpu, self.compiled = kernel, gpu, compiled
        self._batches, self._lengths = batches, lengths
        self._calibration, self._cold = calibration, cold
        launched = _launched(compiled)
        kept = _distinct(compiled, launched) if distinct else [np.arange(c.table.rows) for c in compiled]
        table = np.repeat(np.arange(len(kept)), [len(rows) for rows in kept])
        row = np.concatenate(kept)
        batch = np.concatenate([c.table.batch[rows] for c, rows in zip(compiled, kept, strict=True)])
        order = np.lexsort((row, table, batch))
        self.table, self.row, self.batch = table[order], row[order], batch[order]
        # Where in the tables' own order a candidate stands.
        self._place = np.empty(len(order), dtype=np.int64)
        self._place[order] = np.arange(len(order))
        starts = np.cumsum([0, *(len(rows) for rows in kept)])
        self.now = np.concatenate([c.table.now[rows] for c, rows in zip(compiled, kept, strict=True)])[order]
        self.partial_bytes = np.concatenate(
            [_partials(kernel, c.table, rows) for c, rows in zip(compiled, kept, strict=True)]
        )[order]
        self.at_least_us = np.zeros(len(order))
        self.failure = np.full(len(order), -1, dtype=np.int64)
        self.untimed = np.zeros(len(order), dtype=bool)
        self.failures: list[str] = []
        self._why: dict[int, str] = {}
        self._parts: list[list[tuple[Launches, Ints]]] = [[] for _ in compiled[0].table.launches]
        self._part = np.full((len(compiled[0].table.launches), len(order)), -1, dtype=np.int64)
        self._within = np.zeros_like(self._part)
        for t, rows in enumerate(kept):
            self._time_table(t, rows, self._place[starts[t] : starts[t + 1]])
        # Candidates that launch the same at the same batch have one time.
        above = np.cumsum([0, *(c.table.rows for c in compiled)])
        _, first, same = np.unique(launched[above[self.table] + self.row], return_index=True, return_inverse=True)
        self._same = first[same.reshape(-1)]
        self._exact: dict[int, float] = {}

    # --- what was asked for ---

    def time_us(self, which: int) -> float:
        """The exact predicted time of a candidate, its launches one after the other."""
        which = int(self._same[which])
        if which not in self._exact:
            total = 0.0
            for number, parts in enumerate(self._parts):
                launches, _ = parts[int(self._part[number, which])]
                total += launches.time_us(int(self._within[number, which]))
            self._exact[which] = total
        return self._exact[which]

    def timed(self, which: int, candidate: Candidate) -> Scored | Untimed:
        """A candidate of the model's with the times of its launches, each with its terms."""
        if self.untimed[which]:
            return Untimed(candidate, self._why[which])
        found = []
        for number, parts in enumerate(self._parts):
            launches, _ = parts[int(self._part[number, which])]
            found.append(launches.estimate(int(self._within[number, which])))
        return timed(candidate, found)

    def analyzed(self, which: int) -> AnalyzedPoint:
        """A candidate as a compiled point."""
        return self.compiled[int(self.table[which])].analyzed(int(self.row[which]))

    def of_batch(self, position: int) -> Ints:
        """The candidates of a batch."""
        first, last = np.searchsorted(self.batch, [position, position + 1])
        return np.arange(first, last)

    def main_kinds(self) -> Ints:
        """A number for each candidate: those of one config and one main kernel share it."""
        counts = [len(c.table.launches[0].firsts) for c in self.compiled]
        numbered = [c.table.launches[0].kinds + n for c, n in zip(self.compiled, np.cumsum([0, *counts]), strict=False)]
        above = np.cumsum([0, *(c.table.rows for c in self.compiled)])
        return np.asarray(np.concatenate(numbered)[above[self.table] + self.row])

    # --- how it is worked out ---

    def _time_table(self, t: int, rows: Ints, places: Ints) -> None:
        compiled = self.compiled[t]
        alive = np.ones(len(rows), dtype=bool)
        for columns, outcomes in zip(compiled.table.launches, compiled.outcomes, strict=True):
            kinds = columns.kinds[rows]
            for kind, outcome in enumerate(outcomes):
                mine = np.flatnonzero((kinds == kind) & alive)
                if not len(mine):
                    continue
                why = outcome.message
                if outcome.resources is not None:
                    occupancy = occupancy_of(self._gpu, outcome.resources)
                    why = "" if occupancy.launchable else occupancy.reason
                if outcome.resources is None or why:
                    alive[mine] = False
                    self._fail(compiled, rows, places, mine, why)
        for columns in compiled.table.launches:
            for index, why in enumerate(columns.reasons):
                mine = np.flatnonzero((columns.impossible[rows] == index) & alive)
                if len(mine):
                    alive[mine] = False
                    self._fail(compiled, rows, places, mine, why)
        for number, (columns, outcomes) in enumerate(zip(compiled.table.launches, compiled.outcomes, strict=True)):
            for kind, group in self._groups(compiled.table, columns, rows, np.flatnonzero(alive)):
                for loads, these in self._by_loads(compiled.table, columns, outcomes[kind], rows, group):
                    self._time_group(compiled, number, kind, outcomes[kind], loads, rows[these], places[these])

    def _fail(self, compiled: Compiled, rows: Ints, places: Ints, mine: Ints, why: str) -> None:
        """Note why these rows cannot launch, by the config that a person would look for."""
        kinds = compiled.table.launches[0].kinds[rows[mine]]
        for kind in np.unique(kinds).tolist():
            these = mine[kinds == kind]
            self.failure[places[these]] = len(self.failures)
            self.failures.append(f"{short_config(compiled.table.point(int(rows[these[0]])))}: {why}")
        self.at_least_us[places[mine]] = np.inf

    def _groups(self, table: PointTable, columns: LaunchColumns, rows: Ints, alive: Ints) -> Iterator[tuple[int, Ints]]:
        """(kind, rows) whose CTAs do the same work: of one kind, and with the same values in the spec's `work`."""
        read = _names_of_work(self._kernel, columns)
        values = [take(columns.names[n], rows[alive]) for n in sorted(read) if is_column(columns.names.get(n))]
        group = codes([columns.kinds[rows[alive]], *values], len(alive))
        for each in np.unique(group).tolist():
            mine = alive[group == each]
            yield int(columns.kinds[rows[mine[0]]]), mine

    def _by_loads(
        self, table: PointTable, columns: LaunchColumns, outcome: CompileOutcome, rows: Ints, group: Ints
    ) -> Iterator[tuple[CtaWork | None, Ints]]:
        """Rows of one binary by what their CTAs load, which their arguments decide."""
        loads = loads_of(self._kernel, timing_of(self._gpu, outcome))
        if loads is None:
            yield None, group
            return
        every = frozenset(columns.site.launch.arguments)
        values = self._arguments(table, columns, every)
        arguments = {p.name: _whole(values.get(p.name)) for p in columns.site.description.params if p.name in values}
        place = np.full(table.rows, -1, dtype=np.int64)
        place[rows[group]] = group
        for these, work in loads.by_rows(arguments, rows[group]):
            yield work, place[these]

    def _time_group(
        self,
        compiled: Compiled,
        number: int,
        kind: int,
        outcome: CompileOutcome,
        loads: CtaWork | None,
        rows: Ints,
        places: Ints,
    ) -> None:
        table, kernel = compiled.table, self._kernel
        columns = table.launches[number]
        assert outcome.resources is not None
        plan = replace(table.plan(number, kind), names=_names_at(table, columns, kernel, int(rows[0])))
        occupancy = occupancy_of(self._gpu, outcome.resources)
        work = work_with(kernel, self._gpu, plan, outcome, loads)
        name = plan.request.source.kernel
        held = KernelLaunch(name, outcome.resources, occupancy, work, LaunchShape.uniform((1,), 1.0))
        factors = self._calibration.of(held) if self._calibration else None
        model, unknown = launch_model(
            self._gpu, outcome.resources, occupancy, work, factors, self._cold, follows=number > 0
        )
        if model is None:
            self.untimed[places] = True
            self._why |= dict.fromkeys(places.tolist(), f"{name}: {unknown[0][0]} is unknown: {unknown[0][1]}")
            self.at_least_us[places] = np.inf
            return
        shapes = self._shapes(table, number, plan, outcome, rows, work)
        launches = Launches(model, unknown, work, shapes)
        self._part[number, places] = len(self._parts[number])
        self._within[number, places] = np.arange(len(rows))
        self._parts[number].append((launches, rows))
        self.at_least_us[places] += launches.at_least_us

    def _shapes(
        self, table: PointTable, number: int, plan: LaunchPlan, outcome: CompileOutcome, rows: Ints, does: CtaWork
    ) -> Shapes:
        """The shape of every row: by columns for the plain ones, else one by one as `launch_shape` gives it."""
        columns, given = table.launches[number], self._kernel.given
        work, place = plan.launch.work, plan.at
        if columns.grids is None:
            raise no_work(self._kernel, plan, "the spec gives no grid")
        grids = columns.grids[rows]
        ragged = work.ragged is not None and bool(self._lengths(self._batches[0]))
        if not does.plain:
            every = frozenset(columns.site.launch.arguments)
            return self._one_by_one(table, number, plan, outcome, rows, self._arguments(table, columns, every), does)
        if work.split is not None and not ragged:
            got = {
                key: np.trunc(
                    spread(columns_of_value(given, v, columns.names, (*place, "work", "split", key)), table.rows)
                )
                for key, v in work.split.items()
            }
            axes = np.unique(got["axis"][rows]).tolist() if "axis" in got else [None]
            axis = split_axis(given, plan.launch, place, grids.shape[1], None if axes[0] is None else int(axes[0]))
            tiles, per = (got[key][rows].astype(np.int64) for key in ("tiles", "tiles_per_split"))
            covered = (tiles >= 1) & (per >= 1)
            if len(axes) == 1 and axis == grids.shape[1] - 1 and covered.all() and (grids[:, -1] * per >= tiles).all():
                return Shapes.split(grids, tiles, per)
        elif not ragged:
            count = trip_count_of(given, plan.launch, place, timing_of(self._gpu, outcome))
            if isinstance(count, str):
                every = frozenset(columns.site.launch.arguments)
                arguments = self._arguments(table, columns, every)
                return self._one_by_one(table, number, plan, outcome, rows, arguments, does)
            names: Mapping[str, Value] = columns.names
            if count.origin == "IR":
                names = self._arguments(table, columns, count.expression.names)
                missing = iteration_names(count, plan, tuple(grids[0].tolist()))
                if isinstance(missing, str):
                    raise no_work(self._kernel, plan, missing)
            if not count.expression.names & {"pid0", "pid1", "pid2", "programs0", "programs1", "programs2"}:
                iterations = spread(evaluate(count.expression, names, count.where), table.rows)[rows]
                return Shapes.uniform(grids, np.maximum(iterations.astype(float), 0.0))
            return self._one_by_one(table, number, plan, outcome, rows, names if count.origin == "IR" else {}, does)
        return self._one_by_one(table, number, plan, outcome, rows, {}, does)

    def _arguments(self, table: PointTable, columns: LaunchColumns, wanted: frozenset[str]) -> dict[str, Value]:
        """The values of the kernel's own arguments, as the launch gives them."""
        given, at_launch = self._kernel.given, columns.site
        found = {}
        for name, argument in at_launch.launch.arguments.items():
            if name in wanted:
                place = (*at_launch.at, "arguments", name)
                found[name] = argument_value(given, name, argument, columns.names, place, columns_of_value)
        return found

    def _one_by_one(
        self,
        table: PointTable,
        number: int,
        plan: LaunchPlan,
        outcome: CompileOutcome,
        rows: Ints,
        arguments: Mapping[str, Value],
        does: CtaWork,
    ) -> Shapes:
        """`launch_shape` of every row, of equal ones once; `arguments` are what the IR's iterations read."""
        columns = table.launches[number]
        assert columns.grids is not None
        found = timing_of(self._gpu, outcome)
        known: dict[Any, LaunchShape] = {}
        shapes = []
        for row in rows.tolist():
            names = _names_at(table, columns, self._kernel, row)
            grid = tuple(columns.grids[row].tolist())
            lengths = self._lengths(self._batches[int(table.batch[row])])
            same = (grid, *names.values(), *(at(value, row) for value in arguments.values()), lengths)
            if same not in known:
                this = table.plan_at(number, row) if arguments else replace(plan, names=names, grid=grid)
                shape = launch_shape(self._kernel.given, this, found, lengths, does, loads_of(self._kernel, found))
                if isinstance(shape, str):
                    raise no_work(self._kernel, plan, shape)
                known[same] = shape
            shapes.append(known[same])
        return Shapes.of(shapes)


def _whole(value: Value) -> Value:
    """The values of an argument if they are whole numbers, else None."""
    kinds = value.dtype.kind == "i" if is_column(value) else isinstance(value, int)
    return value if kinds else None


def short_config(point: Point) -> str:
    """A point's config as a person looks for it."""
    return " ".join(f"{n}={v}" for n, v in point.config.items() if n not in ("num_stages", "num_ctas"))


def no_work(kernel: Kernel, plan: LaunchPlan, why: str) -> InputError:
    """The error of a launch whose CTAs' iterations nobody knows."""
    return InputError(
        f"the iterations of {plan.request.source.kernel} are unknown: {why}",
        where=kernel.given.document.where((*plan.at, "work")),
        hint="Give its grid and work.iterations.",
    )


def _names_of_work(kernel: Kernel, columns: LaunchColumns, shapes: bool = False) -> set[str]:
    """The names that the spec's work reads; with `shapes` those of how it is dealt out, else of what a CTA does."""
    read: set[str] = set()
    for key, value in columns.site.launch.work.model_dump(exclude_none=True).items():
        if (key in _WORK_SHAPES) is shapes:
            for text in value.values() if isinstance(value, dict) else (value,):
                if isinstance(text, str):
                    read |= parse_expression(text, kernel.given.document.where((*columns.site.at, "work", key))).names
    return read


def _names_at(table: PointTable, columns: LaunchColumns, kernel: Kernel, row: int) -> Mapping[str, Any]:
    """The values at a row of the names that the spec's work reads."""
    key = ("names of work", columns.site.at)
    if key not in kernel.memo:
        kernel.memo[key] = sorted(_names_of_work(kernel, columns) | _names_of_work(kernel, columns, shapes=True))
    return {name: at(columns.names[name], row) for name in kernel.memo[key] if name in columns.names}


def _partials(kernel: Kernel, table: PointTable, rows: Ints) -> Ints:
    """Bytes for partial results at these rows."""
    partials = kernel.given.spec.partials_bytes
    if partials is None:
        return np.zeros(len(rows), dtype=np.int64)
    where = kernel.given.document.where(("partials_bytes",))
    names = {name: take(value, rows) for name, value in table.names.items()}
    found = spread(evaluate(parse_expression(partials, where), names, where), len(rows))
    return np.array([int(v) for v in found], dtype=np.int64) if found.dtype == object else found.astype(np.int64)


def _launched(compiled: Sequence[Compiled]) -> Ints:
    """A number for each row of the tables, one below the other: the same for rows of a batch that launch the same."""
    batch = np.concatenate([c.table.batch for c in compiled])
    columns = [batch]
    for number in range(len(compiled[0].table.launches)):
        columns.append(np.concatenate([c.binaries[number] for c in compiled]))
        grids = [c.table.launches[number].grids for c in compiled]
        if all(g is not None for g in grids):
            columns += list(np.concatenate([g for g in grids if g is not None]).T)
    return codes(columns, len(batch))


def _distinct(compiled: Sequence[Compiled], launched: Ints) -> list[Ints]:
    """Of each table, the rows that launch otherwise than every row before them at their batch."""
    first = np.sort(np.unique(launched, return_index=True)[1])
    bounds = np.cumsum([0, *(c.table.rows for c in compiled)])
    within = [(first >= low) & (first < low + c.table.rows) for low, c in zip(bounds, compiled, strict=False)]
    return [first[mine] - low for mine, low in zip(within, bounds, strict=False)]
