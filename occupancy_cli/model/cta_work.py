"""What one CTA of a kernel does, and how a launch deals the work out.

`CtaWork` holds the work of one CTA of one specialization: bytes, FLOPs and the instruction mix of its main loop. It
comes from a spec, from the kernel's IR (`readers.ir_work`) and from its SASS (`readers.sass`); what nobody knows stays
None and makes the time estimate say so. `LaunchShape` holds the grid and how many iterations of the main loop each CTA
runs, in launch order: the hardware starts CTAs by linear block index, x fastest (the order is not promised by CUDA's
programming guide, but is what the work distributor does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from occupancy_cli.errors import InputError
from occupancy_cli.model.kernel_timing import KernelTiming


@dataclass(frozen=True)
class LoopMix:
    """Instructions that one warp issues in one iteration of the main loop, by the pipe that executes them.

    Counts are of warp instructions and may be fractions where a path is predicated or a loop was unrolled.
    `shared_bytes` are what the warp's lanes read and write of shared memory. `spill_loads`/`spill_stores` are
    local-memory instructions in the loop, already counted in `lsu`. `by_pipe` pairs a pipe ("fma", "alu", "xu", "lsu",
    "tensor", "uniform", "control") with its instructions; `tensor_by_shape` pairs a tensor instruction (such as
    "HMMA.16816.F32.BF16") with its count.
    """

    instructions: float
    by_pipe: tuple[tuple[str, float], ...] = ()
    tensor_by_shape: tuple[tuple[str, float], ...] = ()
    global_loads: float = 0.0
    shared_loads: float = 0.0
    shared_stores: float = 0.0
    shared_bytes: float | None = None
    spill_loads: float = 0.0
    spill_stores: float = 0.0
    barriers: float = 0.0
    iterations_per_pass: float = 1.0

    def pipe(self, name: str) -> float:
        """Warp instructions of the pipe `name` an iteration; 0 when there are none."""
        return dict(self.by_pipe).get(name, 0.0)


@dataclass(frozen=True)
class CtaWork:
    """The work of one CTA. None means unknown; 0 means none.

    `prologue_bytes`, `bytes_per_iteration` and `epilogue_bytes` are global-memory bytes moved before, in each iteration
    of, and after the main loop (loads and stores alike). `tensor_flops_per_iteration` pairs an operand dtype ("bf16",
    "fp16", "fp8", "tf32", "int8") with FLOPs (2 a multiply-add) on tensor cores; `fp32_flops_per_iteration` is what the
    other units do. `shared_bytes_per_iteration` is shared-memory traffic, reads and writes. `pipeline_depth` is the
    iterations whose loads are in flight at once (1: loaded when needed; num_stages - 1 for a pipelined loop).
    `dependent_loads` is the length of the longest chain of global loads whose addresses come from one another in one
    iteration (2 for an index followed by a gather). `unique_bytes_per_iteration` is what reaches DRAM when CTAs share
    some of their bytes through the L2; it defaults to `bytes_per_iteration`.
    `whole_bytes_per_iteration` is what an iteration would load with no lane masked, as the machine code has it.
    `loads_by_axes` pairs bytes that an iteration (without a loop, a CTA) loads with the grid axes that their addresses
    depend on, each with how many neighbouring programs share them (1: each its own); None for axes that cannot be told.
    `dram_share` is what such loads reach of the theoretical memory bandwidth, by how many bytes they take beside one
    another. `timing` is the simulation of the kernel's SASS (`sm_simulation`), for one GPU.
    """

    prologue_bytes: float | None = None
    bytes_per_iteration: float | None = None
    epilogue_bytes: float | None = None
    tensor_flops_per_iteration: tuple[tuple[str, float], ...] | None = None
    fp32_flops_per_iteration: float | None = None
    loop_mix: LoopMix | None = None
    shared_bytes_per_iteration: float | None = None
    pipeline_depth: float | None = None
    dependent_loads: float | None = None
    unique_bytes_per_iteration: float | None = None
    whole_bytes_per_iteration: float | None = None
    loads_by_axes: tuple[tuple[float, tuple[tuple[int, int], ...] | None], ...] = ()
    dram_share: float | None = None
    timing: KernelTiming | None = None

    @property
    def masked_share(self) -> float:
        """Bytes that an iteration loads, of those it would load with no lane masked; 1 where either is unknown."""
        if not self.whole_bytes_per_iteration or self.bytes_per_iteration is None:
            return 1.0
        return min(self.bytes_per_iteration / self.whole_bytes_per_iteration, 1.0)

    def sharing(self, grid: Sequence[int]) -> Sharing:
        """How the CTAs of a launch share what they load: from `unique_bytes_per_iteration` if given, else from the axes
        of the grid that addresses do not depend on; nothing where neither tells."""
        if self.unique_bytes_per_iteration is not None:
            whole = self.bytes_per_iteration
            unique = min(self.unique_bytes_per_iteration / whole, 1.0) if whole else 1.0
            return Sharing(unique, 1.0 - unique if unique * _SHARERS_ON_AVERAGE < 1.0 else 0.0)
        total = sum(loaded for loaded, _ in self.loads_by_axes)
        if not total:
            return Sharing()
        unique = repeated = 0.0
        for loaded, axes in self.loads_by_axes:
            share = 1.0
            if axes is not None:
                held = {axis: -(-grid[axis] // together) for axis, together in axes if axis < len(grid)}
                share = math.prod(held.values()) / math.prod(grid)
            unique += share * loaded
            if share * _SHARERS_AT_ONCE < 1.0:
                repeated += (1.0 - share) * loaded
        return Sharing(unique / total, repeated / total)


@dataclass(frozen=True)
class Sharing:
    """Of the bytes that the CTAs of a launch load: the share that no other CTA has loaded, and the share that repeats
    what so many others load that several are likely to ask for it at once."""

    unique: float = 1.0
    repeated: float = 0.0


# From how many CTAs on the L2 is asked for the same lines at a time (`sm_rates.L2_BYTES_PER_CYCLE_SAME`); of operands
# that are shared by few and by many, the mean is lower.
_SHARERS_AT_ONCE = 16
_SHARERS_ON_AVERAGE = 3


@dataclass(frozen=True)
class LaunchShape:
    """A grid and the main-loop iterations of its CTAs, in launch order, as runs of equal CTAs: (CTAs, iterations).

    The runs cover every program of the grid; build one with `uniform`, `split`, `ragged` or `persistent`. A run of 0
    iterations is CTAs that start, write their epilogue and leave.
    """

    grid: tuple[int, ...]
    runs: tuple[tuple[int, float], ...]
    programs: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.grid or any(axis < 1 for axis in self.grid):
            raise InputError(f"the grid {self.grid} has an axis below 1", where="grid", hint="Each axis is 1 or more.")
        programs = math.prod(self.grid)
        covered = sum(count for count, _ in self.runs)
        if covered != programs:
            raise InputError(
                f"the iterations given cover {covered} CTAs, the grid {self.grid} has {programs}", where="launch"
            )
        if any(count < 1 or not (iterations >= 0 and math.isfinite(iterations)) for count, iterations in self.runs):
            raise InputError("iterations of a CTA must be finite and at least 0", where="launch")
        object.__setattr__(self, "programs", programs)

    @property
    def total_iterations(self) -> float:
        """Iterations of all CTAs together."""
        return float(sum(count * iterations for count, iterations in self.runs))

    @property
    def working(self) -> int:
        """CTAs that run iterations; all of them where none does."""
        return sum(count for count, iterations in self.runs if iterations > 0) or self.programs

    @property
    def max_iterations(self) -> float:
        """Iterations of the longest CTA."""
        return max(iterations for _, iterations in self.runs)

    @staticmethod
    def uniform(grid: Sequence[int], iterations: float) -> LaunchShape:
        """Every CTA runs `iterations`."""
        return LaunchShape(tuple(grid), ((math.prod(grid), float(iterations)),))

    @staticmethod
    def split(grid: Sequence[int], tiles: int, tiles_per_split: int, split_axis: int = 2) -> LaunchShape:
        """A split-K grid: `tiles` iterations dealt along `split_axis`, `tiles_per_split` to each index in turn.

        16 tiles over 6 splits are 3 a CTA: five full splits and one of a single tile. Along the last axis the short
        CTAs come last; `grid[split_axis]` beyond the tiles gives CTAs of 0 iterations. Any other axis order is
        expanded in launch order, x fastest.
        """
        if tiles < 1 or tiles_per_split < 1:
            raise InputError(f"{tiles} tiles in parts of {tiles_per_split} is not a split", where="launch")
        splits = grid[split_axis]
        parts = [min(max(tiles - s * tiles_per_split, 0), tiles_per_split) for s in range(splits)]
        if sum(parts) < tiles:
            raise InputError(f"{splits} splits of {tiles_per_split} tiles do not cover {tiles} tiles", where="launch")
        inner = math.prod(grid[:split_axis])
        outer = math.prod(grid[split_axis + 1 :])
        once = [(inner, float(part)) for part in parts]
        return LaunchShape(tuple(grid), merge_runs(once * outer))

    @staticmethod
    def ragged(grid: Sequence[int], iterations: Sequence[float] | np.ndarray) -> LaunchShape:
        """Each CTA its own iterations: one number a program, in launch order (x fastest)."""
        each = np.asarray(iterations, dtype=float).ravel()
        starts = np.flatnonzero(np.diff(each, prepend=np.nan))
        counts = np.diff(starts, append=len(each))
        return LaunchShape(tuple(grid), tuple(zip(counts.tolist(), each[starts].tolist(), strict=True)))

    @staticmethod
    def persistent(programs: int, item_iterations: Sequence[float] | np.ndarray) -> LaunchShape:
        """A persistent grid whose CTAs deal out work items in turn: program p takes items p, p + programs, ...

        `item_iterations` is the iterations of each work item. The programs are one wave by construction; the tail is
        in their unequal sums.
        """
        items = np.asarray(item_iterations, dtype=float).ravel()
        if programs < 1 or not len(items):
            raise InputError(f"{programs} programs over {len(items)} work items is no launch", where="launch")
        padded = np.zeros(-(-len(items) // programs) * programs)
        padded[: len(items)] = items
        return LaunchShape.ragged((programs,), padded.reshape(-1, programs).sum(axis=0))


def merge_runs(runs: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Neighbouring runs of equal iterations joined, empty ones dropped."""
    merged: list[tuple[int, float]] = []
    for count, iterations in runs:
        if not count:
            continue
        if merged and merged[-1][1] == iterations:
            merged[-1] = (merged[-1][0] + count, iterations)
        else:
            merged.append((count, iterations))
    return tuple(merged)
