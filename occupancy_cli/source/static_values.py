"""What can be computed from Python source by reading it: constants, lists of autotune configs, defaults.

A small interpreter over the syntax tree, for the forms in which kernels' knobs are written: literals, comprehensions,
module constants, functions that build a list, environment variables at their defaults. Nothing is imported or
executed: a call is followed only into a function whose source is at hand, or one of a short list of pure functions
implemented here. What it cannot know raises `NotStatic` with the reason, and is never guessed. Steps, sizes and depth
are bounded, so that no source can hang it.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.model.launch_options import OPTIONS

MAX_STEPS = 400_000
MAX_ITEMS = 100_000
MAX_DEPTH = 60
MAX_INTEGER_BITS = 128


class NotStatic(Exception):
    """A value that reading the source does not give; the text says what stands in the way."""


@dataclass(frozen=True)
class SourceText:
    """One value inside a config that is not computable: its source, as written."""

    text: str


@dataclass
class ConfigValue:
    """A `triton.Config`: its constexprs, then its launch options."""

    kwargs: dict[str, Any]
    options: dict[str, Any]

    def values(self) -> dict[str, Any]:
        """Constexprs and options in one mapping, without an unset maxnreg."""
        shown = {k: v for k, v in self.options.items() if v is not None or k != "maxnreg"}
        return {**self.kwargs, **shown}


@dataclass(frozen=True)
class _Function:
    node: ast.FunctionDef | ast.Lambda
    module: Module
    closure: Mapping[str, Any]


@dataclass(frozen=True)
class _Builtin:
    name: str
    call: Callable[..., Any]


@dataclass(frozen=True)
class _Path:
    """A dotted name that stands for something imported: `triton.Config`, `os.environ`."""

    dotted: str


@dataclass(frozen=True)
class _Known:
    """What became of one module-level name: its value and the environment it assumed, or why there is none."""

    value: Any = None
    assumed: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


class Module:
    """The module-level names of one parsed file.

    `resolve` (set by the reader) gives the `Module` that an import refers to when its source is at hand.
    """

    def __init__(self, tree: ast.Module, file: str, resolve: Callable[[str], Module | None] | None = None) -> None:
        self.tree = tree
        self.file = file
        self.resolve = resolve or (lambda _dotted: None)
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.imports: dict[str, str] = {}
        self.binders: dict[str, list[ast.stmt]] = {}
        self._values: dict[tuple[str, int | None], _Known] = {}
        for statement in _flat(tree.body):
            if isinstance(statement, ast.FunctionDef):
                self.functions.setdefault(statement.name, []).append(statement)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.imports[name] = alias.name if alias.asname else name
            elif isinstance(statement, ast.ImportFrom):
                base = "." * statement.level + (statement.module or "")
                for alias in statement.names:
                    joined = base + alias.name if base.endswith(".") else f"{base}.{alias.name}"
                    self.imports[alias.asname or alias.name] = joined
        for top in tree.body:
            if not isinstance(top, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)):
                for name in bound_names(top):
                    self.binders.setdefault(name, []).append(top)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those inside `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _flat(getattr(statement, name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _flat(handler.body)


_MUTATORS = frozenset({"append", "extend", "insert", "update", "pop", "remove", "clear", "add", "setdefault", "sort"})


def bound_names(statement: ast.AST) -> set[str]:
    """The names that a statement binds or changes in place, without looking into functions and classes."""
    found: set[str] = set()
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if isinstance(node.value, ast.Name):
                found.add(node.value.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            if isinstance(node.func.value, ast.Name):
                found.add(node.func.value.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        todo += ast.iter_child_nodes(node)
    return found


@dataclass
class Evaluation:
    """One evaluation: its budget, and the environment variables whose defaults it relied on (name: default text)."""

    steps: int = 0
    depth: int = 0
    assumed: dict[str, str] = field(default_factory=dict)


def evaluate(node: ast.expr, module: Module, *, before: int | None = None, into: Evaluation | None = None) -> Any:
    """The value of `node` in `module`, counting only what stands above line `before`; `NotStatic` with the reason.

    Configs are `ConfigValue`s; a value inside one that is not computable is a `SourceText`.
    """
    interpreter = _Interpreter(module, into or Evaluation(), before)
    try:
        return interpreter.value(node, {})
    except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError) as bad:
        raise NotStatic(f"{shown(node)}: {type(bad).__name__}: {bad}") from None
    except RecursionError:
        raise NotStatic(f"{shown(node)}: nested too deep") from None


def shown(node: ast.AST, most: int = 80) -> str:
    """The source of `node` in one line of at most `most` characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= most else text[: most - 1] + "…"


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Continue(Exception):
    pass


