"""No text that a Report carries steers a terminal, a CI log or a page: every field of every part, in every format."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
import types
import typing
import unicodedata
from importlib import import_module
from typing import Any

import pytest
from rich.console import Console

from occupancy_cli.answers.recommend import exports
from occupancy_cli.report import schema
from occupancy_cli.report.check_markdown import render_check_markdown
from occupancy_cli.report.csv_rows import as_csv
from occupancy_cli.report.emit import FORMS, emitted
from occupancy_cli.report.github import render_github
from occupancy_cli.report.gitlab import render_gitlab
from occupancy_cli.report.junit import render_junit
from occupancy_cli.report.provenance import Provenance
from occupancy_cli.report.report import Report
from occupancy_cli.report.sarif import render_sarif
from occupancy_cli.report.terminal import render
from occupancy_cli.report.terminal.console import make_console
from occupancy_cli.report.view import View
from occupancy_cli.report.visible_report import visible_part

HOSTILE = (
    "::error file=x::first\x1b[31m\x00\x07\r\n::error::y\n  ::warning::z ##[group]a ##vso[task]b\u202e\u2028\x9b31m"
    " ::set-output [red]bold[/red] `id` $(id) \"'<script>alert(1)</script>"
)
PARTS: dict[str, Any] = {}
for _module in schema.MODULES:
    PARTS |= vars(import_module(f"occupancy_cli.report.{_module}"))


def filled(kind: Any, text: str = HOSTILE) -> Any:
    """A value of a type with `text` for every text in it, keys included, and something in every list and mapping."""
    if kind is str or kind is object:
        return text
    if kind in (int, float):
        return kind(3)
    if kind is bool:
        return True
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return inside[0]
    if origin is list:
        return [filled(inside[0], text)]
    if origin is tuple:
        return tuple(filled(each, text) for each in inside)
    if origin is dict:
        return {text: filled(inside[1], text)}
    if origin in (typing.Union, types.UnionType):
        chosen = next((k for k in inside if k is str), None) or next(k for k in inside if k is not type(None))
        return filled(chosen, text)
    hints = typing.get_type_hints(kind, {**PARTS, **vars(import_module(kind.__module__))}, include_extras=True)
    return kind(**{f.name: filled(hints[f.name], text) for f in dataclasses.fields(kind)})


def hostile_report() -> Report:
    """Every part, hostile in every text; names that renderers look things up by are theirs."""
    report = filled(Report)
    calculation = dataclasses.replace(
        report.calculation,
        over="shared",
        fits=False,
        occupancy=dataclasses.replace(
            report.calculation.occupancy, limits={"shared": 3}, limited_by=["shared"], unknown={HOSTILE: HOSTILE}
        ),
    )
    sweep = [dataclasses.replace(report.sweep[0], batch=batch) for batch in (3, 4)]
    configs = report.kernels[0].configs
    configs = [dataclasses.replace(configs[0], status=s, fits=s == "ok") for s in ("ok", "over_cap", "failed")]
    kernels = [dataclasses.replace(report.kernels[0], configs=configs)]
    levels: tuple[Any, ...] = ("ok", "violation", "undecided", "note")
    findings = [dataclasses.replace(report.findings[0], level=level) for level in levels]
    changes: dict[str, Any] = {"calculation": calculation, "sweep": sweep, "kernels": kernels, "findings": findings}
    return dataclasses.replace(report, **changes)


REPORT = hostile_report()


def steering(text: str) -> list[str]:
    """What a terminal would obey in `text`, line ends aside."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [t for pair in value.items() for each in pair for t in texts_of(each)]
    if isinstance(value, (list, tuple)):
        return [t for each in value for t in texts_of(each)]
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in texts_of(getattr(value, f.name))]
    return []


def test_the_report_is_hostile_throughout() -> None:
    empty = [f.name for f in dataclasses.fields(REPORT) if getattr(REPORT, f.name) in (None, [])]
    assert empty == []
    assert texts_of(REPORT).count(HOSTILE) > 300


def test_each_text_becomes_visible_and_stays_in_one_line_unless_it_is_prose() -> None:
    for text in texts_of(visible_part(REPORT)):
        assert steering(text) == []
        assert not re.search(r"(?m)^\s*:|\s::|##\[|##vso\[", text)
    assert "\n" not in visible_part(REPORT).kernels[0].name
    assert visible_part(REPORT).kernels[0].configs[0].reason.count("\n") == 2
    plain = Report(command="analyze", toolchain=schema.Toolchain(occupancy="1", triton="plain × text"))
    assert visible_part(plain) is plain


@pytest.mark.parametrize("width", [40, 120, None])
@pytest.mark.parametrize("view", [View(), View(everything=True, plot=False, most_rows=1)])
@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Report)])
def test_a_terminal_is_given_nothing_to_obey(field: str, view: View, width: int | None) -> None:
    keep = {"schema_", "command", "toolchain", "gpu", field}
    rest = {
        f.name: f.default if f.default is not dataclasses.MISSING else f.default_factory()  # type: ignore[misc]
        for f in dataclasses.fields(Report)
        if f.name not in keep
    }
    out = io.StringIO()
    console = make_console(out) if width is None else Console(file=out, width=width)
    render(dataclasses.replace(REPORT, **rest), console, view)
    text = out.getvalue()
    assert steering(text) == []
    # A narrow terminal may fold within a text; what is no terminal folds nowhere.
    assert width is not None or not re.search(r"(?m)^\s*::|##\[|##vso\[", text)
    if width is None and "<script>" in text:
        assert "[red]bold[/red]" in text  # printed as it is, not taken for markup


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"exports"}))
def test_what_is_pasted_carries_no_text_raw(form: str) -> None:
    text = emitted(form, REPORT, Provenance(HOSTILE, HOSTILE))
    assert steering(text) == []
    assert not re.search(r"(?m)^\s*::", text)


def test_exports_are_words_to_a_shell() -> None:
    knob = types.SimpleNamespace(env="MY_BLOCK")
    kernel: Any = types.SimpleNamespace(given=types.SimpleNamespace(spec=types.SimpleNamespace(knobs={"BLOCK": knob})))
    for value in (HOSTILE.replace("\x00", ""), 64, 0.5, True):
        (line,) = exports(kernel, {"BLOCK": value})
        assert shlex.split(line) == ["export", f"MY_BLOCK={value}"]


def test_json_escapes_what_a_terminal_would_obey_and_says_the_same() -> None:
    text = REPORT.to_json()
    assert steering(text) == []
    assert not re.search(r"(?m)^\s*::", text)
    assert json.loads(text)["kernels"][0]["name"] == HOSTILE


@pytest.mark.parametrize(
    "written", [as_csv, render_github, render_gitlab, render_sarif, render_junit, render_check_markdown]
)
def test_other_formats_carry_nothing_raw(written: Any) -> None:
    text = written(REPORT)
    assert steering(text) == []
    if written is not render_github:  # whose lines are such commands, made by itself
        assert not re.search(r"(?m)^\s*::", text)
    if written is render_junit or written is render_check_markdown:
        assert "<script>" not in text
