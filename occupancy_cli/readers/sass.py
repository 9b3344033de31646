"""What a kernel's machine code says: its main loop, the loop's instruction mix, and the path of a warp.

Reads the text of `nvdisasm -c -hex` or `cuobjdump -sass` (both ship with Triton); parses only, runs nothing. The
control bits of an instruction (stall cycles, scoreboards) are not printed, but lie in its 128-bit encoding since Volta:
bits 105-108 stall, 110-112 write scoreboard, 113-115 read scoreboard, 116-121 the scoreboards waited for (described in
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv:1804.06826). Text without encodings still
gives loops and mixes, but no path to simulate.

Loops are the natural loops of the control flow: a branch back to an instruction that every way to the branch passes.
Code that the compiler moved out of line and that jumps back is none. The main loop is the one with tensor instructions
or global loads of its own and the most instructions; waiting loops (a barrier tried again) do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.model.cta_work import LoopMix
from occupancy_cli.model.instruction_costs import Step, access_bytes, matrix_bytes, unit_of
from occupancy_cli.model.warp_path import LoopSpan, WarpPath


@dataclass(frozen=True)
class SassInstruction:
    """One instruction: its address, text parts, the address it may branch to, and its control bits where known."""

    address: int
    opcode: str
    operands: str
    predicate: str | None
    target: int | None
    step: Step | None

    @property
    def base(self) -> str:
        """The opcode without its modifiers: LDG of LDG.E.128."""
        return self.opcode.split(".", 1)[0]

    @property
    def conditional(self) -> bool:
        """Whether the next instruction may run even though this one branches or exits."""
        if self.predicate not in (None, "@PT", "@UPT"):
            return True
        # BRA.U !UP0, target and BRA P0, target carry their condition as an operand.
        return self.base == "BRA" and "," in self.operands


@dataclass(frozen=True)
class SassLoop:
    """A natural loop: the index of its first instruction (the header), of its last branch back, and of all its
    instructions, ascending."""

    first: int
    last: int
    indices: tuple[int, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def holds(self, other: SassLoop) -> bool:
        """Whether `other` lies inside this loop."""
        return self != other and set(other.indices) <= set(self.indices)


@dataclass(frozen=True)
class SassKernel:
    """The instructions of one kernel and its loops, outermost first."""

    name: str
    instructions: tuple[SassInstruction, ...]
    loops: tuple[SassLoop, ...]

    @property
    def has_control_bits(self) -> bool:
        """Whether every instruction came with its encoding, so that its path can be simulated."""
        return all(i.step is not None for i in self.instructions)

    def body(self, loop: SassLoop) -> tuple[SassInstruction, ...]:
        """The instructions of a loop."""
        return tuple(self.instructions[i] for i in loop.indices)


_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<predicate>@!?U?P[0-9T]+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);"
    r"(?:\s*/\*\s*0x(?P<low>[0-9a-f]{16})\s*\*/)?"
)
_HIGH = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_LABEL = re.compile(r"^\s*(\.L[\w$.]*):\s*$")
_SECTION = re.compile(r"^\s*\.text\.([\w$.]+):\s*$")
_FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)\s*$")
_TARGET_LABEL = re.compile(r"`\((\.L[\w$.]*)\)")
_TARGET_ADDRESS = re.compile(r"(?:^|[\s,])(0x[0-9a-f]+)\s*$")
_ANNOTATION = re.compile(r"\s+[&?].*$", re.DOTALL)  # nvdisasm prints control bits behind operands since CC 10.0
_ALLOWED = re.compile(r"(?:SB\d|gsb\d)\s*,\s*0x([0-9a-f]+)")


def parse_sass(text: str, name: str | None = None) -> SassKernel:
    """The kernel `name` (or the only one) of a disassembly. Raises `InputError` when there is none to read."""
    functions: dict[str, list[tuple[re.Match[str], str | None]]] = {}
    labels: dict[str, dict[str, int]] = {}
    current = ""
    pending_labels: list[str] = []
    for line in text.splitlines():
        opens = _SECTION.match(line) or _FUNCTION.match(line)
        if opens:
            current = opens.group(1)
            pending_labels = []
            continue
        label = _LABEL.match(line)
        if label:
            pending_labels.append(label.group(1))
            continue
        high = _HIGH.match(line)
        if high and functions.get(current) and functions[current][-1][1] is None:
            functions[current][-1] = (functions[current][-1][0], high.group(1))
            continue
        found = _INSTRUCTION.match(line)
        if found:
            functions.setdefault(current, []).append((found, None))
            for pending in pending_labels:
                labels.setdefault(current, {})[pending] = int(found.group("address"), 16)
            pending_labels = []
    if not functions:
        raise InputError("holds no SASS instruction", where="disassembly", hint="nvdisasm -c -hex prints them.")
    if name is None:
        if len(functions) > 1:
            raise InputError(f"holds {len(functions)} kernels: {', '.join(sorted(functions))}", where="disassembly")
        name = next(iter(functions))
    elif name not in functions:
        raise unknown_name("kernel", name, functions, where="disassembly")
    instructions = tuple(_instruction(found, high, labels.get(name, {})) for found, high in functions[name])
    return SassKernel(name, instructions, _Flow(instructions).loops())


def _instruction(found: re.Match[str], high: str | None, labels: dict[str, int]) -> SassInstruction:
    opcode = found.group("opcode")
    operands = _ANNOTATION.sub("", found.group("rest")).strip()
    predicate = (found.group("predicate") or "").strip() or None
    base = opcode.split(".", 1)[0]
    target = None
    if base in ("BRA", "JMP"):
        label = _TARGET_LABEL.search(operands)
        address = _TARGET_ADDRESS.search(operands)
        if label:
            target = labels.get(label.group(1))
        elif address:
            target = int(address.group(1), 16)
    step = None
    if high is not None:
        bits = int(high, 16)  # bits 64 to 127 of the encoding
        step = Step(
            opcode,
            stall=bits >> 41 & 15,
            write_barrier=bits >> 46 & 7,
            read_barrier=bits >> 49 & 7,
            wait_mask=bits >> 52 & 63,
            allowed=_allowed(base, operands),
            from_registers="GMMA" in base and bool(re.match(r"R\d+, R\d+", operands)),
        )
    return SassInstruction(int(found.group("address"), 16), opcode, operands, predicate, target, step)


def _allowed(base: str, operands: str) -> int:
    """Commit groups that a wait leaves open; 0 marks the product that closes a group; -1 for everything else."""
    if base in ("DEPBAR", "WARPGROUP"):
        found = _ALLOWED.search(operands)
        return int(found.group(1), 16) if found else -1
    if base in ("HGMMA", "QGMMA", "IGMMA"):
        return 0 if "gsb" in operands else -1
    return -1


class _Flow:
    """The control flow of a kernel: blocks of instructions, the ways between them, and the branches back."""

    def __init__(self, code: Sequence[SassInstruction]) -> None:
        self.code = code
        index = {each.address: i for i, each in enumerate(code)}
        leaders = {0}
        for i, each in enumerate(code):
            to = index.get(each.target) if each.target is not None else None
            if to is not None:
                leaders |= {to, i + 1}
            elif each.base in ("EXIT", "RET"):
                leaders.add(i + 1)
        self.starts = sorted(i for i in leaders if i < len(code))
        ends = [*self.starts[1:], len(code)]
        self.blocks = [range(start, end) for start, end in zip(self.starts, ends, strict=True)]
        block_of = {start: b for b, start in enumerate(self.starts)}
        self.block_of = block_of
        self.next: list[list[int]] = []
        for b, block in enumerate(self.blocks):
            last = code[block[-1]]
            to = index.get(last.target) if last.target is not None else None
            onward = [] if to is None else [block_of[to]]
            stops = (last.target is not None or last.base in ("EXIT", "RET")) and not last.conditional
            if not stops and b + 1 < len(self.blocks):
                onward.append(b + 1)
            self.next.append(list(dict.fromkeys(onward)))
        self.order = self._order()
        self.back = self._branches_back()

    def _order(self) -> list[int]:
        """Blocks reachable from the start, each before those it leads to (but for branches back)."""
        seen, done = {0}, []
        stack = [(0, iter(self.next[0]))]
        while stack:
            block, onward = stack[-1]
            for to in onward:
                if to not in seen:
                    seen.add(to)
                    stack.append((to, iter(self.next[to])))
                    break
            else:
                done.append(block)
                stack.pop()
        return done[::-1]

    def _branches_back(self) -> set[tuple[int, int]]:
        """(block, header) of every way back to a block that dominates where it comes from."""
        rank = {block: i for i, block in enumerate(self.order)}
        into: dict[int, list[int]] = {block: [] for block in self.order}
        for block in self.order:
            for to in self.next[block]:
                into[to].append(block)
        above = {0: 0}  # immediate dominators, by the algorithm of Cooper, Harvey and Kennedy
        changed = True
        while changed:
            changed = False
            for block in self.order[1:]:
                known = [each for each in into[block] if each in above]
                best = known[0]
                for each in known[1:]:
                    while best != each:
                        if rank[best] > rank[each]:
                            best = above[best]
                        else:
                            each = above[each]
                if above.get(block) != best:
                    above[block] = best
                    changed = True

        def dominates(header: int, block: int) -> bool:
            while rank[block] > rank[header]:
                block = above[block]
            return block == header

        self.into = into
        self.rank = rank
        return {(b, to) for b in self.order for to in self.next[b] if rank[to] <= rank[b] and dominates(to, b)}

    def _bodies(self) -> dict[int, set[int]]:
        """Header -> blocks of its natural loop."""
        bodies: dict[int, set[int]] = {}
        for block, header in self.back:
            body = bodies.setdefault(header, {header})
            waiting = [block]
            while waiting:
                each = waiting.pop()
                if each not in body:
                    body.add(each)
                    waiting.extend(self.into[each])
        return bodies

    def _waits(self, body: set[int]) -> bool:
        """Whether a loop only waits: a few instructions that try a barrier again, and none that does work."""
        inside = [self.code[i] for b in body for i in self.blocks[b]]
        works = any(each.base in _TENSOR_BASES or each.base.startswith(("LD", "ST", "UTMA")) for each in inside)
        tries = any("TRYWAIT" in each.opcode or each.base == "NANOSLEEP" for each in inside)
        return len(inside) <= 12 and tries and not works

    def loops(self) -> tuple[SassLoop, ...]:
        """The loops that do something, outermost first."""
        found = []
        for header, body in self._bodies().items():
            # A branch to itself is the trap behind the end of a kernel.
            indices = tuple(sorted(i for b in body for i in self.blocks[b]))
            if len(indices) < 2 or self._waits(body):
                continue
            last = max(self.blocks[b][-1] for b, to in self.back if to == header)
            found.append(SassLoop(self.starts[header], last, indices))
        return tuple(sorted(found, key=lambda loop: (loop.first, -len(loop))))

    def longest(self, start: int, goals: set[int], within: set[int] | None = None) -> list[int]:
        """Instructions on the longest way from block `start` to one of the blocks `goals`, none twice: nothing that may
        be skipped is left out, but for loops that only wait."""
        skipped = {b for body in self._bodies().values() if self._waits(body) for b in body} - goals - {start}
        length: dict[int, tuple[int, int]] = {}  # block -> (instructions from here to a goal, the next block)
        for block in reversed(self.order):
            if (within is not None and block not in within) or block in skipped:
                continue
            onward = [
                to
                for to in self.next[block]
                if to in length and self.rank[to] > self.rank[block] and (block, to) not in self.back
            ]
            size = len(self.blocks[block])
            if block in goals:
                length[block] = (size, -1)
            elif onward:
                best = max(onward, key=lambda to: length[to][0])
                length[block] = (size + length[best][0], best)
        way: list[int] = []
        block = start
        while block in length:
            way.extend(self.blocks[block])
            block = length[block][1]
        return way


_TENSOR_BASES = (
    "HMMA", "IMMA", "QMMA", "OMMA", "DMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA",
    "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA",
)  # fmt: skip
_GLOBAL_LOADS = ("LDG", "LDGSTS", "UTMALDG", "UBLKCP")


def main_loop(kernel: SassKernel) -> SassLoop | None:
    """The loop that holds the kernel's work, or None when it has no loop."""

    def weight(loop: SassLoop) -> tuple[bool, bool, int]:
        inner = [set(other.indices) for other in kernel.loops if loop.holds(other)]
        own = [
            each
            for i, each in zip(loop.indices, kernel.body(loop), strict=True)
            if not any(i in other for other in inner)
        ]
        return (
            any(each.base in _TENSOR_BASES for each in own),
            any(each.base in _GLOBAL_LOADS for each in own),
            len(own),
        )

    return max(kernel.loops, key=weight, default=None)


