"""How many ways the banks of shared memory conflict at worst in a launch: the figure of `max_bank_conflict_ways`.

    8 ways of bank conflict at mm.py:44: tl.store(at, x) (STS.128: 32 wavefronts an access, 4 at least)

The ways of an instruction are the wavefronts that it takes over the least that its lanes' bytes would take, on average
over the warps that run it: 1 without a conflict. For accesses of up to four bytes a lane that is NVIDIA's "N-way bank
conflict" (CUDA C++ Programming Guide, "Shared Memory"), whose least is one wavefront; wider ones have two or four at
least, which are no conflict. Counted are LDS, STS, LDSM, STSM, ATOMS and LDGSTS, a copy into shared memory; what tensor
cores and TMA read by a descriptor has a swizzle of its own and is not.

What is not known leaves the launch undecided, unless it can be no more than is asked for, or another access is over it.
"""

from __future__ import annotations

from dataclasses import dataclass

from occupancy_cli.answers.access_parts import FollowedLaunch, follow_launch
from occupancy_cli.answers.weighs_most import place_text
from occupancy_cli.compile.kernel_explanation import KernelExplanation
from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.plan.launch_plan import LaunchPlan
from occupancy_cli.readers.accesses import COPY_LINES, DATA_BRANCH, LIKE_NEIGHBOURS, Access

_OF_SHARED_MEMORY = frozenset({"LDS", "STS", "LDSM", "STSM", "ATOMS", "LDGSTS"})
# What may make a figure too high and never too low: a copy that the hardware takes at once, code that does not run.
_AT_MOST = frozenset({COPY_LINES, DATA_BRANCH})
_LANE_STEPS = 0
"""So few that the first CTAs are followed alone, corners of the grid: in shared memory all of them are alike."""


@dataclass(frozen=True)
class Doubt:
    """An access of which the ways are not known, in words; at most so many, where that much is."""

    text: str
    at_most: float | None = None


@dataclass(frozen=True)
class BankConflicts:
    """The most ways of the accesses that are known, which access that is, and those in doubt."""

    ways: float
    at: str
    doubts: tuple[Doubt, ...] = ()

    def within(self, limit: float) -> tuple[float | None, str, str]:
        """(the ways, the access that they are of, "") to be held to `limit`; (None, "", why) where doubts decide."""
        if self.ways > limit:
            return self.ways, self.at, ""
        open_ = [d.text for d in self.doubts if d.at_most is None or d.at_most > limit]
        if open_:
            more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
            return None, "", f"{open_[0]}{more}"
        return self.ways, self.at, ""


def bank_conflicts(outcome: CompileOutcome, plan: LaunchPlan) -> BankConflicts:
    """The conflicts of a compiled launch; in doubt as a whole where it cannot be followed."""
    if outcome.explanation is None or outcome.resources is None:
        return BankConflicts(1.0, "", (Doubt("the compile left no machine code to follow"),))
    read = outcome.explanation.read()
    return worst_of(follow_launch(read, outcome.resources, plan, _LANE_STEPS), read)


def worst_of(followed: FollowedLaunch, read: KernelExplanation) -> BankConflicts:
    """The worst of what was followed."""
    if followed.accesses is None:
        return BankConflicts(1.0, "", (Doubt(followed.why),))
    ways, at, doubts = 1.0, "", list[Doubt]()
    for access in followed.accesses.found:
        if access.op.partition(".")[0] not in _OF_SHARED_MEMORY:
            continue
        place = place_text(followed.sources.get(access.address, ()), read.texts)
        where = f" at {place}" if place else ""
        mine = _ways(access)
        if mine is None:
            why = access.unknown
            if followed.missing:
                why += f" ({', '.join(followed.missing)} has no value)"
            doubts.append(Doubt(f"{access.op}{where}: {why}"))
            continue
        assumed = [text for text in access.assumes if text != LIKE_NEIGHBOURS]
        if assumed:
            doubts.append(
                Doubt(f"{access.op}{where}: {'; '.join(assumed)}", mine if set(assumed) <= _AT_MOST else None)
            )
        elif mine > ways:
            ways = mine
            at = (
                f"{where} ({access.op}: {_number(access.wavefronts_per_access)} wavefronts an access, "
                f"{_number(access.least_wavefronts)} at least)"
            )
    if followed.accesses.stopped:
        doubts.append(Doubt(followed.accesses.stopped))
    return BankConflicts(ways, at, tuple(doubts))


def _ways(access: Access) -> float | None:
    """The wavefronts of an access over the least of them; None where they are not known."""
    taken, least = access.wavefronts_per_access, access.least_wavefronts
    if taken is None or least is None:
        return None
    return round(taken / least, 3) if least else 1.0  # no lane of it ever ran


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")
