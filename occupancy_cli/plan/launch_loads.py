"""What the CTAs of a launch load, for the arguments that the launch is called with.

One binary serves many launches, and what a CTA loads depends on their arguments: rows past the end are masked off, rows
that a modulo wraps are loaded again. The kernel's TTGIR is read with the arguments of a launch (`read_work`), and what
was read says for which other arguments it holds, so that of a sweep's thousands of launches few are read.

    loads = Loads(packed)
    loads.at({"m": 16, "n": 4096}).bytes_per_iteration          # 33280.0: 16 of 64 rows are there
    loads.by_rows({"m": np.array([16, 64, 80])}, rows)          # [(rows of 16, ...), (rows of 64 and 80, ...)]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.compile.kept_readings import KeptReadings, Reading
from occupancy_cli.compile.packed_text import unpacked
from occupancy_cli.errors import InputError
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Turns
from occupancy_cli.readers.grid_programs import GridRun, run_programs
from occupancy_cli.readers.ir_validity import Holds
from occupancy_cli.readers.ir_work import read_work
from occupancy_cli.readers.ttgir import TtgirKernel, parse_ttgir
from occupancy_cli.spec.expression_columns import Value, at, evaluate, spread, take
from occupancy_cli.spec.expressions import parse_expression

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# Programs are read at the origin of the grid.
_ORIGIN = {**{f"pid{axis}": 0 for axis in range(3)}, **{f"programs{axis}": 1 for axis in range(3)}}


class Loads:
    """The loads of one compiled kernel's launches; `packed` is its TTGIR as `KernelTimes` keeps it, `kept` has what
    earlier runs read of it."""

    def __init__(self, packed: str, kept: KeptReadings | None = None) -> None:
        self._packed = packed
        self._kept = kept
        self._known = [(frozenset(each.holds), each.work) for each in kept.of(packed)] if kept else []
        self._runs: dict[Any, GridRun] = {}

    @cached_property
    def _kernel(self) -> TtgirKernel:
        return parse_ttgir(unpacked(self._packed))

    def run(self, arguments: Mapping[str, Any], grid: tuple[int, ...]) -> GridRun:
        """What each program of a launch does."""
        called = (tuple(arguments.items()), grid)
        if called not in self._runs:
            self._runs[called] = run_programs(self._kernel, arguments, grid, at_most=True)
        return self._runs[called]

    @property
    def readings(self) -> int:
        """How often the text was read so far."""
        return len(self._known)

    def at(self, arguments: Mapping[str, Any]) -> CtaWork:
        """The work of a CTA of one launch, as far as its loads and stores go."""
        ((_, work),) = self.by_rows(arguments, np.zeros(1, dtype=np.int64))
        return work

    def by_rows(self, arguments: Mapping[str, Value], rows: Ints) -> Iterator[tuple[Ints, CtaWork]]:
        """(rows, the work of a CTA there) for these rows of columns of arguments; pointers are None."""
        left = np.arange(len(rows))
        columns = {name: take(value, rows) for name, value in arguments.items()}
        for holds, work in self._known:
            mine = left[_all_hold(holds, columns, left)]
            if len(mine):
                yield rows[mine], work
                left = np.setdiff1d(left, mine, assume_unique=True)
        while len(left):
            holds, work = self._read({name: at(value, int(left[0])) for name, value in columns.items()})
            mine = left[_all_hold(holds, columns, left)]
            assert len(mine), "what was read of a launch holds for it"
            yield rows[mine], work
            left = np.setdiff1d(left, mine, assume_unique=True)

    def _read(self, arguments: Mapping[str, Any]) -> tuple[frozenset[Holds], CtaWork]:
        ir = read_work(self._kernel, arguments, masked=True)
        self._known.append((ir.holds, ir.work))
        if self._kept is not None:
            self._kept.add(self._packed, Reading(tuple(sorted(ir.holds, key=repr)), ir.work))
        return self._known[-1]


def main_turns(run: GridRun, work: CtaWork) -> Floats | None:
    """The iterations of the main loop in each program, 0 without one; None where they are not known."""
    return run.turns[work.main - 1] if work.main else np.zeros(len(run.entered[0]) if run.entered else 1)


def dealt_out(shape: LaunchShape, run: GridRun, work: CtaWork) -> LaunchShape | str:
    """A shape with the turns of loops beside the main one and how many CTAs share what each stream moves, or which loop
    turns nobody knows how often.

    A loop that turns equally often in every CTA counts for each of them; one that does not, in proportion to the main
    loop's iterations.
    """
    whole = shape.total_iterations
    turns = []
    for part in work.loops:
        each = run.turns[part - 1]
        if each is None:
            return f"the turns of loop {part} of the kernel hang on loaded data"
        even = not whole or float(each.max()) == float(each.min())
        total = float(each.sum())
        turns.append(Turns(part, total / shape.programs, 0.0) if even else Turns(part, 0.0, total / whole))
    sharers = []
    for stream in work.streams:
        if stream.sharers is not None or not 0 <= stream.access < len(run.accesses):
            sharers.append(stream.sharers or 1.0)
        else:
            sharers.append(1.0 / max(run.accesses[stream.access].unique_share, 1e-9))
    return dataclasses.replace(shape, turns=tuple(turns), sharers=tuple(sharers))


def _all_hold(holds: frozenset[Holds], columns: Mapping[str, Value], rows: Ints) -> Bools:
    """Where each of these is so, for rows of columns of arguments."""
    found = np.ones(len(rows), dtype=bool)
    for each in holds:
        found &= _holds(each, {name: take(value, rows) for name, value in columns.items()}, len(rows))
    return found


def _holds(each: Holds, columns: Mapping[str, Value], rows: int) -> Bools:
    if each.expression is not None:
        try:
            value = spread(evaluate(parse_expression(each.expression), {**_ORIGIN, **columns}), rows)
        except InputError:  # bit operations and what is too long for an expression: these arguments alone, then
            pass
        else:
            found = np.ones(rows, dtype=bool)
            if each.low is not None:
                found &= np.asarray(value >= each.low, dtype=bool)
            if each.high is not None:
                found &= np.asarray(value <= each.high, dtype=bool)
            return found
    found = np.ones(rows, dtype=bool)
    for name, number in each.exactly:
        found &= np.asarray(spread(columns[name], rows) == number, dtype=bool)
    return found
