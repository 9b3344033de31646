"""How one load or store touches memory: the elements that each lane has by its layout, and the bytes and lines of them.

A lane moves at once what of its registers lies side by side, at most 16 bytes; memory moves 32-byte sectors of
128-byte lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from occupancy_cli.readers.ttgir import numbers_in

Ints = npt.NDArray[np.int64]
Axes = tuple[tuple[int, int], ...]

SECTOR_BYTES = 32
_LINE_BYTES = 128


@dataclass(frozen=True)
class MemoryAccess:
    """One load or store of global memory, as it stands in the source.

    `where` is "prologue", "loop" or "epilogue"; `kind` "load", "async copy", "bulk copy" or "store". `bytes` are the
    distinct ones of one execution by one CTA, `requested_bytes` what its lanes ask for (a scale that 64 lanes read
    counts 64 times), `sector_bytes` the distinct 32-byte sectors they lie in, None where the address could not be read;
    elements that are known to be masked count in none. `bytes_per_lane` is what a lane moves at once, `lines_per_warp`
    the 128-byte lines that one warp's access touches on average and `warp_sector_bytes` the sectors of all warps'
    accesses together, None where the layout or the address could not be read. `gathered` says that its address depends
    on loaded data. `axes` pairs the grid axes that its address depends on with how many neighbouring programs share it
    (1: each its own); None where that is not a matter of single axes. `part` numbers the innermost loop around it, from
    1 on, `number` the access in the order of the text. `pointer` is the argument it goes through, `addresses` the
    bytes' places relative to it.
    """

    where: str
    kind: str
    place: str
    dtype: str
    shape: tuple[int, ...]
    bytes: float
    requested_bytes: float
    sector_bytes: float | None
    bytes_per_lane: int | None
    lines_per_warp: float | None
    gathered: bool
    axes: Axes | None = ()
    pointer: str | None = None
    part: int = 0
    number: int = 0
    warp_sector_bytes: float | None = None
    addresses: Ints | None = field(default=None, repr=False, compare=False)


def _bases(text: str, key: str) -> list[list[int]]:
    found = re.search(rf"{key} = \[((?:\[[0-9, ]*\](?:, )?)*)\]", text)
    return (
        [[int(n) for n in base.split(",")] for base in re.findall(r"\[([0-9, ]+)\]", found.group(1))] if found else []
    )


class Layout:
    """Where a tensor's elements lie: coordinates by (register, lane, warp), each an array of shape
    [registers, 32, warps]."""

    def __init__(self, coordinates: list[Ints]) -> None:
        self.coordinates = coordinates


def layout_of(text: str | None, layouts: Mapping[str, str], shape: tuple[int, ...]) -> Layout | None:
    """The distributed layout called `text`, or None when it is of a kind that is not read (mma and dot operands)."""
    if text is None or not shape:
        return None
    definition = layouts.get(text, text)
    if definition.startswith("#ttg.slice"):
        found = re.search(r"dim = (\d+), parent = (.*)\}>$", definition)
        if not found:
            return None
        dim = int(found.group(1))
        parent = layout_of(found.group(2), layouts, (*shape[:dim], 1, *shape[dim:]))
        return None if parent is None else Layout([c for d, c in enumerate(parent.coordinates) if d != dim])
    if definition.startswith("#ttg.blocked"):
        size, threads = numbers_in(definition, "sizePerThread"), numbers_in(definition, "threadsPerWarp")
        warps, order = numbers_in(definition, "warpsPerCTA"), numbers_in(definition, "order")
        if not len(size) == len(threads) == len(warps) == len(order) == len(shape):
            return None
        return _blocked(shape, size, threads, warps, order)
    if definition.startswith("#ttg.linear"):
        return _linear(definition, shape)
    return None


def _blocked(shape: tuple[int, ...], size: list[int], threads: list[int], warps: list[int], order: list[int]) -> Layout:
    def spread(count_by_dim: list[int]) -> list[Ints]:
        """Linear index -> coordinate of each dimension, the dimensions in `order`, fastest first."""
        total = int(np.prod(count_by_dim))
        index = np.arange(total, dtype=np.int64)
        parts = [np.zeros(total, dtype=np.int64)] * len(count_by_dim)
        for d in order:
            parts[d] = index % count_by_dim[d]
            index = index // count_by_dim[d]
        return parts

    tile = [s * t * w for s, t, w in zip(size, threads, warps, strict=True)]
    repeats = [max(-(-n // t), 1) for n, t in zip(shape, tile, strict=True)]
    inner, outer, lane, warp = spread(size), spread(repeats), spread(threads), spread(warps)
    coordinates = []
    for d, n in enumerate(shape):
        registers = (outer[d][:, None] * tile[d] + inner[d][None, :]).reshape(-1)
        value = (
            registers[:, None, None]
            + (lane[d] * size[d])[None, :, None]
            + (warp[d] * size[d] * threads[d])[None, None, :]
        )
        coordinates.append(value % n)
    return Layout(coordinates)


def _linear(definition: str, shape: tuple[int, ...]) -> Layout | None:
    registers, lanes, warps = (_bases(definition, key) for key in ("register", "lane", "warp"))
    if len(lanes) != 5 or any(len(base) != len(shape) for base in (*registers, *lanes, *warps)):
        return None

    def combine(bases: list[list[int]], d: int) -> Ints:
        index = np.arange(1 << len(bases), dtype=np.int64)
        value = np.zeros_like(index)
        for bit, base in enumerate(bases):
            value ^= np.where(index >> bit & 1, base[d], 0)
        return value

    return Layout(
        [
            (combine(registers, d)[:, None, None] ^ combine(lanes, d)[None, :, None] ^ combine(warps, d)[None, None, :])
            % n
            for d, n in enumerate(shape)
        ]
    )


@dataclass(frozen=True)
class Touched:
    """How the warps' instructions of one access touch memory: the bytes that a lane moves at once, and of all warps'
    instructions the 128-byte lines (mean) and the bytes of 32-byte sectors (sum)."""

    bytes_per_lane: int
    lines_per_warp: float | None
    sector_bytes: float


def touched(
    layout: Layout | None, address: Ints | None, mask: Ints | None, element_bytes: int, *, once: bool, alone: bool
) -> Touched | None:
    """How a tensor of byte addresses is accessed; None where layout or address are not known. `once`: of lanes that
    hold the same element one takes part, as in stores; `alone`: no elements are accessed together."""
    if layout is None or address is None:
        return None
    where = tuple(layout.coordinates)
    if address.ndim != len(where):
        return None
    at = address[where]  # [registers, lanes, warps]
    active = np.ones_like(at, dtype=bool) if mask is None else np.broadcast_to(mask, address.shape)[where].astype(bool)
    if once and at.size > address.size:
        held = np.zeros(at.size, dtype=bool)
        held[np.unique(np.ravel_multi_index(where, address.shape), return_index=True)[1]] = True
        active = active & held.reshape(at.shape)
    together = 1
    while (
        not alone
        and together * 2 * element_bytes <= 16
        and at.shape[0] % (together * 2) == 0
        and _contiguous(at, together * 2, element_bytes)
    ):
        together *= 2
    first = at[::together] // SECTOR_BYTES
    running = active[::together]
    lines, sectors = [], 0
    for r in range(first.shape[0]):
        for w in range(first.shape[2]):
            found = np.unique(first[r, running[r, :, w], w])
            if found.size:
                sectors += found.size
                lines.append(np.unique(found // (_LINE_BYTES // SECTOR_BYTES)).size)
    return Touched(together * element_bytes, float(np.mean(lines)) if lines else None, float(sectors * SECTOR_BYTES))


def run_bytes(addresses: Ints, element_bytes: int) -> float:
    """Bytes that lie beside one another, averaged over the bytes: of each run of consecutive addresses."""
    at = np.unique(addresses)
    starts = np.flatnonzero(np.diff(at, prepend=at[0] - 2 * element_bytes) > element_bytes)
    lengths = np.diff(starts, append=at.size) * element_bytes
    return float((lengths.astype(float) ** 2).sum()) / float(lengths.sum())


def _contiguous(at: Ints, count: int, element_bytes: int) -> bool:
    """Whether each run of `count` registers holds consecutive, aligned elements on every lane."""
    runs = at.reshape(-1, count, *at.shape[1:])
    steps = np.arange(count, dtype=np.int64)[None, :, None, None] * element_bytes
    first = runs[:, :1]
    return bool(np.all(runs - first == steps) and np.all(first % (count * element_bytes) == 0))
