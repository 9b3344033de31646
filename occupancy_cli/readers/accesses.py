"""Every memory access of a compiled kernel: wavefronts of shared memory and sectors of global memory, and the least.

    LDG.E.U16   16 bits   262,144 executions   2,097,152 sectors for 262,144 at best   copy.py:12
    LDS.128    128 bits     1,024 executions   4 wavefronts an access, 4 at best       mm.py:44

Found by running the kernel's SASS for the launch at hand (`warp_machine`): the addresses of all lanes as the hardware
sees them, from block and thread numbers and argument values. Where an address, or which lanes take part, depends on
data in memory, a figure is given only if it is the same for any data of which different loaded values are different
rows; else it is None and `unknown` says why. `assumes` says on what a figure rests.

Sectors and executions are those of the whole launch, as Nsight Compute counts them ("L2 Theoretical Sectors Global",
"# Instructions Executed"); wavefronts those of one access ("L1 Conflicts Shared N-Way").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from occupancy_cli.model.instruction_costs import access_bytes, matrix_bytes
from occupancy_cli.readers.access_rules import (
    MATRIX_ROW_BYTES,
    SECTOR_BYTES,
    Ints,
    copy_wavefronts,
    distinct,
    least_sectors,
    least_wavefronts,
    matrix_wavefronts,
    shared_wavefronts,
)
from occupancy_cli.readers.sass import SassInstruction, SassKernel
from occupancy_cli.readers.warp_code import ACCESSES
from occupancy_cli.readers.warp_machine import WARP, Touch, WarpLaunch, WarpMachine
from occupancy_cli.readers.warp_values import Bools, Value, mixed

LANE_STEPS = 60_000_000
"""Lanes times instructions that are followed of a launch: one to three seconds."""
MOST_LANES = 1 << 17
_FIRST_CTAS = 8
_RESERVED_BYTES = 4096  # the system's own kilobyte below a CTA's shared memory, and room behind it
DATA_ADDRESS = "its address depends on loaded data"
DATA_MASK = "every lane whose mask depends on loaded data takes part"
DATA_BRANCH = "the code below a branch on loaded data runs, a loop of such length twice"
DATA_WAY = "whether it runs depends on loaded data"
DATA_ROWS = "different loaded indices are different rows"
LIKE_NEIGHBOURS = "CTAs that were not followed are like those beside them"
UNFOLLOWED = "its address is computed by instructions that are not followed"


@dataclass(frozen=True)
class Access:
    """One instruction that accesses memory.

    `bits` is what a lane moves, `executed` how often warps run it, `sectors` those of all executions. Figures of memory
    that it does not access are 0, those that are not known None: with a branch on loaded data above it an access has
    figures of one execution, but none of the launch. `lane_stride_bytes` is how far neighbouring lanes of a
    warp lie apart where that is one number, `offset_bytes` where in a 32-byte sector the first lane's address begins.
    """

    address: int
    op: str
    bits: int
    executed: int | None
    wavefronts_per_access: float | None
    least_wavefronts: float | None
    sectors: int | None
    least_sectors: int | None
    sectors_per_access: float | None
    least_sectors_per_access: float | None
    in_loop: bool
    unknown: str = ""
    assumes: tuple[str, ...] = ()
    lane_stride_bytes: int | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True)
class Accesses:
    """All accesses in program order, from `followed` of the `launched` CTAs, each standing for its neighbours where
    they are not all. `stopped` says why code was not followed to its end."""

    found: tuple[Access, ...]
    followed: int
    launched: int
    stopped: str = ""


@dataclass
class _Tally:
    """What is counted of one instruction while the warps run."""

    executed: float = 0.0
    wavefronts: float = 0.0
    least_wavefronts: float = 0.0
    sectors: float = 0.0
    least_sectors: float = 0.0
    unknown: set[str] = field(default_factory=set)
    assumes: set[str] = field(default_factory=set)
    uncertain: bool = False
    lane_stride_bytes: int | None = None
    offset_bytes: int | None = None


def chosen_ctas(grid: tuple[int, int, int], most: int) -> tuple[list[tuple[int, int, int]], list[float]]:
    """At most about `most` CTAs to run and how many each stands for: all where they are so few, else of each axis some
    at even distances, the first and the last among them."""
    picked: dict[int, list[int]] = {}
    left = max(most, 1)
    for rank, axis in enumerate(sorted(range(3), key=lambda i: grid[i])):
        count = min(grid[axis], max(1, int(left ** (1 / (3 - rank)) + 1e-9)))
        last = grid[axis] - 1
        picked[axis] = sorted({round(i * last / (count - 1)) for i in range(count)}) if count > 1 else [0]
        left //= len(picked[axis])

    def weight(axis: int, at: int) -> float:
        size, count = grid[axis], len(picked[axis])
        if count in (1, size):
            return size / count
        return 1.0 if at == size - 1 else (size - 1) / (count - 1)

    ctas = [(x, y, z) for z in picked[2] for y in picked[1] for x in picked[0]]
    return ctas, [math.prod(weight(axis, at) for axis, at in enumerate(cta)) for cta in ctas]


def read_accesses(
    kernel: SassKernel,
    constants: Mapping[int, int],
    threads: int,
    grid: tuple[int, int, int],
    shared_bytes: int,
    lane_steps: int = LANE_STEPS,
) -> Accesses:
    """The accesses of a launch. `constants` are the words of constant bank 0 (`kernel_parameters.constant_words`).

    A few CTAs are run first; from how many instructions they take follows how many more fit into `lane_steps`.
    """
    launched = math.prod(grid)
    counted = _Counted(kernel)
    run = _Runner(kernel, threads, grid, constants, shared_bytes, counted)
    ctas, weights = chosen_ctas(grid, _FIRST_CTAS)
    steps = run.all(ctas, weights)
    more = lane_steps // max(steps, 1) // threads
    if len(ctas) < launched and more > len(ctas):
        counted.clear()
        ctas, weights = chosen_ctas(grid, more)
        at_once = max(MOST_LANES // threads, 1)
        for start in range(0, len(ctas), at_once):
            run.all(ctas[start : start + at_once], weights[start : start + at_once])
    if len(ctas) < launched:
        counted.assume(LIKE_NEIGHBOURS)
    inside = {i for loop in kernel.loops for i in loop.indices}
    found = tuple(counted.access(i, i in inside, run.stopped, run.uncertain) for i in sorted(counted.tallies))
    return Accesses(found, len(ctas), launched, run.stopped)


class _Runner:
    """Runs CTAs of one launch, some at a time."""

    def __init__(
        self,
        kernel: SassKernel,
        threads: int,
        grid: tuple[int, int, int],
        constants: Mapping[int, int],
        shared_bytes: int,
        counted: _Counted,
    ) -> None:
        self.kernel, self.counted = kernel, counted
        self.launch = WarpLaunch(threads, shared_bytes + _RESERVED_BYTES, grid, constants, ())
        self.stopped = ""
        self.uncertain = False

    def all(self, ctas: Sequence[tuple[int, int, int]], weights: Sequence[float]) -> int:
        """Run these CTAs to their end; how many instructions that took."""
        self.counted.weights = np.repeat(np.array(weights), self.launch.threads // WARP)
        machine = WarpMachine(self.kernel, replace(self.launch, ctas=tuple(ctas)), self.counted.touch)
        machine.run()
        self.stopped = self.stopped or machine.stopped
        self.uncertain = self.uncertain or bool(machine.uncertain)
        return machine.steps


class _Counted:
    """Adds up what accesses take; warps count by their weight."""

    def __init__(self, kernel: SassKernel) -> None:
        self.kernel = kernel
        self.weights = np.zeros(0)
        self.tallies: dict[int, _Tally] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        code = self.kernel.instructions
        self.tallies = {i: _Tally() for i, c in enumerate(code) if c.base in ACCESSES and not _skipped(c)}

    def assume(self, what: str) -> None:
        """Let every figure rest on this."""
        for tally in self.tallies.values():
            tally.assumes.add(what)

    def touch(self, touch: Touch) -> None:
        tally = self.tallies.get(touch.index)
        if tally is None:
            return
        code = self.kernel.instructions[touch.index]
        size = lane_bytes(code.opcode)
        if touch.space != "global" or code.base != "LDGSTS":
            tally.executed += float(self.weights[touch.issued].sum())
        tally.uncertain |= touch.uncertain
        if touch.masked:
            tally.assumes.add(DATA_MASK)
        if touch.uncertain:
            tally.assumes.add(DATA_BRANCH)
        if touch.space == "shared":
            self._shared(code.base, code.opcode, size, touch, tally)
        elif touch.space == "global":
            self._global(size, touch, tally)

    def _shared(self, base: str, opcode: str, size: int, touch: Touch, tally: _Tally) -> None:
        low, shape = touch.low, touch.active.shape
        part = touch.active if touch.zeroed is None else touch.active | touch.zeroed
        if not part.any():
            return
        if low is None or bool((low.unknown_lanes() & part.reshape(-1)).any()):
            tally.unknown.add(UNFOLLOWED if low is None else DATA_ADDRESS)
            return
        low_size = shape[0] * shape[1]
        addresses = np.broadcast_to(low.bits, (low_size,)).reshape(shape).astype(np.int64)
        if base in ("LDSM", "STSM"):
            matrices = matrix_bytes(opcode) // 4
            running = touch.active.any(axis=1)
            taken = np.where(running, matrix_wavefronts(addresses, matrices), 0)
            least = running * matrices
        elif touch.zeroed is not None:
            if touch.source is None:
                tally.unknown.add(UNFOLLOWED)
                return
            sources = np.broadcast_to(touch.source.bits, (low_size,)).reshape(shape).astype(np.int64)
            taken, least = copy_wavefronts(addresses, sources, touch.active, touch.zeroed, size)
        else:
            taken = shared_wavefronts(addresses, touch.active, size, load=base == "LDS")
            least = least_wavefronts(touch.active.sum(axis=1), size, taken)
        tally.wavefronts += float((taken * self.weights).sum())
        tally.least_wavefronts += float((least * self.weights).sum())

    def _global(self, size: int, touch: Touch, tally: _Tally) -> None:
        low, high, active = touch.low, touch.high, touch.active
        if not active.any():
            return
        if low is None or (low.token is None and high is None):
            tally.unknown.add(UNFOLLOWED)
            return
        keys, bits = _sector_keys(low, high, active.shape)
        from_data = bool((low.unknown_lanes() & active.reshape(-1)).any())
        if from_data and low.token is not None:
            token = np.broadcast_to(low.token, (active.size,)).reshape(active.shape)
            if not _whole_rows(token, bits, active, low.align, size):
                tally.unknown.add(DATA_ADDRESS)
                return
            tally.assumes.add(DATA_ROWS)
        taken = distinct(keys, active)
        tally.sectors += float((taken * self.weights).sum())
        tally.least_sectors += float((least_sectors(active.sum(axis=1), size, taken) * self.weights).sum())
        if tally.offset_bytes is None and not from_data:
            self._note_pattern(bits, active, tally)

    def _note_pattern(self, bits: Ints, active: Bools, tally: _Tally) -> None:
        warp = int(np.argmax(active.sum(axis=1)))
        lanes = np.flatnonzero(active[warp])
        tally.offset_bytes = int(bits[warp, lanes[0]]) % SECTOR_BYTES
        steps = set(np.diff(bits[warp, lanes]).tolist())
        if len(steps) == 1 and len(lanes) == lanes[-1] - lanes[0] + 1:
            tally.lane_stride_bytes = int(steps.pop())

    def access(self, index: int, in_loop: bool, stopped: str, uncertain: bool) -> Access:
        """What was counted of an instruction, as far as it is known."""
        tally, code = self.tallies[index], self.kernel.instructions[index]
        unknown = "; ".join(sorted(tally.unknown))
        if not tally.executed and (stopped or uncertain):
            unknown = unknown or stopped or DATA_WAY
        known = not unknown
        count = tally.executed

        def each(total: float) -> float | None:
            return round(total / count if count else 0.0, 6) if known else None

        certain = not tally.uncertain and not stopped and known
        return Access(
            code.address,
            code.opcode,
            8 * lane_bytes(code.opcode),
            round(count) if certain else None,
            each(tally.wavefronts),
            each(tally.least_wavefronts),
            round(tally.sectors) if certain else None,
            round(tally.least_sectors) if certain else None,
            each(tally.sectors),
            each(tally.least_sectors),
            in_loop,
            unknown,
            tuple(sorted(tally.assumes)),
            tally.lane_stride_bytes,
            tally.offset_bytes,
        )


def _skipped(code: SassInstruction) -> bool:
    """Whether it only looks like an access: the compiler puts loads that never run between others."""
    return "[" not in code.operands or code.predicate == "@!PT"


def lane_bytes(opcode: str) -> int:
    """Bytes that a lane moves; of a row of a matrix for LDSM and STSM."""
    return MATRIX_ROW_BYTES if opcode.startswith(("LDSM", "STSM")) else access_bytes(opcode)


def _sector_keys(low: Value, high: Value, shape: tuple[int, ...]) -> tuple[np.ndarray, Ints]:
    """A number for the sector of each lane's address, and the address' known bits."""
    assert low is not None
    size = shape[0] * shape[1]
    bits = np.broadcast_to(low.bits, (size,)).astype(np.uint64)
    upper = np.zeros(size, dtype=np.uint64) if high is None else np.broadcast_to(high.bits, (size,)).astype(np.uint64)
    if high is not None and high.token is not None:
        upper = mixed(upper, np.broadcast_to(high.token, (size,)))
    keys = (bits | (upper << np.uint64(32))) >> np.uint64(5)
    if low.token is not None:
        token = np.broadcast_to(low.token, (size,))
        keys = np.where(token != 0, mixed(token, bits >> np.uint64(5)), keys)
    return keys.reshape(shape), bits.astype(np.int64).reshape(shape)


def _whole_rows(token: np.ndarray, bits: Ints, active: Bools, align: int, size: int) -> bool:
    """Whether sectors follow from the known bits alone: rows lie on sectors, and each row's bytes fill theirs, so that
    two rows share none."""
    if 1 << min(align, 31) < SECTOR_BYTES:
        return False
    filled: dict[tuple[int, int, int], int] = {}
    for warp in range(len(token)):
        on = active[warp]
        for row, at in set(zip(token[warp][on].tolist(), bits[warp][on].tolist(), strict=True)):
            key = (warp, row, at // SECTOR_BYTES)
            filled[key] = filled.get(key, 0) + size
    return all(count >= SECTOR_BYTES for count in filled.values())
