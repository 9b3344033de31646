"""A kernel as a file that stands alone: its source, the JIT functions it calls, the constants they had when it ran.

A kernel in the user's script cannot be imported again without running the script, and a library decides at import,
from the GPU it sees, what some helpers are. So the functions are written down as they were at the launch: Triton's own
text of each function, its signature rebuilt from the parameters Triton saw, every global name that it reads bound to
the value it had. Values that are no Triton object, number, text or JIT function are left out, and said to be.

Decorators are not carried: what @triton.autotune and @triton.heuristics give is in the recorded launch.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

_RESERVED = {"triton": triton, "tl": tl}
MAX_FUNCTIONS = 400


class CannotSnapshot(Exception):
    """Why a kernel cannot be written down, in words."""


@dataclass(frozen=True)
class Snapshot:
    """`text` is the file, `kernel` the name in it; `baked` are parameters turned into constants, `left_out` is what
    the file lacks, `imports` the modules beside Triton and the standard library that it needs, `removed` the names of
    `triton.language` that it uses and this Triton does not have any more."""

    text: str
    kernel: str
    baked: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def snapshot(kernel: JITFunction, baked: Mapping[str, Any] | None = None) -> Snapshot:
    """Write `kernel` down. `baked` maps parameters whose values no spec can carry (a dtype, a function) to them.

    Raises `CannotSnapshot`.
    """
    writer = _Writer()
    constants = dict(baked or {})
    name = writer.function(kernel, constants)
    return Snapshot(
        writer.text(kernel),
        name,
        {n: _shown(v) for n, v in constants.items()},
        tuple(writer.left_out),
        tuple(sorted(writer.imports)),
        tuple(sorted(writer.removed)),
    )


def literal(value: Any) -> str | None:
    """Python text for a plain value (numbers, text, None, tuples of them, Triton dtypes), or None."""
    if isinstance(value, tl.constexpr):
        inner = literal(value.value)
        return None if inner is None else f"tl.constexpr({inner})"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f"float({str(float(value))!r})"
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, tl.dtype) and type(value) is tl.dtype:
        return f"tl.dtype({value.name!r})"
    if type(value) is tuple:
        parts = [literal(v) for v in value]
        if any(p is None for p in parts):
            return None
        return "(" + ", ".join(str(p) for p in parts) + ("," if len(parts) == 1 else "") + ")"
    return None


def _shown(value: Any) -> str:
    return literal(value) or str(getattr(value, "__name__", "") or repr(value))


def is_jit_callable(value: Any) -> bool:
    """Whether `value` is a function that Triton compiles (`@triton.jit`) or calls while compiling
    (`@triton.constexpr_function`, where this Triton has that as a class)."""
    return isinstance(value, JITFunction) or type(value).__name__ == "ConstexprFunction"


class _Writer:
    """Collects definitions; every distinct value gets a name of its own."""

    def __init__(self) -> None:
        self._taken: dict[str, Any] = dict(_RESERVED)
        self._named: dict[int, str] = {}
        self._alive: list[Any] = []
        self._header: list[str] = []
        self._constants: list[str] = []
        self._functions: list[str] = []
        self.left_out: list[str] = []
        self.imports: set[str] = set()
        self.removed: set[str] = set()

    def text(self, kernel: JITFunction) -> str:
        head = [
            f"# {kernel.fn.__qualname__} as it was in memory, from {_file(kernel)}:{line_of(kernel)}.",
            "# JIT functions and constants as they were then, without decorators.",
        ]
        head += [f"# Left out: {one}" for one in self.left_out]
        imports = ["import triton", "import triton.language as tl", *sorted(self._header)]
        parts = ["\n".join([*head, "", *imports])]
        if self._constants:
            parts.append("\n".join(self._constants))
        return "\n\n".join(parts) + "\n\n\n" + "\n\n\n".join(self._functions) + "\n"

    # --- names ---

    def _name_for(self, wanted: str, value: Any) -> tuple[str, bool]:
        """A free name for `value`, and whether it is new."""
        # Small values have no identity worth keeping: `X = 64` in two modules may be one object.
        if id(value) in self._named and not isinstance(value, (int, float, str, tuple, type(None))):
            return self._named[id(value)], False
        name, n = wanted, 2
        while name in self._taken or hasattr(builtins, name):
            if name in self._taken and self._same(self._taken[name], value):
                return name, False
            name, n = f"{wanted}_{n}", n + 1
        self._taken[name] = value
        self._named[id(value)] = name
        self._alive.append(value)
        return name, True

    @staticmethod
    def _same(a: Any, b: Any) -> bool:
        if a is b:
            return True
        text = literal(a)
        return text is not None and text == literal(b) and type(a) is type(b)

    # --- functions ---

    def function(self, jit: Any, baked: Mapping[str, Any]) -> str:
        """Define `jit` and whatever it reaches; the name it has in the file."""
        name, new = self._name_for(jit.fn.__name__, jit)
        if not new:
            return name
        if len(self._taken) > MAX_FUNCTIONS:
            raise CannotSnapshot(f"it reaches more than {MAX_FUNCTIONS} names")
        source = _source(jit)
        node = _definition(jit, source)
        scope = _scope(jit)
        local = _local_names(node)
        lost = sorted(n for n in baked if n in _assigned_names(node))
        if lost:
            raise CannotSnapshot(f"the constexpr {', '.join(lost)} is assigned to in the kernel")
        renamed: dict[str, str] = {}
        for param, value in baked.items():
            renamed[param] = self._constant(param, value, constexpr=True)
        for read in _read_names(node):
            if read in baked or read in local or read not in scope:
                continue
            new_name = self._global(read, scope[read], node, scope)
            if new_name is not None and new_name != read:
                renamed[read] = new_name
        clash = sorted(local & {new for old, new in renamed.items() if old != new})
        if clash:
            raise CannotSnapshot(f"{jit.fn.__name__} has local names that its globals would need: {', '.join(clash)}")
        body = _body(source, node, {old: new for old, new in renamed.items() if old != new})
        signature = self._signature(jit, baked)
        where = f"# {_file(jit)}:{line_of(jit)}"
        self._functions.append(f"{where}\n{self._decorator(jit)}\ndef {name}({signature}):\n{body}")
        return name

    def _decorator(self, jit: Any) -> str:
        if not isinstance(jit, JITFunction):
            return "@triton.constexpr_function"
        options = []
        for key in ("do_not_specialize", "do_not_specialize_on_alignment"):
            names = [p.name for p in jit.params if getattr(p, key, False)]
            if names:
                options.append(f"{key}={names!r}")
        if jit.noinline:
            options.append("noinline=True")
        is_gluon = getattr(jit, "is_gluon", None)
        if is_gluon is not None and is_gluon():
            self._header.append("from triton.experimental import gluon")
            return f"@gluon.jit({', '.join(options)})" if options else "@gluon.jit"
        return f"@triton.jit({', '.join(options)})" if options else "@triton.jit"

    def _signature(self, jit: Any, baked: Mapping[str, Any]) -> str:
        parts = []
        starred = False
        annotations = {p.name: p for p in getattr(jit, "params", ())}
        for name, parameter in inspect.signature(jit.fn).parameters.items():
            if name in baked:
                continue
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                parts.append(f"*{name}")
                starred = True
                continue
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                parts.append(f"**{name}")
                continue
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            text = name
            param = annotations.get(name)
            if param is not None and param.is_constexpr:
                text += ": tl.constexpr"
            elif param is not None and (param.annotation_type or param.is_const):
                text += f": {param.annotation!r}"
            # A baked parameter leaves a gap that only the others' values by name can bridge: a recorded launch has
            # all of them, so that its kernel needs no defaults.
            if parameter.default is not inspect.Parameter.empty and not baked:
                text += f" = {self._default(jit, name, parameter.default)}"
            parts.append(text)
        return ", ".join(parts)

    def _default(self, jit: Any, name: str, value: Any) -> str:
        text = literal(value)
        if text is not None:
            return text
        if is_jit_callable(value):
            return self.function(value, {})
        raise CannotSnapshot(f"the default of {name} in {jit.fn.__name__} is {type(value).__name__}, not a plain value")

    # --- globals ---

    def _global(self, name: str, value: Any, node: ast.FunctionDef, scope: Mapping[str, Any]) -> str | None:
        """Bind a global name to the value it has; the name it gets, None when it is left out."""
        if isinstance(value, types.ModuleType):
            return self._module(name, value, node)
        imported = self._import_from(name, value)
        if imported is not None:
            return imported
        if is_jit_callable(value):
            return self.function(value, {})
        if literal(value) is not None:
            annotated = "constexpr" in str(scope.get("__annotations__", {}).get(name, ""))
            return self._constant(name, value, annotated=annotated)
        inner = getattr(value, "fn", None)
        if inner is not None and is_jit_callable(inner):  # an autotuned kernel called from another: its function
            return self.function(inner, {})
        module = getattr(value, "__module__", None) or ""
        if callable(value) and module not in ("", "__main__", "builtins") and _reachable(module, value):
            self._import(f"from {module} import {value.__qualname__}", name, value.__qualname__)
            self.imports.add(module.partition(".")[0])
            return name
        if not hasattr(builtins, name):
            note = f"{name}, {_described(value)}"
            if note not in self.left_out:
                self.left_out.append(note)
        return None

    def _constant(self, wanted: str, value: Any, *, annotated: bool = False, constexpr: bool = False) -> str:
        if is_jit_callable(value):
            return self.function(value, {})
        text = literal(value)
        if text is None:
            raise CannotSnapshot(f"{wanted} is {_described(value)}, which no file can carry")
        wraps = not isinstance(value, tl.constexpr) and not annotated
        allowed = _plain_globals_allowed() and not isinstance(value, tl.dtype)
        name, new = self._name_for(wanted, value)
        if new:
            if wraps and (constexpr or allowed):
                text = f"tl.constexpr({text})"
            mark = ": tl.constexpr" if annotated else ""
            self._constants.append(f"{name}{mark} = {text}")
        return name

    def _import_from(self, name: str, value: Any) -> str | None:
        """Import what is Triton's own."""
        module = getattr(value, "__module__", None)
        if not isinstance(module, str) or module.partition(".")[0] != "triton":
            return None
        if isinstance(value, (tl.constexpr, tl.dtype)):
            return None
        own = getattr(value, "__name__", None) or getattr(getattr(value, "fn", None), "__name__", None)
        if not isinstance(own, str):
            return None
        if not _reachable(module, value, own):
            # Triton's wrappers of functions carry the module of the wrapper.
            return None
        new_name, new = self._name_for(name, value)
        if new:
            self._import(f"from {module} import {own}", new_name, own)
        return new_name

    def _import(self, statement: str, name: str, own: str) -> None:
        line = statement if name == own else f"{statement} as {name}"
        if line not in self._header:
            self._header.append(line)

    def _module(self, name: str, module: types.ModuleType, node: ast.FunctionDef) -> str:
        new_name, new = self._name_for(name, module)
        root = module.__name__.partition(".")[0]
        if module is tl:
            self.removed |= {a for a in _attributes_of(node, name) if _is_removed(a)}
        if root == "triton" or root in sys.stdlib_module_names:
            if new:
                self._header.append(f"import {module.__name__} as {new_name}")
            return new_name
        # Another module: only what the kernel takes from it, in a module of the same name.
        if new:
            self._header.append("import types")
            self._constants.append(f"{new_name} = types.ModuleType({module.__name__!r})")
        for attribute in _attributes_of(node, name):
            value = getattr(module, attribute, None)
            bound = self._global(attribute, value, node, vars(module))
            line = f"{new_name}.{attribute} = {bound}"
            if bound is not None and line not in self._functions and line not in self._constants:
                # After what it refers to: functions come below the constants.
                (self._functions if is_jit_callable(value) else self._constants).append(line)
        return new_name


