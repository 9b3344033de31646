"""A kernel's TTGIR evaluated for one CTA: integers, masks and addresses, and what the walk over the operations meets.

Integer arithmetic is evaluated for the CTA at the origin of the grid, with the arguments' values. Loaded integers stand
for unrelated values: a gather touches one line for each row that its indices name, which is the most it can. What
cannot be evaluated stays unknown.

What is found of a launch may hold for others of the same kernel whose arguments have other values: `row % m` over rows
below 64 is `row` for every m from 64 on. Values carry what they depend on (`Holds`), so that a reader can say for which
launches its answer is right, and few of a sweep's launches have to be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occupancy_cli.readers.ir_operations import (
    ACCESSES,
    ARITHMETIC,
    BULK_LOADS,
    BULK_STORES,
    COMPARE,
    DOTS,
    FLOAT_OPS,
    FOR,
    ITER_ARGS,
    KEEPS_AXES,
    LOADED_LENGTH,
    SAME,
    argument_names,
    program_axis,
    simplified,
)
from occupancy_cli.readers.ir_validity import Holds, range_compared, range_of
from occupancy_cli.readers.memory_access import SECTOR_BYTES, Axes, Ints, MemoryAccess, layout_of, touched
from occupancy_cli.readers.ttgir import Function, Operation, element_bits, numbers_in, tensor_types

_MOST_ELEMENTS = 1 << 20  # tensors beyond are not evaluated
_GATHER_SEED = 20240607
# An argument without a value: large, so that rows lie apart and masks let everything through; a multiple of 16 where
# the compiler was told so. Iterations are never told from it.
_GUESSED_ALIGNED, _GUESSED = 4096, 4099
_PARTITION_ARGUMENT = re.compile(r"(%[\w$.-]+):")


@dataclass
class Value:
    """An integer scalar (one value a program), an integer tensor, or a pointer (element offsets from an argument).

    `numbers` is None when the value is not known. `loaded` marks values that depend on loaded data, `guessed` those
    that depend on an argument without a value, `turns` those that another iteration of the loop around them may give
    another value; `loads` is the length of the longest chain of loads that led here. `given` names the arguments whose
    values decide the numbers, and `holds` says for which values of others they are as they are. `expression` is the
    text of a scalar, or of the scalar that fills a tensor. `axes` are the grid axes it depends on, as in
    `MemoryAccess`. `ragged` says of a mask that it may end between any two neighbours of the last axis for all that the
    compiler knows: it then masks every element by itself, and accesses none together.
    """

    numbers: Ints | None = None
    pointer: str | None = None
    element: str = ""
    loaded: bool = False
    guessed: bool = False
    turns: bool = False
    given: frozenset[str] = frozenset()
    holds: frozenset[Holds] = frozenset()
    loads: int = 0
    expression: str | None = None
    axes: Axes | None = ()
    ragged: bool = False


UNKNOWN = Value()


def _axes(values: Sequence[Value]) -> Axes | None:
    """The grid axes that a value made of `values` depends on."""
    found: dict[int, int] = {}
    for value in values:
        if value.axes is None:
            return None
        for axis, together in value.axes:
            found[axis] = min(found.get(axis, together), together)
    return tuple(sorted(found.items()))


def _made_of(came: Sequence[Value]) -> Value:
    """A value of unknown numbers with the history of those that it is made of."""
    return Value(
        loaded=any(v.loaded for v in came),
        guessed=any(v.guessed for v in came),
        turns=any(v.turns for v in came),
        given=frozenset().union(*(v.given for v in came)),
        holds=frozenset().union(*(v.holds for v in came)),
        loads=max((v.loads for v in came), default=0),
        axes=_axes(came),
        ragged=any(v.ragged for v in came),
    )


@dataclass
class Found:
    """What the walk over the operations gathers, with the loop they lie in ([] outside)."""

    op: Operation
    kind: str
    loops: tuple[int, ...]
    after: bool
    access: MemoryAccess | None = None
    loads: int = 0


def _divided(came: Sequence[Value]) -> Axes | None:
    """Axes of the quotient of a program id and a constant: neighbours come together."""
    number, divisor = came[0], came[1].numbers
    if number.axes is None or len(number.axes) != 1 or came[1].axes or came[1].loaded or divisor is None:
        return None
    plain = number.expression == f"pid{number.axes[0][0]}"
    if not plain or divisor.size != 1 or int(divisor.reshape(-1)[0]) < 1:
        return None
    axis, together = number.axes[0]
    return ((axis, together * int(divisor.reshape(-1)[0])),)


class Reader:
    """Walks a function once, evaluating as it goes."""

    def __init__(
        self,
        function: Function,
        layouts: Mapping[str, str],
        arguments: Mapping[str, Any],
        grid: Sequence[int],
        scalars_only: bool = False,
        masked: bool = False,
    ) -> None:
        self.function, self.layouts = function, layouts
        self.scalars_only, self.masked = scalars_only, masked
        self.numbers_given: dict[str, int] = {}
        self.unaligned: set[str] = set()  # integers that the compiler does not know to be multiples of 16
        self.holds: set[Holds] = set()
        self.let_through = False  # whether a mask made of arguments was taken to let everything through
        self.values: dict[str, Value] = {}
        self.found: list[Found] = []
        self.loops: list[Operation] = []
        self.trips: dict[int, tuple[Value, Value, Value]] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.unread: set[str] = set()
        self.partition = 0
        self.partition_of: dict[int, int] = {}
        self.shared_operands: list[str] = []
        self.passed: list[Value] = []
        self.random = np.random.default_rng(_GATHER_SEED)
        total = int(np.prod(grid)) if grid else 1
        linear = np.arange(total, dtype=np.int64)
        self.ids = []
        for extent in (*grid, 1, 1, 1)[:3]:
            self.ids.append(linear % extent)
            linear = linear // extent
        self.grid = (*grid, 1, 1, 1)[:3]
        for (written, kind, told), name in zip(function.arguments, argument_names(function, arguments), strict=True):
            pointee = re.match(r"!tt\.ptr<(\w+)", kind)
            if pointee:
                zero = np.zeros(1, dtype=np.int64)
                self.values["%" + written] = Value(zero, name, pointee.group(1), expression=name)
                continue
            given = arguments.get(name)
            if isinstance(given, int) and not isinstance(given, bool):
                self.numbers_given[name] = given
                if "tt.divisibility" not in told:
                    self.unaligned.add(name)
                number = np.array([given], dtype=np.int64)
                self.values["%" + written] = Value(number, given=frozenset((name,)), expression=name)
            elif kind in ("i32", "i64"):
                guess = _GUESSED_ALIGNED if "tt.divisibility" in told else _GUESSED
                self.values["%" + written] = Value(np.array([guess], dtype=np.int64), guessed=True, expression=name)
            else:
                self.values["%" + written] = Value(expression=name)
        self.loop_stack: list[int] = []
        self.walk(function.ops)

    # -- helpers

    def get(self, name: str) -> Value:
        return self.values.get(name, UNKNOWN)

    def put(self, op: Operation, value: Value) -> None:
        for name in op.results:
            self.values[name] = value

    def walk(self, ops: Sequence[Operation]) -> None:
        for op in ops:
            try:
                self.step(op)
            except (ValueError, IndexError) as broken:
                # Shapes that do not fit together: an operation of a form not met before. Its results stay unknown.
                self.unread.add(f"{op.name}: {broken}")
                self.put(op, UNKNOWN)

    def step(self, op: Operation) -> None:
        name = op.name
        if name in ("scf.for", "scf.while"):
            self._loop(op)
        elif name == "scf.condition":
            self.passed = [self.get(o) for o in op.operands[1:]]
        elif name == "block":
            for argument, value in zip(op.results, self.passed, strict=False):
                self.values[argument] = value
        elif self.scalars_only and op.is_tensor:
            if name in DOTS or name in ACCESSES:
                self.note(op, "other")
        elif name.startswith("partition") or name == "default":
            # The code of one group of warps, with the operands of the warp_specialize before it as its arguments.
            for argument, given in zip(_PARTITION_ARGUMENT.findall(op.text), self.shared_operands, strict=False):
                self.values[argument] = self.get(given)
            self.partition += 1
            self.walk(op.children)
        elif name == "ttg.warp_specialize":
            self.shared_operands = op.operands
            self.walk(op.children)
        elif name in ("scf.if", "scf.execute_region"):
            self.walk(op.children)
            for i, result in enumerate(op.results[1:] if len(op.results) > 1 else op.results):
                self.values[result] = self.get(op.yields[i]) if i < len(op.yields) else UNKNOWN
        elif name == "arith.constant":
            self._constant(op)
        elif name == "tt.get_program_id":
            axis = program_axis(op)
            self.put(op, Value(self.ids[axis], expression=f"pid{axis}", axes=((axis, 1),)))
        elif name == "tt.get_num_programs":
            axis = program_axis(op)
            self.put(op, Value(np.array([self.grid[axis]]), expression=f"programs{axis}"))
        elif name == "tt.make_range":
            bounds = re.search(r"end = (\d+).*?start = (\d+)", op.attributes)
            if bounds:
                self.put(op, Value(np.arange(int(bounds.group(2)), int(bounds.group(1)), dtype=np.int64)))
        elif name.startswith(("arith.", "math.")) or name in SAME:
            self._arithmetic(op)
        elif name in ("tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans"):
            self._shape(op)
        elif name == "tt.addptr":
            self._addptr(op)
        elif name in ACCESSES:
            self._access(op)
        elif name in BULK_LOADS | BULK_STORES:
            self._bulk(op)
        else:
            # A value that passes through shared memory, a reduction or anything else keeps its history of loads.
            self.walk(op.children)
            came = [self.get(o) for o in op.operands]
            self.put(op, _made_of(came))
        if name in DOTS or name in FLOAT_OPS or name in (
            "ttg.local_alloc", "ttg.local_load", "ttg.local_store", "ttg.convert_layout", "ttg.async_commit_group",
        ):  # fmt: skip
            self.note(op, "other")

    def note(self, op: Operation, kind: str, access: MemoryAccess | None = None, loads: int = 0) -> None:
        self.found.append(Found(op, kind, tuple(self.loop_stack), bool(self.loops), access, loads))

    def _loop(self, op: Operation) -> None:
        header = FOR.search(op.text)
        number = len(self.loops)
        self.loops.append(op)
        self.parents[number] = tuple(self.loop_stack)
        self.partition_of[number] = self.partition
        initial = ITER_ARGS.search(op.text)
        carried = initial.group(1) if initial else "" if op.name == "scf.for" else op.text.partition(":")[0]
        pairs = re.findall(r"(%[\w$.-]+)\s*=\s*(%[\w$.-]+(?:#\d+)?)", carried)
        if header:
            induction, lower, upper, step = header.groups()
            bounds = (self.get(lower), self.get(upper), self.get(step))
            self.trips[number] = bounds
            axes = _axes((bounds[0], bounds[2]))
            self.values[induction] = replace(bounds[0], expression=None, turns=True, axes=axes)
        for name, start in pairs:
            # After the first iteration a carried value may depend on loads; its first value stands for all.
            self.values[name] = replace(self.get(start), turns=True)
        # What was loaded before the loop is at hand: chains count the loads of one iteration.
        for name, value in self.values.items():
            if value.loads:
                self.values[name] = replace(value, loads=0)
        self.loop_stack.append(number)
        self.walk(op.children)
        self.loop_stack.pop()
        base = op.results[0] if op.results else ""
        for i, name in enumerate(op.yields):
            self.values[f"{base}#{i}"] = self.get(name)
        if base and op.yields:
            self.values[base] = self.get(op.yields[0])

    def _constant(self, op: Operation) -> None:
        found = re.search(r"arith\.constant\s+(?:dense<)?(-?[\w.+-]+)>?", op.text)
        kinds = tensor_types(op.types)
        shape = kinds[0].shape if kinds else ()
        value: int | None = None
        if found:
            token = found.group(1)
            if token in ("true", "false"):
                value = int(token == "true")
            elif re.fullmatch(r"-?\d+", token):
                value = int(token)
        if value is None or int(np.prod(shape, dtype=np.int64)) > _MOST_ELEMENTS:
            self.put(op, UNKNOWN)
            return
        self.put(op, Value(np.full(shape or (1,), value, dtype=np.int64), expression=str(value)))

    def _arithmetic(self, op: Operation) -> None:
        kind = op.name.split(".")[-1]
        came = [self.get(o) for o in op.operands]
        result = _made_of(came)
        numbers = [v.numbers for v in came]
        texts = [v.expression for v in came]
        if op.name in SAME and came:
            result = replace(came[0], loaded=result.loaded, guessed=result.guessed, loads=result.loads)
        elif kind == "select" and len(came) == 3:
            known = [n for n in numbers if n is not None]
            if len(known) == 3:
                result.numbers = np.where(known[0] != 0, known[1], known[2])
                result.pointer, result.element = came[1].pointer, came[1].element
        elif kind == "cmpi" and len(came) == 2 and numbers[0] is not None and numbers[1] is not None:
            compare = COMPARE.get(op.text.split()[1].rstrip(","))
            if compare is not None:
                result.ragged = result.ragged or self._ragged(came)
                result.numbers = compare(numbers[0], numbers[1]).astype(np.int64)
                if op.is_tensor and (result.loaded or (result.given and (result.turns or not self.masked))):
                    # Which rows loaded data lets through is not known, nor which an argument does in an iteration that
                    # is not the first: all of them.
                    self.let_through = self.let_through or not result.loaded
                    result.numbers = np.ones_like(result.numbers)
                    result.given, result.holds = frozenset(), frozenset()
                else:
                    self._narrowed(kind, came, result)
        elif len(came) == 2 and kind in ARITHMETIC:
            function, form = ARITHMETIC[kind]
            if numbers[0] is not None and numbers[1] is not None:
                result.numbers = function(numbers[0], numbers[1])
                self._narrowed(kind, came, result)
            if texts[0] is not None and texts[1] is not None:
                result.expression = simplified(kind, texts[0], texts[1], form)
        elif len(came) == 2 and kind in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"):
            if numbers[0] is not None and numbers[1] is not None and not np.any(numbers[1] == 0):
                quotient = numbers[0] // numbers[1]
                result.numbers = numbers[0] - quotient * numbers[1] if kind.startswith("rem") else quotient
                self._narrowed(kind, came, result)
            if texts[0] is not None and texts[1] is not None:
                result.expression = f"({texts[0]} {'%' if kind.startswith('rem') else '//'} {texts[1]})"
        if result.axes and not op.is_tensor and kind not in KEEPS_AXES:
            result.axes = _divided(came) if kind in ("divsi", "divui", "floordivsi") else None
            if result.axes:
                self.holds |= self._exactly(came[1])
        self.put(op, result)

    def _ragged(self, came: Sequence[Value]) -> bool:
        """Whether numbers that change along the last axis are compared with a scalar that may be any number."""
        for bound, index in (came, came[::-1]):
            if bound.numbers is None or index.numbers is None or index.numbers.ndim == 0:
                continue
            names = set(bound.given).union(*((name for name, _ in held.exactly) for held in bound.holds))
            changes = index.numbers.shape[-1] > 1 and bool(np.any(np.diff(index.numbers, axis=-1)))
            one = bound.numbers.size and not np.any(bound.numbers != bound.numbers.reshape(-1)[0])
            if changes and one and names & self.unaligned:
                return True
        return False

    def _narrowed(self, kind: str, came: Sequence[Value], result: Value) -> None:
        """Where one operand is a scalar (or filled with one) that arguments decide and the other is not, say for which
        values of it the result is as it is: they decide it no more."""
        for first, (s, x) in enumerate((came, came[::-1])):
            if not s.given or x.given or s.numbers is None or x.numbers is None or not s.numbers.size:
                continue
            value = int(s.numbers.reshape(-1)[0])
            if not x.numbers.size or np.any(s.numbers != value):
                continue
            if kind == "cmpi":
                bounds: tuple[int | None, int | None] | None = range_compared(x.numbers, value)
            else:
                bounds = range_of(kind, x.numbers, value, first == 0)
            if bounds is not None:
                exactly = tuple((n, self.numbers_given[n]) for n in sorted(s.given))
                held = set() if bounds == (None, None) else {Holds(s.expression, *bounds, exactly)}
                result.given, result.holds = frozenset(), result.holds | held
            return

    def _exactly(self, value: Value) -> set[Holds]:
        """What a value's numbers being as they are asks of the arguments."""
        exactly = {Holds(None, None, None, ((name, self.numbers_given[name]),)) for name in value.given}
        return {*value.holds, *exactly}

    def _shape(self, op: Operation) -> None:
        source = self.get(op.operands[0]) if op.operands else UNKNOWN
        kinds = tensor_types(op.types)
        numbers = source.numbers
        shape = kinds[-1].shape if kinds else ()
        if numbers is not None:
            # A scalar of several programs becomes the tensor of the program at the origin.
            if op.name == "tt.splat":
                numbers = np.broadcast_to(numbers.reshape(-1)[:1], shape or (1,)) if shape else None
            elif op.name == "tt.expand_dims":
                axis = re.search(r"axis = (\d+)", op.attributes)
                numbers = np.expand_dims(numbers, int(axis.group(1))) if axis else None
            elif op.name == "tt.broadcast":
                fits = int(np.prod(shape, dtype=np.int64)) <= _MOST_ELEMENTS
                numbers = np.broadcast_to(numbers, shape) if fits else None
            elif op.name == "tt.trans":
                order = numbers_in(op.text, "order") or [
                    int(n) for n in re.findall(r"order = array<i32: ([0-9, ]+)>", op.text)[:1] for n in n.split(",")
                ]
                numbers = numbers.transpose(order) if order else None
            else:
                numbers = numbers.reshape(shape) if int(np.prod(shape)) == numbers.size else None
        along = op.name == "tt.expand_dims" and bool(shape) and shape[-1] == 1
        self.put(op, replace(source, numbers=numbers, ragged=source.ragged and not along))

    def _addptr(self, op: Operation) -> None:
        base, offset = (self.get(o) for o in op.operands[:2])
        numbers = None
        if base.numbers is not None and offset.numbers is not None:
            numbers = base.numbers + offset.numbers
        found = _made_of((base, offset))
        self.put(op, replace(found, numbers=numbers, pointer=base.pointer, element=base.element))

    def _access(self, op: Operation) -> None:
        pointer = self.get(op.operands[0]) if op.operands else UNKNOWN
        kinds = [kind for kind in tensor_types(op.types) if kind.pointer]
        kind = {"tt.load": "load", "tt.store": "store", "tt.atomic_rmw": "store"}.get(op.name, "async copy")
        scalar = re.search(r"!tt\.ptr<(\w+)>", op.types)
        if kinds:
            shape, element, layout = kinds[0].shape, kinds[0].element, kinds[0].layout
        elif scalar:
            shape, element, layout = (), scalar.group(1), None
        else:
            self.unread.add(op.name)
            return
        bits = element_bits(element)
        if bits is None:
            self.unread.add(f"element type {element}")
            return
        mask = self._mask(op, kind)
        self.holds |= self._exactly(pointer) | (set() if mask is None else self._exactly(mask))
        # What a mask made of loaded data lets through is not known: all of it.
        mask_numbers = None if mask is None or mask.numbers is None else mask.numbers
        count = float(np.prod(shape, dtype=np.int64))
        if mask_numbers is not None and shape:
            count = float(np.broadcast_to(mask_numbers, shape).astype(bool).sum())
        address = None if pointer.numbers is None or not shape else pointer.numbers * (bits // 8)
        if address is not None and address.shape != shape:
            address = np.broadcast_to(address, shape) if address.ndim == len(shape) else None
        # A copy is never narrower than its four bytes.
        alone = mask is not None and mask.ragged and kind != "async copy"
        where = layout_of(layout, self.layouts, shape)
        touch = touched(where, address, mask_numbers, bits // 8, once=kind == "store", alone=alone)
        per_lane = None if touch is None else touch.bytes_per_lane
        if kind == "async copy" and per_lane is not None and per_lane < 4:
            per_lane = None
        distinct, sectors, running = count, None, None
        if address is not None:
            running = address if mask_numbers is None else address[np.broadcast_to(mask_numbers, shape).astype(bool)]
            distinct = float(np.unique(running).size)
            sectors = float(np.unique(running // SECTOR_BYTES).size * SECTOR_BYTES)
        access = MemoryAccess(
            "loop" if self.loop_stack else "", kind, op.place, element, shape, distinct * bits / 8, count * bits / 8,
            sectors, per_lane, None if touch is None else touch.lines_per_warp, pointer.loaded, pointer.axes,
            pointer.pointer, warp_sector_bytes=None if touch is None else touch.sector_bytes, addresses=running,
        )  # fmt: skip
        loads = pointer.loads + (kind != "store")
        self.note(op, "access", access, loads)
        if kind == "load":
            value = replace(self._loaded_value(shape, element, loads), axes=pointer.axes)
            if not shape and pointer.pointer:
                value.expression = f"{pointer.pointer}[]"
            self.put(op, value)
        else:
            self.put(op, Value(loaded=True, loads=loads, axes=pointer.axes))

    def _mask(self, op: Operation, kind: str) -> Value | None:
        if kind == "async copy":
            found = re.search(r"mask (%[\w$.-]+(?:#\d+)?)", op.text)
            return self.get(found.group(1)) if found else None
        position = 2 if op.name == "tt.store" else 1
        return self.get(op.operands[position]) if len(op.operands) > position else None

    def _loaded_value(self, shape: tuple[int, ...], element: str, loads: int) -> Value:
        """What a load gives: nothing known for floats; integers that name unrelated places."""
        value = Value(loaded=True, loads=loads)
        if element.startswith("i") and int(np.prod(shape, dtype=np.int64)) <= _MOST_ELEMENTS:
            # A scalar is usually a length or an offset; large, so that masks made of it let everything through.
            value.numbers = (
                self.random.integers(0, 1 << 22, size=shape, dtype=np.int64)
                if shape
                else np.full(1, LOADED_LENGTH, dtype=np.int64)
            )
        return value

    def _bulk(self, op: Operation) -> None:
        kinds = tensor_types(op.types)
        if not kinds or element_bits(kinds[-1].element) is None:
            self.unread.add(op.name)
            return
        shape, element = kinds[-1].shape, kinds[-1].element
        bits = element_bits(element) or 0
        kind = "store" if op.name in BULK_STORES else "bulk copy"
        size = float(np.prod(shape, dtype=np.int64)) * bits / 8
        loaded = any(self.get(o).loaded for o in op.operands)
        loads = max((self.get(o).loads for o in op.operands), default=0) + 1
        axes = _axes([self.get(o) for o in op.operands])
        self.note(
            op,
            "access",
            MemoryAccess(
                "loop" if self.loop_stack else "",
                kind,
                op.place,
                element,
                shape,
                size,
                size,
                size,
                None,
                None,
                loaded,
                axes,
                self.get(op.operands[0]).pointer if op.operands else None,
            ),
            loads,
        )
        self.put(op, Value(loaded=True, loads=loads, axes=axes))
