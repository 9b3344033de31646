"""From a spec and settings to launches: every value of every argument, constexpr and launch option, and the grid.

A point is one choice of knobs, shapes and config. Its names are worked out in this order: facts of the GPU, shapes,
knobs, fixed constexprs, config values, then the derived names one by one; `--set` wins over all of them. Everything
that follows (arguments, grid, work) is an expression over those names. A kernel that follows sees the same, but for its
own config in the place of the main kernel's.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.kernel_record import KernelDescription
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource, Target
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import BACKEND_OPTIONS, DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import KernelInput, KernelRef, parse_ref
from occupancy_cli.plan.source_configs import SourceConfigs, file_to_load, source_configs
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import (
    DEVICE_FACTS,
    Argument,
    ConfigProduct,
    ConfigTable,
    EachValue,
    KernelSpecFile,
    Launch,
    descriptor_shape,
    names_in_expressions,
    with_shape,
)
from occupancy_cli.spec.settings import Formula, Setting, knob_settings, shape_settings
from occupancy_cli.yaml_reader import KeyPath

if TYPE_CHECKING:
    from occupancy_cli.compile.kept_readings import KeptReadings

MAX_POINTS = 100_000
MAX_GRID_AXIS = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Compute Capabilities": grid dimensions
CTAS_PER_SM = "ctas_per_sm"
"""What the grid and the work of a launch may use of its compiled kernel: a persistent launch fills its slots."""
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
    impossible: str = ""
    """Why no GPU can launch it, whatever it compiles to: a grid over CUDA's limits."""


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
    """One launch of the spec (`at`: its place there) with the kernel that it names.

    `config` is the one that a kernel which follows is launched with; the main kernel has several.
    """

    launch: Launch
    at: KeyPath
    source: KernelSource
    description: KernelDescription
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to be planned: its input, its signature and those of its followers, its settings.

    `device` has the facts of the GPU that expressions may use, None for one that is not known.
    """

    given: KernelInput
    source: KernelSource
    description: KernelDescription
    followers: tuple[LaunchSite, ...]
    settings: Mapping[str, Setting]
    overrides: Mapping[str, Setting] = field(default_factory=dict)
    configs: tuple[Mapping[str, Any], ...] = ({},)
    from_source: SourceConfigs = field(default_factory=SourceConfigs)
    device: Mapping[str, int | None] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    readings: Callable[[], KeptReadings] | None = field(default=None, compare=False, repr=False)
    """Where what is read of compiled kernels is kept, for what comes after; None: nowhere."""

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
    *,
    readings: Callable[[], KeptReadings] | None = None,
) -> Kernel:
    """Look at the kernel's signature, merge the settings, and refuse names that nothing knows.

    `table_names` are the names that config tables give values to; a spec with tables is refused without them.
    """
    spec, document = given.spec, given.document
    ref = parse_ref(spec.kernel, given.folder, document.where(("kernel",)))
    source = kernel_source(ref)
    description = describe(source, target_of(gpu))
    from_source = source_configs(spec, ref, description, sets, spec_names(spec))
    followers = []
    for i, launch in enumerate(spec.followed_by):
        at: KeyPath = ("followed_by", i)
        site, said = _follower(given, launch, at, gpu, describe)
        followers.append(site)
        from_source = from_source.joined(said)
    _check_names(given, LaunchSite(spec, (), source, description), {*sets, *from_source.names})
    if table_names is None and isinstance(spec.configs, ConfigTable):
        raise InputError(
            "config tables are read by analyze, check and recommend only", where=document.where(("configs",))
        )
    configs = from_source.configs or _configs(given, spec, (), description)
    settings = shape_settings(spec.shapes) | knob_settings(spec.knobs, environ, spec.in_use)
    _check_in_use(given, description, configs)
    known = {*settings, *spec.derived, *spec.constexprs, *description.constexprs, *LAUNCH_OPTIONS}
    known |= {name for config in configs for name in config} | set(spec.arguments) | set(table_names or ())
    for name in sets:
        if name not in known and name not in BACKEND_OPTIONS:
            raise unknown_name("shape, knob, constexpr or launch option", name, known, where=f"--set {name}")
    _check_given_once(given, settings, configs)
    merged = dict(settings) | {n: s for n, s in sets.items() if n in settings}
    overrides = {n: s for n, s in sets.items() if n not in settings}
    given = _with_sets(given, overrides)
    chosen = {*spec.knobs, *overrides, *(name for config in configs for name in config)}
    sites = (LaunchSite(spec, (), source, description), *followers)
    from_source = from_source.joined(SourceConfigs(notes=tuple(_not_used(spec, sites, chosen))))
    facts = device_facts(gpu)
    return Kernel(
        given, source, description, tuple(followers), merged, overrides, configs, from_source, facts, readings=readings
    )


def _check_given_once(given: KernelInput, settings: Iterable[str], configs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a shape or knob that the configs give too: of two values an answer would have to drop one in silence."""
    spec = given.spec
    for name in settings:
        if isinstance(spec.configs, ConfigTable) or not any(name in config for config in configs):
            continue
        what = "knob" if name in spec.knobs else "shape"
        listed = given.document.line(("configs",))
        theirs = f"the configs in line {listed}" if listed is not None else "the configs of its source"
        where = given.document.where((f"{what}s", name))
        raise InputError(f"{name} is a {what}, and {theirs} give it a value too", where=where, hint="Keep one of them.")


