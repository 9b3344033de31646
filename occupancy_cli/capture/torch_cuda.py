"""Torch's CPU build, answering as if the target GPU were there: real CPU tensors that say they are CUDA tensors.

Sizes, strides, addresses and data-dependent flow stay real, and torch operations between launches really run (on the
CPU). Replaced are the places where Python asks about devices: tensor attributes, factories, `torch.cuda`, autocast,
generators, operator registration. What C++ code asks about a device it learns truthfully.

Where a tensor is: one that was asked for on the CPU in words (`.cpu()`, `device="cpu"`) says cpu, every other one cuda.
Large random tensors are zeros, and large tensors of zeros take no memory until written.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LAZY_BYTES = 64 << 20
_MAP_NORESERVE = 0x4000  # Linux; mmap.MAP_NORESERVE exists from Python 3.13 on
# A driver that supports every architecture there are profiles for; libraries compare it with their least version.
CUDA_VERSION = "12.8"


_WITHOUT_EFFECT = (
    *("init", "_lazy_init", "synchronize", "set_device", "set_stream", "empty_cache", "ipc_collect", "seed_all"),
    *("manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all", "reset_peak_memory_stats"),
    "reset_max_memory_allocated",
)
_MEMORY_FIGURES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def install(target: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Replace them. `target` has `name`, `arch` and the figures of a device's properties; a missing one is not there.

    To be called before anything else imports torch's users; torch itself is imported here.
    """
    import torch
    import torch.amp.autocast_mode
    import torch.library
    import torch.utils._device

    stand_in = _StandIn(torch, target, note)
    stand_in.tensors()
    stand_in.factories()
    stand_in.cuda_module()
    stand_in.device_state()
    stand_in.autocast()
    stand_in.operators()


class _Properties:
    """What `torch.cuda.get_device_properties` returns; a figure that the profile does not state is no attribute."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in values.items() if value is not None})

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"


class _Stream:
    """A stream on which nothing happens."""

    cuda_stream = 0
    stream_id = 0
    priority = 0
    device_index = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        import torch

        self.device = torch.device("cuda", 0)

    def query(self) -> bool:
        return True

    def _nothing(self, *_args: Any) -> None:
        return None

    synchronize = wait_stream = wait_event = _nothing

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None


class _Event:
    """An event without a time."""

    cuda_event = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: Any) -> float:
        return math.nan

    def _nothing(self, *_args: Any) -> None:
        return None

    record = wait = synchronize = _nothing


class _Graph:
    """A CUDA graph: what is captured in it runs once, a replay does nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    capture_begin = capture_end = replay = reset = enable_debug_mode = debug_dump = _nothing

    def pool(self) -> tuple[int, int]:
        return (0, 0)


