"""How a file launches a kernel: the options and constexprs that its launch sites and its decorators give.

    mm[(16, 16)](a, b, c, K, BM=64, num_warps=8)     a launch; `launcher(mm, (16, 16), a, b, num_warps=8)` is one too
    @tuner(configs=[triton.Config(...)], key=["n"])   configs on a decorator, whose package need not be installed
    @heuristics.template(num_stages=5, num_warps=8)   options on a decorator

What stands there and cannot be worked out is `NotRead`, with its line and the reason: an answer that would otherwise be
judged by defaults says so. Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.source.bounded_operations import NotStatic
from occupancy_cli.source.decorator_options import DecoratorReader, dict_entries, option_value
from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.knob_types import NotRead, SourceLaunch, SourceOptions
from occupancy_cli.source.launch_values import CallSite, LaunchValues, product_of
from occupancy_cli.source.module_names import Module, last_name, shown
from occupancy_cli.source.source_files import read_source
from occupancy_cli.source.syntax import dotted_name, is_constexpr, own_statements

_WRAPPERS = frozenset({"jit", "autotune", "heuristics"})
_MOST_FILES = 6


def source_options(path: Path, kernel: str) -> SourceOptions:
    """What the file at `path`, and the one it takes the kernel from, say of launches of `kernel` (`Ops.kernel`)."""
    found = SourceOptions()
    for file, module, name in _definitions(path, kernel):
        one = _KernelReader(file, module, name).read()
        found = SourceOptions(
            (*found.decorated, *one.decorated),
            (*found.launches, *one.launches),
            (*found.not_read, *one.not_read),
            (*found.bare, *one.bare),
            found.configs_not_read or one.configs_not_read,
            found.signature or one.signature,
        )
    return found


def parameter_names(path: Path, kernel: str) -> list[str]:
    """The positional parameters of a kernel, in the order of its signature; none where its source is not found."""
    for file, module, name in _definitions(path, kernel):
        found = _KernelReader(file, module, name).parameters
        if found:
            return found
    return []


def _definitions(path: Path, kernel: str) -> Iterator[tuple[Path, Module, str]]:
    """The file, and those that it imports the kernel from, each with what the kernel is called there."""
    from occupancy_cli.source.source_knobs import resolve_import

    seen: set[Path] = set()
    while path not in seen and len(seen) < _MOST_FILES:
        seen.add(path)
        module = _module(path)
        if module is None:
            return
        yield path, module, kernel
        dotted = module.imports.get(kernel, "")
        owner, _, last = dotted.rpartition(".")
        target = resolve_import(path, owner) if owner.strip(".") else None
        if target is None:
            return
        path, kernel = target, last


def _module(path: Path) -> Module | None:
    from occupancy_cli.source.source_knobs import resolve_import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(path, read_source(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known: dict[Path, Module | None] = {}

    def resolve(dotted: str) -> Module | None:
        target = resolve_import(path, dotted)
        if target is None or target == path:
            return None
        if target not in known:
            known[target] = None
            known[target] = _module(target)
        return known[target]

    return Module(tree, path.name, resolve)


class _KernelReader:
    """Reads what one file says of one kernel."""

    def __init__(self, path: Path, module: Module, kernel: str) -> None:
        self.path, self.module = path, module
        self.values = LaunchValues(module)
        self.names = self._names_of(kernel.rpartition(".")[2])
        self.function = self._function(kernel)
        arguments = self.function.args if self.function is not None else None
        every = [*arguments.posonlyargs, *arguments.args] if arguments is not None else []
        keyword_only = arguments.kwonlyargs if arguments is not None else []
        self.parameters = [a.arg for a in every]
        self.constexprs = {a.arg for a in (*every, *keyword_only) if is_constexpr(a.annotation)}

    def read(self) -> SourceOptions:
        decorators = DecoratorReader(self.path, self.module, self.parameters)
        decorated: list[SourceLaunch] = []
        missing: list[NotRead] = []
        bare: list[NotRead] = []
        unknown: NotRead | None = None
        signature: dict[str, str] = {}
        for decorator in self._decorators():
            kind = decorators.kind(decorator)
            if kind == "autotune":
                unknown = decorators.autotune_not_read(decorator) or unknown
            elif kind == "foreign":
                configs, missed, types = decorators.carried(decorator)
                decorated += configs
                signature |= types
                if configs:
                    missing += missed
                elif not decorators.is_opaque(decorator):
                    continue  # it ran when the file was loaded
                elif isinstance(decorator, ast.Call) and (decorator.args or decorator.keywords):
                    missing += missed or [decorators.lost(decorator, "what it sets is not known")]
                else:
                    bare.append(decorators.lost(decorator, "its package is not installed, what it does is not known"))
        launches = list(self._launches())
        return SourceOptions(tuple(decorated), tuple(launches), tuple(missing), tuple(bare), unknown, signature or None)

    # --- finding the kernel ---

    def _function(self, kernel: str) -> ast.FunctionDef | None:
        """The function of the kernel: the last of that name, as Python keeps it; in its class where one is named."""
        scope: ast.AST = self.module.tree
        *owners, name = kernel.split(".")
        for owner in owners:
            kinds = (ast.ClassDef, ast.FunctionDef)
            inside = [n for n in ast.walk(scope) if isinstance(n, kinds) and n.name == owner]
            scope = inside[-1] if inside else scope
        names = {name} | ({self._made_from(name)} if not owners else set())
        found = [n for n in ast.walk(scope) if isinstance(n, ast.FunctionDef) and n.name in names]
        return max(found, key=lambda f: f.lineno) if found else None

    def _made_from(self, name: str) -> str:
        """The function that `name = triton.jit(function)` makes a kernel of, through further decorators."""
        for statement in self.module.binders.get(name, ()):
            value = getattr(statement, "value", None)
            while isinstance(value, ast.Call) and len(value.args) == 1:
                value = value.args[0]
            if isinstance(value, ast.Name) and value is not getattr(statement, "value", None):
                return value.id
        return name

    def _decorators(self) -> list[ast.expr]:
        """What decorates the kernel, with `@` or by calls."""
        found = list(self.function.decorator_list) if self.function is not None else []
        for name in self.names:
            for statement in self.module.binders.get(name, ()):
                value = getattr(statement, "value", None)
                while isinstance(value, ast.Call) and len(value.args) == 1 and not isinstance(value.args[0], ast.List):
                    if isinstance(value.func, ast.Call):
                        found.append(value.func)
                    value = value.args[0]
        return found

    def _names_of(self, kernel: str) -> set[str]:
        """The kernel's names in this file: its own, and those that are assigned from it alone or in a choice."""
        names = {kernel, self._made_from(kernel)}
        simple = [
            (n.targets[0].id, n.value)
            for n in ast.walk(self.module.tree)
            if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
        ]
        while True:
            more = {target for target, value in simple if target not in names and self._means(value, names)}
            if not more:
                return names
            names |= more

    def _means(self, value: ast.expr, names: set[str]) -> bool:
        if isinstance(value, ast.IfExp):
            return self._means(value.body, names) or self._means(value.orelse, names)
        if isinstance(value, ast.BoolOp):
            return any(self._means(v, names) for v in value.values)
        if isinstance(value, ast.Call) and len(value.args) == 1:
            called = value.func.func if isinstance(value.func, ast.Call) else value.func
            wraps = last_name(called) in _WRAPPERS or "wrap" in last_name(called) or isinstance(value.func, ast.Call)
            return wraps and self._means(value.args[0], names)
        return last_name(value) in names and isinstance(value, (ast.Name, ast.Attribute))

    # --- launches ---

    def _launches(self) -> Iterator[SourceLaunch]:
        for site in self.values.calls:
            call = site.node
            if any(isinstance(f, ast.FunctionDef) and f is self.function for f in site.functions):
                continue
            target = self._launched(call)
            if target is not None and self._is_kernel(target, site):
                yield from self._launch(site, call.args, call.keywords, "launched")
            elif target is None and (rest := self._through_launcher(call)) is not None:
                name = dotted_name(call.func)
                inside = list(self._inside_launcher(call, site))
                if inside:
                    yield from inside
                else:
                    yield from self._launch(site, rest, call.keywords, f"launched through {name}")

    @staticmethod
    def _launched(call: ast.Call) -> ast.expr | None:
        """What a call launches, if it has the form of a launch."""
        func = call.func
        if isinstance(func, ast.Subscript) or (isinstance(func, ast.Attribute) and func.attr in ("run", "warmup")):
            target = func.value
        elif isinstance(func, ast.Call) and last_name(func.func) == "partial" and func.args:
            inner = func.args[0]
            target = inner.value if isinstance(inner, ast.Subscript) else inner
        else:
            return None
        while isinstance(target, ast.Call) and target.args:  # wrap_triton(kernel)[grid](...)
            target = target.args[0]
        return target

    def _is_kernel(self, target: ast.expr, _site: CallSite) -> bool:
        return isinstance(target, (ast.Name, ast.Attribute)) and last_name(target) in self.names

    def _through_launcher(self, call: ast.Call) -> Sequence[ast.expr] | None:
        """The kernel's own arguments of a call that hands the kernel to a launcher; None for another call."""
        at = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id in self.names), None)
        if at is None:
            return None
        name = last_name(call.func)
        given = {k.arg for k in call.keywords}
        if name in _WRAPPERS or isinstance(call.func, ast.Call):
            return None
        if not given & set(LAUNCH_OPTIONS) and "launch" not in name.lower() and name not in self.module.functions:
            return None
        if name in self.module.functions and not list(self._inside_launcher(call, None)):
            return None
        return call.args[at + 2 :]

    def _inside_launcher(self, call: ast.Call, site: CallSite | None) -> Iterator[SourceLaunch]:
        """The launches inside a launcher function of this file, with the options that this call hands on to them."""
        functions = self.module.functions.get(last_name(call.func), [])
        for function in functions:
            positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
            at = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id in self.names), 0)
            if at >= len(positional):
                continue
            for inner in self.values.calls:
                target = self._launched(inner.node)
                if function in inner.functions and isinstance(target, ast.Name) and target.id == positional[at]:
                    kwarg = function.args.kwarg.arg if function.args.kwarg is not None else ""
                    handed = [k for k in call.keywords if k.arg not in positional] if kwarg else []
                    own = [
                        k
                        for k in inner.node.keywords
                        if k.arg is not None or not isinstance(k.value, ast.Name) or k.value.id != kwarg
                    ]
                    how = f"launched through {function.name} (called in line {call.lineno})"
                    plain = [a for a in inner.node.args if not isinstance(a, ast.Starred)]
                    yield from self._launch(inner, plain, own, how, (handed, site))

    def _launch(
        self,
        site: CallSite,
        args: Sequence[ast.expr],
        keywords: Sequence[ast.keyword],
        how: str,
        handed: tuple[Sequence[ast.keyword], CallSite | None] = ((), None),
    ) -> Iterator[SourceLaunch]:
        """The configs of one launch: one, or one for each way its code may go."""
        given: dict[str, tuple[ast.expr, CallSite]] = {}
        numbers: dict[str, int] = {}
        for name, argument in zip(self.parameters, args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            if name in self.constexprs:
                given[name] = (argument, site)
            elif isinstance(argument, ast.Constant) and type(argument.value) is int:
                numbers[name] = argument.value
        missed: list[NotRead] = []
        for keyword, at in [*((k, site) for k in keywords), *((k, handed[1] or site) for k in handed[0])]:
            if keyword.arg is not None:
                given[keyword.arg] = (keyword.value, at)
                continue
            entries = self._spread(keyword.value, at)
            if entries is None:
                text = f"the launch is given **{shown(keyword.value, 60)}, which is not read"
                missed.append(NotRead("", self.path.name, site.node.lineno, text))
            else:
                given |= {n: (v, at) for n, v in entries.items()}
        possible: dict[str, list[Any]] = {}
        for name, (node, at) in given.items():
            if name not in LAUNCH_OPTIONS and name not in self.constexprs:
                continue
            try:
                values = [option_value(name, v) for v in self.values.of(node, at)]
                values = [v for v in values if v is not None or name not in LAUNCH_OPTIONS] or []
                if values:
                    possible[name] = values
            except NotStatic as why:
                text = f"{name}={shown(node, 60)} at the launch is not read: {why}"
                missed.append(NotRead(name, self.path.name, site.node.lineno, text))
        rows = product_of(possible)
        if rows is None:
            # Constexprs have many values more often than options do: what is launched is kept, they are asked for.
            for name in [n for n, v in possible.items() if n not in LAUNCH_OPTIONS and len(v) > 1]:
                text = f"{name} at the launch has {len(possible.pop(name))} values: not read"
                missed.append(NotRead(name, self.path.name, site.node.lineno, text))
            rows = product_of(possible) or [{}]
        for row in rows:
            yield SourceLaunch(row, self.path.name, site.node.lineno, how, tuple(missed), numbers, len(rows))

    def _spread(self, node: ast.expr, at: CallSite) -> dict[str, ast.expr] | None:
        """The entries of `**node`, where they are written out or computed."""
        if isinstance(node, ast.Dict):
            entries = dict(dict_entries(node))
            return entries if len(entries) == len(node.keys) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            return {k.arg: k.value for k in node.keywords if k.arg is not None}
        if isinstance(node, ast.Name):
            for function in reversed(at.functions):
                stores = [
                    n
                    for n in own_statements(function)
                    if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)
                ]
                if len(stores) == 1:
                    changed = any(
                        isinstance(n, ast.Subscript)
                        and isinstance(n.ctx, ast.Store)
                        and isinstance(n.value, ast.Name)
                        and n.value.id == node.id
                        for n in own_statements(function)
                    )
                    return None if changed else self._spread(stores[0].value, at)
        try:
            values = self.values.of(node, at)
        except NotStatic:
            return None
        if len(values) != 1 or not isinstance(values[0], dict):
            return None
        try:
            return {str(n): ast.parse(repr(v), mode="eval").body for n, v in values[0].items()}
        except SyntaxError:
            return None