def _not_used(spec: KernelSpecFile, sites: Sequence[LaunchSite], chosen: Iterable[str]) -> Iterator[str]:
    """A sentence for each name that a person or a config sets and that nothing reads: its values are all the same."""
    if any(site.description.heuristics for site in sites):
        return  # they read names of their own
    params = [param for site in sites for param in site.description.params]
    read = {p.name for p in params if p.read} | names_in_expressions(spec)
    for name in sorted(set(chosen) - read - {*LAUNCH_OPTIONS, *BACKEND_OPTIONS}):
        if any(p.name == name for p in params):
            yield f"{name} changes nothing: {sites[0].description.name} never reads it"
        elif name in spec.knobs:
            yield f"{name} changes nothing: no expression of the spec and no parameter of the kernel is called so"


def _check_in_use(given: KernelInput, description: KernelDescription, configs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a setting of today that the spec has no knob or config for: nothing could be compared with it."""
    spec, where = given.spec, given.document.where
    valid = {*spec.knobs, *(n for config in configs for n in config), *LAUNCH_OPTIONS}
    for name in spec.in_use:
        if name not in valid:
            raise unknown_name("knob or name of a config", name, valid, where=where(("in_use", name)))
    if not isinstance(spec.configs, ConfigTable) and not any(is_in_use(spec, config) for config in configs):
        today = ", ".join(f"{n} {v}" for n, v in spec.in_use.items() if n not in spec.knobs)
        problem = f"no config of {description.name} has {today}"
        raise InputError(problem, where=where(("in_use",)), hint="List the config that runs today among them.")


def is_in_use(spec: KernelSpecFile, config: Mapping[str, Any]) -> bool:
    """Whether a config may be the one that runs today; where the spec does not say so, any may."""
    whole = {**DEFAULTS, **config}
    return all(whole.get(n) == v for n, v in spec.in_use.items() if n not in spec.knobs)


def _with_sets(given: KernelInput, overrides: Mapping[str, Setting]) -> KernelInput:
    """The input with --set in the place of what the spec gives an argument or a constexpr of the main kernel."""
    spec = given.spec
    arguments = {
        n: a.model_copy(update={"value": n}) if n in overrides and takes_value(a) else a
        for n, a in spec.arguments.items()
    }
    constexprs = {n: v for n, v in spec.constexprs.items() if n not in overrides}
    if arguments == spec.arguments and constexprs == spec.constexprs:
        return given
    return replace(given, spec=spec.model_copy(update={"arguments": arguments, "constexprs": constexprs}))


def device_facts(gpu: GpuProfile) -> dict[str, int | None]:
    """What expressions may use of the GPU; a name of the spec's own comes before it."""
    return dict(zip(DEVICE_FACTS, (gpu.sm_count, gpu.limits.shared_per_cta_optin_bytes, gpu.arch), strict=True))


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


def _follower(
    given: KernelInput, launch: Launch, at: KeyPath, gpu: GpuProfile, describe: Describe
) -> tuple[LaunchSite, SourceConfigs]:
    """A kernel that follows the main one with its one config, and what its file says of where that is from."""
    ref = parse_ref(launch.kernel, given.folder, given.document.where((*at, "kernel")))
    source = kernel_source(ref)
    description = describe(source, target_of(gpu))
    said = source_configs(launch, ref, description, (), spec_names(given.spec))
    configs = said.configs or _configs(given, launch, at, description)
    where = given.document.where((*at, "configs"))
    listed = "configs" in launch.model_fields_set and launch.configs != "autotune"
    if len(configs) > 1 and listed:
        hint = "Of a kernel that follows one config is launched; make what varies a knob."
        raise InputError(f"{len(configs)} configs where one is needed", where=where, hint=hint)
    name, config = description.name, configs[0]
    notes = list(said.notes) if said.not_read or any(config.get(n, v) != v for n, v in DEFAULTS.items()) else []
    if len(configs) > 1:
        notes.append(f"the first of its {len(configs)} configs is taken")
    site = LaunchSite(launch, at, source, description, config)
    _check_names(given, site, said.names)
    not_read = tuple(f"{name}: {text}" for text in said.not_read)
    return site, SourceConfigs(None, tuple(f"{name}: {note}" for note in notes), not_read)


def spec_names(spec: KernelSpecFile) -> set[str]:
    """The names that a spec itself gives values to."""
    return {*spec.constexprs, *spec.knobs, *spec.shapes, *spec.derived}


def _configs(
    given: KernelInput, launch: Launch, at: KeyPath, description: KernelDescription
) -> tuple[dict[str, Any], ...]:
    """The configs that a launch of the spec names, as constexprs and launch options."""
    configs = launch.configs
    where = given.document.where((*at, "configs"))
    if at and isinstance(configs, ConfigTable):
        raise InputError("a kernel that follows takes no config table", where=where, hint="List its config here.")
    if at and description.autotune is not None and "configs" not in launch.model_fields_set:
        configs = "autotune"
    if isinstance(configs, ConfigTable):
        return ({},)
    if isinstance(configs, ConfigProduct):
        names = list(configs.product)
        for name in names:
            _check_config_name(given, description, name, (*at, "configs", "product", name))
        return tuple(dict(zip(names, v, strict=True)) for v in itertools.product(*configs.product.values()))
    if configs == "autotune":
        if description.autotune is None:
            if given.from_flags:
                return ({},)
            raise InputError(f"{description.name} has no @triton.autotune", where=where, hint="List its configs here.")
        return tuple(dict(c) for c in description.autotune.configs)
    for i, config in enumerate(configs):
        for name in config:
            _check_config_name(given, description, name, (*at, "configs", i, name))
    return tuple(dict(c) for c in configs) or ({},)


def _check_config_name(given: KernelInput, description: KernelDescription, name: str, at: KeyPath) -> None:
    valid = {*description.constexprs, *LAUNCH_OPTIONS}
    if name not in valid and name not in BACKEND_OPTIONS:
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
    expression = parse_expression(value, where)
    if "sm_count" in expression.names and names.get("sm_count", 0) is None:
        hint = "Name a product, such as --gpu 5090."
        raise InputError("sm_count is not known, since the GPU given is limits only", where=where, hint=hint)
    if CTAS_PER_SM in expression.names and CTAS_PER_SM not in names:
        hint = "Only `grid` may use it, and where it does `work`."
        raise InputError(f"{CTAS_PER_SM} is known only when the kernel is compiled", where=where, hint=hint)
    return expression(names, where)


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
    if launch.grid is None or after_compile(launch, given, at):
        return LaunchPlan(launch, at, request, None, names, assumed)
    grid, impossible = grid_of(given, launch, at, names)
    return LaunchPlan(launch, at, request, grid, names, assumed, impossible)


def after_compile(launch: Launch, given: KernelInput, at: KeyPath) -> bool:
    """Whether a launch's grid depends on what the kernel compiles to: on its CTAs per SM."""
    axes = enumerate(launch.grid or ())
    return any(CTAS_PER_SM in parse_expression(axis, given.document.where((*at, "grid", i))).names for i, axis in axes)


def launched_with(given: KernelInput, plan: LaunchPlan, ctas_per_sm: int | None) -> LaunchPlan:
    """A plan once its kernel is compiled: with the grid that waited for its CTAs per SM (None: did not compile)."""
    if plan.grid is not None or plan.launch.grid is None or ctas_per_sm is None:
        return plan
    names = {**plan.names, CTAS_PER_SM: ctas_per_sm}
    grid, impossible = grid_of(given, plan.launch, plan.at, names)
    return replace(plan, grid=grid, names=names, impossible=impossible)


def _names_read(given: KernelInput, site: LaunchSite) -> tuple[str, ...]:
    """The names that the arguments, constexprs and options of a launch may depend on."""
    read = {*site.description.constexprs, *site.description.arguments, *LAUNCH_OPTIONS}
    for name, argument in site.launch.arguments.items():
        where = given.document.where((*site.at, "arguments", name, "value"))
        for text in (argument.value, *descriptor_shape(argument.type)):
            if isinstance(text, str):
                read |= parse_expression(text, where).names
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
    # A knob, a shape or a derived name may be a launch option as well.
    own = () if at else {*kernel.overrides, *given.spec.knobs, *given.spec.shapes, *given.spec.derived}
    options = {n: names[n] for n in LAUNCH_OPTIONS if n in config or n in own}
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
    kind = argument.type
    if shape := descriptor_shape(kind):
        kind = with_shape(
            kind, [_extent(value_of(given, axis, names, at), axis, given.document.where(at)) for axis in shape]
        )
    return ArgumentValue(name, kind, value, argument.align, argument.heuristic)


def _extent(value: Any, axis: str, where: str) -> int:
    """One extent of a descriptor's block shape."""
    if value != int(value) or value < 1:
        raise InputError(f"the block shape's {axis} comes to {value}", where=where, hint="It is a positive integer.")
    return int(value)


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


def grid_of(
    given: KernelInput, launch: Launch, at: KeyPath, names: Mapping[str, Any]
) -> tuple[tuple[int, ...] | None, str]:
    """The grid of a launch, or why there is no such grid."""
    axes = [grid_axis(given, axis, names, (*at, "grid", i)) for i, axis in enumerate(launch.grid or ())]
    impossible = next((why for _, why in axes if why), "")
    return (None if impossible else tuple(number for number, _ in axes)), impossible


def grid_axis(given: KernelInput, axis: Any, names: Mapping[str, Any], at: KeyPath) -> tuple[int, str]:
    """The programs along one axis of a grid, and why a launch cannot have so many."""
    value = value_of(given, axis, names, at)
    number = int(value) if math.isfinite(value) else 0
    which = at[-1]
    most = MAX_GRID_AXIS[which] if isinstance(which, int) else MAX_GRID_AXIS[0]
    if number == value and 1 <= number <= most:
        return number, ""
    comes = "" if str(axis) == str(value) else f" comes to {value:,}"
    return 0, f"the grid axis {axis!r}{comes}, an axis is 1 to {most:,} ({given.document.where(at)})"


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
