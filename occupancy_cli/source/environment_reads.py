"""Where a file reads environment variables: `EnvironmentWalk` finds them, `environment_of` joins what all files gave.

Reads are followed through helper functions (`int_env("NAME", 3)`), field classes (`NAME = EnvInt(3)`) and modules of
variables (`envs.NAME`), which may lie in other files: hence the two steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.knob_types import EnvironmentRead, EnvironmentVariable, Place
from occupancy_cli.source.module_names import Module, last_name
from occupancy_cli.source.static_values import evaluate
from occupancy_cli.source.syntax import defaults_of, dotted_name, own_statements, parameter_names, text_of

_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}$")
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
class FoundReads:
    """What the files gave of the environment, before it is put together."""

    reads: list[tuple[str, bool, EnvironmentRead]] = field(default_factory=list)
    helpers: list[_Helper] = field(default_factory=list)
    helper_calls: list[_HelperCall] = field(default_factory=list)
    env_classes: dict[str, str] = field(default_factory=dict)
    class_bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fields: list[tuple[str, str, _Default, Place]] = field(default_factory=list)
    uses: list[tuple[str, str, Place]] = field(default_factory=list)


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias)


class EnvironmentWalk(ast.NodeVisitor):
    """Walks one file with the chain of parents and of enclosing functions at hand, and takes down what it reads."""

    def __init__(self, module: Module, reads: FoundReads) -> None:
        self.module = module
        self.reads = reads
        self.parents: list[ast.AST] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.classes: list[ast.ClassDef] = []

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

    def take_field(self, target: ast.expr, call: ast.Call) -> None:
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
        self.reads.fields.append((last_name(call.func), name, self._default(default), self.place(target)))

    def take_call(self, node: ast.Call) -> None:
        """A call that reads the environment itself, or may be one of a helper that does."""
        dotted = self._resolved(node.func)
        if dotted in ("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop"):
            default = node.args[1] if len(node.args) > 1 else None
            default = next((k.value for k in node.keywords if k.arg == "default"), default)
            name = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "key"), None)
            if name is not None:
                self._environment(node, name, dotted, default)
        else:
            self._maybe_helper(node)

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
            self.reads.uses.append((owner, node.attr, self.place(node)))
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
                self.reads.env_classes.setdefault(self.classes[-1].name, used_as)
            return
        text, literal = self._env_name(name)
        read = EnvironmentRead(self.place(node), how, *self._default(default), used_as=used_as)
        self.reads.reads.append((text, literal, read))

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
        self.reads.helpers.append(
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
        self.reads.helper_calls.append(_HelperCall(self.module.file, node, defaults, self._used_as(node)[0], imported))

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


def _by_name(function: str) -> str:
    for kind in ("int", "bool", "float", "flag", "list"):
        if kind in function.lower():
            return "flag" if kind == "bool" else kind
    return ""


def environment_of(found: FoundReads, kernel_files: set[str]) -> tuple[EnvironmentVariable, ...]:
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


def _helper_reads(found: FoundReads) -> Iterator[tuple[str, EnvironmentRead]]:
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


def _field_reads(found: FoundReads) -> Iterator[tuple[str, EnvironmentRead]]:
    reading = set(found.env_classes)
    while True:
        more = {name for name, bases in found.class_bases.items() if name not in reading and set(bases) & reading}
        if not more:
            break
        reading |= more
    for cls, name, default, place in found.fields:
        if cls in reading:
            yield name, EnvironmentRead(place, f"{cls}()", *default, used_as=_by_name(cls))
