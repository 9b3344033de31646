"""What one CTA of a kernel does, read from its TTGIR: bytes, FLOPs, iterations, and how its loads touch memory.

Parses the text that Triton keeps as `asm["ttgir"]`; Triton itself is not needed. Integer arithmetic is evaluated for
the CTA at the origin of the grid, with the arguments' values, so that masks and addresses are known where they do not
depend on loaded data. Loaded integers stand for unrelated values: a gather touches one line for each row that its
indices name, which is the most it can. From the addresses and a tensor's layout follow the bytes a lane loads at once
and the 128-byte lines that a warp's load touches.

Masks that arguments decide let everything through (what an iteration may load, `masked=False`) or are evaluated for the
arguments at hand (what it does load).

Two loads of one place in the source are one load (Triton repeats cheap ones for each layout that needs them); a load
that stands both before and in the loop is a software pipeline's, so it counts for the loop. Where something cannot be
read, it is None, never 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.gpu.sm_rates import DRAM_BANDWIDTH_SHARE, dram_share
from occupancy_cli.model.cta_work import CtaWork, Stream
from occupancy_cli.readers.ir_operations import (
    ACCESSES,
    BULK_LOADS,
    BULK_STORES,
    DOTS,
    FLOAT_OPS,
    number_accesses,
    simplified,
)
from occupancy_cli.readers.ir_validity import Holds
from occupancy_cli.readers.ir_values import UNKNOWN, Found, Reader
from occupancy_cli.readers.memory_access import SECTOR_BYTES, MemoryAccess, run_bytes
from occupancy_cli.readers.ttgir import TensorType, TtgirKernel, element_bits, parse_ttgir, tensor_types

Floats = npt.NDArray[np.float64]

_UNBOUNDED = 1 << 20  # iterations beyond come from such a length alone


@dataclass(frozen=True)
class LoopPart:
    """A loop of the text: its part number, that of the loop around it (0: none), whether others lie inside, and its
    own products in FLOPs."""

    part: int
    around: int
    leaf: bool
    flops: float


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
    holds: frozenset[Holds] = frozenset()
    let_through: bool = False
    parts: tuple[LoopPart, ...] = ()

    def of_parts(self, numbers: Collection[int]) -> IrWork:
        """The same with the accesses of these parts alone."""
        return replace(self, accesses=tuple(replace(a, where="loop") for a in self.accesses if a.part in numbers))

    def lines_by_bytes(self, kind: str = "load") -> dict[int, float]:
        """Bytes a lane moves at once -> lines that a warp's instruction touches, over the loads (or stores) that go
        through registers."""
        sums: dict[int, list[float]] = {}
        for access in self.accesses:
            if access.kind == kind and access.bytes_per_lane and access.lines_per_warp:
                sums.setdefault(access.bytes_per_lane, []).append(access.lines_per_warp)
        return {size: sum(found) / len(found) for size, found in sums.items()}

    def traffic_by_bytes(self, kind: str = "load") -> dict[int, float]:
        """Bytes a lane moves at once -> bytes beyond the L1 for each byte of the instructions, over the loads (or
        stores) that go through registers: what lanes load again is in the L1 by then, while the sectors of each store
        go out by themselves."""
        sums: dict[int, list[float]] = {}
        for access in self.accesses:
            moved = access.warp_sector_bytes if kind == "store" else access.sector_bytes
            if access.kind == kind and access.bytes_per_lane and moved and access.requested_bytes:
                total = sums.setdefault(access.bytes_per_lane, [0.0, 0.0])
                total[0] += moved
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
            touched = max(access.lines_per_warp, access.bytes_per_lane * different * 32.0 / SECTOR_BYTES)
            misses = max(access.sector_bytes / SECTOR_BYTES / touched, 1.0)
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


def read_work(
    ttgir: str | TtgirKernel,
    arguments: Mapping[str, Any] | None = None,
    grid: Sequence[int] = (),
    *,
    masked: bool = False,
) -> IrWork:
    """The work of one CTA of a kernel's TTGIR.

    `arguments` gives values of integer arguments by name (those that specialization turned into constants are in the
    IR already), best all run-time arguments in order, pointers with None: Triton before 3.6 does not write their names.
    Strides and sizes without a value are taken to be large. `grid` is the launch grid, for the iterations of each
    program. `masked`: masks that arguments decide are evaluated, but for those that another iteration may change.
    """
    kernel = parse_ttgir(ttgir) if isinstance(ttgir, str) else ttgir
    reader = Reader(kernel.function, kernel.layouts, arguments or {}, grid, masked=masked)
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
        main=main[0] + 1 if main else 0,
        loops=tuple(sorted(number + 1 for number in reader.parents if number not in main)),
        streams=_streams(accesses),
        dram_share=_dram_share(accesses, "loop" if main else "prologue"),
    )
    iterations = None if counts is None else tuple(counts.tolist())
    return IrWork(
        kernel.name,
        kernel.num_warps,
        tuple(accesses),
        trip,
        iterations,
        work,
        tuple(sorted(reader.unread)),
        frozenset(reader.holds),
        reader.let_through,
        _loop_parts(reader),
    )


def _loop_parts(reader: Reader) -> tuple[LoopPart, ...]:
    around = {number: parents[-1] if parents else None for number, parents in reader.parents.items()}
    found = []
    for number, parent in sorted(around.items()):
        own = [f for f in reader.found if f.loops and f.loops[-1] == number]
        flops = sum(amount for _, amount in _tensor_flops(own))
        part = LoopPart(number + 1, 0 if parent is None else parent + 1, number not in around.values(), flops)
        found.append(part)
    return tuple(found)


def _streams(accesses: Sequence[MemoryAccess]) -> tuple[Stream, ...]:
    """The loads and stores of each part, with those that an earlier loop has loaded already."""
    found = []
    seen: list[tuple[int, str, npt.NDArray[np.int64]]] = []
    for a in accesses:
        writes = a.kind == "store"
        again = False
        if a.pointer is not None and a.addresses is not None and a.addresses.size and not writes:
            again = any(
                part != a.part and pointer == a.pointer and np.array_equal(places, a.addresses)
                for part, pointer, places in seen
            )
            seen.append((a.part, a.pointer, a.addresses))
        sectors = a.warp_sector_bytes if writes else a.sector_bytes
        moved = a.bytes if sectors is None else max(sectors, a.bytes)
        found.append(Stream(a.part, a.number, a.bytes, moved, writes, again and a.part > 0, a.axes))
    return tuple(found)


def trip_counts(
    kernel: TtgirKernel, arguments: Mapping[str, Any], grid: Sequence[int], at_most: bool = False
) -> Floats | None:
    """Iterations of the main loop for each program of `grid` in launch order (x fastest).

    None where they depend on loaded data, on an argument without a value, or on a loop around it. With `at_most`,
    loaded lengths are taken to be as long as they can be, so that min(length, topk) is topk; still None where nothing
    else bounds the loop.
    """
    reader = Reader(kernel.function, kernel.layouts, arguments, grid, scalars_only=True)
    return _iterations(reader, _main_loop(reader), grid, at_most)[1]


def _main_loop(reader: Reader) -> list[int]:
    """The loop that holds the work: with dots of its own, else with accesses of its own, and of several the innermost.

    Where groups of warps run different code, each group's such loop: they turn together.
    """
    best: dict[int, tuple[tuple[int, ...], int]] = {}
    for number, op in enumerate(reader.loops):
        own = [f for f in reader.found if f.loops and f.loops[-1] == number]
        dots = sum(f.op.name in DOTS for f in own)
        accesses = sum(f.op.name in ACCESSES | BULK_LOADS | BULK_STORES for f in own)
        weight = (dots > 0, accesses > 0, len(reader.parents[number]), dots, accesses, len(op.children))
        partition = reader.partition_of[number]
        if partition not in best or weight > best[partition][0]:
            best[partition] = (weight, number)
    if len(best) > 1:  # groups without work of their own only wait
        best = {p: found for p, found in best.items() if any(found[0][:2])} or best
    return sorted(number for _, number in best.values())


def _placed(reader: Reader, main: Sequence[int]) -> tuple[list[MemoryAccess], dict[str, int]]:
    """Accesses with where they stand, each place of the source once; and how often each of the loop's places stands
    before the loop as well: the iterations that a software pipeline loads ahead."""
    order = {id(f): i for i, f in enumerate(reader.found)}
    in_loop = [f for f in reader.found if any(loop in f.loops for loop in main) and f.access is not None]
    depth: dict[str, int] = {}
    for f in reader.found:
        if f.access is not None and f.access.kind != "store" and f.access.place:
            depth[f.access.place] = max(depth.get(f.access.place, 0), len(f.loops))
    first = min((order[id(f)] for f in in_loop), default=len(reader.found))
    loop_places = {f.access.place for f in in_loop if f.access is not None}
    ahead: dict[str, int] = {}
    numbers = number_accesses(reader.function.ops)
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
        part = f.loops[-1] + 1 if f.loops else 0
        if access.place and access.kind != "store" and len(f.loops) < depth[access.place]:
            continue  # the loads ahead of a loop's software pipeline
        key = (f"{where} {part}", access.place, "store" if access.kind == "store" else "load")
        # A bulk copy has no layout to be repeated for: several of one place move parts of a tile.
        if access.place and key in seen and f.op.name not in BULK_LOADS | BULK_STORES:
            continue
        seen.add(key)
        first_copy = whole.get(access.place)
        if where == "loop" and first_copy is not None and first_copy.bytes > access.bytes:
            access = first_copy
        placed.append(replace(access, where=where, part=part, number=numbers[id(f.op)]))
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


def _dram_share(accesses: Sequence[MemoryAccess], where: str) -> float | None:
    """What the loads there reach of the theoretical memory bandwidth, by how many bytes they take side by side."""
    together: dict[tuple[str | None, str], list[MemoryAccess]] = {}
    moved = needed = 0.0
    for a in accesses:
        if a.where == where and a.kind != "store":
            together.setdefault((a.pointer, a.dtype), []).append(a)
    for found in together.values():
        # What several loads take through one pointer in an iteration arrives together: the parts of a row are one run.
        moved += (loaded := sum(a.bytes for a in found))
        places = [a.addresses for a in found if a.addresses is not None and a.addresses.size]
        share = DRAM_BANDWIDTH_SHARE
        if len(places) == len(found):
            at = np.concatenate([p.reshape(-1) for p in places])
            share = dram_share(run_bytes(at, (element_bits(found[0].dtype) or 8) // 8))
        needed += loaded / share
    return moved / needed if needed else None


def _chain(found: Sequence[Found]) -> float | None:
    """Loads in the longest chain of an iteration whose addresses come from one another."""
    chains = [f.loads for f in found if f.access is not None and f.access.kind != "store"]
    return float(max(chains)) if chains else None


_TENSOR_DTYPES = {"f8E4M3FN": "fp8", "f8E5M2": "fp8", "f16": "fp16", "bf16": "bf16", "f32": "tf32", "i8": "int8"}


def _tensor_flops(found: Sequence[Found]) -> tuple[tuple[str, float], ...]:
    total: dict[str, float] = {}
    for f in found:
        if f.op.name not in DOTS:
            continue
        kinds = [k for k in tensor_types(f.op.types) if len(k.shape) >= 2]
        if len(kinds) < 2:
            continue
        a, b = kinds[0], kinds[1]
        flops = 2.0 * a.shape[-2] * a.shape[-1] * b.shape[-1]
        dtype = _TENSOR_DTYPES.get(a.element, a.element)
        total[dtype] = total.get(dtype, 0.0) + flops
    return tuple(sorted(total.items()))


def _float_ops(found: Sequence[Found]) -> float:
    """FLOPs outside tensor cores: element operations and reductions, repeated ones of one place counted once."""
    seen: dict[tuple[str, str], float] = {}
    for f in found:
        per_element = FLOAT_OPS.get(f.op.name)
        if per_element is None:
            continue
        kinds = tensor_types(f.op.types) or tensor_types(f.op.text)
        elements = float(np.prod(kinds[0].shape, dtype=np.int64)) if kinds else 1.0
        key = (f.op.name, f.op.place or str(id(f)))
        seen[key] = max(seen.get(key, 0.0), elements * per_element)
    return sum(seen.values())


def _shared_bytes(found: Sequence[Found]) -> float:
    """Shared-memory bytes read and written: buffers filled and loaded, layouts converted, operands of products."""
    total = 0.0
    for f in found:
        name = f.op.name
        kinds = [k for k in tensor_types(f.op.types) if k.shape]

        def size(kind: TensorType) -> float:
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
        elif name in DOTS and "memdesc" in f.op.types:
            total += sum(size(k) for k in kinds[:2])
    return total


def _iterations(
    reader: Reader, main: Sequence[int], grid: Sequence[int], at_most: bool = False
) -> tuple[str | None, Floats | None]:
    """(text, value for each program) of the main loop's iterations."""
    # Of several groups' loops, one whose bounds are known.
    ranked = sorted(main, key=lambda loop: any(v.numbers is None for v in reader.trips.get(loop, (UNKNOWN,))))
    bounds = reader.trips.get(ranked[0]) if ranked else None
    if bounds is None:
        return None, None
    lower, upper, step = bounds
    text = None
    if lower.expression is not None and upper.expression is not None and step.expression is not None:
        span = simplified("subi", upper.expression, lower.expression, "({} - {})")
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
