"""What one CTA of a kernel does, read from its TTGIR: bytes, FLOPs, iterations, and how its loads touch memory.

Parses the text that Triton keeps as `asm["ttgir"]`; Triton itself is not needed. Integer arithmetic is evaluated for
the CTA at the origin of the grid, with the arguments' values, so that masks and addresses are known where they do not
depend on loaded data. Loaded integers stand for unrelated values: a gather touches one line for each row that its
indices name, which is the most it can. From the addresses and a tensor's layout follow the bytes a lane loads at once
and the 128-byte lines that a warp's load touches.

Two loads of one place in the source are one load (Triton repeats cheap ones for each layout that needs them); a load
that stands both before and in the loop is a software pipeline's, so it counts for the loop. Where something cannot be
read, it is None, never 0.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.compile.sass import (
    SassKernel,
    loop_loads,
    loop_mix,
    main_loop,
    parse_sass,
    specialized_warps,
    warp_path,
)
from occupancy_cli.errors import InputError
from occupancy_cli.model.pipeline import DRAM_BANDWIDTH_SHARE, SmGpu, dram_share, l1_bytes, sm_rates, time_path
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.work import CtaWork

Ints = npt.NDArray[np.int64]
Axes = tuple[tuple[int, int], ...]
Floats = npt.NDArray[np.float64]

_BITS = {
    "f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 8,
}  # fmt: skip
_LINE_BYTES = 128
_SECTOR_BYTES = 32
_MOST_ELEMENTS = 1 << 20  # tensors beyond are not evaluated
_GATHER_SEED = 20240607
# An argument without a value: large, so that rows lie apart and masks let everything through; a multiple of 16 where
# the compiler was told so. Iterations are never told from it.
_GUESSED_ALIGNED, _GUESSED = 4096, 4099
_LONG = 1 << 30  # what a loaded length is taken to be
_UNBOUNDED = 1 << 20  # iterations beyond come from such a length alone


@dataclass(frozen=True)
class MemoryAccess:
    """One load or store of global memory, as it stands in the source.

    `where` is "prologue", "loop" or "epilogue"; `kind` "load", "async copy", "bulk copy" or "store". `bytes` are the
    distinct ones of one execution by one CTA, `requested_bytes` what its lanes ask for (a scale that 64 lanes read
    counts 64 times), `sector_bytes` the distinct 32-byte sectors they lie in, None where the address could not be read;
    elements that are known to be masked count in none. `bytes_per_lane` is what a lane moves at
    once and `lines_per_warp` the 128-byte lines that one warp's access touches on average, None where the layout or the
    address could not be read. `gathered` says that its address depends on loaded data. `axes` pairs the grid axes that
    its address depends on with how many neighbouring programs share it (1: each its own); None where that is not a
    matter of single axes. `pointer` is the argument it goes through, `addresses` the bytes' places relative to it.
    """

    where: str
    kind: str
    place: str
    dtype: str
    shape: tuple[int, ...]
    bytes: float
    requested_bytes: float
    sector_bytes: float | None
    bytes_per_lane: int | None
    lines_per_warp: float | None
    gathered: bool
    axes: Axes | None = ()
    pointer: str | None = None
    addresses: Ints | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class IrWork:
    """The work of one CTA as its IR says, and where it comes from.

    `trip_count` is the main loop's iterations as an expression of the arguments and program ids (pid0, ...), and
    `iterations` its value for each program of the grid in launch order (x fastest); None where they depend on loaded
    data or on arguments without a value. `unread` lists what was met and not understood.
    """

    kernel: str
    num_warps: int
    accesses: tuple[MemoryAccess, ...]
    trip_count: str | None
    iterations: tuple[float, ...] | None
    work: CtaWork
    unread: tuple[str, ...] = ()

    @property
    def lines_by_bytes(self) -> dict[int, float]:
        """Bytes a lane loads at once -> lines a warp's load touches, over the loads that go through registers."""
        sums: dict[int, list[float]] = {}
        for access in self.accesses:
            if access.kind == "load" and access.bytes_per_lane and access.lines_per_warp:
                sums.setdefault(access.bytes_per_lane, []).append(access.lines_per_warp)
        return {size: sum(found) / len(found) for size, found in sums.items()}

    @property
    def traffic_by_bytes(self) -> dict[int, float]:
        """Bytes a lane loads at once -> bytes that come from beyond the L1 for each byte asked for, over the loads that
        go through registers: what lanes ask for again is in the L1 by then."""
        sums: dict[int, list[float]] = {}
        for access in self.accesses:
            if access.kind == "load" and access.bytes_per_lane and access.sector_bytes and access.requested_bytes:
                total = sums.setdefault(access.bytes_per_lane, [0.0, 0.0])
                total[0] += access.sector_bytes
                total[1] += self._asked(access)
        return {size: moved / asked for size, (moved, asked) in sums.items()}

    @property
    def misses_by_bytes(self) -> dict[int, float]:
        """Bytes a lane loads at once -> loads of a warp that find nothing of theirs in the L1, over the loads that go
        through registers: as many as distinct sectors take, at the sectors that one load touches."""
        sums: dict[int, float] = {}
        for access in self.accesses:
            if access.kind != "load" or not access.bytes_per_lane or not access.lines_per_warp:
                continue
            if not access.sector_bytes or access.where != "loop":
                continue
            different = min(access.bytes / self._asked(access), 1.0)  # of the bytes that lanes ask for
            touched = max(access.lines_per_warp, access.bytes_per_lane * different * 32.0 / _SECTOR_BYTES)
            misses = max(access.sector_bytes / _SECTOR_BYTES / touched, 1.0)
            sums[access.bytes_per_lane] = sums.get(access.bytes_per_lane, 0.0) + misses
        return sums

    def _asked(self, access: MemoryAccess) -> float:
        """Bytes that all lanes of the instructions ask for: of a small tensor, several lanes load the same element."""
        whole = math.prod(access.shape) * (element_bits(access.dtype) or 0) / 8
        return max(whole, access.requested_bytes, 32.0 * self.num_warps * (access.bytes_per_lane or 0))

    def passes(self, loaded: Counter[int]) -> float:
        """Iterations that one pass of the machine's loop covers, from the loads of a thread in it: `loaded` counts them
        by the bytes they move.

        The compiler repeats loads, small ones for each layout that needs their values, but leaves none out: of the
        ratios by width, and of all bytes together, the least tells.
        """
        in_loop = [a for a in self.accesses if a.where == "loop" and a.kind in ("load", "async copy")]
        threads = 32.0 * self.num_warps
        expected: dict[int, float] = {}
        total = 0.0
        for access in in_loop:
            asked = self._asked(access) / threads if access.shape else access.requested_bytes
            total += asked
            if access.bytes_per_lane:
                expected[access.bytes_per_lane] = expected.get(access.bytes_per_lane, 0.0) + asked
        ratios = [loaded[size] * size / asked for size, asked in expected.items() if loaded[size] and asked]
        if total:
            ratios.append(sum(size * count for size, count in loaded.items()) / total)
        return float(max(round(min(ratios, default=1.0)), 1))


