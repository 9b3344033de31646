"""The kernel that a reference names in a module, among what a function that makes kernels returns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.loading.kernel_objects import kernel_object


class Kernel:
    """A stand-in for a JIT function."""

    def __init__(self, name: str, value: Any = None) -> None:
        def function() -> None: ...

        function.__name__ = name
        self.fn, self.value = function, value


def module() -> ModuleType:
    made = ModuleType("k")

    def returns_one(value: Any) -> Kernel:
        return Kernel("inner", value)

    def returns_two() -> tuple[Kernel, Kernel]:
        return Kernel("forward"), Kernel("backward")

    def returns_by_name() -> dict[str, Kernel]:
        return {"forward": Kernel("f"), "backward": Kernel("b")}

    def returns_launcher(block: int = 8) -> Any:
        kernel = Kernel("kernel", block)

        def launch() -> Kernel:
            return kernel

        return launch

    def fails() -> None:
        raise ZeroDivisionError("no tiles")

    made.__dict__.update(
        {f.__name__: f for f in (returns_one, returns_two, returns_by_name, returns_launcher, fails)}
        | {"plain": Kernel("plain"), "WIDE": 256}
    )
    return made


def named(text: str) -> Any:
    return kernel_object(module(), text, lambda value: isinstance(value, Kernel))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("plain", "plain", None),
        ("returns_one(64)", "inner", 64),
        ("returns_one(WIDE)", "inner", 256),
        ("returns_one([WIDE, {'a': 1}]).inner", "inner", [256, {"a": 1}]),
        ("returns_two().backward", "backward", None),
        ("returns_by_name().backward", "b", None),
        ("returns_launcher().kernel", "kernel", 8),
        ("returns_launcher(block=16)", "kernel", 16),
    ],
)
def test_what_is_made_is_found(text: str, name: str, value: Any) -> None:
    found = named(text)
    assert (found.fn.__name__, found.value) == (name, value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("returns_two()", "makes several kernels: forward, backward"),
        ("fails()", "fails raises ZeroDivisionError: no tiles"),
        ("returns_one()", "missing 1 required positional argument: 'value'"),
        ("returns_one(NARROW)", "the module has no NARROW"),
        ("WIDE(3)", "WIDE is of type int, and is called"),
    ],
)
def test_what_cannot_be_made_says_why(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        named(text)
    assert said in str(caught.value)


def test_what_is_not_there_is_none() -> None:
    assert named("nothing") is None and named("returns_one(1).other") is None
