"""How many wavefronts of shared memory and sectors of global memory one warp's access takes, from its lanes' addresses.

Shared memory has 32 banks of four bytes; lanes that read the same word share it, different words of one bank are read
one after the other (CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x, to which those of 7.x to
9.0 refer). A wavefront moves at most 128 bytes: accesses of 8 bytes a lane go in two halves of a warp, of 16 bytes in
quarters, and LDSM and STSM one matrix of eight 16-byte rows after the other. Global memory moves sectors of 32 bytes
(the same guide, "Global Memory"; Nsight Compute, "Memory Tables"). The least is what the same active lanes would take
if their bytes lay side by side, or what they take where lanes share bytes.

One rule is in no document: a load joins two halves of a warp (8 bytes a lane), or two quarters of a half (16 bytes),
where every running lane reads the same address as lane i xor 1 does, or as lane i xor 2 does. With it, 1,663 of 1,664
single accesses of known offsets agree with what Nsight Compute counts on an H200 (`validation/h200/accesses.md`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BANKS = 32
BANK_BYTES = 4
WAVEFRONT_BYTES = BANKS * BANK_BYTES
SECTOR_BYTES = 32
MATRIX_ROWS, MATRIX_ROW_BYTES = 8, 16


def distinct(keys: npt.NDArray[np.uint64], active: Bools) -> Ints:
    """How many different keys the active lanes of each row have."""
    if keys.shape[1] == 1:
        return active[:, 0].astype(np.int64)
    first = keys[np.arange(len(keys)), np.argmax(active, axis=1)][:, None]
    ordered = np.sort(np.where(active, keys, first), axis=1)
    counts = 1 + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return np.where(active.any(axis=1), counts, 0)


def _words_by_bank(words: Ints, active: Bools) -> Ints:
    """The most different words of one bank in each row of words; 0 without an active one."""
    spare = np.int64(1) << 40
    ordered = np.sort(np.where(active, words, spare), axis=1)
    fresh = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    fresh &= ordered != spare
    rows, columns = np.nonzero(fresh)
    counts = np.zeros((len(words), BANKS), dtype=np.int64)
    np.add.at(counts, (rows, ordered[rows, columns] % BANKS), 1)
    return np.asarray(counts.max(axis=1), dtype=np.int64)


def shared_wavefronts(addresses: Ints, active: Bools, lane_bytes: int, *, load: bool) -> Ints:
    """Wavefronts of each warp's plain access; arrays are [warps, 32], addresses in bytes."""
    words_a_lane = max(lane_bytes // BANK_BYTES, 1)
    lanes = 32 // words_a_lane  # that share a wavefront at best
    words = addresses // BANK_BYTES

    def taken(start: int, count: int) -> Ints:
        part = slice(start, start + count)
        each = words[:, part, None] + np.arange(words_a_lane)
        on = np.repeat(active[:, part], words_a_lane, axis=1)
        return _words_by_bank(each.reshape(len(words), -1), on)

    if lanes == 32:
        return taken(0, 32)
    total = np.zeros(len(addresses), dtype=np.int64)
    for start in range(0, 32, 2 * lanes):
        apart = taken(start, lanes) + taken(start + lanes, lanes)
        together = _lanes_agree(addresses, active, start, 2 * lanes) if load else np.zeros(len(words), dtype=bool)
        total += np.where(together, taken(start, 2 * lanes), apart)
    return total


def _lanes_agree(addresses: Ints, active: Bools, start: int, count: int) -> Bools:
    """Whether each running lane's neighbour, i xor 1 or i xor 2, does not run or reads the same address."""
    lanes = np.arange(start, start + count)
    agree = np.zeros(len(addresses), dtype=bool)
    for step in (1, 2):
        other = lanes ^ step
        same = addresses[:, lanes] == addresses[:, other]
        agree |= np.all(same | ~active[:, lanes] | ~active[:, other], axis=1)
    return agree


def copy_wavefronts(targets: Ints, sources: Ints, reading: Bools, zeroed: Bools, lane_bytes: int) -> tuple[Ints, Ints]:
    """(wavefronts, the least) of LDGSTS, which copies to shared memory and writes zeros where it does not read.

    No document says how it is counted. On an H200 lanes that read and lanes that write zeros go separately, and a
    wavefront takes from each four-byte column of the 128-byte lines of global memory once: rows shorter than a line
    take a wavefront each. Some copies of several lines took less; see `validation/h200/accesses.md`.
    """
    words_a_lane = max(lane_bytes // BANK_BYTES, 1)
    lanes = 32 // words_a_lane
    total = np.zeros(len(targets), dtype=np.int64)
    for start in range(0, 32, lanes):
        part = slice(start, start + lanes)
        steps = np.arange(words_a_lane)
        places = (targets[:, part, None] // BANK_BYTES + steps).reshape(len(targets), -1)
        columns = ((sources[:, part, None] // BANK_BYTES + steps) % BANKS).reshape(len(targets), -1)
        reads = np.repeat(reading[:, part], words_a_lane, axis=1)
        zeros = np.repeat(zeroed[:, part], words_a_lane, axis=1)
        used = np.zeros((len(targets), BANKS), dtype=np.int64)
        rows, at = np.nonzero(reads)
        np.add.at(used, (rows, columns[rows, at]), 1)
        total += np.maximum(_words_by_bank(places, reads), used.max(axis=1)) + _words_by_bank(places, zeros)
    least = sum(-(-lanes_on.sum(axis=1) * lane_bytes // WAVEFRONT_BYTES) for lanes_on in (reading, zeroed))
    return total, np.minimum(np.asarray(least, dtype=np.int64), total)


def matrix_wavefronts(addresses: Ints, matrices: int) -> Ints:
    """Wavefronts of LDSM or STSM: lanes 8 i to 8 i + 7 have the rows of matrix i."""
    total = np.zeros(len(addresses), dtype=np.int64)
    for matrix in range(matrices):
        rows = addresses[:, matrix * MATRIX_ROWS : (matrix + 1) * MATRIX_ROWS]
        words = rows[:, :, None] // BANK_BYTES + np.arange(MATRIX_ROW_BYTES // BANK_BYTES)
        flat = words.reshape(len(rows), -1)
        total += _words_by_bank(flat, np.ones(flat.shape, dtype=bool))
    return total


def least_wavefronts(active: Ints, lane_bytes: int, taken: Ints) -> Ints:
    """The least wavefronts for so many active lanes that now take `taken`."""
    return np.minimum(-(-active * lane_bytes // WAVEFRONT_BYTES), taken)


def least_sectors(active: Ints, lane_bytes: int, taken: Ints) -> Ints:
    """The least sectors for so many active lanes that now take `taken`."""
    return np.minimum(-(-active * lane_bytes // SECTOR_BYTES), taken)
