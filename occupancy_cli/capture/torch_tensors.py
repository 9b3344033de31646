"""Where tensors are, as the script sees it: CPU tensors that say they are CUDA tensors.

One that was asked for on the CPU in words (`.cpu()`, `device="cpu"`) says cpu, every other one cuda. Large random
tensors are zeros, and large tensors of zeros take no memory until written.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
from collections.abc import Callable
from typing import Any

from occupancy_cli.capture.torch_streams import doing_nothing

LAZY_BYTES = 64 << 20
_MAP_NORESERVE = 0x4000  # Linux; mmap.MAP_NORESERVE exists from Python 3.13 on


class Placement:
    """Puts what is asked for on the target where it really is, the CPU, and keeps what each tensor says of it."""

    def __init__(self, torch: Any, note: Callable[[str], None]) -> None:
        self.torch = torch
        self.note = note
        self.cuda = torch.device("cuda", 0)
        self.cpu = torch.device("cpu")
        self._base_device = torch._C.TensorBase.device.__get__
        # Learned before the factories are replaced: torch compares them by identity.
        self.constructors: set[Any] = set(torch.utils._device._device_constructors())

    # --- devices ---

    def actual(self, device: Any) -> Any:
        """Where something asked for on `device` is put."""
        if device is None or isinstance(device, bool):
            return device
        if isinstance(device, int):
            return self.cpu
        wanted = self.torch.device(device)
        return self.cpu if wanted.type == "cuda" else wanted

    def asks_for_cpu(self, device: Any) -> bool:
        return not isinstance(device, int) and device is not None and self.torch.device(device).type == "cpu"

    def _is_device(self, value: Any) -> bool:
        if isinstance(value, str):
            return value.partition(":")[0] in ("cuda", "cpu", "meta")
        return isinstance(value, self.torch.device) or (isinstance(value, int) and not isinstance(value, bool))

    def _says_cpu(self, tensor: Any) -> Any:
        with contextlib.suppress(AttributeError):
            tensor._occupancy_cpu = True
        return tensor

    # --- tensors ---

    def tensors(self) -> None:
        """Attributes and methods of tensors that name a device."""
        torch, base = self.torch, self._base_device
        tensor = torch.Tensor

        def device(self_: Any) -> Any:
            real = base(self_)
            return self.cuda if real.type == "cpu" and not getattr(self_, "_occupancy_cpu", False) else real

        tensor.device = property(device)
        tensor.is_cuda = property(lambda self_: self_.device.type == "cuda")
        tensor.is_cpu = property(lambda self_: self_.device.type == "cpu")
        tensor.get_device = lambda self_: 0 if self_.device.type == "cuda" else -1
        original_to = tensor.to

        def moved(self_: Any, wanted: Any, result: Any) -> Any:
            here = getattr(self_, "_occupancy_cpu", False)
            if self.asks_for_cpu(wanted):
                return self._says_cpu(result.clone() if result is self_ and not here else result)
            return result.clone() if result is self_ and here else result

        def to(self_: Any, *args: Any, **kwargs: Any) -> Any:
            wanted = kwargs.get("device", args[0] if args and self._is_device(args[0]) else None)
            if args and isinstance(args[0], torch.Tensor) and base(args[0]).type == "cpu":
                wanted = args[0].device
            if "device" in kwargs:
                kwargs["device"] = self.actual(kwargs["device"])
            elif args and self._is_device(args[0]):
                args = (self.actual(args[0]), *args[1:])
            result = original_to(self_, *args, **kwargs)
            if wanted is None:
                same = result is self_ or not getattr(self_, "_occupancy_cpu", False)
                return result if same else self._says_cpu(result)
            return moved(self_, wanted, result)

        tensor.to = to
        tensor.cuda = lambda self_, *_args, **_kwargs: moved(self_, "cuda", self_)
        tensor.cpu = lambda self_, *_args, **_kwargs: moved(self_, "cpu", self_)
        tensor.pin_memory = lambda self_, *_args: self._says_cpu(self_)
        tensor.is_pinned = lambda self_, *_args: bool(getattr(self_, "_occupancy_cpu", False))
        tensor.record_stream = doing_nothing()
        for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "new"):
            if hasattr(tensor, name):
                setattr(tensor, name, self._placed(getattr(tensor, name)))

    def _placed(self, function: Callable[..., Any]) -> Any:
        """`function` with its `device` put where things really are."""

        @functools.wraps(function)
        def placed(*args: Any, **kwargs: Any) -> Any:
            wanted = kwargs.get("device")
            if kwargs.pop("pin_memory", False):  # which only a tensor on the CPU can be
                wanted = self.cpu
            if wanted is None:
                return function(*args, **kwargs)
            kwargs["device"] = self.actual(wanted)
            result = function(*args, **kwargs)
            if self.asks_for_cpu(wanted) and isinstance(result, self.torch.Tensor):
                self._says_cpu(result)
            return result

        return placed

    # --- factories ---

    def factories(self) -> None:
        """torch.empty and its kin."""
        torch = self.torch
        like = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
        own = {str(getattr(f, "__name__", "")): f for f in self.constructors}
        names = [name for name, f in own.items() if getattr(torch, name, None) is f]
        for name in [*names, *like]:
            function = getattr(torch, name)
            if name in ("empty", "zeros", "rand", "randn"):
                function = self._lazy(function, name)
            elif name in ("empty_like", "zeros_like", "rand_like", "randn_like"):
                function = self._lazy_like(function)
            setattr(torch, name, self._placed(function))
        load = torch.load

        @functools.wraps(load)
        def load_here(*args: Any, **kwargs: Any) -> Any:
            kwargs["map_location"] = "cpu"
            return load(*args, **kwargs)

        torch.load = load_here

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Zeros that take memory page by page, as they are written."""
        torch = self.torch
        count = math.prod(shape)
        size = count * torch.empty(0, dtype=dtype).element_size()
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).reshape(shape)

    def _large(self, count: int, dtype: Any) -> bool:
        return bool(count * dtype.itemsize >= LAZY_BYTES)

    def _here(self, device: Any) -> bool:
        """Whether a factory that is given `device` makes a real tensor (a `meta` one has no memory)."""
        return bool((self.torch.get_default_device() if device is None else device).type in ("cpu", "cuda"))

    def _lazy(self, function: Any, name: str) -> Any:
        torch = self.torch
        fill = name == "empty"

        @functools.wraps(function)
        def lazy(*args: Any, **kwargs: Any) -> Any:
            size = kwargs.get("size", args[0] if len(args) == 1 and not isinstance(args[0], int) else args)
            plain = not {"out", "names", "layout", "memory_format"} & {k for k, v in kwargs.items() if v is not None}
            try:
                shape = tuple(int(n) for n in size)
            except (TypeError, ValueError):
                plain, shape = False, ()
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if plain and self._large(math.prod(shape), dtype) and self._here(kwargs.get("device")):
                if name.startswith("rand"):
                    self.note("random tensors of 64 MiB and more were zeros")
                return self._zeros(shape, dtype).requires_grad_(bool(kwargs.get("requires_grad")))
            result = function(*args, **kwargs)
            # What a kernel that did not run would have written is 0, not whatever lay in memory.
            return _cleared(result) if fill and plain and not self._large(math.prod(shape), dtype) else result

        return lazy

    def _lazy_like(self, function: Any) -> Any:
        fill = function.__name__ == "empty_like"

        @functools.wraps(function)
        def lazy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            dtype = kwargs.get("dtype") or tensor.dtype
            device = kwargs.get("device")
            here = self._base_device(tensor).type == "cpu" and (device is None or device == self.cpu)
            plain = not {"layout", "memory_format"} & {k for k, v in kwargs.items() if v is not None}
            if here and plain and self._large(tensor.numel(), dtype) and tensor.is_contiguous():
                return self._zeros(tuple(tensor.shape), dtype).requires_grad_(bool(kwargs.get("requires_grad")))
            result = function(tensor, *args, **kwargs)
            return _cleared(result) if fill and not self._large(tensor.numel(), dtype) else result

        return lazy


def _cleared(tensor: Any) -> Any:
    if tensor.device.type != "meta":
        tensor.detach().zero_()
    return tensor
