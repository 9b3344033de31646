"""How numbers and names are written for people, the same in every renderer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_cli.report.choice_parts import Recommendation, Subject
    from occupancy_cli.report.kernel_parts import Config
    from occupancy_cli.report.machine_parts import Gpu, Toolchain
    from occupancy_cli.report.occupancy_parts import Launch

_SHORT = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "CTAs", "maxnreg": "maxnreg"}


def pairs(values: Mapping[str, Any]) -> str:
    """`BLOCK_H 32, num_warps 4`."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def number(value: int | None, unknown: str = "-") -> str:
    """1,024, or `unknown`."""
    return unknown if value is None else f"{value:,}"


def grid(axes: Sequence[int]) -> str:
    """80 x 1 x 3."""
    return " x ".join(str(a) for a in axes)


def waves(launch: Launch | None) -> str:
    """Waves to two digits; `unknown` without an SM count, `-` where nothing can run."""
    if launch is None:
        return "-"
    if launch.slots is None:
        return "unknown"
    return "-" if launch.waves is None else f"{launch.waves:.2f}"


def tail(launch: Launch | None) -> str:
    """How full the last wave is, in percent of the slots."""
    if launch is None or launch.tail_percent is None:
        return "-"
    return "full" if not launch.tail_ctas else f"{launch.tail_percent:.0f} %"


def headline(name: str, gpu: Gpu | None, toolchain: Toolchain) -> str:
    """`name on GPU (CC 12.0, 188 SMs), Triton 3.6.0`."""
    if gpu is None:
        return name
    sms = "SMs unknown" if gpu.sm_count is None else f"{gpu.sm_count} SMs"
    built = f", Triton {toolchain.triton}" if toolchain.triton else ""
    return f"{name} on {gpu.name} (CC {gpu.compute_capability}, {sms}){built}"


def gain(found: Recommendation) -> str:
    """What a recommendation gains, with its error, and over what."""
    error, over = f"±{found.model_error_percent:.1f} %", found.against or "what is set now"
    if found.kept_default:
        return f"keep it: nothing is predicted to gain more than the model's own error, {error}, over {over}"
    if found.default is None or not found.predicted_speedup_vs_default or found.default.predicted_time_us is None:
        return f"{found.predicted_time_us:,.1f} us predicted; {over} cannot launch"
    times = f"{found.default.predicted_time_us:,.1f} -> {found.predicted_time_us:,.1f} us predicted"
    return f"{found.predicted_speedup_vs_default:.2f}x as fast, {error}, as {over}: {times}"


def l2_said(about: Subject | None) -> str:
    """What a launch is taken to find in the L2; empty where a Report does not say."""
    if about is None:
        return ""
    return "cold L2: it holds none of the data" if about.l2 == "cold" else (
        "warm L2: it may hold the data, as in a replay; --cold takes it to hold none"
    )  # fmt: skip


def straggling(found: Recommendation) -> list[str]:
    """Which requests the launch waits for, how long, and in which CTAs they are; empty where it waits for none."""
    late = found.straggler
    if late is None:
        return []
    shown = ", ".join(map(str, late.requests[:4])) + (
        f" and {len(late.requests) - 4} more" if late.requests[4:] else ""
    )
    many = len(late.requests) > 1
    whole = "" if found.predicted_time_us is None else f" of {found.predicted_time_us:,.1f}"
    return [
        f"request{'s' if many else ''} {shown} ({late.tokens:,} tokens; the next longest has {late.next_tokens:,}) "
        f"end{'' if many else 's'} last, {late.later_us:,.1f}{whole} us after the rest: CTAs of program_id("
        f"{late.program_axis}) {shown}"
    ]


def flips(settings: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, list[str]]:
    """The batches at which another setting is the best than at the batch before: what changes there."""
    found = {}
    for (_, before), (batch, after) in itertools.pairwise(sorted(settings, key=lambda pair: pair[0])):
        names = [n for n in dict.fromkeys([*before, *after]) if before.get(n) != after.get(n)]
        if names:
            found[batch] = [f"{n} {before.get(n, '-')} -> {after.get(n, '-')}" for n in names]
    return found


def sureness(found: Recommendation) -> str:
    """How a choice stands among the others; empty where that was not worked out."""
    if found.tied is None or found.candidates is None:
        return ""
    if found.tied <= 1:
        return (
            f"alone: none of the other {found.candidates - 1:,} settings is within ±{found.model_error_percent:.1f} %"
        )
    return f"tied within ±{found.model_error_percent:.1f} %: {found.tied:,} of {found.candidates:,} settings"


def open_names(found: Recommendation, most: int = 6) -> list[str]:
    """What every tied setting has, and what they differ in: that did not matter within the error."""
    if (found.tied or 0) < 2:
        return []
    tied = [(each.name, each.values) for each in found.tied_values]
    differ = {n: v for n, v in tied if len(v) > 1}
    agree = {n: v[0] for n, v in tied if len(v) == 1 and (n, v[0]) != ("num_ctas", 1)}
    lines = [f"every tied setting has {pairs({n: v for n, v in agree.items() if v is not None})}"] if agree else []
    shown = [
        f"{n} {', '.join(map(str, v))}" if len(v) <= most else f"{n} {v[0]} to {v[-1]} ({len(v)} values)"
        for n, v in differ.items()
    ]
    return [*lines, f"did not matter within that: {'; '.join(shown)}"] if shown else lines


def values_of(config: Config) -> dict[str, Any]:
    """Every name that may tell a config from the others, with its value."""
    values = {**config.shapes, **config.knobs, **config.given, **config.config}
    return {n: v for n, v in values.items() if v is not None}


def split_columns(configs: Sequence[Config]) -> tuple[dict[str, Any], list[str]]:
    """The names that have one value in all configs, with it, and those that tell configs apart."""
    rows = [values_of(c) for c in configs]
    names = list(dict.fromkeys(n for row in rows for n in row))
    constant = {n: rows[0].get(n) for n in names if all(row.get(n) == rows[0].get(n) for row in rows)}
    return constant, [n for n in names if n not in constant]


def short(name: str) -> str:
    """A column header: Triton's launch options without their `num_`."""
    return _SHORT.get(name, name)
