"""What tunes the kernels of a file or package, on a terminal (`report.source_parts` shows an example)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from occupancy_cli.report.terminal.console import counted, make_table

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.source_parts import (
        Autotune,
        EnvironmentRead,
        KernelKnobs,
        Knobs,
        LaunchSite,
        Parameter,
    )
    from occupancy_cli.report.view import View

MOST_PLACES = 3
MOST_IN_DETAIL = 40
MOST_CHARACTERS = 160


def lines(report: Report, console: Console, view: View) -> Iterator[RenderableType]:
    """The knobs of a Report; `view.everything`: also variables read far from any kernel, and JIT helpers."""
    found, everything = report.knobs, view.everything
    assert found is not None
    kernels = [k for k in found.kernels if everything or k.role == "kernel"]
    helpers = sum(k.role == "helper" for k in found.kernels)
    yield Text(
        f"{found.root}: {counted(len(found.kernels) - helpers, 'kernel')}, {counted(helpers, 'JIT helper')}, "
        f"{counted(len(found.launches), 'launch site')}, {counted(len(found.environment), 'environment variable')} in "
        f"{counted(found.files, 'file')} (read, not imported)"
    )
    if found.skipped:
        yield Text(f"{counted(len(found.skipped), 'file')} could not be read:")
        for skipped in found.skipped[: None if everything else 10]:
            yield Text(f"  {skipped.file}: {skipped.why}")
        if not everything and len(found.skipped) > 10:
            yield Text(f"  and {len(found.skipped) - 10} more (--all)")
    yield from _environment(found, everything)
    if len(kernels) + len(found.launches) > MOST_IN_DETAIL:
        yield from _kernel_table(kernels, found.launches)
    else:
        yield from _blocks(kernels, found.launches, console)
    assumed = {n: d for k in kernels if k.autotune for n, d in k.autotune.assumes.items()}
    for name, default in assumed.items():
        yield Text(f"Configs are computed for {name} at its default, {default}.")
    if found.splits:
        table = make_table("Splits", "Expression", "Where")
        for split in found.splits:
            inside = f" in {split.function}" if split.function else ""
            table.add_row(split.name, _short(split.text), f"{split.place}{inside}")
        yield table
    if not found.kernels and not found.launches:
        yield Text("There is no JIT function and no kernel launch in it.")


def _environment(found: Knobs, everything: bool) -> Iterator[RenderableType]:
    variables = [v for v in found.environment if everything or v.beside_kernels]
    if variables:
        table = make_table("Environment variable", "Default", "Used as", "Read at")
        for variable in variables:
            declared = [r for r in variable.reads if r.default is not None]
            places = [str(r.place) for r in (*declared, *(r for r in variable.reads if r not in declared))]
            more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
            default = " or ".join(dict.fromkeys(_default(r) for r in declared)) or "-"
            shown = ", ".join(places[:MOST_PLACES]) + more
            table.add_row(variable.name, default, ", ".join(variable.used_as) or "-", shown)
        yield table
    hidden = len(found.environment) - len(variables)
    if hidden:
        yield Text(f"{counted(hidden, 'variable')} more, read in files without kernels (--all, or --format json).")


def _default(read: EnvironmentRead) -> str:
    written = _short(read.default or "", 60)
    computed = "" if read.default_value is None else repr(read.default_value)
    return f"{computed} ({written})" if computed and computed != written else written


def _kernel_table(kernels: Sequence[KernelKnobs], launches: Sequence[LaunchSite]) -> Iterator[RenderableType]:
    """A line per kernel."""
    table = make_table("Kernel", "Where", "Constexprs", "Configs", "Key", "Launched with")
    by_kernel: dict[str, list[LaunchSite]] = {}
    for launch in launches:
        for name in launch.kernels:
            by_kernel.setdefault(name, []).append(launch)
    for kernel in kernels:
        autotune = kernel.autotune
        used = by_kernel.get(kernel.name, [])
        options = dict.fromkeys(f"{n}={_resolved(t, s)}" for s in used for n, t in s.options.items() if n != "**")
        table.add_row(
            kernel.name,
            str(kernel.place),
            _short(", ".join(p.name for p in kernel.constexprs), 100) or "-",
            "-" if autotune is None else config_summary(autotune),
            "-" if autotune is None else ", ".join(autotune.key) or "-",
            _short(", ".join(options)) or "-",
        )
    yield table
    yield Text("Grids and constexprs at launches: name one file or file.py:kernel, or use --format json.")


def _blocks(
    kernels: Sequence[KernelKnobs], launches: Sequence[LaunchSite], console: Console
) -> Iterator[RenderableType]:
    """Every kernel with its launches, in full."""
    shown: set[int] = set()
    for kernel in kernels:
        if kernel.role == "helper":
            continue
        yield Text("")
        yield Text(f"{kernel.name}, {kernel.place}", style="bold")
        rows = [("constexprs", ", ".join(_parameter(p) for p in kernel.constexprs))]
        if kernel.autotune is not None:
            rows += _autotune_rows(kernel.autotune)
            rows.append(("key", ", ".join(kernel.autotune.key)))
            rows += list(kernel.autotune.more.items())
        rows.append(("heuristics", ", ".join(kernel.heuristics) or kernel.heuristics_source))
        rows += list(kernel.jit_options.items())
        yield from _rows(rows, console)
        for at, launch in enumerate(launches):
            if kernel.name in launch.kernels:
                shown.add(at)
                yield from _launch(launch, console)
    helpers = [k.name for k in kernels if k.role == "helper"]
    if helpers:
        yield Text("")
        yield Text(f"Called by these kernels: {', '.join(helpers)}")
    others = [launch for at, launch in enumerate(launches) if at not in shown]
    if others:
        yield Text("")
        yield Text("Launches of kernels defined elsewhere", style="bold")
    for launch in others:
        yield from _launch(launch, console, name=launch.kernel)


def _launch(launch: LaunchSite, console: Console, name: str = "") -> Iterator[RenderableType]:
    inside = f" in {launch.function}" if launch.function else ""
    yield Text(f"  {name + ' ' if name else ''}launched at {launch.place}{inside}")
    rows = [("grid", _resolved(launch.grid, launch, "grid"))]
    arguments = (*launch.options.items(), *launch.constexprs.items())
    rows += [(name, _resolved(text, launch, name)) for name, text in arguments]
    yield from _rows(rows, console, indent=4)


def _rows(rows: list[tuple[str, str]], console: Console, indent: int = 2) -> Iterator[RenderableType]:
    rows = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in rows), default=0)
    if not console.is_terminal:
        for name, value in rows:
            yield Text(f"{'':{indent}}{name:<{width}}  {value}")
        return
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name), Text(_short(value, MOST_CHARACTERS * 3), overflow="fold"))
    yield Padding(table, (0, 0, 0, indent))


def _parameter(parameter: Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name} = {parameter.default}"


def _autotune_rows(autotune: Autotune) -> list[tuple[str, str]]:
    if autotune.configs is not None:
        return [("autotune", config_summary(autotune))]
    rows = [("autotune", autotune.source), ("not computed", autotune.why_unknown)]
    return rows + [(f"  {name}", text) for name, text in autotune.names.items()]


def config_summary(autotune: Autotune) -> str:
    """A list of configs in a line: how many, the values of each name, and whether they are all combinations."""
    if autotune.configs is None:
        names = "; ".join(f"{n} = {_short(t, 60)}" for n, t in autotune.names.items())
        why = f"not computed: {autotune.why_unknown}"
        return f"{_short(autotune.source)} ({why}{'; ' + names if names else ''})"
    values: dict[str, list[Any]] = {}
    for config in autotune.configs:
        for name, value in config.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    combinations = 1
    for found in values.values():
        combinations *= len(found)
    full = combinations == len(autotune.configs) and all(len(c) == len(values) for c in autotune.configs)
    shown = [f"{n} {', '.join(map(str, _ordered(v)))}" for n, v in values.items() if n != "num_ctas" or v != [1]]
    count = counted(len(autotune.configs), "config")
    label = f"{count}, all combinations" if full and combinations > 1 else count
    return f"{label}: {'; '.join(shown)}"


def _ordered(values: list[Any]) -> list[Any]:
    numbers = all(isinstance(v, (int, float)) for v in values)
    return sorted(values) if numbers else values


def _resolved(text: str, launch: LaunchSite, name: str = "") -> str:
    """An expression; a plain name with what it was assigned (`name`: what the line is already called)."""
    definitions = launch.definitions.get(text, [])
    if not definitions:
        return _short(text)
    assigned = " or ".join(dict.fromkeys(_short(d.text) for d in definitions))
    return assigned if text == name or assigned.startswith((f"{text} =", "def ")) else f"{text} = {assigned}"


def _short(text: str, most: int = MOST_CHARACTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
