"""Occupancy, shared memory and wave quantization of Triton kernels, for any NVIDIA GPU, on a machine without one.

    import occupancy_cli as occ

    report = occ.analyze("my_kernel.py:my_kernel", gpu="h200", args={"x_ptr": "*bf16", "n": 4096})

`occupancy_cli.api.questions` says what each question takes; docs/stability.md what stays as it is. The public names
load what they need when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_cli.version import VERSION as __version__

if TYPE_CHECKING:
    from occupancy_cli.api.compiling import Compiling
    from occupancy_cli.api.pruner import Pruner, prune, pruner
    from occupancy_cli.api.questions import (
        analyze,
        calc,
        check,
        compare,
        diff,
        explain,
        fit,
        gpus,
        load_spec,
        recommend,
        sweep,
    )
    from occupancy_cli.errors import (
        CompileError,
        InputError,
        MissingDependencyError,
        OccupancyError,
        UnknownNameError,
    )
    from occupancy_cli.gpu.profiles import ComputeCapability, GpuProfile, list_gpus, load_gpu
    from occupancy_cli.model.occupancy import Occupancy, occupancy
    from occupancy_cli.model.resources import KernelResources
    from occupancy_cli.plan.kernel_input import KernelInput
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.schema import report_from_json


__all__ = [
    "CompileError",
    "Compiling",
    "ComputeCapability",
    "GpuProfile",
    "InputError",
    "KernelInput",
    "KernelResources",
    "MissingDependencyError",
    "Occupancy",
    "OccupancyError",
    "Pruner",
    "Report",
    "UnknownNameError",
    "__version__",
    "analyze",
    "calc",
    "check",
    "compare",
    "diff",
    "explain",
    "fit",
    "gpus",
    "list_gpus",
    "load_gpu",
    "load_spec",
    "occupancy",
    "prune",
    "pruner",
    "recommend",
    "report_from_json",
    "sweep",
]

_HOME = {
    "occupancy_cli.api.compiling": ("Compiling",),
    "occupancy_cli.api.pruner": ("Pruner", "prune", "pruner"),
    "occupancy_cli.api.questions": (
        *("analyze", "calc", "check", "compare", "diff", "explain", "fit", "gpus", "load_spec", "recommend", "sweep"),
    ),
    "occupancy_cli.errors": (
        *("CompileError", "InputError", "MissingDependencyError", "OccupancyError", "UnknownNameError"),
    ),
    "occupancy_cli.gpu.profiles": ("ComputeCapability", "GpuProfile", "list_gpus", "load_gpu"),
    "occupancy_cli.model.occupancy": ("Occupancy", "occupancy"),
    "occupancy_cli.model.resources": ("KernelResources",),
    "occupancy_cli.plan.kernel_input": ("KernelInput",),
    "occupancy_cli.report.report": ("Report",),
    "occupancy_cli.report.schema": ("report_from_json",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
