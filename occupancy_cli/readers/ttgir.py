"""The text of a kernel's TTGIR as operations and types: what `asm["ttgir"]` holds, parsed without Triton.

Every operation keeps its results, operands, attributes, types, place in the source, and the operations inside it; a
layout stays a name, whose definition `TtgirKernel.layouts` has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from occupancy_cli.errors import InputError

_BITS = {
    "f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 8,
}  # fmt: skip


@dataclass
class Operation:
    """One operation: its results, name, operand names, attributes, types behind the colon, place, and what it holds.

    `closing` is what stands behind the brace that ends an operation with a region, `}) {allocation.offset = 0 : i32}`;
    `loc` is the location as written, for `source_lines`. Where there is an `else` or a `do`, its operations follow the
    others in `children`, from number `second` on, and `second_yields` are what it yields. A block inside a region
    stands there as an operation named "block" whose results are its arguments.
    """

    results: list[str]
    name: str
    operands: list[str]
    text: str
    attributes: str
    types: str
    place: str
    children: list[Operation] = field(default_factory=list)
    yields: list[str] = field(default_factory=list)
    second: int | None = None
    second_yields: list[str] = field(default_factory=list)
    closing: str = ""
    loc: str = ""

    @property
    def regions(self) -> tuple[list[Operation], list[Operation]]:
        """What the operation holds, and what stands behind its `else` or `do`."""
        at = len(self.children) if self.second is None else self.second
        return self.children[:at], self.children[at:]

    @property
    def is_tensor(self) -> bool:
        """Whether the operation works on tensors or buffers, not on scalars."""
        return "tensor<" in self.text or "memdesc<" in self.text


_RESULTS = re.compile(r"^((?:%[\w$.#-]+(?::\d+)?(?:,\s*)?)+)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-z_]+[\w.]*)"?')
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_BLOCK = re.compile(r"^\^(\w+)(?:\((.*)\))?:")
_LOC = re.compile(r"\s*loc\((#\w+|.*)\)\s*$")
_LOC_DEFINITION = re.compile(r"^(#loc\d*)\s*=\s*loc\((.*)\)\s*$")
_FRAME = re.compile(r'"([^"]*)":(\d+):\d+|#loc\d*')
_FILE_LOC = re.compile(r'"([^"]*)":(\d+):(\d+)')
_TRITONS_OWN = re.compile(r"(?:^|/)triton/(?:language|experimental)/")
_FUNCTION = re.compile(r"tt\.func\s+(?:public\s+|private\s+)?@([\w$.]+)\((.*)$")
_ARGUMENT = re.compile(r"%([\w$.]+):\s*(!tt\.ptr<[^>]*>|!tt\.tensordesc<[^>]*>+|[\w.]+)\s*(\{[^}]*\})?")
_ATTRIBUTES = re.compile(r"(?<!<)\{[^{}]*\}")
_TENSOR = re.compile(r"(?:tensor|memdesc)<([0-9x]*x)?(!tt\.ptr<(\w+)>|\w+)(?:,\s*(#[\w.]+(?:<\{.*?\}>)?))?")


@dataclass(frozen=True)
class Block:
    """Where a basic block begins: its label, its arguments, and the number of its first operation in the function."""

    label: str
    arguments: tuple[str, ...]
    first: int


@dataclass
class Function:
    """A function with its arguments (name, type, attributes), its operations, and the blocks that control jumps to.

    Blocks are those of lowered control flow: as long as loops are `scf.for` there are none.
    """

    name: str
    arguments: list[tuple[str, str, str]]
    ops: list[Operation]
    blocks: list[Block] = field(default_factory=list)


def _functions(text: str) -> tuple[list[Function], dict[str, str], int, dict[str, str]]:
    """The functions, the layout definitions by name, the warps of a CTA, and the locations by name."""
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
    functions: list[Function] = []
    stack: list[list[Operation]] = []
    owners: list[Operation | None] = []
    count = 0
    for raw in lines:
        line = raw.strip()
        function = _FUNCTION.search(line)
        if function:
            functions.append(Function(function.group(1), _ARGUMENT.findall(function.group(2)), []))
            stack, owners, count = [functions[-1].ops], [None], 0
            continue
        block = _BLOCK.match(line)
        if stack and block:
            named = tuple(re.findall(r"(%[\w$.-]+):", block.group(2) or ""))
            functions[-1].blocks.append(Block(block.group(1), named, count))
            if owners[-1] is not None:
                stack[-1].append(Operation(list(named), "block", [], line, "", "", ""))
            continue
        if not stack or not line or line.startswith(("#", "//", "^")):
            continue
        if line.startswith("}"):
            closing = stack.pop()
            owner = owners.pop()
            if owner is not None:
                owner.closing = line.lstrip("})").strip()
                behind = _LOC.search(line)
                owner.loc = behind.group(1) if behind else owner.loc
                for inner in closing[owner.second or 0 :]:
                    if inner.name == "scf.yield":
                        owner.yields = owner.yields or inner.operands
                        owner.second_yields = inner.operands
            if not stack:
                continue
            if line.endswith("{") and owner is not None:  # } else { , } do {
                owner.second = len(owner.children)
                stack.append(owner.children)
                owners.append(owner)
            continue
        read = _operation(line, places)
        if read is None:
            continue
        op = read
        stack[-1].append(op)
        count += 1
        if line.endswith(("{", "({")):
            stack.append(op.children)
            owners.append(op)
    return functions, layouts, int(warps.group(1)) if warps else 4, places


def _operation(line: str, places: Mapping[str, str]) -> Operation | None:
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
    loc = found_loc.group(1) if found_loc and not line.endswith("{") else ""
    return Operation(results, name, operands, body, attributes, types, place, loc=loc)


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


@dataclass(frozen=True, order=True)
class SourceLine:
    """A line of a file, as the compiler names it. `file` is "" where it names none."""

    file: str = ""
    line: int = 0


def is_tritons_own(file: str) -> bool:
    """Whether a file is of Triton's language library, such as the one that `tl.sum` is written in."""
    return _TRITONS_OWN.search(file) is not None


