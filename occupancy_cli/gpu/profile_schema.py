"""The schemas of profile files, strict, made from the dataclasses of `gpu_profile` so that the two cannot drift apart.

    check_profile(load_yaml(path), GPU_SCHEMA)    # InputError with file, line, column, key and the nearest valid one

Imports pydantic, so it is imported only where a file is checked: one that is not shipped, or that differs from what was
shipped (`shipped_index`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, create_model

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.gpu_profile import STATUSES, ComputeCapability
from occupancy_cli.gpu.profile_form import (
    COMPUTE_CAPABILITY_SCHEMA,
    GPU_SCHEMA,
    GPU_VALUES,
    LIMIT_VALUES,
    expanded,
)
from occupancy_cli.yaml_reader import Document, KeyPath

_Value = TypeVar("_Value")
_MAY_BE_ZERO = {"shared_reserved_per_cta_bytes", "tmem_columns_per_sm"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Capability = Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")]


def _ascending(values: list[int]) -> list[int]:
    if values != sorted(values) or any(v < 0 for v in values):
        raise ValueError("an ascending list of whole numbers is expected")
    return values


class _Disputed(_Strict):
    value: int | float | str
    sources: list[Text] = []
    note: Text = ""


class _Entry(_Strict, Generic[_Value]):
    value: _Value
    status: Literal["documented", "measured", "assumed"]
    sources: list[Text] = []
    note: Text = ""
    disputed: list[_Disputed] = []
    chosen_because: Text = ""


def _kind(name: str, annotation: str) -> Any:
    """The type of a value, from the annotation of its field."""
    if name == "compute_capability":
        return Capability
    if annotation.startswith("bool"):
        return bool
    if annotation.startswith("tuple"):
        return Annotated[list[int], AfterValidator(_ascending)]
    base = int if annotation.startswith("int") else float
    return Annotated[
        base, Field(ge=0, allow_inf_nan=False) if name in _MAY_BE_ZERO else Field(gt=0, allow_inf_nan=False)
    ]


def _section(title: str, fields: Mapping[str, str], required: set[str]) -> Any:
    members: dict[str, Any] = {
        name: (_Entry[_kind(name, annotation)], ... if name in required else None)  # type: ignore[misc]
        for name, annotation in fields.items()
    }
    return create_model(title, __base__=_Strict, **members)


_REQUIRED_LIMITS = {f.name for f in dataclasses.fields(ComputeCapability) if f.default is dataclasses.MISSING}


class _GpuFile(_Strict):
    schema_: Literal["occupancy/gpu-profile/1"] = Field(alias="schema")
    id: Text
    name: Text = ""
    extends: Text = ""
    aliases: list[Text] = []
    alias_notes: dict[Text, Text] = {}
    device_names: list[Text] = []
    sources: dict[Text, Text] = {}
    values: _section("Values", GPU_VALUES, set()) = {}  # type: ignore[valid-type]
    tensor_formats_absent: list[Text] = []
    notes: list[Text] = []


class _LimitsFile(_Strict):
    schema_: Literal["occupancy/compute-capability/1"] = Field(alias="schema")
    compute_capability: Capability
    sources: dict[Text, Text] = {}
    limits: _section("Limits", LIMIT_VALUES, _REQUIRED_LIMITS & set(LIMIT_VALUES))  # type: ignore[valid-type]
    notes: list[Text] = []


_MODELS: dict[str, type[_Strict]] = {GPU_SCHEMA: _GpuFile, COMPUTE_CAPABILITY_SCHEMA: _LimitsFile}
_FORMS = {
    "int_type": "a whole number is expected, not {given}",
    "int_from_float": "a whole number is expected, not {given}",
    "float_type": "a number is expected, not {given}",
    "bool_type": "true or false is expected, not {given}",
    "greater_than": "a number above 0 is expected, not {given}",
    "greater_than_equal": "a number not below 0 is expected, not {given}",
    "string_type": "a text is expected, not {given}",
    "string_too_short": "a text is expected, not {given}",
    "string_pattern_mismatch": "a compute capability such as '12.0' is expected, not {given}",
    "list_type": "a list is expected, not {given}",
    "dict_type": "a mapping is expected, not {given}",
    "model_type": "a mapping is expected, not {given}",
}


def check_profile(document: Document, schema: str) -> None:
    """Refuse a profile file that is not of `schema`; the error says where and what would be right."""
    data = document.data
    if not isinstance(data, dict):
        raise InputError("is not a profile: a mapping of keys is expected", where=document.where(()))
    if data.get("schema") != schema:
        raise InputError(
            f"schema is {data.get('schema')!r}", where=document.where(("schema",)), hint=f"This version reads {schema}."
        )
    try:
        _MODELS[schema].model_validate(expanded(data))
    except ValidationError as bad:
        raise _as_input_error(bad, document, _MODELS[schema]) from None
    section = "values" if schema == GPU_SCHEMA else "limits"
    known = data.get("sources", {})
    for name, entry in data.get(section, {}).items():
        if isinstance(entry, dict):
            _check_sources(document, (section, name), entry, known)


def _check_sources(document: Document, at: KeyPath, entry: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """What the types do not say: a value that is not assumed names its sources, and each has its address."""
    where = document.where(at)
    if entry["status"] != "assumed" and not entry.get("sources"):
        raise InputError(
            f"a {entry['status']} value names its sources", where=where, hint="Add sources, or call it assumed."
        )
    if entry.get("disputed") and not entry.get("chosen_because"):
        raise InputError("a disputed value says why it was chosen", where=where, hint="Add chosen_because.")
    cited = [((*at, "sources", i), key) for i, key in enumerate(entry.get("sources", ()))]
    for place, other in enumerate(entry.get("disputed", ())):
        cited += [((*at, "disputed", place, "sources", i), key) for i, key in enumerate(other.get("sources", ()))]
    for inside, key in cited:
        if key not in known:
            raise unknown_name("source", key, known, where=document.where(inside))


def _as_input_error(bad: ValidationError, document: Document, model: type[BaseModel]) -> InputError:
    # A misspelt key also leaves the right one missing; the misspelling is what helps.
    error = min(bad.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    at: KeyPath = tuple(part for part in error["loc"] if part not in ("int", "float", "str", "[key]"))
    kind = error["type"]
    if kind == "extra_forbidden":
        return unknown_name("key", str(at[-1]), _keys_at(model, at[:-1]), where=document.where(at))
    if kind == "missing":
        return InputError(f"the key {at[-1]!r} is missing", where=document.where(at[:-1]))
    given = repr(error["input"])[:60]
    if kind == "literal_error":
        problem = f"{at[-1]} {given} is none of {', '.join(STATUSES)}"
    elif kind in _FORMS:
        problem = _FORMS[kind].format(given=given)
    else:
        problem = f"{error['msg'].removeprefix('Value error, ')}, not {given}"
    return InputError(problem, where=document.where(at))


def _keys_at(model: type[BaseModel], at: KeyPath) -> list[str]:
    """The keys that a mapping at `at` may have."""
    current: Any = model
    for part in at:
        if isinstance(part, int):
            continue
        current = current.model_fields[part].annotation
        while not hasattr(current, "model_fields") and get_args(current):
            current = get_args(current)[0]
    return [field.alias or name for name, field in current.model_fields.items()]
