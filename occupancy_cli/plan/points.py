"""From settings to points: one choice of knobs, shapes and config, with every name that its expressions may use.

A point's names are worked out in this order: facts of the GPU, shapes, knobs, fixed constexprs, config values, then the
derived names one by one; `--set` wins over all of them. Everything that follows (arguments, grid, work) is an
expression over those names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.launch_options import BACKEND_OPTIONS, DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.plan.launch_plan import LaunchPlan, ValueOf, plan_launch, value_of
from occupancy_cli.plan.prepared_kernel import Kernel, LaunchSite
from occupancy_cli.spec.kernel_spec import EachValue
from occupancy_cli.spec.settings import Formula, Setting
from occupancy_cli.yaml_reader import KeyPath

MAX_POINTS = 100_000


@dataclass(frozen=True)
class Point:
    """One choice: `knobs` and `shapes` as set, `config` with every constexpr and launch option of the main kernel."""

    knobs: Mapping[str, Any]
    shapes: Mapping[str, Any]
    config: Mapping[str, Any]
    names: Mapping[str, Any]
    main: LaunchPlan
    followers: tuple[LaunchPlan, ...] = ()

    @property
    def launches(self) -> tuple[LaunchPlan, ...]:
        """The main kernel, then what follows it."""
        return (self.main, *self.followers)


def points(
    kernel: Kernel, gpu: GpuProfile, stop_above: int | None, settings: Mapping[str, Setting] | None = None
) -> list[Point]:
    """Every point of the settings' values x configs, configs innermost; equal ones once."""
    chosen = settings if settings is not None else kernel.settings
    found: dict[str, Point] = {}
    for values in _combinations({n: s.values for n, s in chosen.items()}):
        for config in kernel.configs:
            for override in overrides_of(kernel):
                point = make_point(kernel, gpu, values, config, override, stop_above)
                told_apart = [sorted(part.items()) for part in (point.knobs, point.shapes, point.config, override)]
                found.setdefault(repr(told_apart), point)
                if len(found) > MAX_POINTS:
                    raise InputError(f"the settings give more than {MAX_POINTS:,} configs", where="--set")
    return list(found.values())


def overrides_of(kernel: Kernel) -> list[dict[str, Any]]:
    """What --set puts in the place of the configs' values and of derived names: every combination of its values."""
    return list(_combinations({n: s.values for n, s in kernel.overrides.items()}))


def _combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def make_point(
    kernel: Kernel,
    gpu: GpuProfile,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    stop_above: int | None,
) -> Point:
    """One point: `settings` of shapes and knobs, one config, `override` from --set on top of everything."""
    spec = kernel.given.spec
    settings = with_defaults(kernel, settings)
    config = main_config(config, override)
    names = names_of(kernel, settings, config, override)
    main = plan_launch(kernel, kernel.site, names, config, gpu, stop_above)
    followers = tuple(
        plan_launch(kernel, site, names_at(site, names), site.config, gpu, None) for site in kernel.followers
    )
    shown = {**dict(main.request.constexprs), **DEFAULTS, **dict(main.request.options)}
    return Point(
        knobs={n: settings[n] for n in spec.knobs},
        shapes={n: settings[n] for n in spec.shapes},
        config={n: v for n, v in shown.items() if n not in spec.constexprs},
        names=names,
        main=main,
        followers=followers,
    )


def with_defaults(kernel: Kernel, settings: Mapping[str, Any], value: ValueOf | None = None) -> Mapping[str, Any]:
    """Settings with the knobs worked out whose default is an expression: over facts of the GPU, shapes and knobs.

    Of the knobs whose default is an expression it may use those before it.
    """
    if not any(isinstance(given, Formula) for given in settings.values()):
        return settings
    known = {**kernel.device, **{n: given for n, given in settings.items() if not isinstance(given, Formula)}}
    found = dict(settings)
    for name, given in settings.items():
        if isinstance(given, Formula):
            known[name] = found[name] = (value or value_of)(kernel.given, given.text, known, ("knobs", name, "default"))
    return found


def main_config(config: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A config of the main kernel with what --set puts in its place."""
    options = (*LAUNCH_OPTIONS, *BACKEND_OPTIONS)
    return {**config, **{n: v for n, v in override.items() if n in config or n in options}}


def names_at(site: LaunchSite, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """The names that a launch's expressions see: for a kernel that follows its own config comes before the main one's.

    What it does not give of the launch options is Triton's default, not what the main kernel is launched with.
    """
    return {**names, **dict.fromkeys(LAUNCH_OPTIONS), **DEFAULTS, **site.config} if site.at else names


def names_of(
    kernel: Kernel,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    value: ValueOf | None = None,
) -> dict[str, Any]:
    """Every name that expressions may use at one point."""
    spec, value = kernel.given.spec, value or value_of
    names: dict[str, Any] = {**kernel.device, **settings}
    for name, given in spec.constexprs.items():
        names[name] = value(kernel.given, given, names, ("constexprs", name)) if isinstance(given, str) else given
    names = {**DEFAULTS, **names, **config, **override}
    for name, given in spec.derived.items():
        if name not in override:
            names[name] = value(kernel.given, given, names, ("derived", name))
    return names


def knob_candidates(kernel: Kernel, name: str, names: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that `recommend` may give the knob `name` at a point with these names; none when none are listed."""
    values = kernel.given.spec.knobs[name].values
    if not values:
        return ()
    if not isinstance(values, EachValue):
        return tuple(values)
    at: KeyPath = ("knobs", name, "values")
    first = int(value_of(kernel.given, values.first, names, (*at, "from")))
    last = int(value_of(kernel.given, values.last, names, (*at, "to")))
    if last - first > 4096:
        raise InputError(
            f"{last - first + 1:,} candidates", where=kernel.given.document.where(at), hint="At most 4,096."
        )
    return tuple(
        dict.fromkeys(
            value_of(kernel.given, values.value, {**names, values.name: n}, (*at, "value"))
            for n in range(first, last + 1)
        )
    )
