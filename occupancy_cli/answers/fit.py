"""`fit`: the smallest changes of a config that reach a goal, every one of them compiled.

What may change are the knobs of the spec, the names of its configs, and the launch options num_warps, num_stages and
maxnreg; what a person sets by --set stays. A change is one name with another value: a value that is listed, half or
twice an integer tile of the autotuner, a stage fewer, half or twice the warps, or as many registers as the goal leaves.

The search goes by the number of names changed, one, then two, then three, and ends with the first number that reaches
the goal. A change that alone leads away from it is not combined with others. Each candidate is compiled up to its
shared memory, and to the end only where that leaves the goal possible. Candidates are taken in an order of their own
(fewest changes, nearest values, names), so that the answer does not depend on the order in which values are listed;
`limit` bounds them, and what it leaves out is said.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

from occupancy_cli.answers.analyze import AnalyzedPoint, compile_points, kernel_part, notes_of, toolchain
from occupancy_cli.answers.explain import chosen_points, to_explain
from occupancy_cli.answers.explained import register_use_part, shared_map_part
from occupancy_cli.answers.map_changes import buffer_changes, name_of
from occupancy_cli.answers.report_parts import gpu_part, scalars
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import Point, knob_candidates, make_point, points
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.report import schema
from occupancy_cli.report.fit_parts import Fit, FitCandidate, InTheWay, KnobChange
from occupancy_cli.spec.settings import Setting

MOST_CHANGES = 3
DEFAULT_LIMIT = 60
_LEAST_TILE = 16
_MOST_WARPS = 16
_LEAST_REGISTERS = 24
AT_GOAL = "as the goal leaves"


_Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Goal:
    """What is to be reached: so many CTAs per SM, that a config can launch, or that it spills nothing."""

    ctas: int | None = None
    no_spills: bool = False

    def __str__(self) -> str:
        if self.ctas is not None:
            return f"{self.ctas} CTA{'s' * (self.ctas != 1)}/SM"
        return "no spills" if self.no_spills else "a launch that fits"


@dataclass(frozen=True)
class _Try:
    """A set of changes by name (`asked` as they were asked for), the point they make and what came of its compile.

    `time_us` is the predicted time of all its launches, None where one of them is not known.
    """

    asked: _Changes
    changes: _Changes
    point: Point
    analyzed: AnalyzedPoint
    time_us: float | None

    @property
    def outcome(self) -> CompileOutcome:
        return self.analyzed.outcomes[0]


def fit(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    goal: Goal,
    chosen: str | None = None,
    *,
    limit: int = DEFAULT_LIMIT,
) -> schema.Report:
    """A Report with a `Fit`; `chosen` names the config to start from (the first one without it).

    Raises `InputError` where several are meant, or the GPU cannot hold so many CTAs of any kernel.
    """
    kernel = prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)
    everything = points(kernel, gpu, None)
    picked = chosen_points(everything, [chosen] if chosen else [])
    base_point = _base(kernel, gpu, service, picked, goal)
    search = _Search(kernel, gpu, service, goal, base_point, everything)
    found = search.run(limit)
    return schema.Report(
        command="fit",
        toolchain=toolchain(service, search.analyzed),
        gpu=gpu_part(gpu),
        fit=found,
        notes=notes_of(service, search.analyzed, kernel),
        interrupted=service.interrupted,
    )


def _base(kernel: Kernel, gpu: GpuProfile, service: CompileService, picked: list[Point], goal: Goal) -> Point:
    """Where the search starts: the one config meant; for `--fits` the first that does not fit."""
    if goal.ctas is None and not goal.no_spills and len(picked) > 1:
        short = [replace(p, main=replace(p.main, request=replace(p.main.request, stop_above=-1))) for p in picked]
        outcomes = service.compile_all([p.main.request for p in short])
        for point, outcome in zip(picked, outcomes, strict=True):
            if outcome.resources is not None and not occupancy_of(gpu, outcome.resources).launchable:
                return point
    return picked[0]


class _Search:
    """One search: what may change, what each set of changes came to, and what is said of them."""

    def __init__(
        self,
        kernel: Kernel,
        gpu: GpuProfile,
        service: CompileService,
        goal: Goal,
        base: Point,
        everything: Sequence[Point],
    ) -> None:
        self.kernel, self.gpu, self.service, self.goal = kernel, gpu, service, goal
        self.base_values = {**base.shapes, **base.knobs, **base.config}
        self.pinned = set(kernel.overrides) | {n for n, s in kernel.settings.items() if s.origin == "--set"}
        self.derived = {n: v for n, v in base.names.items() if n in kernel.overrides}
        self.analyzed: list[AnalyzedPoint] = []
        # The base is compiled to its end, whatever it takes: what it spills and its time are what others stand beside.
        self.base = self._compile([()], stop_above=None)[0]
        if self.base.outcome.resources is None:
            raise InputError(
                f"the config to start from does not compile: {self.base.outcome.message}", where=str(kernel.source)
            )
        self.dimensions = self._dimensions(base, everything)

    # --- what may change ---

    def _dimensions(self, base: Point, everything: Sequence[Point]) -> dict[str, list[Any]]:
        """Name -> other values, the nearest first; AT_GOAL for maxnreg is worked out by the warps of a candidate."""
        spec = self.kernel.given.spec
        found: dict[str, set[Any]] = {}
        for name in spec.knobs:
            values = set(knob_candidates(self.kernel, name, base.names)) - {base.knobs[name]}
            found[name] = {v for v in values if self._compiles_otherwise({name: v})}
        listed = {n for config in self.kernel.configs for n in config}
        for name in listed - set(LAUNCH_OPTIONS):
            now = self.base_values.get(name)
            values = {config[name] for config in self.kernel.configs if name in config}
            if _is_tile(now):
                values |= {v for v in (now // 2, now * 2) if v >= _LEAST_TILE}
            found[name] = {v for v in values if v != now}
        warps, stages = self.base_values["num_warps"], self.base_values["num_stages"]
        of_configs = {n: {p.config[n] for p in everything} for n in ("num_warps", "num_stages")}
        found["num_warps"] = {w for w in (warps // 2, warps * 2) if 1 <= w <= _MOST_WARPS} | of_configs["num_warps"]
        found["num_stages"] = set(range(1, stages)) | of_configs["num_stages"]
        if self.goal.ctas is not None:
            found["maxnreg"] = {AT_GOAL}
        elif self.base_values.get("maxnreg") is not None:
            found["maxnreg"] = {None}
        kept = {n: v - {self.base_values.get(n)} for n, v in sorted(found.items()) if n not in self.pinned}
        return {name: sorted(values, key=partial(self._distance, name)) for name, values in kept.items() if values}

    def _compiles_otherwise(self, changes: Mapping[str, Any]) -> bool:
        """Whether the kernel is another one with them: a knob may change its grid alone."""
        mine, theirs = self._point(changes, None).main.request, self.base.point.main.request
        return (mine.constexprs, mine.options) != (theirs.constexprs, theirs.options)

    def _distance(self, name: str, value: Any) -> tuple[float, str]:
        now = self.base_values.get(name)
        if _is_number(value) and _is_number(now) and value > 0 and now > 0:
            return (abs(math.log2(value / now)), str(value))
        return (1.0, str(value))

    def _candidates(self, size: int, useful: Mapping[str, Sequence[Any]]) -> list[_Changes]:
        """Sets of `size` changes out of `useful`, the nearest first."""
        found = [
            tuple(zip(names, values, strict=True))
            for names in itertools.combinations(useful, size)
            for values in itertools.product(*(useful[n] for n in names))
        ]
        return sorted(found, key=lambda c: (sum(self._distance(n, v)[0] for n, v in c), str(c)))

    # --- compiling ---

    def run(self, limit: int) -> Fit:
        """The whole search."""
        if self._reaches(self.base):
            return self._told([], [], 0)
        tries: list[_Try] = []
        reached: list[_Try] = []
        left_out = 0
        bound = self._shared_bound()
        useful: Mapping[str, Sequence[Any]] = self.dimensions
        for size in range(1, MOST_CHANGES + 1):
            if bound is None or reached:
                break
            wanted = self._candidates(size, useful)
            room = max(0, limit - len(tries))
            left_out += max(0, len(wanted) - room)
            made = self._compile(wanted[:room], stop_above=bound)
            tries += made
            reached = [t for t in made if self._reaches(t)]
            if size == 1:
                useful = self._useful(made)
        return self._told(tries, self._smallest(reached), left_out)

    def _useful(self, singles: Sequence[_Try]) -> Mapping[str, Sequence[Any]]:
        """The changes that alone do not lead away from the goal."""
        now = self._short(self.base)[2]
        kept = [t.asked[0] for t in singles if t.outcome.resources is not None and self._short(t)[2] <= now]
        return {name: [v for v in values if (name, v) in kept] for name, values in self.dimensions.items()}

    def _shared_bound(self) -> int | None:
        """The most shared bytes with which the goal is possible; None when it is not with any."""
        resources = self.base.outcome.resources
        assert resources is not None
        ctas = self.goal.ctas or 1

        def allows(shared: int) -> bool:
            needed = replace(resources, shared_bytes=shared, registers_per_thread=None, spill_bytes=None)
            # Fewer warps may be among the candidates: they alone must not rule it out.
            needed = replace(needed, num_warps=1, threads_per_cta=32)
            occupancy = occupancy_of(self.gpu, needed)
            return occupancy.launchable and occupancy.ctas_per_sm >= ctas

        if not allows(0):
            return None
        low, high = 0, self.gpu.limits.shared_per_cta_optin_bytes
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if allows(middle) else (low, middle - 1)
        return low

    def _compile(self, wanted: Sequence[_Changes], *, stop_above: int | None) -> list[_Try]:
        made: list[tuple[_Changes, _Changes, Point]] = []
        seen = set()
        for changes in wanted:
            resolved = self._resolved(dict(changes))
            if resolved is None:
                continue
            point = to_explain(self._point(resolved, stop_above))
            if point.main.request.key() in seen:
                continue
            seen.add(point.main.request.key())
            made.append((changes, tuple(resolved.items()), point))
        analyzed = compile_points(self.kernel, self.gpu, self.service, [p for *_, p in made], timed=True)
        self.analyzed += analyzed
        parts = kernel_part(self.kernel, self.gpu, analyzed).configs
        times = [part.predicted_time_us for part in parts]
        return [_Try(*each, one, time) for each, one, time in zip(made, analyzed, times, strict=True)]

    def _resolved(self, changes: dict[str, Any]) -> dict[str, Any] | None:
        """The changes with the registers that the goal leaves a thread; None where that asks for nothing."""
        if changes.get("maxnreg") != AT_GOAL:
            return changes
        resources = self.base.outcome.resources
        assert resources is not None and self.goal.ctas is not None
        warps = changes.get("num_warps", self.base_values["num_warps"])
        registers = self._registers_for(resources, warps)
        if registers is None or registers >= (resources.registers_per_thread or 256):
            return None
        return {**changes, "maxnreg": registers}

    def _registers_for(self, resources: KernelResources, warps: int) -> int | None:
        """The most registers of a thread, in steps of 8, that leave room for the CTAs asked for."""
        for registers in range(248, _LEAST_REGISTERS - 1, -8):
            asked = replace(
                resources, shared_bytes=0, num_warps=warps, threads_per_cta=32 * warps, registers_per_thread=registers
            )
            if occupancy_of(self.gpu, asked).ctas_per_sm >= (self.goal.ctas or 1):
                return registers
        return None

    def _point(self, changes: Mapping[str, Any], stop_above: int | None) -> Point:
        spec = self.kernel.given.spec
        values = {**self.base_values, **changes}
        settings = {n: values[n] for n in (*spec.shapes, *spec.knobs)}
        apart = {*spec.shapes, *spec.knobs, *spec.derived}
        config = {n: v for n, v in values.items() if n not in apart and (v is not None or n not in LAUNCH_OPTIONS)}
        return make_point(self.kernel, self.gpu, settings, config, self.derived, stop_above)

    # --- what came of it ---

    def _reaches(self, tried: _Try) -> bool:
        resources = tried.outcome.resources
        if resources is None or resources.registers_per_thread is None:
            return False
        occupancy = occupancy_of(self.gpu, resources)
        if not occupancy.launchable:
            return False
        if self.goal.ctas is not None:
            return occupancy.ctas_per_sm >= self.goal.ctas
        return resources.spill_bytes == 0 if self.goal.no_spills else True

    def _smallest(self, reached: Sequence[_Try]) -> list[_Try]:
        """Without those that go further than another one does in the same direction, and are not faster for it."""
        kept = []
        for one in reached:
            further = [o for o in reached if o is not one and self._goes_further(one, o)]
            times = [(o.time_us, one.time_us) for o in further]
            if not any(mine is None or theirs is None or mine >= theirs for theirs, mine in times):
                kept.append(one)
        return kept

    def _goes_further(self, one: _Try, other: _Try) -> bool:
        """Whether `one` changes what `other` does, each in the same direction, and somewhere further."""
        mine, theirs = dict(one.changes), dict(other.changes)
        if mine.keys() != theirs.keys() or mine == theirs:
            return False

        def beyond(name: str) -> bool:
            now, near, far = self.base_values.get(name), theirs[name], mine[name]
            if near == far:
                return True
            if not (_is_number(now) and _is_number(near) and _is_number(far)):
                return False
            return bool(now < near < far or now > near > far)

        return all(beyond(name) for name in mine)

    def _told(self, tries: Sequence[_Try], reached: Sequence[_Try], left_out: int) -> Fit:
        proposals = [self._candidate(t) for t in reached]
        proposals.sort(key=lambda c: (math.inf if c.time_us is None else c.time_us, len(c.changes), str(c.changes)))
        base = self._candidate(self.base)
        nearest = None if proposals or base.reaches else self._nearest([self.base, *tries])
        reason = ""
        if not base.reaches and not tries and not proposals:
            reason = (
                "no kernel has so many CTAs on an SM of this GPU"
                if self._shared_bound() is None
                else "nothing may change: every name is set, or has one value"
            )
        return Fit(
            kernel=self.kernel.given.name,
            goal=str(self.goal),
            base=base,
            proposals=proposals,
            nearest=None if nearest is None else self._candidate(nearest),
            in_the_way=None if nearest is None else self._in_the_way(nearest),
            varied=list(self.dimensions),
            tried=len(tries),
            failed=sum(t.outcome.resources is None for t in tries),
            left_out=left_out,
            reason=reason,
        )

    def _nearest(self, tries: Sequence[_Try]) -> _Try | None:
        known = [t for t in tries if t.outcome.resources is not None]
        return min(known, key=lambda t: (self._short(t)[2], len(t.changes), str(t.changes)), default=None)

    def _short(self, tried: _Try) -> tuple[str, int, float]:
        """What a candidate is short of, by how much, and the same as a share of what is allowed."""
        resources = tried.outcome.resources
        assert resources is not None
        bound = self._shared_bound()
        if bound is None:
            return ("CTAs", 0, math.inf)
        if resources.shared_bytes > bound:
            return ("shared", resources.shared_bytes - bound, 1 + (resources.shared_bytes - bound) / max(1, bound))
        if self.goal.no_spills:
            return ("spills", resources.spill_bytes or 0, (resources.spill_bytes or 0) / 1024)
        allowed = self._registers_for(resources, resources.num_warps)
        used = resources.registers_per_thread
        if allowed is None or used is None:
            return ("warps", resources.num_warps, 1.0)
        return ("registers", max(0, used - allowed), max(0, used - allowed) / allowed)

    def _in_the_way(self, tried: _Try) -> InTheWay | None:
        short_of, _, _ = self._short(tried)
        kept = tried.outcome.explanation
        if kept is None or tried.outcome.resources is None:
            return None
        read = kept.read()
        if short_of == "shared":
            peak = [b for b in shared_map_part(read.shared_map, read.texts).buffers if b.at_peak]
            largest = max(peak, key=lambda b: b.bytes, default=None)
            if largest is None:
                return None
            what = f"{name_of(largest)}, {largest.purpose}"
            return InTheWay(what=what, amount=largest.bytes, unit="bytes", source=largest.source)
        use = register_use_part(read, tried.outcome.resources)
        if use is None or not use.holders:
            return None
        if short_of == "spills" and use.spills:
            worst = use.spills[0]
            where = "in a loop" if worst.in_loop else "outside loops"
            return InTheWay(
                what=f"spills {where}", amount=worst.bytes, unit="bytes a thread moves", source=worst.source
            )
        held = use.holders[0]
        return InTheWay(what=held.value or held.written_by, amount=held.registers, unit="registers", source=held.source)

    def _candidate(self, tried: _Try) -> FitCandidate:
        resources = tried.outcome.resources
        assert resources is not None
        occupancy = occupancy_of(self.gpu, resources)
        time = tried.time_us if resources.registers_per_thread is not None else None
        of_base = self.base.time_us
        change = None if time is None or not of_base else round(100 * (time - of_base) / of_base, 2)
        reaches = self._reaches(tried)
        short_of, short_by, _ = ("", 0, 0.0) if reaches else self._short(tried)
        kept, of_base_kept = tried.outcome.explanation, self.base.outcome.explanation
        buffers = []
        if kept is not None and of_base_kept is not None and tried is not self.base:
            before, after = of_base_kept.read(), kept.read()
            buffers = buffer_changes(
                shared_map_part(before.shared_map, before.texts), shared_map_part(after.shared_map, after.texts)
            )
        values = scalars({**tried.point.shapes, **tried.point.knobs, **tried.point.config})
        return FitCandidate(
            changes=[
                KnobChange(name=n, before=scalars({n: self.base_values.get(n)})[n], after=scalars({n: v})[n])
                for n, v in tried.changes
            ],
            values=values,
            reaches=reaches,
            shared_bytes=resources.shared_bytes,
            registers_per_thread=resources.registers_per_thread,
            spill_bytes=resources.spill_bytes,
            ctas_per_sm=occupancy.ctas_per_sm,
            warps_per_sm=occupancy.warps_per_sm,
            time_us=None if time is None else round(time, 3),
            time_change_percent=change,
            short_of=short_of,
            short_by=short_by,
            costs=self._costs(tried, change),
            buffers=buffers,
        )

    def _costs(self, tried: _Try, time_change: float | None) -> list[str]:
        """What is worse than in the config to start from, in words."""
        now, then = self.base.outcome.resources, tried.outcome.resources
        assert now is not None and then is not None
        costs = []
        if time_change is not None and time_change > 0:
            costs.append(f"{time_change:.1f} % more predicted time")
        if (then.spill_bytes or 0) > (now.spill_bytes or 0):
            costs.append(f"{(then.spill_bytes or 0) - (now.spill_bytes or 0):,} more bytes spilled a thread")
        if then.shared_bytes > now.shared_bytes:
            costs.append(f"{then.shared_bytes - now.shared_bytes:,} more bytes of shared memory")
        ctas_now, ctas_then = self.base.point.main.grid, tried.point.main.grid
        if ctas_now and ctas_then and math.prod(ctas_then) > math.prod(ctas_now):
            costs.append(f"{math.prod(ctas_then):,} CTAs instead of {math.prod(ctas_now):,}")
        return costs


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_tile(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer that may be a tile's extent: a power of two from 16 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST_TILE and not value & (value - 1)
