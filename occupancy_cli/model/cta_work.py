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
import numpy.typing as npt

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
class Stream:
    """One load or store of a CTA, in one execution of its part: of part 0 (outside every loop) the only one, else of
    each iteration of the loop with that number.

    `bytes` are distinct; `l2_bytes` what goes to or comes from the L2 for them, in sectors. `access` is its number in
    the order of the text. `axes` pairs the grid axes that its address depends on with how many neighbouring programs
    share them (1: each its own); None where single axes do not tell, and the programs of the grid have to be run.
    `sharers` is given where someone says how many CTAs load the same. `again` says that an earlier loop of the CTA has
    loaded the same.
    """

    part: int
    access: int
    bytes: float
    l2_bytes: float
    writes: bool = False
    again: bool = False
    axes: tuple[tuple[int, int], ...] | None = None
    sharers: float | None = None

    def sharers_of(self, grids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many CTAs access the same, in launches with grids of shape [launches, axes]; 1 where nothing tells."""
        if self.sharers is not None or self.axes is None:
            return np.full(len(grids), self.sharers or 1.0)
        held = np.ones(len(grids))
        for axis, together in self.axes:
            if axis < grids.shape[1]:
                held = held * -(-grids[:, axis] // together)
        return np.asarray(grids.prod(axis=1) / held)


@dataclass(frozen=True)
class Turns:
    """How often a CTA runs an iteration of one loop beside the main one: so often in any case, and so often for each
    iteration of the main loop."""

    part: int
    always: float = 0.0
    per_iteration: float = 0.0


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
    `dram_share` is what such loads reach of the theoretical memory bandwidth, by how many bytes they take beside one
    another. `timing` is the simulation of the kernel's SASS (`sm_simulation`), for one GPU.
    `main` is the part of the main loop (0: there is none), `loops` are those of the other loops, `streams` the loads
    and stores of every part.
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
    dram_share: float | None = None
    timing: KernelTiming | None = None
    main: int = 0
    loops: tuple[int, ...] = ()
    streams: tuple[Stream, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether grid and iterations of the main loop say all about a launch: no other loops, and how CTAs share what
        they load is a matter of the axes of the grid."""
        return not self.loops and all(s.axes is not None or s.sharers is not None for s in self.streams)


@dataclass(frozen=True)
class LaunchShape:
    """A grid and the main-loop iterations of its CTAs, in launch order, as runs of equal CTAs: (CTAs, iterations).

    `turns` says how often loops run beside the main one, `sharers` of each stream of the CTA's work how many CTAs
    access the same; empty: as the axes of the grid tell (`Stream.sharers_of`).
    The runs cover every program of the grid; build one with `uniform`, `split`, `ragged` or `persistent`. A run of 0
    iterations is CTAs that start, write their epilogue and leave.
    """

    grid: tuple[int, ...]
    runs: tuple[tuple[int, float], ...]
    turns: tuple[Turns, ...] = ()
    sharers: tuple[float, ...] = ()
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
