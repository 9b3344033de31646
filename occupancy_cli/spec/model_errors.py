"""What is wrong with a file that people write: pydantic's complaint as a sentence with its place and the right form."""

from __future__ import annotations

from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from occupancy_cli.errors import InputError, nearest
from occupancy_cli.yaml_reader import Document, KeyPath

_UNION_TAGS = ("int", "float", "bool", "str", "Shape", "EachValue", "ConfigProduct", "ConfigTable", "Budgets")


def input_error(bad: ValidationError, document: Document, root: type[BaseModel]) -> InputError:
    """What pydantic found wrong with a document whose schema is `root`, as one sentence."""

    def place(error: Any) -> KeyPath:
        *inside, last = error["loc"] or ("",)
        # An unknown or missing key stands last, whatever its name looks like.
        ends_in_key = error["type"] in ("extra_forbidden", "missing")
        parts = [p for p in inside if isinstance(p, int) or not _is_union_tag(p)]
        return (*parts, last) if ends_in_key or isinstance(last, int) or not _is_union_tag(last) else tuple(parts)

    # A key that one member of a union does not know may be another member's own.
    every = bad.errors(include_url=False)
    errors = [e for e in every if e["type"] != "extra_forbidden" or place(e)[-1] not in _keys_at(root, place(e)[:-1])]
    # Of a union's several complaints the one furthest inside speaks of what was meant.
    error = max(errors or every, key=lambda e: (len(e["loc"]), e["type"] == "extra_forbidden", e["type"] != "missing"))
    at = place(error)
    value = error.get("input")
    shown = "" if isinstance(value, (dict, list)) else f" (given: {str(value)[:60]!r})"
    if error["type"] == "extra_forbidden":
        valid = _keys_at(root, at[:-1])
        close = nearest(str(at[-1]), valid)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Valid keys: {', '.join(sorted(valid))}"
        return InputError(f"unknown key {at[-1]!r}", where=document.where(at), hint=hint)
    if error["type"] == "missing":
        return InputError(f"the key {at[-1]!r} is missing", where=document.where(at[:-1]))
    if error["type"] in ("too_short", "too_long"):
        counts = error["ctx"]
        allowed = f"at least {counts['min_length']}" if "min_length" in counts else f"at most {counts['max_length']}"
        return InputError(f"has {counts['actual_length']} values, {allowed} are needed", where=document.where(at))
    if error["type"] in ("literal_error", "model_type", "dict_type"):
        # Of a choice among several forms pydantic names one.
        form, keys = _form_at(root, at), _keys_at(root, at)
        if form or keys:
            form = form or f"a mapping with the keys {', '.join(keys)}"
            given = "a list" if isinstance(value, list) else repr(value)[:60]
            return InputError(f"{given} is no value for it", where=document.where(at), hint=f"It is {form}.")
    message = error["msg"].removeprefix("Value error, ")
    return InputError(f"{message[0].lower()}{message[1:]}{shown}", where=document.where(at))


def _is_union_tag(part: str) -> bool:
    return part in _UNION_TAGS or "[" in part


def _keys_at(root: type[BaseModel], at: KeyPath) -> list[str]:
    """The valid keys of the mapping at `at`."""
    return list(_fields_in(_models_at(root, at)))


def _form_at(root: type[BaseModel], at: KeyPath) -> str:
    """What the schema says of the key at `at`, or of the list there; nothing for a name inside a mapping of names."""
    while at and isinstance(at[-1], int):
        at = at[:-1]
    field = _fields_in(_models_at(root, at[:-1])).get(str(at[-1])) if at else None
    if field is None:
        return ""
    if get_origin(field.annotation) is dict and not field.description:
        return "a mapping from names, each with its own value"
    return field.description or ""


def _models_at(root: type[BaseModel], at: KeyPath) -> list[type[BaseModel]]:
    """What the value at `at` may be, by walking the models."""
    models: list[type[BaseModel]] = [root]
    for part in at:
        if isinstance(part, int):
            continue
        field = _fields_in(models).get(part)
        if field is None:  # a name of the user's inside a mapping such as `arguments`
            continue
        models = _models_in(field.annotation)
        if not models:
            return []
    return models


def _fields_in(models: list[type[BaseModel]]) -> dict[str, FieldInfo]:
    return {f.alias or n: f for m in models for n, f in m.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in getattr(annotation, "__args__", ()) for m in _models_in(a)]
