"""Where a kernel's shared memory goes: each buffer that Triton's allocation pass placed, read from the IR behind it.

    offset  bytes   what                        copies  program order   source
         0  32,768  query_a    32x256 bf16           1  12 to 210       mla.py:88   kept for the loop
    32,768  49,152  a          128x64 bf16           3  30 to 300       mm.py:14    pipelined load
         0  16,384  (acc)      layout conversion        310             mm.py:22    shares its bytes with query_a

The pass writes `allocation.offset` at every operation that needs shared memory. A `ttg.local_alloc` takes the bytes of
its buffer's type; what others take as scratch stands beside it as `allocation.size` from Triton 3.7 on, and of earlier
ones once `scratch_sizes` has asked their own pass. Where it does not stand there, it is told from where the next buffer
or the end lies: such bytes are marked (`bytes_exact` False) unless the end of all shared memory gives them.

Two buffers share an address only where their lives do not overlap. A life runs from the operation that makes a buffer
to the last that uses it or a view of it, in program order; a buffer made before a loop and used in it lives to the
loop's end. Loops are lowered to branches before the allocation pass: a loop is what lies between a block and the last
branch back to it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from occupancy_cli.errors import InputError
from occupancy_cli.readers.ttgir import Operation, SourceLine, TtgirKernel, element_bits, parse_ttgir, source_lines

_OFFSET = re.compile(r"allocation\.offset = (\d+) : i32")
_SIZE = re.compile(r"allocation\.size = (\d+) : i32")
_TOTAL = re.compile(r"\bttg\.shared = (\d+) : i32")
_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d+x)+)(\w+)(?:, (#[\w.]+))?")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)(\w+)")
_PADDED = re.compile(r"padded_shared<\[([\d:+, ]*)\]")
_SSA_NUMBER = re.compile(r"_\d+$")
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_BRANCH = re.compile(r"\^(\w+)(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?")
_SCRATCH = {
    "ttg.convert_layout": "layout conversion",
    "tt.reduce": "reduction scratch",
    "tt.scan": "scan scratch",
    "tt.histogram": "histogram scratch",
    "tt.gather": "gather scratch",
    "tt.atomic_rmw": "atomic result",
    "tt.atomic_cas": "atomic result",
    "ttng.tensormap_create": "descriptor",
    "ttg.warp_specialize": "warp group state",
    "tt.call": "called function",
}
_DOTS = ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")


@dataclass(frozen=True)
class SharedBuffer:
    """One buffer: where it lies, how large it is, what for, and how long it lives.

    `shape` is that of one copy, `copies` how many a pipeline keeps. `live_from` and `live_to` number the operations of
    the kernel in program order. `source` are the kernel's own lines (that which calls `tl.sum`, not one in Triton), the
    innermost first, then those that call the function it stands in; `value` the name in the source, "" where there is
    none.
    """

    offset: int
    bytes: int
    bytes_exact: bool
    shape: tuple[int, ...]
    dtype: str
    copies: int
    purpose: str
    value: str
    live_from: int
    live_to: int
    source: tuple[SourceLine, ...]


@dataclass(frozen=True)
class SharedMap:
    """All buffers by offset, then by life. `total_bytes` is what a launch asks for: max(offset + bytes). `loops` are
    the first and last operation of each, in program order."""

    total_bytes: int
    operations: int
    loops: tuple[tuple[int, int], ...]
    buffers: tuple[SharedBuffer, ...]

    @property
    def peak_at(self) -> int:
        """The first moment at which most bytes are in use, as the number of an operation."""
        starts = sorted({b.live_from for b in self.buffers})
        return max(starts, key=lambda at: (self._used(at), -at), default=0)

    @property
    def peak(self) -> tuple[SharedBuffer, ...]:
        """The buffers that live at the first moment at which most bytes are in use, by offset."""
        at = self.peak_at
        return tuple(b for b in self.buffers if b.live_from <= at <= b.live_to)

    def _used(self, at: int) -> int:
        return max((b.offset + b.bytes for b in self.buffers if b.live_from <= at <= b.live_to), default=0)


@dataclass(frozen=True)
class _Placed:
    """An operation in program order: its number and that of the last operation inside it."""

    op: Operation
    at: int
    last: int


@dataclass(frozen=True)
class _Flow:
    """A kernel's operations in order, who uses which value, which block argument takes which value, and the loops."""

    placed: tuple[_Placed, ...]
    users: Mapping[str, tuple[_Placed, ...]]
    passed: Mapping[str, tuple[str, ...]]
    loops: tuple[tuple[int, int], ...]