# --- reading functions -------------------------------------------------------------------------------------------


def line_of(jit: Any) -> int:
    """Line of the `def` (Triton counts from the first decorator)."""
    first = int(getattr(jit, "starting_line_number", 0) or 0)
    lines: list[str] = getattr(jit, "raw_src", None) or []
    return first + next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)


def _file(jit: Any) -> str:
    return os.path.abspath(str(jit.fn.__code__.co_filename))  # noqa: PTH100 (resolving links would rename it)


def _source(jit: Any) -> str:
    source = getattr(jit, "src", None)
    if not isinstance(source, str):
        raise CannotSnapshot(f"the source of {jit.fn.__name__} is not known")
    return source


def _definition(jit: Any, source: str) -> ast.FunctionDef:
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise CannotSnapshot(f"{jit.fn.__name__} is no plain function")
    return node


def _scope(jit: Any) -> dict[str, Any]:
    scope = dict(jit.fn.__globals__)
    for name, cell in zip(jit.fn.__code__.co_freevars, jit.fn.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return scope


def _assigned_names(node: ast.FunctionDef) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}


def _local_names(node: ast.FunctionDef) -> set[str]:
    return _assigned_names(node) | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


def _read_names(node: ast.FunctionDef) -> list[str]:
    """Names that the body reads, in order of first appearance."""
    found: dict[str, None] = {}
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                found.setdefault(inner.id)
    return list(found)


