"""Triton's driver for a target that need not be there: it answers for it and launches nothing.

Its answers are those of `loading.target_gpu`, as every other door's. A capture's driver (`capture.triton_hooks`) is
this one with launches that are written down.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as runtime_driver

from occupancy_cli.loading.device_doors import open_doors
from occupancy_cli.loading.device_figures import DriverProperties
from occupancy_cli.loading.target_gpu import WARP_SIZE, TargetGpu, device_index
from occupancy_cli.loading.torch_answers import cuda_questions


@dataclass(frozen=True)
class CudaDevice:
    """Stands for `torch.device("cuda", 0)` where torch is not there."""

    type: str = "cuda"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


class TargetDriver(DriverBase):  # type: ignore[misc]
    """The driver of one target, device 0."""

    def __init__(self, target: TargetGpu) -> None:
        self.target_gpu = target
        self.utils = types.SimpleNamespace(
            get_device_properties=self.get_device_properties,
            load_binary=lambda *_args: (0, 0, 0, 0, 1024),
            unload_module=lambda *_args: None,
        )

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.target_gpu.arch, WARP_SIZE)

    def get_device_properties(self, device: Any = 0) -> DriverProperties:
        device_index(device)
        return DriverProperties(self.target_gpu)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        device_index(device)
        return self.target_gpu.capability

    def get_active_torch_device(self) -> Any:
        torch = _torch()
        return CudaDevice() if torch is None else torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """`torch.cuda`; without torch, its questions alone."""
        torch = _torch()
        return types.SimpleNamespace(**cuda_questions()) if torch is None else torch.cuda

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _device: int) -> None:
        return None

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_empty_cache_for_benchmark(self) -> Any:
        """Nothing is timed: there is no cache to empty."""
        return None

    def clear_cache(self, _cache: Any) -> None:
        return None

    def get_benchmarker(self) -> Callable[..., Any]:
        return untimed


def _torch() -> Any:
    """PyTorch or its stand-in, where the code at hand has it."""
    there = sys.modules.get("torch")
    if there is not None:
        return there
    try:
        import torch
    except ImportError:
        return None
    return torch


def untimed(call: Callable[[], Any], *_args: Any, quantiles: Any = None, return_mode: str = "mean", **_kw: Any) -> Any:
    """In place of a benchmark: the call once, and no time."""
    call()
    if quantiles is not None:
        return [math.nan] * len(quantiles) if len(quantiles) > 1 else math.nan
    return [math.nan] if return_mode == "all" else math.nan


def install_driver(target: TargetGpu) -> None:
    """Let Triton's driver and every other door of this process answer for `target`."""
    open_doors(target)
    runtime_driver.set_active(TargetDriver(target))
