"""`compare`: how good would each way of choosing have been, on the times that were measured?

Regret is the measured time of what a rule chooses over the best that was measured, minus 1. Two questions are asked:
which split for a given config and case (a case is one set of shapes), and which config and split for a given case.
Choosers: the model's recommendation, what the knobs' defaults give, and the rules of other kernels (`model.rules`).
A default is taken with the config that an autotuner would pick: the fastest one measured there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.measured_points import (
    MeasuredKernel,
    MeasuredRow,
    measured_kernel,
    predicted_us,
    predictions,
)
from occupancy_cli.answers.times_file import Row, Times
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.split_rules import SPLIT_RULES
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import with_defaults
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.report import measured_parts
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.spec.settings import knob_settings
from occupancy_cli.version import VERSION

Chooser = Callable[[Sequence[MeasuredRow]], "MeasuredRow | None"]


@dataclass(frozen=True)
class Regret:
    """Regret of one way of choosing, as percentages over all groups it could choose in."""

    name: str
    mean: float
    p90: float
    worst: float
    within_5: float
    groups: int


@dataclass(frozen=True)
class Missed:
    """A group where the model's choice was worst: the case, what it chose and what was best, with measured times."""

    case: Mapping[str, Any]
    chosen: Mapping[str, Any]
    chosen_us: float
    best: Mapping[str, Any]
    best_us: float

    @property
    def regret_percent(self) -> float:
        """Regret of this choice."""
        return 100 * (self.chosen_us / self.best_us - 1)


@dataclass(frozen=True)
class ComparedPoint:
    """A measured point beside its prediction, with the terms of each of its launches."""

    names: Mapping[str, Any]
    measured_us: float
    predicted_us: float | None
    interval_us: tuple[float, float] | None
    terms: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Comparison:
    """Regrets for choosing the split of a config (`splits`) and for choosing everything (`settings`).

    `splits` is empty for a kernel without splits. `missed` are the model's worst choices.
    """

    kernel: str
    gpu: str
    points: int
    configs: int
    cases: int
    splits: tuple[Regret, ...]
    settings: tuple[Regret, ...]
    missed: tuple[Missed, ...]
    notes: tuple[str, ...]
    incumbent: str | None = None
    predictions: tuple[ComparedPoint, ...] = ()


def comparison(
    times: Times,
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    calibration: Path | None = None,
    incumbent: Mapping[str, Any] | None = None,
) -> Report:
    """The Report of `compare`; `calibration` is a file that `calibrate` wrote, which has to be for these times."""
    factors = None
    if calibration is not None:
        from occupancy_cli.answers.calibrate import read_calibration

        file, header = read_calibration(calibration), times.header
        file.check(gpu=gpu.id, triton=service.triton, source_sha256=header.source_sha256, cold=header.cold)
        factors = file.calibration
    found = compare(times, given, gpu, service, factors, incumbent)
    return Report(
        command="compare",
        toolchain=Toolchain(occupancy=VERSION, triton=service.triton),
        gpu=report_parts.gpu_part(gpu),
        comparison=report_parts.mirrored(found, measured_parts.Comparison),
        notes=list(found.notes),
    )


def compare(
    times: Times,
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    calibration: Calibration | None = None,
    incumbent: Mapping[str, Any] | None = None,
) -> Comparison:
    """Judge every way of choosing by a file of times. Raises `InputError` as `measured_kernel` does."""
    measured = measured_kernel(times, given, gpu, service, same_triton=True)
    kernel = measured.kernel
    cold = times.header.cold
    # A knob is what a person sets, whether the kernel takes it as a constexpr or as an argument: no part of a config.
    config_names = sorted({n for config in kernel.configs for n in config} - set(kernel.given.spec.knobs))
    by_config = _grouped(measured.rows, lambda m: (_key(m.row, kernel.given.spec.shapes), _key(m.row, config_names)))
    by_case = _grouped(measured.rows, lambda m: _key(m.row, kernel.given.spec.shapes))
    choosers: dict[str, Chooser] = {"the model": _predicted(gpu, measured, None, cold)}
    if calibration is not None:
        choosers["the model, calibrated"] = _predicted(gpu, measured, calibration, cold)
    today, now = _incumbent(kernel, incumbent)
    has_splits = any("nsplit" in m.row for m in measured.rows)
    rules: dict[str, Chooser] = {}
    if has_splits and all({"tiles", "tiles_per_split", "ctas_per_sm", "nsplit"} <= set(m.row) for m in measured.rows):
        rules = {name: _rule(rule, gpu.sm_count or 1) for name, rule in SPLIT_RULES.items()}
    splits: list[Regret] = []
    if has_splits:
        splits = _regrets(by_config, {**choosers, **now, **rules})
    settings = _regrets(by_case, {**choosers, **now, "most warps per SM": most_warps})
    model = choosers["the model, calibrated" if calibration is not None else "the model"]
    return Comparison(
        kernel.given.name,
        times.header.device,
        len(measured.rows),
        len({_key(m.row, config_names) for m in measured.rows}),
        len(by_case),
        tuple(splits),
        tuple(settings),
        tuple(_missed(kernel, by_case, model)),
        measured.notes if today is not None else (*measured.notes, NO_INCUMBENT),
        today,
        _compared(gpu, measured, calibration, cold),
    )


