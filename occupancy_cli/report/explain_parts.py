"""Where one config's shared memory, registers and time go, buffer by buffer and line by line.

    {"total_bytes": 50176, "peak_at": 551, "buffers": [{"offset": 0, "bytes": 16384, "shape": [32, 256],
     "dtype": "bf16", "copies": 1, "purpose": "operand kept for the loop", "value": "query_a", "live_from": 196,
     "live_to": 570, "at_peak": true, "source": {"file": "mla.py", "line": 179, "text": "query_a = ..."}}, ...]}

Buffers whose lives do not overlap may share an address, so bytes do not add up to the total: the largest
`offset + bytes` is the total, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from occupancy_cli.report.part_values import Scalar, prose


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A line of the kernel's source. `called_from` has the lines that call the function it stands in."""

    file: str
    line: int
    text: str
    called_from: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One buffer of shared memory. `shape` is that of one copy, `copies` how many a pipeline keeps.

    It lives from operation `live_from` to `live_to` of the kernel, in program order. `bytes_exact` is false where the
    compiler does not say how much scratch an operation takes: then it is at most `bytes`.
    """

    offset: int
    bytes: int
    bytes_exact: bool = True
    shape: list[int]
    dtype: str
    copies: int
    purpose: str
    value: str
    live_from: int
    live_to: int
    at_peak: bool = field(metadata={"description": "whether it lives at the moment that sets the total"})
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class OperationRange:
    """A loop, as its first and last operation in program order."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class SharedMemoryMap:
    """The buffers of a config by address. `peak_at` is the first operation at which all of the total is in use,
    `peak_unused_bytes` what no buffer holds below the total then."""

    total_bytes: int
    operations: int
    peak_at: int
    peak_unused_bytes: int
    loops: list[OperationRange] = field(default_factory=list)
    buffers: list[Buffer]


@dataclass(frozen=True, kw_only=True)
class RegisterHolder:
    """Registers that a line holds at the peak; `written_by` is the instruction that wrote most of them."""

    registers: int
    value: str
    written_by: str
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class RegisterLine:
    """The most registers that live at an instruction of a line."""

    registers: int
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class SpillLine:
    """Stores to and loads from local memory of one line; in a loop they are paid at every trip."""

    stores: int
    loads: int
    bytes: int
    in_loop: bool
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class RegisterUse:
    """Registers of a thread: `allocated` by the compiler, of which `peak_live` live at once at most."""

    allocated: int
    peak_live: int
    spill_bytes: int
    peak_opcode: str
    peak_in_loop: bool
    peak_source: SourceText | None
    holders: list[RegisterHolder]
    lines: list[RegisterLine] = field(default_factory=list)
    spills: list[SpillLine] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AccessCause:
    """Why an access takes more than the least: its kind (width, stride, misalignment, bank conflict, layout conversion,
    spill, not pipelined) and what is to blame."""

    kind: str
    text: str = prose("")


@dataclass(frozen=True, kw_only=True)
class MemoryAccess:
    """One instruction that accesses memory.

    `bits` is what a lane moves at once. `executed`, `sectors` (of 32 bytes, global memory) and `least_sectors` are of
    the whole launch, counted by warps; the others of one access. `basis` is exact, assumed (`reason` says on what
    the figures rest) or unknown: then they are null, and `reason` says why.
    """

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
    basis: Literal["exact", "assumed", "unknown"]
    reason: str = prose("")
    causes: list[AccessCause] = field(default_factory=list)
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class LineTime:
    """Cycles during which a warp's next instruction is of this line, and what they wait for."""

    cycles: float
    percent: float
    waits: dict[str, float]
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class CriticalLink:
    """A step of the critical sequence: an instruction that had to wait, in cycles of an iteration, and their share.

    `result_of` is the instruction whose result it waited for, "" where it waited for none; `carried`: that one ran in
    an earlier iteration. `instructions` in a row of one line that wait for the same are one step.
    """

    opcode: str
    instructions: int
    waits_for: str
    result_of: str
    carried: bool
    cycles: float
    percent: float
    source: SourceText | None


@dataclass(frozen=True, kw_only=True)
class LineTimes:
    """Time by source line, simulated with `ctas_per_sm` CTAs on an SM and nothing in the GPU's caches, the most first;
    and the critical sequence of dependent instructions of one iteration of the main loop in program order (of a CTA
    where there is no loop). `cycles` is the sum over the lines."""

    covers: Literal["cta", "iteration"] = field(
        metadata={"description": "iteration: of the main loop, where nobody knows how often every loop turns"}
    )
    cycles: float
    iteration_cycles: float | None
    ctas_per_sm: int
    lines: list[LineTime]
    sequence: list[CriticalLink]


@dataclass(frozen=True, kw_only=True)
class OptionTried:
    """The same config compiled with other launch options, for what they do to registers and spills.

    What did not compile or cannot launch has a `reason`.
    """

    change: dict[str, Scalar]
    registers_per_thread: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    ctas_per_sm: int | None = None
    warps_per_sm: int | None = None
    reason: str = prose("")
