"""The one place that touches Triton, its internals included, for every supported version.

A request goes through Triton's own front door: a compile-only driver answers for the target GPU, stand-ins answer for
tensors, and `JITFunction.warmup` specializes, and compiles, exactly as a launch would. What is touched beyond the
public interface is listed in `INTERNALS` and verified by `check_internals`, so that a Triton that moved one of them
fails loudly and by name.

Runs in worker processes only: importing it imports Triton.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import triton
import triton.knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.runtime import driver as runtime_driver
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

from occupancy_cli.compile.gluon_layouts import layout_of
from occupancy_cli.errors import InputError
from occupancy_cli.loading.torch_answers import Device, DriverProperties, device_of

VERSION: str = triton.__version__
MOST_LAYERS = 16
LOCATION: str = str(triton.__path__[0])
OLDEST, NEWEST = (3, 4), (3, 9)


def is_supported() -> bool:
    """Whether this Triton is one of the versions that the tests run on."""
    major_minor = tuple(int(part) for part in VERSION.split(".")[:2])
    return OLDEST <= major_minor <= NEWEST


INTERNALS: tuple[tuple[str, str], ...] = (
    ("triton.runtime.driver", "set_active: puts the compile-only driver in place"),
    ("triton.backends.nvidia.compiler.CUDABackend.add_stages", "wrapped, to see shared memory once it is allocated"),
    ("triton.backends.nvidia.compiler.CUDABackend.make_llir", "run in two parts, the first up to that allocation"),
    ("triton.backends.nvidia.compiler.{ir,passes,nvidia}", "the names that make_llir takes its passes from"),
    ("triton.knobs.{compilation,language,nvidia,runtime}", "the names of the variables that a compile depends on"),
    ("triton.runtime.autotuner.Autotuner.{fn,configs,keys,prune_configs,nargs}", "configs as the autotuner sees them"),
    ("triton.runtime.autotuner.Heuristics.{fn,values}", "values that heuristics give"),
    ("triton.runtime.cache.triton_key", "answered without hashing all of Triton where a compile is not kept"),
    ("triton.runtime.jit.JITFunction.{params,arg_names,device_caches,warmup}", "the signature and the compile itself"),
)


class ElementType(str):
    """The name of an element type, with its size: `TensorDescriptor` of Triton 3.9 asks for that."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        bits = next((b for b in (64, 32, 16) if str(b) in self), 8)
        return bits // 8


class TensorStandIn:
    """Answers for a tensor argument: an element type and an address, which is all that specialization reads.

    `align_bytes` is the largest power of two that divides the address.
    """

    def __init__(self, dtype: str, align_bytes: int) -> None:
        self.dtype = ElementType(dtype)
        self._address = align_bytes
        self.shape = (1,)
        self.device = "cuda"

    def data_ptr(self) -> int:
        return self._address

    def ptr_range(self) -> int:
        return 0

    def stride(self, _dim: int | None = None) -> Any:
        return (1,)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def __repr__(self) -> str:
        return f"TensorStandIn({self.dtype})"


class CompileOnlyDriver(DriverBase):  # type: ignore[misc]
    """A driver whose device is a target that need not exist: it answers questions and launches nothing."""

    def __init__(self, arch: int, shared_per_cta_optin_bytes: int, sm_count: int, registers_per_sm: int) -> None:
        self._target = GPUTarget("cuda", arch, 32)
        self.device = device_of(arch, shared_per_cta_optin_bytes, sm_count, registers_per_sm)
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda _device=0: DriverProperties(self.device),
            load_binary=lambda *_args: (0, 0, 0, 0, 1024),
            unload_module=lambda *_args: None,
        )

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    # JITFunction keeps its backend per device index, so each target has an index of its own: without it a request for
    # one target silently returns the binary of another.
    def get_current_device(self) -> int:
        return int(self._target.arch)

    def set_current_device(self, _device: int) -> None:
        return None

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return lambda _call, **_kwargs: [0.0, 0.0, 0.0]


def install_driver(arch: int, shared_per_cta_optin_bytes: int, sm_count: int, registers_per_sm: int) -> None:
    """Make the compile-only driver for `arch` (120 for compute capability 12.0) the active one."""
    runtime_driver.set_active(CompileOnlyDriver(arch, shared_per_cta_optin_bytes, sm_count, registers_per_sm))


def active_device() -> Device:
    """What the active driver's device says of itself."""
    device: Device = runtime_driver.active.device
    return device


# --- what a kernel object is -------------------------------------------------------------------------------------


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


# --- configs that the autotuner would try ------------------------------------------------------------------------


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


# --- compiling ---------------------------------------------------------------------------------------------------


class _Stopped(BaseException):
    """Thrown from inside `make_llir` to end a compile after allocation. Not an Exception: nothing may catch it."""


