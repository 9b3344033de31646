"""Thousands of points at once: the knobs, shapes and names of each as columns, and what each of its launches compiles
as.

`plan` plans one point. A recommendation over many batches has a hundred thousand, of which few differ in what is
compiled: here their values are worked out column by column, rows of one specialization are one request, planned as
`plan` does from the first of them, and a row becomes a `Point` only when it is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_plan import (
    CTAS_PER_SM,
    LaunchPlan,
    after_compile,
    argument_value,
    constexprs_of,
    grid_axis,
    needs_exact_values,
    plan_launch,
)
from occupancy_cli.plan.points import Point, main_config, make_point, names_at, names_of, overrides_of, with_defaults
from occupancy_cli.plan.prepared_kernel import Kernel, LaunchSite, is_in_use
from occupancy_cli.plan.settled_launches import cooperative_refusal, is_cooperative
from occupancy_cli.spec.expression_columns import Column, Value, at, codes, column_of, evaluate, is_column, spread, take
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import Argument, EachValue, descriptor_shape
from occupancy_cli.spec.settings import Setting, one_value
from occupancy_cli.yaml_reader import KeyPath

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MAX_ROWS = 5_000_000


@dataclass(frozen=True)
class LaunchColumns:
    """One launch of every row: the extents of its grid (None: the spec has none, or it waits for what is compiled), its
    kind, and each kind's first row.

    Rows of one kind compile to the same; rows of two kinds may, too. `names` are those that its expressions see.
    `impossible` has for every row the position in `reasons` of why no GPU can launch it, -1 where one may.
    """

    site: LaunchSite
    config: Mapping[str, Any]
    names: Mapping[str, Value]
    grids: Ints | None
    kinds: Ints
    firsts: Ints
    impossible: Ints
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class PointTable:
    """Points of one config: `settings` (shapes and knobs) and `names` hold a column or one value for all rows.

    `batch` is the position of each row's batch among those asked about, `now` marks the rows whose knobs are set now.
    """

    kernel: Kernel
    gpu: GpuProfile
    config: Mapping[str, Any]
    override: Mapping[str, Any]
    stop_above: int | None
    settings: Mapping[str, Value]
    names: Mapping[str, Value]
    batch: Ints
    now: Bools
    launches: tuple[LaunchColumns, ...]
    _plans: dict[tuple[int, int], LaunchPlan] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rows(self) -> int:
        """How many points there are."""
        return len(self.batch)

    def only(self, rows: Ints) -> PointTable:
        """The table with these rows alone."""
        settings = {name: take(value, rows) for name, value in self.settings.items()}
        batch, now = self.batch[rows], self.now[rows]
        return point_table(self.kernel, self.gpu, settings, batch, now, self.config, self.override, self.stop_above)

    def point(self, row: int) -> Point:
        """One row as `plan` makes it."""
        settings = {name: at(value, row) for name, value in self.settings.items()}
        return make_point(self.kernel, self.gpu, settings, self.config, self.override, self.stop_above)

    def plan(self, launch: int, kind: int) -> LaunchPlan:
        """The launch of the first row of a kind."""
        if (launch, kind) not in self._plans:
            columns = self.launches[launch]
            self._plans[launch, kind] = self.plan_at(launch, int(columns.firsts[kind]))
        return self._plans[launch, kind]

    def plan_at(self, launch: int, row: int) -> LaunchPlan:
        """One launch of one row."""
        columns = self.launches[launch]
        settings = {name: at(value, row) for name, value in self.settings.items()}
        whole = names_of(self.kernel, settings, main_config(self.config, self.override), self.override)
        names = names_at(columns.site, whole)
        stop = None if columns.site.at else self.stop_above
        return plan_launch(self.kernel, columns.site, names, columns.config, self.gpu, stop)


def columns_of_value(given: KernelInput, value: Any, names: Mapping[str, Value], place: KeyPath) -> Value:
    """`plan.value_of` over columns."""
    if not isinstance(value, str):
        return value
    where = given.document.where(place)
    try:
        return evaluate(parse_expression(value, where), names, where)
    except InputError:
        if place[-2:-1] == ("constexprs",):  # a text that is no expression
            return value
        raise


def point_table(
    kernel: Kernel,
    gpu: GpuProfile,
    settings: Mapping[str, Value],
    batch: Ints,
    now: Bools,
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    stop_above: int | None,
) -> PointTable:
    """The points of one config with these settings; `batch` and `now` have a value for each row."""
    merged = main_config(config, override)
    names = names_of(kernel, settings, merged, override, columns_of_value)
    launches = [_launch_columns(kernel, gpu, kernel.site, names, merged, len(batch), settings, stop_above)]
    for site in kernel.followers:
        seen = names_at(site, names)
        launches.append(_launch_columns(kernel, gpu, site, seen, site.config, len(batch), {}, None))
    return PointTable(kernel, gpu, config, override, stop_above, settings, names, batch, now, tuple(launches))


def _launch_columns(
    kernel: Kernel,
    gpu: GpuProfile,
    site: LaunchSite,
    names: Mapping[str, Value],
    config: Mapping[str, Any],
    rows: int,
    settings: Mapping[str, Value],
    stop_above: int | None,
) -> LaunchColumns:
    given, launch = kernel.given, site.launch
    exact = needs_exact_values(site, config)
    specialized = {p.name for p in site.description.params if p.specializes}
    told_apart: list[Column] = []
    for name in site.description.arguments:
        argument = launch.arguments.get(name)
        if argument is None:
            continue
        value = argument_value(given, name, argument, names, (*site.at, "arguments", name), columns_of_value)
        if is_column(value):
            told_apart.append(_classes(argument, value, exact, name in specialized))
        for axis in descriptor_shape(argument.type):
            extent = columns_of_value(given, axis, names, (*site.at, "arguments", name))
            told_apart += [extent] if is_column(extent) else []
    told_apart += [v for v in constexprs_of(given, site, names, config, columns_of_value).values() if is_column(v)]
    told_apart += [names[n] for n in LAUNCH_OPTIONS if is_column(names.get(n))]
    # A knob that is a constexpr tells rows apart whatever the config makes of it.
    told_apart += [v for n, v in settings.items() if is_column(v) and n in site.description.constexprs]
    _, firsts, kinds = np.unique(codes(told_apart, rows), return_index=True, return_inverse=True)
    columns = LaunchColumns(site, config, names, None, kinds.reshape(-1), firsts, np.full(rows, -1))
    return columns if launch.grid is None or after_compile(launch, given, site.at) else _with_grids(given, columns)


def _with_grids(given: KernelInput, columns: LaunchColumns) -> LaunchColumns:
    """The same with the grid of each row, or why there is none."""
    rows = len(columns.kinds)
    impossible, reasons = columns.impossible.copy(), list(columns.reasons)
    axes = []
    for i, axis in enumerate(columns.site.launch.grid or ()):
        extents, whys = _axis(given, axis, columns.names, (*columns.site.at, "grid", i), rows)
        axes.append(extents)
        for why in dict.fromkeys(filter(None, whys)):
            impossible[np.array([each == why for each in whys])] = len(reasons)
            reasons.append(why)
    return replace(columns, grids=np.stack(axes, axis=1), impossible=impossible, reasons=tuple(reasons))


def settled_table(table: PointTable, outcomes: Sequence[Sequence[CompileOutcome]]) -> PointTable:
    """The table once its kernels are compiled (`outcomes`: of each kind of each launch): `settled` of every row."""
    launches = [_settled_columns(table, number, compiled) for number, compiled in enumerate(outcomes)]
    return replace(table, launches=tuple(launches))


def _settled_columns(table: PointTable, number: int, compiled: Sequence[CompileOutcome]) -> LaunchColumns:
    columns = table.launches[number]
    if columns.site.launch.grid is None:
        return columns
    if columns.grids is None:
        held = [occupancy_of(table.gpu, o.resources).ctas_per_sm if o.resources else 1 for o in compiled]
        names = {**columns.names, CTAS_PER_SM: np.array(held, dtype=np.int64)[columns.kinds]}
        columns = _with_grids(table.kernel.given, replace(columns, names=names))
    assert columns.grids is not None
    impossible, reasons = columns.impossible.copy(), list(columns.reasons)
    for kind, outcome in enumerate(compiled):
        options = table.plan(number, kind).request.options
        if outcome.resources is None or not is_cooperative(dict(options)):
            continue
        mine = np.flatnonzero((columns.kinds == kind) & (impossible < 0))
        grids, which = np.unique(columns.grids[mine], axis=0, return_inverse=True)
        for i, grid in enumerate(grids.tolist()):
            if why := cooperative_refusal(table.gpu, options, outcome.resources, tuple(grid)):
                impossible[mine[which.reshape(-1) == i]] = len(reasons)
                reasons.append(why)
    return replace(columns, impossible=impossible, reasons=tuple(reasons))


def _classes(argument: Argument, values: Column, exact: bool, specializes: bool) -> Column:
    """What may decide the specialization of an argument: `request.integer_class`, as numbers; else the values."""
    if values.dtype.kind != "i" or exact or argument.type.startswith("*"):
        return values
    wide = np.where((values >= -(2**31)) & (values < 2**31), 0, 1)
    if not specializes:
        return wide
    one = np.where((values == 0) | (values == 1), 1 + values, 0)
    return np.asarray(((wide * 3 + one) * 2 + (values < 0)) * 2 + (values % 16 == 0))


def _axis(
    given: KernelInput, axis: Any, names: Mapping[str, Value], place: KeyPath, rows: int
) -> tuple[Column, Sequence[str]]:
    """The extents of one axis of a grid and, where some are none that a launch can have, of every row why not."""
    values = columns_of_value(given, axis, names, place)
    if not is_column(values):
        number, why = grid_axis(given, axis, names, place)
        return spread(max(1, number), rows), [why] * rows if why else ()
    if values.dtype.kind == "i" and values.min() >= 1 and values.max() <= 65535:
        return values, ()
    # Everything else goes one by one through the same check as a single point.
    found: dict[Any, tuple[int, str]] = {}
    for row, value in enumerate(values.tolist()):
        if value not in found:
            found[value] = grid_axis(given, axis, {n: at(v, row) for n, v in names.items()}, place)
    extents = column_of([max(1, found[value][0]) for value in values.tolist()])
    whys = [found[value][1] for value in values.tolist()]
    return extents, whys if any(whys) else ()


# --- the points that a recommendation chooses from -----------------------------------------------------------------


def candidate_tables(
    kernel: Kernel, gpu: GpuProfile, batches: Sequence[int | None], sets: Mapping[str, Setting], stop_above: int | None
) -> list[PointTable]:
    """Every candidate at these batches, a table a config: `recommend.candidate_points` of each batch.

    A batch of None stands for a kernel without a shape of that name. Rows go batch by batch, what is set now first;
    rows that launch the same are all there.
    """
    spec = kernel.given.spec
    where = kernel.given.document.path
    has_batch = "batch" in kernel.settings and None not in batches
    values: dict[str, Value] = {
        name: column_of(list(batches)) if name == "batch" and has_batch else one_value(setting.values, name, where)
        for name, setting in kernel.settings.items()
        if name not in spec.knobs or name not in sets
    }
    first = {n: kernel.settings[n].values[0] for n in spec.knobs}
    values = dict(with_defaults(kernel, {**values, **first}, columns_of_value))
    now = {n: values[n] for n in spec.knobs}
    position = np.arange(len(batches))
    tables = []
    for config, override in itertools.product(kernel.configs, overrides_of(kernel)):
        chosen, batch = _knob_columns(kernel, values, position, config, override, sets)
        # What is set now comes before the choices of its batch.
        order = np.argsort(np.concatenate([position, batch]), kind="stable")
        settings = {
            name: _joined(spread(values[name], len(position)), spread(value, len(batch)))[order]
            if is_column(value)
            else value
            for name, value in chosen.items()
        }
        rows = np.concatenate([position, batch])[order]
        same = np.full(len(rows), is_in_use(spec, main_config(config, override)))
        for name, value in now.items():
            same &= np.asarray(spread(settings[name], len(rows)) == take(value, rows), dtype=bool)
        tables.append(point_table(kernel, gpu, settings, rows, same, config, override, stop_above))
    return tables


def _joined(one: Column, other: Column) -> Column:
    """Two columns one below the other, each value of the kind it was."""
    if one.dtype == other.dtype:
        return np.concatenate([one, other])
    return column_of([*one.tolist(), *other.tolist()])


def _knob_columns(
    kernel: Kernel,
    values: Mapping[str, Value],
    batch: Ints,
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    sets: Mapping[str, Setting],
) -> tuple[dict[str, Value], Ints]:
    """Every combination of knob values, knob by knob, since one knob's candidates may depend on another's value."""
    chosen = dict(values)
    for name, knob in kernel.given.spec.knobs.items():
        listed: Sequence[Any] | EachValue = sets[name].values if name in sets else knob.values
        if not listed:
            continue
        rows = len(batch)
        if isinstance(listed, EachValue):
            found, index = _each_value(kernel, name, listed, chosen, rows, config, override)
        else:
            index, found = np.repeat(np.arange(rows), len(listed)), np.tile(column_of(list(listed)), rows)
        if len(index) > MAX_ROWS:
            raise InputError(
                f"more than {MAX_ROWS:,} candidates of one config",
                where=kernel.given.document.where(("knobs", name, "values")),
                hint="Ask about fewer batches, or fix a knob by --set.",
            )
        chosen = {n: take(v, index) for n, v in chosen.items()} | {name: found}
        batch = batch[index]
    return chosen, batch


def _each_value(
    kernel: Kernel,
    name: str,
    each: EachValue,
    chosen: Mapping[str, Value],
    rows: int,
    config: Mapping[str, Any],
    override: Mapping[str, Any],
) -> tuple[Column, Ints]:
    """(values, the row that each belongs to) of a knob whose candidates are counted: `plan.knob_candidates`."""
    given = kernel.given
    names = names_of(kernel, chosen, config, override, columns_of_value)
    place: KeyPath = ("knobs", name, "values")
    first, last = (
        spread(columns_of_value(given, value, names, (*place, key)), rows).astype(np.int64)
        for value, key in ((each.first, "from"), (each.last, "to"))
    )
    counts = np.maximum(last - first + 1, 0)
    if (last - first > 4096).any():
        raise InputError(f"{np.max(counts):,} candidates", where=given.document.where(place), hint="At most 4,096.")
    index = np.repeat(np.arange(rows), counts)
    n = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + first[index]
    counted = {**{key: take(value, index) for key, value in names.items()}, each.name: n}
    found = spread(columns_of_value(given, each.value, counted, (*place, "value")), len(index))
    kept = np.sort(np.unique(codes([index, found], len(index)), return_index=True)[1])
    found, index = found[kept], index[kept]
    empty = np.flatnonzero(counts == 0)
    if len(empty):  # no candidate: the value stays
        index = np.concatenate([index, empty])
        found = _joined(found, take(spread(chosen[name], rows), empty))
        order = np.argsort(index, kind="stable")
        found, index = found[order], index[order]
    return found, index


def setting_tables(
    kernel: Kernel,
    gpu: GpuProfile,
    batches: Sequence[int | None],
    settings: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    stop_above: int | None,
) -> list[tuple[PointTable, Ints]]:
    """Settings (knobs, config) at every batch, a table a config, with the number of each row's setting."""
    by_config: dict[str, list[int]] = {}
    for number, (_, config) in enumerate(settings):
        by_config.setdefault(repr(config), []).append(number)
    tables = []
    for numbers in by_config.values():
        batch = np.tile(np.arange(len(batches)), len(numbers))
        of = np.repeat(np.array(numbers), len(batches))
        values: dict[str, Value] = {n: s.values[0] for n, s in kernel.settings.items()}
        if "batch" in values and None not in batches:
            values["batch"] = column_of(list(batches))[batch]
        for name in kernel.given.spec.knobs:
            values[name] = column_of([settings[i][0][name] for i in numbers]).repeat(len(batches))
        now = np.zeros(len(batch), dtype=bool)
        config = settings[numbers[0]][1]
        # What --set puts in a config's place is in these configs already.
        override = {n: one_value(s.values, n, "--set") for n, s in kernel.overrides.items() if n not in config}
        tables.append((point_table(kernel, gpu, values, batch, now, config, override, stop_above), of))
    return tables
