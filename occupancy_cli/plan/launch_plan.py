"""One launch with every value known: what to compile for it, its grid, and why there may be none.

Arguments, constexprs and grid are expressions over the names of a point (`points`); a kernel that follows sees the same
names, but for its own config in the place of the main kernel's.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from occupancy_cli.compile.request import ArgumentValue, CompileRequest
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.prepared_kernel import Kernel, LaunchSite
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import Argument, Launch, descriptor_shape, takes_value, with_shape
from occupancy_cli.yaml_reader import KeyPath

MAX_GRID_AXIS = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Compute Capabilities": grid dimensions

CTAS_PER_SM = "ctas_per_sm"
"""What the grid and the work of a launch may use of its compiled kernel: a persistent launch fills its slots."""

CLASS_NOTE = "no value given; compiled as a multiple of 16, the most demanding class"

ValueOf = Callable[[KernelInput, Any, Mapping[str, Any], KeyPath], Any]
"""What gives an expression its value: `value_of` at one point, or at many points at once (`point_table`)."""


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
