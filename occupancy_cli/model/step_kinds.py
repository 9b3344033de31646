"""How an instruction takes part in a simulation beyond its cost: what it begins, ends or waits for."""

from __future__ import annotations

from occupancy_cli.model.instruction_costs import Step, is_cached_load, writes

(
    PLAIN,
    COPY,
    COMMIT,
    WAIT_COPY,
    BARRIER,
    PRODUCT,
    PRODUCT_END,
    WAIT_PRODUCT,
    BRANCH,
    STORE,
    TMA,
    WAIT_TMA,
    LOAD,
    HIT,
    CONSTANT,
    UNIFORM_CONSTANT,
) = range(16)


GROUP_OF = {WAIT_COPY: COPY, WAIT_PRODUCT: PRODUCT_END, WAIT_TMA: TMA}
"""What a wait for a group waits for."""


def kind_of(step: Step) -> int:
    """The kind of a step, by its opcode; which loads hit the L1 is not in it (`HIT`)."""
    opcode = step.opcode
    base = opcode.split(".", 1)[0]
    if base == "LDGSTS":
        return COPY
    if base == "LDGDEPBAR":
        return COMMIT
    if base == "DEPBAR":
        return WAIT_COPY if step.allowed >= 0 else PLAIN
    if base == "BAR" and "ARV" not in opcode:
        return BARRIER
    if base == "WARPGROUP":
        return WAIT_PRODUCT if step.allowed >= 0 else PLAIN
    if base in ("HGMMA", "QGMMA", "IGMMA"):
        return PRODUCT_END if step.allowed == 0 else PRODUCT
    if base in ("UTMALDG", "UBLKCP"):
        return TMA
    if base == "SYNCS" and "TRYWAIT" in opcode:
        return WAIT_TMA
    if base == "BRA":
        return BRANCH
    if base in ("LDC", "ULDC", "LDCU"):
        return CONSTANT if base == "LDC" else UNIFORM_CONSTANT
    if writes(opcode):
        return STORE
    if is_cached_load(opcode):
        return LOAD
    return PLAIN
