"""What a script does on a GPU beside launching kernels: streams, events, graphs, contexts in which nothing happens.

Put into `torch.cuda`, `torch.accelerator` and `torch._C`; their questions about the device are answered by
`loading.torch_answers`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

_WITHOUT_EFFECT = (
    *("init", "_lazy_init", "synchronize", "set_device", "set_stream", "empty_cache", "ipc_collect", "seed_all"),
    *("manual_seed", "manual_seed_all", "set_rng_state", "set_rng_state_all", "reset_peak_memory_stats"),
    "reset_max_memory_allocated",
)
_MEMORY_OF_THIS_PROCESS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


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


def doing_nothing() -> Callable[..., None]:
    """A function that does nothing; a new one each time, since torch tells its functions apart by identity."""

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    return nothing


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


def install(torch: Any, cuda: Any) -> None:
    """Replace them. `cuda` is the target as a `torch.device`."""
    stream = _Stream()
    actions: dict[str, Any] = {
        "current_stream": lambda _device=None: stream,
        "default_stream": lambda _device=None: stream,
        "is_current_stream_capturing": lambda: False,
        "graph_pool_handle": lambda: (0, 0),
        "make_graphed_callables": lambda callables, *_a, **_k: callables,
        "get_rng_state": lambda _device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "initial_seed": torch.initial_seed,
        "memory_stats": lambda _device=None: {},
        "_is_in_bad_fork": lambda: False,
        "_exchange_device": lambda _device: 0,
        "_maybe_exchange_device": lambda _device: 0,
        "_get_device": lambda _device=None: cuda,
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
    actions |= {name: doing_nothing() for name in _WITHOUT_EFFECT}
    actions |= {name: lambda _device=None: 0 for name in _MEMORY_OF_THIS_PROCESS}
    _put(torch.cuda, actions)
    _put(torch.cuda.nvtx, {name: doing_nothing() for name in ("range_push", "range_pop", "mark")})
    torch.cuda.nvtx.range = _context
    torch.cuda.graphs.CUDAGraph, torch.cuda.graphs.graph = _Graph, _context
    torch.cuda.streams.Stream, torch.cuda.streams.Event = _Stream, _Event
    _put(
        torch._C,
        {
            "_cuda_getCurrentRawStream": lambda _device=0: 0,
            "_cuda_getDevice": lambda: 0,
            "_cuda_setDevice": doing_nothing(),
            "_cuda_getDeviceCount": lambda: 1,
            "_cuda_exchangeDevice": lambda _device: 0,
            "_cuda_maybeExchangeDevice": lambda _device: 0,
            "_cuda_synchronize": doing_nothing(),
        },
    )
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        nothing = {name: doing_nothing() for name in ("set_device_index", "set_stream", "synchronize")}
        _put(accelerator, nothing | {"current_stream": lambda _device=None: stream})


def _put(module: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(module, name, value)
