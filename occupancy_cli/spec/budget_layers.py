"""Which budgets hold for a config on a GPU: those of a project, of a spec, of a kernel's table, of the command line.

    limits_for(layers, "h200-sxm", {"BLOCK": 64}, resolve)     {"max_spill_bytes": Limit(0, "pyproject.toml:7"), ...}

Layers come in order, and a later one wins, rule by rule: the project's are the common ones, a spec's its kernel's own,
the command line's what is asked now. Within a layer an entry of a list wins over those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.spec.kernel_spec import Budgets, KernelSpecFile, build_models
from occupancy_cli.spec.settings import parse_value
from occupancy_cli.yaml_reader import Document, KeyPath

SELECTORS = frozenset({"gpus", "configs", "batches"})
BUDGETS_OF_SHARED_MEMORY = frozenset({"fits", "max_shared_bytes"})
"""What is known when shared memory is allocated; every other rule needs the whole compile."""
OF_ACCESSES = frozenset({"max_bank_conflict_ways"})
"""What is found by following the machine code of a launch."""
OF_LAUNCHES = frozenset({"min_wave_efficiency", "max_predicted_time_us"})
"""What depends on the grid too."""


@dataclass(frozen=True)
class BudgetLayer:
    """Budgets from one place: `where` names it in errors, `origin` beside a limit ("" for the kernel's own spec)."""

    budgets: Budgets
    where: str
    origin: str = ""


@dataclass(frozen=True)
class Limit:
    """The limit of one rule, where it is from, and the batches that it is for (none: the shape's own value)."""

    value: Any
    origin: str = ""
    batches: tuple[int, ...] = ()


def layers_from(
    budgets: Budgets | Sequence[Budgets], document: Document, at: KeyPath, *, named: bool = False
) -> tuple[BudgetLayer, ...]:
    """The layers of the budgets that stand in a document; `named`: say at each limit which line it is from."""
    if isinstance(budgets, Budgets):
        entries: list[tuple[Budgets, KeyPath]] = [(budgets, at)]
    else:
        entries = [(entry, (*at, i)) for i, entry in enumerate(budgets)]
    layers = []
    for entry, place in entries:
        line = document.line(place)
        origin = f"{document.path}:{line}" if line else document.path
        layers.append(BudgetLayer(entry, document.where(place), origin if named else ""))
    return tuple(layers)


def spec_layers(spec: KernelSpecFile, document: Document) -> tuple[BudgetLayer, ...]:
    """The layers of a spec's own budgets."""
    return layers_from(spec.check.budgets, document, ("check", "budgets"))


def parse_budgets(texts: Iterable[str]) -> tuple[BudgetLayer, ...]:
    """`NAME=VALUE` each, as `--budget` takes them; `InputError` for one that is no budget or has no such value."""
    build_models()
    valid = [n for n in Budgets.model_fields if n not in SELECTORS]
    layers: list[BudgetLayer] = []
    for text in texts:
        where = f"--budget {text}"
        name, equals, value = text.partition("=")
        if not equals or not value:
            hint = "Write --budget NAME=VALUE: --budget max_spill_bytes=0."
            raise InputError(f"{text!r} is no budget", where="--budget", hint=hint)
        if name not in valid:
            raise unknown_name("budget", name, valid, where=where)
        if any(getattr(layer.budgets, name) is not None for layer in layers):
            raise InputError(f"{name} is given twice", where=where)
        try:
            layers.append(BudgetLayer(Budgets.model_validate({name: parse_value(value)}), where, "--budget"))
        except ValidationError as bad:
            said = bad.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"{said[0].lower()}{said[1:]}", where=where) from None
    return tuple(layers)


def rules_of(layers: Sequence[BudgetLayer]) -> frozenset[str]:
    """The rules that some layer has, whatever config or GPU they are for."""
    names = [n for n in Budgets.model_fields if n not in SELECTORS]
    return frozenset(n for n in names for layer in layers if getattr(layer.budgets, n) is not None)


def batches_of(layers: Sequence[BudgetLayer]) -> tuple[int, ...]:
    """The batches that some layer names, each once."""
    return tuple(dict.fromkeys(n for layer in layers for n in layer.budgets.batches))


def limits_for(
    layers: Sequence[BudgetLayer], gpu_id: str, values: Mapping[str, Any], gpu_id_of: Callable[[str], str]
) -> dict[str, Limit]:
    """The limit of each rule for a config with these `values` on the GPU; `gpu_id_of` gives the id behind a name."""
    found: dict[str, Limit] = {}
    for layer in layers:
        budgets = layer.budgets
        if budgets.gpus and gpu_id not in {gpu_id_of(name) for name in budgets.gpus}:
            continue
        if budgets.configs and not any(matches(values, wanted) for wanted in budgets.configs):
            continue
        for rule in rules_of([layer]):
            batches = tuple(budgets.batches) if rule in OF_LAUNCHES else ()
            found[rule] = Limit(getattr(budgets, rule), layer.origin, batches)
    return found


def matches(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether each name has the value, or one of the values, that are wanted of it."""
    return all(values.get(n) in (w if isinstance(w, list) else [w]) for n, w in wanted.items())
