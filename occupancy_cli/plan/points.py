"""From a spec and settings to launches: every value of every argument, constexpr and launch option, and the grid.

A point is one choice of knobs, shapes and config. Its names are worked out in this order: shapes, knobs, fixed
constexprs, config values, then the derived names one by one; `--set` wins over all of them. Everything that follows
(arguments, grid, work) is an expression over those names.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from occupancy_cli.compile.kernel_record import KernelDescription
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource, Target
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import KernelInput, KernelRef, parse_ref
from occupancy_cli.plan.source_configs import SourceConfigs, file_to_load, source_configs
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import Argument, ConfigProduct, ConfigTable, EachValue, Launch
from occupancy_cli.spec.settings import Setting, knob_settings, shape_settings
from occupancy_cli.yaml_reader import KeyPath

MAX_POINTS = 100_000
MAX_GRID_AXIS = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Compute Capabilities": grid dimensions
CLASS_NOTE = "no value given; compiled as a multiple of 16, the most demanding class"


@dataclass(frozen=True)
class LaunchPlan:
    """One kernel launch with every value known: what to compile, the grid, the names its expressions see."""

    launch: Launch
    at: KeyPath
    request: CompileRequest
    grid: tuple[int, ...] | None
    names: Mapping[str, Any]
    assumed: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class LaunchSite:
    """One launch of the spec (`at`: its place there) with the kernel that it names."""

    launch: Launch
    at: KeyPath
    source: KernelSource
    description: KernelDescription


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to be planned: its input, its signature and those of its followers, its settings."""

    given: KernelInput
    source: KernelSource
    description: KernelDescription
    followers: tuple[LaunchSite, ...]
    settings: Mapping[str, Setting]
    overrides: Mapping[str, Setting] = field(default_factory=dict)
    configs: tuple[Mapping[str, Any], ...] = ({},)
    from_source: SourceConfigs = field(default_factory=SourceConfigs)
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def site(self) -> LaunchSite:
        """The main kernel's launch."""
        return LaunchSite(self.given.spec, (), self.source, self.description)


Describe = Callable[[KernelSource, Target], KernelDescription]
ValueOf = Callable[[KernelInput, Any, Mapping[str, Any], KeyPath], Any]
"""What gives an expression its value: `value_of` at one point, or at many points at once (`point_table`)."""


def kernel_source(ref: KernelRef) -> KernelSource:
    """A reference as plain data: the file to load for it."""
    return KernelSource(ref.kernel, str(file_to_load(ref.file, ref.kernel)) if ref.file else None, ref.module)


def prepare(
    given: KernelInput,
    gpu: GpuProfile,
    describe: Describe,
    sets: Mapping[str, Setting],
    environ: Mapping[str, str],
    table_names: Iterable[str] | None = None,
) -> Kernel:
    """Look at the kernel's signature, merge the settings, and refuse names that nothing knows.

    `table_names` are the names that config tables give values to; a spec with tables is refused without them.
    """
    spec, document = given.spec, given.document
    ref = parse_ref(spec.kernel, given.folder, document.where(("kernel",)))
    source = kernel_source(ref)
    description = describe(source, target_of(gpu))
    followers = []
    for i, launch in enumerate(spec.followed_by):
        at: KeyPath = ("followed_by", i)
        follower = kernel_source(parse_ref(launch.kernel, given.folder, document.where((*at, "kernel"))))
        followers.append(LaunchSite(launch, at, follower, describe(follower, target_of(gpu))))
        _check_names(given, followers[-1])
    from_source = source_configs(spec, ref, description, sets)
    _check_names(given, LaunchSite(spec, (), source, description), {*sets, *from_source.names})
    if table_names is None and isinstance(spec.configs, ConfigTable):
        raise InputError(
            "config tables are read by analyze, check and recommend only", where=document.where(("configs",))
        )
    configs = from_source.configs or _configs(given, description)
    settings = shape_settings(spec.shapes) | knob_settings(spec.knobs, environ)
    known = {*settings, *spec.derived, *spec.constexprs, *description.constexprs, *LAUNCH_OPTIONS}
    known |= {name for config in configs for name in config} | set(spec.arguments) | set(table_names or ())
    for name in sets:
        if name not in known:
            raise unknown_name("shape, knob, constexpr or launch option", name, known, where=f"--set {name}")
    merged = dict(settings) | {n: s for n, s in sets.items() if n in settings}
    overrides = {n: s for n, s in sets.items() if n not in settings}
    return Kernel(given, source, description, tuple(followers), merged, overrides, configs, from_source)


def _tuned(description: KernelDescription) -> set[str]:
    """The names that the kernel's autotuner gives."""
    return set() if description.autotune is None else {n for c in description.autotune.configs for n in c}


