"""The warps of a launch, run through their SASS with thread numbers and argument values: who touches which address.

No memory is there: what a load brings is unknown, and becomes a token (`warp_values`) that is the same for lanes that
load from the same address. Local memory and the words that a CTA keeps in shared memory are followed, so a spilled
address, or an index that passes through shared memory, is found again. Lanes that are furthest behind run first, which
brings a warp together again as the hardware does, and all warps of a CTA to a barrier.

A branch, an exit or a mask that depends on loaded data is taken to let work happen: of two ways the one with more
accesses is gone, a loop runs twice, every lane is active. Accesses below such a branch are counted as `uncertain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from occupancy_cli.model.instruction_costs import access_bytes
from occupancy_cli.readers.sass import SassInstruction, SassKernel
from occupancy_cli.readers.sass_operands import Operand, register_at
from occupancy_cli.readers.warp_code import ACCESSES, NO_RESULT, parsed, space_of, words_moved
from occupancy_cli.readers.warp_memory import LocalWords, SharedWords
from occupancy_cli.readers.warp_opcodes import HANDLERS
from occupancy_cli.readers.warp_values import (
    ONE,
    OPAQUE,
    U64,
    ZERO,
    Bools,
    Lanes,
    Value,
    add,
    apply,
    choose,
    constant,
    invert,
    merge,
    mixed,
    negate,
    of_tokens,
    salt,
)

WARP = 32
MOST_STEPS = 60_000
UNCERTAIN_PASSES = 2


@dataclass(frozen=True)
class WarpLaunch:
    """What a launch gives its warps: threads and shared memory of a CTA, the grid, words of constant bank 0 by offset,
    and which CTAs are run."""

    threads: int
    shared_bytes: int
    grid: tuple[int, int, int]
    constants: Mapping[int, int]
    ctas: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Touch:
    """One instruction's access to one memory by all warps at once: the address as low and high half, the lanes that
    take part as [warps, 32], the warps that issue it; of a copy to shared memory also the low half of the address that
    it reads, and the lanes that write zeros instead.

    `uncertain` says that whether or how often it runs depends on loaded data, `masked` that its active lanes do.
    """

    index: int
    space: str
    low: Value
    high: Value
    active: Bools
    issued: Bools
    uncertain: bool
    masked: bool
    source: Value = None
    zeroed: Bools | None = None


class WarpMachine:
    """Runs a kernel; `touched` is called for each access. See the module's docstring."""

    def __init__(self, kernel: SassKernel, launch: WarpLaunch, touched: Callable[[Touch], None]) -> None:
        self.kernel = kernel
        self.launch = launch
        self.touched = touched
        self.lanes = launch.threads * len(launch.ctas)
        self.registers: dict[str, Value] = {}
        self.local = LocalWords()
        self.shared = SharedWords(len(launch.ctas), launch.threads, launch.shared_bytes)
        self.mask: Bools | None = None
        self.guard: Value = ONE
        self.guarded = False
        self.full = np.ones(self.lanes, dtype=bool)
        self.ended = np.zeros(self.lanes, dtype=bool)
        self.uncertain: list[tuple[int, int]] = []
        self.passes: dict[int, int] = {}
        self.work: dict[int, int] = {}
        self.fresh_count = 0
        self.steps = 0
        self.stopped = ""
        thread = np.tile(np.arange(launch.threads, dtype=np.uint32), len(launch.ctas))
        self.lane = thread % WARP
        self.special: dict[str, Value] = {
            "SR_TID.X": Lanes(thread), "SR_TID.Y": ZERO, "SR_TID.Z": ZERO, "SR_LANEID": Lanes(self.lane),
            "SRZ": ZERO, "SR_CgaCtaId": ZERO, "SR_NTID.X": constant(launch.threads),
        }  # fmt: skip
        for axis, letter in enumerate("XYZ"):
            ids = np.repeat(np.array([c[axis] for c in launch.ctas], dtype=np.uint32), launch.threads)
            same = bool(np.all(ids == ids[0]))
            self.special[f"SR_CTAID.{letter}"] = constant(int(ids[0])) if same else Lanes(ids)
            self.special[f"SR_NCTAID.{letter}"] = constant(launch.grid[axis])
        places = {code.address: i for i, code in enumerate(kernel.instructions)}
        self.handled = [parsed(code, places) for code in kernel.instructions]

    # Registers

    def register(self, name: str) -> Value:
        if name in ("RZ", "URZ"):
            return ZERO
        if name in ("PT", "UPT"):
            return ONE
        return self.registers.get(name, ZERO)  # code reads no bits that it did not write

    def read(self, operand: Operand) -> Value:
        kind = operand.kind
        if kind == "register":
            if any(s not in ("64", "U32") for s in operand.suffixes):
                return OPAQUE
            value = self.register(operand.name)
        elif kind == "number":
            return constant(operand.number)
        elif kind == "predicate":
            value = self.register(operand.name)
            if operand.sign == "!":
                value = apply("not", lambda bits: (bits == 0).astype(np.uint32), value)
            return value
        elif kind == "constant":
            value = self._constant(operand, 0)
        elif kind == "special":
            return self.special.get(operand.name, OPAQUE)
        else:
            return OPAQUE
        if operand.sign == "-":
            return negate(value)
        if operand.sign == "~":
            return invert(value)
        return OPAQUE if operand.sign else value

    def pair(self, operand: Operand) -> tuple[Value, Value]:
        if operand.kind == "register":
            if operand.sign:
                return OPAQUE, OPAQUE
            return self.register(operand.name), self.register(register_at(operand.name, 1))
        if operand.kind == "constant":
            return self._constant(operand, 0), self._constant(operand, 4)
        if operand.kind == "number":
            return constant(operand.number), constant(-1 if operand.number < 0 else 0)
        return OPAQUE, OPAQUE

    def _constant(self, operand: Operand, offset: int) -> Value:
        if operand.bank != 0:
            return OPAQUE
        number = self.launch.constants.get(operand.number + offset)
        return OPAQUE if number is None else constant(number)

    def write(self, operand: Operand, value: Value) -> None:
        self.set(operand.name, value)

    def write_pair(self, operand: Operand, low: Value, high: Value) -> None:
        self.set(operand.name, low)
        self.set(register_at(operand.name, 1), high)

    def set(self, name: str, value: Value) -> None:
        """Write a register in the lanes that run."""
        if name in ("RZ", "URZ", "PT", "UPT"):
            return
        if self.mask is not None:
            value = merge(self.mask, value, self.registers.get(name, ZERO), self._unlike)
        if self.guarded:
            value = choose(self.guard, value, self.registers.get(name, ZERO))
        self.registers[name] = value

    def _unlike(self) -> U64:
        """Tokens that nothing else has, one a lane."""
        self.fresh_count += 1
        return mixed(np.arange(self.lanes, dtype=np.uint64), np.uint64(self.fresh_count))

    # Control

    def run(self) -> None:
        """Run every warp to its end, or until the steps are used up (`stopped` then says so)."""
        waiting: dict[int, Bools] = {0: self.full}
        while waiting and not self.stopped:
            index = min(waiting)
            mask = waiting.pop(index)
            self._run_in(mask)
            while index < len(self.handled) and mask.any():
                self.steps += 1
                if self.steps > MOST_STEPS:
                    self.stopped = f"the first {MOST_STEPS:,} instructions were followed"
                    break
                goes = self._step(index, mask)
                if goes is not None:
                    for target, lanes in goes:
                        if lanes.any():
                            waiting[target] = waiting[target] | lanes if target in waiting else lanes
                    break
                index += 1
                if waiting and index >= min(waiting):
                    waiting[index] = waiting[index] | mask if index in waiting else mask
                    break
                self._run_in(mask)

    def _run_in(self, lanes: Bools) -> None:
        """Let what follows write in these lanes; those that have ended do not matter."""
        self.mask = None if bool((lanes | self.ended).all()) else lanes

    def _split(self, condition: Value) -> tuple[Bools, Bools]:
        """Where a condition depends on data, and where it is true."""
        if condition is None:
            return self.full, ~self.full
        unknown = self.full & condition.unknown_lanes()
        return unknown, ~unknown & (condition.bits != 0)

    def _step(self, index: int, mask: Bools) -> list[tuple[int, Bools]] | None:
        """Run one instruction; where its lanes go next, or None for all to the next instruction."""
        code, ops, modifiers, target = self.handled[index]
        condition = self._condition(code)
        base = code.base
        if base in ("BRA", "EXIT", "RET", "BRX", "CALL", "JMP"):
            return self._control(index, code, ops, condition, target, mask)
        self.guarded = False
        running, masked = mask, False
        if condition is not ONE:
            unknown, taken = self._split(condition)
            unknown = mask & unknown
            masked = bool(unknown.any())
            running = unknown | (mask & taken)
            if masked:
                self.guard, self.guarded = condition, True
        if base in ACCESSES:
            self._access(index, code, ops, mask, running, masked)
            self.guarded = False
            return None
        self._run_in(running)
        if not running.any():
            self.guarded = False
            return None
        handler = HANDLERS.get(base)
        if handler is not None:
            handler(self, modifiers, ops)
        elif base in ("SHFL", "VOTE", "VOTEU", "ELECT", "SYNCS"):
            self._across(base, modifiers, ops, running)
        elif base not in NO_RESULT and ops:
            self._opaque(code, ops)
        self.guarded = False
        return None

    def _condition(self, code: SassInstruction) -> Value:
        if code.predicate is None:
            return ONE
        name = code.predicate.lstrip("@")
        return self.read(Operand("predicate", name.lstrip("!"), "!" if name.startswith("!") else ""))

    def _opaque(self, code: SassInstruction, ops: Sequence[Operand]) -> None:
        first = ops[0]
        if first.kind == "register":
            for i in range(words_moved(code)):
                self.set(register_at(first.name, i), OPAQUE)
        for each in ops[: 1 if first.kind == "register" else 2]:
            if each.kind == "predicate":
                self.set(each.name, OPAQUE)

    def _control(
        self, index: int, code: SassInstruction, ops: Sequence[Operand], condition: Value, target: int | None,
        mask: Bools,
    ) -> list[tuple[int, Bools]] | None:  # fmt: skip
        if "DIV" in code.opcode or "CONV" in code.opcode:
            return None  # taken by a warp that is not together
        if code.base == "BRA":
            for each in ops:
                if each.kind == "predicate":
                    value = self.read(each)
                    both = None if value is None or condition is None else choose(condition, value, ZERO)
                    condition = value if condition is ONE else both
        if code.base in ("BRX", "CALL", "JMP") or (code.base == "BRA" and target is None):
            self.stopped = f"{code.opcode} is not followed"
            return []
        leaves = code.base in ("EXIT", "RET")
        unknown, taken = (mask & lanes for lanes in self._split(condition))
        if unknown.any():
            if leaves:
                self.uncertain.append((index, len(self.handled)))
            else:
                assert target is not None
                self.uncertain.append((min(index, target), max(index, target)))
                if target <= index:
                    self.passes[index] = self.passes.get(index, 0) + 1
                    if self.passes[index] % UNCERTAIN_PASSES:
                        taken = taken | unknown
                elif self._work_from(target) > self._work_from(index + 1):
                    self.uncertain.append((index, len(self.handled)))
                    taken = taken | unknown
        stays = mask & ~taken
        if leaves:
            self.ended = self.ended | taken
            return [(index + 1, stays)]
        assert target is not None
        return [(target, taken), (index + 1, stays)]

    def _work_from(self, start: int) -> int:
        """How many accesses may run from an instruction on."""
        if start not in self.work:
            seen, todo = set(), [start]
            while todo:
                at = todo.pop()
                if at in seen or at >= len(self.handled):
                    continue
                seen.add(at)
                code, _, _, target = self.handled[at]
                if target is not None:
                    todo.append(target)
                if code.conditional or (target is None and code.base not in ("EXIT", "RET")):
                    todo.append(at + 1)
            self.work[start] = sum(self.handled[at][0].base in ACCESSES for at in seen)
        return self.work[start]

    # Between lanes

    def _across(self, base: str, modifiers: frozenset[str], ops: Sequence[Operand], running: Bools) -> None:
        if base == "SHFL":
            self._shuffle(modifiers, ops)
        elif base == "ELECT":
            first = running.reshape(-1, WARP)
            leader = np.zeros_like(first)
            leader[np.arange(len(first)), np.argmax(first, axis=1)] = True
            self.set(ops[0].name, Lanes(leader.reshape(-1).astype(np.uint32)))
            if len(ops) > 1 and ops[1].kind == "register":
                self.set(ops[1].name, OPAQUE)
        elif base == "SYNCS":
            # A barrier in shared memory that is waited for is taken to be through.
            if ops and ops[0].kind == "predicate":
                self.set(ops[0].name, ONE)
        else:
            self._vote(modifiers, ops, running)

    def _vote(self, modifiers: frozenset[str], ops: Sequence[Operand], running: Bools) -> None:
        value = self.read(ops[-1])
        results = ops[:-1]
        if value is None or value.token is not None:
            for each in results:
                self.set(each.name, OPAQUE)
            return
        on = np.broadcast_to(value.bits != 0, self.full.shape).reshape(-1, WARP) & running.reshape(-1, WARP)
        ballot = (on.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1)
        whole = on.sum(axis=1) == running.reshape(-1, WARP).sum(axis=1)
        verdict = whole if "ALL" in modifiers else on.any(axis=1)
        for each in results:
            per_warp = verdict if each.kind == "predicate" else ballot
            self.set(each.name, Lanes(np.repeat(per_warp, WARP).astype(np.uint32)))

    def _shuffle(self, modifiers: frozenset[str], ops: Sequence[Operand]) -> None:
        """SHFL P, R, a, b, c as the PTX ISA defines shfl.sync."""
        target, value, by, limits = ops[1], self.read(ops[2]), self.read(ops[3]), self.read(ops[4])
        self.set(ops[0].name, OPAQUE)
        if value is None or by is None or limits is None or by.token is not None or limits.token is not None:
            self.set(target.name, OPAQUE)
            return
        lane = self.lane.astype(np.int64)
        b = np.broadcast_to(by.bits, self.full.shape).astype(np.int64) & 31
        c = np.broadcast_to(limits.bits, self.full.shape).astype(np.int64)
        segment, clamp = c >> 8 & 31, c & 31
        most = (lane & segment) | (clamp & ~segment)
        if "IDX" in modifiers:
            source = (lane & segment) | (b & ~segment & 31)
            valid = source <= most
        elif "UP" in modifiers:
            source = lane - b
            valid = source >= most
        elif "DOWN" in modifiers:
            source = lane + b
            valid = source <= most
        else:
            source = lane ^ b
            valid = source <= most
        place = np.arange(self.lanes) - lane + np.where(valid, source, lane)
        bits = np.broadcast_to(value.bits, self.full.shape)[place]
        token = None if value.token is None else np.broadcast_to(value.token, self.full.shape)[place]
        self.set(target.name, Lanes(bits, token, value.align))

    # Memory

    def _address(self, operand: Operand) -> tuple[Value, Value]:
        """The low and high half of an address."""
        low: list[Value] = []
        high: Value = ZERO
        wide = any(term.wide for term in operand.terms)
        for term in operand.terms:
            if wide and "U32" not in term.suffixes:
                each, upper = self.pair(term)
                high = add(high, upper)
            else:
                each = self.register(term.name)
            low.append(each)
        total = add(*low, constant(operand.number))
        if not wide or high is None or any(v is None or v.token is not None for v in low):
            return total, high
        carry = np.full(1, operand.number, dtype=np.int64)
        for v in low:
            carry = carry + (np.zeros(1, dtype=np.int64) if v is None else v.bits.astype(np.int64))
        return total, add(high, Lanes((carry >> 32).astype(np.uint32)))

    def _access(
        self, index: int, code: SassInstruction, ops: Sequence[Operand], mask: Bools, running: Bools, masked: bool
    ) -> None:
        places = [each for each in ops if each.kind == "address"]
        uncertain = any(first <= index <= last for first, last in self.uncertain)
        issued = np.asarray(mask.reshape(-1, WARP).any(axis=1))

        low, high = self._address(places[-1]) if places else (OPAQUE, OPAQUE)
        if code.base != "LDGSTS":
            active = running.reshape(-1, WARP)
            self.touched(Touch(index, space_of(code.base), low, high, active, issued, uncertain, masked))
            self._moved(code, ops, low, high, running)
            return
        # Where the last operand is false nothing is read, and zeros are written.
        copies = self.read(ops[-1]) if ops[-1].kind == "predicate" else ONE
        reading, unsure = running, masked
        if copies is None or copies.token is not None:
            unsure = True
        else:
            reading = running & (copies.bits != 0)
        target, _ = self._address(places[0])
        active, reads = running.reshape(-1, WARP), reading.reshape(-1, WARP)
        zeroed = active & ~reads
        self.touched(Touch(index, "shared", target, ZERO, reads, issued, uncertain, unsure, low, zeroed))
        self.touched(Touch(index, "global", low, high, reads, issued, uncertain, unsure))
        self.shared.store(target, running, [self._loaded(code, low, high, 4 * i) for i in range(words_moved(code))])

    def _moved(self, code: SassInstruction, ops: Sequence[Operand], low: Value, high: Value, running: Bools) -> None:
        """What a load leaves in registers, and a store in local and shared memory."""
        self._run_in(running)
        base, words = code.base, words_moved(code)
        small = any(s in code.opcode for s in (".U8", ".U16", ".S8", ".S16"))
        if base in ("STS", "STL"):
            values = [OPAQUE if small else self.register(register_at(ops[-1].name, i)) for i in range(words)]
            if base == "STS":
                self.shared.store(low, running, values)
            else:
                self.local.store(low, values, self.mask, self._unlike)
            return
        if base == "STSM":
            self.shared.store(low, running, [OPAQUE] * 4)
            return
        loaded: list[Value] = [OPAQUE] * words
        if base == "LDS" and not small:
            loaded = self.shared.load(low, running, words, self._unlike)
        elif base == "LDL":
            loaded = self.local.load(low, words)
        elif base in ("LDG", "LD"):
            loaded = [self._loaded(code, low, high, 4 * i) for i in range(words)]
        for each in ops[:2]:
            if each.kind == "register":
                for i, value in enumerate(loaded):
                    self.set(register_at(each.name, i), value)

    def _loaded(self, code: SassInstruction, low: Value, high: Value, offset: int) -> Value:
        """A token for what lies at an address: the same for whoever loads from there."""
        if low is None:
            return OPAQUE
        parts: list[U64 | np.uint64] = [salt(str(access_bytes(code.opcode) % 4)), low.bits.astype(np.uint64)]
        parts[1] = parts[1] + np.uint64(offset)
        parts += [v.token for v in (low, high) if v is not None and v.token is not None]
        if low.token is None and high is not None:
            parts.append(high.bits.astype(np.uint64))
        return of_tokens(mixed(*parts))
