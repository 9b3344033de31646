"""A check as a whole, beside its findings.

"check": {"seconds": 12.3, "helpers": 5, "pruned": 4, "unchanged": 0, "allowed": 0}

Read aloud: judged in 12.3 seconds; 5 JIT functions that only other kernels call were not judged for themselves, and 4
configs neither, which the kernels' own pruning leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CheckRun:
    """What was left out and what it took.

    `unchanged` counts kernels that were left out since nothing of theirs changed, `allowed` what is unknown and was
    allowed to be.
    """

    seconds: float
    helpers: int = 0
    pruned: int = 0
    unchanged: int = 0
    allowed: int = 0
