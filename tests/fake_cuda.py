"""A made-up CUDA driver and NVML: they answer as an H200 would, from a cubin's own bytes and rules written out here.

`FakeCuda` counts CTAs/SM by NVIDIA's published rules (registers per warp rounded up to 256, four sub-partitions, shared
memory with 1 KB a CTA rounded up to 128 B), independently of the code it tests. `changed` overrides an answer.
"""

from __future__ import annotations

import ctypes
import io
from typing import Any

from elftools.elf.elffile import ELFFile

# CUdevice_attribute numbers of cuda.h, written out here again: the test must not take them from the code it tests.
H200 = {
    "name": "NVIDIA H200",
    "memory": 150_110_011_392,  # 139.8 GiB
    "attributes": {
        1: 1024, 8: 49_152, 12: 65_536, 13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6_144, 38: 62_914_560, 39: 2_048,
        75: 9, 76: 0, 81: 233_472, 82: 65_536, 97: 232_448, 106: 32, 111: 1_024, 120: 1,
    },
}  # fmt: skip


class FakeDriver:
    """The functions of libcuda that are used, over made-up devices; code 1 (invalid value) for an unknown attribute."""

    def __init__(self, *devices: dict[str, Any], init_code: int = 0) -> None:
        self.devices = devices
        self.init_code = init_code

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self.init_code

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, label: Any, length: int, handle: ctypes.c_int) -> int:
        label.value = self.devices[handle.value]["name"].encode()[: length - 1]
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, handle: ctypes.c_int) -> int:
        total._obj.value = self.devices[handle.value]["memory"]
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, handle: ctypes.c_int) -> int:
        attributes = self.devices[handle.value]["attributes"]
        if attribute not in attributes:
            return 1
        value._obj.value = attributes[attribute]
        return 0


class FakeCuda(FakeDriver):
    """libcuda with the functions of `device.cuda_driver`, over one H200. `changed` maps a figure to what it adds."""

    def __init__(self, **changed: int) -> None:
        super().__init__(H200)
        self.changed = changed
        self.loaded: dict[int, bytes] = {}
        self.names: dict[int, str] = {}
        self.dynamic: dict[int, int] = {}
        self.refused = 0

    def cuDevicePrimaryCtxRetain(self, context: Any, _device: Any) -> int:
        context._obj.value = 7
        return 0

    def cuCtxSetCurrent(self, _context: Any) -> int:
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, _device: Any) -> int:
        return 0

    def cuDeviceGetPCIBusId(self, text: Any, _length: int, _device: Any) -> int:
        text.value = b"0000:3b:00.0"
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        text._obj.value = {1: b"CUDA_ERROR_INVALID_VALUE", 209: b"CUDA_ERROR_NO_BINARY_FOR_GPU"}.get(code)
        return 0

    def cuModuleLoadData(self, module: Any, cubin: bytes) -> int:
        if not cubin.startswith(b"\x7fELF"):
            return 209
        module._obj.value = len(self.loaded) + 1
        self.loaded[module._obj.value] = cubin
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = module.value
        self.names[module.value] = name.decode()
        return 0

    def cuModuleUnload(self, module: Any) -> int:
        del self.loaded[module.value]
        return 0

    def _registers(self, function: Any) -> tuple[int, int]:
        """(registers per thread, bytes of the stack frame): `.nv.info` records 0x2f and 0x11 of the function."""
        elf = ELFFile(io.BytesIO(self.loaded[function.value]))
        symbols = [s.name for s in elf.get_section_by_name(".symtab").iter_symbols()]
        info, at, found = elf.get_section_by_name(".nv.info").data(), 0, {}
        while at + 4 <= len(info):
            form, attribute, size = info[at], info[at + 1], int.from_bytes(info[at + 2 : at + 4], "little")
            at += 4
            if form == 4:
                words = [int.from_bytes(info[at + i : at + i + 4], "little") for i in range(0, size, 4)]
                if len(words) == 2 and symbols[words[0]] == self.names[function.value]:
                    found[attribute] = words[1]
                at += size
        return found[0x2F], found.get(0x11, 0)

    def cuFuncGetAttribute(self, value: Any, attribute: int, function: Any) -> int:
        registers, frame = self._registers(function)
        values = {
            0: 1024,
            1: 1024 + self.changed.get("static", 0),
            3: frame + self.changed.get("local", 0),
            4: registers + self.changed.get("registers", 0),
        }
        value._obj.value = values[attribute]
        return 0

    def cuFuncSetCacheConfig(self, _function: Any, _config: int) -> int:
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        if attribute == 8 and value > 232_448:  # shared memory that a CTA of an H200 may have
            self.refused += 1
            return 1
        self.dynamic[function.value] = value
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, found: Any, function: Any, threads: int, shared: Any) -> int:
        if shared.value > 49_152:
            assert self.dynamic.get(function.value, 0) >= shared.value, (
                "asked for without MAX_DYNAMIC_SHARED_SIZE_BYTES"
            )
        registers, _ = self._registers(function)
        warps = threads // 32
        per_warp = -(-registers * 32 // 256) * 256
        per_partition = 16_384 // per_warp
        shared_each = -(-(shared.value + 1024) // 128) * 128
        held = min(64 // warps, 32, per_partition * 4 // warps, 233_472 // shared_each)
        found._obj.value = held + self.changed.get("ctas", 0)
        return 0

    def cuOccupancyMaxActiveClusters(self, found: Any, function: Any, config: Any) -> int:
        given = config._obj
        cluster = given.attributes[0]
        assert given.num_attributes == 2 and cluster.id == 4
        each = ctypes.c_int()
        self.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(each), function, given.block[0], ctypes.c_size_t(given.shared_bytes)
        )
        found._obj.value = 120 * each.value // cluster.value[0]  # some SMs lie where no whole cluster fits
        return 0


class FakeNvml:
    """libnvidia-ml for one GPU: `throttle` is the bit mask, `processes` how many compute on it."""

    def __init__(self, *, clock: int = 1980, throttle: int = 0, processes: int = 0) -> None:
        self.clock = clock
        self.throttle = throttle
        self.processes = processes
        self.asked_for = b""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _length: int) -> int:
        text.value = b"580.1"
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id: bytes, _handle: Any) -> int:
        self.asked_for = bus_id
        return 0

    def nvmlDeviceGetClockInfo(self, _handle: Any, kind: int, value: Any) -> int:
        value._obj.value = self.clock if kind == 1 else 3201
        return 0

    def nvmlDeviceGetMaxClockInfo(self, _handle: Any, _kind: int, value: Any) -> int:
        value._obj.value = 1980
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: Any, value: Any) -> int:
        value._obj.value = self.throttle
        return 0

    def nvmlDeviceGetTemperature(self, _handle: Any, _sensor: int, value: Any) -> int:
        value._obj.value = 41
        return 0

    def nvmlDeviceGetPowerUsage(self, _handle: Any, value: Any) -> int:
        value._obj.value = 95_500
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _handle: Any, count: Any, _found: Any) -> int:
        count._obj.value = self.processes
        return 0
