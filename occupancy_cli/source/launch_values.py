"""The values that an expression at a launch can have: constants, local variables, parameters, what callers pass.

A variable that several branches set has several values, and all are given: which of them a run takes depends on what
only the run knows. What no reading gives raises `NotStatic` with the reason.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_cli.source.bounded_operations import NotStatic, is_scalar
from occupancy_cli.source.module_names import Module, last_name, shown
from occupancy_cli.source.static_values import evaluate
from occupancy_cli.source.syntax import defaults_of, own_statements

MOST_VALUES = 16
_MOST_CALLERS = 4

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class CallSite:
    """A call, and the functions around it from the outermost in."""

    node: ast.Call
    functions: tuple[Function, ...]


def calls_of(tree: ast.AST) -> Iterator[CallSite]:
    """Every call of a file with the functions that it stands in."""
    todo: list[tuple[ast.AST, tuple[Function, ...]]] = [(tree, ())]
    while todo:
        node, functions = todo.pop()
        if isinstance(node, ast.Call):
            yield CallSite(node, functions)
        inside = (*functions, node) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else functions
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]


class LaunchValues:
    """What expressions of one file can come to."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.calls = sorted(calls_of(module.tree), key=lambda c: (c.node.lineno, c.node.col_offset))

    def of(self, node: ast.expr, at: CallSite, depth: int = 0) -> list[Any]:
        """The values of `node` where it stands in the call `at`, each once."""
        if depth > _MOST_CALLERS * 3:
            raise NotStatic(f"{shown(node)} is nested too deep")
        if isinstance(node, ast.IfExp):
            try:
                return self.of(node.body if self._one(node.test, at, depth) else node.orelse, at, depth)
            except NotStatic:
                return _distinct([*self.of(node.body, at, depth + 1), *self.of(node.orelse, at, depth + 1)], node)
        if isinstance(node, ast.Name):
            found = self._local(node, at, depth)
            if found is not None:
                return _distinct(found, node)
        names = {n.id: n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        locals_: dict[str, list[Any]] = {}
        for name, used in names.items():
            if name not in bound and (values := self._local(used, at, depth)) is not None:
                locals_[name] = _distinct(values, used)
        rows = [dict(zip(locals_, row, strict=True)) for row in itertools.product(*locals_.values())]
        if len(rows) > MOST_VALUES:
            raise NotStatic(f"{shown(node)} has more than {MOST_VALUES} values")
        return _distinct([evaluate(node, self.module, local=row) for row in rows], node)

    def _one(self, node: ast.expr, at: CallSite, depth: int) -> Any:
        values = self.of(node, at, depth + 1)
        if len(values) != 1:
            raise NotStatic(f"{shown(node)} has several values")
        return values[0]

    def _local(self, name: ast.Name, at: CallSite, depth: int) -> list[Any] | None:
        """The values of a name that a function around the call binds; None for one that none of them does."""
        for i in range(len(at.functions) - 1, -1, -1):
            function, inside = at.functions[i], CallSite(at.node, at.functions[: i + 1])
            stores = [
                n
                for n in own_statements(function)
                if isinstance(n, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr, ast.With))
                and name.id in _bound_by(n)
            ]
            above = [n for n in stores if n.lineno <= at.node.lineno]
            parameters = dict(defaults_of(function.args))
            if above:
                top = {id(s) for s in function.body}
                above.sort(key=lambda n: n.lineno)
                first = next((k for k in range(len(above) - 1, -1, -1) if id(above[k]) in top), None)
                found = [] if first is not None or name.id not in parameters else self._passed(function, name, depth)
                for statement in above if first is None else above[first:]:
                    found += self._assigned(statement, name, inside, depth)
                return found
            if name.id in parameters:
                return self._passed(function, name, depth)
            if any(a is not None and a.arg == name.id for a in (function.args.vararg, function.args.kwarg)):
                raise NotStatic(f"{name.id} is what {function.name} is called with")
            if stores:
                raise NotStatic(f"{name.id} is set below line {at.node.lineno}")
        return None

    def _assigned(self, statement: ast.AST, name: ast.Name, at: CallSite, depth: int) -> list[Any]:
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            (items,) = self.of(statement.iter, at, depth + 1) or [()]
            if not isinstance(items, (list, tuple)):
                raise NotStatic(f"{shown(statement.iter)} is not known")
            return list(items)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id == name.id:
                    return self.of(statement.value, at, depth + 1)
                if isinstance(target, (ast.Tuple, ast.List)) and not any(
                    isinstance(t, ast.Starred) for t in target.elts
                ):
                    index = next(
                        (i for i, t in enumerate(target.elts) if isinstance(t, ast.Name) and t.id == name.id), None
                    )
                    if index is None:
                        continue
                    if isinstance(statement.value, ast.Tuple) and len(statement.value.elts) == len(target.elts):
                        return self.of(statement.value.elts[index], at, depth + 1)
                    rows = self.of(statement.value, at, depth + 1)
                    if all(isinstance(r, (list, tuple)) and len(r) == len(target.elts) for r in rows):
                        return [row[index] for row in rows]
        line = getattr(statement, "lineno", 0)
        raise NotStatic(f"{name.id} is set in line {line} by what is not computed")

    def _passed(self, function: Function, name: ast.Name, depth: int) -> list[Any]:
        """What the callers in this file pass for a parameter, and its default where one of them leaves it out."""
        default = dict(defaults_of(function.args))[name.id]
        positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        callers = [c for c in self.calls if last_name(c.node.func) == function.name]
        if not callers and default is None:
            raise NotStatic(f"{name.id} is a parameter of {function.name}, which nothing in the file calls")
        found: list[Any] = []
        left_out = not callers
        for caller in callers[: _MOST_CALLERS * 4]:
            given = next((k.value for k in caller.node.keywords if k.arg == name.id), None)
            index = positional.index(name.id) if name.id in positional else len(caller.node.args)
            if given is None and index < len(caller.node.args):
                given = caller.node.args[index]
            if given is None and any(k.arg is None for k in caller.node.keywords):
                raise NotStatic(f"{name.id} may be among what line {caller.node.lineno} calls {function.name} with")
            if given is None:
                left_out = True
            else:
                found += self.of(given, caller, depth + _MOST_CALLERS)
        if left_out and default is not None:
            found.append(evaluate(default, self.module))
        if not found:
            raise NotStatic(f"{name.id} is a parameter of {function.name} that is not given")
        return found


def _bound_by(statement: ast.AST) -> set[str]:
    """The names that one statement binds itself, or changes in place; not those of statements inside it."""
    if isinstance(statement, ast.For):
        targets: Sequence[ast.AST] = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        targets = [statement.target] if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) else []
    found = set()
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                stored = isinstance(node.ctx, ast.Store)
                changed = isinstance(target, ast.Subscript) and target.value is node
                found |= {node.id} if stored or changed else set()
    return found


def _distinct(values: Sequence[Any], node: ast.AST) -> list[Any]:
    found: dict[str, Any] = {}
    for value in values:
        key = repr(value) if is_scalar(value) or isinstance(value, (list, tuple, dict)) else str(id(value))
        found.setdefault(key, value)
    if len(found) > MOST_VALUES:
        raise NotStatic(f"{shown(node)} has more than {MOST_VALUES} values")
    return list(found.values())


def product_of(options: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]] | None:
    """Every combination of the values of some names; None where there are more than `MOST_VALUES`."""
    count = 1
    for values in options.values():
        count *= max(1, len(values))
    if count > MOST_VALUES:
        return None
    return [dict(zip(options, row, strict=True)) for row in itertools.product(*options.values())]
