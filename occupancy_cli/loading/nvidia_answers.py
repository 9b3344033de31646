"""What NVIDIA's Python packages say of the target GPU: NVML (`pynvml`) and cuda-python (`cuda.bindings`, `cuda.cuda`).

The same functions answer for a stand-in (`known`) and in the real package (`answer_in`): that would ask this machine's
driver, which may not be there or may have another GPU. Functions that ask a device for anything else are refused by
name. Functions that do something (memory, contexts, launches) are left as they are.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from typing import Any

from occupancy_cli.loading.device_figures import CUdevice_attribute, attribute, cudaDeviceAttr, runtime_properties
from occupancy_cli.loading.target_gpu import CUDA_VERSION, DEVICE_COUNT, active, device_index, unknown

CUDA_VERSION_NUMBER = CUDA_VERSION[0] * 1000 + CUDA_VERSION[1] * 10

NVML_MODULES = ("pynvml",)
DRIVER_MODULES = ("cuda.bindings.driver", "cuda.cuda")
RUNTIME_MODULES = ("cuda.bindings.runtime", "cuda.cudart")

_NVML_CLOCKS = {"NVML_CLOCK_GRAPHICS": 0, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_CLOCK_VIDEO": 3}  # nvml.h
_NVML_CLOCKS_OF_SMS = (0, 1)


class Handle(int):
    """A device as NVML hands it out."""


class CUresult(enum.IntEnum):
    """The one result that an answered question has, where cuda-python's own class is not installed."""

    CUDA_SUCCESS = 0


class cudaError_t(enum.IntEnum):
    """The same for the runtime."""

    cudaSuccess = 0


def nvml_functions() -> dict[str, Callable[..., Any]]:
    """The questions of NVML that a profile answers."""

    def handle(index: Any = 0) -> Handle:
        device_index(index)
        return Handle(0)

    def max_clock(_handle: Any, kind: Any) -> int:
        question = f"nvmlDeviceGetMaxClockInfo(clock type {kind})"
        if int(kind) not in _NVML_CLOCKS_OF_SMS:
            active().figure("memory_clock_khz")
            raise unknown(question)
        return int(active().tell("sm_clock_khz", question)) // 1000

    def memory(_handle: Any, version: Any = None) -> Any:
        total = active().tell("memory_bytes", "nvmlDeviceGetMemoryInfo()")
        return types.SimpleNamespace(total=total, free=total, used=0, version=version)

    def nothing(*_args: Any) -> None:
        return None

    return {
        "nvmlInit": nothing,
        "nvmlInitWithFlags": nothing,
        "nvmlShutdown": nothing,
        "nvmlDeviceGetCount": lambda: DEVICE_COUNT,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetIndex": lambda _handle: 0,
        "nvmlDeviceGetName": lambda _handle: active().tell("name", "nvmlDeviceGetName()"),
        "nvmlDeviceGetCudaComputeCapability": lambda _handle: active().capability,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetMaxClockInfo": max_clock,
        "nvmlSystemGetCudaDriverVersion": lambda: CUDA_VERSION_NUMBER,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: CUDA_VERSION_NUMBER,
    }


def driver_functions(success: Any) -> dict[str, Callable[..., Any]]:
    """The questions of the driver API that a profile answers, each with `success` in front, as cuda-python has it."""

    def device(index: Any = 0) -> tuple[Any, int]:
        return success, device_index(index)

    def name(length: int, _device: Any) -> tuple[Any, bytes]:
        return success, str(active().tell("name", "cuDeviceGetName()")).encode()[: max(0, length - 1)]

    return {
        "cuInit": lambda _flags: (success,),
        "cuDriverGetVersion": lambda: (success, CUDA_VERSION_NUMBER),
        "cuDeviceGetCount": lambda: (success, DEVICE_COUNT),
        "cuDeviceGet": device,
        "cuCtxGetDevice": lambda *_context: (success, 0),
        "cuDeviceGetName": name,
        "cuDeviceTotalMem": lambda _device: (success, active().tell("memory_bytes", "cuDeviceTotalMem()")),
        "cuDeviceComputeCapability": lambda _device: (success, *active().capability),
        "cuDeviceGetAttribute": lambda asked, _device: (success, attribute(active(), asked, "cuDeviceGetAttribute")),
    }


def runtime_functions(success: Any) -> dict[str, Callable[..., Any]]:
    """The questions of the runtime API, likewise."""

    def properties(device: Any = 0) -> tuple[Any, Any]:
        device_index(device)
        return success, runtime_properties(active())

    def memory() -> tuple[Any, int, int]:
        total = active().tell("memory_bytes", "cudaMemGetInfo()")
        return success, total, total

    return {
        "cudaDriverGetVersion": lambda: (success, CUDA_VERSION_NUMBER),
        "cudaRuntimeGetVersion": lambda: (success, CUDA_VERSION_NUMBER),
        "cudaGetDeviceCount": lambda: (success, DEVICE_COUNT),
        "cudaGetDevice": lambda: (success, 0),
        "cudaGetDeviceProperties": properties,
        "cudaMemGetInfo": memory,
        "cudaDeviceGetAttribute": lambda asked, _device: (
            success,
            attribute(active(), asked, "cudaDeviceGetAttribute"),
        ),
    }


_OTHER_QUESTIONS = ("nvmlDeviceGet", "nvmlSystemGet", "cuDeviceGet", "cudaDeviceGet")


def _answers(module: str, real: Any = None) -> Mapping[str, Any]:
    """The answers for a module of NVIDIA's by name; `real` is the module, where it is installed."""
    if module in NVML_MODULES:
        return nvml_functions() | ({} if real is not None else _NVML_CLOCKS)
    if module in DRIVER_MODULES:
        results: Any = getattr(real, "CUresult", CUresult)
        classes = {"CUresult": CUresult, "CUdevice_attribute": CUdevice_attribute}
        return driver_functions(results.CUDA_SUCCESS) | ({} if real is not None else classes)
    if module in RUNTIME_MODULES:
        errors: Any = getattr(real, "cudaError_t", cudaError_t)
        classes = {"cudaError_t": cudaError_t, "cudaDeviceAttr": cudaDeviceAttr}
        return runtime_functions(errors.cudaSuccess) | ({} if real is not None else classes)
    return {}


def _refused(question: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        active().figure(question)
        raise unknown(f"{question}()")

    return refuse


def answer_in(module: Any) -> None:
    """Let the real `module` answer for the active target where it is asked about devices."""
    answers = _answers(module.__name__, module)
    for name in dir(module):
        if name in answers:
            setattr(module, name, answers[name])
        elif name.startswith(_OTHER_QUESTIONS) and callable(getattr(module, name)):
            setattr(module, name, _refused(name))


def known(path: str, not_known: Any) -> Any:
    """What such a package says for `path` (`pynvml.nvmlDeviceGetName`); `not_known` when a stand-in has to do."""
    module, _, name = path.rpartition(".")
    if module not in (*NVML_MODULES, *DRIVER_MODULES, *RUNTIME_MODULES):
        return not_known
    answers = _answers(module)
    if name in answers:
        return answers[name]
    return _refused(name) if name.startswith(_OTHER_QUESTIONS) else not_known
