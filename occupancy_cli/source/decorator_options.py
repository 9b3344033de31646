"""What decorators carry of a kernel's launch, whether their package is installed or not.

    @tuner(configs=[triton.Config(...)], key=["n"])      configs
    @heuristics.template(num_stages=5, num_warps=8)      options
    @heuristics.pointwise(triton_meta={...})             types of arguments and constants, no options

What is given and cannot be worked out is `NotRead`, with the decorator's name and line.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from occupancy_cli.model.launch_options import LAUNCH_OPTIONS, OPTIONS
from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.knob_types import NotRead, SourceLaunch
from occupancy_cli.source.module_names import Module, last_name, shown
from occupancy_cli.source.static_values import ConfigValue, ConstexprText, SourceText, dotted_value, evaluate
from occupancy_cli.source.syntax import dotted_name, is_triton

_DTYPES = ("bfloat16", "float16", "float32", "float64", "float8", "int8", "int16", "int32", "int64", "uint", "int1")


class DecoratorReader:
    """Reads the decorators of one kernel; `parameters` are its own."""

    def __init__(self, path: Path, module: Module, parameters: Sequence[str]) -> None:
        self.path, self.module, self.parameters = path, module, parameters

    def kind(self, decorator: ast.expr) -> str:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = last_name(called)
        dotted = self._resolved(called)
        if name in ("staticmethod", "classmethod", "jit", "heuristics") and (
            is_triton(dotted) or name in ("staticmethod", "classmethod")
        ):
            return "jit"
        if name == "autotune" and is_triton(dotted):
            return "autotune"
        return "foreign" if name not in ("jit",) else "jit"

    def _resolved(self, node: ast.expr) -> str:
        dotted = dotted_name(node)
        head, dot, rest = dotted.partition(".")
        return self.module.imports.get(head, head) + dot + rest

    def is_opaque(self, decorator: ast.expr) -> bool:
        """Whether what a decorator does is not seen by loading the file: its package is absent, or it is Inductor's,
        which chooses options when the kernel runs."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self.is_absent(decorator) or ".triton_heuristics" in self._resolved(called)

    def is_absent(self, decorator: ast.expr) -> bool:
        """Whether what a decorator is imported from is not installed."""
        from occupancy_cli.source.source_knobs import resolve_import

        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        head = dotted_name(called).partition(".")[0]
        dotted = self.module.imports.get(head)
        if dotted is None:
            return False
        if dotted.startswith("."):
            return resolve_import(self.path, dotted) is None and resolve_import(self.path, _owner(dotted)) is None
        top = dotted.partition(".")[0]
        if (self.path.parent / top).exists() or (self.path.parent / f"{top}.py").is_file():
            return False
        try:
            return importlib.util.find_spec(top) is None
        except (ImportError, ValueError):
            return True

    def lost(self, decorator: ast.expr, why: str, name: str = "") -> NotRead:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        return NotRead(
            name, self.path.name, decorator.lineno, f"the decorator @{dotted_name(called)} is not read: {why}"
        )

    def autotune_not_read(self, decorator: ast.expr) -> NotRead | None:
        if not isinstance(decorator, ast.Call):
            return None
        given = {k.arg: k.value for k in decorator.keywords}
        source = given.get("configs", decorator.args[0] if decorator.args else None)
        if source is None:
            return None
        try:
            self._configs(source)
        except NotStatic as why:
            text = f"the configs of @{dotted_name(decorator.func)}, {shown(source)}, are not read: {why}"
            return NotRead("", self.path.name, decorator.lineno, text)
        return None

    def _configs(self, node: ast.expr) -> list[dict[str, Any]]:
        found = evaluate(node, self.module)
        if not isinstance(found, (list, tuple)) or not all(isinstance(c, ConfigValue) for c in found):
            raise NotStatic(f"{shown(node)} is not known")
        configs = [c.values() for c in found]
        for config in configs:
            unknown = next((v.text for v in config.values() if isinstance(v, SourceText)), None)
            if unknown is not None:
                raise NotStatic(f"{unknown} is not known")
        return [{n: carried_value(v) for n, v in c.items()} for c in configs]

    def carried(self, decorator: ast.expr) -> tuple[list[SourceLaunch], list[NotRead], dict[str, str]]:
        """What a decorator that is not Triton's carries: configs, or options and constants; what of it is not known."""
        if not isinstance(decorator, ast.Call):
            return [], [], {}
        how = f"the decorator @{dotted_name(decorator.func)}"
        given = {k.arg: k.value for k in decorator.keywords if k.arg is not None}
        spread = any(k.arg is None for k in decorator.keywords)
        missed = [self.lost(decorator, "it is given **keywords")] if spread else []
        values: dict[str, Any] = {}
        for name in LAUNCH_OPTIONS:
            if name in given:
                try:
                    values[name] = option_value(name, evaluate(given[name], self.module))
                except NotStatic as why:
                    missed.append(self.lost(decorator, f"{name}: {why}", name))
        meta = given.get("triton_meta")
        entries = dict(dict_entries(meta)) if isinstance(meta, ast.Dict) else {}
        for constants in (given.get("constants"), entries.get("constants")):
            if constants is not None:
                try:
                    found = evaluate(constants, self.module)
                    values |= {str(n): carried_value(v) for n, v in dict(found).items() if n in self.parameters}
                except (NotStatic, TypeError, ValueError) as why:
                    missed.append(self.lost(decorator, f"constants: {why}"))
        types: dict[str, str] = {}
        if "signature" in entries:
            try:
                types = {str(n): str(t) for n, t in dict(evaluate(entries["signature"], self.module)).items()}
            except (NotStatic, TypeError, ValueError) as why:
                missed.append(self.lost(decorator, f"signature: {why}"))
        source = given.get("configs")
        if source is None and decorator.args and isinstance(decorator.args[0], (ast.List, ast.ListComp)):
            source = decorator.args[0]
        if source is not None:
            try:
                rows = self._configs(source)
            except NotStatic as why:
                return [], [*missed, self.lost(decorator, f"its configs, {shown(source)}: {why}")], types
            return (
                [SourceLaunch({**values, **row}, self.path.name, decorator.lineno, how) for row in rows],
                missed,
                types,
            )
        if set(values) & set(LAUNCH_OPTIONS):
            return [SourceLaunch(values, self.path.name, decorator.lineno, how)], missed, types
        return [], missed, types


def dict_entries(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _owner(dotted: str) -> str:
    return dotted.rpartition(".")[0] or "."


def carried_value(value: Any) -> Any:
    """A value as a launch has it: a number, truth value or text, the text of a layout or of a Triton type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, ConstexprText):
        return value.text
    name = dotted_value(value).rpartition(".")[2]
    if name.startswith(_DTYPES):
        return f"tl.{name}"
    raise NotStatic("it is no number, text or type")


def option_value(name: str, value: Any) -> Any:
    value = carried_value(value)
    if name in OPTIONS and value is not None and (kind := OPTIONS[name].wrong(value)):
        raise NotStatic(f"{value!r} is not {kind}")
    return value
