"""What a program gives for a kernel, as the input of a question: a name, a path, a spec, a live one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from occupancy_cli.api.argument_types import arguments_of, configs_of
from occupancy_cli.errors import InputError
from occupancy_cli.plan.kernel_input import KernelInput, input_without_spec, parse_ref, read_kernel_input
from occupancy_cli.spec.settings import Setting

_ORIGIN = "settings"


@dataclass(frozen=True)
class Given:
    """The kernel's input, the settings on top of it, and what a Report of it has to say too."""

    kernel: KernelInput
    settings: Mapping[str, Setting]
    notes: tuple[str, ...] = field(default=())


def given_kernel(
    kernel: Any,
    *,
    args: Mapping[str, Any] | None,
    grid: Sequence[int | str] | None,
    configs: Iterable[Any] | None,
    settings: Mapping[str, Any] | None,
) -> Given:
    """The kernel that was given. `InputError` for what is none, and for arguments beside a spec, which has its own."""
    sets = settings_of(settings or {})
    listed = None if configs is None else configs_of(configs)
    if kernel is None or isinstance(kernel, (str, Path, KernelInput)):
        return Given(with_configs(_named(kernel, args, grid), listed), sets)
    return _live(kernel, args or {}, grid, listed, sets)


def settings_of(given: Mapping[str, Any]) -> dict[str, Setting]:
    """Values by name; a list, a tuple or a range of them is gone through."""
    from occupancy_cli.model.launch_options import check_launch_option

    found = {}
    for name, value in given.items():
        values = tuple(value) if isinstance(value, (list, tuple, range)) else (value,)
        if not values:
            raise InputError("has no value", where=f'settings["{name}"]')
        for one in values:
            if one is not None and not isinstance(one, (int, float, str)):
                problem = f"a {type(one).__name__} is no value of a setting"
                raise InputError(problem, where=f'settings["{name}"]', hint="A number, a text, or a list of them.")
            check_launch_option(name, one, f'settings["{name}"]')
        found[name] = Setting(values, _ORIGIN)
    return found


def _named(
    kernel: str | Path | KernelInput | None, args: Mapping[str, Any] | None, grid: Sequence[int | str] | None
) -> KernelInput:
    text = None if kernel is None else str(kernel)
    if isinstance(kernel, KernelInput) or (args is None and grid is None):
        if isinstance(kernel, KernelInput) and (args is not None or grid is not None):
            raise _has_a_spec("args" if args is not None else "grid", kernel.source)
        return kernel if isinstance(kernel, KernelInput) else read_kernel_input(text)
    if text is None or ":" not in text or Path(text).suffix in (".yaml", ".yml"):
        found = read_kernel_input(text)  # a text that names nothing is refused first
        raise _has_a_spec("args" if args is not None else "grid", found.source)
    parse_ref(text, Path.cwd())
    return input_without_spec(text, arguments_of(args or {}), axes_of(grid))


def _has_a_spec(name: str, source: str) -> InputError:
    return InputError(f"{name} is for a kernel without a spec", where=name, hint=f"Edit {source}.")


def axes_of(grid: Sequence[int | str] | None) -> list[str] | None:
    """The axes of a grid as expressions; `InputError` for what is no grid."""
    if grid is None:
        return None
    axes = [grid] if isinstance(grid, (str, int)) else list(grid)
    if not 1 <= len(axes) <= 3 or not all(isinstance(a, (int, str)) and str(a).strip() for a in axes):
        raise InputError(f"{grid!r} is no grid", where="grid", hint='One to three axes: ("ceil_div(n, 128)", "batch").')
    return [str(axis) for axis in axes]


def with_configs(given: KernelInput, configs: list[dict[str, Any]] | None) -> KernelInput:
    """The same kernel with these configs, where there are some."""
    return given if configs is None else replace(given, spec=given.spec.model_copy(update={"configs": configs}))


def _live(
    kernel: Any,
    args: Mapping[str, Any],
    grid: Sequence[int | str] | None,
    configs: list[dict[str, Any]] | None,
    sets: Mapping[str, Setting],
) -> Given:
    from occupancy_cli.api.live_kernel import live_kernel, with_heuristics

    found = live_kernel(kernel)
    compiled_in = {n: v for n, v in args.items() if n in found.constexprs}
    fixed = settings_of(compiled_in)
    if clash := sorted(fixed.keys() & sets.keys()):
        raise InputError(f"{clash[0]} is in args and in settings", where="settings")
    sets = {**fixed, **sets}
    given = input_without_spec(
        found.reference, arguments_of({n: v for n, v in args.items() if n not in compiled_in}), axes_of(grid)
    )
    listed = configs if configs is not None else None if found.configs is None else [dict(c) for c in found.configs]
    if found.heuristics:
        several = sorted(n for n, s in sets.items() if len(s.values) > 1)
        if several:
            problem = f"{several[0]} has several values, and heuristics of a kernel in memory are computed for one"
            raise InputError(problem, where="settings", hint="Ask once for each, or put the kernel into a module.")
        values = {**args, **{n: s.values[0] for n, s in sets.items()}}
        listed = with_heuristics(found, listed or [{}], values)
    spec = given.spec.model_copy(update={"name": found.name, "tuned": found.configs is not None})
    given = replace(given, spec=spec)
    return Given(with_configs(given, listed), sets, found.notes)