def does_products(body: Sequence[SassInstruction]) -> bool:
    """Whether tensor instructions are among these."""
    return any(each.base in _TENSOR_BASES for each in body)


def moves_memory(body: Sequence[SassInstruction]) -> bool:
    """Whether loads or stores of global memory are among these."""
    return any(each.base in _GLOBAL_LOADS or each.base in ("STG", "RED", "REDG", "ATOMG", "ATOM") for each in body)


def specialized_warps(kernel: SassKernel) -> bool:
    """Whether warps of a CTA run different code (Triton's warp specialization moves registers between them)."""
    return any(each.base == "USETMAXREG" for each in kernel.instructions)


def loop_loads(kernel: SassKernel, loop: SassLoop) -> Counter[int]:
    """Loads of global memory in one pass of a loop, by the bytes a thread moves (bulk copies not counted)."""
    return Counter(access_bytes(each.opcode) for each in kernel.body(loop) if each.base in ("LDG", "LDGSTS"))


def loop_mix(kernel: SassKernel, loop: SassLoop, iterations_per_pass: float = 1.0) -> LoopMix:
    """Instructions of one iteration by unit. A pass of the loop covers `iterations_per_pass` iterations."""
    body = kernel.body(loop)
    bases = Counter(each.base for each in body)
    units = Counter(unit_of(each.opcode) for each in body)
    tensor = Counter(each.opcode for each in body if each.base in _TENSOR_BASES)
    shared = sum(
        32.0 * (matrix_bytes(each.opcode) if each.base in ("LDSM", "STSM") else access_bytes(each.opcode))
        for each in body
        if each.base in ("LDS", "STS", "LDSM", "STSM")
    )
    part = 1.0 / iterations_per_pass
    return LoopMix(
        instructions=len(body) * part,
        by_pipe=tuple((unit, count * part) for unit, count in units.most_common()),
        tensor_by_shape=tuple((opcode, count * part) for opcode, count in sorted(tensor.items())),
        global_loads=(bases["LDG"] + bases["LDGSTS"] + bases["UTMALDG"]) * part,
        shared_loads=(bases["LDS"] + bases["LDSM"]) * part,
        shared_stores=(bases["STS"] + bases["STSM"]) * part,
        shared_bytes=shared * part,
        spill_loads=bases["LDL"] * part,
        spill_stores=bases["STL"] * part,
        barriers=bases["BAR"] * part,
        iterations_per_pass=iterations_per_pass,
    )