# ---------------------------------------------------------------------------------------------------------------------
# Text to operations.


@dataclass
class _Op:
    """One operation: its results, name, operand names, attributes, types behind the colon, place, and what it holds."""

    results: list[str]
    name: str
    operands: list[str]
    text: str
    attributes: str
    types: str
    place: str
    children: list[_Op] = field(default_factory=list)
    yields: list[str] = field(default_factory=list)

    @property
    def is_tensor(self) -> bool:
        """Whether the operation works on tensors or buffers, not on scalars."""
        return "tensor<" in self.text or "memdesc<" in self.text


_RESULTS = re.compile(r"^((?:%[\w$.#-]+(?::\d+)?(?:,\s*)?)+)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-z_]+[\w.]*)"?')
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LOC = re.compile(r"\s*loc\((#\w+|.*)\)\s*$")
_LOC_DEFINITION = re.compile(r"^(#loc\d*)\s*=\s*loc\((.*)\)\s*$")
_FILE_LOC = re.compile(r'"([^"]*)":(\d+):(\d+)')
_FUNCTION = re.compile(r"tt\.func\s+(?:public\s+|private\s+)?@([\w$.]+)\((.*)$")
_ARGUMENT = re.compile(r"%([\w$.]+):\s*(!tt\.ptr<[^>]*>|!tt\.tensordesc<[^>]*>+|[\w.]+)\s*(\{[^}]*\})?")
_ATTRIBUTES = re.compile(r"(?<!<)\{[^{}]*\}")
_FOR = re.compile(r"scf\.for\s+(?:unsigned\s+)?(%[\w$.-]+)\s*=\s*(\S+)\s+to\s+(\S+)\s+step\s+(\S+)")
_PARTITION_ARGUMENT = re.compile(r"(%[\w$.-]+):")
_ITER_ARGS = re.compile(r"iter_args\((.*?)\)\s*->")
_TENSOR = re.compile(r"(?:tensor|memdesc)<([0-9x]*x)?(!tt\.ptr<(\w+)>|\w+)(?:,\s*(#[\w.]+(?:<\{.*?\}>)?))?")


@dataclass
class _Function:
    name: str
    arguments: list[tuple[str, str, str]]  # name, type, attributes
    ops: list[_Op]


def _functions(text: str) -> tuple[list[_Function], dict[str, str], int]:
    """The functions, the layout definitions by name, and the warps of a CTA."""
    places: dict[str, str] = {}
    layouts: dict[str, str] = {}
    lines = text.splitlines()
    for line in lines:
        found = _LOC_DEFINITION.match(line.strip())
        if found:
            places[found.group(1)] = found.group(2)
        elif line.startswith("#") and " = #" in line:
            name, _, definition = line.partition(" = ")
            layouts[name.strip()] = definition.strip()
    warps = re.search(r'"ttg\.(?:total-)?num-warps"\s*=\s*(\d+)', text)
    functions: list[_Function] = []
    stack: list[list[_Op]] = []
    owners: list[_Op | None] = []
    for raw in lines:
        line = raw.strip()
        function = _FUNCTION.search(line)
        if function:
            functions.append(_Function(function.group(1), _ARGUMENT.findall(function.group(2)), []))
            stack, owners = [functions[-1].ops], [None]
            continue
        if not stack or not line or line.startswith(("#", "//", "^")):
            continue
        if line.startswith("}"):
            closing = stack.pop()
            owner = owners.pop()
            if owner is not None:
                for inner in closing:
                    if inner.name == "scf.yield":
                        owner.yields = owner.yields or inner.operands
            if not stack:
                continue
            if line.endswith("{") and owner is not None:  # } else { , } do {
                stack.append(owner.children)
                owners.append(owner)
            continue
        read = _operation(line, places)
        if read is None:
            continue
        op = read
        stack[-1].append(op)
        if line.endswith(("{", "({")):
            stack.append(op.children)
            owners.append(op)
    return functions, layouts, int(warps.group(1)) if warps else 4


def _operation(line: str, places: Mapping[str, str]) -> _Op | None:
    place = ""
    found_loc = _LOC.search(line)
    body = line
    if found_loc and not line.endswith("{"):
        place = _place(found_loc.group(1), places)
        body = line[: found_loc.start()]
    results: list[str] = []
    found = _RESULTS.match(body)
    if found:
        for part in found.group(1).split(","):
            name, _, count = part.strip().partition(":")
            results.append(name)
            results.extend(f"{name}#{i}" for i in range(int(count or 0)))
        body = found.group(2)
    named = _NAME.match(body)
    if not named:
        return None
    name = named.group(1)
    # Attributes stand in braces; a brace behind "<" belongs to a layout.
    attributes = " ".join(_ATTRIBUTES.findall(body))
    head, _, types = _ATTRIBUTES.sub("", body).partition(" : ")
    operands = _OPERAND.findall(head[named.end() :])
    return _Op(results, name, operands, body, attributes, types, place)


def _place(reference: str, places: Mapping[str, str], depth: int = 0) -> str:
    """`file:line:column` of a loc reference, following names and call sites inward."""
    text = places.get(reference, reference) if reference.startswith("#") else reference
    found = _FILE_LOC.search(text)
    if found:
        return f"{found.group(1).rsplit('/', 1)[-1]}:{found.group(2)}:{found.group(3)}"
    if depth < 12:
        for inner in re.findall(r"#loc\d*", text):
            place = _place(inner, places, depth + 1)
            if place:
                return place
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# Types and layouts.


@dataclass(frozen=True)
class _Type:
    shape: tuple[int, ...]
    element: str
    pointer: bool
    layout: str | None


def _types(text: str) -> list[_Type]:
    """The tensor and memdesc types of a type list, in order."""
    found = []
    for match in _TENSOR.finditer(text):
        dims = tuple(int(d) for d in (match.group(1) or "").rstrip("x").split("x") if d)
        pointee = match.group(3)
        layout = match.group(4)
        if layout and layout.startswith("#ttg.slice"):
            layout = _balanced(text, match.start(4))
        found.append(_Type(dims, pointee or match.group(2), pointee is not None, layout))
    return found


def _balanced(text: str, start: int) -> str:
    """The text from `start` to the bracket that closes the first one opened."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] == "<":
            depth += 1
        elif text[i] == ">":
            depth -= 1
            if not depth:
                return text[start : i + 1]
    return text[start:]


def element_bits(element: str) -> int | None:
    """Bits of an element type of the IR: 16 for bf16, 8 for f8E4M3FN; None for a type that is not known."""
    if element.startswith("f8"):
        return 8
    if element.startswith(("f4", "f6")):
        return 8
    return _BITS.get(element)


def _numbers(text: str, key: str) -> list[int]:
    found = re.search(rf"{key} = \[([0-9, ]*)\]", text)
    return [int(n) for n in found.group(1).split(",") if n.strip()] if found else []


def _bases(text: str, key: str) -> list[list[int]]:
    found = re.search(rf"{key} = \[((?:\[[0-9, ]*\](?:, )?)*)\]", text)
    return (
        [[int(n) for n in base.split(",")] for base in re.findall(r"\[([0-9, ]+)\]", found.group(1))] if found else []
    )


class _Layout:
    """Where a tensor's elements lie: coordinates by (register, lane, warp), each an array of shape
    [registers, 32, warps]."""

    def __init__(self, coordinates: list[Ints]) -> None:
        self.coordinates = coordinates


def _layout(text: str | None, layouts: Mapping[str, str], shape: tuple[int, ...]) -> _Layout | None:
    """The distributed layout called `text`, or None when it is of a kind that is not read (mma and dot operands)."""
    if text is None or not shape:
        return None
    definition = layouts.get(text, text)
    if definition.startswith("#ttg.slice"):
        found = re.search(r"dim = (\d+), parent = (.*)\}>$", definition)
        if not found:
            return None
        dim = int(found.group(1))
        parent = _layout(found.group(2), layouts, (*shape[:dim], 1, *shape[dim:]))
        return None if parent is None else _Layout([c for d, c in enumerate(parent.coordinates) if d != dim])
    if definition.startswith("#ttg.blocked"):
        size, threads = _numbers(definition, "sizePerThread"), _numbers(definition, "threadsPerWarp")
        warps, order = _numbers(definition, "warpsPerCTA"), _numbers(definition, "order")
        if not len(size) == len(threads) == len(warps) == len(order) == len(shape):
            return None
        return _blocked(shape, size, threads, warps, order)
    if definition.startswith("#ttg.linear"):
        return _linear(definition, shape)
    return None


def _blocked(
    shape: tuple[int, ...], size: list[int], threads: list[int], warps: list[int], order: list[int]
) -> _Layout:
    def spread(count_by_dim: list[int]) -> list[Ints]:
        """Linear index -> coordinate of each dimension, the dimensions in `order`, fastest first."""
        total = int(np.prod(count_by_dim))
        index = np.arange(total, dtype=np.int64)
        parts = [np.zeros(total, dtype=np.int64)] * len(count_by_dim)
        for d in order:
            parts[d] = index % count_by_dim[d]
            index = index // count_by_dim[d]
        return parts

    tile = [s * t * w for s, t, w in zip(size, threads, warps, strict=True)]
    repeats = [max(-(-n // t), 1) for n, t in zip(shape, tile, strict=True)]
    inner, outer, lane, warp = spread(size), spread(repeats), spread(threads), spread(warps)
    coordinates = []
    for d, n in enumerate(shape):
        registers = (outer[d][:, None] * tile[d] + inner[d][None, :]).reshape(-1)
        value = (
            registers[:, None, None]
            + (lane[d] * size[d])[None, :, None]
            + (warp[d] * size[d] * threads[d])[None, None, :]
        )
        coordinates.append(value % n)
    return _Layout(coordinates)


def _linear(definition: str, shape: tuple[int, ...]) -> _Layout | None:
    registers, lanes, warps = (_bases(definition, key) for key in ("register", "lane", "warp"))
    if len(lanes) != 5 or any(len(base) != len(shape) for base in (*registers, *lanes, *warps)):
        return None

    def combine(bases: list[list[int]], d: int) -> Ints:
        index = np.arange(1 << len(bases), dtype=np.int64)
        value = np.zeros_like(index)
        for bit, base in enumerate(bases):
            value ^= np.where(index >> bit & 1, base[d], 0)
        return value

    return _Layout(
        [
            (combine(registers, d)[:, None, None] ^ combine(lanes, d)[None, :, None] ^ combine(warps, d)[None, None, :])
            % n
            for d, n in enumerate(shape)
        ]
    )


def _touch(
    layout: _Layout | None, address: Ints | None, mask: Ints | None, element_bytes: int
) -> tuple[int | None, float | None]:
    """(bytes a lane accesses at once, 128-byte lines that a warp's access touches) of a tensor of byte addresses."""
    if layout is None or address is None:
        return None, None
    where = tuple(layout.coordinates)
    if address.ndim != len(where):
        return None, None
    at = address[where]  # [registers, lanes, warps]
    active = np.ones_like(at, dtype=bool) if mask is None else np.broadcast_to(mask, address.shape)[where].astype(bool)
    together = 1
    while (
        together * 2 * element_bytes <= 16
        and at.shape[0] % (together * 2) == 0
        and _contiguous(at, together * 2, element_bytes)
    ):
        together *= 2
    first = at[::together]
    running = active[::together]
    lines = first // _LINE_BYTES
    counts = []
    for r in range(first.shape[0]):
        for w in range(first.shape[2]):
            touched = lines[r, running[r, :, w], w]
            if touched.size:
                counts.append(np.unique(touched).size)
    return together * element_bytes, (float(np.mean(counts)) if counts else None)


def _run_bytes(addresses: Ints, element_bytes: int) -> float:
    """Bytes that lie beside one another, averaged over the bytes: of each run of consecutive addresses."""
    at = np.unique(addresses)
    starts = np.flatnonzero(np.diff(at, prepend=at[0] - 2 * element_bytes) > element_bytes)
    lengths = np.diff(starts, append=at.size) * element_bytes
    return float((lengths.astype(float) ** 2).sum() / lengths.sum())


def _contiguous(at: Ints, count: int, element_bytes: int) -> bool:
    """Whether each run of `count` registers holds consecutive, aligned elements on every lane."""
    runs = at.reshape(-1, count, *at.shape[1:])
    steps = np.arange(count, dtype=np.int64)[None, :, None, None] * element_bytes
    first = runs[:, :1]
    return bool(np.all(runs - first == steps) and np.all(first % (count * element_bytes) == 0))


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation.


@dataclass
class _Value:
    """An integer scalar (one value a program), an integer tensor, or a pointer (element offsets from an argument).

    `numbers` is None when the value is not known. `loaded` marks values that depend on loaded data, `given` those that
    depend on an argument that another launch of the same kernel may have another value of, `guessed` those
    that depend on an argument without a value; `loads` is the length of the longest chain of loads that led here.
    `expression` is a scalar's text. `axes` are the grid axes it depends on, as in `MemoryAccess`.
    """

    numbers: Ints | None = None
    pointer: str | None = None
    element: str = ""
    loaded: bool = False
    guessed: bool = False
    given: bool = False
    loads: int = 0
    expression: str | None = None
    axes: Axes | None = ()


_UNKNOWN = _Value()


def _axes(values: Sequence[_Value]) -> Axes | None:
    """The grid axes that a value made of `values` depends on."""
    found: dict[int, int] = {}
    for value in values:
        if value.axes is None:
            return None
        for axis, together in value.axes:
            found[axis] = min(found.get(axis, together), together)
    return tuple(sorted(found.items()))


_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
    "sge": np.greater_equal, "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip
_ARITHMETIC: dict[str, tuple[Any, str]] = {
    "addi": (np.add, "({} + {})"), "subi": (np.subtract, "({} - {})"), "muli": (np.multiply, "{} * {}"),
    "minsi": (np.minimum, "min({}, {})"), "maxsi": (np.maximum, "max({}, {})"),
    "minui": (np.minimum, "min({}, {})"), "maxui": (np.maximum, "max({}, {})"),
    "andi": (np.bitwise_and, "({} & {})"), "ori": (np.bitwise_or, "({} | {})"), "xori": (np.bitwise_xor, "({} ^ {})"),
    "shli": (np.left_shift, "({} << {})"), "shrsi": (np.right_shift, "({} >> {})"),
    "shrui": (np.right_shift, "({} >> {})"),
}  # fmt: skip
# What keeps programs apart that were apart before; other scalar arithmetic may bring them together.
_KEEPS_AXES = {"addi", "subi", "muli", "extsi", "extui", "trunci", "index_cast", "bitcast"}
_FLOAT_OPS = {
    "arith.addf": 1, "arith.subf": 1, "arith.mulf": 1, "arith.divf": 1, "arith.maximumf": 1, "arith.minimumf": 1,
    "arith.maxnumf": 1, "arith.minnumf": 1, "math.exp2": 1, "math.exp": 1, "math.log2": 1, "math.log": 1,
    "math.sqrt": 1, "math.rsqrt": 1, "math.sin": 1, "math.cos": 1, "math.tanh": 1, "math.erf": 1, "math.fma": 2,
    "tt.reduce": 1,
}  # fmt: skip
_SAME = {
    "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.bitcast", "tt.bitcast",
    "ttg.convert_layout", "tt.int_to_ptr", "tt.ptr_to_int",
}  # fmt: skip
_DOTS = {"tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "tt.dot_scaled", "ttng.tc_gen5_mma_scaled"}
_ACCESSES = {"tt.load", "tt.store", "ttg.async_copy_global_to_local", "tt.atomic_rmw"}
_BULK_LOADS = {"tt.descriptor_load", "tt.descriptor_gather", "ttng.async_tma_copy_global_to_local",
               "ttng.async_tma_gather"}  # fmt: skip
_BULK_STORES = {"tt.descriptor_store", "ttng.async_tma_copy_local_to_global"}


@dataclass
class _Found:
    """What the walk over the operations gathers, with the loop they lie in ([] outside)."""

    op: _Op
    kind: str
    loops: tuple[int, ...]
    after: bool
    access: MemoryAccess | None = None
    loads: int = 0


def _divided(came: Sequence[_Value]) -> Axes | None:
    """Axes of the quotient of a program id and a constant: neighbours come together."""
    number, divisor = came[0], came[1].numbers
    if number.axes is None or len(number.axes) != 1 or came[1].axes or came[1].loaded or divisor is None:
        return None
    plain = number.expression == f"pid{number.axes[0][0]}"
    if not plain or divisor.size != 1 or int(divisor.reshape(-1)[0]) < 1:
        return None
    axis, together = number.axes[0]
    return ((axis, together * int(divisor.reshape(-1)[0])),)


def _argument_names(function: _Function, arguments: Mapping[str, Any]) -> list[str]:
    """The arguments' names. Triton before 3.6 numbers them (arg0, arg1, ...), without those that became constants: the
    names of `arguments` then follow in order, if each pointer falls on a pointer and each number on a number."""
    written = [name for name, _, _ in function.arguments]
    if not written or not all(re.fullmatch(r"arg\d+", name) for name in written):
        return written
    for names in ([n for n, v in arguments.items() if v != 1], list(arguments)):
        pairs = list(zip(names, function.arguments, strict=False))
        if len(pairs) == len(written) and all(
            isinstance(arguments[name], int | float) != kind.startswith("!tt") for name, (_, kind, _) in pairs
        ):
            return [name for name, _ in pairs]
    return written


class _Reader:
    """Walks a function once, evaluating as it goes."""

    def __init__(
        self,
        function: _Function,
        layouts: Mapping[str, str],
        arguments: Mapping[str, Any],
        grid: Sequence[int],
        scalars_only: bool = False,
    ) -> None:
        self.layouts = layouts
        self.scalars_only = scalars_only
        self.values: dict[str, _Value] = {}
        self.found: list[_Found] = []
        self.loops: list[_Op] = []
        self.trips: dict[int, tuple[_Value, _Value, _Value]] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.unread: set[str] = set()
        self.partition = 0
        self.partition_of: dict[int, int] = {}
        self.shared_operands: list[str] = []
        self.random = np.random.default_rng(_GATHER_SEED)
        total = int(np.prod(grid)) if grid else 1
        linear = np.arange(total, dtype=np.int64)
        self.ids = []
        for extent in (*grid, 1, 1, 1)[:3]:
            self.ids.append(linear % extent)
            linear = linear // extent
        self.grid = (*grid, 1, 1, 1)[:3]
        for (written, kind, told), name in zip(function.arguments, _argument_names(function, arguments), strict=True):
            pointee = re.match(r"!tt\.ptr<(\w+)", kind)
            if pointee:
                zero = np.zeros(1, dtype=np.int64)
                self.values["%" + written] = _Value(zero, name, pointee.group(1), expression=name)
                continue
            given = arguments.get(name)
            if isinstance(given, int) and not isinstance(given, bool):
                self.values["%" + written] = _Value(np.array([given], dtype=np.int64), given=True, expression=name)
            elif kind in ("i32", "i64"):
                number = _GUESSED_ALIGNED if "tt.divisibility" in told else _GUESSED
                self.values["%" + written] = _Value(np.array([number], dtype=np.int64), guessed=True, expression=name)
            else:
                self.values["%" + written] = _Value(expression=name)
        self.loop_stack: list[int] = []
        self.walk(function.ops)

    # -- helpers

    def get(self, name: str) -> _Value:
        return self.values.get(name, _UNKNOWN)

    def put(self, op: _Op, value: _Value) -> None:
        for name in op.results:
            self.values[name] = value

    def walk(self, ops: Sequence[_Op]) -> None:
        for op in ops:
            try:
                self.step(op)
            except (ValueError, IndexError) as broken:
                # Shapes that do not fit together: an operation of a form not met before. Its results stay unknown.
                self.unread.add(f"{op.name}: {broken}")
                self.put(op, _UNKNOWN)

    def step(self, op: _Op) -> None:
        name = op.name
        if name == "scf.for":
            self._loop(op)
        elif self.scalars_only and op.is_tensor:
            if name in _DOTS or name in _ACCESSES:
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
        elif name in ("scf.if", "scf.while", "scf.execute_region"):
            self.walk(op.children)
            for i, result in enumerate(op.results[1:] if len(op.results) > 1 else op.results):
                self.values[result] = self.get(op.yields[i]) if i < len(op.yields) else _UNKNOWN
        elif name == "arith.constant":
            self._constant(op)
        elif name == "tt.get_program_id":
            axis = "xyz".index(op.text.split()[1][0]) if len(op.text.split()) > 1 else 0
            self.put(op, _Value(self.ids[axis], expression=f"pid{axis}", axes=((axis, 1),)))
        elif name == "tt.get_num_programs":
            axis = "xyz".index(op.text.split()[1][0]) if len(op.text.split()) > 1 else 0
            self.put(op, _Value(np.array([self.grid[axis]]), expression=f"programs{axis}"))
        elif name == "tt.make_range":
            bounds = re.search(r"end = (\d+).*?start = (\d+)", op.attributes)
            if bounds:
                self.put(op, _Value(np.arange(int(bounds.group(2)), int(bounds.group(1)), dtype=np.int64)))
        elif name.startswith(("arith.", "math.")) or name in _SAME:
            self._arithmetic(op)
        elif name in ("tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans"):
            self._shape(op)
        elif name == "tt.addptr":
            self._addptr(op)
        elif name in _ACCESSES:
            self._access(op)
        elif name in _BULK_LOADS | _BULK_STORES:
            self._bulk(op)
        else:
            # A value that passes through shared memory, a reduction or anything else keeps its history of loads.
            self.walk(op.children)
            came = [self.get(o) for o in op.operands]
            self.put(
                op,
                _Value(
                    loaded=any(v.loaded for v in came),
                    guessed=any(v.guessed for v in came),
                    given=any(v.given for v in came),
                    loads=max((v.loads for v in came), default=0),
                    axes=_axes(came),
                ),
            )
        if name in _DOTS or name in _FLOAT_OPS or name in (
            "ttg.local_alloc", "ttg.local_load", "ttg.local_store", "ttg.convert_layout", "ttg.async_commit_group",
        ):  # fmt: skip
            self.note(op, "other")

    def note(self, op: _Op, kind: str, access: MemoryAccess | None = None, loads: int = 0) -> None:
        self.found.append(_Found(op, kind, tuple(self.loop_stack), bool(self.loops), access, loads))

    def _loop(self, op: _Op) -> None:
        header = _FOR.search(op.text)
        number = len(self.loops)
        self.loops.append(op)
        self.parents[number] = tuple(self.loop_stack)
        self.partition_of[number] = self.partition
        initial = _ITER_ARGS.search(op.text)
        pairs = re.findall(r"(%[\w$.-]+)\s*=\s*(%[\w$.-]+(?:#\d+)?)", initial.group(1)) if initial else []
        if header:
            induction, lower, upper, step = header.groups()
            bounds = (self.get(lower), self.get(upper), self.get(step))
            self.trips[number] = bounds
            self.values[induction] = replace(bounds[0], expression=None, axes=_axes((bounds[0], bounds[2])))
        for name, start in pairs:
            # After the first iteration a carried value may depend on loads; its first value stands for all.
            self.values[name] = self.get(start)
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

    def _constant(self, op: _Op) -> None:
        found = re.search(r"arith\.constant\s+(?:dense<)?(-?[\w.+-]+)>?", op.text)
        kinds = _types(op.types)
        shape = kinds[0].shape if kinds else ()
        value: int | None = None
        if found:
            token = found.group(1)
            if token in ("true", "false"):
                value = int(token == "true")
            elif re.fullmatch(r"-?\d+", token):
                value = int(token)
        if value is None or int(np.prod(shape, dtype=np.int64)) > _MOST_ELEMENTS:
            self.put(op, _UNKNOWN)
            return
        self.put(op, _Value(np.full(shape or (1,), value, dtype=np.int64), expression=None if shape else str(value)))

    def _arithmetic(self, op: _Op) -> None:
        kind = op.name.split(".")[-1]
        came = [self.get(o) for o in op.operands]
        loaded, loads = any(v.loaded for v in came), max((v.loads for v in came), default=0)
        guessed, given = any(v.guessed for v in came), any(v.given for v in came)
        result = _Value(loaded=loaded, guessed=guessed, given=given, loads=loads, axes=_axes(came))
        numbers = [v.numbers for v in came]
        texts = [v.expression for v in came]
        if op.name in _SAME and came:
            result = replace(came[0], loaded=loaded, guessed=guessed, given=given, loads=loads)
        elif kind == "select" and len(came) == 3:
            known = [n for n in numbers if n is not None]
            if len(known) == 3:
                result.numbers = np.where(known[0] != 0, known[1], known[2])
                result.pointer, result.element = came[1].pointer, came[1].element
        elif kind == "cmpi" and len(came) == 2 and numbers[0] is not None and numbers[1] is not None:
            predicate = op.text.split()[1].rstrip(",")
            compare = _COMPARE.get(predicate)
            if compare is not None:
                result.numbers = compare(numbers[0], numbers[1]).astype(np.int64)
                if (loaded or given) and op.is_tensor:
                    # Which rows loaded data lets through is not known, and an argument lets others through in another
                    # launch: all of them.
                    result.numbers = np.ones_like(result.numbers)
        elif len(came) == 2 and kind in _ARITHMETIC:
            function, form = _ARITHMETIC[kind]
            if numbers[0] is not None and numbers[1] is not None:
                result.numbers = function(numbers[0], numbers[1])
            if texts[0] is not None and texts[1] is not None:
                result.expression = _simplified(kind, texts[0], texts[1], form)
        elif len(came) == 2 and kind in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"):
            if numbers[0] is not None and numbers[1] is not None and not np.any(numbers[1] == 0):
                quotient = numbers[0] // numbers[1]
                result.numbers = numbers[0] - quotient * numbers[1] if kind.startswith("rem") else quotient
            if texts[0] is not None and texts[1] is not None:
                result.expression = f"({texts[0]} {'%' if kind.startswith('rem') else '//'} {texts[1]})"
        if result.axes and not op.is_tensor and kind not in _KEEPS_AXES:
            result.axes = _divided(came) if kind in ("divsi", "divui", "floordivsi") else None
        self.put(op, result)

    def _shape(self, op: _Op) -> None:
        source = self.get(op.operands[0]) if op.operands else _UNKNOWN
        kinds = _types(op.types)
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
                order = _numbers(op.text, "order") or [
                    int(n) for n in re.findall(r"order = array<i32: ([0-9, ]+)>", op.text)[:1] for n in n.split(",")
                ]
                numbers = numbers.transpose(order) if order else None
            else:
                numbers = numbers.reshape(shape) if int(np.prod(shape)) == numbers.size else None
        self.put(op, replace(source, numbers=numbers, expression=None))

    def _addptr(self, op: _Op) -> None:
        base, offset = (self.get(o) for o in op.operands[:2])
        numbers = None
        if base.numbers is not None and offset.numbers is not None:
            numbers = base.numbers + offset.numbers
        self.put(
            op,
            replace(
                base,
                numbers=numbers,
                loaded=base.loaded or offset.loaded,
                guessed=base.guessed or offset.guessed,
                given=base.given or offset.given,
                loads=max(base.loads, offset.loads),
                axes=_axes((base, offset)),
                expression=None,
            ),
        )

    def _access(self, op: _Op) -> None:
        pointer = self.get(op.operands[0]) if op.operands else _UNKNOWN
        kinds = [kind for kind in _types(op.types) if kind.pointer]
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
        # What a mask made of loaded data lets through is not known: all of it.
        mask_numbers = None if mask is None or mask.numbers is None else mask.numbers
        count = float(np.prod(shape, dtype=np.int64))
        if mask_numbers is not None and shape:
            count = float(np.broadcast_to(mask_numbers, shape).astype(bool).sum())
        address = None if pointer.numbers is None or not shape else pointer.numbers * (bits // 8)
        if address is not None and address.shape != shape:
            address = np.broadcast_to(address, shape) if address.ndim == len(shape) else None
        per_lane, lines = _touch(_layout(layout, self.layouts, shape), address, mask_numbers, bits // 8)
        if kind == "async copy" and per_lane is not None and per_lane < 4:
            per_lane = None
        distinct, sectors, running = count, None, None
        if address is not None:
            running = address if mask_numbers is None else address[np.broadcast_to(mask_numbers, shape).astype(bool)]
            distinct = float(np.unique(running).size)
            sectors = float(np.unique(running // _SECTOR_BYTES).size * _SECTOR_BYTES)
        access = MemoryAccess(
            "loop" if self.loop_stack else "", kind, op.place, element, shape, distinct * bits / 8, count * bits / 8,
            sectors, per_lane, lines, pointer.loaded, pointer.axes, pointer.pointer, running,
        )  # fmt: skip
        loads = pointer.loads + (kind != "store")
        self.note(op, "access", access, loads)
        if kind == "load":
            value = replace(self._loaded_value(shape, element, loads), axes=pointer.axes)
            if not shape and pointer.pointer:
                value.expression = f"{pointer.pointer}[]"
            self.put(op, value)
        else:
            self.put(op, _Value(loaded=True, loads=loads, axes=pointer.axes))

    def _mask(self, op: _Op, kind: str) -> _Value | None:
        if kind == "async copy":
            found = re.search(r"mask (%[\w$.-]+(?:#\d+)?)", op.text)
            return self.get(found.group(1)) if found else None
        position = 2 if op.name == "tt.store" else 1
        return self.get(op.operands[position]) if len(op.operands) > position else None

    def _loaded_value(self, shape: tuple[int, ...], element: str, loads: int) -> _Value:
        """What a load gives: nothing known for floats; integers that name unrelated places."""
        value = _Value(loaded=True, loads=loads)
        if element.startswith("i") and int(np.prod(shape, dtype=np.int64)) <= _MOST_ELEMENTS:
            # A scalar is usually a length or an offset; large, so that masks made of it let everything through.
            value.numbers = (
                self.random.integers(0, 1 << 22, size=shape, dtype=np.int64)
                if shape
                else np.full(1, _LONG, dtype=np.int64)
            )
        return value

    def _bulk(self, op: _Op) -> None:
        kinds = _types(op.types)
        if not kinds or element_bits(kinds[-1].element) is None:
            self.unread.add(op.name)
            return
        shape, element = kinds[-1].shape, kinds[-1].element
        bits = element_bits(element) or 0
        kind = "store" if op.name in _BULK_STORES else "bulk copy"
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
        self.put(op, _Value(loaded=True, loads=loads, axes=axes))


def _simplified(kind: str, left: str, right: str, form: str) -> str:
    """An expression's text without additions of 0 and products with 1."""
    if kind == "muli" and "1" in (left, right):
        return right if left == "1" else left
    if kind == "addi" and "0" in (left, right):
        return right if left == "0" else left
    if kind == "subi" and right == "0":
        return left
    return form.format(left, right)


# ---------------------------------------------------------------------------------------------------------------------
# Operations to work.


@dataclass(frozen=True)
class TtgirKernel:
    """A kernel's TTGIR, parsed: what `read_work` and `trip_counts` evaluate, as often as arguments change."""

    name: str
    num_warps: int
    function: _Function = field(repr=False)
    layouts: Mapping[str, str] = field(repr=False)


def parse_ttgir(text: str, kernel: str | None = None) -> TtgirKernel:
    """The kernel named `kernel`, or the first one, of a TTGIR text. Raises `InputError` when it holds none."""
    functions, layouts, num_warps = _functions(text)
    chosen = [f for f in functions if kernel is None or f.name == kernel]
    if not chosen:
        raise InputError(f"holds no kernel{f' named {kernel}' if kernel else ''}", where="TTGIR")
    return TtgirKernel(chosen[0].name, num_warps, chosen[0], layouts)


def read_work(ttgir: str | TtgirKernel, arguments: Mapping[str, Any] | None = None, grid: Sequence[int] = ()) -> IrWork:
    """The work of one CTA of a kernel's TTGIR.

    `arguments` gives values of integer arguments by name (those that specialization turned into constants are in the
    IR already), best all run-time arguments in order, pointers with None: Triton before 3.6 does not write their names.
    Strides and sizes without a value are taken to be large. `grid` is the launch grid, for the iterations of each
    program.
    """
    kernel = parse_ttgir(ttgir) if isinstance(ttgir, str) else ttgir
    reader = _Reader(kernel.function, kernel.layouts, arguments or {}, grid)
    main = _main_loop(reader)
    accesses, copies_ahead = _placed(reader, main)
    trip, counts = _iterations(reader, main, grid)
    in_loop = [f for f in reader.found if any(loop in f.loops for loop in main)]
    work = CtaWork(
        prologue_bytes=_bytes(accesses, "prologue"),
        bytes_per_iteration=_bytes(accesses, "loop") if main else 0.0,
        epilogue_bytes=_bytes(accesses, "epilogue"),
        tensor_flops_per_iteration=_tensor_flops(in_loop if main else reader.found),
        fp32_flops_per_iteration=_float_ops(in_loop if main else reader.found),
        shared_bytes_per_iteration=_shared_bytes(in_loop if main else reader.found),
        pipeline_depth=_depth(accesses, copies_ahead) if main else None,
        dependent_loads=_chain(in_loop) if main else None,
        **_loads(accesses, "loop" if main else "prologue"),
    )
    iterations = None if counts is None else tuple(counts.tolist())
    return IrWork(kernel.name, kernel.num_warps, tuple(accesses), trip, iterations, work, tuple(sorted(reader.unread)))


def trip_counts(
    kernel: TtgirKernel, arguments: Mapping[str, Any], grid: Sequence[int], at_most: bool = False
) -> Floats | None:
    """Iterations of the main loop for each program of `grid` in launch order (x fastest).

    None where they depend on loaded data, on an argument without a value, or on a loop around it. With `at_most`,
    loaded lengths are taken to be as long as they can be, so that min(length, topk) is topk; still None where nothing
    else bounds the loop.
    """
    reader = _Reader(kernel.function, kernel.layouts, arguments, grid, scalars_only=True)
    return _iterations(reader, _main_loop(reader), grid, at_most)[1]


def _main_loop(reader: _Reader) -> list[int]:
    """The loop that holds the work: with dots of its own, else with accesses of its own, and of several the innermost.

    Where groups of warps run different code, each group's such loop: they turn together.
    """
    best: dict[int, tuple[tuple[int, ...], int]] = {}
    for number, op in enumerate(reader.loops):
        own = [f for f in reader.found if f.loops and f.loops[-1] == number]
        dots = sum(f.op.name in _DOTS for f in own)
        accesses = sum(f.op.name in _ACCESSES | _BULK_LOADS | _BULK_STORES for f in own)
        weight = (dots > 0, accesses > 0, len(reader.parents[number]), dots, accesses, len(op.children))
        partition = reader.partition_of[number]
        if partition not in best or weight > best[partition][0]:
            best[partition] = (weight, number)
    if len(best) > 1:  # groups without work of their own only wait
        best = {p: found for p, found in best.items() if any(found[0][:2])} or best
    return sorted(number for _, number in best.values())


def _placed(reader: _Reader, main: Sequence[int]) -> tuple[list[MemoryAccess], dict[str, int]]:
    """Accesses with where they stand, each place of the source once; and how often each of the loop's places stands
    before the loop as well: the iterations that a software pipeline loads ahead."""
    order = {id(f): i for i, f in enumerate(reader.found)}
    in_loop = [f for f in reader.found if any(loop in f.loops for loop in main) and f.access is not None]
    first = min((order[id(f)] for f in in_loop), default=len(reader.found))
    loop_places = {f.access.place for f in in_loop if f.access is not None}
    ahead: dict[str, int] = {}
    whole: dict[str, MemoryAccess] = {}  # the first copy of a pipelined load: later ones may be masked off
    seen: set[tuple[str, str, str]] = set()
    placed: list[MemoryAccess] = []
    for f in reader.found:
        access = f.access
        if access is None:
            continue
        if f in in_loop:
            where = "loop"
        elif not main:
            where = "epilogue" if access.kind == "store" else "prologue"
        else:
            where = "prologue" if order[id(f)] < first else "epilogue"
        if where == "prologue" and access.place and access.place in loop_places:
            ahead[access.place] = ahead.get(access.place, 0) + 1
            whole.setdefault(access.place, access)
            continue
        key = (where, access.place, "store" if access.kind == "store" else "load")
        # A bulk copy has no layout to be repeated for: several of one place move parts of a tile.
        if access.place and key in seen and f.op.name not in _BULK_LOADS | _BULK_STORES:
            continue
        seen.add(key)
        first_copy = whole.get(access.place)
        if where == "loop" and first_copy is not None and first_copy.bytes > access.bytes:
            access = first_copy
        placed.append(replace(access, where=where))
    counted: dict[str, int] = {}
    for f in in_loop:
        if f.access is not None:
            counted[f.access.place] = counted.get(f.access.place, 0) + 1
    # Loads repeated for several layouts stand as often before the loop as in it.
    return placed, {place: -(-count // counted[place]) for place, count in ahead.items()}


def _bytes(accesses: Sequence[MemoryAccess], where: str) -> float:
    return float(sum(a.bytes for a in accesses if a.where == where))


def _depth(accesses: Sequence[MemoryAccess], ahead: Mapping[str, int]) -> float | None:
    """Iterations whose loads are in flight at once, weighted by bytes: 1 for loads that are issued when needed."""
    loads = [a for a in accesses if a.where == "loop" and a.kind != "store"]
    total = sum(a.bytes for a in loads)
    if not total:
        return None
    return round(sum(a.bytes * max(ahead.get(a.place, 0), 1) for a in loads) / total, 2)


def _loads(accesses: Sequence[MemoryAccess], where: str) -> dict[str, Any]:
    """What `CtaWork` keeps of how the loads there reach memory."""
    loads = [a for a in accesses if a.where == where and a.kind != "store"]
    by_axes: dict[Axes | None, float] = {}
    together: dict[tuple[str | None, str], list[MemoryAccess]] = {}
    moved = needed = 0.0
    for a in loads:
        by_axes[a.axes] = by_axes.get(a.axes, 0.0) + a.bytes
        together.setdefault((a.pointer, a.dtype), []).append(a)
    for found in together.values():
        # What several loads take through one pointer in an iteration arrives together: the parts of a row are one run.
        moved += (loaded := sum(a.bytes for a in found))
        places = [a.addresses for a in found if a.addresses is not None and a.addresses.size]
        share = DRAM_BANDWIDTH_SHARE
        if len(places) == len(found):
            at = np.concatenate([p.reshape(-1) for p in places])
            share = dram_share(_run_bytes(at, (element_bits(found[0].dtype) or 8) // 8))
        needed += loaded / share
    whole = sum(
        max(math.prod(a.shape) * (element_bits(a.dtype) or 0) / 8, a.bytes) if a.kind == "async copy" else a.bytes
        for a in accesses
        if a.where == "loop"
    )
    return {
        "whole_bytes_per_iteration": float(whole) or None,
        "loads_by_axes": tuple((loaded, axes) for axes, loaded in by_axes.items()),
        "dram_share": moved / needed if needed else None,
    }


def _chain(found: Sequence[_Found]) -> float | None:
    """Loads in the longest chain of an iteration whose addresses come from one another."""
    chains = [f.loads for f in found if f.access is not None and f.access.kind != "store"]
    return float(max(chains)) if chains else None


_TENSOR_DTYPES = {"f8E4M3FN": "fp8", "f8E5M2": "fp8", "f16": "fp16", "bf16": "bf16", "f32": "tf32", "i8": "int8"}


def _tensor_flops(found: Sequence[_Found]) -> tuple[tuple[str, float], ...]:
    total: dict[str, float] = {}
    for f in found:
        if f.op.name not in _DOTS:
            continue
        kinds = [k for k in _types(f.op.types) if len(k.shape) >= 2]
        if len(kinds) < 2:
            continue
        a, b = kinds[0], kinds[1]
        flops = 2.0 * a.shape[-2] * a.shape[-1] * b.shape[-1]
        dtype = _TENSOR_DTYPES.get(a.element, a.element)
        total[dtype] = total.get(dtype, 0.0) + flops
    return tuple(sorted(total.items()))


def _float_ops(found: Sequence[_Found]) -> float:
    """FLOPs outside tensor cores: element operations and reductions, repeated ones of one place counted once."""
    seen: dict[tuple[str, str], float] = {}
    for f in found:
        per_element = _FLOAT_OPS.get(f.op.name)
        if per_element is None:
            continue
        kinds = _types(f.op.types) or _types(f.op.text)
        elements = float(np.prod(kinds[0].shape, dtype=np.int64)) if kinds else 1.0
        key = (f.op.name, f.op.place or str(id(f)))
        seen[key] = max(seen.get(key, 0.0), elements * per_element)
    return sum(seen.values())


def _shared_bytes(found: Sequence[_Found]) -> float:
    """Shared-memory bytes read and written: buffers filled and loaded, layouts converted, operands of products."""
    total = 0.0
    for f in found:
        name = f.op.name
        kinds = [k for k in _types(f.op.types) if k.shape]

        def size(kind: _Type) -> float:
            return float(np.prod(kind.shape, dtype=np.int64)) * (element_bits(kind.element) or 0) / 8

        if not kinds:
            continue
        if name == "ttg.local_alloc" and not f.op.operands:
            continue
        if name == "ttg.convert_layout":
            total += 2 * size(kinds[0])
        elif name in ("ttg.local_alloc", "ttg.local_store", "ttg.local_load"):
            total += size(kinds[0])
        elif f.access is not None and f.access.kind in ("async copy", "bulk copy"):
            total += f.access.bytes
        elif name in _DOTS and "memdesc" in f.op.types:
            total += sum(size(k) for k in kinds[:2])
    return total


def _iterations(
    reader: _Reader, main: Sequence[int], grid: Sequence[int], at_most: bool = False
) -> tuple[str | None, Floats | None]:
    """(text, value for each program) of the main loop's iterations."""
    # Of several groups' loops, one whose bounds are known.
    ranked = sorted(main, key=lambda loop: any(v.numbers is None for v in reader.trips.get(loop, (_UNKNOWN,))))
    bounds = reader.trips.get(ranked[0]) if ranked else None
    if bounds is None:
        return None, None
    lower, upper, step = bounds
    text = None
    if lower.expression is not None and upper.expression is not None and step.expression is not None:
        span = _simplified("subi", upper.expression, lower.expression, "({} - {})")
        text = span if step.expression == "1" else f"ceil({span} / {step.expression})"
    if reader.parents.get(ranked[0]):
        # Inside another loop the count of one pass is not the count of the CTA.
        return text, None
    loaded = any(v.loaded for v in bounds)
    if any(v.guessed for v in bounds) or (loaded and not at_most):
        return text, None
    if lower.numbers is None or upper.numbers is None or step.numbers is None:
        return text, None
    counts = np.maximum(-(-(upper.numbers - lower.numbers) // step.numbers), 0)
    if loaded and np.any(counts > _UNBOUNDED):
        return text, None
    programs = int(np.prod(grid)) if grid else 1
    return text, np.broadcast_to(counts, (programs,)).astype(float)


# ---------------------------------------------------------------------------------------------------------------------
# With the machine code.


def with_sass(
    ir: IrWork | None,
    sass: str | SassKernel,
    gpu: SmGpu,
    resources: KernelResources,
    ctas_per_sm: int,
) -> CtaWork:
    """The work with what the machine code adds: the loop's instruction mix, and the simulated timing on `gpu`.

    `ir` tells how loads touch memory and how far the compiler unrolled the loop; without it lanes are taken to be
    contiguous and the loop as not unrolled. The timing stays None where the text has no encodings, for a config that
    cannot launch, and for kernels whose warps do different things.
    """
    code = parse_sass(sass) if isinstance(sass, str) else sass
    loop = main_loop(code)
    work = ir.work if ir is not None else CtaWork()
    passes = 1.0
    if loop is not None and ir is not None:
        passes = ir.passes(loop_loads(code, loop))
    if loop is not None:
        work = replace(work, loop_mix=loop_mix(code, loop, passes))
    path = None if specialized_warps(code) or ctas_per_sm < 1 else warp_path(code, loop, passes)
    if path is None:
        return work
    timing = time_path(
        path,
        sm_rates(gpu, work.dram_share or DRAM_BANDWIDTH_SHARE),
        resources.num_warps,
        ctas_per_sm,
        ir.lines_by_bytes if ir is not None else {},
        ir.traffic_by_bytes if ir is not None else {},
        resources.spill_bytes or 0,
        l1_bytes(gpu.limits, resources.shared_bytes + resources.static_shared_bytes, ctas_per_sm),
        ir.misses_by_bytes if ir is not None else {},
    )
    return replace(work, timing=timing)