def _check_names(given: KernelInput, site: LaunchSite, set_names: Iterable[str] = ()) -> None:
    launch, at, description = site.launch, site.at, site.description
    where = given.document.where
    for name in launch.arguments:
        if name not in description.arguments:
            if name in description.constexprs:
                hint = "Set it by --set." if given.from_flags else "List it under `constexprs`."
                raise InputError(f"{name} is a constexpr parameter", where=where((*at, "arguments", name)), hint=hint)
            raise unknown_name(
                f"argument of {description.name}", name, description.arguments, where=where((*at, "arguments", name))
            )
    for name in launch.constexprs:
        if name not in description.constexprs:
            raise unknown_name(
                f"constexpr of {description.name}", name, description.constexprs, where=where((*at, "constexprs", name))
            )
    optional = {p.name for p in description.params if p.has_default} | set(description.heuristics)
    missing = [n for n in description.arguments if n not in launch.arguments and n not in optional]
    if missing and given.from_flags:
        unset = [n for n in description.constexprs if n not in optional | set(set_names) | _tuned(description)]
        problem = f"{len(missing)} arguments have no type"
        problem += f", {len(unset)} constexprs no value" if unset else ""
        flags = " ".join([*(f"--arg {n}=TYPE" for n in missing), *(f"--set {n}=VALUE" for n in unset)])
        hint = f"Add: {flags}\nTYPE is *bf16, *fp32, i32=VALUE, fp32, none, ..."
        raise InputError(problem, where=given.source, hint=hint, missing=[*missing, *unset])
    if missing:
        raise InputError(
            f"the arguments {', '.join(missing)} of {description.name} are missing", where=where((*at, "arguments"))
        )


def _configs(given: KernelInput, description: KernelDescription) -> tuple[dict[str, Any], ...]:
    """The configs that the spec names, as constexprs and launch options."""
    configs = given.spec.configs
    where = given.document.where(("configs",))
    if isinstance(configs, ConfigTable):
        return ({},)
    if isinstance(configs, ConfigProduct):
        names = list(configs.product)
        for name in names:
            _check_config_name(given, description, name, ("configs", "product", name))
        return tuple(dict(zip(names, v, strict=True)) for v in itertools.product(*configs.product.values()))
    if configs == "autotune":
        if description.autotune is None:
            if given.from_flags:
                return ({},)
            raise InputError(f"{description.name} has no @triton.autotune", where=where, hint="List its configs here.")
        return tuple(dict(c) for c in description.autotune.configs)
    for i, config in enumerate(configs):
        for name in config:
            _check_config_name(given, description, name, ("configs", i, name))
    return tuple(dict(c) for c in configs) or ({},)


def _check_config_name(given: KernelInput, description: KernelDescription, name: str, at: KeyPath) -> None:
    valid = {*description.constexprs, *LAUNCH_OPTIONS}
    if name not in valid:
        what = f"constexpr of {description.name} or launch option"
        raise unknown_name(what, name, valid, where=given.document.where(at))


# --- points ------------------------------------------------------------------------------------------------------


def points(
    kernel: Kernel, gpu: GpuProfile, stop_above: int | None, settings: Mapping[str, Setting] | None = None
) -> list[Point]:
    """Every point of the settings' values x configs, configs innermost; equal ones once."""
    chosen = settings if settings is not None else kernel.settings
    found: dict[str, Point] = {}
    for values in _combinations({n: s.values for n, s in chosen.items()}):
        for config in kernel.configs:
            for override in _combinations({n: s.values for n, s in kernel.overrides.items()}):
                point = make_point(kernel, gpu, values, config, override, stop_above)
                told_apart = [sorted(part.items()) for part in (point.knobs, point.shapes, point.config, override)]
                found.setdefault(repr(told_apart), point)
                if len(found) > MAX_POINTS:
                    raise InputError(f"the settings give more than {MAX_POINTS:,} configs", where="--set")
    return list(found.values())


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
    config = main_config(config, override)
    names = names_of(kernel, settings, config, override)
    main = plan_launch(kernel, kernel.site, names, config, gpu, stop_above)
    followers = tuple(plan_launch(kernel, site, names, first_config(site), gpu, None) for site in kernel.followers)
    shown = {**dict(main.request.constexprs), **DEFAULTS, **dict(main.request.options)}
    return Point(
        knobs={n: settings[n] for n in spec.knobs},
        shapes={n: settings[n] for n in spec.shapes},
        config={n: v for n, v in shown.items() if n not in spec.constexprs},
        names=names,
        main=main,
        followers=followers,
    )


