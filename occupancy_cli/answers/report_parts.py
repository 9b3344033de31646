"""The core's values as parts of a Report: one function a kind, no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from occupancy_cli.report import schema

if TYPE_CHECKING:
    from occupancy_cli.compile.request import CompileOutcome
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.model.cta_demands import NextCta
    from occupancy_cli.model.launch_time import TimeEstimate
    from occupancy_cli.model.occupancy import Occupancy
    from occupancy_cli.model.resources import KernelResources
    from occupancy_cli.model.waves import WaveSchedule

Part = TypeVar("Part")

SHOWN_GPU_FIELDS = ("sm_count", "boost_clock_mhz", "memory_bandwidth_gbps")


def waves_of(
    gpu: GpuProfile, resources: KernelResources, occupancy: Occupancy, grid: tuple[int, ...] | None
) -> WaveSchedule | None:
    """The waves of a launch; None without a grid."""
    if grid is None:
        return None
    from occupancy_cli.model.waves import wave_schedule

    return wave_schedule(grid, occupancy.ctas_per_sm, gpu.sm_count, resources.num_ctas)


def gpu_part(gpu: GpuProfile) -> schema.Gpu:
    """The GPU, with what is assumed of it."""
    limits = gpu.limits
    return schema.Gpu(
        id=gpu.id,
        name=gpu.name,
        compute_capability=gpu.compute_capability,
        sm_count=gpu.sm_count,
        max_warps_per_sm=limits.max_warps_per_sm,
        max_ctas_per_sm=limits.max_ctas_per_sm,
        registers_per_sm=limits.registers_per_sm,
        shared_per_sm_bytes=limits.shared_per_sm_bytes,
        shared_per_cta_optin_bytes=limits.shared_per_cta_optin_bytes,
        shared_reserved_per_cta_bytes=limits.shared_reserved_per_cta_bytes,
        boost_clock_mhz=_as_float(gpu.boost_clock_mhz),
        memory_bandwidth_gbps=_as_float(gpu.memory_bandwidth_gbps),
        sm_subpartitions=limits.sm_subpartitions,
        shared_alloc_granularity_bytes=limits.shared_alloc_granularity_bytes,
        tmem_columns_per_sm=limits.tmem_columns_per_sm,
        cluster_supported=limits.cluster_supported,
        assumed=[f for f in SHOWN_GPU_FIELDS if getattr(gpu, f) is not None and gpu.status(f) == "assumed"],
        notes=["limits only: without an SM count, waves and times are unknown"] if gpu.sm_count is None else [],
    )


def resources_part(resources: KernelResources) -> schema.Resources:
    """Compiled resources."""
    return schema.Resources(
        **{name: getattr(resources, name) for name in schema.Resources.__dataclass_fields__ if hasattr(resources, name)}
    )


def occupancy_part(occupancy: Occupancy) -> schema.Occupancy:
    """An occupancy with its next CTA and its slack."""
    return schema.Occupancy(
        ctas_per_sm=occupancy.ctas_per_sm,
        warps_per_sm=occupancy.warps_per_sm,
        max_warps_per_sm=occupancy.max_warps_per_sm,
        percent=round(occupancy.percent, 2),
        limits=dict(occupancy.limits),
        limited_by=list(occupancy.limited_by),
        next_cta=next_cta_part(occupancy.next_cta),
        slack={name: slack.more for name, slack in occupancy.slack.items()},
        unknown=dict(occupancy.unknown),
    )


def next_cta_part(following: NextCta) -> schema.NextCta:
    """What a number of CTAs per SM takes of each resource."""
    changes = {change.resource: change for change in following}
    less = {name: change.less for name, change in changes.items()}
    return schema.NextCta(
        ctas_per_sm=following.ctas,
        reachable=following.reachable,
        binding=list(following.binding),
        shared_bytes=following.shared_bytes,
        shared_bytes_less=less.get("shared"),
        registers_per_thread=following.registers_per_thread,
        registers_per_thread_less=less.get("registers"),
        warps_per_cta=following.warps_per_cta,
        warps_per_cta_less=less.get("warps"),
        tmem_columns=changes["tmem"].at_most if "tmem" in changes else None,
        tmem_columns_less=less.get("tmem"),
    )


def launch_part(waves: WaveSchedule | None) -> schema.Launch | None:
    """A launch's waves, rounded for reading: waves to 1/1000, percentages to 1/100."""
    if waves is None:
        return None
    return schema.Launch(
        grid=list(waves.grid),
        ctas=waves.ctas,
        slots=waves.slots,
        waves=_rounded(waves.waves, 3),
        full_waves=waves.full_waves,
        tail_ctas=waves.tail_ctas,
        tail_percent=_rounded(waves.tail_percent, 2),
        efficiency_percent=_rounded(waves.efficiency_percent, 2),
    )


def time_part(estimate: TimeEstimate | None, iterations_from: str | None = None) -> schema.Time | None:
    """A time with its terms."""
    if estimate is None:
        return None
    return schema.Time(
        time_us=_rounded(estimate.time_us, 3),
        binding=estimate.binding,
        terms={name: round(value, 4) for name, value in estimate.terms.items()},
        unknown=list(estimate.unknown),
        iterations_from=iterations_from,
        interval_us=rounded_interval(estimate.interval_us),
    )


def rounded_interval(interval_us: tuple[float, float] | None) -> list[float] | None:
    """An interval as a Report has it."""
    return None if interval_us is None else [round(each, 3) for each in interval_us]


def error_part(outcome: CompileOutcome) -> schema.Error:
    """Why an outcome has no resources."""
    return schema.Error(kind=outcome.kind or "compile", message=outcome.message, output=outcome.output[-2000:])


def mirrored(value: Any, part: type[Part], /, **given: Any) -> Part:
    """`part` with the attributes of `value` that have its fields' names, dataclasses among them mirrored in turn.

    `given` are fields that `value` does not have. For values that a Report carries as they are; it looks types up, so
    not for what a fast command makes.
    """
    hints = get_type_hints(part)
    made = {
        f.name: _mirrored(getattr(value, f.name), hints[f.name])
        for f in fields(part)  # type: ignore[arg-type]
        if f.name not in given and hasattr(value, f.name)
    }
    return part(**made, **given)


def _mirrored(value: Any, hint: Any) -> Any:
    inner = get_args(hint)
    if is_dataclass(value):
        kind = next(t for t in (hint, *inner) if is_dataclass(t))
        return mirrored(value, kind)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        items = next((get_args(t) for t in (hint, *inner) if getattr(t, "__origin__", None) is list), (object,))
        return [_mirrored(item, items[0]) for item in value]
    if isinstance(value, Mapping):
        of = next((get_args(t)[1] for t in (hint, *inner) if getattr(t, "__origin__", None) is dict), object)
        return {str(name): _mirrored(item, of) for name, item in value.items()}
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)


def scalars(values: Mapping[str, Any]) -> dict[str, schema.Scalar]:
    """Names and values as a report carries them: what is no number, truth value or text becomes text."""
    return {n: v if isinstance(v, (int, float, bool, str, type(None))) else repr(v) for n, v in values.items()}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _as_float(value: float | None) -> float | None:
    """A profile's whole number as the report writes it, 2617.0."""
    return None if value is None else float(value)
