"""What PyTorch, and the version numbers that code compares, say where a stand-in is asked and the answer is known.

Of the target GPU: what a kernel's module asks while it loads (compute capability, SM count, shared memory). Of number
formats: their definitions. Everything else is for a stand-in to answer.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

TORCH_VERSION = "2.10.0"
ABSENT = re.compile(r"torch\.(npu|mlu|musa|hpu|gcu|ptpu|txda|sdaa|maia|spyre|xla)$")


@dataclass(frozen=True)
class Device:
    """What the target GPU says of itself to code that asks its driver or PyTorch.

    GPUs of one architecture differ in the rest: `asked` gathers what was asked for, as what came of it then holds for
    GPUs alone that answer alike. Made by `device_of`, so that there is one for each target.
    """

    arch: int
    shared_per_cta_optin_bytes: int
    sm_count: int
    registers_per_sm: int
    asked: set[str] = field(default_factory=set, compare=False, repr=False)

    def tell(self, name: str) -> int:
        """The figure of that name, noted as asked for."""
        self.asked.add(name)
        return int(getattr(self, name))

    @contextlib.contextmanager
    def asking(self) -> Iterator[set[str]]:
        """What is asked for while this is active."""
        before = set(self.asked)
        self.asked.clear()
        mine: set[str] = set()
        try:
            yield mine
        finally:
            mine |= self.asked
            self.asked.update(before)


@functools.cache
def device_of(arch: int, shared_per_cta_optin_bytes: int, sm_count: int, registers_per_sm: int) -> Device:
    """The device of a target; the same one for equal figures."""
    return Device(arch, shared_per_cta_optin_bytes, sm_count, registers_per_sm)


class TorchProperties(types.SimpleNamespace):
    """What `torch.cuda.get_device_properties` returns."""

    _OWN: ClassVar[Mapping[str, str]] = {
        "multi_processor_count": "sm_count",
        "shared_memory_per_block_optin": "shared_per_cta_optin_bytes",
        "regs_per_multiprocessor": "registers_per_sm",
    }

    def __init__(self, device: Device) -> None:
        major, minor = divmod(device.arch, 10)
        super().__init__(major=major, minor=minor, warp_size=32, name="", gcnArchName="", _device=device)

    def __getattr__(self, name: str) -> int:
        if name in self._OWN:
            device: Device = self._device
            return device.tell(self._OWN[name])
        raise AttributeError(name)


class DriverProperties(Mapping[str, int]):
    """What `get_device_properties` of Triton's driver returns."""

    _OWN: ClassVar[Mapping[str, str]] = {
        "max_shared_mem": "shared_per_cta_optin_bytes",
        "max_num_regs": "registers_per_sm",
        "multiprocessor_count": "sm_count",
    }
    _SAME: ClassVar[Mapping[str, int]] = {"warpSize": 32, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0}

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getitem__(self, name: str) -> int:
        return self._SAME[name] if name in self._SAME else self._device.tell(self._OWN[name])

    def __iter__(self) -> Iterator[str]:
        return iter((*self._OWN, *self._SAME))

    def __len__(self) -> int:
        return len(self._OWN) + len(self._SAME)


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
        "get_device_properties": TorchProperties(device),
    }
    if path.startswith("torch.cuda.") and path.removeprefix("torch.cuda.") in answers:
        return _always(answers[path.removeprefix("torch.cuda.")])
    return NOT_KNOWN