def _attributes_of(node: ast.FunctionDef, module: str) -> list[str]:
    found: dict[str, None] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == module:
            found.setdefault(inner.attr)
    return list(found)


def _body(source: str, node: ast.FunctionDef, renamed: Mapping[str, str]) -> str:
    """The statements of a function as they stand in `source`, names in `renamed` replaced."""
    lines = source.encode().splitlines(keepends=True)
    edits = [
        (inner.lineno - 1, inner.col_offset, inner.id)
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and inner.id in renamed
    ]
    for line, column, old in sorted(edits, reverse=True):
        text = lines[line]
        lines[line] = text[:column] + renamed[old].encode() + text[column + len(old.encode()) :]
    first = node.body[0]
    if first.lineno == node.lineno or not lines[first.lineno - 1][: first.col_offset].isspace():
        # `def f(x): return x`, also with the signature over several lines.
        head = lines[first.lineno - 1][first.col_offset :]
        return "    " + b"".join([head, *lines[first.lineno :]]).decode().rstrip()
    start = first.lineno - 1
    while start > node.lineno and lines[start - 1].strip()[:1] in (b"", b"#"):  # comments above the first statement
        start -= 1
    return b"".join(lines[start:]).decode().rstrip()


def _reachable(module: str, value: Any, name: str | None = None) -> bool:
    found: Any = sys.modules.get(module)
    for part in str(name or getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    return found is not None and found is value


def _is_removed(name: str) -> bool:
    """Whether this Triton lacks `tl.NAME`, or keeps the name only to say that it was removed."""
    value = getattr(tl, name, None)
    return value is None or "have been removed" in (inspect.getdoc(value) or "")


def _described(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__name__}" if kind.__module__ != "builtins" else f"a {kind.__name__}"


def _plain_globals_allowed() -> bool:
    knobs = getattr(triton, "knobs", None)
    return bool(getattr(getattr(knobs, "compilation", None), "allow_non_constexpr_globals", False))