class _Break(Exception):
    pass


def _limited(values: Iterable[Any]) -> list[Any]:
    items = list(itertools.islice(values, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise NotStatic(f"more than {MAX_ITEMS:,} items")
    return items


def _scalar(value: Any) -> Any:
    if not _is_scalar(value):
        raise NotStatic("a nested value is written as text")
    return value


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    """`value`, a scalar or a flat sequence of scalars (nested ones may share parts, and comparing them explode)."""
    if _is_scalar(value) or (
        isinstance(value, (list, tuple, set, frozenset, dict))
        and all(_is_scalar(v) or (isinstance(v, tuple) and all(map(_is_scalar, v))) for v in value)
    ):
        return value
    raise NotStatic("a nested value is compared")


def _total(values: Any, start: Any = 0) -> Any:
    if not all(isinstance(v, (int, float)) for v in (*values, start)):
        raise NotStatic("a sum of things that are not numbers")
    return sum(values, start)


def _product(*values: Any, repeat: int = 1) -> list[Any]:
    if repeat > 8:
        raise NotStatic("a product too large to list")
    return _limited(itertools.product(*values, repeat=repeat))


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and (abs(b) > MAX_INTEGER_BITS or abs(a) > 1 << 32):
        raise NotStatic("a power too large to compute")
    return a**b


def _shift(a: int, b: int) -> int:
    if b > MAX_INTEGER_BITS:
        raise NotStatic("a shift too large to compute")
    return a << b


def _times(a: Any, b: Any) -> Any:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, (str, list, tuple)) and isinstance(other, int) and len(one) * other > MAX_ITEMS:
            raise NotStatic("a sequence too long to build")
    return a * b


def _modulo(a: Any, b: Any) -> Any:
    if isinstance(a, str):
        raise NotStatic("a formatted string")
    return a % b


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_PURE: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": lambda *v, **k: min(*map(_plain, v), **k),
    "max": lambda *v, **k: max(*map(_plain, v), **k),
    "abs": abs,
    "sum": _total,
    "any": any,
    "all": all,
    "int": int,
    "float": float,
    "bool": bool,
    "str": lambda v="": str(_scalar(v)),
    "round": round,
    "range": lambda *a: _limited(range(*a)),
    "list": lambda v=(): _limited(v),
    "tuple": lambda v=(): tuple(_limited(v)),
    "set": lambda v=(): set(_plain(v)),
    "frozenset": lambda v=(): frozenset(_plain(v)),
    "sorted": lambda v, **k: sorted(v if k.get("key") else _plain(v), **k),
    "reversed": lambda v: _limited(reversed(v)),
    "zip": lambda *v: _limited(zip(*v, strict=False)),
    "enumerate": lambda v, start=0: _limited(enumerate(v, start)),
    "dict": dict,
    "itertools.product": _product,
    "itertools.chain": lambda *v: _limited(itertools.chain(*v)),
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
    "triton.cdiv": lambda a, b: -(-a // b),
    "triton.next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
    "copy.copy": lambda v: v,
}
_METHODS: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "copy", "pop", "reverse"}),
    dict: frozenset({"get", "items", "keys", "values", "update", "copy", "pop", "setdefault"}),
    str: frozenset({"lower", "upper", "strip", "startswith", "endswith", "split"}),
}
_ENVIRONMENT_CALLS = frozenset({"os.environ.get", "os.getenv"})