NO_INCUMBENT = "no incumbent given: the defaults of a spec's knobs, or --incumbent, say what runs today"


def _compared(
    gpu: GpuProfile, measured: MeasuredKernel, calibration: Calibration | None, cold: bool
) -> tuple[ComparedPoint, ...]:
    """Every measured point with what is predicted for it."""
    found = []
    for each, scored in zip(measured.rows, predictions(gpu, measured.rows, calibration, cold), strict=True):
        names = {n: v for n, v in each.row.items() if n in {*each.point.shapes, *each.point.knobs, *each.point.config}}
        terms = () if scored is None else tuple(
            {name: round(value, 4) for name, value in launch.terms.items()} for launch in scored.estimates
        )  # fmt: skip
        interval = None if scored is None else scored.interval_us
        predicted = None if scored is None else round(scored.time_us, 3)
        found.append(ComparedPoint(names, _time(each), predicted, interval, terms))
    return tuple(found)


def _incumbent(kernel: Kernel, given: Mapping[str, Any] | None) -> tuple[str | None, dict[str, Chooser]]:
    """What is said to run today, and how it chooses: what --incumbent names, else the defaults of the spec's knobs;
    nothing where neither says it."""
    if given is not None:
        unknown = [n for n in given if n not in {*kernel.given.spec.knobs, *(n for c in kernel.configs for n in c)}]
        if unknown:
            known = {*kernel.given.spec.knobs, *(n for c in kernel.configs for n in c)}
            raise unknown_name("knob or config value", unknown[0], known, where="--incumbent")

        def choose(rows: Sequence[MeasuredRow]) -> MeasuredRow | None:
            same = [m for m in rows if all(m.row.get(n) == v for n, v in given.items())]
            return min(same, key=_time) if same else None

        return " ".join(f"{n}={v}" for n, v in given.items()), {"the incumbent": choose}
    if kernel.given.spec.knobs:
        return "the defaults of the knobs", {"the default": default_chooser(kernel)}
    return None, {}


