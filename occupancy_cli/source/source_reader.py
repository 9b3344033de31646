"""One parsed file walked for what tunes kernels: `FileReader` fills a `Found`, `environment_of` joins what all gave.

Reads of the environment are followed through helper functions (`int_env("NAME", 3)`), field classes
(`NAME = EnvInt(3)`) and modules of variables (`envs.NAME`), which may lie in other files: hence the two steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.knob_types import (
    Autotune,
    Definition,
    EnvironmentRead,
    EnvironmentVariable,
    KernelKnobs,
    LaunchSite,
    Parameter,
    Place,
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
    parameter_names,
    text_of,
)

MOST_DEFINITIONS = 12

_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}$")
_SPLIT_NAME = re.compile(
    r"^(?!grid|is_|has_|use_|force_|without_)(?:.*_)?"
    r"(?:n_?splits?|num_(?:\w+_)?splits?|splits|split_?k|split_count|per_split|target_ctas)(?:_heuristic)?$",
    re.IGNORECASE,
)
# `fwd_split_k` is a launcher, `select_split_k` chooses how many.
_NAMES_A_KERNEL = re.compile(
    r"^(?!.*(get|select|choose|compute|decide|pick|calc|find|auto|tune|num|heuristic)).*split_?k$", re.IGNORECASE
)


# A default as written, and what it comes to; None where there is none, or it is not known.
_Default = tuple[str | None, int | float | str | None]


@dataclass(frozen=True)
class _Helper:
    """A function of the source that reads the variable its parameter names."""

    file: str
    name: str
    parameters: tuple[str, ...]
    name_parameter: str
    default_parameter: str | None
    default: _Default
    used_as: str


@dataclass(frozen=True)
class _HelperCall:
    """A call that might be one of a helper."""

    file: str
    node: ast.Call
    defaults: Mapping[str | int, _Default]
    """What each argument would be as a default, by position or keyword."""
    used_as: str
    imported: bool

    def argument(self, helper: _Helper, parameter: str) -> _Default | None:
        """What the call gives for a parameter of the helper."""
        if parameter in self.defaults:
            return self.defaults[parameter]
        at = helper.parameters.index(parameter) if parameter in helper.parameters else -1
        return self.defaults.get(at)


@dataclass
class Found:
    """What the files gave, before it is put together."""

    reads: list[tuple[str, bool, EnvironmentRead]] = field(default_factory=list)
    helpers: list[_Helper] = field(default_factory=list)
    helper_calls: list[_HelperCall] = field(default_factory=list)
    env_classes: dict[str, str] = field(default_factory=dict)
    class_bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fields: list[tuple[str, str, _Default, Place]] = field(default_factory=list)
    uses: list[tuple[str, str, Place]] = field(default_factory=list)
    kernels: list[KernelKnobs] = field(default_factory=list)
    launches: list[tuple[LaunchSite, bool]] = field(default_factory=list)
    splits: list[SplitExpression] = field(default_factory=list)
    called_in_jit: set[str] = field(default_factory=set)


# --- one file --------------------------------------------------------------------------------------------------------


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias)


class FileReader(ast.NodeVisitor):
    """Walks one file with the chain of parents and of enclosing functions at hand."""

    def __init__(self, module: Module, found: Found) -> None:
        self.module = module
        self.found = found
        self.parents: list[ast.AST] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.classes: list[ast.ClassDef] = []
        self._assigned: dict[int, dict[str, list[Definition]]] = {}
        self._jit_names = {
            name for name, dotted in module.imports.items() if dotted.endswith(".jit") and is_triton(dotted)
        }
        self._made_by_call = self._calls_that_make_kernels()
        self._uses_triton = any(is_triton(d) for d in module.imports.values())

    def read(self) -> None:
        self.visit(self.module.tree)

    def place(self, node: ast.AST) -> Place:
        return Place(self.module.file, getattr(node, "lineno", 0))

    def generic_visit(self, node: ast.AST) -> None:
        self.parents.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, _LEAVES):
                    self.visit(child)
        self.parents.pop()

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
                self._field(targets[0], statement.value)
        self.classes.append(node)
        functions, self.functions = self.functions, []
        self.generic_visit(node)
        self.functions = functions
        self.classes.pop()

    def _field(self, target: ast.expr, call: ast.Call) -> None:
        """`NAME = EnvInt(32)`: a variable, if that class turns out to read the environment."""
        if not isinstance(target, ast.Name) or not _ENV_NAME.match(target.id):
            return
        arguments = [a for a in call.args if not isinstance(a, ast.Starred)]
        name = target.id
        if arguments and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str):
            first = arguments[0].value
            if len(arguments) > 1 and _ENV_NAME.match(first):
                name, arguments = first, arguments[1:]
        default = next((k.value for k in call.keywords if k.arg == "default"), arguments[0] if arguments else None)
        self.found.fields.append((last_name(call.func), name, self._default(default), self.place(target)))

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

    # --- environment ---

    def visit_Call(self, node: ast.Call) -> None:
        dotted = self._resolved(node.func)
        if dotted in ("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop"):
            default = node.args[1] if len(node.args) > 1 else None
            default = next((k.value for k in node.keywords if k.arg == "default"), default)
            name = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "key"), None)
            if name is not None:
                self._environment(node, name, dotted, default)
        else:
            self._maybe_helper(node)
            self._launch(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) and self._resolved(node.value) == "os.environ":
            self._environment(node, node.slice, "os.environ[...]", None)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        contains = len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn))
        if contains and self._resolved(node.comparators[0]) == "os.environ":
            self._environment(node, node.left, "in os.environ", None, used_as="whether it is set")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = node.value.id if isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load) else ""
        if (
            "env" in owner.lower()
            and _ENV_NAME.match(node.attr)
            and self._resolved(node.value) != "os.environ"
            and not self._is_stored()
        ):
            self.found.uses.append((owner, node.attr, self.place(node)))
        self.generic_visit(node)

    def _is_stored(self) -> bool:
        """Whether the method called on what is visited writes: `envs.X.set(...)`, `.override(...)`."""
        parent = self.parents[-1] if self.parents else None
        return isinstance(parent, ast.Attribute) and parent.attr in ("set", "clear", "override")

    def _resolved(self, node: ast.expr) -> str:
        """The dotted name of `node` with imports followed: `os.getenv` for `getenv` of `from os import getenv`."""
        dotted = dotted_name(node)
        head, dot, rest = dotted.partition(".")
        known = self.module.imports.get(head)
        if known is not None:
            return known + dot + rest
        if head not in ("os", "") and len(binders := self.module.binders.get(head, [])) == 1:
            value = getattr(binders[0], "value", None)
            if isinstance(value, ast.Attribute) and dotted_name(value) == "os.environ":
                return "os.environ" + dot + rest
        return dotted

    def _environment(
        self, node: ast.expr, name: ast.expr, how: str, default: ast.expr | None, used_as: str = ""
    ) -> None:
        used, fallback = self._used_as(node)
        used_as = used_as or used
        default = default or fallback
        function = self.functions[-1] if self.functions else None
        if isinstance(name, ast.Name) and function is not None and name.id in parameter_names(function.args):
            self._helper(function, name.id, default, used_as)
            return
        if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name) and name.value.id == "self":
            if self.classes:
                self.found.env_classes.setdefault(self.classes[-1].name, used_as)
            return
        text, literal = self._env_name(name)
        read = EnvironmentRead(self.place(node), how, *self._default(default), used_as=used_as)
        self.found.reads.append((text, literal, read))

    def _default(self, node: ast.expr | None) -> _Default:
        """A default as written, and its value when the source tells."""
        if node is None:
            return None, None
        try:
            value = evaluate(node, self.module)
        except NotStatic:
            value = None
        return text_of(node), value if isinstance(value, (int, float, str)) else None

    def _env_name(self, node: ast.expr) -> tuple[str, bool]:
        try:
            value = evaluate(node, self.module)
        except NotStatic:
            return text_of(node), False
        return (value, True) if isinstance(value, str) else (text_of(node), False)

    def _helper(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, default: ast.expr | None, used_as: str
    ) -> None:
        parameters = parameter_names(function.args)
        default_parameter = default.id if isinstance(default, ast.Name) and default.id in parameters else None
        if default_parameter is None and "default" in parameters:
            default_parameter = "default"
        declared = dict(defaults_of(function.args))
        written = declared.get(default_parameter) if default_parameter else default
        self.found.helpers.append(
            _Helper(
                self.module.file,
                function.name,
                tuple(p for p in parameters if p not in ("self", "cls")),
                name,
                default_parameter,
                self._default(written),
                used_as or _by_name(function.name),
            )
        )

    def _maybe_helper(self, node: ast.Call) -> None:
        """Remember calls such as `get_int_env("NAME", 3)`, for when the helpers of all files are known."""
        name = last_name(node.func)
        values = [*node.args[:2], *(k.value for k in node.keywords)]
        constant = any(
            isinstance(v, ast.Constant) and isinstance(v.value, str) and _ENV_NAME.match(v.value) for v in values
        )
        function = self.functions[-1] if self.functions else None
        if not constant and function is not None and "env" in name.lower():
            # A helper that calls another helper.
            parameters = parameter_names(function.args)
            passed = next((v.id for v in values if isinstance(v, ast.Name) and v.id in parameters), None)
            if passed is not None:
                self._helper(function, passed, None, self._used_as(node)[0] or _by_name(name))
        if not constant:
            return
        if isinstance(node.func, ast.Name):
            imported = name in self.module.imports or name in self.module.functions
        else:
            imported = "env" in name.lower()
        arguments: list[tuple[str | int, ast.expr]] = [*enumerate(node.args)]
        arguments += [(k.arg, k.value) for k in node.keywords if k.arg]
        defaults = {at: self._default(value) for at, value in arguments}
        self.found.helper_calls.append(_HelperCall(self.module.file, node, defaults, self._used_as(node)[0], imported))

    def _used_as(self, node: ast.expr) -> tuple[str, ast.expr | None]:
        """What the parents make of the value just visited, and a default written as `... or default`."""
        fallback: ast.expr | None = None
        child: ast.AST = node
        for parent in reversed(self.parents):
            below, child = child, parent
            if isinstance(parent, ast.Call):
                name = last_name(parent.func)
                if name in ("int", "float", "bool", "str", "strtobool", "loads"):
                    return name, fallback
                if not isinstance(parent.func, ast.Attribute) or name not in ("lower", "upper", "strip", "split"):
                    return "", fallback
                if name == "split":
                    return "list", fallback
            elif isinstance(parent, ast.Compare):
                if isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
                    return "whether it is set", fallback
                return "flag", fallback
            elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or) and below is not parent.values[-1]:
                fallback = fallback or parent.values[-1]
            elif isinstance(parent, (ast.If, ast.UnaryOp, ast.BoolOp)):
                return "flag", fallback
            elif isinstance(parent, ast.Assign) and self.functions and isinstance(parent.targets[0], ast.Name):
                return self._later_use(parent.targets[0].id), fallback
            elif not isinstance(parent, ast.Attribute):
                return "", fallback
        return "", fallback

    def _later_use(self, name: str) -> str:
        """`int` when the innermost function makes an integer of `name`, and so on."""
        for inner in own_statements(self.functions[-1]):
            if not isinstance(inner, ast.Call) or last_name(inner.func) not in ("int", "float", "bool", "strtobool"):
                continue
            if any(isinstance(a, ast.Name) and a.id == name for a in inner.args):
                return last_name(inner.func)
        return ""

    # --- launches and splits ---

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
            self._field(node.targets[0], node.value)
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


def _by_name(function: str) -> str:
    for kind in ("int", "bool", "float", "flag", "list"):
        if kind in function.lower():
            return "flag" if kind == "bool" else kind
    return ""


# --- putting the environment together --------------------------------------------------------------------------------


def environment_of(found: Found, kernel_files: set[str]) -> tuple[EnvironmentVariable, ...]:
    reads: dict[tuple[str, bool], list[EnvironmentRead]] = {}
    for name, literal, read in found.reads:
        reads.setdefault((name, literal), []).append(read)
    for name, read in (*_helper_reads(found), *_field_reads(found)):
        reads.setdefault((name, True), []).append(read)
    for owner, name, place in found.uses:
        known = reads.setdefault((name, True), [])
        # The declaration itself, and a second attribute of one expression, are not reads of their own.
        if all(r.place != place for r in known):
            known.append(EnvironmentRead(place, f"{owner}.{name}"))
    variables = [
        EnvironmentVariable(
            name=name,
            reads=tuple(sorted(rows, key=lambda r: (r.place.file, r.place.line))),
            literal=literal,
            beside_kernels=any(r.place.file in kernel_files for r in rows),
        )
        for (name, literal), rows in reads.items()
    ]
    return tuple(sorted(variables, key=lambda v: (not v.beside_kernels, not v.literal, v.name)))


_WRITES = re.compile(
    r"^_?(set|del|put|unset|override|patch|with|mock|export|update|add)|setenv|environ$", re.IGNORECASE
)


def _helper_reads(found: Found) -> Iterator[tuple[str, EnvironmentRead]]:
    by_name: dict[str, list[_Helper]] = {}
    for known in found.helpers:
        by_name.setdefault(known.name, []).append(known)
    for call in found.helper_calls:
        name = last_name(call.node.func)
        helpers = by_name.get(name, [])
        elsewhere = helpers[0] if helpers and call.imported else None
        helper: _Helper | None = next((h for h in helpers if h.file == call.file), elsewhere)
        if helper is None:
            # Not at hand, but named as one that reads the environment: the usual order is name, then default.
            if not re.search(r"env", name, re.IGNORECASE) or _WRITES.search(name):
                continue
            helper = _Helper(call.file, name, ("name", "default"), "name", "default", (None, None), _by_name(name))
        variable = call.argument(helper, helper.name_parameter)
        if variable is None or not isinstance(variable[1], str) or not _ENV_NAME.match(variable[1]):
            continue
        given = call.argument(helper, helper.default_parameter) if helper.default_parameter else None
        place = Place(call.file, call.node.lineno)
        read = EnvironmentRead(place, f"{name}()", *(given or helper.default), used_as=helper.used_as or call.used_as)
        yield variable[1], read


def _field_reads(found: Found) -> Iterator[tuple[str, EnvironmentRead]]:
    reading = set(found.env_classes)
    while True:
        more = {name for name, bases in found.class_bases.items() if name not in reading and set(bases) & reading}
        if not more:
            break
        reading |= more
    for cls, name, default, place in found.fields:
        if cls in reading:
            yield name, EnvironmentRead(place, f"{cls}()", *default, used_as=_by_name(cls))