def main_config(config: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A config of the main kernel with what --set puts in its place."""
    return {**config, **{n: v for n, v in override.items() if n in config or n in LAUNCH_OPTIONS}}


def first_config(site: LaunchSite) -> dict[str, Any]:
    """The config of a kernel that follows the main one: the first that the spec lists for it."""
    configs = site.launch.configs
    return dict(configs[0]) if isinstance(configs, list) and configs else {}


def names_of(
    kernel: Kernel,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    override: Mapping[str, Any],
    value: ValueOf | None = None,
) -> dict[str, Any]:
    """Every name that expressions may use at one point."""
    spec, value = kernel.given.spec, value or value_of
    names: dict[str, Any] = {**settings}
    for name, given in spec.constexprs.items():
        names[name] = value(kernel.given, given, names, ("constexprs", name)) if isinstance(given, str) else given
    names |= {**DEFAULTS, **config, **override}
    for name, given in spec.derived.items():
        if name not in override:
            names[name] = value(kernel.given, given, names, ("derived", name))
    return names


def value_of(given: KernelInput, value: Any, names: Mapping[str, Any], at: KeyPath) -> Any:
    """The value of an expression; a text that is no expression over known names stays the text (a string constexpr)."""
    if not isinstance(value, str):
        return value
    where = given.document.where(at)
    if at[-2:-1] == ("constexprs",):
        try:
            return parse_expression(value, where)(names, where)
        except InputError:
            return value
    return parse_expression(value, where)(names, where)


def plan_launch(
    kernel: Kernel,
    site: LaunchSite,
    names: Mapping[str, Any],
    config: Mapping[str, Any],
    gpu: GpuProfile,
    stop_above: int | None,
) -> LaunchPlan:
    """One launch at one point."""
    given, launch, at = kernel.given, site.launch, site.at
    if ("reads", at) not in kernel.memo:
        kernel.memo["reads", at] = _names_read(given, site)
    # Over a sweep few launches differ in what they are called with: each distinct call is worked out once.
    read = kernel.memo["reads", at]
    called_with = (at, stop_above, gpu.id, tuple(config.items()), tuple((n, names.get(n)) for n in read))
    if called_with not in kernel.memo:
        kernel.memo[called_with] = _request(kernel, site, names, config, gpu, stop_above)
    request, assumed = kernel.memo[called_with]
    grid = None
    if launch.grid is not None:
        grid = tuple(grid_axis(given, axis, names, (*at, "grid", i)) for i, axis in enumerate(launch.grid))
    return LaunchPlan(launch, at, request, grid, names, assumed)


def _names_read(given: KernelInput, site: LaunchSite) -> tuple[str, ...]:
    """The names that the arguments, constexprs and options of a launch may depend on."""
    read = {*site.description.constexprs, *site.description.arguments, *LAUNCH_OPTIONS}
    for name, argument in site.launch.arguments.items():
        if isinstance(argument.value, str):
            where = given.document.where((*site.at, "arguments", name, "value"))
            read |= parse_expression(argument.value, where).names
    for name, value in site.launch.constexprs.items():
        if isinstance(value, str):
            with contextlib.suppress(InputError):  # a string constexpr that is no expression
                read |= parse_expression(value, given.document.where((*site.at, "constexprs", name))).names
    return tuple(sorted(read))


def _request(
    kernel: Kernel,
    site: LaunchSite,
    names: Mapping[str, Any],
    config: Mapping[str, Any],
    gpu: GpuProfile,
    stop_above: int | None,
) -> tuple[CompileRequest, tuple[str, ...]]:
    """What to compile for one launch, and what was assumed for it."""
    given, launch, at, description = kernel.given, site.launch, site.at, site.description
    assumed: list[str] = []
    specialized = {p.name for p in description.params if p.specializes}
    arguments = []
    for name in description.arguments:
        argument = launch.arguments.get(name)
        if argument is not None:
            value = _argument(given, name, argument, names, (*at, "arguments", name), assumed)
            arguments.append(value if name in specialized else replace(value, specializes=False))
    constexprs = constexprs_of(given, site, names, config)
    options = {n: names[n] for n in LAUNCH_OPTIONS if n in config or (not at and n in kernel.overrides)}
    if not at:
        # What else a triton.Config sets goes to the launcher, as the autotuner passes it: the back end's own options.
        options |= {n: names[n] for n in config if n not in {*options, *constexprs, *site.description.arguments}}
    request = CompileRequest(
        site.source,
        target_of(gpu),
        tuple(arguments),
        tuple(constexprs.items()),
        tuple(sorted(options.items())),
        stop_above,
        exact_values=needs_exact_values(site, config),
    )
    return request, tuple(assumed)


def needs_exact_values(site: LaunchSite, config: Mapping[str, Any]) -> bool:
    """Whether every value of an argument counts, not its specialization class: what a heuristic makes of the arguments
    is known to the worker alone, unless the spec says it."""
    declared = {n for n, a in site.launch.arguments.items() if a.heuristic} | set(site.launch.constexprs)
    return bool(set(site.description.heuristics) - declared - set(config))


def _argument(
    given: KernelInput, name: str, argument: Argument, names: Mapping[str, Any], at: KeyPath, assumed: list[str]
) -> ArgumentValue:
    value = argument_value(given, name, argument, names, at)
    if value is None and takes_value(argument):
        assumed.append(f"{name}: {CLASS_NOTE}" if argument.type != "i1" else f"{name}: no value given; taken as true")
    if value is not None:
        where = f"--arg {name}" if given.from_flags else given.document.where(at)
        value = _of_type(value, argument.type, where)
    return ArgumentValue(name, argument.type, value, argument.align, argument.heuristic)


def _of_type(value: Any, kind: str, where: str) -> Any:
    """A value as a launch passes it to an argument of type `kind`: 1 for fp32 is 1.0, which Triton compiles otherwise
    than 1. `InputError` for one that the type does not have.
    """
    if kind.startswith(("*", "tensordesc", "none")):
        raise InputError(f"an argument of type {kind} has no value (given: {value!r})", where=where)
    if isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{value!r} is not a finite number", where=where)
    if kind.startswith(("fp", "bf")):
        return float(value)
    if kind == "i1":
        if value not in (0, 1):
            raise InputError(f"{value!r} is no i1", where=where, hint="It is true or false.")
        return bool(value)
    if isinstance(value, bool) or value != int(value):
        raise InputError(f"{value!r} is no whole number, which {kind} needs", where=where)
    whole = int(value)
    if not _holds(kind, whole):
        wider = [k for k in ("i32", "i64", "u64") if _holds(k, whole)]
        hint = f"Declare it as {wider[0]}." if wider else ""
        raise InputError(f"{whole} does not fit {kind}", where=where, hint=hint)
    return whole


def _holds(kind: str, whole: int) -> bool:
    """Whether an integer type (i8, u64, ...) has this number."""
    bits = int(kind[1:])
    least, above = (0, 1 << bits) if kind.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return least <= whole < above


def takes_value(argument: Argument) -> bool:
    """Whether an argument is a number that specializes: no pointer, descriptor or float."""
    return not argument.type.startswith(("*", "tensordesc", "none", "fp", "bf"))


def argument_value(
    given: KernelInput,
    name: str,
    argument: Argument,
    names: Mapping[str, Any],
    at: KeyPath,
    value: ValueOf | None = None,
) -> Any:
    """An argument's value as the spec gives it, or the name of its own; None without one."""
    found = argument.value
    if found is None and takes_value(argument):
        found = names.get(name)
    return (value or value_of)(given, found, names, at) if isinstance(found, str) else found


def constexprs_of(
    given: KernelInput,
    site: LaunchSite,
    names: Mapping[str, Any],
    config: Mapping[str, Any],
    value: ValueOf | None = None,
) -> dict[str, Any]:
    """The value of each constexpr parameter of a launch; those with defaults of their own may be left out."""
    launch, at, description = site.launch, site.at, site.description
    values: dict[str, Any] = {}
    missing = []
    for param in description.params:
        name = param.name
        if not param.constexpr:
            continue
        if name in config:
            values[name] = config[name]
        elif name in launch.constexprs:
            values[name] = (value or value_of)(given, launch.constexprs[name], names, (*at, "constexprs", name))
        elif name in names:
            values[name] = names[name]
        elif not param.has_default and name not in description.heuristics:
            missing.append(name)
    if missing:
        flags = " ".join(f"--set {n}=VALUE" for n in missing)
        raise InputError(
            f"the constexprs {', '.join(missing)} of {description.name} have no value",
            where=given.document.where((*at, "constexprs")) if not given.from_flags else given.source,
            hint=f"Add: {flags}",
            missing=missing,
        )
    return values


def grid_axis(given: KernelInput, axis: Any, names: Mapping[str, Any], at: KeyPath) -> int:
    """The programs along one axis of a grid."""
    value = value_of(given, axis, names, at)
    number = int(value) if math.isfinite(value) else 0
    which = at[-1]
    most = MAX_GRID_AXIS[which] if isinstance(which, int) else MAX_GRID_AXIS[0]
    if number != value or number < 1 or number > most:
        raise InputError(
            f"the grid axis {axis!r} comes to {value}",
            where=given.document.where(at),
            hint=f"An axis is 1 to {most:,}.",
        )
    return number


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
