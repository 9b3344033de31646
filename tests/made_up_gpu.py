"""A made-up GPU that takes its time: a CUDA driver whose launches of `ptx_kernels` last what `MadeUp` says.

Everything that a kernel's launch would depend on is worked out from its arguments alone, independently of the code that
is tested: which memory answers by how many bytes are read, how many bytes are in flight, how many SMs take part.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

from fake_cuda import FakeCuda, FakeNvml

from occupancy_cli.answers.measured_gpu import Machine
from occupancy_cli.device.cuda_driver import CudaDevice
from occupancy_cli.device.gpu_constants import Constants, Facts, measure
from occupancy_cli.device.gpu_state import GpuState
from occupancy_cli.device.kernel_timer import KernelTimer
from occupancy_cli.device.ptx_kernels import PARAMETERS

CUBIN = b"\x7fELF of no kernel"
L2_BYTES = 62_914_560  # what the H200 of `fake_cuda` says of itself
SMS = 132


@dataclass
class MadeUp:
    """The constants of the GPU, in the units of a profile. `clocks_mhz`: one for each launch of `spin` that is timed,
    the last for all that follow."""

    clocks_mhz: tuple[float, ...] = (1500.0,)
    tensor_clock_mhz: float = 1200.0
    l1_latency: float = 40.0
    l2_latency: float = 250.0
    l2_far_latency: float = 480.0
    dram_latency: float = 700.0
    shared_latency: float = 30.0
    l1_bytes: int = 200_000
    l2_near_bytes: int = 25_000_000
    l2_effective_bytes: int = 57_000_000
    dram_gbps: float = 3000.0
    l2_read: float = 25.0
    l2_read_few: float = 70.0
    l2_read_same: float = 55.0
    l2_write: float = 16.0
    l2_write_few: float = 28.0
    shared_bytes_per_cycle: float = 128.0
    launch_us: float = 0.6
    gap_us: float = 0.8
    turnover_us: float = 0.2
    handout_us: float = 0.0005
    fma_cycles: float = 1.0
    issue_cycles: float = 1.25
    tensor_operations: float = 4096.0


class TimedCuda(FakeCuda):
    """libcuda over that GPU: a module's kernels are known by name, and nothing is computed."""

    def __init__(self, made: MadeUp) -> None:
        super().__init__()
        self.made = made
        self.free = 100 << 30
        self.functions: dict[int, str] = {}
        self.spins = 0
        self.words = (0, 0)
        self.capturing: list[float] | None = None
        self.graphs: dict[int, float] = {}
        self.now_us = 0.0
        self.events: dict[int, float] = {}
        self.handles = 100
        self.freed = 0
        self.preferred: dict[int, int] = {}

    def _handle(self) -> int:
        self.handles += 1
        return self.handles

    # --- memory, modules, streams ---

    def cuDriverGetVersion(self, found: Any) -> int:
        found._obj.value = 13_000
        return 0

    def cuMemGetInfo_v2(self, free: Any, whole: Any) -> int:
        free._obj.value, whole._obj.value = self.free, 140 << 30
        return 0

    def cuMemAlloc_v2(self, found: Any, size: Any) -> int:
        assert size.value <= self.free
        found._obj.value = self._handle() << 32
        return 0

    def cuMemFree_v2(self, _address: Any) -> int:
        self.freed += 1
        return 0

    def cuMemsetD32_v2(self, _address: Any, _value: Any, _count: Any) -> int:
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuStreamCreate(self, stream: Any, _flags: Any) -> int:
        stream._obj.value = self._handle()
        return 0

    def cuStreamDestroy_v2(self, _stream: Any) -> int:
        return 0

    def cuStreamSynchronize(self, _stream: Any) -> int:
        return 0

    def cuModuleGetFunction(self, function: Any, _module: Any, name: bytes) -> int:
        function._obj.value = self._handle()
        self.functions[function._obj.value] = name.decode()
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: Any) -> int:
        if attribute.value == 9:
            self.preferred[function.value] = value.value
        return 0

    def cuMemcpyDtoH_v2(self, words: Any, _address: Any, size: Any) -> int:
        for i in range(size.value // 16):
            words[2 * i], words[2 * i + 1] = self.words
        return 0

    # --- graphs and events ---

    def cuStreamBeginCapture_v2(self, _stream: Any, _mode: Any) -> int:
        self.capturing = []
        return 0

    def cuStreamEndCapture(self, _stream: Any, graph: Any) -> int:
        assert self.capturing is not None
        graph._obj.value = self._handle()
        self.graphs[graph._obj.value] = sum(self.capturing)
        self.capturing = None
        return 0

    def cuGraphInstantiateWithFlags(self, ready: Any, graph: Any, _flags: Any) -> int:
        ready._obj.value = graph.value
        return 0

    def cuGraphLaunch(self, graph: Any, _stream: Any) -> int:
        self.now_us += self.graphs[graph.value]
        return 0

    def cuGraphExecDestroy(self, _graph: Any) -> int:
        return 0

    def cuGraphDestroy(self, _graph: Any) -> int:
        return 0

    def cuEventCreate(self, event: Any, _flags: Any) -> int:
        event._obj.value = self._handle()
        return 0

    def cuEventDestroy_v2(self, _event: Any) -> int:
        return 0

    def cuEventRecord(self, event: Any, _stream: Any) -> int:
        self.events[event.value] = self.now_us
        return 0

    def cuEventSynchronize(self, _event: Any) -> int:
        return 0

    def cuEventElapsedTime(self, milliseconds: Any, start: Any, end: Any) -> int:
        milliseconds._obj.value = (self.events[end.value] - self.events[start.value]) / 1e3
        return 0

    # --- launches ---

    def cuLaunchKernel(
        self, function: Any, ctas: Any, gy: Any, gz: Any, threads: Any, by: Any, bz: Any, shared: Any,
        _stream: Any, places: Any, _extra: Any,
    ) -> int:  # fmt: skip
        assert (gy.value, gz.value, by.value, bz.value) == (1, 1, 1, 1)
        name = self.functions[function.value]
        values = [ctypes.c_uint64.from_address(place).value for place in places]
        us = self._lasts(name, ctas.value, threads.value, shared.value, values, function.value)
        if self.capturing is None:
            self.now_us += us
        else:
            self.capturing.append(us)
        return 0

    @property
    def clock_mhz(self) -> float:
        return self.made.clocks_mhz[min(self.spins, len(self.made.clocks_mhz) - 1)]

    def _lasts(self, name: str, ctas: int, threads: int, shared: int, values: list[int], function: int) -> float:
        """Microseconds of a launch; a kernel that times itself leaves its cycles and nanoseconds in `words`."""
        made, clock = self.made, self.clock_mhz
        if name == "empty":
            return made.launch_us + made.handout_us * ctas
        if name == "spin":
            assert ctas == SMS or shared > 116_000  # one CTA an SM at a time
            waves = math.ceil(ctas / SMS)
            self.words = (values[1], round(1e3 * values[1] / clock))
            if self.capturing is None and values[1] == 10_000_000:
                self.spins += 1
            return made.gap_us + waves * values[1] / clock + (waves - 1) * made.turnover_us
        if name == "chain":
            base, lines, step = values
            assert base and math.gcd(lines, step) == 1
            self.chain_bytes = lines * 128
            return 5.0
        if name.startswith("chase_"):
            assert values[-1] % 8 == 0
            return self._tell(self._latency(name, function) * values[-1], clock)
        if name.startswith("read_") or name == "write":
            return self._moved(name, ctas, threads, values)
        if name == "shared_read":
            return self._tell(values[1] * 8 * threads * 16 / made.shared_bytes_per_cycle, clock)
        if name.startswith("op_"):
            each = made.issue_cycles if name == "op_issue" else made.fma_cycles
            return self._tell(values[1] * 8 * 32 * (threads // 32) / 4 * each, clock)
        return self._product(name, threads, values)

    def _tell(self, cycles: float, clock: float) -> float:
        self.words = (round(cycles), round(1e3 * cycles / clock))
        return cycles / clock

    def _latency(self, name: str, function: int) -> float:
        made, size = self.made, self.chain_bytes
        if name == "chase_shared":
            return made.shared_latency
        if name == "chase_l1":
            assert self.preferred[function] == 0
            return made.l1_latency if size <= made.l1_bytes else made.l2_latency
        if size <= made.l2_near_bytes:
            return made.l2_latency
        return made.l2_far_latency if size <= made.l2_effective_bytes else made.dram_latency

    def _moved(self, name: str, ctas: int, threads: int, values: list[int]) -> float:
        made, clock = self.made, self.clock_mhz
        _, _, vectors, parts, spread, step, passes = values
        count = int(name[5:]) if name != "write" else 4
        assert vectors and vectors % (step * count) == 0
        moved = vectors * 16 * passes * (1 if spread else ctas)
        if spread and vectors * 16 > L2_BYTES:
            flight = ctas * threads * 16 * count
            gbps = min(made.dram_gbps, flight / (made.dram_latency / clock) / 1e3)
        else:
            few = not spread and parts == ctas
            reads = made.l2_read_few if few else made.l2_read if spread else made.l2_read_same
            writes = made.l2_write_few if few else made.l2_write
            gbps = (writes if name == "write" else reads) * min(ctas, SMS) * clock / 1e3
        return 2.0 + moved / gbps / 1e3

    def _product(self, name: str, threads: int, values: list[int]) -> float:
        kind, dtype = name.split("_")[:2]
        k = {"bf16": 16, "fp16": 16, "tf32": 8, "int8": 32, "fp8": 32}[dtype]
        rate = self.made.tensor_operations * k / 16  # a cycle of an SM
        each = 2 * 64 * 256 * k * 8 * 2 if kind == "wgmma" else 2 * 16 * 8 * k * 8 * threads // 32
        return self._tell(values[1] * each / rate, self.made.tensor_clock_mhz)


def made_up_machine(nvml: FakeNvml | None = None) -> Machine:
    """That GPU as `gpus --measure` finds one of its machine."""
    cuda = CudaDevice(0, TimedCuda(MadeUp()))

    def timed(facts: Facts, said: Any) -> tuple[Constants, str]:
        with cuda, KernelTimer(cuda, CUBIN, PARAMETERS) as timer:
            return measure(timer, facts, said), timer.driver_version()

    return Machine(cuda.device, GpuState("0000:3b:00.0", nvml or FakeNvml()), timed)
