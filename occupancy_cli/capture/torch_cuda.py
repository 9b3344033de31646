"""Torch's CPU build, answering as if the target GPU were there: real CPU tensors that say they are CUDA tensors.

Sizes, strides, addresses and data-dependent flow stay real, and torch operations between launches really run (on the
CPU). Replaced are the places where Python asks about devices: tensor attributes and factories (`torch_tensors`),
streams and graphs (`torch_streams`), and here autocast, generators and operator registration. The questions about the
device itself are answered by `loading.torch_answers` before. What C++ code asks about a device it learns truthfully.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

from occupancy_cli.capture import torch_streams
from occupancy_cli.capture.torch_streams import doing_nothing
from occupancy_cli.capture.torch_tensors import Placement


def install(torch: Any, note: Callable[[str], None]) -> None:
    """Replace them in `torch`, whose questions about the device are answered already, before its users are imported."""
    for name in ("torch.amp.autocast_mode", "torch.library", "torch.utils._device"):
        importlib.import_module(name)
    placement = Placement(torch, note)
    placement.tensors()
    placement.factories()
    torch_streams.install(torch, placement.cuda)
    torch.cuda.default_generators = (_generator_class(placement)(),)
    _default_device(placement)
    _autocast(torch)
    _operators(torch, note)


def _generator_class(placement: Placement) -> Any:
    """`torch.Generator`, which makes one for CUDA too; returned is what makes that."""
    torch, actual = placement.torch, placement.actual

    class Generator(torch.Generator):  # type: ignore[name-defined, misc]
        """A generator whose state is a seed and an offset, as a CUDA generator's is."""

        def __new__(cls, device: Any = None) -> Any:
            return super().__new__(cls, device=actual(device) or "cpu")

        def __init__(self, device: Any = None) -> None:
            self.claimed = torch.device(device) if device is not None else torch.device("cpu")
            self.offset = 0

        @property
        def device(self) -> Any:
            return self.claimed

        def get_state(self) -> Any:
            if self.claimed.type != "cuda":
                return super().get_state()
            return torch.tensor([self.initial_seed(), self.offset], dtype=torch.int64).view(torch.uint8)

        def set_state(self, state: Any) -> Any:
            if self.claimed.type != "cuda":
                return super().set_state(state)
            self.offset = int(state.view(torch.int64)[1])
            return self

        def get_offset(self) -> int:
            return self.offset

        def set_offset(self, offset: int) -> None:
            self.offset = offset

    def of_cuda() -> Any:
        return Generator("cuda")

    torch.Generator = Generator
    return of_cuda


def _default_device(placement: Placement) -> None:
    """`with torch.device("cuda")` and `torch.set_default_device`."""
    constructors, actual = placement.constructors, placement.actual

    def __torch_function__(self_: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in constructors and kwargs.get("device") is None:
            kwargs["device"] = actual(self_.device)
        return func(*args, **kwargs)

    placement.torch.utils._device.DeviceContext.__torch_function__ = __torch_function__


def _autocast(torch: Any) -> None:
    """Autocast for CUDA is the CPU's, with CUDA's default dtype: tensors that are on the CPU would not be cast."""
    cls = torch.amp.autocast_mode.autocast
    original = cls.__init__

    @functools.wraps(original)
    def init(self_: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self_, device_type, dtype, *args, **kwargs)

    cls.__init__ = init
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        function = getattr(torch, name)

        def on_cpu(*args: Any, _function: Any = function, _name: str = name) -> Any:
            if not args and _name == "is_autocast_enabled":
                args = ("cpu",)
            elif args and isinstance(args[0], bool):
                args = ("cpu", *args)
            elif args and args[0] == "cuda":
                args = ("cpu", *args[1:])
            return _function(*args)

        setattr(torch, name, on_cpu)
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("cpu")


def _operators(torch: Any, note: Callable[[str], None]) -> None:
    """A kernel registered for CUDA is one for the CPU too; torch.compile leaves functions as they are."""
    original = torch.library.Library.impl

    def has_own(library: Any, op_name: Any) -> bool:
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        full = name if "::" in name else f"{library.ns}::{name}"
        return library.ns != "aten" and bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "CPU"))

    @functools.wraps(original)
    def impl(self_: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        result = original(self_, op_name, fn, dispatch_key, **kwargs)
        if (dispatch_key or getattr(self_, "dispatch_key", "")) == "CUDA" and not has_own(self_, op_name):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of overriding aten's kernel, which is what the script asks for
                original(self_, op_name, fn, "CPU", **kwargs)
        return result

    torch.library.Library.impl = impl

    def compile_nothing(model: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        note("torch.compile left functions as they are: kernels that it generates are not captured")
        return (lambda function: function) if model is None else model

    def disable(fn: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        return (lambda function: function) if fn is None else fn

    torch.compile = compile_nothing
    torch.compiler.compile = compile_nothing
    torch.compiler.disable = disable
    with contextlib.suppress(AttributeError):
        torch.nn.Module.compile = doing_nothing()
