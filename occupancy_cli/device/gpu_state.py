"""What else a GPU is doing while it is timed: clocks, why they are held down, other processes. Read, never set.

    with GpuState(pci_bus_id) as state:
        reading = state.read()
        reading.sm_clock_mhz, reading.throttled, reading.processes

Read from NVML (libnvidia-ml, nvml.h) through ctypes. Inside a container NVML may list processes by numbers that mean
nothing there, so processes are counted: what runs before a measurement starts is somebody else's.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import TracebackType
from typing import Any

NVML_LIBRARY = "libnvidia-ml.so.1"
_CLOCK_SM, _CLOCK_MEMORY = 1, 2  # nvmlClockType_t
_INSUFFICIENT_SIZE = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_MOST_PROCESSES = 64
LOWEST_SHARE = 0.85

# nvmlClocksThrottleReasons (nvml.h): what holds the clock below what was asked for. Idle (0x1), application clocks
# (0x2) and display clocks (0x100) are settings, not throttling.
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Reading:
    """One look at the GPU. None: NVML does not tell it here. `throttled` names what holds the clock down now."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()
    processes: int | None = None


class GpuState:
    """NVML's view of the GPU with that PCI bus id ("0000:3b:00.0"), from `__enter__` to `__exit__`.

    Without NVML every reading is unknown, and `trouble` says why. `library` is libnvidia-ml or an object with its
    functions.
    """

    def __init__(self, pci_bus_id: str, library: Any = None) -> None:
        self._bus_id = pci_bus_id
        self._library = library
        self._handle = ctypes.c_void_p()
        self.trouble = ""

    def __enter__(self) -> GpuState:
        try:
            self._library = self._library or ctypes.CDLL(NVML_LIBRARY)
        except OSError as missing:
            self.trouble = f"no NVML here ({missing})"
            return self
        code = int(self._library.nvmlInit_v2())
        if not code:
            code = int(
                self._library.nvmlDeviceGetHandleByPciBusId_v2(self._bus_id.encode(), ctypes.byref(self._handle))
            )
        if code:
            self.trouble = f"NVML answers with error {code}"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not self.trouble:
            self._library.nvmlShutdown()

    def read(self) -> Reading:
        """Clocks, throttling, temperature, power and processes at this moment."""
        if self.trouble:
            return Reading()
        reasons = self._reasons()
        power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return Reading(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _CLOCK_SM),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _CLOCK_MEMORY),
            temperature_c=self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), 0),
            power_w=None if power is None else power / 1000,
            throttled=tuple(text for bit, text in THROTTLE_REASONS.items() if reasons & bit),
            processes=self._processes(),
        )

    def driver_version(self) -> str:
        """The version of the driver ("580.159.04"); empty where NVML does not tell it."""
        call = None if self.trouble else getattr(self._library, "nvmlSystemGetDriverVersion", None)
        text = ctypes.create_string_buffer(96)
        return "" if call is None or int(call(text, 96)) else text.value.decode("utf-8", "replace")

    def max_sm_clock_mhz(self) -> int | None:
        """The highest SM clock of this GPU."""
        return None if self.trouble else self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint(), _CLOCK_SM)

    def clocks(self) -> tuple[int | None, tuple[str, ...]]:
        """The SM clock in MHz and what holds it down, for use while kernels run: a few short calls.

        A clock below `LOWEST_SHARE` of the highest one counts as held down even where NVML gives no reason.
        """
        if self.trouble:
            return None, ()
        reasons = self._reasons()
        clock = self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _CLOCK_SM)
        named = tuple(text for bit, text in THROTTLE_REASONS.items() if reasons & bit)
        highest = self.max_sm_clock_mhz()
        if clock is not None and highest is not None and clock < LOWEST_SHARE * highest:
            named = (*named, f"clock {clock} of {highest} MHz")
        return clock, named

    def _number(self, function: str, value: Any, *arguments: int) -> int | None:
        call = getattr(self._library, function, None)  # None: a library that does not know it (any more)
        if call is None:
            return None
        code = int(call(self._handle, *arguments, ctypes.byref(value)))
        return None if code else int(value.value)

    def _reasons(self) -> int:
        """The bit mask of what holds the clock down; 0 where it is not told."""
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            mask = self._number(function, ctypes.c_ulonglong())
            if mask is not None:
                return mask
        return 0

    def _processes(self) -> int | None:
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        call = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if call is None:
            return None
        code = int(call(self._handle, ctypes.byref(count), found))
        return count.value if code in (0, _INSUFFICIENT_SIZE) else None
