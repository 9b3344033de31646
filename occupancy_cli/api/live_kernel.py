"""A kernel that is an object in this process: a `@triton.jit` function, autotuned or not, from a module or a notebook.

A kernel of an imported module whose file still holds it is read from that file, as the command line reads it. Any
other one (of a notebook's cell, of the running script, made by a function, edited since) is written down as it is in
memory, with the functions and constants that it reaches, and that file is compiled, in a worker process as ever. What
its autotuner and its heuristics give is then worked out here: they are values and functions of this process.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError

_DEEPEST = 20


@dataclass(frozen=True)
class LiveKernel:
    """`reference` is what to compile (file:name). Where that file was written for it, `configs` are its autotuner's
    (None: it has none), `heuristics` compute constexprs from its arguments, `notes` say what else was lost."""

    name: str
    reference: str
    configs: tuple[Mapping[str, Any], ...] | None = None
    heuristics: Mapping[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    constexprs: frozenset[str] = frozenset()


def live_kernel(value: Any) -> LiveKernel:
    """What to compile for `value`; `InputError` says why that cannot be had."""
    jit = _jit_in(value)
    if jit is None:
        raise _not_a_kernel(value)
    parameters = tuple(p.name for p in jit.params)
    constexprs = frozenset(p.name for p in jit.params if p.is_constexpr)
    name = str(jit.fn.__name__)
    if (file := _file_that_holds(value, jit)) is not None:
        return LiveKernel(name, f"{file}:{jit.fn.__qualname__}", parameters=parameters, constexprs=constexprs)
    from occupancy_cli.capture.kernel_snapshot import CannotSnapshot, snapshot
    from occupancy_cli.plan.source_configs import written_source

    try:
        taken = snapshot(jit)
    except (CannotSnapshot, SyntaxError, RecursionError) as why:
        hint = "Put the kernel into a module and pass path/to/file.py:kernel."
        raise InputError(f"cannot be written down: {why}", where=f"kernel {name}", hint=hint) from None
    made = written_source(taken.text, name, f"kernel {name}")
    configs, heuristics, notes = _decorations(value, jit)
    notes += [f"its file lacks {one}" for one in taken.left_out]
    return LiveKernel(
        name, f"{made}:{taken.kernel}", configs, heuristics, tuple(notes), parameters, constexprs
    )  # fmt: skip


def _layers(value: Any) -> list[Any]:
    """`value` and what is inside it by `fn`, the innermost last: autotuner, heuristics, JIT function, function."""
    found = [value]
    while (inner := getattr(found[-1], "fn", None)) is not None and len(found) < _DEEPEST:
        found.append(inner)
    return found


def _jit_in(value: Any) -> Any:
    """The JIT function inside; None where there is none. Triton is loaded if there is one."""
    module = sys.modules.get("triton.runtime.jit")
    if module is None or isinstance(value, (str, Path)):
        return None
    return next((one for one in _layers(value) if isinstance(one, module.JITFunction)), None)


def _not_a_kernel(value: Any) -> InputError:
    kind = type(value)
    hint = "Pass a @triton.jit function, a spec (file.yaml) or path/to/file.py:kernel."
    if kind.__name__ == "InterpretedFunction" or any(type(o).__name__ == "InterpretedFunction" for o in _layers(value)):
        hint = "TRITON_INTERPRET=1 was set when it was made, and interpreted kernels are not compiled: unset it."
    return InputError(f"a {kind.__module__}.{kind.__qualname__} is no kernel", where="kernel", hint=hint)


def _file_that_holds(value: Any, jit: Any) -> Path | None:
    """The file of an imported module that has `value` under the function's name, its source unchanged on disk."""
    name, module = jit.fn.__qualname__, sys.modules.get(jit.fn.__module__)
    if module is None or jit.fn.__module__ == "__main__" or "." in name or getattr(module, name, None) is not value:
        return None
    path = Path(jit.fn.__code__.co_filename)
    if path.suffix != ".py" or not path.is_file() or Path(getattr(module, "__file__", None) or "") != path:
        return None
    source = "".join(getattr(jit, "raw_src", None) or ()) or inspect.getsource(jit.fn)
    try:
        return path.resolve() if source in path.read_text(encoding="utf-8") else None
    except (OSError, ValueError):
        return None


def _decorations(
    value: Any, jit: Any
) -> tuple[tuple[Mapping[str, Any], ...] | None, dict[str, Callable[[dict[str, Any]], Any]], list[str]]:
    """The configs and heuristics of what is around the JIT function, and what of it is not looked at."""
    from occupancy_cli.api.argument_types import config_of

    configs: tuple[Mapping[str, Any], ...] | None = None
    heuristics: dict[str, Callable[[dict[str, Any]], Any]] = {}
    notes: list[str] = []
    for layer in _layers(value)[: _layers(value).index(jit)]:
        if isinstance(given := getattr(layer, "configs", None), (list, tuple)):
            configs = tuple(config_of(config, i) for i, config in enumerate(given))
            pruning = getattr(layer, "early_config_prune", None)
            if pruning is not None and getattr(pruning, "__name__", "") != "<lambda>":
                notes.append("its prune_configs_by is not asked: every config is looked at")
        elif isinstance(given := getattr(layer, "values", None), dict):
            heuristics |= given
        else:
            notes.append(f"a decorator around it, {type(layer).__name__}, is not looked at")
    return configs, heuristics, notes


def with_heuristics(
    kernel: LiveKernel, configs: list[dict[str, Any]], values: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Each config with the constexprs that the kernel's heuristics compute for it, given its arguments' values."""
    found = []
    for config in configs:
        known = {**values, **config}
        for name, heuristic in kernel.heuristics.items():
            if name in config:
                continue
            try:
                known[name] = heuristic(dict(known))
            except Exception as bad:  # noqa: BLE001 - the user's function, whatever it raises
                problem = f"cannot be computed: {type(bad).__name__}: {bad}"
                hint = f"Give its arguments in args, or {name} itself in settings."
                raise InputError(problem, where=f"@triton.heuristics {name}", hint=hint) from None
        found.append({n: v for n, v in known.items() if n in config or n in kernel.heuristics})
    return found
