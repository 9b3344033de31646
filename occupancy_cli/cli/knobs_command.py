"""`occupancy knobs`: what tunes the kernels of a file or package, read from its source."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format, counted, make_console, make_table

if TYPE_CHECKING:
    from rich.console import Console

    from occupancy_cli.source.source_knobs import (
        Autotune,
        EnvironmentRead,
        KernelKnobs,
        LaunchSite,
        Parameter,
        SourceKnobs,
    )

SCHEMA = "occupancy/knobs/1"
MOST_PLACES = 3
MOST_IN_DETAIL = 40
MOST_CHARACTERS = 160


def knobs(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_PACKAGE",
            help="A Python file, a folder, an installed package or module (package.module), or file.py:kernel.",
        ),
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Also variables read far from any kernel, and JIT helper functions.")
    ] = False,
    output_format: options.FormatOption = Format.table,
) -> None:
    """List what tunes the kernels: environment variables, constexprs, autotune configs, launch options, grid, splits.

    The source is read, not imported: nothing of it runs, and what it imports need not be installed. Autotune lists are
    computed where reading suffices (environment variables at their defaults), and shown as written where not.
    """
    from occupancy_cli.source.source_knobs import locate, read_knobs

    path, kernel = locate(target)
    with _progress() as progress:
        found = read_knobs(path, kernel=kernel, progress=progress)
    if output_format is Format.json:
        typer.echo(json.dumps(as_json(found), indent=2, ensure_ascii=False, default=str))
        return
    _print(found, make_console(), everything=everything or not path.is_dir() or kernel is not None)


def as_json(found: SourceKnobs) -> dict[str, Any]:
    """Everything found, whatever a table would leave out. Expressions are strings of Python source."""
    from dataclasses import asdict

    data = asdict(found)
    for variable, row in zip(found.environment, data["environment"], strict=True):
        row["defaults"] = list(variable.defaults)
        row["used_as"] = list(variable.used_as)
    return {"schema": SCHEMA, "command": "knobs", **data}


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on standard error while many files are read; None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading source", total=None)

        def show(done: int, total: int, _name: str) -> None:
            if done % 25 == 0:
                bar.update(task, total=total, completed=done)

        yield show


def _print(found: SourceKnobs, console: Console, *, everything: bool) -> None:
    kernels = [k for k in found.kernels if everything or k.role == "kernel"]
    helpers = sum(k.role == "helper" for k in found.kernels)
    console.print(
        f"{found.root}: {counted(len(found.kernels) - helpers, 'kernel')}, {counted(helpers, 'JIT helper')}, "
        f"{counted(len(found.launches), 'launch site')}, {counted(len(found.environment), 'environment variable')} in "
        f"{counted(found.files, 'file')} (read, not imported)",
        soft_wrap=True,
    )
    if found.skipped:
        console.print(f"{counted(len(found.skipped), 'file')} could not be read:", soft_wrap=True)
        for skipped in found.skipped[: None if everything else 10]:
            console.print(f"  {skipped.file}: {skipped.why}", soft_wrap=True)
        if not everything and len(found.skipped) > 10:
            console.print(f"  and {len(found.skipped) - 10} more (--all)")
    _print_environment(found, console, everything)
    if len(kernels) + len(found.launches) > MOST_IN_DETAIL:
        _print_kernel_table(kernels, found.launches, console)
    else:
        _print_blocks(kernels, found.launches, console)
    assumed = {n: d for k in kernels if k.autotune for n, d in k.autotune.assumes.items()}
    for name, default in assumed.items():
        console.print(f"Configs are computed for {name} at its default, {default}.", soft_wrap=True)
    if found.splits:
        table = make_table("Splits", "Expression", "Where")
        for split in found.splits:
            inside = f" in {split.function}" if split.function else ""
            table.add_row(split.name, _short(split.text), f"{split.place}{inside}")
        console.print(table)
    if not found.kernels and not found.launches:
        console.print("There is no JIT function and no kernel launch in it.")


def _print_environment(found: SourceKnobs, console: Console, everything: bool) -> None:
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
        console.print(table)
    hidden = len(found.environment) - len(variables)
    if hidden:
        console.print(f"{counted(hidden, 'variable')} more, read in files without kernels (--all, or --format json).")


def _default(read: EnvironmentRead) -> str:
    written = _short(read.default or "", 60)
    computed = "" if read.default_value is None else repr(read.default_value)
    return f"{computed} ({written})" if computed and computed != written else written


def _print_kernel_table(kernels: list[KernelKnobs], launches: tuple[LaunchSite, ...], console: Console) -> None:
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
    console.print(table)
    console.print("Grids and constexprs at launches: name one file or file.py:kernel, or use --format json.")


def _print_blocks(kernels: list[KernelKnobs], launches: tuple[LaunchSite, ...], console: Console) -> None:
    """Every kernel with its launches, in full."""
    shown: set[int] = set()
    for kernel in kernels:
        if kernel.role == "helper":
            continue
        console.print()
        console.print(f"{kernel.name}, {kernel.place}", style="bold", soft_wrap=True)
        rows = [("constexprs", ", ".join(_parameter(p) for p in kernel.constexprs))]
        if kernel.autotune is not None:
            rows += _autotune_rows(kernel.autotune)
            rows.append(("key", ", ".join(kernel.autotune.key)))
            rows += list(kernel.autotune.more.items())
        rows.append(("heuristics", ", ".join(kernel.heuristics) or kernel.heuristics_source))
        rows += list(kernel.jit_options.items())
        _print_rows(rows, console)
        for at, launch in enumerate(launches):
            if kernel.name in launch.kernels:
                shown.add(at)
                _print_launch(launch, console)
    helpers = [k.name for k in kernels if k.role == "helper"]
    if helpers:
        console.print()
        console.print(f"Called by these kernels: {', '.join(helpers)}", soft_wrap=True)
    others = [launch for at, launch in enumerate(launches) if at not in shown]
    if others:
        console.print()
        console.print("Launches of kernels defined elsewhere", style="bold")
    for launch in others:
        _print_launch(launch, console, name=launch.kernel)


def _print_launch(launch: LaunchSite, console: Console, name: str = "") -> None:
    inside = f" in {launch.function}" if launch.function else ""
    console.print(f"  {name + ' ' if name else ''}launched at {launch.place}{inside}", soft_wrap=True)
    rows = [("grid", _resolved(launch.grid, launch, "grid"))]
    arguments = (*launch.options.items(), *launch.constexprs.items())
    rows += [(name, _resolved(text, launch, name)) for name, text in arguments]
    _print_rows(rows, console, indent=4)


def _print_rows(rows: list[tuple[str, str]], console: Console, indent: int = 2) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    rows = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in rows), default=0)
    if not console.is_terminal:
        for name, value in rows:
            console.print(f"{'':{indent}}{name:<{width}}  {value}", soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name), Text(_short(value, MOST_CHARACTERS * 3), overflow="fold"))
    console.print(Padding(table, (0, 0, 0, indent)))


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
    definitions = launch.definitions.get(text, ())
    if not definitions:
        return _short(text)
    assigned = " or ".join(dict.fromkeys(_short(d.text) for d in definitions))
    return assigned if text == name or assigned.startswith((f"{text} =", "def ")) else f"{text} = {assigned}"


def _short(text: str, most: int = MOST_CHARACTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
