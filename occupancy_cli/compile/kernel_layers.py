"""What a kernel object is: its signature, Triton's decorators around it, and the values that those give a launch.

From the outermost decorator in: an autotuner adds a config, heuristics compute values from those there are, the JIT
function has the signature and the source.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Mapping
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

from occupancy_cli.compile.gluon_layouts import layout_of
from occupancy_cli.errors import InputError

MOST_LAYERS = 16


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
    params = [
        {
            "name": p.name,
            "constexpr": bool(p.is_constexpr),
            "annotation": str(p.annotation) if isinstance(p.annotation, str) and p.annotation else "",
            "default": _plain(p.default) if p.has_default else None,
            "has_default": bool(p.has_default),
            "specializes": not p.do_not_specialize,
        }
        for p in jit.params
    ]
    described: dict[str, Any] = {"name": jit.fn.__name__, "params": params, "autotune": None, "heuristics": []}
    for layer in around:
        if isinstance(layer, Autotuner):
            described["autotune"] = {
                "configs": [config_values(c) for c in layer.configs],
                "key": list(layer.keys),
                "prunes": bool(layer.early_config_prune or layer.perf_model),
                "restore_value": list(getattr(layer, "restore_value", []) or []),
                "reset_to_zero": list(getattr(layer, "reset_to_zero", []) or []),
            }
        else:
            described["heuristics"] += list(layer.values)
    described["source_files"] = sorted(_source_files(jit))
    return described


def config_values(config: Any) -> dict[str, Any]:
    """A `triton.Config` as plain data: its constexprs, then num_warps, num_stages, num_ctas, and maxnreg where set."""
    values = {k: _plain(v) for k, v in config.kwargs.items()}
    values |= {"num_warps": config.num_warps, "num_stages": config.num_stages, "num_ctas": config.num_ctas}
    if getattr(config, "maxnreg", None) is not None:
        values["maxnreg"] = config.maxnreg
    return values


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _source_files(jit: JITFunction) -> set[str]:
    """The files of the kernel and of every JIT function that it reaches."""
    seen: set[int] = set()
    files: set[str] = set()
    todo: list[Any] = [jit]
    while todo:
        fn = todo.pop()
        if id(fn) in seen:
            continue
        seen.add(id(fn))
        files.add(inspect.getsourcefile(fn.fn) or fn.fn.__code__.co_filename)
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
    return {f for f in files if not f.startswith(str(triton.__path__[0]))}


def pruned_configs(kernel: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The autotune configs that survive `prune_configs_by` for these arguments, as `config_values`."""
    around, _ = layers(kernel)
    for layer in around:
        if isinstance(layer, Autotuner):
            arguments = _with_types(arguments)
            layer.nargs = {k: v for k, v in arguments.items() if k in layer.arg_names}
            rest = {k: v for k, v in arguments.items() if k not in layer.arg_names}
            try:
                return [config_values(c) for c in layer.prune_configs(rest)]
            finally:
                layer.nargs = None
    raise InputError("the kernel has no @triton.autotune", where=getattr(kernel, "__name__", "kernel"))


def _with_types(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the texts that name a Triton type (tl.bfloat16) as that type: a constexpr may be one."""

    def typed(value: Any) -> Any:
        named = (
            getattr(triton.language, value[3:], None) if isinstance(value, str) and value.startswith("tl.") else None
        )
        if isinstance(value, str) and "Layout(" in value:
            return layout_of(value)
        return named if isinstance(named, triton.language.dtype) else value

    return {name: typed(value) for name, value in values.items()}


def heuristic_names(kernel: Any) -> set[str]:
    """The names of the values that @triton.heuristics sets."""
    around, _ = layers(kernel)
    return {name for layer in around if isinstance(layer, Heuristics) for name in layer.values}


def with_heuristics(kernel: Any, arguments: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """All values of a launch: arguments, then, from the outermost decorator in, what each of them adds."""
    values = _with_types(arguments)
    around, _ = layers(kernel)
    applied = False
    for layer in around:
        if isinstance(layer, Autotuner):
            values |= config
            applied = True
        else:
            for name, heuristic in layer.values.items():
                values[name] = _heuristic_value(name, heuristic, values)
    if not applied:
        values |= config
    return values


def _heuristic_value(name: str, heuristic: Any, values: Mapping[str, Any]) -> Any:
    try:
        return heuristic(dict(values))
    except KeyError as missing:
        if missing.args and isinstance(missing.args[0], str) and missing.args[0] not in values:
            raise InputError(
                f"the heuristic that sets {name} reads {missing.args[0]}, which has no value",
                where="@triton.heuristics",
                hint=f"Give {missing.args[0]}, or a config that sets it.",
            ) from missing
        raise
