"""The occupancy of many kernels at once: the rules of `occupancy_cli.model.occupancy` over numpy arrays.

    batch = batch_occupancy(load_gpu("h200"), threads_per_cta=[128, 256], registers_per_thread=[168, 255],
                            shared_bytes=[61568, 0])
    batch.ctas_per_sm                    # array([3, 1])
    batch.limited_by_names(1)            # ("registers",)

Every figure equals that of `occupancy`, row by row (a test holds them together). Rows that no launch can have do not
raise here: `batch.possible` is False for them and their figures mean nothing, so that one bad row costs one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cluster_rules import cluster_refusal
from occupancy_cli.model.cta_demands import (
    CLUSTER,
    CTAS,
    LAUNCH_MOST,
    REGISTERS,
    SHARED,
    TMEM,
    TMEM_MIN_COLUMNS,
    WARP_THREADS,
    WARPS,
)

Ints = npt.NDArray[np.int64]
UNKNOWN_REGISTERS = -1
LARGEST_CARVEOUT = -1
NO_LIMIT = np.iinfo(np.int64).max
NONE = -1  # in next_*: no value of this resource brings the next CTA
LIMIT_NAMES = (SHARED, REGISTERS, WARPS, CTAS, TMEM, CLUSTER)


@dataclass(frozen=True)
class BatchOccupancy:
    """Occupancy of n kernels; every array has shape (n,).

    `limits` has CTAs per SM by each limit alone, NO_LIMIT where it sets none or is not known. `limited_by` is a set of
    bits: bit i stands for LIMIT_NAMES[i]. `next_*` are what the next CTA asks of each resource at most,
    NONE where no value brings it (of registers also where the number now is not known).
    """

    possible: npt.NDArray[np.bool_]
    warps_per_cta: Ints
    ctas_per_sm: Ints
    warps_per_sm: Ints
    percent: npt.NDArray[np.float64]
    limits: dict[str, Ints]
    limited_by: Ints
    over_bytes: Ints
    next_shared_bytes: Ints
    next_registers: Ints
    next_warps: Ints
    next_tmem_columns: Ints

    def limited_by_names(self, row: int) -> tuple[str, ...]:
        bits = int(self.limited_by[row])
        return tuple(name for i, name in enumerate(LIMIT_NAMES) if bits >> i & 1)


def _round_up(values: Ints, unit: int) -> Ints:
    return -(-values // unit) * unit


def batch_occupancy(
    gpu: GpuProfile,
    *,
    threads_per_cta: Any,
    registers_per_thread: Any,
    shared_bytes: Any,
    static_shared_bytes: Any = 0,
    carveout_bytes: Any = LARGEST_CARVEOUT,
    num_ctas: int = 1,
    tmem_columns: Any = 0,
) -> BatchOccupancy:
    """The occupancy of n kernels on `gpu`; arguments as `occupancy`'s, each an array-like of shape (n,) or one number.

    `registers_per_thread` is UNKNOWN_REGISTERS (-1) where it is not known, `carveout_bytes` LARGEST_CARVEOUT (-1) where
    none is asked for. `num_ctas` is one number for all rows.
    """
    limits = gpu.limits
    threads, registers, shared, static, carveout, tmem = np.broadcast_arrays(
        *(
            np.atleast_1d(np.asarray(values, dtype=np.int64))
            for values in (
                threads_per_cta, registers_per_thread, shared_bytes, static_shared_bytes, carveout_bytes, tmem_columns,
            )
        )
    )  # fmt: skip
    carveouts = np.asarray(limits.carveouts_bytes, dtype=np.int64)
    cap = limits.shared_per_cta_optin_bytes
    possible = (
        (threads >= 1)
        & (threads <= LAUNCH_MOST)
        & (registers >= UNKNOWN_REGISTERS)
        & (registers <= limits.max_registers_per_thread)
        & (shared >= 0)
        & (shared <= LAUNCH_MOST)
        & (static >= 0)
        & (static <= LAUNCH_MOST)
        & (carveout >= LARGEST_CARVEOUT)
        & (carveout <= carveouts[-1])
        & (tmem >= 0)
        & (tmem <= LAUNCH_MOST)
    )
    threads = np.where(possible, threads, 1)
    registers = np.where(possible, registers, 1)
    shared, static, tmem = (np.where(possible, values, 0) for values in (shared, static, tmem))
    carveout = np.where(possible, carveout, LARGEST_CARVEOUT)

    warps = -(-threads // WARP_THREADS)
    partitions, granularity = limits.sm_subpartitions, limits.warp_alloc_granularity_warps
    reserved, unit = limits.shared_reserved_per_cta_bytes, limits.shared_alloc_granularity_bytes

    def holding(needed: Ints) -> Ints:
        index = np.searchsorted(carveouts, needed, side="left")
        held: Ints = carveouts[np.minimum(index, len(carveouts) - 1)]
        return held

    preference = np.where(carveout == LARGEST_CARVEOUT, carveouts[-1], holding(carveout))
    allocated = _round_up(shared + static + reserved, unit)
    taken = holding(np.maximum(preference, allocated))
    over = np.maximum(0, shared + static - cap)
    by_shared = np.where(over > 0, 0, np.where(allocated > 0, taken // np.maximum(allocated, 1), NO_LIMIT))

    per_warp = _round_up(np.maximum(registers, 0) * WARP_THREADS, limits.register_alloc_unit_regs)
    divisor = np.maximum(per_warp, 1)
    register_warps = partitions * (limits.registers_per_sm // partitions // divisor)
    refused = per_warp * _round_up(warps, granularity) > limits.max_registers_per_cta
    by_registers = np.where(refused, 0, np.where(per_warp > 0, register_warps // warps, NO_LIMIT))

    by_warps = np.where(threads > limits.max_threads_per_cta, 0, limits.max_warps_per_sm // warps)
    by_ctas = np.full_like(warps, limits.max_ctas_per_sm)
    powers = TMEM_MIN_COLUMNS << np.arange(5, dtype=np.int64)  # 32 to 512 columns
    columns = powers[np.minimum(np.searchsorted(powers, tmem), len(powers) - 1)]
    fitting = np.where(tmem > limits.tmem_columns_per_sm, 0, limits.tmem_columns_per_sm // columns)
    by_tmem = np.where(tmem > 0, fitting, NO_LIMIT)
    by_cluster = np.full_like(warps, 0 if cluster_refusal(limits, num_ctas) else NO_LIMIT)

    by_name = dict(zip(LIMIT_NAMES, (by_shared, by_registers, by_warps, by_ctas, by_tmem, by_cluster), strict=True))
    stacked = np.stack(list(by_name.values()))
    ctas = stacked.min(axis=0)
    bits = (1 << np.arange(len(LIMIT_NAMES), dtype=np.int64))[:, None]
    limited_by = np.where(stacked == ctas, bits, 0).sum(axis=0)

    target = ctas + 1
    return BatchOccupancy(
        possible=possible,
        warps_per_cta=warps,
        ctas_per_sm=ctas,
        warps_per_sm=ctas * warps,
        percent=100.0 * ctas * warps / limits.max_warps_per_sm,
        limits=by_name,
        limited_by=limited_by,
        over_bytes=over,
        next_shared_bytes=_most_shared(gpu, target, static, preference),
        next_registers=np.where(registers < 0, NONE, _most_registers(gpu, target, warps)),
        next_warps=_most_warps(gpu, target, np.where(per_warp > 0, per_warp, 0)),
        next_tmem_columns=_most_tmem(gpu, target),
    )


# As the methods most_* of the scalar model, which explain them.


def _most_shared(gpu: GpuProfile, ctas: Ints, static: Ints, preference: Ints) -> Ints:
    limits = gpu.limits
    unit = limits.shared_alloc_granularity_bytes
    fixed = static + limits.shared_reserved_per_cta_bytes
    best = np.full_like(ctas, NONE)
    smaller = np.full_like(ctas, -1)
    for carveout in limits.carveouts_bytes:
        asked = carveout >= preference
        allocated = carveout // ctas // unit * unit
        dynamic = np.minimum(allocated - fixed, limits.shared_per_cta_optin_bytes - static)
        best = np.where(asked & (allocated > smaller) & (dynamic >= 0), dynamic, best)
        smaller = np.where(asked, carveout, smaller)
    return best


def _most_registers(gpu: GpuProfile, ctas: Ints, warps: Ints) -> Ints:
    limits = gpu.limits
    partitions, unit = limits.sm_subpartitions, limits.register_alloc_unit_regs
    per_partition = limits.registers_per_sm // partitions // -(-ctas * warps // partitions)
    checked = limits.max_registers_per_cta // _round_up(warps, limits.warp_alloc_granularity_warps)
    registers = np.minimum(per_partition, checked) // unit * unit // WARP_THREADS
    return np.where(registers > 0, np.minimum(registers, limits.max_registers_per_thread), NONE)


def _most_warps(gpu: GpuProfile, ctas: Ints, per_warp: Ints) -> Ints:
    limits = gpu.limits
    partitions, granularity = limits.sm_subpartitions, limits.warp_alloc_granularity_warps
    most = np.minimum(limits.max_warps_per_sm // ctas, limits.max_threads_per_cta // WARP_THREADS)
    divisor = np.maximum(per_warp, 1)
    by_registers = np.minimum(
        partitions * (limits.registers_per_sm // partitions // divisor) // ctas,
        limits.max_registers_per_cta // divisor // granularity * granularity,
    )
    most = np.where(per_warp > 0, np.minimum(most, by_registers), most)
    return np.where(most > 0, most, NONE)


def _most_tmem(gpu: GpuProfile, ctas: Ints) -> Ints:
    share = gpu.limits.tmem_columns_per_sm // ctas
    powers = np.concatenate([[NONE], TMEM_MIN_COLUMNS << np.arange(5, dtype=np.int64)])
    return powers[np.searchsorted(powers[1:], share, side="right")]
