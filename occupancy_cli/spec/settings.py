"""Values that a person sets (`--set`, `--batch`, environment variables of knobs), and where each came from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import check_launch_option
from occupancy_cli.spec.kernel_spec import Knob, Shape

Value = int | float | bool | str
LIST_LIMIT = 4096


@dataclass(frozen=True)
class Formula:
    """A knob's default that is an expression: its value is known where the shapes are, at a point."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Setting:
    """The values of one name (several: a list to go through) and where they came from, in words."""

    values: tuple[Any, ...]
    origin: str


def parse_settings(texts: Iterable[str]) -> dict[str, Setting]:
    """`NAME=VALUE[,VALUE...]` each; `InputError` names the one that is not of that form."""
    found: dict[str, Setting] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values or not re.fullmatch(r"[A-Za-z_]\w*", name):
            hint = "Write --set NAME=VALUE or --set NAME=VALUE,VALUE."
            raise InputError(f"{text!r} is not a setting", where="--set", hint=hint)
        if name in found:
            hint = f"Several values are one --set {name}=VALUE,VALUE."
            raise InputError(f"{name} is set twice", where=f"--set {text}", hint=hint)
        found[name] = Setting(tuple(parse_value(v) for v in split_outside_brackets(values)), "--set")
        for value in found[name].values:
            check_launch_option(name, value, f"--set {text}")
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{value} is not a finite number", where=f"--set {text}")
    return found


def split_outside_brackets(text: str) -> list[str]:
    """The parts of `text` between the commas that stand outside brackets: a layout may have its own."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parse_value(text: str) -> Value:
    """An integer, a float, true/false, or the text itself."""
    given = text.strip()
    if given.lower() in ("true", "false"):
        return given.lower() == "true"
    if re.fullmatch(r"[+-]?\d[\d_]*", given) and len(given) <= 20:
        return int(given)
    try:
        return float(given)
    except ValueError:
        return given


def parse_range(text: str, where: str) -> tuple[int, ...]:
    """Positive integers as `80`, `48,64,80`, `1:128` (both ends in) or `1:128:8`; several joined by commas."""
    numbers: list[int] = []
    hint = "Write 80, or 48,64,80, or 1:128 (both ends included), or 8:128:8."
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?\s*", part)
        if match is None:
            too_large = re.fullmatch(r"\s*\d+(:\d+){0,2}\s*", part)
            problem = "has more than nine digits" if too_large else "is no positive number or range of them"
            raise InputError(f"{part.strip()!r} {problem}", where=where, hint=hint)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if first < 1 or last < first or step < 1:
            raise InputError(f"{part.strip()!r} is no range of positive numbers", where=where, hint=hint)
        if len(numbers) + (last - first) // step + 1 > LIST_LIMIT:
            raise InputError(f"{text!r} gives more than {LIST_LIMIT:,} values", where=where)
        numbers += range(first, last + 1, step)
    return tuple(dict.fromkeys(numbers))


def shape_settings(shapes: Mapping[str, int | float | Shape]) -> dict[str, Setting]:
    """The defaults of a spec's shapes."""
    return {
        name: Setting((shape.default if isinstance(shape, Shape) else shape,), "spec default")
        for name, shape in shapes.items()
    }


def knob_settings(
    knobs: Mapping[str, Knob],
    environ: Mapping[str, str],
    in_use: Mapping[str, Any] = MappingProxyType({}),
    *,
    ignore_environment: bool = False,
) -> dict[str, Setting]:
    """Each knob's value: its environment variable where that is set, else what the spec says runs today (`in_use`),
    else its default."""
    settings = {}
    for name, knob in knobs.items():
        given = None if ignore_environment or knob.env is None else environ.get(knob.env)
        if given is None and name in in_use:
            settings[name] = Setting((in_use[name],), "in_use")
            continue
        if given is None:
            default = Formula(knob.default) if isinstance(knob.default, str) else knob.default
            settings[name] = Setting((default,), "spec default")
            continue
        value = parse_value(given)
        finite = not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, str) or not finite or isinstance(value, bool) != isinstance(knob.default, bool):
            raise InputError(
                f"{given!r} is no value for the knob {name}",
                where=f"environment variable {knob.env}",
                hint=f"Unset it, or give a number such as {knob.default}.",
            )
        settings[name] = Setting((value,), f"environment {knob.env}")
    return settings


def one_value(values: Sequence[Any], name: str, where: str) -> Any:
    """The single value of `values`; an error when a list was given where one is needed."""
    if len(values) != 1:
        raise InputError(f"{name} has {len(values)} values where one is needed", where=where)
    return values[0]