def _key(row: Row, names: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((n, row[n]) for n in names if n in row)


def _grouped(rows: Sequence[MeasuredRow], key: Callable[[MeasuredRow], Hashable]) -> dict[Hashable, list[MeasuredRow]]:
    groups: dict[Hashable, list[MeasuredRow]] = defaultdict(list)
    for each in rows:
        groups[key(each)].append(each)
    return groups


def _time(each: MeasuredRow) -> float:
    return float(each.row["us_total"])


def _predicted(gpu: GpuProfile, measured: MeasuredKernel, calibration: Calibration | None, cold: bool) -> Chooser:
    """The row with the least predicted time; rows without a prediction are not chosen."""
    found = predicted_us(gpu, measured.rows, calibration, cold)
    times = {id(each): us for each, us in zip(measured.rows, found, strict=True) if us is not None}

    def choose(rows: Sequence[MeasuredRow]) -> MeasuredRow | None:
        known = [m for m in rows if id(m) in times]
        return min(known, key=lambda m: times[id(m)]) if known else None

    return choose


def default_chooser(kernel: Kernel) -> Chooser:
    """What the knobs' defaults give: the fastest measured config with them, its split taken down to a measured one.

    A knob that is a constexpr counts when it was measured at its default; other knobs act through `nsplit`, and so
    does one whose default was not measured.
    """
    constexprs = [n for n in kernel.given.spec.knobs if n in kernel.description.constexprs]
    declared = {n: s.values[0] for n, s in knob_settings(kernel.given.spec.knobs, {}).items()}

    def choose(rows: Sequence[MeasuredRow]) -> MeasuredRow | None:
        knobs = with_defaults(kernel, {**rows[0].point.shapes, **declared})
        rows = [m for m in rows if all(m.row.get(n) == knobs[n] for n in constexprs)] or list(rows)
        exact = [m for m in rows if all(m.row.get(n) == knobs[n] for n in declared)]
        if exact:
            return min(exact, key=_time)
        found = []
        for group in _grouped(rows, lambda m: _key(m.row, (n for n in m.point.config if n not in declared))).values():
            wanted = _default_nsplit(kernel, group[0], {n: knobs[n] for n in declared})
            below = [m for m in group if wanted is not None and m.row.get("nsplit", math.inf) <= wanted]
            if below:
                found.append(max(below, key=lambda m: int(m.row["nsplit"])))
        return min(found, key=_time) if found else None

    return choose


def _default_nsplit(kernel: Kernel, each: MeasuredRow, knobs: Mapping[str, Any]) -> int | None:
    from occupancy_cli.plan.points import names_of

    config = {n: v for n, v in each.point.config.items() if n not in knobs}
    value = names_of(kernel, {**each.point.shapes, **knobs}, config, {}).get("nsplit")
    return None if value is None else int(value)


def _rule(rule: Callable[[Sequence[Row], int], Row], sms: int) -> Chooser:
    def choose(rows: Sequence[MeasuredRow]) -> MeasuredRow | None:
        chosen = rule([m.row for m in rows], sms)
        return next(m for m in rows if m.row is chosen)

    return choose


def most_warps(rows: Sequence[MeasuredRow]) -> MeasuredRow | None:
    """The row with the most resident warps per SM, the fastest of those: occupancy as the only guide."""

    def warps(each: MeasuredRow) -> int:
        return int(each.row.get("ctas_per_sm") or 0) * int(each.point.config.get("num_warps", 4))

    most = max(warps(m) for m in rows)
    return min((m for m in rows if warps(m) == most), key=_time)


def _regrets(groups: Mapping[Hashable, list[MeasuredRow]], choosers: Mapping[str, Chooser]) -> list[Regret]:
    found = []
    for name, choose in choosers.items():
        values = []
        for rows in groups.values():
            chosen = choose(rows)
            if chosen is not None:
                values.append(100 * (_time(chosen) / min(map(_time, rows)) - 1))
        if values:
            found.append(summary(name, values))
    return found


def summary(name: str, values: Sequence[float]) -> Regret:
    """Mean, 90th percentile (linear between neighbours), worst, and the share within 5 %, of regrets in percent."""
    ordered = sorted(values)
    place = 0.9 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return Regret(
        name,
        sum(ordered) / len(ordered),
        ordered[low] + (place - low) * (ordered[high] - ordered[low]),
        ordered[-1],
        100 * sum(v <= 5 for v in ordered) / len(ordered),
        len(ordered),
    )


def _missed(
    kernel: Kernel, by_case: Mapping[Hashable, list[MeasuredRow]], model: Chooser, most: int = 5
) -> list[Missed]:
    shapes = kernel.given.spec.shapes
    found = []
    for rows in by_case.values():
        chosen = model(rows)
        if chosen is None:
            continue
        best = min(rows, key=_time)
        found.append(
            Missed(
                {n: v for n, v in chosen.row.items() if n in shapes},
                _shown(chosen),
                _time(chosen),
                _shown(best),
                _time(best),
            )
        )
    return sorted(found, key=lambda m: -m.regret_percent)[:most]


def _shown(each: MeasuredRow) -> dict[str, Any]:
    names = [*each.point.config, "nsplit"]
    return {n: each.row[n] for n in names if n in each.row and n != "num_ctas"}


def named_values(text: str | None) -> dict[str, Any] | None:
    """The values of `BLOCK_M=64,num_warps=4`; None without a text."""
    if text is None:
        return None
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not name or not equals or not value:
            raise InputError(f"{part.strip()!r} is no NAME=VALUE", where="--incumbent", hint="BLOCK_M=64,num_warps=4")
        found[name] = one_text_value(value)
    return found


def one_text_value(text: str) -> Any:
    """A value as a config has it: a whole number, true or false, else the text."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text