class Allocation:
    """What the shared-memory allocation pass decided, filled in while a compile runs.

    `stop_above`: end the compile there when more shared bytes than this are needed (-1: always, None: never).
    """

    def __init__(self, stop_above: int | None) -> None:
        self.stop_above = stop_above
        self.shared_bytes: int | None = None
        self.tmem_columns = 0
        self.num_warps = 0

    def read(self, module: Any, metadata: Mapping[str, Any]) -> None:
        """Take the figures from the module's attributes, and stop if they ask for it."""
        self.shared_bytes = module.get_int_attr("ttg.shared")
        if self.shared_bytes is None:
            return
        self.tmem_columns = module.get_int_attr("ttg.tensor_memory_size") or 0
        self.num_warps = module.get_int_attr("ttg.total-num-warps") or metadata["num_warps"]
        if self.stop_above is not None and self.shared_bytes > self.stop_above:
            raise _Stopped


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
        if name.startswith("add_allocate_shared_memory"):
            self._state.allocated = True
        first = self._state.manager
        return lambda _manager, *args, **kwargs: value(first, *args, **kwargs)


class _SplitState:
    def __init__(self, module: Any, metadata: Mapping[str, Any], allocation: Allocation) -> None:
        self.manager = nvidia_compiler.ir.pass_manager(module.context)
        self.manager.enable_debug()
        self.allocated = False
        self.done = False
        self._module = module
        self._metadata = metadata
        self._allocation = allocation

    def run_first_part(self) -> None:
        self.done = True
        run = self.manager.run
        # Triton 3.4's run takes the module alone, later ones a name for the timing report too.
        try:
            run(self._module, "allocate_shared_memory")
        except TypeError:
            run(self._module)
        self._allocation.read(self._module, self._metadata)


_NO_ALLOCATION = f"Triton {VERSION} has no shared-memory allocation pass where it is looked for"


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


def _require_early_stop() -> None:
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
    raise EarlyStopUnavailable(f"Triton {VERSION} has {what} in triton.backends.nvidia.compiler")


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