class _Interpreter:
    def __init__(self, module: Module, state: Evaluation, before: int | None) -> None:
        self.module = module
        self.state = state
        self.before = before

    # --- names ---

    def name(self, name: str, local: Mapping[str, Any]) -> Any:
        if name in local:
            return local[name]
        return self.global_name(self.module, name, self.before)

    def global_name(self, module: Module, name: str, before: int | None) -> Any:
        key = (name, before)
        known = module._values.get(key)
        if known is None:
            module._values[key] = _Known(why=f"{name} is defined by itself")
            known = module._values[key] = self._compute(module, name, before)
        if known.why:
            raise NotStatic(known.why)
        self.state.assumed |= known.assumed
        return known.value

    def _compute(self, module: Module, name: str, before: int | None) -> _Known:
        outer, self.state.assumed = self.state.assumed, {}
        try:
            return _Known(self._find(module, name, before), self.state.assumed)
        except NotStatic as why:
            return _Known(why=str(why))
        except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError) as bad:
            return _Known(why=f"{name}: {type(bad).__name__}: {bad}")
        finally:
            self.state.assumed = outer

    def _find(self, module: Module, name: str, before: int | None) -> Any:
        binders = [s for s in module.binders.get(name, ()) if before is None or s.lineno < before]
        if binders:
            local: dict[str, Any] = {}
            inner = _Interpreter(module, self.state, None)
            inner.run(binders, local)
            if name in local:
                return local[name]
        if name in module.functions:
            candidates = module.functions[name]
            if len(candidates) > 1:
                raise NotStatic(f"{name} is defined in several places")
            return _Function(candidates[0], module, {})
        if name in module.imports:
            return self._imported(module, module.imports[name])
        if name in _PURE:
            return _Builtin(name, _PURE[name])
        if name in ("filter", "map"):
            return _Builtin(name, tuple)
        raise NotStatic(f"{name} is not known")

    def _imported(self, module: Module, dotted: str) -> Any:
        owner, _, last = dotted.rpartition(".")
        if owner.strip("."):
            found = module.resolve(owner)
            if found is not None and last not in found.binders and last not in found.functions:
                if module.resolve(dotted) is not None:  # a module of that package
                    return _Path(dotted)
                if last not in found.imports:
                    found = None
            if found is not None:
                self._descend()
                try:
                    return self.global_name(found, last, None)
                finally:
                    self.state.depth -= 1
        return _Path(dotted)

    # --- expressions ---

    def _step(self, node: ast.AST) -> None:
        self.state.steps += 1
        if self.state.steps > MAX_STEPS:
            raise NotStatic("too long to compute")

    def _descend(self) -> None:
        self.state.depth += 1
        if self.state.depth > MAX_DEPTH:
            self.state.depth -= 1
            raise NotStatic("nested too deep to compute")

    def value(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        self._step(node)
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise NotStatic(f"{shown(node)} is not computed")
        result = method(node, local)
        if isinstance(result, int) and result.bit_length() > 4 * MAX_INTEGER_BITS:
            raise NotStatic(f"{shown(node)} is too large")
        if isinstance(result, (list, tuple, str, dict)) and len(result) > MAX_ITEMS:
            raise NotStatic(f"{shown(node)} is too long")
        return result

    def _constant(self, node: ast.Constant, _local: Mapping[str, Any]) -> Any:
        return node.value

    def _name(self, node: ast.Name, local: Mapping[str, Any]) -> Any:
        return self.name(node.id, local)

    def _items(self, nodes: Iterable[ast.expr], local: Mapping[str, Any]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items += self.iterable(node.value, local)
            else:
                items.append(self.value(node, local))
        return items

    def _list(self, node: ast.List, local: Mapping[str, Any]) -> Any:
        return self._items(node.elts, local)

    def _tuple(self, node: ast.Tuple, local: Mapping[str, Any]) -> Any:
        return tuple(self._items(node.elts, local))

    def _set(self, node: ast.Set, local: Mapping[str, Any]) -> Any:
        return set(self._items(node.elts, local))

    def _dict(self, node: ast.Dict, local: Mapping[str, Any]) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                more = self.value(value, local)
                if not isinstance(more, dict):
                    raise NotStatic(f"{shown(value)} is not a dict")
                made |= more
            else:
                made[self.value(key, local)] = self.value(value, local)
        return made

    def _binop(self, node: ast.BinOp, local: Mapping[str, Any]) -> Any:
        return _BINARY[type(node.op)](self.value(node.left, local), self.value(node.right, local))

    def _unaryop(self, node: ast.UnaryOp, local: Mapping[str, Any]) -> Any:
        return _UNARY[type(node.op)](self.value(node.operand, local))

    def _boolop(self, node: ast.BoolOp, local: Mapping[str, Any]) -> Any:
        result: Any = None
        for part in node.values:
            result = self.truth_checked(part, local)
            if bool(result) != isinstance(node.op, ast.And):
                return result
        return result

    def truth_checked(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        value = self.value(node, local)
        if isinstance(value, (_Path, _Function, _Builtin, SourceText)):
            raise NotStatic(f"{shown(node)} is not known")
        return value

    def _compare(self, node: ast.Compare, local: Mapping[str, Any]) -> Any:
        left = self.truth_checked(node.left, local)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.truth_checked(right_node, local)
            if not _COMPARE[type(op)](_plain(left), _plain(right)):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, local: Mapping[str, Any]) -> Any:
        return self.value(node.body if self.truth_checked(node.test, local) else node.orelse, local)

    def _lambda(self, node: ast.Lambda, local: Mapping[str, Any]) -> Any:
        return _Function(node, self.module, dict(local))

    def _joinedstr(self, node: ast.JoinedStr, local: Mapping[str, Any]) -> Any:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None:
                    raise NotStatic(f"{shown(node)} is a formatted string")
                parts.append(str(_scalar(self.truth_checked(part.value, local))))
            else:
                parts.append(str(self.value(part, local)))
        return "".join(parts)

    def _subscript(self, node: ast.Subscript, local: Mapping[str, Any]) -> Any:
        owner = self.value(node.value, local)
        if isinstance(owner, _Path) and owner.dotted == "os.environ":
            raise NotStatic(f"{shown(node)} has no default")
        if not isinstance(owner, (list, tuple, dict, str)):
            raise NotStatic(f"{shown(node.value)} is not known")
        if isinstance(node.slice, ast.Slice):
            low, high, step = (
                None if part is None else self.value(part, local)
                for part in (node.slice.lower, node.slice.upper, node.slice.step)
            )
            return owner[low:high:step]
        return owner[self.value(node.slice, local)]

    def _attribute(self, node: ast.Attribute, local: Mapping[str, Any]) -> Any:
        owner = self.value(node.value, local)
        if isinstance(owner, ConfigValue):
            if node.attr == "kwargs":
                return owner.kwargs
            if node.attr in owner.options:
                return owner.options[node.attr]
        if isinstance(owner, _Path):
            found = self.module.resolve(owner.dotted)
            if found is not None and (node.attr in found.binders or node.attr in found.functions):
                return self.global_name(found, node.attr, None)
            return _Path(f"{owner.dotted}.{node.attr}")
        for kind, methods in _METHODS.items():
            if isinstance(owner, kind) and node.attr in methods:
                return _Builtin(node.attr, getattr(owner, node.attr))
        raise NotStatic(f"{shown(node)} is not known")

    def _comprehension_rows(
        self, generators: list[ast.comprehension], local: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if not generators:
            yield dict(local)
            return
        first, rest = generators[0], generators[1:]
        for item in self.iterable(first.iter, local):
            self._step(first.iter)
            inner = dict(local)
            self.bind(first.target, item, inner)
            if all(self.truth_checked(test, inner) for test in first.ifs):
                yield from self._comprehension_rows(rest, inner)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, local: Mapping[str, Any]) -> Any:
        return _limited(self.value(node.elt, row) for row in self._comprehension_rows(node.generators, local))

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, local: Mapping[str, Any]) -> Any:
        return set(_limited(self.value(node.elt, row) for row in self._comprehension_rows(node.generators, local)))

    def _dictcomp(self, node: ast.DictComp, local: Mapping[str, Any]) -> Any:
        rows = self._comprehension_rows(node.generators, local)
        return dict(_limited((self.value(node.key, row), self.value(node.value, row)) for row in rows))

    def iterable(self, node: ast.expr, local: Mapping[str, Any]) -> list[Any]:
        value = self.value(node, local)
        if not isinstance(value, (list, tuple, set, frozenset, dict, str)):
            raise NotStatic(f"{shown(node)} is not known")
        return list(value)

    # --- calls ---

    def _call(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        if _last_name(node.func) == "Config":
            return self._config(node, local)
        called = self.value(node.func, local)
        if isinstance(called, _Path):
            if called.dotted in _ENVIRONMENT_CALLS:
                return self._environment(node, local)
            known = _PURE.get(called.dotted)
            if known is None and called.dotted.rpartition(".")[2] in ("cdiv", "next_power_of_2"):
                known = _PURE[f"triton.{called.dotted.rpartition('.')[2]}"]
            if called.dotted.endswith(("itertools.product", "itertools.chain")):
                known = _PURE[called.dotted]
            if known is None:
                raise NotStatic(f"{shown(node)} is not computed")
            called = _Builtin(called.dotted, known)
        args = self._items(node.args, local)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                kwargs |= self.value(keyword.value, local)
            else:
                kwargs[keyword.arg] = self.value(keyword.value, local)
        if isinstance(called, _Function):
            return self.apply(called, args, kwargs)
        if not isinstance(called, _Builtin):
            raise NotStatic(f"{shown(node)} is not computed")
        for part in (*args, *kwargs.values()):
            if isinstance(part, (_Path, SourceText)):
                raise NotStatic(f"{shown(node)} depends on {part}")
        if called.name in ("filter", "map"):
            function, *rows = args
            if not isinstance(function, _Function) or len(rows) != 1:
                raise NotStatic(f"{shown(node)} is not computed")
            made = [(row, self.apply(function, [row], {})) for row in rows[0]]
            if any(isinstance(new, (_Path, _Function, _Builtin, SourceText)) for _, new in made):
                raise NotStatic(f"{shown(node)} is not known")
            return [row for row, kept in made if kept] if called.name == "filter" else [new for _, new in made]
        key = kwargs.get("key")
        if isinstance(key, _Function):
            kwargs["key"] = lambda item: _plain(self.apply(key, [item], {}))
        result = called.call(*args, **kwargs)
        grown = getattr(called.call, "__self__", None)
        if isinstance(grown, (list, dict)) and len(grown) > MAX_ITEMS:
            raise NotStatic(f"more than {MAX_ITEMS:,} items")
        return result

    def apply(self, function: _Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of the source."""
        self._descend()
        try:
            inner = _Interpreter(function.module, self.state, None)
            local = inner.parameters(function, args, kwargs)
            if isinstance(function.node, ast.Lambda):
                return inner.value(function.node.body, local)
            try:
                inner.run(function.node.body, local)
            except _Return as returned:
                return returned.value
            return None
        finally:
            self.state.depth -= 1

    def parameters(self, function: _Function, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        spec = function.node.args
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        local = dict(function.closure)
        given: dict[str, Any] = dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            if spec.vararg is None:
                raise NotStatic("a call with too many arguments")
            given[spec.vararg.arg] = tuple(args[len(positional) :])
        elif spec.vararg is not None:
            given[spec.vararg.arg] = ()
        extra = {k: v for k, v in kwargs.items() if k not in (*positional, *(a.arg for a in spec.kwonlyargs))}
        given |= {k: v for k, v in kwargs.items() if k not in extra}
        if spec.kwarg is not None:
            given[spec.kwarg.arg] = extra
        elif extra:
            raise NotStatic("a call with unknown arguments")
        defaults = zip(reversed(positional), reversed(spec.defaults), strict=False)
        keyword_defaults = zip((a.arg for a in spec.kwonlyargs), spec.kw_defaults, strict=True)
        for name, default in (*defaults, *keyword_defaults):
            if name not in given and default is not None:
                given[name] = self.value(default, {})
        for name in (*positional, *(a.arg for a in spec.kwonlyargs)):
            if name not in given:
                raise NotStatic(f"the argument {name} is not known")
        return local | given

    def _environment(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        name = self.value(node.args[0], local)
        rest = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "default")]
        value = self.value(rest[0], local) if rest else None
        self.state.assumed[str(name)] = "not set" if value is None else repr(_scalar(value))
        return value

    def _config(self, node: ast.Call, local: Mapping[str, Any]) -> ConfigValue:
        options: dict[str, Any] = {n: o.default for n, o in OPTIONS.items()}
        order = ["kwargs", *options, "pre_hook", "ir_override"]
        given: dict[str, ast.expr] = {}
        for name, argument in zip(order, node.args, strict=False):
            if isinstance(argument, ast.Starred):
                raise NotStatic(f"{shown(node)} is not computed")
            given[name] = argument
        for keyword in node.keywords:
            if keyword.arg is None:
                more = self.value(keyword.value, local)
                options |= {k: v for k, v in more.items() if k in options}
            else:
                given[keyword.arg] = keyword.value
        for name in options:
            if name in given:
                options[name] = self._or_text(given[name], local)
        kwargs: dict[str, Any] = {}
        source = given.get("kwargs")
        if isinstance(source, ast.Dict):
            for key, value in zip(source.keys, source.values, strict=True):
                if key is None:
                    kwargs |= self.value(value, local)
                else:
                    kwargs[str(self.value(key, local))] = self._or_text(value, local)
        elif source is not None:
            kwargs = dict(self.value(source, local))
        return ConfigValue(kwargs, options)

    def _or_text(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        try:
            value = self.value(node, local)
        except NotStatic:
            return SourceText(shown(node))
        return value if _is_scalar(value) else SourceText(shown(node))

    # --- statements ---

    def bind(self, target: ast.expr, value: Any, local: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            local[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, (list, tuple)) or len(value) != len(target.elts):
                raise NotStatic(f"{shown(target)} cannot be taken apart")
            for part, item in zip(target.elts, value, strict=True):
                self.bind(part, item, local)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, local)
            if not isinstance(owner, (list, dict)):
                raise NotStatic(f"{shown(target)} is not known")
            owner[self.value(target.slice, local)] = value
        else:
            raise NotStatic(f"{shown(target)} is not followed")

    def run(self, body: Iterable[ast.stmt], local: dict[str, Any]) -> None:
        """Execute statements on `local`; `_Return` carries a function's value."""
        for statement in body:
            self._step(statement)
            self.statement(statement, local)

    def statement(self, statement: ast.stmt, local: dict[str, Any]) -> None:
        if isinstance(statement, ast.Return):
            raise _Return(None if statement.value is None else self.value(statement.value, local))
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value, local)
            for target in statement.targets:
                self.bind(target, value, local)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self.bind(statement.target, self.value(statement.value, local), local)
        elif isinstance(statement, ast.AugAssign):
            self._augmented(statement, local)
        elif isinstance(statement, ast.For):
            self._for(statement, local)
        elif isinstance(statement, ast.If):
            self.run(statement.body if self.truth_checked(statement.test, local) else statement.orelse, local)
        elif isinstance(statement, ast.Expr):
            if not isinstance(statement.value, ast.Constant):
                self.value(statement.value, local)
        elif isinstance(statement, ast.FunctionDef):
            local[statement.name] = _Function(statement, self.module, local)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                base = "." * getattr(statement, "level", 0) + (getattr(statement, "module", "") or "")
                dotted = f"{base}.{alias.name}" if base else alias.name
                local[alias.asname or alias.name.partition(".")[0]] = _Path(dotted)
        elif isinstance(statement, ast.Continue):
            raise _Continue
        elif isinstance(statement, ast.Break):
            raise _Break
        elif isinstance(statement, (ast.Pass, ast.Assert, ast.Global, ast.Nonlocal)):
            return
        else:
            kind = type(statement).__name__.lower()
            raise NotStatic(f"{self.module.file}:{statement.lineno} ({kind} statement) is not computed")

    def _augmented(self, statement: ast.AugAssign, local: dict[str, Any]) -> None:
        if not isinstance(statement.target, ast.Name):
            raise NotStatic(f"{shown(statement.target)} is not followed")
        old = self.name(statement.target.id, local)
        new = self.value(statement.value, local)
        local[statement.target.id] = _BINARY[type(statement.op)](old, new)

    def _for(self, statement: ast.For, local: dict[str, Any]) -> None:
        for item in self.iterable(statement.iter, local):
            self._step(statement)
            self.bind(statement.target, item, local)
            try:
                self.run(statement.body, local)
            except _Continue:
                continue
            except _Break:
                return
        self.run(statement.orelse, local)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
