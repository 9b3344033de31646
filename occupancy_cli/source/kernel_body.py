"""What a kernel's own statements say of its parameters: which are pointers, to what, and how constexprs are used.

    y = tl.load(labels + row)          labels is loaded from, and what it holds is an index: integers
    tl.store(out + y, x.to(tl.bfloat16))                    out is stored to, as bf16
    if MODE == "swish":                MODE is compared with a text
    tl.dot(a, b, input_precision=P)    P is a precision of tl.dot

Read from the syntax tree; nothing is executed. It is used where nobody states a launch's types.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.knob_types import KernelKnobs
from occupancy_cli.source.launch_tensors import passed_at_launch
from occupancy_cli.source.source_files import read_source

POINTER_NAME = re.compile(r"(_|^)(ptrs?|buf|buffer|cache|tensor)$|^p_|_desc$", re.IGNORECASE)
_ADDRESSES = frozenset({"load", "store", "make_block_ptr", "make_tensor_descriptor", "advance", "async_copy"})
_SIZED = frozenset({"arange", "zeros", "full", "make_block_ptr", "reshape", "view", "broadcast_to", "static_range"})
_INTEGER_OPERATORS = (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)
_CASTS = frozenset({"to", "cast"})


class KernelBody:
    """What a kernel's own statements say of its parameters, and the module around it of names used at launches."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, module: ast.Module) -> None:
        self.constants = {
            n.targets[0].id: ast.unparse(n.value)
            for n in module.body
            if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
        }
        params = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        self.annotations = {p.arg: ast.unparse(p.annotation).strip("'\"") for p in params if p.annotation is not None}
        names = {p.arg for p in params}
        self.addressed = self._addressed(function) & names
        self.descriptors = dict(self._descriptors(function, names))
        self.stored_as = dict(self._stored_as(function, names))
        self.compared = self._compared(function, names)
        flow = _Flow(function, names)
        self.integers = flow.integers & names
        self.indices = flow.pointers_to(flow.integers)
        self.float32 = flow.pointers_to(flow.accumulated())
        self.precisions = {
            k.value.id
            for call in _calls(function, {"dot", "dot_scaled"})
            for k in call.keywords
            if k.arg == "input_precision" and isinstance(k.value, ast.Name)
        } & names
        sized = (call for call in _calls(function, _SIZED))
        self.sizes = {n for call in sized for part in call.args for n in _names(part)} & names
        self.passed = passed_at_launch(module, {function.name}, [p.arg for p in params])
        self.axes = 1 + max(
            (
                n.value
                for call in _calls(function, {"program_id"})
                for n in [*call.args, *(k.value for k in call.keywords)]
                if isinstance(n, ast.Constant) and isinstance(n.value, int)
            ),
            default=0,
        )

    @staticmethod
    def of(path: Path, kernel: KernelKnobs) -> KernelBody:
        """The body of `kernel`, found by its name (and line, where a file has several of that name)."""
        tree = parse(path, read_source(path))
        functions = [
            n
            for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == (kernel.function or kernel.name)
        ]
        return KernelBody(min(functions, key=lambda f: abs(f.lineno - kernel.place.line)), tree)

    @staticmethod
    def _descriptors(function: ast.AST, params: set[str]) -> Iterator[tuple[str, int]]:
        """The parameters that are tensor descriptors, with their dimensions: `a_desc.load([m, k])`."""
        for call in _calls(function, {"load", "store", "gather", "scatter", "atomic_add", "atomic_max", "atomic_min"}):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in params and call.args:
                offsets = call.args[0]
                yield owner.id, len(offsets.elts) if isinstance(offsets, (ast.List, ast.Tuple)) else 2

    @staticmethod
    def _compared(function: ast.AST, params: set[str]) -> dict[str, str | int]:
        """The parameters that a kernel asks about, `MODE == "swish"` or `MODE == 0`, each with the first."""
        found: dict[str, str | int] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id in params:
                values = [v for c in node.comparators for v in (c.elts if isinstance(c, ast.Tuple) else [c])]
                asked = isinstance(node.ops[0], (ast.Eq, ast.In))
                for value in values if asked else ():
                    given = value.value if isinstance(value, ast.Constant) else None
                    if isinstance(given, (str, int)) and not isinstance(given, bool):
                        found.setdefault(node.left.id, given)
        return found

    @staticmethod
    def _stored_as(function: ast.AST, params: set[str]) -> Iterator[tuple[str, str]]:
        """The type that is stored through a pointer: `tl.store(c_ptr + ..., acc.to(tl.float16))`."""
        for call in _calls(function, {"store"}):
            value = call.args[1] if len(call.args) > 1 else None
            if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "to":
                continue
            cast = ast.unparse(value.args[0]) if value.args else ""
            for name in _terms(call.args[0]) & params:
                if cast.startswith(("tl.", "triton.language.")):
                    yield name, cast.rpartition(".")[2]

    @staticmethod
    def _addressed(function: ast.AST) -> set[str]:
        """Names that loads and stores start from: the terms of a sum that is an address, through assignments."""
        names: set[str] = set()
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and call.args and _is_address(call):
                names |= _bases(call.args[0])
        while True:
            before = len(names)
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id in names for t in node.targets
                ):
                    names |= _bases(node.value)
            if len(names) == before:
                return names


