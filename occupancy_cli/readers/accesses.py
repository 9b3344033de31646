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
from dataclasses import dataclass, field

import numpy as np

from occupancy_cli.model.instruction_costs import access_bytes, matrix_bytes
from occupancy_cli.readers.access_rules import (
    MATRIX_ROW_BYTES,
    SECTOR_BYTES,
    Ints,
    distinct,
    least_sectors,
    least_wavefronts,
    matrix_wavefronts,
    shared_wavefronts,
)
from occupancy_cli.readers.sass import SassInstruction, SassKernel
from occupancy_cli.readers.warp_machine import WARP, Touch, WarpLaunch, WarpMachine, space_of
from occupancy_cli.readers.warp_values import Bools, Value, mixed

LANES_AT_ONCE = 1 << 14
DATA_ADDRESS = "its address depends on loaded data"
DATA_MASK = "every lane whose mask depends on loaded data takes part"
DATA_BRANCH = "the code below a branch on loaded data runs, a loop of such length twice"
DATA_ROWS = "different loaded indices are different rows"
UNFOLLOWED = "its address is computed by instructions that are not followed"


@dataclass(frozen=True)
class Access:
    """One instruction that accesses memory.

    `bits` is what a lane moves, `executed` how often warps run it, `sectors` those of all executions. Figures of memory
    that it does not access are 0, those that are not known None. `lane_stride_bytes` is how far neighbouring lanes of a
    warp lie apart where that is one number, `offset_bytes` where in a 32-byte sector the first lane's address begins.
    """

    address: int
    op: str
    bits: int
    executed: float | None
    wavefronts_per_access: float | None
    least_wavefronts: float | None
    sectors: float | None
    least_sectors: float | None
    in_loop: bool
    unknown: str = ""
    assumes: tuple[str, ...] = ()
    lane_stride_bytes: int | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True)
class Accesses:
    """All accesses in program order. `note` says what was left out: CTAs that were not run, code not followed."""

    found: tuple[Access, ...]
    note: str = ""


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


