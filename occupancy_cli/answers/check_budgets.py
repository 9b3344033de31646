"""One compiled config against the shared-memory cap and the budgets that hold for it: a finding for each rule.

    61,568 bytes of shared memory, budget at most 60,000: 1,568 over

A figure that is not known makes its rule undecided, never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint
from occupancy_cli.compile.request import CompileOutcome, CompileRequest
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cluster_rules import cluster_doubt
from occupancy_cli.model.occupancy import Occupancy, occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.report import schema
from occupancy_cli.spec.budget_layers import Limit

_RESOURCES: tuple[tuple[str, str, Callable[[KernelResources, Occupancy], int | None]], ...] = (
    ("max_shared_bytes", "bytes of shared memory", lambda r, o: r.shared_bytes),
    ("max_registers_per_thread", "registers per thread", lambda r, o: r.registers_per_thread),
    ("max_spill_bytes", "bytes of local memory per thread", lambda r, o: r.spill_bytes),
    ("min_ctas_per_sm", "CTAs/SM", lambda r, o: o.ctas_per_sm if o.exact else None),
    ("min_warps_per_sm", "warps/SM", lambda r, o: o.warps_per_sm if o.exact else None),
)


def judge_config(
    kernel: Kernel,
    gpu: GpuProfile,
    analyzed: AnalyzedPoint,
    at_batches: Mapping[int, AnalyzedPoint],
    used: bool,
    limits: Mapping[str, Limit],
    base: Mapping[str, Any],
) -> Iterator[tuple[schema.Finding, CompileRequest]]:
    """What is found of a config, each with the launch that it is about."""
    names = [plan.request.source.kernel for plan in analyzed.point.launches[: len(analyzed.outcomes)]]
    capped = [judge_cap(gpu, n, outcome, used, base) for n, outcome in zip(names, analyzed.outcomes, strict=True)]
    requests = [plan.request for plan in analyzed.point.launches]
    yield from zip(capped, requests, strict=False)
    # Budgets are the main kernel's; one that cannot be launched has been told so.
    if used and capped[0].level != "violation":
        for finding in judge_budgets(kernel, gpu, analyzed, at_batches, limits, base):
            yield finding, requests[0]


def judge_cap(
    gpu: GpuProfile, name: str, outcome: CompileOutcome, used: bool, base: Mapping[str, Any]
) -> schema.Finding:
    """Whether a launch compiles and can be launched; what is not in use is only noted where it cannot."""
    if outcome.kind == "launch":
        return schema.Finding(
            level="violation" if used else "note", rule="launch", message=f"{name}: {outcome.message}", **base
        )
    if outcome.resources is None:
        message = f"{name} did not compile: {outcome.message}"
        return schema.Finding(level="undecided" if used else "note", rule="compiles", message=message, **base)
    occupancy = occupancy_of(gpu, outcome.resources)
    needs, cap = occupancy.shared_bytes + occupancy.static_shared_bytes, occupancy.shared_cap_bytes
    numbers: dict[str, Any] = {"required": needs, "limit": cap, "unit": "bytes of shared memory"}
    if not occupancy.launchable:
        rule = "shared-memory-cap" if occupancy.over_bytes else "launch"
        extra = "" if used else " (not declared as used)"
        level: schema.Level = "violation" if used else "note"
        return schema.Finding(level=level, rule=rule, message=f"{name}: {occupancy.reason}{extra}", **numbers, **base)
    status = gpu.limits.provenance.get("shared_per_cta_optin_bytes")
    if status is not None and status.status == "assumed":
        message = f"{name}: the cap of {gpu.name}, {cap:,} bytes, is assumed, not documented"
        return schema.Finding(level="undecided", rule="shared-memory-cap", message=message, **numbers, **base)
    doubt = cluster_doubt(gpu.limits, occupancy.num_ctas)
    if doubt and used:
        return schema.Finding(level="undecided", rule="launch", message=f"{name}: {doubt} (num_ctas)", **base)
    message = f"{name}: {needs:,} of {cap:,} bytes of shared memory"
    return schema.Finding(level="ok", rule="shared-memory-cap", message=message, **numbers, **base)


def figures_of(kernel: Kernel, gpu: GpuProfile, analyzed: AnalyzedPoint) -> dict[str, float | None]:
    """What a compiled config comes to, by the names that a baseline has; None where it is not known."""
    resources = analyzed.outcomes[0].resources
    assert resources is not None
    occupancy = occupancy_of(gpu, resources)
    waves = report_parts.waves_of(gpu, resources, occupancy, analyzed.point.main.grid)
    time = _time(kernel, gpu, analyzed) if analyzed.timed and occupancy.launchable else ""
    return {
        "shared_bytes": resources.shared_bytes,
        "registers_per_thread": resources.registers_per_thread,
        "spill_bytes": resources.spill_bytes,
        "ctas_per_sm": occupancy.ctas_per_sm if occupancy.exact else None,
        "warps_per_sm": occupancy.warps_per_sm if occupancy.exact else None,
        "waves": None if waves is None else waves.waves,
        "predicted_time_us": None if isinstance(time, str) else round(time, 2),
    }


def judge_budgets(
    kernel: Kernel,
    gpu: GpuProfile,
    analyzed: AnalyzedPoint,
    at_batches: Mapping[int, AnalyzedPoint],
    limits: Mapping[str, Limit],
    base: Mapping[str, Any],
) -> Iterator[schema.Finding]:
    """A finding for each rule of `limits`; `at_batches` has the same config at the batches that some of them name."""
    resources = analyzed.outcomes[0].resources
    if resources is None:
        return
    occupancy = occupancy_of(gpu, resources)
    for rule, unit, value_of in _RESOURCES:
        if rule in limits:
            value = value_of(resources, occupancy)
            why = "; ".join(occupancy.unknown.values()) if value is None else ""
            yield _finding(rule, limits[rule], value, unit, base, why=why)
    if "max_bank_conflict_ways" in limits:
        yield _conflicts(limits["max_bank_conflict_ways"], analyzed, base)
    if "min_wave_efficiency" in limits:
        unit = "% of the CTA slots busy"
        yield _worst("min_wave_efficiency", limits, analyzed, at_batches, unit, base, lambda a: _efficiency(gpu, a))
    if "max_predicted_time_us" in limits:
        unit = "us predicted"
        yield _worst("max_predicted_time_us", limits, analyzed, at_batches, unit, base, lambda a: _time(kernel, gpu, a))


def _conflicts(limit: Limit, analyzed: AnalyzedPoint, base: Mapping[str, Any]) -> schema.Finding:
    from occupancy_cli.answers.check_conflicts import bank_conflicts

    found = bank_conflicts(analyzed.outcomes[0], analyzed.point.main)
    ways, at, why = found.within(limit.value)
    return _finding("max_bank_conflict_ways", limit, ways, "ways of bank conflict", base, at=at, why=why)


def _worst(
    rule: str,
    limits: Mapping[str, Limit],
    analyzed: AnalyzedPoint,
    at_batches: Mapping[int, AnalyzedPoint],
    unit: str,
    base: Mapping[str, Any],
    value_of: Callable[[AnalyzedPoint], float | str],
) -> schema.Finding:
    """The finding at the batch that is farthest from its limit; an unknown one at any batch leaves it undecided."""
    limit = limits[rule]
    if limit.batches and not at_batches:
        why = "the entries of a config table are looked at for their own batch alone"
        return _finding(rule, limit, None, unit, base, why=why)
    looked_at = [(f" at batch {b}", at_batches[b]) for b in limit.batches] or [("", analyzed)]
    values: list[tuple[float, str]] = []
    for at, each in looked_at:
        value = value_of(each)
        if isinstance(value, str):
            return _finding(rule, limit, None, unit, base, at=at, why=value)
        values.append((value, at))
    value, at = (max if rule.startswith("max") else min)(values)
    return _finding(rule, limit, value, unit, base, at=at)


def _efficiency(gpu: GpuProfile, analyzed: AnalyzedPoint) -> float | str:
    """The share of the GPU's CTA slots that hold a CTA over all waves, in percent; else why it is not known."""
    resources = analyzed.outcomes[0].resources
    if resources is None:
        return f"it did not compile: {analyzed.outcomes[0].message}"
    waves = report_parts.waves_of(gpu, resources, occupancy_of(gpu, resources), analyzed.point.main.grid)
    if waves is None:
        return "the spec gives no grid"
    if waves.efficiency_percent is None:
        return f"{gpu.name} names no product: its SMs are not known" if waves.slots is None else "no CTA fits"
    return waves.efficiency_percent


