"""The way of one warp through a kernel: its instructions from start to end, and which of them are loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from occupancy_cli.model.instruction_costs import Step


@dataclass(frozen=True)
class LoopSpan:
    """A loop of a path: its steps from `first` up to `last`, which number its part has, and the iterations of the
    source's loop that one pass covers (more than 1 when the compiler unrolled it)."""

    first: int
    last: int
    part: int
    iterations_per_pass: float = 1.0

    def holds(self, other: LoopSpan) -> bool:
        """Whether `other` lies inside this loop."""
        return self != other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class WarpPath:
    """The instructions of one warp from start to end, each loop passed once, and which of them are loops.
    `instructions` is how many the whole kernel has, with the ways that this warp does not take; `numbers` says which of
    them each step is."""

    steps: tuple[Step, ...]
    loops: tuple[LoopSpan, ...] = ()
    instructions: int = 0
    numbers: tuple[int, ...] = ()

    def repeated(self, loop: LoopSpan, passes: int) -> tuple[Step, ...]:
        """The steps with `passes` passes of one loop."""
        return self.steps[: loop.first] + self.steps[loop.first : loop.last] * passes + self.steps[loop.last :]

    def own(self, part: int) -> list[Step]:
        """The steps of a loop without those of loops inside it; of part 0 those outside every loop."""
        mine = [loop for loop in self.loops if loop.part == part]
        places: set[int] = set(range(len(self.steps))) if part == 0 else set()
        for loop in mine:
            places |= set(range(loop.first, loop.last))
        for loop in self.loops:
            if part == 0 or any(each.holds(loop) for each in mine):
                places -= set(range(loop.first, loop.last))
        return [self.steps[i] for i in sorted(places)]


def directly_around(loop: LoopSpan, loops: Sequence[LoopSpan]) -> LoopSpan | None:
    """The loop that a loop lies directly in."""
    return min((each for each in loops if each.holds(loop)), key=lambda each: each.last - each.first, default=None)


@dataclass(frozen=True)
class Place:
    """A step as it stands in a traced program: its number in the path, how many such executions of a CTA it stands for,
    and the pass of each loop around it by the loop's part."""

    step: int
    stands_for: float
    passes: tuple[tuple[int, int], ...] = ()


def turned(path: WarpPath, turns: Mapping[int, float], most: int) -> list[Place]:
    """The path with up to `most` passes of each loop; the passes behind the first stand for all that follow it."""

    def run(first: int, last: int, weight: float, passes: tuple[tuple[int, int], ...]) -> list[Place]:
        entered = dict(passes)
        inside = [each for each in path.loops if first <= each.first and each.last <= last and each.part not in entered]
        found: list[Place] = []
        at = first
        for loop in sorted((each for each in inside if not _within(each, inside)), key=lambda each: each.first):
            found += [Place(step, weight, passes) for step in range(at, loop.first)]
            for n, stands_for in enumerate(_stand_for(turns.get(loop.part, 1.0), most)):
                found += run(loop.first, loop.last, weight * stands_for, (*passes, (loop.part, n)))
            at = loop.last
        return found + [Place(step, weight, passes) for step in range(at, last)]

    return run(0, len(path.steps), 1.0, ())


def _stand_for(turns: float, most: int) -> list[float]:
    """How many passes each traced pass of a loop stands for, of `turns` in all."""
    if turns <= 0:
        return []
    count = min(max(round(turns), 1), most)
    if count == 1 or turns <= count:
        return [turns / count] * count
    return [1.0] + [(turns - 1.0) / (count - 1)] * (count - 1)


def _within(loop: LoopSpan, loops: Sequence[LoopSpan]) -> bool:
    return any(each.holds(loop) for each in loops)