def read_shared_map(allocated: str, kernel: str | None = None) -> SharedMap:
    """The map of a module's text as it is behind the allocation pass. Raises `InputError` where that was not run."""
    found = _TOTAL.search(allocated)
    if found is None:
        raise InputError("shared memory is not allocated in this IR yet", where="TTGIR")
    total = int(found.group(1))
    parsed = parse_ttgir(allocated, kernel)
    flow = _flow(parsed)
    buffers = [b for p in flow.placed if (b := _buffer(p, parsed, flow)) is not None]
    sized = [b if b.bytes_exact else _sized(b, buffers, total) for b in buffers]
    return SharedMap(
        total, len(flow.placed), tuple(sorted(flow.loops)), tuple(sorted(sized, key=lambda b: (b.offset, b.live_from)))
    )


def _flow(parsed: TtgirKernel) -> _Flow:
    placed = tuple(_in_order(parsed.function.ops, itertools.count()))
    users: dict[str, list[_Placed]] = {}
    passed: dict[str, list[str]] = {}
    loops: dict[int, int] = {}
    blocks = {block.label: block for block in parsed.function.blocks}
    for each in placed:
        for name in set(_VALUE.findall(each.op.text)) - set(each.op.results):
            users.setdefault(name, []).append(each)
        for label, given in _BRANCH.findall(each.op.text):
            block = blocks.get(label)
            if block is None:
                continue
            if block.first <= each.at:
                loops[block.first] = max(loops.get(block.first, 0), each.at)
            for value, argument in zip(_VALUE.findall(given.partition(" : ")[0]), block.arguments, strict=False):
                passed.setdefault(value, []).append(argument)
    return _Flow(
        placed,
        {name: tuple(found) for name, found in users.items()},
        {name: tuple(found) for name, found in passed.items()},
        tuple(loops.items()),
    )


def _in_order(ops: list[Operation], numbers: Iterator[int]) -> Iterator[_Placed]:
    """Every operation as it stands in the text, numbered."""
    for op in ops:
        at = next(numbers)
        inside = list(_in_order(op.children, numbers))
        yield _Placed(op, at, inside[-1].at if inside else at)
        yield from inside


def _buffer(placed: _Placed, parsed: TtgirKernel, flow: _Flow) -> SharedBuffer | None:
    op = placed.op
    text = f"{op.text} {op.closing}"
    offset = _OFFSET.search(text)
    if offset is None:
        return None
    source = source_lines(op.loc, parsed.places)
    if op.name.endswith("local_alloc"):
        return _allocated(placed, int(offset.group(1)), parsed, flow, source)
    size = _SIZE.search(text)
    types = op.closing.rpartition(" : ")[2] or op.types
    shape, dtype = _tensor(types)
    return SharedBuffer(
        offset=int(offset.group(1)),
        bytes=int(size.group(1)) if size else 0,
        bytes_exact=size is not None,
        shape=shape,
        dtype=dtype,
        copies=1,
        purpose=_SCRATCH.get(op.name, op.name),
        value=_value(op),
        live_from=placed.at,
        live_to=placed.last,
        source=source,
    )


