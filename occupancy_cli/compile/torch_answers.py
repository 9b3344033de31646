"""What PyTorch, and the version numbers that code compares, say where a stand-in is asked and the answer is known.

Of the target GPU: what a kernel's module asks while it loads (compute capability, SM count, shared memory). Of number
formats: their definitions. Everything else is for a stand-in to answer.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TORCH_VERSION = "2.10.0"
ABSENT = re.compile(r"torch\.(npu|mlu|musa|hpu|gcu|ptpu|txda|sdaa|maia|spyre|xla)$")


@dataclass(frozen=True)
class Device:
    """What the target GPU says of itself to code that asks PyTorch while it loads."""

    arch: int
    sm_count: int
    shared_per_cta_optin_bytes: int
    registers_per_sm: int


class NotKnown:
    pass


NOT_KNOWN = NotKnown()

# (bits, largest, smallest normal, epsilon) from the formats' definitions: IEEE 754, bfloat16, OCP FP8.
_FLOATS: Mapping[str, tuple[int, float, float, float]] = {
    "float64": (64, sys.float_info.max, sys.float_info.min, sys.float_info.epsilon),
    "double": (64, sys.float_info.max, sys.float_info.min, sys.float_info.epsilon),
    "float32": (32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-23),
    "float": (32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-23),
    "float16": (16, 65504.0, 2.0**-14, 2.0**-10),
    "half": (16, 65504.0, 2.0**-14, 2.0**-10),
    "bfloat16": (16, (2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-7),
    "float8_e4m3fn": (8, 448.0, 2.0**-6, 2.0**-3),
    "float8_e4m3fnuz": (8, 240.0, 2.0**-7, 2.0**-3),
    "float8_e5m2": (8, 57344.0, 2.0**-14, 2.0**-2),
    "float8_e5m2fnuz": (8, 57344.0, 2.0**-15, 2.0**-2),
}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "short": 16, "int": 32, "long": 64}


def _dtype_name(dtype: Any) -> str:
    path = str(getattr(dtype, "_path_", dtype))
    return path.removeprefix("torch.")


def _finfo(dtype: Any) -> Any:
    name = _dtype_name(dtype)
    if name not in _FLOATS:
        return dtype._next_(f"torch.finfo({name})") if hasattr(dtype, "_next_") else None
    bits, largest, tiny, epsilon = _FLOATS[name]
    return types.SimpleNamespace(
        bits=bits, max=largest, min=-largest, tiny=tiny, smallest_normal=tiny, eps=epsilon, dtype=name
    )


def _iinfo(dtype: Any) -> Any:
    name = _dtype_name(dtype)
    signed = not name.startswith("u")
    bits = _INTEGERS.get(name.removeprefix("u"))
    if bits is None:
        return dtype._next_(f"torch.iinfo({name})") if hasattr(dtype, "_next_") else None
    largest = 2 ** (bits - signed) - 1
    return types.SimpleNamespace(bits=bits, max=largest, min=-largest - 1 if signed else 0, dtype=name)


@functools.total_ordering
class _Version:
    """A version number as `packaging.version` compares them, as far as numbers go."""

    def __init__(self, text: Any) -> None:
        self.text = str(text)
        match = re.match(r"v?(\d+(?:\.\d+)*)", self.text)
        if match is None:
            raise ValueError(f"Invalid version: {self.text!r}")
        self.release = tuple(int(part) for part in match[1].split("."))
        self.base_version = match[1]
        self.public = self.text.partition("+")[0]
        self.local = self.text.partition("+")[2] or None
        self.is_prerelease = bool(re.search(r"(a|b|rc|dev)\d*", self.public[len(match[0]) :]))
        self.major, self.minor, self.micro = (*self.release, 0, 0, 0)[:3]

    def _key(self) -> tuple[tuple[int, ...], bool]:
        release = self.release
        while release and release[-1] == 0:
            release = release[:-1]
        return release, not self.is_prerelease

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Version) and self._key() == other._key()

    def __lt__(self, other: _Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def known(path: str, device: Device | None) -> Any:
    """What PyTorch says for `path`; `NOT_KNOWN` when a stand-in has to do."""
    if path in ("packaging.version.parse", "packaging.version.Version", "packaging.version.LegacyVersion"):
        return _Version
    if not path.startswith("torch."):
        return NOT_KNOWN
    plain: dict[str, Any] = {
        "torch.version.hip": None,
        "torch.version.xpu": None,
        "torch.version.cuda": "13.0",
        "torch.finfo": _finfo,
        "torch.iinfo": _iinfo,
        "torch.inf": float("inf"),
        "torch.nan": float("nan"),
        "torch.pi": 3.141592653589793,
        "torch.xpu.is_available": _always(False),
        "torch.mps.is_available": _always(False),
        "torch.backends.mps.is_available": _always(False),
    }
    if path in plain:
        return plain[path]
    if device is None:
        return NOT_KNOWN
    capability = divmod(device.arch, 10)
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_initialized": True,
        "is_bf16_supported": True,
        "get_device_capability": capability,
        "get_arch_list": [f"sm_{device.arch}"],
        "get_device_properties": types.SimpleNamespace(
            major=capability[0],
            minor=capability[1],
            multi_processor_count=device.sm_count,
            shared_memory_per_block_optin=device.shared_per_cta_optin_bytes,
            regs_per_multiprocessor=device.registers_per_sm,
            warp_size=32,
            name="",
            gcnArchName="",
        ),
    }
    if path.startswith("torch.cuda.") and path.removeprefix("torch.cuda.") in answers:
        return _always(answers[path.removeprefix("torch.cuda.")])
    return NOT_KNOWN