@contextlib.contextmanager
def _context(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def _doing_nothing() -> Callable[..., None]:
    """A function that does nothing; a new one each time, since torch tells its functions apart by identity."""

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    return nothing


class _StandIn:
    def __init__(self, torch: Any, target: Mapping[str, Any], note: Callable[[str], None]) -> None:
        self.torch = torch
        self.target = target
        self.note = note
        self.cuda = torch.device("cuda", 0)
        self.cpu = torch.device("cpu")
        self._base_device = torch._C.TensorBase.device.__get__
        # Learned before the factories are replaced: torch compares them by identity.
        self._constructors: set[Any] = set(torch.utils._device._device_constructors())

    # --- devices ---

    def actual(self, device: Any) -> Any:
        """Where something asked for on `device` is put."""
        if device is None or isinstance(device, bool):
            return device
        if isinstance(device, int):
            return self.cpu
        wanted = self.torch.device(device)
        return self.cpu if wanted.type == "cuda" else wanted

    def _asks_for_cpu(self, device: Any) -> bool:
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
            if self._asks_for_cpu(wanted):
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
        tensor.record_stream = _doing_nothing()
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
            if self._asks_for_cpu(wanted) and isinstance(result, self.torch.Tensor):
                self._says_cpu(result)
            return result

        return placed

    # --- factories ---

    def factories(self) -> None:
        """torch.empty and its kin."""
        torch = self.torch
        like = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
        own = {str(getattr(f, "__name__", "")): f for f in self._constructors}
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

    # --- torch.cuda ---

    def cuda_module(self) -> None:
        """`torch.cuda` with one device, the target."""
        torch, target = self.torch, self.target
        major, minor = divmod(int(target["arch"]), 10)
        properties = _Properties(
            {**target.get("properties", {}), "name": target["name"], "major": major, "minor": minor}
        )
        memory = getattr(properties, "total_memory", 0)
        stream = _Stream()
        answers: dict[str, Any] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "is_bf16_supported": lambda *_a, **_k: major >= 8,
            "is_tf32_supported": lambda: major >= 8,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_properties": lambda _device=None: properties,
            "get_device_capability": lambda _device=None: (major, minor),
            "get_device_name": lambda _device=None: target["name"],
            "get_arch_list": lambda: [f"sm_{major}{minor}"],
            "current_stream": lambda _device=None: stream,
            "default_stream": lambda _device=None: stream,
            "mem_get_info": lambda _device=None: (memory, memory),
            "can_device_access_peer": lambda _device, _peer: False,
            "is_current_stream_capturing": lambda: False,
            "graph_pool_handle": lambda: (0, 0),
            "make_graphed_callables": lambda callables, *_a, **_k: callables,
            "get_rng_state": lambda _device="cuda": torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
            "initial_seed": torch.initial_seed,
            "memory_stats": lambda _device=None: {},
            "utilization": lambda _device=None: 0,
            "_is_in_bad_fork": lambda: False,
            "_exchange_device": lambda _device: 0,
            "_maybe_exchange_device": lambda _device: 0,
            "_get_device": lambda _device=None: self.cuda,
            "Stream": _Stream,
            "ExternalStream": _Stream,
            "Event": _Event,
            "CUDAGraph": _Graph,
            "graph": _context,
            "stream": _context,
            "StreamContext": _context,
            "device": _DeviceContext,
            "device_of": _context,
            "_DeviceGuard": _DeviceContext,
        }
        for name in _WITHOUT_EFFECT:
            answers[name] = _doing_nothing()
        for name in _MEMORY_FIGURES:
            answers[name] = lambda _device=None: 0
        for name, value in answers.items():
            setattr(torch.cuda, name, value)
        torch.cuda.default_generators = (self._generator_class()(),)
        for name in ("range_push", "range_pop", "mark"):
            setattr(torch.cuda.nvtx, name, _doing_nothing())
        torch.cuda.nvtx.range = _context
        torch.cuda.graphs.CUDAGraph, torch.cuda.graphs.graph = _Graph, _context
        torch.cuda.streams.Stream, torch.cuda.streams.Event = _Stream, _Event
        torch.version.cuda, torch.version.hip = CUDA_VERSION, None
        torch.backends.cuda.is_built = lambda: True
        raw = {
            "_cuda_getCurrentRawStream": lambda _device=0: 0,
            "_cuda_getDevice": lambda: 0,
            "_cuda_setDevice": _doing_nothing(),
            "_cuda_getDeviceCount": lambda: 1,
            "_cuda_exchangeDevice": lambda _device: 0,
            "_cuda_maybeExchangeDevice": lambda _device: 0,
            "_cuda_synchronize": _doing_nothing(),
        }
        for name, value in raw.items():
            setattr(torch._C, name, value)
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None:
            for name, value in {
                "is_available": lambda: True,
                "device_count": lambda: 1,
                "current_accelerator": lambda *_a, **_k: torch.device("cuda"),
                "current_device_index": lambda: 0,
                "current_device_idx": lambda: 0,
                "current_stream": lambda _device=None: stream,
                "set_device_index": _doing_nothing(),
                "set_stream": _doing_nothing(),
                "synchronize": _doing_nothing(),
            }.items():
                setattr(accelerator, name, value)

    def _generator_class(self) -> Any:
        torch, actual = self.torch, self.actual

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

    # --- the default device ---

    def device_state(self) -> None:
        """`with torch.device("cuda")` and `torch.set_default_device`."""
        constructors, actual = self._constructors, self.actual

        def __torch_function__(self_: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in constructors and kwargs.get("device") is None:
                kwargs["device"] = actual(self_.device)
            return func(*args, **kwargs)

        self.torch.utils._device.DeviceContext.__torch_function__ = __torch_function__

    # --- autocast ---

    def autocast(self) -> None:
        """Autocast for CUDA is the CPU's, with CUDA's default dtype: tensors that are on the CPU would not be cast."""
        torch = self.torch
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

    # --- operators ---

    def operators(self) -> None:
        """A kernel registered for CUDA is one for the CPU too; torch.compile leaves functions as they are."""
        torch = self.torch
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
            self.note("torch.compile left functions as they are: kernels that it generates are not captured")
            return (lambda function: function) if model is None else model

        def disable(fn: Any = None, *_args: Any, **_kwargs: Any) -> Any:
            return (lambda function: function) if fn is None else fn

        torch.compile = compile_nothing
        torch.compiler.compile = compile_nothing
        torch.compiler.disable = disable
        with contextlib.suppress(AttributeError):
            torch.nn.Module.compile = _doing_nothing()


class _DeviceContext:
    """`with torch.cuda.device(0):`."""

    def __init__(self, device: Any = None, *_args: Any) -> None:
        self.idx = 0
        self.prev_idx = 0
        self.given = device

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        return function


def _cleared(tensor: Any) -> Any:
    if tensor.device.type != "meta":
        tensor.detach().zero_()
    return tensor
