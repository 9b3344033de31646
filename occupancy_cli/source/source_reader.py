"""One parsed file walked for what tunes kernels: `FileReader` fills a `Found` with kernels, launches and splits."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.environment_reads import EnvironmentWalk, FoundReads
from occupancy_cli.source.knob_types import (
    Autotune,
    Definition,
    KernelKnobs,
    LaunchSite,
    Parameter,
    SplitExpression,
)
from occupancy_cli.source.module_names import Module, last_name, shown
from occupancy_cli.source.static_values import ConfigValue, Evaluation, SourceText, evaluate
from occupancy_cli.source.syntax import (
    MAX_TEXT,
    defaults_of,
    definitions_in,
    dotted_name,
    is_constexpr,
    is_none,
    is_triton,
    is_trivial,
    own_statements,
    text_of,
)

MOST_DEFINITIONS = 12

_SPLIT_NAME = re.compile(
    r"^(?!grid|is_|has_|use_|force_|without_)(?:.*_)?"
    r"(?:n_?splits?|num_(?:\w+_)?splits?|splits|split_?k|split_count|per_split|target_ctas)(?:_heuristic)?$",
    re.IGNORECASE,
)
# `fwd_split_k` is a launcher, `select_split_k` chooses how many.
_NAMES_A_KERNEL = re.compile(
    r"^(?!.*(get|select|choose|compute|decide|pick|calc|find|auto|tune|num|heuristic)).*split_?k$", re.IGNORECASE
)


@dataclass
class Found(FoundReads):
    """What the files gave, before it is put together."""

    kernels: list[KernelKnobs] = field(default_factory=list)
    launches: list[tuple[LaunchSite, bool]] = field(default_factory=list)
    splits: list[SplitExpression] = field(default_factory=list)
    called_in_jit: set[str] = field(default_factory=set)


class FileReader(EnvironmentWalk):
    """Walks one file with the chain of parents and of enclosing functions at hand."""

    def __init__(self, module: Module, found: Found) -> None:
        super().__init__(module, found)
        self.found = found
        self._assigned: dict[int, dict[str, list[Definition]]] = {}
        self._jit_names = {
            name for name, dotted in module.imports.items() if dotted.endswith(".jit") and is_triton(dotted)
        }
        self._made_by_call = self._calls_that_make_kernels()
        self._uses_triton = any(is_triton(d) for d in module.imports.values())

    # --- definitions ---

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        jit = self._jit_decorator(node)
        made = self._made_by_call.get(node.name, []) if jit is None and not self.functions and not self.classes else []
        for name, called, decorators in made:
            self.found.kernels.append(self._kernel(node, called, name, decorators))
        if jit is not None or made:
            if jit is not None:
                self.found.kernels.append(self._kernel(node, jit))
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call):
                    self.found.called_in_jit.add(last_name(inner.func))
            for decorator in node.decorator_list:
                self.visit(decorator)
            return
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if _SPLIT_NAME.search(node.name) and not _NAMES_A_KERNEL.search(node.name):
            for inner in own_statements(node):
                if isinstance(inner, ast.Return) and inner.value is not None and not is_trivial(inner.value):
                    self._split(node.name, inner.value, inner, function=node.name)
        for argument, default in defaults_of(node.args):
            if default is not None and _SPLIT_NAME.search(argument) and not is_none(default):
                self._split(argument, default, default, function=node.name)
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.found.class_bases[node.name] = tuple(last_name(b) for b in node.bases)
        for statement in node.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(statement.value, ast.Call):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                self.take_field(targets[0], statement.value)
        self.classes.append(node)
        functions, self.functions = self.functions, []
        self.generic_visit(node)
        self.functions = functions
        self.classes.pop()

    def _jit_decorator(self, node: ast.FunctionDef) -> ast.expr | None:
        return next((decorator for decorator in node.decorator_list if self._is_jit(decorator)), None)

    def _is_jit(self, decorator: ast.expr) -> bool:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and called.attr == "jit":
            root = dotted_name(called.value)
            dotted = self.module.imports.get(root.partition(".")[0], root)
            return root in ("triton", "gluon") or is_triton(dotted)
        return isinstance(called, ast.Name) and called.id in self._jit_names

    def _calls_that_make_kernels(self) -> dict[str, list[tuple[str, ast.expr, list[ast.expr]]]]:
        """By function: the kernels that `name = triton.autotune(...)(triton.jit(function))` makes of it, with the call
        of jit and what is put around it."""
        made: dict[str, list[tuple[str, ast.expr, list[ast.expr]]]] = {}
        for name, statements in self.module.binders.items():
            for statement in statements:
                value, around = getattr(statement, "value", None), list[ast.expr]()
                while isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
                    if self._is_jit(value.func) and isinstance(value.args[0], ast.Name):
                        made.setdefault(value.args[0].id, []).append((name, value.func, around))
                        break
                    around.append(value.func)
                    value = value.args[0]
        return made

    def _kernel(
        self, node: ast.FunctionDef, jit: ast.expr, made_as: str = "", decorators: Sequence[ast.expr] | None = None
    ) -> KernelKnobs:
        arguments: list[Parameter] = []
        constexprs: list[Parameter] = []
        annotations = {a.arg: a.annotation for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        for name, default in defaults_of(node.args):
            parameter = Parameter(name, None if default is None else text_of(default))
            (constexprs if is_constexpr(annotations[name]) else arguments).append(parameter)
        autotune, heuristics, heuristics_source = None, [], ""
        for decorator in node.decorator_list if decorators is None else decorators:
            if decorator is jit or not isinstance(decorator, ast.Call):
                continue
            keywords = {k.arg: k.value for k in decorator.keywords if k.arg}
            kind = last_name(decorator.func)
            if kind == "heuristics":
                values = decorator.args[0] if decorator.args else keywords.get("values")
                found = self._heuristics(values)
                heuristics += found
                if not found and values is not None:
                    heuristics_source = text_of(values)
            elif kind == "autotune" or "configs" in keywords:
                autotune = self._autotune(decorator, keywords, node)
        options = {k.arg: text_of(k.value) for k in jit.keywords if k.arg} if isinstance(jit, ast.Call) else {}
        named = made_as or node.name
        return KernelKnobs(
            name=named,
            place=self.place(node),
            role="kernel",
            arguments=tuple(arguments),
            constexprs=tuple(constexprs),
            autotune=autotune,
            heuristics=tuple(heuristics),
            heuristics_source=heuristics_source,
            jit_options=options,
            qualname=".".join([*(c.name for c in self.classes), named]),
            function=node.name if made_as else "",
        )

    def _heuristics(self, values: ast.expr | None) -> list[str]:
        if isinstance(values, ast.Name):
            assigned = [
                s.value
                for s in self.module.binders.get(values.id, ())
                if isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None
            ]
            values = assigned[0] if len(assigned) == 1 else values
        if not isinstance(values, ast.Dict):
            return []
        return [k.value for k in values.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]

    def _autotune(self, decorator: ast.Call, keywords: Mapping[str, ast.expr], node: ast.FunctionDef) -> Autotune:
        first = decorator.args[0] if decorator.args else None
        source = keywords.get("configs", first)
        key_node = keywords.get("key", decorator.args[1] if len(decorator.args) > 1 else None)
        more = {n: text_of(v) for n, v in keywords.items() if n not in ("configs", "key")}
        key = self._strings(key_node)
        if source is None:
            return Autotune(last_name(decorator.func), "", key, why_unknown="no configs are given", more=more)
        state = Evaluation()
        configs: tuple[Mapping[str, Any], ...] | None = None
        why = ""
        try:
            value = evaluate(source, self.module, before=node.lineno, into=state)
            if not isinstance(value, (list, tuple)) or not all(isinstance(c, ConfigValue) for c in value):
                raise NotStatic(f"{shown(source)} is not known")
            configs = tuple({k: _config_value(v) for k, v in c.values().items()} for c in value)
        except NotStatic as failed:
            why = str(failed)
        return Autotune(
            decorator=last_name(decorator.func),
            source=text_of(source),
            key=key,
            configs=configs,
            why_unknown=why,
            names={} if configs is not None else self._definitions_of(source),
            assumes=state.assumed if configs is not None else {},
            more=more,
        )

    def _strings(self, node: ast.expr | None) -> tuple[str, ...]:
        if node is None:
            return ()
        try:
            value = evaluate(node, self.module)
        except NotStatic:
            return (text_of(node),)
        return tuple(str(v) for v in value) if isinstance(value, (list, tuple)) else (text_of(node),)

    def _definitions_of(self, node: ast.expr) -> dict[str, str]:
        """How the module defines the names in `node`, and the names in those definitions, as written."""
        found: dict[str, str] = {}
        todo: list[ast.AST] = [node]
        while todo and len(found) < MOST_DEFINITIONS:
            for inner in ast.walk(todo.pop(0)):
                if not isinstance(inner, ast.Name) or inner.id in found or isinstance(inner.ctx, ast.Store):
                    continue
                statements = self.module.binders.get(inner.id, ())
                values = [
                    getattr(s, "value", None) if isinstance(s, (ast.Assign, ast.AnnAssign)) else s for s in statements
                ]
                if statements:
                    found[inner.id] = "; ".join(text_of(v) for v in values if v is not None)[:MAX_TEXT]
                    todo += [v for v in values if v is not None]
                elif inner.id in self.module.functions:
                    found[inner.id] = f"def {inner.id}, line {self.module.functions[inner.id][0].lineno}"
                elif inner.id in self.module.imports and inner.id != "triton":
                    found[inner.id] = f"imported: {self.module.imports[inner.id]}"
        return found

    # --- launches and splits ---

    def visit_Call(self, node: ast.Call) -> None:
        self.take_call(node)
        self._launch(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._split_assignment(target.id, node.value, node)
            elif isinstance(target, ast.Attribute):
                self._split_assignment(target.attr, node.value, node)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for part, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(part, ast.Name):
                        self._split_assignment(part.id, value, node)
        if isinstance(node.value, ast.Call) and len(node.targets) == 1 and not self.functions and not self.classes:
            self.take_field(node.targets[0], node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.value is not None:
            self._split_assignment(node.target.id, node.value, node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._split_assignment(node.target.id, node.value, node)
        self.generic_visit(node)

    def _split_assignment(self, name: str, value: ast.expr, node: ast.AST) -> None:
        if _SPLIT_NAME.search(name) and not is_trivial(value):
            self._split(name, value, node)

    def _split(self, name: str, value: ast.expr, node: ast.AST, function: str | None = None) -> None:
        inside = function if function is not None else (self.functions[-1].name if self.functions else "")
        self.found.splits.append(SplitExpression(name, text_of(value), self.place(node), inside))

    def _launch(self, node: ast.Call) -> None:
        called = node.func
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        if isinstance(called, ast.Subscript):
            target, grid = called.value, called.slice
        elif isinstance(called, ast.Attribute) and called.attr in ("run", "warmup") and "grid" in keywords:
            target, grid = called.value, keywords.pop("grid")
        else:
            return
        while isinstance(target, ast.Call) and target.args:  # wrap_triton(kernel)[grid](...)
            target = target.args[0]
        name = dotted_name(target)
        if not name:
            return
        last = name.rpartition(".")[2]
        options = {n: text_of(v) for n, v in keywords.items() if n in LAUNCH_OPTIONS}
        constexprs = {n: text_of(v) for n, v in keywords.items() if n.upper() == n and n not in LAUNCH_OPTIONS}
        spread = [text_of(k.value) for k in node.keywords if k.arg is None]
        if spread:
            options["**"] = ", ".join(spread)
        looks_like_grid = isinstance(grid, (ast.Tuple, ast.Lambda)) or "grid" in dotted_name(grid)
        certain = bool(set(options) - {"**"}) or (self._uses_triton and looks_like_grid and "kernel" in last.lower())
        imported = self.module.imports.get(name.partition(".")[0], "").rpartition(".")[2]
        kernels = {last, *([imported] if imported and "." not in name else [])} - {""}
        definitions = self._assigned_before(node)
        kernels |= {
            part
            for definition in definitions.get(last, ())
            for part in re.findall(r"[A-Za-z_]\w*", definition.text)
            if "." not in name
        }
        used = {
            n.id
            for value in (grid, *(keywords[k] for k in (*options, *constexprs) if k in keywords))
            for n in ast.walk(value)
            if isinstance(n, ast.Name)
        }
        used |= {n for text in spread for n in re.findall(r"[A-Za-z_]\w*", text)}
        self.found.launches.append(
            (
                LaunchSite(
                    kernel=name,
                    kernels=tuple(sorted(kernels)),
                    place=self.place(node),
                    function=self.functions[-1].name if self.functions else "",
                    grid=text_of(grid),
                    options=options,
                    constexprs=constexprs,
                    definitions={n: tuple(d) for n in sorted(used) if (d := definitions.get(n) or self._constant(n))},
                ),
                certain,
            )
        )

    def _constant(self, name: str) -> list[Definition]:
        """What the module assigns to a name."""
        statements = self.module.binders.get(name, ())
        return [
            Definition(s.lineno, text_of(s.value))
            for s in statements
            if isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None
        ]

    def _assigned_before(self, node: ast.Call) -> dict[str, list[Definition]]:
        """What the enclosing functions assign to each name above the launch, innermost function first."""
        merged: dict[str, list[Definition]] = {}
        for function in reversed(self.functions):
            if id(function) not in self._assigned:
                self._assigned[id(function)] = definitions_in(function)
            for name, definitions in self._assigned[id(function)].items():
                above = [d for d in definitions if d.line <= node.lineno]
                if above and name not in merged:
                    merged[name] = above
        return merged


def _config_value(value: Any) -> Any:
    return value.text if isinstance(value, SourceText) else value
