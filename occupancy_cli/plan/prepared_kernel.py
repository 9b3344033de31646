"""A kernel ready to be planned: its spec checked against its signature, and merged with what `--set` gives.

What nothing knows is refused here, before anything is planned or compiled: names of arguments, constexprs, knobs and
configs, a value given twice, a setting of today that nothing compares with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.kernel_record import KernelDescription
from occupancy_cli.compile.request import KernelSource, Target
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import BACKEND_OPTIONS, DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import KernelInput, KernelRef, parse_ref
from occupancy_cli.plan.source_configs import SourceConfigs, file_to_load, source_configs
from occupancy_cli.spec.kernel_spec import (
    DEVICE_FACTS,
    ConfigProduct,
    ConfigTable,
    KernelSpecFile,
    Launch,
    names_in_expressions,
    takes_value,
)
from occupancy_cli.spec.settings import Setting, knob_settings, shape_settings
from occupancy_cli.yaml_reader import KeyPath

if TYPE_CHECKING:
    from occupancy_cli.compile.kept_readings import KeptReadings


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
