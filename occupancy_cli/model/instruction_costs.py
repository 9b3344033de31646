"""What one instruction of a warp costs an SM: the pipe it takes and for how long, when its result is there, its bytes.

    cost_of("LDG.E.128", rates, latency=690, outgrown=False)   # on "mio" for 2 cycles, 512 bytes from beyond the L1
    tensor_shape("HGMMA.64x128x16.F32.BF16")                   # ("bf16", 65536 FLOPs of one warp)

Figures were timed on an H200 with `validation/sm_constants.cu` (results beside it) and agree with the
arithmetic-instruction table of the CUDA C++ Programming Guide. None comes from a timed kernel.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from occupancy_cli.gpu.sm_rates import SmRates

_SHARED_LATENCY = 29  # H100: 29.9 (mt4g)
_MIO_RELEASE = 20  # cycles until an access to memory has read its operands
_COPY_WAVEFRONTS = 1.0  # of an asynchronous copy (study of non-decode kernels: 2 in order put GEMMs 1.4 times too high)
_SHARED_BYTES_PER_CYCLE = 128.0  # 32 banks of 4 bytes
_MMA_SYNC_SHARE_OF_PEAK = {9: 0.62}
"""On Hopper `mma.sync` reaches this share of the peak that warpgroup products have: 6.3 cycles instead of 4 for
m16n8k16 (H200). Elsewhere it is the peak."""


class Step(NamedTuple):
    """One instruction of a warp: what `readers.sass` read of it.

    `stall` is the cycles until the warp's next instruction at the earliest; `write_barrier` and `read_barrier` the
    scoreboard (0 to 5; 7 is none) that the instruction releases when its result, or its operands, are done with;
    `wait_mask` the scoreboards it waits for. `allowed` is, for a wait on commit groups, how many may still be open.
    """

    opcode: str
    stall: int = 1
    write_barrier: int = 7
    read_barrier: int = 7
    wait_mask: int = 0
    allowed: int = -1
    from_registers: bool = False


class Cost(NamedTuple):
    """Cycles of one warp instruction: on its scheduler's pipe, on the SM's shared-memory path, until its result, until
    its operands are read; and the bytes it moves beyond the L1."""

    pipe: str
    issue: float
    shared: float
    latency: float
    release: float
    l2_bytes: float


_FP32 = {"FADD", "FMUL", "FFMA", "FADD32I", "FMUL32I", "FFMA32I", "FADD2", "FMUL2", "FFMA2"}
_INTEGER_MULTIPLY = {"IMAD", "IMUL", "IDP", "IDP4A"}
_HALF = {"HADD2", "HMUL2", "HFMA2", "HADD2_32I", "HFMA2_32I"}
_TRANSCENDENTAL = {"MUFU"}
_CONVERT = {"I2F", "F2I", "F2F", "FRND", "I2I", "POPC", "FLO", "BREV"}
_CONTROL = {
    "BRA", "NOP", "DEPBAR", "LDGDEPBAR", "BSSY", "BSYNC", "EXIT", "WARPSYNC", "MEMBAR", "CS2R", "WARPGROUP", "ELECT",
    "RET", "CALL", "YIELD", "ERRBAR", "CCTL", "FENCE", "BREAK", "JMP", "KILL", "BMOV", "NANOSLEEP", "ACQBULK",
    "USETMAXREG",
}  # fmt: skip
_TENSOR = {"HMMA", "IMMA", "QMMA", "OMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA"}


def access_bytes(opcode: str) -> int:
    """Bytes that one lane of a load or store moves."""
    for suffix, size in ((".128", 16), (".256", 32), (".64", 8), (".U8", 1), (".S8", 1), (".U16", 2), (".S16", 2)):
        if suffix in opcode:
            return size
    return 4


def matrix_bytes(opcode: str) -> int:
    """Bytes a lane gets from LDSM, or gives to STSM: 4 for each 8 x 8 matrix of 16-bit values."""
    return 16 if opcode.endswith(".4") else 8 if opcode.endswith(".2") else 4


def tensor_shape(opcode: str) -> tuple[str, float]:
    """(operand type, FLOPs that one warp's instruction does) of a tensor-core instruction.

    A warpgroup product (HGMMA.64x128x16) is done by four warps, a quarter of its 64 rows each.
    """
    group = re.search(r"\.(\d+)x(\d+)x(\d+)", opcode)
    if group:
        m, n, k = (int(part) for part in group.groups())
        flops = 2.0 * m / 4 * n * k
    else:
        sizes = re.search(r"\.(16816|16832|16864|1688|1684|8816|8832|884)\b", opcode)
        shapes = {
            "16816": (16, 8, 16), "16832": (16, 8, 32), "16864": (16, 8, 64), "1688": (16, 8, 8), "1684": (16, 8, 4),
            "8816": (8, 8, 16), "8832": (8, 8, 32), "884": (8, 8, 4),
        }  # fmt: skip
        m, n, k = shapes[sizes.group(1)] if sizes else (16, 8, 16)
        flops = 2.0 * m * n * k
    if re.search(r"E4M3|E5M2", opcode) or opcode.startswith(("QMMA", "QGMMA")):
        return "fp8", flops
    if opcode.startswith(("IMMA", "IGMMA")):
        return "int8", flops
    if "TF32" in opcode:
        return "tf32", flops
    return "bf16", flops


def is_cached_load(opcode: str) -> bool:
    """Whether an instruction loads global memory through the L1 into registers."""
    return opcode == "LDG" or opcode.startswith(("LDG.", "LD."))


class Touch:
    """How loads touch memory, by the bytes a lane loads at once: lines a warp's load touches, bytes beyond the L1 for
    each byte asked for, and the loads of a warp that find nothing of theirs in the L1; and of stores, by the bytes a
    lane stores at once, the lines and the bytes of sectors that go out for each byte stored."""

    def __init__(
        self,
        lines: Mapping[int, float] | None = None,
        traffic: Mapping[int, float] | None = None,
        misses: Mapping[int, float] | None = None,
        stored_lines: Mapping[int, float] | None = None,
        stored_traffic: Mapping[int, float] | None = None,
    ) -> None:
        self.lines = lines or {}
        self.traffic = traffic or {}
        self.misses = misses or {}
        self.stored_lines = stored_lines or {}
        self.stored_traffic = stored_traffic or {}

    def hits(self, steps: Sequence[Step]) -> set[int]:
        """Places in `steps` of the loads that the L1 answers: of each width the misses come first and evenly spread."""
        found: set[int] = set()
        for size, misses in self.misses.items():
            loads = [
                i for i, step in enumerate(steps) if is_cached_load(step.opcode) and access_bytes(step.opcode) == size
            ]
            share = min(misses / len(loads), 1.0) if loads else 1.0
            missed = 0
            for k, i in enumerate(loads):
                if missed < math.ceil((k + 1) * share - 1e-9):
                    missed += 1
                else:
                    found.add(i)
        return found

    def of(self, opcode: str) -> tuple[float | None, float]:
        size = access_bytes(opcode)
        if is_cached_load(opcode):
            return self.lines.get(size), self.traffic.get(size, 1.0)
        if opcode.startswith("STG"):
            return self.stored_lines.get(size), self.stored_traffic.get(size, 1.0)
        return None, 1.0


NOTHING_TOUCHED = Touch()
"""Of loads of which nothing was read: lanes side by side, and nothing in the L1."""


def cost_of(
    step: Step, rates: SmRates, latency: float, outgrown: bool, lines: float | None = None, traffic: float = 1.0
) -> Cost:
    """What one instruction costs, with memory of that latency; `outgrown`: local memory is more than the L1 holds."""
    return _cost_of(step.opcode, step.from_registers, rates, latency, outgrown, lines, traffic)


@functools.lru_cache(maxsize=4096)
def _cost_of(
    opcode: str,
    from_registers: bool,
    rates: SmRates,
    latency: float,
    outgrown: bool,
    lines: float | None,
    traffic: float,
) -> Cost:
    base = opcode.split(".", 1)[0]
    size = access_bytes(opcode)
    wavefronts = max(size / 4.0, 1.0)
    if base in ("LDG", "LD"):
        return Cost("mio", 2, max(wavefronts, lines or 1.0), latency, _MIO_RELEASE, 32.0 * size * traffic)
    if base == "LDGSTS":
        # What is copied is written to shared memory when it arrives, beside everything else.
        return Cost("mio", 2, _COPY_WAVEFRONTS, latency, _MIO_RELEASE, 32.0 * size)
    if base in ("STG", "ST", "RED", "ATOM", "ATOMG"):
        wait = latency if base.startswith("ATOM") else _MIO_RELEASE
        # Each instruction's sectors go out by themselves: the L1 gathers nothing of several stores.
        return Cost("mio", 2, max(wavefronts, lines or 1.0), wait, _MIO_RELEASE, 32.0 * size * traffic)
    if base == "LDL":
        # Local memory that the L1 cannot hold comes from the L2, wherever the rest of the data lies.
        wait = rates.near_latency_cycles if outgrown else 35
        return Cost("mio", 2, wavefronts, wait, _MIO_RELEASE, 32.0 * size if outgrown else 0)
    if base == "STL":
        return Cost("mio", 2, wavefronts, _MIO_RELEASE, _MIO_RELEASE, 32.0 * size if outgrown else 0)
    if base in ("LDS", "ATOMS"):
        return Cost("mio", 2, wavefronts, _SHARED_LATENCY, _MIO_RELEASE, 0)
    if base == "STS":
        return Cost("mio", 2, wavefronts, _MIO_RELEASE, _MIO_RELEASE, 0)
    if base in ("LDSM", "STSM"):
        return Cost("mio", 2, matrix_bytes(opcode) / 4.0, 33, _MIO_RELEASE, 0)
    if base == "SHFL":
        return Cost("mio", 2, 1, 24, 15, 0)
    if base in ("UTMALDG", "UBLKCP"):
        return Cost("uniform", 2, 0, latency + 100, _MIO_RELEASE, 0)
    if base in ("LDC", "LDCU", "ULDC", "S2R", "S2UR", "UTMASTG", "UTMAPF"):
        return Cost("uniform", 2, 0, 30, 10, 0)
    if base in _TENSOR:
        dtype, flops = tensor_shape(opcode)
        rate = dict(rates.tensor_flops_per_cycle).get(dtype)
        group = "GMMA" in base
        share = 1.0 if group else _MMA_SYNC_SHARE_OF_PEAK.get(rates.arch // 10, 1.0)
        busy = flops / (rate * share) if rate else 0.0
        if group:
            busy = max(busy, _operand_bytes(opcode, from_registers) / _SHARED_BYTES_PER_CYCLE)
        return Cost("tensor", busy, 0, 25 if not group else busy + 30, 10, 0)
    if base in _TRANSCENDENTAL or base in _CONVERT:
        return Cost("xu", 8, 0, 18, 10, 0)
    if base == "BAR":
        return Cost("barrier", 1, 0, 0, 0, 0)
    if base in _CONTROL:
        return Cost("control", 1, 0, 10, 0, 0)
    if base in _FP32:
        return Cost("fma", 2 if rates.arch in (70, 75, 80) else 1, 0, 4, 0, 0)
    if base in _INTEGER_MULTIPLY:
        return Cost("fma_heavy", 2, 0, 4, 0, 0)
    if base in _HALF:
        # HADD2.F32 turns a half into a float, at half the rate.
        return Cost("fma", 2 if ".F32" in opcode else 1, 0, 5, 0, 0)
    if base.startswith("U") or base in ("R2UR", "VOTEU"):
        return Cost("uniform", 2, 0, 12, 12, 0)
    return Cost("alu", 2, 0, 5, 0, 0)


def unit_of(opcode: str) -> str:
    """The unit that executes an instruction: "fma", "alu", "xu", "tensor", "lsu", "uniform" or "control"."""
    pipe = cost_of(Step(opcode), _ANY_RATES, 0.0, False).pipe
    return {"mio": "lsu", "fma_heavy": "fma", "barrier": "control"}.get(pipe, pipe)


def _operand_bytes(opcode: str, from_registers: bool) -> float:
    """Bytes of shared memory that a warpgroup product reads: its second operand, and the first where it lies there."""
    found = re.search(r"\.(\d+)x(\d+)x(\d+)", opcode)
    if found is None:
        return 0.0
    m, n, k = (int(part) for part in found.groups())
    element = {"fp8": 1, "int8": 1, "tf32": 4}.get(tensor_shape(opcode)[0], 2)
    return float(k * element * (n + (0 if from_registers else m)))


_ANY_RATES = SmRates(90, 0.0, 0.0, ())

UNITS = ("issue", "fma", "alu", "xu", "tensor", "shared memory and L1", "uniform")


def writes(opcode: str) -> bool:
    """Whether an instruction's bytes go out to the L2."""
    return opcode.split(".", 1)[0] in ("STG", "ST", "STL", "RED", "REDG")
