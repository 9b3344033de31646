"""What PyTorch says of the target GPU, whichever PyTorch is asked: a stand-in, or the real one.

`cuda_questions` answers for `torch.cuda`, `accelerator_questions` for `torch.accelerator`. A stand-in for an absent
PyTorch is answered through `known`; `answer_in` puts the same answers into a PyTorch that is there. What torch does
(tensors, streams, graphs) is no question; that capture replaces it is told in `capture.torch_cuda`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from occupancy_cli.loading.device_figures import torch_properties
from occupancy_cli.loading.number_formats import finfo, iinfo
from occupancy_cli.loading.target_gpu import (
    CUDA_VERSION,
    DEVICE_COUNT,
    TargetGpu,
    active,
    device_index,
    is_active,
    unknown,
)

TORCH_VERSION = "2.10.0"
CUDA_VERSION_TEXT = ".".join(str(part) for part in CUDA_VERSION)
ABSENT = re.compile(r"torch\.(npu|mlu|musa|hpu|gcu|ptpu|txda|sdaa|maia|spyre|xla)$")

# What a GPU at work would say of this moment; no profile knows it.
_OF_THIS_MOMENT = ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used")


class NotKnown:
    """The type of `NOT_KNOWN`."""


NOT_KNOWN = NotKnown()
"""Told where a stand-in has to do."""


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def cuda_questions() -> dict[str, Callable[..., Any]]:
    """The functions of `torch.cuda` that ask about devices, answering for the active target."""

    def checked(device: Any) -> TargetGpu:
        device_index(device, AssertionError)  # as torch has it
        return active()

    def memory(device: Any = None) -> tuple[int, int]:
        total = checked(device).tell("memory_bytes", "torch.cuda.mem_get_info()")
        return total, total  # nothing else runs on a GPU that is not there

    def architecture() -> str:
        return str(active().arch)

    questions: dict[str, Callable[..., Any]] = {
        "is_available": _always(True),
        "is_initialized": _always(True),
        "device_count": _always(DEVICE_COUNT),
        "current_device": _always(0),
        "is_bf16_supported": lambda *_a, **_k: active().arch >= 80,
        "is_tf32_supported": lambda: active().arch >= 80,
        "get_device_capability": lambda device=None: checked(device).capability,
        "get_device_name": lambda device=None: checked(device).tell("name", "torch.cuda.get_device_name()"),
        "get_device_properties": lambda device=None: torch_properties(checked(device)),
        "get_arch_list": lambda: [f"sm_{architecture()}"],
        "get_gencode_flags": lambda: f"-gencode compute=compute_{architecture()},code=sm_{architecture()}",
        "mem_get_info": memory,
        "can_device_access_peer": _always(False),
    }
    return questions | {name: _unanswered(f"torch.cuda.{name}()") for name in _OF_THIS_MOMENT}


def accelerator_questions() -> dict[str, Callable[..., Any]]:
    """The functions of `torch.accelerator` that ask about devices, but for those that give a `torch.device`."""
    cuda = cuda_questions()
    return {
        "is_available": _always(True),
        "device_count": _always(DEVICE_COUNT),
        "current_device_index": _always(0),
        "current_device_idx": _always(0),
        "get_memory_info": cuda["mem_get_info"],
    }


def _unanswered(question: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        active().figure(question)
        raise unknown(question)

    return refuse


def had_a_gpu(torch: Any) -> bool:
    """Whether a real PyTorch has a GPU of this machine, whoever it answers for now."""
    asked = getattr(torch, "_occupancy_is_available", None) or torch.cuda.is_available
    return bool(asked())


def answer_in(torch: Any) -> None:
    """Let the real `torch` answer for the active target where it is asked about devices."""
    if hasattr(torch, "_occupancy_is_available"):
        return
    torch._occupancy_is_available = torch.cuda.is_available
    for name, function in cuda_questions().items():
        setattr(torch.cuda, name, function)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for name, function in accelerator_questions().items():
            setattr(accelerator, name, function)
        accelerator.current_accelerator = lambda *_a, **_k: torch.device("cuda")
    torch.version.cuda, torch.version.hip = CUDA_VERSION_TEXT, None
    torch.backends.cuda.is_built = _always(True)


def known(path: str) -> Any:
    """What PyTorch says for `path` (`torch.cuda.is_available`); `NOT_KNOWN` when a stand-in has to do."""
    plain: dict[str, Any] = {
        "torch.version.hip": None,
        "torch.version.xpu": None,
        "torch.version.cuda": CUDA_VERSION_TEXT,
        "torch.finfo": finfo,
        "torch.iinfo": iinfo,
        "torch.inf": float("inf"),
        "torch.nan": float("nan"),
        "torch.pi": 3.141592653589793,
        "torch.xpu.is_available": _always(False),
        "torch.mps.is_available": _always(False),
        "torch.backends.mps.is_available": _always(False),
        "torch.backends.cuda.is_built": _always(True),
    }
    if path in plain:
        return plain[path]
    module, _, name = path.rpartition(".")
    if not is_active():
        return NOT_KNOWN
    if module == "torch.cuda":
        return cuda_questions().get(name, NOT_KNOWN)
    if module == "torch.accelerator":
        return accelerator_questions().get(name, NOT_KNOWN)
    return NOT_KNOWN
