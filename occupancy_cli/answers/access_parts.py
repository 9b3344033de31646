"""The memory accesses of one launch as parts of a Report: its machine code followed with its argument values.

A tensor's address is not known before it is there: each is taken to begin at a multiple of 256 bytes, as the CUDA
runtime allocates (CUDA C++ Programming Guide, "Device Memory Accesses"), or as far from one as the spec's `align` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_cli.answers.access_causes import Arguments, causes_of
from occupancy_cli.answers.explained import source_part
from occupancy_cli.report.explain_parts import MemoryAccess

if TYPE_CHECKING:
    from occupancy_cli.compile.kernel_explanation import KernelCode, KernelExplanation
    from occupancy_cli.compile.request import ArgumentValue
    from occupancy_cli.model.resources import KernelResources
    from occupancy_cli.plan.launch_plan import LaunchPlan
    from occupancy_cli.readers.accesses import Accesses
    from occupancy_cli.readers.ttgir import SourceLine

_TENSORS_APART = 1 << 36
_FIRST_TENSOR = 0x7F << 40
_SCRATCH_PARAMETERS = 2  # Triton's own, behind the kernel's


@dataclass(frozen=True)
class FollowedLaunch:
    """What was followed of a launch: its accesses and the source lines of each instruction, by its address.

    `accesses` is None, and `why` says it, where nothing could be followed; `missing` names integer arguments without a
    value.
    """

    accesses: Accesses | None
    sources: Mapping[int, tuple[SourceLine, ...]]
    missing: tuple[str, ...] = ()
    why: str = ""


def follow_launch(
    read: KernelExplanation, resources: KernelResources, plan: LaunchPlan, lane_steps: int | None = None
) -> FollowedLaunch:
    """The accesses of a launch, of as many of its CTAs as `lane_steps` allow (`readers.accesses`, which has the
    default)."""
    code = read.code
    if code is None:
        return FollowedLaunch(None, {}, why=read.note)
    if plan.grid is None:
        return FollowedLaunch(None, {}, why="accesses are those of a launch: give its grid, --grid or in the spec")
    if resources.num_ctas > 1:
        return FollowedLaunch(None, {}, why="accesses of CTAs in clusters are not followed")
    extra = len(code.places) - len(code.arguments)
    if not 0 <= extra <= _SCRATCH_PARAMETERS:
        why = "accesses are not followed: the kernel's arguments are descriptors in several parts"
        return FollowedLaunch(None, {}, why=why)
    from occupancy_cli.readers.accesses import LANE_STEPS, read_accesses
    from occupancy_cli.readers.kernel_parameters import constant_words
    from occupancy_cli.readers.register_life import instruction_sources
    from occupancy_cli.readers.sass import parse_sass

    values, missing = _values(code, {a.name: a for a in plan.request.arguments})
    grid = (*plan.grid, 1, 1)[:3]
    threads = resources.threads_per_cta
    text = code.text()
    kernel = parse_sass(text, code.name)
    words = constant_words(code.places, values, threads, (grid[0], grid[1], grid[2]))
    accesses = read_accesses(
        kernel,
        words,
        threads,
        (grid[0], grid[1], grid[2]),
        resources.shared_bytes,
        LANE_STEPS if lane_steps is None else lane_steps,
    )
    return FollowedLaunch(accesses, instruction_sources(text, code.name), tuple(missing))


@dataclass(frozen=True)
class AccessParts:
    """The accesses in program order, and notes on what they rest on."""

    found: list[MemoryAccess]
    notes: list[str]


def access_parts(read: KernelExplanation, resources: KernelResources, plan: LaunchPlan) -> AccessParts:
    """The accesses of a launch; none, with a note that says why, where they cannot be followed."""
    if read.code is None:
        return AccessParts([], [])  # the explanation's own note says why
    followed = follow_launch(read, resources, plan)
    accesses, sources = followed.accesses, followed.sources
    if accesses is None:
        return AccessParts([], [followed.why])
    given = Arguments(read.code.unmarked, {a.name: a for a in plan.request.arguments})
    conversions = {
        (each.source[0].file, each.source[0].line)
        for each in read.shared_map.buffers
        if each.purpose == "layout conversion" and each.source
    }
    found = []
    for access in accesses.found:
        lines = sources.get(access.address, ())
        beside = [a for a in accesses.found if sources.get(a.address, ()) == lines]
        found.append(
            MemoryAccess(
                op=access.op,
                bits=access.bits,
                executed=access.executed,
                wavefronts_per_access=access.wavefronts_per_access,
                least_wavefronts=access.least_wavefronts,
                sectors=access.sectors,
                least_sectors=access.least_sectors,
                sectors_per_access=access.sectors_per_access,
                least_sectors_per_access=access.least_sectors_per_access,
                in_loop=access.in_loop,
                basis="unknown" if access.unknown else "assumed" if access.assumes else "exact",
                reason=access.unknown or "; ".join(access.assumes),
                causes=causes_of(
                    access, beside, lines, given, converts=bool(lines) and (lines[0].file, lines[0].line) in conversions
                ),
                source=source_part(lines, read.texts),
            )
        )
    notes = []
    if followed.missing:
        notes.append(f"accesses: {', '.join(followed.missing)} has no value, so what depends on it is unknown")
    if accesses.followed < accesses.launched:
        notes.append(
            f"accesses: {accesses.followed:,} of {accesses.launched:,} CTAs were followed, the others taken to be alike"
        )
    if accesses.stopped:
        notes.append(f"accesses: {accesses.stopped}")
    return AccessParts(found, notes)


def _values(code: KernelCode, arguments: Mapping[str, ArgumentValue]) -> tuple[dict[int, int], list[str]]:
    """(value of each parameter by its number, the integers that have none)."""
    values: dict[int, int] = {}
    missing: list[str] = []
    for place in code.places:
        base = _FIRST_TENSOR + place.ordinal * _TENSORS_APART
        name = code.arguments[place.ordinal] if place.ordinal < len(code.arguments) else ""
        given = arguments.get(name)
        if not name:
            values[place.ordinal] = base
        elif given is None or given.type.startswith("*"):
            align = 16 if given is None else given.align
            values[place.ordinal] = base if align >= 16 else base + align
        elif isinstance(given.value, int):
            values[place.ordinal] = int(given.value)
        elif given.type.startswith(("i", "u")):
            missing.append(name)
    return values, missing
