"""The process that launches kernels on a GPU and times them: reads messages (`launch_messages`), answers each with one.

A launch that faults takes its CUDA context with it, so launches run in a process of their own, as compiles do. Started
as `python -m occupancy_cli.device.launch_worker`; `measure.Launcher` is its other end.

How a time is taken: the launches are captured into a CUDA graph, `launches_per_replay` times in a row; after warm-up
replays, each timed replay stands between two events, and its time is divided by the launches. The median of the
replays is the time. Every replay uses the same buffers, so data that fits the L2 is found there ("warm"); with
`cold`, consecutive launches use different copies of the inputs that together are larger than the L2 several times over.
The SM clock and what holds it down are read while the replays run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_cli.compile import worker_channel
from occupancy_cli.compile.request import ArgumentValue, KernelSource
from occupancy_cli.device.detect import DRIVER_LIBRARY
from occupancy_cli.device.gpu_state import GpuState
from occupancy_cli.device.launch_messages import (
    Launch,
    LaunchedKernel,
    LaunchFailed,
    Message,
    Open,
    Opened,
    Time,
    Timed,
    message_of,
    message_text,
)
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.loading.kernel_objects import kernel_object
from occupancy_cli.loading.module_loading import locate

WARM_UP_REPLAYS = 3
WARM_UP_SECONDS = 0.5
MAX_POINT_MS = 600.0
LEAST_REPLAYS = 5
MOST_COPIES = 64
L2_TIMES = 3  # a launch's data is taken to be out of the L2 after this many times its size went through it


def main() -> None:
    """Serve requests from standard input until it closes. Arguments: the file that takes what is printed, and 0."""
    channel = worker_channel.WorkerEnd()
    captured = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(captured, 1)
    os.dup2(captured, 2)
    session: Session | None = None
    for text in channel:
        answer: Message
        try:
            message = message_of(text)
            if isinstance(message, Open):
                session = Session(message)
                answer = session.describe()
            elif session is None or not isinstance(message, Time):
                raise InputError("nothing was opened", where="launch worker")
            else:
                answer = session.time(message)
        except BaseException as bad:  # noqa: BLE001 (the reason goes into the answer)
            answer = _failure(bad)
        channel.answer(message_text(answer))


def _failure(bad: BaseException) -> LaunchFailed:
    if isinstance(bad, OccupancyError):
        return LaunchFailed(str(bad))
    text = str(bad).strip().splitlines()
    trace = "".join(traceback.format_exception(type(bad), bad, bad.__traceback__))[-4000:]
    return LaunchFailed(f"{type(bad).__name__}: {text[0] if text else ''}", trace)


class Session:
    """What stays the same over the points of one measurement."""

    def __init__(self, message: Open) -> None:
        os.environ["TRITON_CACHE_DIR"] = message.triton_cache
        # As in the compile worker, so that what it left in that cache is found.
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        import torch

        self.torch = torch
        self.device = f"cuda:{message.device}"
        torch.cuda.set_device(message.device)
        self.launches_per_replay = message.method.launches_per_replay
        self.replays = message.method.replays
        self.cold = message.method.cold
        self.inputs: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = _named(message.inputs)
        self.state = GpuState(message.pci_bus_id)
        self.state.__enter__()
        properties = torch.cuda.get_device_properties(message.device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 64 << 20)
        self._raise_clock()

    def describe(self) -> Opened:
        """Versions, and why clocks are unknown where they are."""
        return Opened(str(self.torch.__version__), self.state.trouble)

    def _raise_clock(self) -> None:
        """Keep the GPU busy for a moment: an idle one starts at a low clock."""
        square = self.torch.ones((4096, 4096), device=self.device, dtype=self.torch.bfloat16)
        until = time.monotonic() + WARM_UP_SECONDS
        while time.monotonic() < until:
            for _ in range(20):
                self.torch.matmul(square, square)
            self.torch.cuda.synchronize()

    def time(self, message: Time) -> Timed:
        """The times of one point: the main kernel's, and that with the kernels that follow it."""
        copies = self._copies(message.values)
        plans = [_Plan(launch, copies) for launch in message.launches]
        compiled = [plan.run(0) for plan in plans]
        self.torch.cuda.synchronize()
        us_split, spread_percent, clock, throttled = self._time([plans[0]], len(copies))
        us_total = us_split
        if len(plans) > 1:
            us_total, spread, _, more = self._time(plans, len(copies))
            spread_percent = max(spread, spread_percent)
            throttled = tuple(dict.fromkeys((*throttled, *more)))
        launched = tuple(_resources(c) for c in compiled)
        return Timed(us_split, us_total, spread_percent, clock, throttled, launched, len(copies))

    def _copies(self, values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The inputs of a point; for cold launches as many copies as push each other out of the L2."""
        first = self.inputs(values, self.device)
        if not self.cold:
            return [first]
        size = sum({t.data_ptr(): t.nbytes for t in first.values() if hasattr(t, "nbytes")}.values())
        free, _ = self.torch.cuda.mem_get_info()
        wanted = min(MOST_COPIES, 1 + -(-L2_TIMES * self.l2_bytes // max(size, 1)), 1 + int(0.8 * free) // max(size, 1))
        if wanted < 2:
            raise InputError("the GPU has no memory for a second copy of the inputs", where="--l2 cold")
        return [first, *(self.inputs(values, self.device) for _ in range(wanted - 1))]

    def _time(self, plans: Sequence[_Plan], copies: int) -> tuple[float, float, int | None, tuple[str, ...]]:
        """(median us per launch, spread of the middle 80 % in percent, SM clock in MHz, what held it down)."""
        torch = self.torch
        count = max(self.launches_per_replay, copies)
        graph = torch.cuda.CUDAGraph()
        # Not `torch.cuda.graph`: it collects garbage and empties the allocator's cache each time.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin()
            for i in range(count):
                for plan in plans:
                    plan.run(i)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

        def event() -> Any:
            return torch.cuda.Event(enable_timing=True)

        start, end = event(), event()
        for _ in range(WARM_UP_REPLAYS):
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        replays = max(LEAST_REPLAYS, min(self.replays, int(MAX_POINT_MS / max(start.elapsed_time(end), 1e-3))))
        events = [(event(), event()) for _ in range(replays)]
        for start, end in events:
            start.record()
            graph.replay()
            end.record()
        clock, throttled = self.state.clocks()
        torch.cuda.synchronize()
        graph.reset()
        times = sorted(1e3 * start.elapsed_time(end) / count for start, end in events)
        low, high = times[len(times) // 10], times[-1 - len(times) // 10]
        median = statistics.median(times)
        return median, 100 * (high - low) / median, clock, throttled


class _Plan:
    """One kernel with its values, ready to be launched on each copy of the inputs."""

    def __init__(self, launch: Launch, copies: Sequence[Mapping[str, Any]]) -> None:
        from occupancy_cli.compile import triton_front

        kernel = _named(launch.source)
        _, self._jit = triton_front.layers(kernel)
        self._grid = launch.grid
        self._values = []
        for copy in copies:
            values: dict[str, Any] = {}
            for argument in launch.arguments:
                if not argument.heuristic:
                    values[argument.name] = _argument(argument, copy, launch.source.kernel)
            values |= dict(launch.constexprs)
            self._values.append(triton_front.with_heuristics(kernel, values, dict(launch.options)))

    def run(self, number: int) -> Any:
        """Launch on copy `number`, counted round; returns Triton's compiled kernel."""
        return self._jit[self._grid](**self._values[number % len(self._values)])


def module_of(source: KernelSource) -> ModuleType:
    """The module of a source, imported plainly: a launch needs all that it imports, and nothing is stood in for."""
    if not source.file:
        return importlib.import_module(source.module or "")
    path = Path(source.file)
    root, name = locate(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    if "." in name:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _named(source: KernelSource) -> Any:
    """The object that a source names: `kernel` in a file or module."""
    from occupancy_cli.compile import triton_front

    value = kernel_object(module_of(source), source.kernel, triton_front.is_kernel)
    if value is None:
        raise InputError(f"there is no {source.kernel!r}", where=str(source.file or source.module))
    return value


def _argument(argument: ArgumentValue, inputs: Mapping[str, Any], kernel: str) -> Any:
    """The value of one argument: a tensor from the inputs; a number from the spec, or from the inputs without one."""
    name, kind, value = argument.name, argument.type, argument.value
    if kind == "none":
        return None
    if kind.startswith(("*", "tensordesc<")):
        if name not in inputs:
            raise InputError(f"no tensor {name!r} for {kernel}", where="inputs", hint=f"Given: {', '.join(inputs)}")
        return inputs[name]
    if value is not None:
        return value
    if name in inputs:
        return inputs[name]
    if kind.startswith(("fp", "bf")):
        return 1.0
    raise InputError(f"{name} of {kernel} has no value", where="arguments", hint="Give it one in the spec.")


def _resources(compiled: Any) -> LaunchedKernel:
    """What the loaded kernel takes, and the driver's CTAs/SM."""
    return LaunchedKernel(compiled.metadata.shared, compiled.n_regs, compiled.n_spills, _ctas_per_sm(compiled))


def _ctas_per_sm(compiled: Any) -> int | None:
    driver = None
    with contextlib.suppress(OSError):
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    if driver is None:
        return None
    found = ctypes.c_int()
    code = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(found),
        ctypes.c_void_p(compiled.function),
        32 * compiled.metadata.num_warps,
        ctypes.c_size_t(compiled.metadata.shared),
    )
    return None if code else found.value


if __name__ == "__main__":
    main()
