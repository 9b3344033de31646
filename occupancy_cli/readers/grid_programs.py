"""What every program of a grid does, by a kernel's TTGIR: how often loops turn, and which programs load the same.

The scalar code is run for all programs at once, an array with a value a program in place of each integer: program ids
walked in groups, tiles dealt out to persistent programs, loops inside loops, `while` with its condition. A loop without
loops inside is counted, not run. Tensors are not computed: of an access it is enough to know the scalars that its
addresses are made of, since programs that agree in them access the same bytes.

    run = run_programs(kernel, {"m": 4096, "n": 4096, "k": 4096}, (1024,))
    run.turns[0]          # array([64, 64, ...]): of the first loop, in all, for each program
    run.accesses[17].distinct, run.accesses[17].entries        # 32, 1024: each tile is loaded by 32 programs

What hangs on loaded data is not known. Where `at_most` is given, a loaded number that ends a loop is taken to be longer
than everything else that ends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.readers.ir_operations import (
    ARITHMETIC,
    COMPARE,
    FOR,
    ITER_ARGS,
    LOADED_LENGTH,
    SAME,
    argument_names,
    is_access,
    number_accesses,
    program_axis,
)
from occupancy_cli.readers.ttgir import Operation, TtgirKernel

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_PROGRAMS = 1 << 21
_MOST_RUN = 96  # iterations of an outer loop that are run; those beyond are as these on average
_MOST_WHILE = 4096
_UNBOUNDED = 1 << 20  # iterations beyond come from a loaded length alone
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Access:
    """One access over the grid: how often programs come to it (of a loop without loops inside, how often they enter
    the loop), at how many `distinct` places, and whether that is known."""

    entries: float = 0.0
    visited: list[npt.NDArray[np.uint64] | float] = field(default_factory=list)

    @property
    def distinct(self) -> float:
        """How many of the entries lead to different places."""
        if not self.visited:
            return self.entries
        counted = sum(each for each in self.visited if isinstance(each, float))
        places = [each for each in self.visited if not isinstance(each, float)]
        return counted + (float(len(np.unique(np.concatenate(places)))) if places else 0.0)

    @property
    def unique_share(self) -> float:
        """Distinct places an entry: 1 where each program has its own."""
        return min(self.distinct / self.entries, 1.0) if self.entries else 1.0


@dataclass
class GridRun:
    """`turns` and `entered` of each loop, in the order of the text, for each program of the grid (x fastest): all its
    iterations, and how often it was entered; None where they are not known. `accesses` by the number of the access in
    the order of the text, `loaded` the loops whose turns hang on a loaded length taken as long as it can be."""

    turns: list[Floats | None]
    entered: list[Floats]
    accesses: list[Access]
    loaded: set[int]
    parents: list[tuple[int, ...]]


@dataclass(frozen=True)
class _Known:
    """A value: `numbers` of an integer scalar, one a program or one for all; of everything else None. `seeds` are the
    numbers of the arrays that it is made of, `loaded` that loaded data is among what it is made of."""

    numbers: Ints | None = None
    seeds: frozenset[int] = frozenset()
    loaded: bool = False


_NOTHING = _Known()


class _Run:
    def __init__(self, kernel: TtgirKernel, arguments: Mapping[str, Any], grid: Sequence[int], at_most: bool) -> None:
        self.at_most = at_most
        full = (*grid, 1, 1, 1)[:3]
        self.programs = int(np.prod(full))
        self.grid = full
        self.values: dict[str, _Known] = {}
        self.arrays: list[Ints] = []
        self.array_of: dict[int, int] = {}
        self.loop_number: dict[int, int] = {}
        self.access_number = number_accesses(kernel.function.ops)
        self.parents: list[tuple[int, ...]] = []
        self._number(kernel.function.ops, ())
        loops = len(self.parents)
        self.shape = full[::-1]
        self.turns: list[Floats | None] = [np.zeros((1, 1, 1)) for _ in range(loops)]
        self.entered: list[Floats] = [np.zeros((1, 1, 1)) for _ in range(loops)]
        self.accesses = [Access() for _ in self.access_number]
        self.loaded: set[int] = set()
        self.weight = np.ones((1, 1, 1))
        self.looping = 0
        written = argument_names(kernel.function, arguments)
        for (place, kind, _), name in zip(kernel.function.arguments, written, strict=True):
            given = arguments.get(name)
            if isinstance(given, int) and not isinstance(given, bool) and not kind.startswith("!tt"):
                self.values["%" + place] = _Known(_one(given))
        self.walk(kernel.function.ops, np.ones((1, 1, 1), dtype=bool))

    def _number(self, ops: Sequence[Operation], around: tuple[int, ...]) -> None:
        for op in ops:
            if op.name in ("scf.for", "scf.while"):
                self.loop_number[id(op)] = number = len(self.parents)
                self.parents.append(around)
                self._number(op.children, (*around, number))
            else:
                self._number(op.children, around)

    def get(self, name: str) -> _Known:
        return self.values.get(name, _NOTHING)

    def put(self, op: Operation, value: _Known) -> None:
        for name in op.results:
            self.values[name] = value

    def seeds(self, came: Sequence[_Known]) -> frozenset[int]:
        """The arrays that values are made of: of those whose numbers are known, what tells programs apart."""
        found: set[int] = set()
        for value in came:
            if value.numbers is None:
                found |= value.seeds
            elif value.numbers.size > 1:
                key = id(value.numbers)
                if key not in self.array_of:
                    self.array_of[key] = len(self.arrays)
                    self.arrays.append(value.numbers)
                found.add(self.array_of[key])
        return frozenset(found)

    def walk(self, ops: Sequence[Operation], active: Bools) -> None:
        for op in ops:
            self.step(op, active)

    def step(self, op: Operation, active: Bools) -> None:
        name = op.name
        if name == "block":
            return  # its arguments were given by what jumped there
        if name == "scf.for":
            self._for(op, active)
        elif name == "scf.while":
            self._while(op, active)
        elif name == "scf.if":
            self._if(op, active)
        elif name == "tt.get_program_id":
            axis = program_axis(op)
            shape = [1, 1, 1]
            shape[2 - axis] = self.grid[axis]
            self.put(op, _Known(np.arange(self.grid[axis], dtype=np.int64).reshape(shape)))
        elif name == "tt.get_num_programs":
            self.put(op, _Known(_one(self.grid[program_axis(op)])))
        elif name == "arith.constant" and not op.is_tensor:
            found = re.search(r"arith\.constant\s+(-?\d+|true|false)\b(?!\.)", op.text)
            if found:
                text = found.group(1)
                self.put(op, _Known(_one(int(text == "true") if text in ("true", "false") else int(text))))
        elif is_access(op):
            self._access(op, active)
        else:
            if op.children:
                self.walk(op.children, active)
            came = [self.get(o) for o in op.operands]
            numbers = None if op.is_tensor else _computed(op, came)
            loaded = any(v.loaded for v in came)
            self.put(op, _Known(numbers, frozenset() if numbers is not None else self.seeds(came), loaded))

    def _access(self, op: Operation, active: Bools) -> None:
        came = (
            [self.get(o) for o in op.operands[:1]] if op.name.startswith("tt.") else [self.get(o) for o in op.operands]
        )
        record = self.accesses[self.access_number[id(op)]]
        seeds = self.seeds(came)
        entered = np.where(active, self.weight, 0.0)
        record.entries += float(entered.sum()) * self.programs / entered.size
        if self.programs <= MOST_PROGRAMS:
            record.visited.append(self._places(seeds, active))
        scalar = op.name == "tt.load" and "tensor<" not in op.text
        length = _one(LOADED_LENGTH) if scalar and self.at_most else None
        self.put(op, _Known(length, seeds, True))

    def _places(self, seeds: frozenset[int], active: Bools) -> npt.NDArray[np.uint64] | float:
        """Where programs come to, as hashes of what their addresses are made of; how many places, if that is plain:
        programs walk apart along every axis that one of the arrays spans, and all of them come."""
        arrays = [self.arrays[seed] for seed in sorted(seeds)]
        spans = [tuple(axis for axis in range(3) if each.shape[axis] > 1) for each in arrays]
        if active.all() and not self.looping:
            together: dict[tuple[int, ...], list[Ints]] = {}
            for span, each in zip(spans, arrays, strict=True):
                together.setdefault(span, []).append(each)
            flat = [axis for span in together for axis in span]
            if len(flat) == len(set(flat)):
                return float(np.prod([self._count_of(each) for each in together.values()]))
        found = self._hashed(arrays)
        whole = np.broadcast_shapes(found.shape, active.shape)
        return np.unique(np.broadcast_to(found, whole)[np.broadcast_to(active, whole)])

    def _count_of(self, arrays: Sequence[Ints]) -> int:
        """How many places arrays of one span tell apart; at a glance where one of them only grows."""
        for each in arrays:
            flat = each.reshape(-1)
            if np.all(flat[1:] > flat[:-1]):
                return flat.size
        return len(np.unique(self._hashed(arrays)))

    def _hashed(self, arrays: Sequence[Ints]) -> npt.NDArray[np.uint64]:
        place = np.zeros((1, 1, 1), dtype=np.uint64)
        for each in arrays:
            place = (place ^ each.astype(np.uint64)) * _MIX
            place = place ^ (place >> np.uint64(29))
        return place

    def _if(self, op: Operation, active: Bools) -> None:
        asked = self.get(op.operands[0]) if op.operands else _NOTHING
        test = None if asked.loaded else asked.numbers
        then, other = op.regions
        taken = active if test is None else active & (test != 0)
        left = active if test is None else active & (test == 0)
        results = op.results[1:] if len(op.results) > 1 else op.results
        self.walk(then, taken)
        first = [self.get(name) for name in op.yields]
        self.walk(other, left)
        second = [self.get(name) for name in op.second_yields]
        for i, result in enumerate(results):
            a, b = (v[i] if i < len(v) else _NOTHING for v in (first, second))
            if test is not None and a.numbers is not None and b.numbers is not None:
                self.values[result] = _Known(np.where(test != 0, a.numbers, b.numbers), loaded=a.loaded or b.loaded)
            else:
                self.values[result] = _Known(None, self.seeds([a, b, self.get(op.operands[0])]), a.loaded or b.loaded)
        if op.results and len(op.results) > 1 and results:
            self.values[op.results[0]] = self.values[results[0]]

    def _carried(self, op: Operation) -> list[tuple[str, str]]:
        found = ITER_ARGS.search(op.text)
        text = found.group(1) if found else ""
        return re.findall(r"(%[\w$.-]+)\s*=\s*(%[\w$.-]+(?:#\d+)?)", text)

    def _finish(self, op: Operation, ended: Sequence[_Known]) -> None:
        results = op.results[1:] if len(op.results) > 1 else op.results
        for result, value in zip(results, ended, strict=False):
            self.values[result] = value
        if len(op.results) > 1 and ended:
            self.values[op.results[0]] = ended[0]

    def _for(self, op: Operation, active: Bools) -> None:
        number = self.loop_number[id(op)]
        header = FOR.search(op.text)
        if header is None:
            self.turns[number] = None
            return
        induction = header.group(1)
        bounds = [self.get(name) for name in header.groups()[1:]]
        turns = self._turns(bounds, number)
        self._count(number, turns, active)
        carried = self._carried(op)
        now = [self.get(start) for _, start in carried]
        inside = any(number in parents for parents in self.parents)
        once = not inside or turns is None
        most = 1 if turns is None or once else int(np.where(active, turns, 0).max())
        run = min(most, _MOST_RUN)
        weight = self.weight
        if turns is not None and not once and most > run:
            self.weight = weight * np.maximum(turns / run, 1.0)
        for at in range(max(run, 1)):
            still = active if once or turns is None else active & (at < turns)
            if turns is not None and once:
                still = active & (turns > 0)
            place = bounds[0]
            if not once and bounds[0].numbers is not None and bounds[2].numbers is not None:
                place = _Known(bounds[0].numbers + at * bounds[2].numbers, loaded=bounds[0].loaded)
            self.values[induction] = place
            for (name, _), value in zip(carried, now, strict=True):
                self.values[name] = value
            self.looping += not once
            self.walk(op.children, still)
            self.looping -= not once
            after = [self.get(name) for name in op.yields]
            now = [self._next(b, a, still, turns if once else None) for b, a in zip(now, after, strict=False)]
        self.weight = weight
        self._finish(op, now)

    def _next(self, before: _Known, after: _Known, still: Bools, turns: Floats | None) -> _Known:
        """A carried value after a run of the body: of a loop that is counted, what equal steps come to."""
        loaded = before.loaded or after.loaded
        if before.numbers is None or after.numbers is None:
            return _Known(None, self.seeds([before, after]), loaded)
        if turns is not None:
            return _Known(before.numbers + ((after.numbers - before.numbers) * turns).astype(np.int64), loaded=loaded)
        return _Known(np.where(still, after.numbers, before.numbers), loaded=loaded)

    def _turns(self, bounds: Sequence[_Known], number: int) -> Floats | None:
        lower, upper, step = (each.numbers for each in bounds)
        if lower is None or upper is None or step is None or np.any(step == 0):
            return None
        turns: Floats = np.maximum(-(-(upper - lower) // step), 0).astype(float)
        if any(each.loaded for each in bounds):
            if np.any(turns > _UNBOUNDED):
                return None
            self.loaded.add(number)
        return turns

    def _count(self, number: int, turns: Floats | None, active: Bools) -> None:
        total = self.turns[number]
        self.entered[number] = self.entered[number] + np.where(active, self.weight, 0.0)
        if turns is None:
            self.turns[number] = None
        elif total is not None:
            self.turns[number] = total + np.where(active, turns * self.weight, 0.0)

    def _while(self, op: Operation, active: Bools) -> None:
        number = self.loop_number[id(op)]
        pairs = re.findall(r"(%[\w$.-]+)\s*=\s*(%[\w$.-]+(?:#\d+)?)", op.text.partition(":")[0])
        before, after = op.regions
        now = [self.get(start) for _, start in pairs]
        self._count(number, np.zeros((1, 1, 1)), active)
        still = active
        for _ in range(_MOST_WHILE):
            for (name, _), value in zip(pairs, now, strict=True):
                self.values[name] = value
            self.walk(before, still)
            condition = next((each for each in before if each.name == "scf.condition"), None)
            test = None if condition is None else self.get(condition.operands[0]).numbers
            passed = [] if condition is None else [self.get(name) for name in condition.operands[1:]]
            opening = next((each for each in after if each.name == "block"), None)
            for name, value in zip([] if opening is None else opening.results, passed, strict=False):
                self.values[name] = value
            if test is None:
                self.turns[number] = None
                self.walk(after, still)
                now = [_Known(None, self.seeds([b]), True) for b in now]
                break
            still = still & (test != 0)
            if not still.any():
                now = passed
                break
            total = self.turns[number]
            if total is not None:
                self.turns[number] = total + np.where(still, self.weight, 0.0)
            self.looping += 1
            self.walk(after, still)
            self.looping -= 1
            ended = [self.get(name) for name in op.second_yields]
            now = [self._next(b, a, still, None) for b, a in zip(now, ended, strict=False)]
        else:
            self.turns[number] = None
        self._finish(op, now)


def _one(value: int) -> Ints:
    """An integer that all programs have."""
    return np.full((1, 1, 1), value, dtype=np.int64)


def _computed(op: Operation, came: Sequence[_Known]) -> Ints | None:
    """The integers of a scalar operation; None where they are not known."""
    numbers = [v.numbers for v in came]
    if not numbers or any(n is None for n in numbers):
        return None
    kind = op.name.split(".")[-1]
    known = [n for n in numbers if n is not None]
    if op.name in SAME:
        return known[0]
    if kind == "cmpi" and len(known) == 2:
        compare = COMPARE.get(op.text.split()[1].rstrip(","))
        return None if compare is None else compare(known[0], known[1]).astype(np.int64)
    if kind == "select" and len(known) == 3:
        return np.where(known[0] != 0, known[1], known[2])
    if kind in ARITHMETIC and len(known) == 2:
        return np.asarray(ARITHMETIC[kind][0](known[0], known[1]))
    if kind in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi") and len(known) == 2:
        # Only programs that do not come here divide by 0.
        divisor = np.where(known[1] == 0, 1, known[1])
        if kind == "ceildivsi":
            return -(-known[0] // divisor)
        quotient = known[0] // divisor
        return known[0] - quotient * divisor if kind.startswith("rem") else quotient
    return None


def run_programs(
    kernel: TtgirKernel, arguments: Mapping[str, Any], grid: Sequence[int], *, at_most: bool = False
) -> GridRun:
    """Run the scalar code of every program of `grid` with these arguments."""
    run = _Run(kernel, arguments, grid, at_most)

    def each(values: Floats) -> Floats:
        return np.broadcast_to(values, run.shape).reshape(-1)

    turns = [None if values is None else each(values) for values in run.turns]
    return GridRun(turns, [each(values) for values in run.entered], run.accesses, run.loaded, run.parents)
