"""Typed values as JSON and back, strictly: what processes, the cache and files exchange is defined by dataclasses.

    text = to_json(KernelSource("decode", "k.py"))         {"kernel": "decode", "file": "k.py", "module": null}
    from_json(KernelSource, text)                          the same value
    from_json(KernelSource, '{"kernel": 3}')               WrongData: kernel: 3 is no text

One definition, the dataclass, is the schema: a field that is missing, unknown or of another type is refused by its
name. Understood are str, int, float (an int will do; NaN is none), bool, None, unions, `Literal`, tuples, `Mapping`
from str, dataclasses, and `Any` for a plain value whose type is whatever a kernel's author wrote.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_Decoder = Callable[[Any, str], Any]


class WrongData(ValueError):
    """Data that is not what its schema says. The text names the field, the value and what it should be."""


def to_json(value: Any) -> str:
    """A value as one line of JSON."""
    return json.dumps(to_plain(value), sort_keys=True)


def from_json(kind: type[T], text: str | bytes) -> T:
    """The value of type `kind` that `to_json` wrote; `WrongData` when the text is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise WrongData(f"is no JSON: {bad}") from bad
    return from_plain(kind, data)


def to_plain(value: Any) -> Any:
    """A value as what JSON has: dataclasses and mappings as objects, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    return value


def from_plain(kind: type[T], data: Any, at: str = "") -> T:
    """The value of type `kind` in what JSON gave. `at` is the name that errors begin with."""
    hashable: Any = kind
    found: T = _decoder(hashable)(data, at)
    return found


@functools.lru_cache(maxsize=256)
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


@functools.lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _shown(data: Any) -> str:
    text = json.dumps(data) if isinstance(data, (dict, list)) else repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong(data: Any, at: str, expected: str) -> WrongData:
    return WrongData(f"{at or 'the value'}: {_shown(data)} is no {expected}")


@functools.lru_cache(maxsize=1024)
def _decoder(kind: Any) -> _Decoder:
    if kind is Any:
        return lambda data, _at: data
    if kind is None or kind is type(None):
        return _exactly(type(None), "null")
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is tuple:
        return _many(arguments[0]) if arguments[1:] == (Ellipsis,) else _each(arguments)
    if origin is collections.abc.Mapping:
        return _mapping(arguments[1])
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind)
    raise TypeError(f"typed_json does not know {kind}")


def _exactly(kind: type[Any], expected: str) -> _Decoder:
    def decode(data: Any, at: str) -> Any:
        if type(data) is not kind:
            raise _wrong(data, at, expected)
        return data

    return decode


def _float(data: Any, at: str) -> float:
    if type(data) not in (int, float) or math.isnan(data):
        raise _wrong(data, at, "number")
    try:
        return float(data)
    except OverflowError:
        raise _wrong(data, at, "number") from None


_PLAIN: dict[Any, _Decoder] = {
    str: _exactly(str, "text"),
    int: _exactly(int, "whole number"),
    bool: _exactly(bool, "true or false"),
    float: _float,
}


def _union(kinds: tuple[Any, ...]) -> _Decoder:
    decoders = [_decoder(kind) for kind in kinds]

    def decode(data: Any, at: str) -> Any:
        problem = None
        for each in decoders:
            try:
                return each(data, at)
            except WrongData as wrong:
                problem = problem or wrong
        raise problem if len(decoders) <= 2 and problem is not None else _wrong(data, at, "value of a known type")

    return decode


def _literal(values: tuple[Any, ...]) -> _Decoder:
    def decode(data: Any, at: str) -> Any:
        if not any(type(data) is type(value) and data == value for value in values):
            raise _wrong(data, at, " or ".join(str(value) for value in values))
        return data

    return decode


def _many(kind: Any) -> _Decoder:
    decoder = _decoder(kind)

    def decode(data: Any, at: str) -> Any:
        if not isinstance(data, list):
            raise _wrong(data, at, "list")
        return tuple([decoder(each, f"{at}[{i}]") for i, each in enumerate(data)])

    return decode


def _each(kinds: tuple[Any, ...]) -> _Decoder:
    decoders = [_decoder(kind) for kind in kinds]

    def decode(data: Any, at: str) -> Any:
        if not isinstance(data, list) or len(data) != len(decoders):
            raise _wrong(data, at, f"list of {len(decoders)}")
        return tuple([each(value, f"{at}[{i}]") for i, (each, value) in enumerate(zip(decoders, data, strict=True))])

    return decode


def _mapping(kind: Any) -> _Decoder:
    decoder = _decoder(kind)

    def decode(data: Any, at: str) -> Any:
        if not isinstance(data, dict):
            raise _wrong(data, at, "object")
        return {name: decoder(value, f"{at}.{name}" if at else name) for name, value in data.items()}

    return decode


def _dataclass(kind: Any) -> _Decoder:
    hints = _hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind) if field.init}

    def decode(data: Any, at: str) -> Any:
        if not isinstance(data, dict):
            raise _wrong(data, at, "object")
        prefix = f"{at}." if at else ""
        if data.keys() != decoders.keys():
            for name in decoders:
                if name not in data:
                    raise WrongData(f"{prefix}{name} is missing")
            raise WrongData(f"{prefix}{next(name for name in data if name not in decoders)} is not known here")
        return kind(**{name: each(data[name], f"{prefix}{name}") for name, each in decoders.items()})

    return decode