def warp_path(kernel: SassKernel, passes: Mapping[SassLoop, tuple[int, float]]) -> WarpPath | None:
    """The instructions a warp runs from start to end, each loop of `passes` passed once; None without encodings.

    `passes` gives such a loop's part number and the iterations of the source's loop that one pass covers. Of two ways
    at a branch the longer one is taken: a part that may be skipped is taken to run. Other loops are passed once.
    """
    if not kernel.has_control_bits or not kernel.instructions:
        return None
    code = kernel.instructions
    flow = _Flow(code)
    ends = {
        b for b in flow.order if code[flow.blocks[b][-1]].base == "EXIT" and not code[flow.blocks[b][-1]].conditional
    }
    numbers: list[int] = []
    spans: list[LoopSpan] = []

    def run(start: int, goals: set[int], within: set[int] | None, inside: SassLoop | None) -> None:
        """The way from block `start` to one of the blocks `goals`, through the loops that lie directly `inside`."""
        starts = [start]
        for loop in passes:
            header = flow.block_of[loop.first]
            around = [each for each in passes if each.holds(loop)]
            if (around[-1] if around else None) != inside:
                continue
            ways = [way for each in starts if (way := flow.longest(each, {header}, within)) or each == header]
            if not ways:
                continue
            took = max(ways, key=len)
            numbers.extend(i for i in took if i not in flow.blocks[header])
            body = {b for b in flow.order if flow.blocks[b][0] in set(loop.indices)}
            first = len(numbers)
            run(header, {b for b, to in flow.back if to == header}, body, loop)
            part, each_pass = passes[loop]
            spans.append(LoopSpan(first, len(numbers), part, each_pass))
            starts = [to for b in body for to in flow.next[b] if to not in body and (within is None or to in within)]
        rest: list[int] = max((flow.longest(each, goals, within) for each in starts), key=len, default=[])
        numbers.extend(rest)

    run(0, ends or {flow.order[-1]}, None, None)
    steps = tuple(step for i in numbers if (step := code[i].step) is not None)
    return WarpPath(steps, tuple(spans), len(code), tuple(numbers))