def chosen_ctas(grid: tuple[int, int, int], threads: int) -> tuple[list[tuple[int, int, int]], list[float]]:
    """CTAs to run and how many each stands for: all, or of each axis some at even distances and the last."""
    most = max(LANES_AT_ONCE // threads, 1)
    axes: list[list[int]] = []
    left = most
    for size in sorted(range(3), key=lambda i: grid[i]):
        count = min(
            grid[size], max(left, 1) if size == max(range(3), key=lambda i: grid[i]) else max(round(left**0.5), 1)
        )
        axes.append(sorted({round(i * (grid[size] - 1) / max(count - 1, 1)) for i in range(count)}))
        left //= max(len(axes[-1]), 1)
    order = sorted(range(3), key=lambda i: grid[i])
    picked = {axis: axes[place] for place, axis in enumerate(order)}

    def weight(axis: int, at: int) -> float:
        size, count = grid[axis], len(picked[axis])
        if size == count or count == 1:
            return size / count
        return 1.0 if at == size - 1 else (size - 1) / (count - 1)

    ctas = [(x, y, z) for z in picked[2] for y in picked[1] for x in picked[0]]
    return ctas, [math.prod(weight(axis, at) for axis, at in enumerate(cta)) for cta in ctas]


def read_accesses(
    kernel: SassKernel, constants: Mapping[int, int], threads: int, grid: tuple[int, int, int], shared_bytes: int
) -> Accesses:
    """The accesses of a launch. `constants` are the words of constant bank 0 (`kernel_parameters.constant_words`)."""
    ctas, weights = chosen_ctas(grid, threads)
    launch = WarpLaunch(threads, shared_bytes + 4096, grid, constants, tuple(ctas))
    counted = _Counted(kernel, np.repeat(np.array(weights), threads // WARP))
    machine = WarpMachine(kernel, launch, counted.touch)
    machine.run()
    inside = {i for loop in kernel.loops for i in loop.indices}
    found = tuple(counted.access(i, i in inside, machine.stopped) for i in sorted(counted.places))
    notes = []
    if len(ctas) < math.prod(grid):
        notes.append(f"{len(ctas)} of {math.prod(grid):,} CTAs were followed, each for its neighbours")
    if machine.stopped:
        notes.append(machine.stopped)
    return Accesses(found, "; ".join(notes))


class _Counted:
    """Adds up what accesses take; warps count by their weight."""

    def __init__(self, kernel: SassKernel, weights: np.ndarray) -> None:
        self.kernel = kernel
        self.weights = weights
        self.places = {i for i, c in enumerate(kernel.instructions) if c.base in _READ and not _skipped(c)}
        self.tallies = {i: _Tally() for i in self.places}

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
        if not touch.active.any():
            return
        if low is None or bool((low.unknown_lanes() & touch.active.reshape(-1)).any()):
            tally.unknown.add(UNFOLLOWED if low is None else DATA_ADDRESS)
            return
        addresses = np.broadcast_to(low.bits, (shape[0] * shape[1],)).reshape(shape).astype(np.int64)
        if base in ("LDSM", "STSM"):
            matrices = matrix_bytes(opcode) // 4
            running = touch.active.any(axis=1)
            taken = np.where(running, matrix_wavefronts(addresses, matrices), 0)
            least = running * matrices
        else:
            taken = shared_wavefronts(addresses, touch.active, size)
            least = least_wavefronts(touch.active.sum(axis=1), size)
        tally.wavefronts += float((taken * self.weights).sum())
        tally.least_wavefronts += float((least * self.weights).sum())

    def _global(self, size: int, touch: Touch, tally: _Tally) -> None:
        low, high, active = touch.low, touch.high, touch.active
        tally.least_sectors += float((least_sectors(active.sum(axis=1), size) * self.weights).sum())
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
        tally.sectors += float((distinct(keys, active) * self.weights).sum())
        if tally.offset_bytes is None and not from_data:
            self._note_pattern(bits, active, tally)

    def _note_pattern(self, bits: Ints, active: Bools, tally: _Tally) -> None:
        warp = int(np.argmax(active.sum(axis=1)))
        lanes = np.flatnonzero(active[warp])
        tally.offset_bytes = int(bits[warp, lanes[0]]) % SECTOR_BYTES
        steps = set(np.diff(bits[warp, lanes]).tolist())
        if len(steps) == 1 and len(lanes) == lanes[-1] - lanes[0] + 1:
            tally.lane_stride_bytes = int(steps.pop())

    def access(self, index: int, in_loop: bool, stopped: str) -> Access:
        """What was counted of an instruction, as far as it is known."""
        tally, code = self.tallies[index], self.kernel.instructions[index]
        unknown = "; ".join(sorted(tally.unknown))
        if stopped and not tally.executed:
            unknown = unknown or stopped
        known = not unknown
        count = tally.executed
        shared = space_of(code.base) == "shared" or code.base == "LDGSTS"

        def each(total: float) -> float | None:
            return (total / count if count else 0.0) if known else None

        certain = not tally.uncertain and not stopped
        return Access(
            code.address,
            code.opcode,
            8 * lane_bytes(code.opcode),
            count if certain else None,
            each(tally.wavefronts) if shared else 0.0,
            each(tally.least_wavefronts) if shared else 0.0,
            tally.sectors if known and certain else None,
            tally.least_sectors if known and certain else None,
            in_loop,
            unknown,
            tuple(sorted(tally.assumes)),
            tally.lane_stride_bytes,
            tally.offset_bytes,
        )


_READ = frozenset({
    "LDG", "STG", "LD", "ST", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG", "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDL",
    "STL",
})  # fmt: skip


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
    bytes_touched: dict[tuple[int, int], int] = {}
    for warp in range(min(len(token), 4)):
        on = active[warp]
        for row, at in set(zip(token[warp][on].tolist(), bits[warp][on].tolist(), strict=True)):
            key = (warp, row, at // SECTOR_BYTES)  # type: ignore[assignment]
            bytes_touched[key] = bytes_touched.get(key, 0) + size  # type: ignore[index]
    return all(count >= SECTOR_BYTES for count in bytes_touched.values())


def by_line(found: Sequence[Access]) -> Mapping[int, Access]:
    """Accesses by the address of their instruction."""
    return {each.address: each for each in found}
