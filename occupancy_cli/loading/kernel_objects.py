"""The object that a reference names in a loaded module, with the calls of functions that make kernels.

What such a function returns is searched for the kernel: the object itself, an attribute, an entry, or a name that the
returned function closes over, in this order. Calling it runs the file's own code, as loading the file did.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.spec.kernel_path import FactoryCall, Named, kernel_steps

IsKernel = Callable[[Any], bool]


def kernel_object(module: ModuleType, text: str, is_kernel: IsKernel) -> Any:
    """What `text` names in a module: a kernel, what else stands there, or None for nothing.

    `InputError` for a function that cannot be called as the reference says.
    """
    value: Any = module
    for step in kernel_steps(text):
        value = _inside(value, step.name, is_kernel)
        if value is not None and step.call is not None:
            value = _made(module, value, step.name, step.call)
        if value is None:
            return None
    if is_kernel(value):
        return value
    made = list(_kernels_of(value, is_kernel)) if "(" in text else []
    if len(made) > 1:
        names = ", ".join(name for name, _ in made)
        raise InputError(f"{text} makes several kernels: {names}", hint=f"Name one: {text}.{made[0][0]}")
    return made[0][1] if made else value


def _inside(value: Any, name: str, is_kernel: IsKernel) -> Any:
    found = getattr(value, name, None)
    if found is None and not isinstance(value, ModuleType):
        found = dict(_kernels_of(value, is_kernel)).get(name)
    return found


def _kernels_of(value: Any, is_kernel: IsKernel) -> Iterator[tuple[str, Any]]:
    """The kernels in what a function returned, by name."""
    if is_kernel(value):
        yield _name_of(value), value
    elif isinstance(value, Mapping):
        yield from ((str(name), each) for name, each in value.items() if is_kernel(each))
    elif isinstance(value, (list, tuple)):
        yield from ((_name_of(each), each) for each in value if is_kernel(each))
    elif isinstance(value, FunctionType):
        closed_over = inspect.getclosurevars(value).nonlocals
        yield from ((name, each) for name, each in closed_over.items() if is_kernel(each))
    elif hasattr(value, "__dict__"):
        yield from ((name, each) for name, each in vars(value).items() if is_kernel(each))


def _name_of(kernel: Any) -> str:
    while not isinstance(kernel, FunctionType) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", ""))


def _made(module: ModuleType, function: Any, name: str, call: FactoryCall) -> Any:
    file = getattr(module, "__file__", None)
    where = str(file or module.__name__)
    if not callable(function):
        raise InputError(f"{name} is of type {type(function).__name__}, and is called", where=where)
    positional = [_argument(module, value, where) for value in call.positional]
    keywords = {n: _argument(module, value, where) for n, value in call.keywords.items()}
    try:
        return function(*positional, **keywords)
    except Exception as bad:  # the file's own code may raise anything
        frames = [frame for frame in traceback.extract_tb(bad.__traceback__) if frame.filename == file]
        line = f" (line {frames[-1].lineno})" if frames else ""
        raise InputError(f"{name} raises {type(bad).__name__}: {bad}{line}", where=where) from bad


def _argument(module: ModuleType, value: Any, where: str) -> Any:
    """A value as a factory takes it, with the names in it looked up in its module."""
    if isinstance(value, Named):
        found: Any = module
        for part in value.path:
            found = getattr(found, part, None)
        if found is None:
            raise InputError(f"the module has no {'.'.join(value.path)}", where=where)
        return found
    if isinstance(value, (list, tuple)):
        return type(value)(_argument(module, each, where) for each in value)
    if isinstance(value, dict):
        return {n: _argument(module, each, where) for n, each in value.items()}
    return value
