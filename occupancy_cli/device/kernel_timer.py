"""Launches of a loaded module, timed: by CUDA graphs between events, and by the clocks that kernels read themselves.

    with CudaDevice(0) as device, KernelTimer(device, cubin, PARAMETERS) as timer:
        data = timer.allocate(1 << 30)
        timer.graph_us([Shot("empty", 1, 32)] * 200)             # microseconds of the whole graph, several times
        timer.clocks(Shot("spin", 132, 32, (timer.out, 10**7)))  # cycles and nanoseconds that its CTA 0 took

Functions are those of the CUDA driver API (cuda.h), through ctypes. Every argument of these kernels is 64 bits wide.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from occupancy_cli.device.cuda_driver import CudaDevice

OUT_BYTES = 4_096
_STREAM_NON_BLOCKING, _CAPTURE_RELAXED = 1, 2  # CUstream_flags, CUstreamCaptureMode
_MAX_DYNAMIC_SHARED_BYTES, _PREFERRED_SHARED_PERCENT = 8, 9  # CUfunction_attribute
_WARM_UP = 2


@dataclass(frozen=True)
class Shot:
    """One launch: so many CTAs of so many threads, the values of the kernel's parameters, dynamic shared memory."""

    kernel: str
    ctas: int
    threads: int
    arguments: tuple[int, ...] = ()
    shared_bytes: int = 0


@dataclass(frozen=True)
class Clocks:
    """What a kernel read before and after what it timed, of its slowest warp: SM cycles and nanoseconds."""

    cycles: int
    ns: int


class KernelTimer:
    """The kernels of one cubin, from `__enter__` to `__exit__`; `out` is a buffer for what they say of themselves.

    `parameters` names what each kernel takes. Raises `DriverError` for whatever the driver refuses.
    """

    def __init__(self, device: CudaDevice, cubin: bytes, parameters: Mapping[str, Sequence[str]]) -> None:
        self._device, self._cubin, self._parameters = device, cubin, parameters
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._memory: list[ctypes.c_uint64] = []
        self._module, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.out = 0

    def __enter__(self) -> KernelTimer:
        self._device.call("cuModuleLoadData", ctypes.byref(self._module), self._cubin)
        self._device.call("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(_STREAM_NON_BLOCKING))
        self.out = self.allocate(OUT_BYTES)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # A launch that failed fails these too; the error that counts is the first one.
        for address in self._memory:
            self._device.result("cuMemFree_v2", address)
        self._device.result("cuStreamDestroy_v2", self._stream)
        self._device.result("cuModuleUnload", self._module)

    def driver_version(self) -> str:
        """The CUDA version of the driver: "13.0"."""
        found = ctypes.c_int()
        self._device.call("cuDriverGetVersion", ctypes.byref(found))
        return f"{found.value // 1000}.{found.value % 1000 // 10}"

    def free_bytes(self) -> int:
        """The memory of the GPU that is free."""
        free, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self._device.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
        return free.value

    def allocate(self, size_bytes: int) -> int:
        """The address of that much of the GPU's memory, filled with zeros, until `__exit__`."""
        found = ctypes.c_uint64()
        self._device.call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size_bytes))
        self._memory.append(found)
        self._device.call("cuMemsetD32_v2", found, ctypes.c_uint(0), ctypes.c_size_t(size_bytes // 4))
        self._device.call("cuCtxSynchronize")  # the stream of the launches does not wait for what fills
        return int(found.value)

    def prefer_shared(self, kernel: str, percent: int) -> None:
        """Ask for so much of the L1's array to be shared memory while `kernel` runs; 0 leaves it all to the L1."""
        self._device.call(
            "cuFuncSetAttribute", self._function(kernel), ctypes.c_int(_PREFERRED_SHARED_PERCENT), ctypes.c_int(percent)
        )

    def run(self, shot: Shot) -> None:
        """Launch once and wait."""
        self._allow_shared(shot)
        self._launch(shot)
        self._device.call("cuStreamSynchronize", self._stream)

    def clocks(self, shot: Shot, times: int = 5) -> list[Clocks]:
        """What a kernel that times itself says, launch by launch; the first argument named `out` is its buffer."""
        warps = -(-shot.threads // 32)
        found = []
        for _ in range(times):
            self.run(shot)
            words = (ctypes.c_uint64 * (2 * warps))()
            size = ctypes.c_size_t(ctypes.sizeof(words))
            self._device.call("cuMemcpyDtoH_v2", words, ctypes.c_uint64(self.out), size)
            found.append(Clocks(max(words[0::2]), max(words[1::2])))
        return found

    def graph_us(self, shots: Sequence[Shot], times: int = 5) -> list[float]:
        """Microseconds of all launches one after the other, as a graph that is replayed `times` times."""
        for kernel in {s.kernel for s in shots}:
            self._function(kernel)  # found and set up before the capture
        for shot in shots:
            self._allow_shared(shot)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._device.call("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(_CAPTURE_RELAXED))
        for shot in shots:
            self._launch(shot)
        self._device.call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self._device.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        try:
            with self._event() as start, self._event() as end:
                return [self._replay_us(ready, start, end) for _ in range(_WARM_UP + times)][_WARM_UP:]
        finally:
            self._device.result("cuGraphExecDestroy", ready)
            self._device.result("cuGraphDestroy", graph)

    def _replay_us(self, graph: ctypes.c_void_p, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        self._device.call("cuEventRecord", start, self._stream)
        self._device.call("cuGraphLaunch", graph, self._stream)
        self._device.call("cuEventRecord", end, self._stream)
        self._device.call("cuEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self._device.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return 1e3 * milliseconds.value

    @contextlib.contextmanager
    def _event(self) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        self._device.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        try:
            yield event
        finally:
            self._device.result("cuEventDestroy_v2", event)

    def _function(self, kernel: str) -> ctypes.c_void_p:
        if kernel not in self._functions:
            found = ctypes.c_void_p()
            self._device.call("cuModuleGetFunction", ctypes.byref(found), self._module, kernel.encode())
            self._functions[kernel] = found
        return self._functions[kernel]

    def _allow_shared(self, shot: Shot) -> None:
        if shot.shared_bytes:
            self._device.call(
                "cuFuncSetAttribute",
                self._function(shot.kernel),
                ctypes.c_int(_MAX_DYNAMIC_SHARED_BYTES),
                ctypes.c_int(shot.shared_bytes),
            )

    def _launch(self, shot: Shot) -> None:
        names = self._parameters[shot.kernel]
        if len(shot.arguments) != len(names):
            raise ValueError(f"{shot.kernel} takes {', '.join(names) or 'nothing'}, not {len(shot.arguments)} values")
        values = [ctypes.c_uint64(v) for v in shot.arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        one, size = ctypes.c_uint(1), (ctypes.c_uint(shot.ctas), ctypes.c_uint(shot.threads))
        self._device.call(
            "cuLaunchKernel",
            *(self._function(shot.kernel), size[0], one, one, size[1], one, one),
            *(ctypes.c_uint(shot.shared_bytes), self._stream, places, None),
        )
