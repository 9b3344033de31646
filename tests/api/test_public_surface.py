"""What docs/stability.md promises to keep, compared with the committed list docs/public-surface.txt.

Every line of the list is a promise: what is listed has to be there. What is added is promised once it is listed:
`PYTHONPATH=.:tests python tests/api/test_public_surface.py --write` puts today's surface in.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any

import typer
from locations import ROOT

import occupancy_cli as occ
from occupancy_cli.cli.app import app
from occupancy_cli.report import report as report_module
from occupancy_cli.report.schema import json_schema
from occupancy_cli.spec.kernel_spec import SCHEMA as SPEC_SCHEMA

LIST = ROOT / "docs" / "public-surface.txt"


def _class(name: str, kind: type) -> Iterator[str]:
    bases = [b.__name__ for b in kind.__mro__[1:] if b.__module__.startswith("occupancy_cli") or b is Exception]
    yield f"class {name}({', '.join(bases)})"
    fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    members = {n for n in vars(kind) if not n.startswith("_") and n not in fields}
    for field in sorted(fields):
        yield f"  {name}.{field}"
    for member in sorted(members):
        value = vars(kind)[member]
        if inspect.isfunction(value):
            yield from _function(f"{name}.{member}", value)
        else:
            yield f"  {name}.{member}"


def _function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"def {name}"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self":
            only = " (by name)" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
            default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
            yield f"  {name}: {parameter.name}{default}{only}"


def _python() -> Iterator[str]:
    for name in sorted(occ.__all__):
        value = getattr(occ, name)
        if inspect.isclass(value):
            yield from _class(name, value)
        elif callable(value):
            yield from _function(name, value)
        else:
            yield name


def _command_line() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield f"occupancy {name}"
        start = f"  {name}:"
        hints = typing.get_type_hints(getattr(import_module(f"occupancy_cli.cli.{name}_command"), name))
        for param in command.params:
            names = ", ".join(param.opts) if param.param_type_name == "option" else str(param.name)
            kinds = (hints.get(param.name), *typing.get_args(hints.get(param.name)))
            choices = [c.value for kind in kinds if inspect.isclass(kind) and issubclass(kind, Enum) for c in kind]
            yield f"{start} {names}"
            yield from (f"{start} {names} {choice}" for choice in choices)


def _schemas() -> Iterator[str]:
    yield f"report {report_module.SCHEMA}"
    yield f"spec {SPEC_SCHEMA}"
    for name, part in sorted(json_schema()["$defs"].items()):
        yield from (f"  {name}: {field}" for field in sorted(part.get("properties", {})))
    for name, code in vars(report_module).items():
        if name.startswith("EXIT_"):
            yield f"exit code {code}: {name.removeprefix('EXIT_').lower()}"


def surface() -> str:
    parts = {"Python": _python(), "Command line": _command_line(), "Files and codes": _schemas()}
    return "\n".join(f"# {title}\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def test_nothing_that_is_promised_is_gone() -> None:
    there = set(surface().splitlines())
    gone = [line for line in LIST.read_text().splitlines() if line not in there]
    assert not gone, f"promised in {LIST.name} and not there any more, which CHANGELOG.md has to say: {gone}"


def test_all_that_can_be_imported_is_promised() -> None:
    listed = set(LIST.read_text().splitlines())
    for name in occ.__all__:
        value = getattr(occ, name)
        line = f"class {name}" if inspect.isclass(value) else f"def {name}" if callable(value) else name
        assert any(one == line or one.startswith(f"{line}(") for one in listed), f"write {LIST.name} anew: {name}"


def test_every_public_error_is_of_the_one_tree() -> None:
    errors = [v for n in occ.__all__ if inspect.isclass(v := getattr(occ, n)) and issubclass(v, BaseException)]
    assert occ.OccupancyError in errors and all(issubclass(e, occ.OccupancyError) for e in errors)


if __name__ == "__main__" and "--write" in sys.argv:
    LIST.write_text(surface())
