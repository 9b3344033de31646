"""Why a recommendation, and how sure: against what, by which terms, what is as good within the error, what that leaves
open. Each line names figures of the case at hand, so that none would read the same for another choice.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occupancy_cli.answers.candidate_times import CandidateTimes
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import DEFAULTS
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Ranking, Scored
from occupancy_cli.plan.prepared_kernel import Kernel

MOST_LOOKED_AT = 64
"""Of more tied candidates the values of the fastest so many are compared."""
_SHARE_WORTH_SAYING = 0.02
_LEAST_US = 0.05  # what is printed with one digit would read the same


@dataclass(frozen=True)
class Standing:
    """How a choice stands among the candidates of its batch: of `candidates` that can launch, `tied` are within the
    model's error of it, itself among them; `tied_values` has the values that those have of each name."""

    candidates: int
    tied: int
    tied_values: Mapping[str, tuple[Any, ...]]


def standing(times: CandidateTimes, which: npt.NDArray[np.int64], ranking: Ranking, *, compared: bool) -> Standing:
    """The standing of a ranking's choice among `which`, the candidates of its batch; `compared`: and their values."""
    limit = ranking.chosen.time_us * (1 + ranking.error_percent / 100)
    can_launch = which[np.isfinite(times.at_least_us[which])]
    near = [i for i in can_launch[times.at_least_us[can_launch] <= limit].tolist() if times.time_us(i) <= limit]
    near.sort(key=times.time_us)
    values: dict[str, dict[Any, None]] = {}
    for i in near[:MOST_LOOKED_AT] if compared else ():
        point = times.analyzed(i).point
        for name, value in {**point.knobs, **point.config}.items():
            values.setdefault(name, {})[value] = None
    return Standing(len(can_launch), len(near), {n: tuple(sorted(v, key=_order)) for n, v in values.items()})


def _order(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, (int, float)) else (1, str(value))


def set_line(kernel: Kernel, scored: Scored) -> tuple[str, str]:
    """What to paste, on one line, and what that leaves to the autotuner or the launch; either may be empty."""
    spec = kernel.given.spec
    knobs = dict(scored.candidate.knobs)
    by_environment = {k.env: knobs[n] for n, k in spec.knobs.items() if k.env and n in knobs}
    exported = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in by_environment.items())
    rest = {n: v for n, v in knobs.items() if not spec.knobs[n].env} | {
        n: v for n, v in scored.candidate.config if v is not None and (n != "num_ctas" or v != DEFAULTS["num_ctas"])
    }
    shown = ", ".join(f"{n}={v}" for n, v in rest.items())
    if not exported:
        return shown, ""
    tuned = spec.tuned or (spec.configs == "autotune" and kernel.description.autotune is not None)
    where = "left to the autotuner, which is taken to find" if tuned else "not set by it, and launched with"
    return f"export {exported}", f"{where} {shown}" if shown else ""


def against(kernel: Kernel) -> str:
    """What a gain is a gain over: who said that it is set now."""
    said = [
        f"{name} by {setting.origin.replace('environment ', 'the environment variable ')}"
        for name, setting in kernel.settings.items()
        if name in kernel.given.spec.knobs and setting.origin != "spec default"
    ]
    if said:
        return f"what is set now ({', '.join(said)})"
    return "the defaults of its spec" if kernel.given.spec.knobs else "the fastest of its configs"


def why(gpu: GpuProfile, ranking: Ranking) -> list[str]:
    """The terms that change between what is compared with (the next best, where nothing else is) and the choice."""
    chosen, base = ranking.chosen, ranking.incumbent
    if base is None or base.candidate.setting == chosen.candidate.setting:
        base, name = ranking.runner_up, "the next best"
    else:
        name = "now"
    if base is None:
        return []
    lines = [*_kernels(chosen, base, name), *_main_kernel(chosen, base, name)]
    return [*lines, *_room(gpu, chosen, base, name)]


def _kernels(chosen: Scored, base: Scored, name: str) -> list[str]:
    """The kernels of the launch, where there are several: which of them the difference is in."""
    pairs = list(zip(chosen.candidate.launches, chosen.estimates, base.estimates, strict=True))
    if len(pairs) < 2:
        return []
    said = [
        f"{launch.kernel} {theirs.time_us:.1f} -> {ours.time_us:.1f} us ({ours.time_us - theirs.time_us:+.1f})"
        for launch, ours, theirs in pairs
        if ours.time_us is not None and theirs.time_us is not None and abs(ours.time_us - theirs.time_us) >= _LEAST_US
    ]
    return [f"{name} -> this: {'; '.join(said)}"] if said else []


def _main_kernel(chosen: Scored, base: Scored, name: str) -> list[str]:
    """What the longest CTA does, and the terms of it that differ by more than a fiftieth of the difference."""
    ours, theirs = chosen.candidate.launches[0], base.candidate.launches[0]
    n_ours, n_theirs = ours.shape.max_iterations, theirs.shape.max_iterations
    lines = []
    if n_ours != n_theirs:
        lines.append(f"iterations of the longest CTA: {n_theirs:g} -> {n_ours:g}")
    changes = [
        (abs(after * count - before * count_before), text, before, after)
        for term, text, count_before, count in (
            ("iteration_us", "an iteration", n_theirs, n_ours),
            ("cta_start_us", "a CTA before its first iteration", 1, 1),
        )
        if (before := base.estimates[0].terms.get(term)) is not None
        and (after := chosen.estimates[0].terms.get(term)) is not None
    ]
    worth = _SHARE_WORTH_SAYING * max(abs(base.time_us - chosen.time_us), 1e-9)
    changed = [c for c in sorted(changes, reverse=True) if c[0] > worth and c[2] != c[3]]
    return [*lines, *(f"{text}: {before:.2f} -> {after:.2f} us" for _, text, before, after in changed)]


def _room(gpu: GpuProfile, chosen: Scored, base: Scored, name: str) -> list[str]:
    """CTAs per SM where they differ, with what decides them in this case's bytes and registers."""
    ours, theirs = chosen.candidate.launches[0], base.candidate.launches[0]
    if ours.occupancy.ctas_per_sm == theirs.occupancy.ctas_per_sm:
        return []
    less, more = sorted((ours, theirs), key=lambda launch: launch.occupancy.ctas_per_sm)
    following = occupancy_of(gpu, less.resources).next_cta
    needs = []
    if "shared" in following.binding and following.shared_bytes is not None:
        needs.append(f"at most {following.shared_bytes:,} bytes of shared memory, has {less.resources.shared_bytes:,}")
    if "registers" in following.binding and following.registers_per_thread is not None:
        has = less.resources.registers_per_thread
        needs.append(f"at most {following.registers_per_thread} registers per thread, has {has}")
    if "warps" in following.binding and following.warps_per_cta is not None:
        needs.append(f"at most {following.warps_per_cta} warps, has {less.resources.num_warps}")
    who = "this" if less is ours else name
    counts = f"{theirs.occupancy.ctas_per_sm} -> {ours.occupancy.ctas_per_sm} CTAs/SM"
    need = f": for {less.occupancy.ctas_per_sm + 1} per SM {who} would need {' and '.join(needs)}" if needs else ""
    taken = (
        f"; the other takes {more.resources.shared_bytes:,} bytes" if needs and "shared" in following.binding else ""
    )
    return [f"{counts}{need}{taken}"]
