"""What a kernel object is: its signature, Triton's decorators around it, and the values that those give a launch.

From the outermost decorator in: an autotuner adds a config, heuristics compute values from those there are, the JIT
function has the signature and the source.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface
from triton.tools.tensor_descriptor import TensorDescriptor

from occupancy_cli.compile.gluon_layouts import layout_of
from occupancy_cli.errors import InputError, nearest

MOST_LAYERS = 16


def _note_where_configs_are_made() -> None:
    """From now on every `triton.Config` knows the file and line that made it: the line that a gate has to name.

    What stands in the constructor of a subclass is passed over. Nothing that Triton does with a config changes.
    """
    original = Config.__init__

    @functools.wraps(original)
    def noted(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is self:
            frame = frame.f_back
        self.occupancy_place = (frame.f_code.co_filename, frame.f_lineno)

    Config.__init__ = noted


_note_where_configs_are_made()


def is_kernel(value: Any) -> bool:
    """Whether `value` is a Triton kernel, decorated or not, by Triton's decorators or a library's own."""
    for _ in range(MOST_LAYERS):
        if isinstance(value, JITFunction):
            return True
        if not isinstance(value, KernelInterface):
            return False
        value = getattr(value, "fn", None)
    return False


def layers(kernel: Any) -> tuple[list[Autotuner | Heuristics], JITFunction]:
    """Triton's decorators around a kernel from the outermost in, and the `JITFunction` inside.

    What else a library has put around it (a cache of its own, say) decides nothing of what is compiled.
    """
    around: list[Autotuner | Heuristics] = []
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, (Autotuner, Heuristics)):
            around.append(kernel)
        kernel = kernel.fn
    return around, kernel


def describe(kernel: Any) -> dict[str, Any]:
    """Signature, autotune configs, keys and heuristics of a kernel, as plain data."""
    around, jit = layers(kernel)
    read = _names_read(jit)
    params = [
        {
            "name": p.name,
            "constexpr": bool(p.is_constexpr),
            "annotation": str(p.annotation) if isinstance(p.annotation, str) and p.annotation else "",
            "default": _plain(p.default) if p.has_default else None,
            "has_default": bool(p.has_default),
            "specializes": not p.do_not_specialize,
            "read": p.name in read,
        }
        for p in jit.params
    ]
    described: dict[str, Any] = {"name": jit.fn.__name__, "params": params, "autotune": None, "heuristics": []}
    for layer in around:
        if isinstance(layer, Autotuner):
            described["autotune"] = {
                "configs": [config_values(c) for c in layer.configs],
                "places": [_place_of(c) for c in layer.configs],
                "key": list(layer.keys),
                "prunes": bool(layer.early_config_prune or layer.perf_model),
                "restore_value": list(getattr(layer, "restore_value", []) or []),
                "reset_to_zero": list(getattr(layer, "reset_to_zero", []) or []),
            }
        else:
            described["heuristics"] += list(layer.values)
    described["source_files"] = sorted(_source_files(jit))
    return described


def _names_read(jit: JITFunction) -> set[str]:
    """The names that a kernel's body reads; what it is called with and never reads decides nothing of it."""
    body = [
        statement for node in ast.parse(jit.src).body if isinstance(node, ast.FunctionDef) for statement in node.body
    ]
    return {
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def config_values(config: Any) -> dict[str, Any]:
    """A `triton.Config` as plain data: its constexprs, then num_warps, num_stages, num_ctas, and maxnreg where set."""
    values = {k: _plain(v) for k, v in config.kwargs.items()}
    values |= {"num_warps": config.num_warps, "num_stages": config.num_stages, "num_ctas": config.num_ctas}
    if getattr(config, "maxnreg", None) is not None:
        values["maxnreg"] = config.maxnreg
    return values


def _place_of(config: Any) -> list[Any]:
    """The file and line that made a config; an empty file where that is not the kernel's side (Triton's default)."""
    file, line = getattr(config, "occupancy_place", ("", 0))
    ours = not file.startswith((str(triton.__path__[0]), "<"))
    return [file, line] if ours else ["", 0]


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _reached(jit: JITFunction) -> list[JITFunction]:
    """The kernel and every JIT function that it reaches."""
    found: dict[int, JITFunction] = {}
    todo: list[Any] = [jit]
    while todo:
        fn = todo.pop()
        if id(fn) in found:
            continue
        found[id(fn)] = fn
        reached = dict(fn.fn.__globals__)
        with contextlib.suppress(ValueError):
            reached |= inspect.getclosurevars(fn.fn).nonlocals
        names = set(fn.fn.__code__.co_names)
        for name in names & reached.keys():
            value = reached[name]
            if isinstance(value, JITFunction):
                todo.append(value)
            elif isinstance(value, types.ModuleType):
                todo += [v for n in names if isinstance(v := getattr(value, n, None), JITFunction)]
    return list(found.values())


def _source_files(jit: JITFunction) -> set[str]:
    """The files of the kernel and of every JIT function that it reaches."""
    files = {inspect.getsourcefile(fn.fn) or fn.fn.__code__.co_filename for fn in _reached(jit)}
    return {f for f in files if not f.startswith(str(triton.__path__[0]))}


def pruned_configs(kernel: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The autotune configs that survive `prune_configs_by` for these arguments, as `config_values`."""
    around, jit = layers(kernel)
    for layer in around:
        if isinstance(layer, Autotuner):
            arguments = with_types(jit, arguments)
            layer.nargs = {k: v for k, v in arguments.items() if k in layer.arg_names}
            rest = {k: v for k, v in arguments.items() if k not in layer.arg_names}
            try:
                return [config_values(c) for c in layer.prune_configs(rest)]
            finally:
                layer.nargs = None
    raise InputError("the kernel has no @triton.autotune", where=getattr(kernel, "__name__", "kernel"))


def heuristic_names(kernel: Any) -> set[str]:
    """The names of the values that @triton.heuristics sets."""
    around, _ = layers(kernel)
    return {name for layer in around if isinstance(layer, Heuristics) for name in layer.values}


def with_heuristics(
    kernel: Any,
    arguments: Mapping[str, Any],
    config: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    read: set[str] | None = None,
) -> dict[str, Any]:
    """All values of a launch: arguments, then, from the outermost decorator in, what each of them adds.

    `given` has values that the launch passes under names that heuristics set. A heuristic may read them, its own among
    them; which ones were read is added to `read`, for those are values of the launch, and the others what is to come
    out. Raises `InputError` for a name that neither the kernel nor the back end knows, as Triton's launcher would.
    """
    around, jit = layers(kernel)
    values = with_types(jit, arguments)
    offered = with_types(jit, given or {})
    taken = set() if read is None else read
    applied = False
    for layer in around:
        if isinstance(layer, Autotuner):
            values |= with_types(jit, config)
            applied = True
        else:
            for name, heuristic in layer.values.items():
                values[name] = _heuristic_value(name, heuristic, values, offered, taken)
    if not applied:
        values |= with_types(jit, config)
    _refuse_unknown_names(jit, values)
    _run_hook(around, values)
    return values


class _Launch(dict[str, Any]):
    """The values that a heuristic is given; those that only the launch may have passed are noted when they are read."""

    def __init__(self, values: Mapping[str, Any], offered: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(values)
        self._offered = {name: value for name, value in offered.items() if name not in values}
        self._read = read

    def __missing__(self, name: str) -> Any:
        value = self._offered[name]
        self._read.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._offered

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def _heuristic_value(
    name: str, heuristic: Any, values: Mapping[str, Any], offered: Mapping[str, Any], read: set[str]
) -> Any:
    try:
        return heuristic(_Launch(values, offered, read))
    except KeyError as missing:
        if missing.args and isinstance(missing.args[0], str) and missing.args[0] not in values:
            raise InputError(
                f"the heuristic that sets {name} reads {missing.args[0]}, which has no value",
                where="@triton.heuristics",
                hint=f"Give {missing.args[0]}, or a config that sets it.",
            ) from missing
        raise


def backend_options() -> frozenset[str]:
    """The launch options that this Triton's NVIDIA back end has; a `triton.Config` may set any of them."""
    return frozenset(field.name for field in dataclasses.fields(nvidia_compiler.CUDAOptions))


def _refuse_unknown_names(jit: JITFunction, values: Mapping[str, Any]) -> None:
    valid = {*jit.arg_names, *backend_options()}
    for name in values:
        if name not in valid:
            close = nearest(name, valid)
            raise InputError(
                f"{name} is set, but is neither a parameter of {jit.fn.__name__} nor a launch option of Triton"
                f" {triton.__version__} for NVIDIA GPUs" + (f"; did you mean {' or '.join(close)}?" if close else "")
            )


def _run_hook(around: list[Autotuner | Heuristics], values: dict[str, Any]) -> None:
    """Let the config at hand set up the host descriptors, as its `pre_hook` does before a launch.

    Only where there are any: what else a hook does (clearing an output) is nothing that a compile depends on.
    """
    if not any(isinstance(value, TensorDescriptor) for value in values.values()):
        return
    for layer in around:
        if isinstance(layer, Autotuner):
            for config in layer.configs:
                mine = config_values(config)
                if config.pre_hook is not None and all(_plain(values.get(n)) == v for n, v in mine.items()):
                    _call_hook(config, values)
                    return


def _call_hook(config: Any, values: dict[str, Any]) -> None:
    try:
        config.pre_hook(dict(values))
    except Exception as bad:
        raise InputError(
            f"the pre_hook of {config} failed on stand-ins for its tensors: {type(bad).__name__}: {bad}"
        ) from bad


# --- constexprs that name a type ---------------------------------------------------------------------------------


_TORCH_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bool": "int1",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "float8_e4m3fn": "float8e4nv",
    "float8_e5m2": "float8e5",
    "float8_e4m3fnuz": "float8e4b8",
    "float8_e5m2fnuz": "float8e5b16",
}


@functools.lru_cache(maxsize=1)
def _dtypes() -> Mapping[str, Any]:
    """Every way to write a type (tl.bfloat16, bf16, bfloat16, torch.bfloat16) -> the type."""
    own = {name: value for name, value in vars(tl).items() if isinstance(value, tl.dtype)}
    torch = {name: own[ours] for name, ours in _TORCH_NAMES.items() if ours in own}
    bare = {str(value): value for value in own.values()} | own
    dotted = {f"{module}.{name}": v for module in ("tl", "triton.language") for name, v in own.items()}
    return bare | dotted | {f"torch.{name}": value for name, value in {**own, **torch}.items()}


def with_types(jit: JITFunction, values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the texts that name a type as that type, but for those that the kernel has as text itself.

    A kernel that compares (`if MODE == "bf16"`) wants the text. So are the texts that spell a layout of Gluon.
    """
    values = {n: layout_of(v) if isinstance(v, str) and "Layout(" in v else v for n, v in values.items()}
    named = {n: v for n, v in values.items() if isinstance(v, str) and v in _dtypes()}
    if not named:
        return values
    texts = _texts(jit)
    return {**values, **{n: _dtypes()[v] for n, v in named.items() if v not in texts}}


def _texts(jit: JITFunction) -> set[str]:
    """The string constants of a kernel and of what it calls."""
    trees = [ast.parse(fn.src) for fn in _reached(jit)]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def mistaken_type(jit: JITFunction, values: Mapping[str, Any]) -> str:
    """What to say of a text that may have been meant as a type, where a launch with it does not compile; or nothing."""
    texts = {n: v for n, v in values.items() if isinstance(v, str)}
    if not texts:
        return ""
    compared = _texts(jit)
    for name, text in texts.items():
        close = nearest(text, [known for known in _dtypes() if known not in compared])
        if close and text not in compared:
            kind = next(n for n, v in vars(tl).items() if v is _dtypes()[close[0]])
            return f"{name} is the text {text!r}; a type is written tl.{kind}"
    return ""