def source_lines(reference: str, places: Mapping[str, str]) -> tuple[SourceLine, ...]:
    """The kernel's own lines of a location, the innermost first: a line that calls `tl.sum` and not one in Triton, the
    line of a helper function, then the line that calls the helper. Lines of Triton where there are no others."""
    frames = list(dict.fromkeys(_frames(reference, places, 0)))
    return tuple([frame for frame in frames if not is_tritons_own(frame.file)] or frames)


def _frames(reference: str, places: Mapping[str, str], depth: int) -> Iterator[SourceLine]:
    """Lines of a location, the innermost first: `callsite(#loc3 at #loc9)` is a line of a function and where it is
    called."""
    text = places.get(reference, reference) if reference.startswith("#") else reference
    if depth > 40:
        return
    for found in _FRAME.finditer(text):
        if found[1] is None:
            yield from _frames(found[0], places, depth + 1)
        else:
            yield SourceLine(found[1], int(found[2]))


@dataclass(frozen=True)
class TensorType:
    """A tensor or a buffer: its shape, the element's type (what it points to, of pointers), the layout's name."""

    shape: tuple[int, ...]
    element: str
    pointer: bool
    layout: str | None


def tensor_types(text: str) -> list[TensorType]:
    """The tensor and memdesc types of a type list, in order."""
    found = []
    for match in _TENSOR.finditer(text):
        dims = tuple(int(d) for d in (match.group(1) or "").rstrip("x").split("x") if d)
        pointee = match.group(3)
        layout = match.group(4)
        if layout and layout.startswith("#ttg.slice"):
            layout = _balanced(text, match.start(4))
        found.append(TensorType(dims, pointee or match.group(2), pointee is not None, layout))
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


def numbers_in(text: str, key: str) -> list[int]:
    """The numbers of `key = [1, 2]` in an attribute or a layout's definition; none where it is not there."""
    found = re.search(rf"{key} = \[([0-9, ]*)\]", text)
    return [int(n) for n in found.group(1).split(",") if n.strip()] if found else []


@dataclass(frozen=True)
class TtgirKernel:
    """A kernel's TTGIR, parsed: what `read_work` and `trip_counts` evaluate, as often as arguments change."""

    name: str
    num_warps: int
    function: Function = field(repr=False)
    layouts: Mapping[str, str] = field(repr=False)
    places: Mapping[str, str] = field(repr=False, default_factory=dict)


def parse_ttgir(text: str, kernel: str | None = None) -> TtgirKernel:
    """The kernel named `kernel`, or the first one, of a TTGIR text. Raises `InputError` when it holds none."""
    functions, layouts, num_warps, places = _functions(text)
    chosen = [f for f in functions if kernel is None or f.name == kernel]
    if not chosen:
        raise InputError(f"holds no kernel{f' named {kernel}' if kernel else ''}", where="TTGIR")
    return TtgirKernel(chosen[0].name, num_warps, chosen[0], layouts, places)
