"""What a kernel's machine code says: its main loop, the loop's instruction mix, and the path of a warp.

Reads the text of `nvdisasm -c -hex` or `cuobjdump -sass` (both ship with Triton); parses only, runs nothing. The
control bits of an instruction (stall cycles, scoreboards) are not printed, but lie in its 128-bit encoding since Volta:
bits 105-108 stall, 110-112 write scoreboard, 113-115 read scoreboard, 116-121 the scoreboards waited for (described in
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv:1804.06826). Text without encodings still
gives loops and mixes, but no path to simulate.

Loops are found by control flow: a branch back to an earlier instruction. The main loop is the one with tensor
instructions or global loads of its own and the most instructions; waiting loops (a barrier tried again) do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.model.pipeline import Step, WarpPath, access_bytes, matrix_bytes, unit_of
from occupancy_cli.model.work import LoopMix


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
    """A loop: indices of its first and last (branching) instruction."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def holds(self, other: SassLoop) -> bool:
        """Whether `other` lies inside this loop."""
        return self != other and self.first <= other.first and other.last <= self.last


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
        return self.instructions[loop.first : loop.last + 1]


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
    return SassKernel(name, instructions, _find_loops(instructions))


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


def _find_loops(instructions: Sequence[SassInstruction]) -> tuple[SassLoop, ...]:
    index = {each.address: i for i, each in enumerate(instructions)}
    last: dict[int, int] = {}
    for i, each in enumerate(instructions):
        if each.target is None or each.target not in index:
            continue
        to = index[each.target]
        # A branch to itself is the trap behind the end of a kernel.
        if to < i:
            last[to] = max(last.get(to, 0), i)
    loops = [SassLoop(first, end) for first, end in last.items()]
    waiting = ("TRYWAIT", "NANOSLEEP")
    loops = [
        loop
        for loop in loops
        if not (
            len(loop) <= 12 and any(w in i.opcode for w in waiting for i in instructions[loop.first : loop.last + 1])
        )
    ]
    return tuple(sorted(loops, key=lambda loop: (loop.first, -loop.last)))


_TENSOR_BASES = (
    "HMMA", "IMMA", "QMMA", "OMMA", "DMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA",
    "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA",
)  # fmt: skip
_GLOBAL_LOADS = ("LDG", "LDGSTS", "UTMALDG", "UBLKCP")


def main_loop(kernel: SassKernel) -> SassLoop | None:
    """The loop that holds the kernel's work, or None when it has no loop."""

    def weight(loop: SassLoop) -> tuple[bool, bool, int]:
        inner = [other for other in kernel.loops if loop.holds(other)]
        own = [
            each
            for i, each in enumerate(kernel.body(loop), loop.first)
            if not any(other.first <= i <= other.last for other in inner)
        ]
        return (
            any(each.base in _TENSOR_BASES for each in own),
            any(each.base in _GLOBAL_LOADS for each in own),
            len(own),
        )

    return max(kernel.loops, key=weight, default=None)


def specialized_warps(kernel: SassKernel) -> bool:
    """Whether warps of a CTA run different code (Triton's warp specialization moves registers between them)."""
    return any(each.base == "USETMAXREG" for each in kernel.instructions)


def loop_bytes_loaded(kernel: SassKernel, loop: SassLoop) -> int:
    """Bytes that one thread loads from global memory in one pass of a loop (bulk copies not counted)."""
    return sum(access_bytes(each.opcode) for each in kernel.body(loop) if each.base in ("LDG", "LDGSTS"))


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


def warp_path(kernel: SassKernel, loop: SassLoop | None = None, iterations_per_pass: float = 1.0) -> WarpPath | None:
    """The instructions a warp runs: up to `loop`, one pass of it, and on to the end; None without encodings.

    Of two ways at a branch the longer one is taken: a part that may be skipped is taken to run. Loops other than `loop`
    are passed once.
    """
    if not kernel.has_control_bits or not kernel.instructions:
        return None
    code = kernel.instructions
    ends = {i for i, each in enumerate(code) if each.base == "EXIT" and not each.conditional}
    if loop is None:
        return WarpPath(_steps(code, _walk(code, 0, ends or {len(code) - 1})))
    before = _walk(code, 0, {loop.first})[:-1] if loop.first else []
    during = _walk(code, loop.first, {loop.last})
    leaves = _exit_of(code, loop)
    after = _walk(code, leaves, ends or {len(code) - 1}) if leaves is not None else []
    return WarpPath(_steps(code, before), _steps(code, during), _steps(code, after), iterations_per_pass)


def _steps(code: Sequence[SassInstruction], path: Sequence[int]) -> tuple[Step, ...]:
    return tuple(step for i in path if (step := code[i].step) is not None)


def _exit_of(code: Sequence[SassInstruction], loop: SassLoop) -> int | None:
    """Where control goes when the loop is done: behind its branch, or where a branch inside leads out."""
    if code[loop.last].conditional and loop.last + 1 < len(code):
        return loop.last + 1
    index = {each.address: i for i, each in enumerate(code)}
    for each in code[loop.first : loop.last + 1]:
        if each.target is not None and (to := index.get(each.target)) is not None and to > loop.last:
            return to
    return loop.last + 1 if loop.last + 1 < len(code) else None


def _walk(code: Sequence[SassInstruction], start: int, goals: set[int]) -> list[int]:
    """Indices from `start` to a goal, both included: the longest way forward, which leaves no part out."""
    index = {each.address: i for i, each in enumerate(code)}
    longest: dict[int, tuple[int, int]] = {}  # instruction -> (instructions from here to a goal, the next one)
    for i in range(len(code) - 1, start - 1, -1):
        if i in goals:
            longest[i] = (1, -1)
            continue
        each = code[i]
        taken = index.get(each.target) if each.target is not None else None
        falls_through = each.conditional or (each.target is None and each.base not in ("EXIT", "RET"))
        onward = [
            to for to in ((i + 1) if falls_through else None, taken) if to is not None and to > i and to in longest
        ]
        if onward:
            best = max(onward, key=lambda to: longest[to][0])
            longest[i] = (longest[best][0] + 1, best)
    path = [start]
    while path[-1] in longest and longest[path[-1]][1] >= 0:
        path.append(longest[path[-1]][1])
    return path