def _time(kernel: Kernel, gpu: GpuProfile, analyzed: AnalyzedPoint) -> float | str:
    """The predicted time of all launches of a point, one after the other; else why it is not known."""
    from occupancy_cli.plan.launch_work import times_of

    for plan, outcome in zip(analyzed.point.launches, analyzed.outcomes, strict=True):
        if outcome.resources is None:
            return f"{plan.request.source.kernel} did not compile: {outcome.message}"
    try:
        (found,) = times_of(kernel, gpu, [(analyzed.point, analyzed.outcomes)])
    except InputError as bad:
        return str(bad)
    total = 0.0
    for plan, timed in zip(analyzed.point.launches, found, strict=True):
        name = plan.request.source.kernel
        if timed is None:
            return f"the spec gives no grid of {name}"
        if timed.time_us is None:
            return "; ".join(what for what, _ in timed.unknown) or f"nothing tells the time of {name}"
        total += timed.time_us
    return total


def _finding(
    rule: str,
    limit: Limit,
    value: float | None,
    unit: str,
    base: Mapping[str, Any],
    *,
    at: str = "",
    why: str = "",
) -> schema.Finding:
    from_where = f" ({limit.origin})" if limit.origin else ""
    if value is None:
        because = f": {why}" if why else ""
        message = f"{unit} are not known{at}, the budget {rule} is {_number(limit.value)}{from_where}{because}"
        return schema.Finding(level="undecided", rule=rule, message=message, **base)
    most = rule.startswith("max")
    holds = value <= limit.value if most else value >= limit.value
    message = f"{_number(value)} {unit}{at}, budget at {'most' if most else 'least'} {_number(limit.value)}{from_where}"
    if not holds:
        message += f": {_number(abs(value - limit.value))} {'over' if most else 'short'}"
    rounded = round(value, 3) if isinstance(value, float) else value
    numbers: dict[str, Any] = {"required": rounded, "limit": limit.value, "unit": unit}
    return schema.Finding(level="ok" if holds else "violation", rule=rule, message=message, **numbers, **base)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")
