"""What `triton.testing` says of the target GPU, beside what it asks Triton's driver and torch for.

It has the memory bandwidth from a clock and a bus width that no profile states, asks `nvidia-smi`, and imports torch
to name a dtype. Here the profile answers, and torch need not be there.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from occupancy_cli.loading.target_gpu import active, device_index, unknown
from occupancy_cli.loading.torch_answers import cuda_questions

_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "float8_e4m3fn")


def get_dram_gbps(device: Any = None) -> float:
    """Memory bandwidth in 1e9 bytes a second."""
    device_index(device)
    return float(active().tell("memory_bandwidth_gbps", "triton.testing.get_dram_gbps()"))


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """What `nvidia-smi --query-gpu` prints of each attribute, as integers."""
    return [_queried(name) for name in attrs]


def _queried(name: str) -> int:
    question = f"nvidia-smi --query-gpu={name}"
    if name in ("clocks.max.sm", "clocks.max.graphics", "clocks.max.gr"):
        return int(active().tell("sm_clock_khz", question)) // 1000
    if name == "memory.total":
        return int(active().tell("memory_bytes", question)) >> 20
    if name in ("index", "count"):
        return int(name == "count")
    active().figure(question)
    raise unknown(question)


def answer_in(testing: Any) -> None:
    """Let `triton.testing` answer for the active target."""
    testing.get_dram_gbps, testing.nvsmi = get_dram_gbps, nvsmi
    for name in ("get_max_tensorcore_tflops", "get_max_simd_tflops"):
        if hasattr(testing, name):
            setattr(testing, name, _without_torch(getattr(testing, name)))


def _without_torch(rate: Callable[..., Any]) -> Callable[..., Any]:
    """Triton's own formula, with the names of torch that it uses where torch itself is not there."""

    @functools.wraps(rate)
    def answered(dtype: Any, clock_rate: Any, device: Any = None) -> Any:
        there = sys.modules.get("torch")
        if there is not None and getattr(there, "__file__", None):
            return rate(dtype, clock_rate, device)
        names = types.ModuleType("torch")
        vars(names).update({name: name for name in _DTYPES})
        names.cuda = types.SimpleNamespace(**cuda_questions())  # type: ignore[attr-defined]
        sys.modules["torch"] = names
        try:
            path = str(getattr(dtype, "_path_", dtype)).removeprefix("torch.")
            return rate(path if path in _DTYPES else dtype, clock_rate, device)
        finally:
            if there is None:
                del sys.modules["torch"]
            else:
                sys.modules["torch"] = there

    return answered
