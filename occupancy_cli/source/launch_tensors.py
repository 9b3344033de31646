"""What the function around a launch says of the tensors that it passes: their type, their shape, a descriptor's blocks.

    M, K = a.shape
    c = torch.empty((M, N), dtype=torch.float16)      c_ptr: float16, of M x N
    a_desc = TensorDescriptor.from_tensor(a, [128, 64])   a_desc: blocks of 128 x 64
    mm[grid](a_desc, c, a.stride(0), M, N)            the stride is K, where `a` is contiguous

A `pre_hook` that sets `nargs["a_desc"].block_shape = [nargs["BM"], 64]` says the blocks too. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from occupancy_cli.source.syntax import dotted_name

_MAKERS = frozenset({"empty", "zeros", "ones", "full", "rand", "randn", "randint", "empty_strided", "arange"})
_LIKE = frozenset({"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"})
_SAME_TENSOR = frozenset({"contiguous", "detach", "clone", "cuda"})


@dataclass(frozen=True)
class Passed:
    """What is known of an argument at a launch; texts are Python of the launching function.

    `dtype` is torch's name of a tensor's type, `block_shape` a descriptor's, `stride` what a stride comes to where its
    tensor is contiguous.
    """

    dtype: str | None = None
    block_shape: tuple[str, ...] = ()
    stride: str | None = None


@dataclass(frozen=True)
class _Tensor:
    dtype: str | None = None
    dims: tuple[str, ...] = ()


def passed_at_launch(tree: ast.Module, names: Collection[str], parameters: Sequence[str]) -> dict[str, Passed]:
    """By parameter what the launches of a kernel (called one of `names`) say; the first that says something counts."""
    found: dict[str, Passed] = {}
    for function in (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))):
        for call in _launches(function, names):
            seen = _Function(function, call.lineno)
            given = dict(zip(parameters, call.args, strict=False))
            given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
            for name, value in given.items():
                said = seen.passed(value)
                if said != Passed() and name in parameters:
                    found.setdefault(name, said)
    for name, shape in _hooked_shapes(tree).items():
        found[name] = Passed(found[name].dtype if name in found else None, shape)
    return found


def _launches(function: ast.AST, names: Collection[str]) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        if dotted_name(node.func.value).rpartition(".")[2] in names:
            yield node


class _Function:
    """The assignments of a launching function before the launch."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, line: int) -> None:
        self.values: dict[str, ast.expr] = {}
        self.dims: dict[str, tuple[str, ...]] = {}
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or node.lineno > line or len(node.targets) != 1:
                continue
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name):
                self.values[target.id] = value
            elif isinstance(target, ast.Tuple):
                parts = value.elts if isinstance(value, ast.Tuple) else ()
                for each, part in zip(target.elts, parts, strict=False):
                    if isinstance(each, ast.Name):
                        self.values[each.id] = part
                if isinstance(value, ast.Attribute) and value.attr == "shape":
                    self.dims[ast.unparse(value.value)] = tuple(ast.unparse(each) for each in target.elts)

    def passed(self, value: ast.expr) -> Passed:
        value = self._assigned(value)
        if isinstance(value, ast.Call):
            called = dotted_name(value.func)
            if called.endswith(("TensorDescriptor", "TensorDescriptor.from_tensor")):
                return self._descriptor(value, called.endswith("from_tensor"))
            if isinstance(value.func, ast.Attribute) and value.func.attr == "stride" and len(value.args) == 1:
                return Passed(stride=self._stride(value.func.value, value.args[0]))
        return Passed(dtype=self._tensor(value).dtype)

    def _assigned(self, value: ast.expr) -> ast.expr:
        for _ in range(4):
            if not isinstance(value, ast.Name) or value.id not in self.values:
                break
            value = self.values[value.id]
        return value

    def _descriptor(self, call: ast.Call, from_tensor: bool) -> Passed:
        keywords = {k.arg: k.value for k in call.keywords}
        place = 1 if from_tensor else 3
        shape = keywords.get("block_shape", call.args[place] if len(call.args) > place else None)
        shape = None if shape is None else self._assigned(shape)
        base = keywords.get("tensor", keywords.get("base", call.args[0] if call.args else None))
        blocks = tuple(ast.unparse(e) for e in shape.elts) if isinstance(shape, (ast.List, ast.Tuple)) else ()
        return Passed(None if base is None else self._tensor(self._assigned(base)).dtype, blocks)

    def _tensor(self, value: ast.expr, depth: int = 0) -> _Tensor:
        """What is known of a tensor by how it was made."""
        name = ast.unparse(value)
        value = self._assigned(value)
        dims = self.dims.get(name, self.dims.get(ast.unparse(value), ()))
        if not isinstance(value, ast.Call) or depth > 4:
            return _Tensor(None, dims)
        called = dotted_name(value.func).rpartition(".")[2] or (
            value.func.attr if isinstance(value.func, ast.Attribute) else ""
        )
        dtype = next((k.value for k in value.keywords if k.arg == "dtype"), None)
        if called in _MAKERS and not dims:
            sizes = (
                value.args[0].elts if value.args and isinstance(value.args[0], (ast.Tuple, ast.List)) else value.args
            )
            dims = tuple(ast.unparse(size) for size in sizes)
        inner = _Tensor()
        if called in _LIKE and value.args:
            inner = self._tensor(value.args[0], depth + 1)
        elif called in _SAME_TENSOR and isinstance(value.func, ast.Attribute):
            inner = self._tensor(value.func.value, depth + 1)
        return _Tensor(self._dtype(dtype, depth) or inner.dtype, dims or inner.dims)

    def _dtype(self, node: ast.expr | None, depth: int) -> str | None:
        if node is None:
            return None
        node = self._assigned(node)
        dotted = dotted_name(node)
        if dotted.startswith("torch."):
            return dotted.rpartition(".")[2]
        if isinstance(node, ast.Attribute) and node.attr == "dtype":
            return self._tensor(node.value, depth + 1).dtype
        return None

    def _stride(self, tensor: ast.expr, axis: ast.expr) -> str | None:
        dims = self._tensor(tensor).dims
        try:
            number = ast.literal_eval(axis)
        except ValueError:
            return None
        if number == -1:
            return "1"
        if not isinstance(number, int) or not dims or not 0 <= number < len(dims):
            return None
        return " * ".join(dims[number + 1 :]) or "1"


def _hooked_shapes(tree: ast.Module) -> Mapping[str, tuple[str, ...]]:
    """The block shapes that hooks set: `nargs["a_desc"].block_shape = [nargs["BM"], 64]`, with names for look-ups."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, (ast.List, ast.Tuple)):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "block_shape":
                name = _looked_up(target.value)
                if name is not None:
                    found[name] = tuple(_looked_up(e) or ast.unparse(e) for e in node.value.elts)
    return found


def _looked_up(node: ast.expr) -> str | None:
    """NAME of `nargs["NAME"]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return None
