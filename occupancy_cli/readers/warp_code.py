"""What an instruction is to `warp_machine`: whether it accesses memory and which, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping

from occupancy_cli.model.instruction_costs import access_bytes
from occupancy_cli.readers.sass import SassInstruction
from occupancy_cli.readers.sass_operands import Operand, operands

NO_RESULT = frozenset({
    "ST", "STG", "STS", "STL", "STSM", "RED", "REDG", "REDS", "BAR", "BRA", "EXIT", "RET", "NOP", "BSSY", "BSYNC",
    "DEPBAR", "LDGDEPBAR", "LDGSTS", "WARPSYNC", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL", "FENCE", "BREAK", "WARPGROUP",
    "UTMALDG", "UTMASTG", "UTMACMDFLUSH", "UTMACCTL", "UTMAPF", "UTMAREDG", "UBLKCP", "KILL", "YIELD", "NANOSLEEP",
    "USETMAXREG", "ACQBULK", "CCTLL", "PREEXIT", "ARRIVES", "UCGABAR_ARV", "UCGABAR_WAIT", "ENDCOLLECTIVE",
    "WARPGROUPSET",
})  # fmt: skip
ACCESSES = frozenset({
    "LDG", "STG", "LD", "ST", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG", "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDL",
    "STL",
})  # fmt: skip


def space_of(base: str) -> str:
    """The memory that an instruction accesses: "global", "shared" or "local"."""
    if base in ("LDS", "STS", "LDSM", "STSM", "ATOMS", "REDS"):
        return "shared"
    return "local" if base in ("LDL", "STL") else "global"


def words_moved(code: SassInstruction) -> int:
    """How many registers an instruction writes or stores."""
    opcode = code.opcode
    if code.base in ("LDSM", "STSM"):
        return 4 if opcode.endswith(".4") else 2 if opcode.endswith(".2") else 1
    if code.base in ("HMMA", "QMMA", "IMMA"):
        return 2 if opcode.endswith(".F16") else 4
    if code.base in ("DADD", "DMUL", "DFMA", "DMMA"):
        return 2
    return max(access_bytes(opcode) // 4, 1) if code.base[:2] in ("LD", "ST", "AT") else 1


def parsed(
    code: SassInstruction, index: Mapping[int, int]
) -> tuple[SassInstruction, tuple[Operand, ...], frozenset[str], int | None]:
    target = None if code.target is None else index.get(code.target)
    return code, operands(code.operands), frozenset(code.opcode.split(".")[1:]), target
