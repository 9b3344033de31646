"""What this installation has, and what it remembers: `doctor` and `cache`.

part       ok       found                    without it
Triton     ok       3.9.0 (/.../triton)
torch      missing  not installed            occupancy verify, measure and capture need torch
to get torch: python -m pip install 'occupancy-cli[gpu]'

/home/me/.cache/occupancy/results-1.sqlite: 412 results, 3,145,728 bytes
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.part_values import EXIT_OK, EXIT_UNDECIDED, prose


@dataclass(frozen=True, kw_only=True)
class InstalledPart:
    """One part of the toolchain. `needed`: nothing compiles without it. `get`: how to have it, where it is missing."""

    part: str
    ok: bool
    found: str = prose()
    disables: str = ""
    needed: bool = False
    get: str = ""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Every part that was looked for."""

    parts: list[InstalledPart]

    @property
    def exit_code(self) -> int:
        """2 when kernels cannot be compiled here."""
        return EXIT_UNDECIDED if any(not part.ok and part.needed for part in self.parts) else EXIT_OK


@dataclass(frozen=True, kw_only=True)
class UnkeptKernel:
    """A kernel whose results are not kept, and what it does that cannot be recorded."""

    kernel: str
    reasons: list[str]


@dataclass(frozen=True, kw_only=True)
class CacheVerification:
    """Results that would be used today, those whose sources have changed since, and damaged ones, which are removed.

    `changes` pairs what changed first with how many results that made stale.
    """

    holding: int
    stale: int
    damaged: int
    changes: list[tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The result cache. `removed`: how many results were forgotten just now (null: none was asked to be).

    `notice` says that a damaged cache was set aside and begun anew; `verified` is there when that was asked for.
    """

    path: str
    records: int
    size_bytes: int
    triton_versions: list[str]
    trouble: str = ""
    removed: int | None = None
    notice: str = ""
    unkept: list[UnkeptKernel] = field(default_factory=list)
    verified: CacheVerification | None = None
