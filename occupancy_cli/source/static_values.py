"""What can be computed from Python source by reading it: constants, lists of autotune configs, defaults.

A small interpreter over the syntax tree, for the forms in which kernels' knobs are written: literals, comprehensions,
module constants, functions that build a list, environment variables at their defaults. Nothing is imported or
executed: a call is followed only into a function whose source is at hand, or one of a short list of pure functions
implemented here. What it cannot know raises `NotStatic` with the reason, and is never guessed. Steps, sizes and depth
are bounded, so that no source can hang it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.model.launch_options import OPTIONS
from occupancy_cli.source.bounded_operations import (
    BINARY,
    COMPARE,
    MAX_INTEGER_BITS,
    MAX_ITEMS,
    METHODS,
    PURE,
    UNARY,
    NotStatic,
    is_scalar,
    limited,
    plain,
    scalar,
)
from occupancy_cli.source.module_names import Known, Module, last_name, shown

MAX_STEPS = 400_000
MAX_DEPTH = 60


@dataclass(frozen=True)
class SourceText:
    """One value inside a config that is not computable: its source, as written."""

    text: str


@dataclass(frozen=True)
class ConstexprText:
    """A value of a constexpr that is no number, truth value or text: its text, with all inside it worked out."""

    text: str

    def __str__(self) -> str:
        return self.text


def _constexpr_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_constexpr_text(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, (_Path, ConstexprText)):
        return str(value) if isinstance(value, ConstexprText) else value.dotted.rpartition(".")[2]
    return repr(scalar(value))


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


@dataclass
class Evaluation:
    """One evaluation: its budget, and the environment variables whose defaults it relied on (name: default text)."""

    steps: int = 0
    depth: int = 0
    assumed: dict[str, str] = field(default_factory=dict)


def evaluate(
    node: ast.expr,
    module: Module,
    *,
    before: int | None = None,
    into: Evaluation | None = None,
    local: Mapping[str, Any] | None = None,
) -> Any:
    """The value of `node` in `module`, counting only what stands above line `before`; `NotStatic` with the reason.

    `local` has the values of names that hide those of the module.

    Configs are `ConfigValue`s; a value inside one that is not computable is a `SourceText`.
    """
    interpreter = _Interpreter(module, into or Evaluation(), before)
    try:
        return interpreter.value(node, local or {})
    except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError) as bad:
        raise NotStatic(f"{shown(node)}: {type(bad).__name__}: {bad}") from None
    except RecursionError:
        raise NotStatic(f"{shown(node)}: nested too deep") from None


def dotted_value(value: Any) -> str:
    """The dotted name that a value stands for where it is something imported: `triton.language.float16`; else empty."""
    return value.dotted if isinstance(value, _Path) else ""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Continue(Exception):
    pass


class _Break(Exception):
    pass


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
        known = module.values.get(key)
        if known is None:
            module.values[key] = Known(why=f"{name} is defined by itself")
            known = module.values[key] = self._compute(module, name, before)
        if known.why:
            raise NotStatic(known.why)
        self.state.assumed |= known.assumed
        return known.value

    def _compute(self, module: Module, name: str, before: int | None) -> Known:
        outer, self.state.assumed = self.state.assumed, {}
        try:
            return Known(self._find(module, name, before), self.state.assumed)
        except NotStatic as why:
            return Known(why=str(why))
        except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError) as bad:
            return Known(why=f"{name}: {type(bad).__name__}: {bad}")
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
        if name in PURE:
            return _Builtin(name, PURE[name])
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
        return BINARY[type(node.op)](self.value(node.left, local), self.value(node.right, local))

    def _unaryop(self, node: ast.UnaryOp, local: Mapping[str, Any]) -> Any:
        return UNARY[type(node.op)](self.value(node.operand, local))

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
            if not COMPARE[type(op)](plain(left), plain(right)):
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
                parts.append(str(scalar(self.truth_checked(part.value, local))))
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
        for kind, methods in METHODS.items():
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
        return limited(self.value(node.elt, row) for row in self._comprehension_rows(node.generators, local))

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, local: Mapping[str, Any]) -> Any:
        return set(limited(self.value(node.elt, row) for row in self._comprehension_rows(node.generators, local)))

    def _dictcomp(self, node: ast.DictComp, local: Mapping[str, Any]) -> Any:
        rows = self._comprehension_rows(node.generators, local)
        return dict(limited((self.value(node.key, row), self.value(node.value, row)) for row in rows))

    def iterable(self, node: ast.expr, local: Mapping[str, Any]) -> list[Any]:
        value = self.value(node, local)
        if not isinstance(value, (list, tuple, set, frozenset, dict, str)):
            raise NotStatic(f"{shown(node)} is not known")
        return list(value)

    # --- calls ---

    def _call(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        if last_name(node.func) == "Config":
            return self._config(node, local)
        called = self.value(node.func, local)
        if isinstance(called, _Path):
            if called.dotted in _ENVIRONMENT_CALLS:
                return self._environment(node, local)
            known = PURE.get(called.dotted)
            if known is None and called.dotted.rpartition(".")[2] in ("cdiv", "next_power_of_2"):
                known = PURE[f"triton.{called.dotted.rpartition('.')[2]}"]
            if called.dotted.endswith(("itertools.product", "itertools.chain")):
                known = PURE[called.dotted]
            if known is None and called.dotted.endswith("Layout"):
                known = self._layout(node)
            if known is None and called.dotted.rpartition(".")[2] == "constexpr" and len(node.args) == 1:
                return self.value(node.args[0], local)
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
            kwargs["key"] = lambda item: plain(self.apply(key, [item], {}))
        result = called.call(*args, **kwargs)
        grown = getattr(called.call, "__self__", None)
        if isinstance(grown, (list, dict)) and len(grown) > MAX_ITEMS:
            raise NotStatic(f"more than {MAX_ITEMS:,} items")
        return result

    @staticmethod
    def _layout(node: ast.Call) -> Callable[..., ConstexprText]:
        """A Gluon layout, which is a value of a constexpr: its text with every argument worked out."""
        name = last_name(node.func)

        def written(*args: Any, **kwargs: Any) -> ConstexprText:
            parts = [_constexpr_text(a) for a in args] + [f"{k}={_constexpr_text(v)}" for k, v in kwargs.items()]
            return ConstexprText(f"gl.{name}({', '.join(parts)})")

        return written

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
        self.state.assumed[str(name)] = "not set" if value is None else repr(scalar(value))
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
        return value if is_scalar(value) else SourceText(shown(node))

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
        local[statement.target.id] = BINARY[type(statement.op)](old, new)

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
