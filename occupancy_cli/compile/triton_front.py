"""Compiling one launch through Triton's own front door, and what this Triton is.

A request goes the way a launch does: a driver answers for the target GPU, stand-ins answer for tensors, and
`JITFunction.warmup` specializes, and compiles, exactly as a launch would. What is touched beyond Triton's public
interface is listed in `triton_internals.INTERNALS`.

Runs in worker processes only: importing it imports Triton.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import triton
import triton.knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.runtime import driver as runtime_driver

from occupancy_cli.compile.failure_reasons import diagnostic, reason
from occupancy_cli.compile.kernel_layers import (
    config_values,
    describe,
    heuristic_names,
    is_kernel,
    layers,
    mistaken_type,
    pruned_configs,
    with_heuristics,
)
from occupancy_cli.compile.shared_allocation import (
    Allocation,
    EarlyStopUnavailable,
    Stopped,
    require_early_stop,
    watching_allocation,
)
from occupancy_cli.compile.target_driver import install_driver
from occupancy_cli.compile.triton_internals import check_internals, is_supported
from occupancy_cli.errors import InputError
from occupancy_cli.loading.target_gpu import TargetGpu

__all__ = [
    "EarlyStopUnavailable",
    "TargetGpu",
    "TensorStandIn",
    "check_internals",
    "compile_launch",
    "compile_plainly",
    "compile_text",
    "config_values",
    "describe",
    "descriptor_stand_in",
    "environment_names",
    "heuristic_names",
    "install_driver",
    "is_kernel",
    "is_supported",
    "layers",
    "pruned_configs",
    "ptxas_version",
    "specialization_key",
    "unhashed_installation",
    "with_heuristics",
]

VERSION: str = triton.__version__
LOCATION: str = str(triton.__path__[0])


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


def compile_launch(
    kernel: Any, values: Mapping[str, Any], *, stop_above: int | None, keep_allocated: bool = False
) -> dict[str, Any]:
    """Compile one launch for the active target.

    `values` holds every argument, constexpr and launch option by name. The compile ends after shared-memory allocation
    when that needs more than `stop_above` bytes (-1: always; None: never). Returns plain data: `shared_bytes`,
    `num_warps` (all warps of the CTA), `num_ctas`, `tmem_columns`, with `keep_allocated` the IR behind the allocation
    as `allocated`, and, of a compile that went on, `cubin` (bytes), `ttgir` and the kernel's `name`. Raises what Triton
    raises, and `EarlyStopUnavailable` where this Triton cannot be watched.
    """
    _, jit = layers(kernel)
    require_early_stop()
    allocation = Allocation(stop_above, keep_text=keep_allocated)
    _forget_other_targets(jit)
    try:
        with watching_allocation(allocation), _types_told(jit, values):
            compiled = jit.warmup(grid=(1,), **values)
    except Stopped:
        return {
            "shared_bytes": allocation.shared_bytes,
            "num_warps": allocation.num_warps,
            "num_ctas": int(values.get("num_ctas", 1)),
            "tmem_columns": allocation.tmem_columns,
            "allocated": allocation.text,
        }
    return {**_compiled(compiled), "allocated": allocation.text}


@contextlib.contextmanager
def _types_told(jit: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Say the right form of a text that was meant as a type, where a launch with it does not compile."""
    try:
        yield
    except EarlyStopUnavailable:
        raise
    except Exception as bad:
        told = mistaken_type(jit, values)
        if told:
            raise InputError(f"{told} ({reason(bad)})") from bad
        raise


def _forget_other_targets(jit: Any) -> None:
    """Empty what a JIT function keeps by device: its backend and binaries, where every target is device 0.

    With them a request for one target would return the binary of another, and one compiled before would come back
    unseen.
    """
    jit.device_caches.clear()


def compile_plainly(kernel: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """As `compile_launch` with nothing watched: exactly Triton's own compile."""
    _, jit = layers(kernel)
    _forget_other_targets(jit)
    with _types_told(jit, values):
        return _compiled(jit.warmup(grid=(1,), **values))


def compile_text(path: Path, arch: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """As `compile_plainly`, of a kernel's TTIR or TTGIR; of PTX by Triton's ptxas, with the launch as `options` say."""
    if path.suffix != ".ptx":
        return _compiled(triton.compile(str(path), target=GPUTarget("cuda", arch, 32), options=dict(options)))
    text = path.read_text(encoding="utf-8", errors="replace")
    (name,) = re.findall(r"\.entry\s+([\w$]+)", text)
    (target,) = re.findall(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.cubin"
        done = subprocess.run(
            [_ptxas(arch), f"-arch={target}", str(path), "-o", str(out)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise InputError(f"ptxas: {diagnostic(done.stderr) or done.stderr.strip()[:300]}", where=str(path))
        cubin = out.read_bytes()
    return {
        "shared_bytes": options["shared_bytes"],
        "num_warps": options["num_warps"],
        "num_ctas": options["num_ctas"],
        "tmem_columns": 0,
        "cubin": cubin,
        "name": name,
    }


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
    _forget_other_targets(jit)
    *_, binder = jit.device_caches[runtime_driver.active.get_current_device()]
    bound = binder(**values)
    return repr(bound[1])


def _ptxas(arch: int) -> str:
    """The file of the ptxas that this Triton uses for `arch`."""
    getter = nvidia_compiler.get_ptxas
    tool = getter(arch) if inspect.signature(getter).parameters else getter()
    return str(getattr(tool, "path", tool[0] if isinstance(tool, tuple) else tool))


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