# Read in C++, where no one sees it, by one supported Triton or another; beside the knobs. Those of AMD are left out.
_READ_IN_CPP = (
    *("ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "DISABLE_FAST_REDUCTION", "DISABLE_LLVM_OPT", "DISABLE_MMA_V3"),
    *("DISABLE_MMA_V5", "DISABLE_PTXAS_OPT", "LLVM_ENABLE_TIMING", "LLVM_EXTRACT_DI_LOCAL_VARIABLES"),
    *("LLVM_IR_ENABLE_DUMP", "LLVM_PASS_PLUGIN_PATH", "MLIR_DISABLE_MULTITHREADING", "MLIR_DUMP_PATH"),
    *("MLIR_ENABLE_DIAGNOSTICS", "MLIR_ENABLE_DUMP", "MLIR_ENABLE_TIMING", "NVPTX_ENABLE_DUMP"),
    *("STORE_TMEM_TO_GLOBAL_BYPASS_SMEM", "TRITON_CONSAN_INIT_ALLOCATIONS", "TRITON_DEFAULT_FP_FUSION"),
    *("TRITON_DISABLE_LINE_INFO", "TRITON_DISABLE_RESHAPE_ENCODING_INFERENCE", "TRITON_ENABLE_ASAN"),
    *("TRITON_ENABLE_EXPERIMENTAL_CONSAN", "TRITON_ENABLE_LLVM_DEBUG", "TRITON_F32_DEFAULT"),
    *("TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_LLVM_DEBUG_ONLY", "TRITON_OVERRIDE_ARCH"),
    *("TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY", "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY"),
    *("TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT", "TRITON_PLUGIN_PATHS", "TRITON_PLUGIN_VERSION_CHECK"),
    *("TRITON_PREFER_TMEM_16x256_LAYOUT", "USE_IR_LOC"),
)
_KNOB_GROUPS = ("compilation", "language", "nvidia", "runtime")


@functools.lru_cache(maxsize=1)
def environment_names() -> frozenset[str]:
    """The environment variables that a compile for an NVIDIA GPU may depend on.

    Asked of Triton and not watched: from 3.6 on it reads them with C's `getenv`, and keeps some of what it found (which
    ptxas) from one compile to the next.
    """
    keys = {getattr(knob, "key", None) for g in _KNOB_GROUPS for knob in vars(type(getattr(triton.knobs, g))).values()}
    return frozenset(_READ_IN_CPP) | {key for key in keys if isinstance(key, str)}


def _installation_key_homes() -> list[Any]:
    """The modules that ask for `triton_key`, by a name of their own."""
    from triton.compiler import compiler
    from triton.runtime import cache

    return [module for module in (cache, compiler) if hasattr(module, "triton_key")]


@contextlib.contextmanager
def unhashed_installation() -> Iterator[None]:
    """While active, Triton names its cache entries without reading its installation, half a gigabyte, to hash it.

    Only for compiles whose cache entries nobody looks up.
    """
    kept = [(module, module.triton_key) for module in _installation_key_homes()]
    for module, _ in kept:
        module.triton_key = lambda: VERSION
    try:
        yield
    finally:
        for module, original in kept:
            module.triton_key = original


def compile_launch(kernel: Any, values: Mapping[str, Any], *, stop_above: int | None) -> dict[str, Any]:
    """Compile one launch for the active target.

    `values` holds every argument, constexpr and launch option by name. The compile ends after shared-memory allocation
    when that needs more than `stop_above` bytes (-1: always; None: never). Returns plain data: `shared_bytes`,
    `num_warps` (all warps of the CTA), `num_ctas`, `tmem_columns`
    and, of a compile that went on, `cubin` (bytes), `ttgir` and the kernel's `name`. Raises what Triton raises, and
    `EarlyStopUnavailable` where this Triton cannot be watched.
    """
    _, jit = layers(kernel)
    _require_early_stop()
    allocation = Allocation(stop_above)
    jit.device_caches.clear()  # a binary compiled before would come back without passing by
    try:
        with watching_allocation(allocation):
            compiled = jit.warmup(grid=(1,), **values)
    except _Stopped:
        return {
            "shared_bytes": allocation.shared_bytes,
            "num_warps": allocation.num_warps,
            "num_ctas": int(values.get("num_ctas", 1)),
            "tmem_columns": allocation.tmem_columns,
        }
    return _compiled(compiled)


def compile_plainly(kernel: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """As `compile_launch` with nothing watched: exactly Triton's own compile."""
    _, jit = layers(kernel)
    return _compiled(jit.warmup(grid=(1,), **values))


def _compiled(compiled: Any) -> dict[str, Any]:
    metadata = compiled.metadata
    return {
        "shared_bytes": metadata.shared,
        "num_warps": metadata.num_warps,
        "num_ctas": metadata.num_ctas,
        "tmem_columns": getattr(metadata, "tmem_size", 0) or 0,
        "cubin": compiled.asm["cubin"],
        "ttgir": compiled.asm["ttgir"],
        "name": metadata.name,
    }


def descriptor_stand_in(text: str) -> Any:
    """A host tensor descriptor for `tensordesc<bf16[64, 64]>`: contiguous, with the block shape given."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    element, _, shape = text.removeprefix("tensordesc<").rstrip("]>").partition("[")
    block = [int(n) for n in shape.split(",")]
    strides = [1 << 20] * (len(block) - 1) + [1]
    return TensorDescriptor(TensorStandIn(element, 16), [1 << 20] * len(block), strides, block)


def specialization_key(kernel: Any, values: Mapping[str, Any]) -> str:
    """Triton's own specialization of a launch, as text: equal keys compile to the same binary."""
    _, jit = layers(kernel)
    device = runtime_driver.active.get_current_device()
    *_, binder = jit.device_caches[device]
    bound = binder(**values)
    return repr(bound[1])


def ptxas_version(arch: int) -> str:
    """The version of the ptxas that this Triton uses for `arch`; empty when it cannot be had."""
    getter = getattr(nvidia_compiler, "get_ptxas", None)
    if getter is None:
        return ""
    try:
        tool = getter(arch) if inspect.signature(getter).parameters else getter()
    except (RuntimeError, OSError, TypeError):
        return ""
    return str(getattr(tool, "version", "") or (tool[1] if isinstance(tool, tuple) else ""))


def check_internals() -> list[str]:
    """The internals this module relies on that this Triton lacks; empty when all are where they are looked for."""
    missing = []
    backend = getattr(nvidia_compiler, "CUDABackend", None)
    for name in ("add_stages", "make_llir"):
        if not hasattr(backend, name):
            missing.append(f"triton.backends.nvidia.compiler.CUDABackend.{name}")
    for name in ("ir", "passes", "nvidia"):
        if not hasattr(nvidia_compiler, name):
            missing.append(f"triton.backends.nvidia.compiler.{name}")
    if not _installation_key_homes():
        missing.append("triton.runtime.cache.triton_key")
    for owner, names in ((Autotuner, ("prune_configs",)), (JITFunction, ("warmup",))):
        missing += [f"{owner.__module__}.{owner.__name__}.{n}" for n in names if not hasattr(owner, n)]
    knobs = getattr(triton, "knobs", None)
    missing += [f"triton.knobs.{group}" for group in _KNOB_GROUPS if not hasattr(knobs, group)]
    if not missing and "TRITON_PTXAS_PATH" not in environment_names():
        missing.append("triton.knobs.nvidia.*.key")
    if not hasattr(runtime_driver, "set_active"):
        missing.append("triton.runtime.driver.set_active")
    return missing
