"""Occupancy, shared memory and wave quantization of Triton kernels, for any NVIDIA GPU, on a machine without one.

The public names load what they need when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_cli.version import VERSION as __version__

if TYPE_CHECKING:
    from occupancy_cli.errors import InputError, OccupancyError
    from occupancy_cli.gpu.profiles import ComputeCapability, GpuProfile, list_gpus, load_gpu
    from occupancy_cli.model.occupancy import Occupancy, occupancy
    from occupancy_cli.model.resources import KernelResources


__all__ = [
    "ComputeCapability",
    "GpuProfile",
    "InputError",
    "KernelResources",
    "Occupancy",
    "OccupancyError",
    "__version__",
    "list_gpus",
    "load_gpu",
    "occupancy",
]

_HOME = {
    "ComputeCapability": "occupancy_cli.gpu.profiles",
    "GpuProfile": "occupancy_cli.gpu.profiles",
    "InputError": "occupancy_cli.errors",
    "KernelResources": "occupancy_cli.model.resources",
    "Occupancy": "occupancy_cli.model.occupancy",
    "OccupancyError": "occupancy_cli.errors",
    "list_gpus": "occupancy_cli.gpu.profiles",
    "load_gpu": "occupancy_cli.gpu.profiles",
    "occupancy": "occupancy_cli.model.occupancy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
