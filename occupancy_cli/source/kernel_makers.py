"""Kernels that functions of a file make: they exist only once their function was called.

def make(block): ...    ->    Maker("make", ("block",), "kernel", 6)
    @triton.jit
    def kernel(...): ...
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.source_files import read_source
from occupancy_cli.source.syntax import dotted_name


@dataclass(frozen=True)
class Maker:
    """A function with its parameters that have no default, and a kernel that is defined inside it with its line."""

    function: str
    parameters: tuple[str, ...]
    kernel: str
    line: int

    def reference(self) -> str:
        """How its kernel is named: `make(block=...).kernel`."""
        return f"{self.function}({', '.join(f'{p}=...' for p in self.parameters)}).{self.kernel}"


def makers_in(path: Path) -> list[Maker]:
    """The functions of the file at `path` that define kernels, in its order; none where it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(path, read_source(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        Maker(outer.name, _required(outer), inner.name, inner.lineno)
        for outer in tree.body
        if isinstance(outer, ast.FunctionDef) and not _is_kernel(outer)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.FunctionDef) and inner is not outer and _is_kernel(inner)
    ]


def _is_kernel(function: ast.FunctionDef) -> bool:
    for decorator in function.decorator_list:
        name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name.rpartition(".")[2] == "jit":
            return True
    return False


def _required(function: ast.FunctionDef) -> tuple[str, ...]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args]
    names = [a.arg for a in every[: len(every) - len(arguments.defaults)]]
    names += [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    return tuple(names)