def _allocated(
    placed: _Placed, offset: int, parsed: TtgirKernel, flow: _Flow, source: tuple[SourceLine, ...]
) -> SharedBuffer | None:
    found = _MEMDESC.search(placed.op.text)
    if found is None:
        return None
    shape = tuple(int(n) for n in found.group(1).split("x") if n)
    bits = element_bits(found.group(2)) or 8
    count = math.prod(shape) + _padding(math.prod(shape), parsed.layouts.get(found.group(3) or "", ""))
    used = _reached(placed, flow)
    pipelined = not placed.op.operands and len(shape) > 1
    barrier = found.group(2) == "i64" and shape[-1] == 1
    return SharedBuffer(
        offset=offset,
        bytes=-(-count * bits // 8),
        bytes_exact=True,
        shape=shape[1:] if pipelined else shape,
        dtype=found.group(2),
        copies=shape[0] if pipelined else 1,
        purpose="barrier" if barrier else _purpose(placed, used, pipelined, flow),
        value=_value(placed.op),
        live_from=placed.at,
        live_to=max([placed.last, *(_end_of_use(placed, each, flow) for each in used)]),
        source=source,
    )


def _padding(elements: int, layout: str) -> int:
    """Elements that a padded layout adds: of `[512:+16]` 16 behind every 512 but the last."""
    found = _PADDED.search(layout)
    if found is None:
        return 0
    pairs = re.findall(r"(\d+):\+(\d+)", found.group(1))
    return sum((elements - 1) // int(every) * int(added) for every, added in pairs)


def _reached(placed: _Placed, flow: _Flow) -> list[_Placed]:
    """What uses a buffer, a view of it, or a block's argument that is one of these."""
    names = list(placed.op.results)
    seen, used = set(names), []
    while names:
        name = names.pop()
        views = list(flow.passed.get(name, ()))
        for user in flow.users.get(name, ()):
            if user is placed:
                continue
            used.append(user)
            if "memdesc_" in user.op.name:
                views += user.op.results
        names += [view for view in views if view not in seen]
        seen.update(views)
    return used


def _end_of_use(placed: _Placed, user: _Placed, flow: _Flow) -> int:
    """A use in a loop that the buffer was made before lasts to the loop's end: the next trip uses it too."""
    around = [last for first, last in flow.loops if placed.at < first <= user.at <= last]
    return max([user.at, *around])


def _purpose(placed: _Placed, used: list[_Placed], pipelined: bool, flow: _Flow) -> str:
    if pipelined:
        return "pipelined load"
    names = {each.op.name for each in used}
    if "ttg.local_load" in names or names & set(_DOTS):
        kept = any(_end_of_use(placed, each, flow) > each.at for each in used)
        return "operand kept for the loop" if kept else "dot operand"
    if any("tma" in name or "descriptor" in name for name in names):
        return "descriptor transfer"
    return "buffer"


def _tensor(types: str) -> tuple[tuple[int, ...], str]:
    found = _TENSOR.search(types)
    return (tuple(int(n) for n in found.group(1).split("x") if n), found.group(2)) if found else ((), "")


def _value(op: Operation) -> str:
    """The source's name of a value, as far as the compiler kept it in `%query_a_167`; of scratch without one, that of
    what it is taken for."""
    for given in (*op.results[:1], *op.operands[:1]):
        name = _SSA_NUMBER.sub("", given.lstrip("%").partition("#")[0])
        if not name.isdecimal() and not re.fullmatch(r"cst|arg\d+", name):
            return name
    return ""


def _sized(buffer: SharedBuffer, buffers: list[SharedBuffer], total: int) -> SharedBuffer:
    """Scratch whose size is not written: at most what lies between it and the next buffer that lives at its time."""
    above = [b.offset for b in buffers if b.offset > buffer.offset and _overlap(buffer, b)]
    room = min([total, *above]) - buffer.offset
    others = max((b.offset + b.bytes for b in buffers if b is not buffer and b.bytes_exact), default=0)
    rivals = [b for b in buffers if b is not buffer and not b.bytes_exact]
    exact = not above and others < total and not rivals
    return replace(buffer, bytes=room, bytes_exact=exact)


def _overlap(one: SharedBuffer, other: SharedBuffer) -> bool:
    return one.live_from <= other.live_to and other.live_from <= one.live_to
