"""What each warp of a simulation waited for, instruction by instruction, and who takes it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from occupancy_cli.model.step_kinds import COMMIT, COPY, PRODUCT_END, TMA, UNIFORM_CONSTANT, WAIT_TMA
from occupancy_cli.model.warp_path import Place


@dataclass
class Issued:
    """One instruction as a warp issued it: when, and the cycles that it waited by what for.

    `held_by` is the place of the instruction whose result it waited for longest; -1 where it waited for none.
    """

    at: float
    waits: dict[str, float]
    held_by: int = -1


@dataclass(frozen=True)
class ColdStart:
    """How the first CTAs of a launch begin on an SM: so many cycles apart, the first instruction and the kernel's
    constants each so many cycles away."""

    ctas_apart_cycles: float = 0.0
    fetch_cycles: float = 0.0
    constant_cycles: float = 0.0


@dataclass(frozen=True)
class PathTrace:
    """What each warp of a simulation waited for, instruction by instruction in the order of `places`.

    Waits are named by the pipe that was busy ("tensor", "mio", ...), "result" for that of an instruction before,
    "barrier", "issue" for other warps' turns, "latency" for the cycles that the compiler wrote behind an instruction,
    and "fetch" and "constants" for what a launch has to get first (`ColdStart`).
    """

    places: tuple[Place, ...]
    warps: tuple[tuple[Issued, ...], ...]


class WaitRecorder:
    """Takes down, while a program runs, what holds each warp, and which instruction gave what it waits for."""

    def __init__(self, warps: int, start: ColdStart) -> None:
        self.start = start
        self.issued: list[list[Issued]] = [[] for _ in range(warps)]
        self._waits: list[dict[tuple[str, int], float]] = [{} for _ in range(warps)]
        self._writers: list[dict[int, int]] = [{} for _ in range(warps)]
        self._open = [-1] * warps
        self._groups: list[dict[int, list[int]]] = [{COPY: [], PRODUCT_END: [], TMA: []} for _ in range(warps)]

    def begun(self, kind: int) -> tuple[float, str]:
        """From when on a kind of instruction can be issued at all, and what it waits for until then."""
        if kind == UNIFORM_CONSTANT:
            return self.start.fetch_cycles + self.start.constant_cycles, "constants"
        return self.start.fetch_cycles, "fetch"

    def waits(self, warp: int, cycles: float, what: str, board: int = -1) -> None:
        """A warp cannot issue yet; `board` is the scoreboard that it waits for."""
        self._add(warp, cycles, what, self._writers[warp].get(board, -1))

    def waits_for_group(self, warp: int, cycles: float, kind: int, allowed: int) -> None:
        """A warp waits for a group of copies or products to be done, but for `allowed` later ones."""
        groups = self._groups[warp][kind]
        self._add(warp, cycles, "result", groups[0] if kind == TMA else groups[len(groups) - allowed - 1])

    def _add(self, warp: int, cycles: float, what: str, giver: int) -> None:
        found = self._waits[warp]
        found[what, giver] = found.get((what, giver), 0.0) + cycles

    def issues(self, warp: int, now: float, kind: int, gives: Sequence[int]) -> None:
        """A warp issues its next instruction, which gives its result through the scoreboards `gives`."""
        place = len(self.issued[warp])
        named: dict[str, float] = {}
        held_by, longest = -1, 0.0
        for (what, giver), cycles in self._waits[warp].items():
            named[what] = named.get(what, 0.0) + cycles
            if giver >= 0 and cycles > longest:
                held_by, longest = giver, cycles
        self.issued[warp].append(Issued(now, named, held_by))
        self._waits[warp] = {}
        for board in gives:
            self._writers[warp][board] = place
        groups = self._groups[warp]
        if kind == COPY:
            self._open[warp] = place
        elif kind == COMMIT:
            groups[COPY].append(self._open[warp])
        elif kind in (PRODUCT_END, TMA):
            groups[kind].append(place)
        elif kind == WAIT_TMA and groups[TMA]:
            groups[TMA].pop(0)
