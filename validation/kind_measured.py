"""Runs `measure_kinds.measure` on a made-up GPU: Triton's interpreter launches, CUDA's graphs and events are stand-ins.

    python validation/kind_measured.py FOLDER KERNEL...

Every kernel is measured at its tiny shape only, and a fourth of its points; a launch is said to take 10 us.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: F401 (measure_kinds needs it: fail here where it is missing)

from testing import interpreter

interpreter.install()
measure_kinds = interpreter.load_kernel("validation/h200/measure_kinds.py")
LAUNCH_MS = 0.010
clock_ms = 0.0
launched = 0


class Event:
    """A moment of the made-up clock."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = clock_ms

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


class Graph:
    """Counts what is launched while it is captured, and takes that long when it is replayed."""

    def capture_begin(self) -> None:
        self.first = launched

    def capture_end(self) -> None:
        self.launches = launched - self.first

    def replay(self) -> None:
        global clock_ms
        clock_ms += LAUNCH_MS * self.launches

    def reset(self) -> None:
        pass


class Stream:
    """Waits for nothing."""

    def wait_stream(self, _other: Stream) -> None:
        pass


class MadeUpDevice(measure_kinds.Device):
    """As `Device`, without a GPU behind it."""

    def __init__(self) -> None:
        cuda = types.SimpleNamespace(
            Event=Event,
            CUDAGraph=Graph,
            Stream=Stream,
            current_stream=Stream,
            stream=lambda _stream: contextlib.nullcontext(),
            synchronize=lambda: None,
        )
        self.torch = types.SimpleNamespace(cuda=cuda)
        self.name, self.sm_count, self.capability, self.l2_bytes = "NVIDIA H200", 132, "9.0", 4096
        self.state = types.SimpleNamespace(
            clocks=lambda: (1980, ()), max_sm_clock_mhz=lambda: 1980, trouble="", __enter__=lambda: None
        )
        self.tensors = None

    def raise_clock(self, seconds: float) -> None:
        pass

    def ctas_per_sm(self, compiled: Any) -> int:
        return 2


def bound(launch: Any, tensors: Any) -> Any:
    """As `measure_kinds.bound`, by the interpreter; a launch that was made once writes nothing again."""
    real = real_bound(launch, tensors)
    metadata = types.SimpleNamespace(shared=1024, num_warps=4)

    def call() -> Any:
        global launched, clock_ms
        launched += 1
        clock_ms += LAUNCH_MS
        if (id(tensors), launch) not in made:
            made[id(tensors), launch] = tensors  # kept, so that no other gets its id
            real()
        return types.SimpleNamespace(metadata=metadata, n_regs=64, n_spills=0, hash="f" * 64)

    return call


made: dict[tuple[int, Any], Any] = {}
real_bound = measure_kinds.bound
real_inputs, real_points = measure_kinds.Kind.inputs, measure_kinds.Kind.points_of
measure_kinds.bound = bound
measure_kinds.Device = MadeUpDevice
measure_kinds.Kind.inputs = lambda self, values, _device: real_inputs(self, values, "cpu")
measure_kinds.Kind.points = lambda self: real_points(self, "fit", self.about["tiny"])[::4]


class NoCompiles:
    """The interpreter compiles nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def wait(self, kind: Any, _seconds: float) -> dict[str, str]:
        return {w.specialized(): "" for p in kind.points() for w in p.launches}

    def close(self) -> None:
        pass


if __name__ == "__main__":
    measure_kinds.Compiles = NoCompiles
    folder, kernels = Path(sys.argv[1]), sys.argv[2:]
    code = measure_kinds.measure(measure_kinds.read_kinds(kernels), folder, 300.0, 1, str(folder / "cache"))
    measure_kinds.split(folder / "kinds.jsonl", folder / "times")
    sys.exit(code)
