"""Watching a compile's shared-memory allocation, and ending the compile there when no more is wanted.

Shared memory is known after one pass of `make_llir`, before LLVM and ptxas, in a tenth of the time. The passes up to
that one run first, the rest after; together they are the same passes in the same order on the same module.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import triton
from triton.backends.nvidia import compiler as nvidia_compiler

from occupancy_cli.readers.scratch_sizes import with_sizes


class Stopped(BaseException):
    """Thrown from inside `make_llir` to end a compile after allocation. Not an Exception: nothing may catch it."""


class Allocation:
    """What the shared-memory allocation pass decided, filled in while a compile runs.

    `stop_above`: end the compile there when more shared bytes than this are needed (-1: always, None: never).
    `keep_text`: keep the module's text as it is behind the pass in `text`, every size of scratch written into it.
    """

    def __init__(self, stop_above: int | None, *, keep_text: bool = False) -> None:
        self.stop_above = stop_above
        self.keep_text = keep_text
        self.text = ""
        self.shared_bytes: int | None = None
        self.tmem_columns = 0
        self.num_warps = 0

    def read(self, module: Any, metadata: Mapping[str, Any], allocate: Callable[[Any], None]) -> None:
        """Take the figures from the module's attributes, and stop if they ask for it.

        `allocate` runs the same pass on another module of the same context.
        """
        self.shared_bytes = module.get_int_attr("ttg.shared")
        if self.shared_bytes is None:
            return
        self.tmem_columns = module.get_int_attr("ttg.tensor_memory_size") or 0
        self.num_warps = module.get_int_attr("ttg.total-num-warps") or metadata["num_warps"]
        if self.keep_text:
            self.text = with_sizes(str(module), lambda probe: _allocated_bytes(probe, module.context, allocate))
        if self.stop_above is not None and self.shared_bytes > self.stop_above:
            raise Stopped


def _allocated_bytes(text: str, context: Any, allocate: Callable[[Any], None]) -> int | None:
    """What a module's text needs of shared memory by the pass; None where it cannot be read or allocated."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            module = nvidia_compiler.ir.parse_mlir_module(file.name, context)
            module.context = context
            allocate(module)
        except RuntimeError:
            return None
        size: int | None = module.get_int_attr("ttg.shared")
        return size


class _SplitPasses:
    """Triton's pass registry, seen so that the passes of `make_llir` up to allocation run before the rest are added.

    The first ones go to a pass manager of their own, which runs as soon as shared and tensor memory are allocated; the
    rest go where `make_llir` sends them. Together they are the same passes in the same order on the same module.
    """

    def __init__(self, registry: Any, state: _SplitState) -> None:
        self._registry = registry
        self._state = state

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._registry, name)
        if isinstance(value, types.ModuleType):
            return _SplitPasses(value, self._state)
        if not name.startswith("add_") or self._state.done:
            return value
        if self._state.allocated and name != "add_allocate_tensor_memory":
            self._state.run_first_part()
            return value
        first = self._state.manager
        if name.startswith("add_allocate_shared_memory"):
            self._state.allocated = True

            def allocate(_manager: Any, *args: Any, **kwargs: Any) -> Any:
                self._state.add_allocation = lambda manager: value(manager, *args, **kwargs)
                return value(first, *args, **kwargs)

            return allocate
        return lambda _manager, *args, **kwargs: value(first, *args, **kwargs)


class _SplitState:
    def __init__(self, module: Any, metadata: Mapping[str, Any], allocation: Allocation) -> None:
        self.manager = nvidia_compiler.ir.pass_manager(module.context)
        self.manager.enable_debug()
        self.allocated = False
        self.add_allocation: Callable[[Any], Any] | None = None
        self.done = False
        self._module = module
        self._metadata = metadata
        self._allocation = allocation

    def run_first_part(self) -> None:
        self.done = True
        _run(self.manager, self._module)
        self._allocation.read(self._module, self._metadata, self._allocate)

    def _allocate(self, module: Any) -> None:
        assert self.add_allocation is not None
        manager = nvidia_compiler.ir.pass_manager(module.context)
        self.add_allocation(manager)
        _run(manager, module)


def _run(manager: Any, module: Any) -> None:
    # Triton 3.4's run takes the module alone, later ones a name for the timing report too.
    try:
        manager.run(module, "allocate_shared_memory")
    except TypeError:
        manager.run(module)


_NO_ALLOCATION = f"Triton {triton.__version__} has no shared-memory allocation pass where it is looked for"


def _make_llir(backend: Any, module: Any, metadata: Any, options: Any, capability: int, allocation: Allocation) -> Any:
    state = _SplitState(module, metadata, allocation)
    names = {"passes": nvidia_compiler.passes, "nvidia": nvidia_compiler.nvidia}
    try:
        for name, registry in names.items():
            setattr(nvidia_compiler, name, _SplitPasses(registry, state))
        result = backend.make_llir(module, metadata, options, capability)
    except Exception as bad:
        if state.done:
            raise
        # The passes that were held back for the allocation were never run, whatever it is that failed then.
        raise EarlyStopUnavailable(_NO_ALLOCATION) from bad
    finally:
        for name, registry in names.items():
            setattr(nvidia_compiler, name, registry)
    if not state.done:
        raise EarlyStopUnavailable(_NO_ALLOCATION)
    return result


class EarlyStopUnavailable(RuntimeError):
    """This Triton's `make_llir` cannot be stopped after shared-memory allocation; only a plain compile is possible."""


def require_early_stop() -> None:
    """Raise `EarlyStopUnavailable` where this Triton lacks what `_make_llir` calls and replaces."""
    make_llir = getattr(nvidia_compiler.CUDABackend, "make_llir", None)
    lacks = [name for name in ("ir", "passes", "nvidia") if not hasattr(nvidia_compiler, name)]
    if make_llir is not None and not lacks:
        try:
            inspect.signature(make_llir).bind("backend", "module", "metadata", "options", "capability")
            return
        except TypeError:
            pass
    what = f"no {', '.join(lacks)}" if lacks else "another make_llir"
    raise EarlyStopUnavailable(f"Triton {triton.__version__} has {what} in triton.backends.nvidia.compiler")


@contextlib.contextmanager
def watching_allocation(allocation: Allocation) -> Iterator[None]:
    """While active, every compile fills `allocation` on its way, and ends there when it says so."""
    backend_class = nvidia_compiler.CUDABackend
    original = backend_class.add_stages

    @functools.wraps(original)
    def add_stages(self: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        original(self, stages, options, *rest)
        capability = int(str(options.arch).removeprefix("sm"))
        stages["llir"] = lambda module, metadata: _make_llir(self, module, metadata, options, capability, allocation)

    backend_class.add_stages = add_stages
    try:
        yield
    finally:
        backend_class.add_stages = original