class _Flow:
    """Where the values of a kernel's names come from, by the assignments to them."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, params: set[str]) -> None:
        self._function, self._params = function, params
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._assigned.setdefault(target.id, []).append(node.value)
        self._loaded = {n for n, values in self._assigned.items() if all(_load(v) is not None for v in values)}
        self.integers = self._integers()

    def _integers(self) -> set[str]:
        """Names that must hold integers: what addresses are reckoned from, bounds of loops, operands of // and %."""
        found: set[str] = set()
        for node in ast.walk(self._function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, _INTEGER_OPERATORS):
                found |= _names(node.left) | _names(node.right)
            elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
                found |= {n for part in node.iter.args for n in _names(part)}
            elif isinstance(node, ast.Call) and node.args and _is_address(node):
                found |= self._offsets(node.args[0])
        while True:
            more = {n for name in found for v in self._assigned.get(name, ()) for n in _names(v)} - found
            addresses = {n for n in found if any(self._offsets(v) for v in self._assigned.get(n, ()))}
            more |= {n for name in addresses for v in self._assigned[name] for n in self._offsets(v)} - found
            if not more:
                return found
            found |= more

    def _offsets(self, address: ast.expr) -> set[str]:
        """Of the names in an address, or in what is assigned to one, those that are not its pointer."""
        bases = {n for n in _bases(address) if n not in self._loaded}
        pointers = {n for n in bases if n in self._params or POINTER_NAME.search(n)} or bases
        offsets = _names(address) - pointers
        for name in pointers - self._params:
            for value in self._assigned.get(name, ()):
                if isinstance(value, ast.BinOp) and name not in _names(value):
                    offsets |= self._offsets(value)
        return offsets if len(pointers) == 1 else set()

    def pointers_to(self, names: set[str]) -> set[str]:
        """The parameters through which the values of these names are loaded."""
        found: set[str] = set()
        for name in names & self._loaded:
            for value in self._assigned[name]:
                load = _load(value)
                if load is not None and load.args:
                    found |= self._origins(load.args[0])
        return found

    def accumulated(self) -> set[str]:
        """Names loaded without a cast whose values are carried by a name that starts as float32 zeros in a loop: Triton
        asks that it keeps its type."""
        starts = {n for n, values in self._assigned.items() if any(_is_float32(v) for v in values)}
        carried = {v.id for n in starts for v in self._assigned[n] if isinstance(v, ast.Name)}
        direct = {n for n in starts if any(_load(v) is v for v in self._assigned[n])}
        plain = {n for n in carried if all(_load(v) is v for v in self._assigned.get(n, [ast.Constant(0)]))}
        return plain | (direct & self._loaded)

    def _origins(self, address: ast.expr, depth: int = 8) -> set[str]:
        """The parameters that an address starts from."""
        if isinstance(address, ast.Call) and _is_address(address) and address.args:
            return self._origins(address.args[0], depth)
        bases = {n for n in _bases(address) if n not in self._loaded}
        found = bases & self._params
        for name in bases - self._params if depth else ():
            for value in self._assigned.get(name, ()):
                if name not in _names(value):
                    found |= self._origins(value, depth - 1)
        pointers = {n for n in found if POINTER_NAME.search(n)}
        found = pointers or found - self.integers
        return found if len(found) == 1 else set()


def _load(value: ast.expr) -> ast.Call | None:
    """The load whose value this is, a cast of it or not."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "load":
            return value
        if value.func.attr not in _CASTS:
            return None
        value = value.func.value
    return None


def _is_float32(value: ast.expr) -> bool:
    """Whether a block of float32 is made here: `tl.zeros([M, N], dtype=tl.float32)`."""
    made = (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("zeros", "full")
    )
    return made and "float32" in ast.unparse(value)


def _is_address(call: ast.Call) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return called in _ADDRESSES or called.startswith("atomic_")


def _names(node: ast.AST) -> set[str]:
    """The names whose numbers an expression is reckoned from: not those of functions, comparisons or loads in it."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _load(node) is not None):
        return set()
    if isinstance(node, ast.Call):
        owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS else None
        return (_names(owner) if owner is not None else set()) | {n for part in node.args for n in _names(part)}
    if isinstance(node, ast.IfExp):
        return _names(node.body) | _names(node.orelse)
    if isinstance(node, ast.Attribute):
        return set()
    return {n for child in ast.iter_child_nodes(node) for n in _names(child)}


def _terms(node: ast.expr) -> set[str]:
    """The bare names among the terms of a sum. A cast of a pointer (`p.to(...)`) counts as the pointer."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _terms(node.left) | _terms(node.right)
    if isinstance(node, ast.IfExp):
        return _terms(node.body) | _terms(node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        return _terms(node.func.value)
    return {node.id} if isinstance(node, ast.Name) else set()


def _bases(address: ast.expr) -> set[str]:
    """Of the terms of an address those that may be the pointer: one of them is, and its name may say so."""
    terms = _terms(address)
    return {n for n in terms if POINTER_NAME.search(n)} or terms


def _calls(node: ast.AST, names: Iterable[str]) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in names:
            yield call
