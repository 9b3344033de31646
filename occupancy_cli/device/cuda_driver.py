"""A cubin loaded by the CUDA driver, through ctypes: what the driver says a kernel takes and how many CTAs fit an SM.

    with CudaDevice(0) as device:
        kernel = device.load(cubin, "split_kernel")
        kernel.registers_per_thread, kernel.ctas_per_sm(threads=128, shared_bytes=50_176)

Functions and numbers are those of the CUDA driver API (cuda.h): `cuModuleLoadData`, `cuFuncGetAttribute`,
`cuOccupancyMaxActiveBlocksPerMultiprocessor`, `cuOccupancyMaxActiveClusters`. What a launch would set on the function
beforehand is set here too, as Triton's own loader does. Nothing is launched.
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

from occupancy_cli.device.detect import Device, detect_devices, driver_library
from occupancy_cli.errors import OccupancyError

# CUfunction_attribute (cuda.h).
_MAX_THREADS, _SHARED_BYTES, _LOCAL_BYTES, _NUM_REGS = 0, 1, 3, 4
_MAX_DYNAMIC_SHARED_BYTES, _NON_PORTABLE_CLUSTER = 8, 14
_CLUSTER_DIMENSION, _CLUSTER_SCHEDULING = 4, 5  # CUlaunchAttributeID
_SCHEDULING_SPREAD = 1  # CUclusterSchedulingPolicy
_CACHE_PREFER_SHARED = 1  # CUfunc_cache
_DEFAULT_SHARED_BYTES = 49_152  # what a launch may ask for without MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE


class DriverError(OccupancyError):
    """A driver call that failed: `data` has `function` and `code` (CUresult)."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: an id, 4 bytes of padding and a union of 64 bytes, of which three integers are used."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


def pci_bus_id(index: int, library: Any = None) -> str:
    """The PCI bus id of a GPU ("0000:3b:00.0"), by which NVML knows it. Makes no context."""
    library = driver_library() if library is None else library
    library.cuInit(0)
    handle, text = ctypes.c_int(), ctypes.create_string_buffer(64)
    for name, arguments in (
        ("cuDeviceGet", (ctypes.byref(handle), index)),
        ("cuDeviceGetPCIBusId", (text, 64, handle)),
    ):
        code = int(getattr(library, name)(*arguments))
        if code:
            raise DriverError(f"{name}: error {code}", function=name, code=code)
    return text.value.decode()


class CudaDevice:
    """One GPU with its primary context current on this thread, from `__enter__` to `__exit__`.

    `library` is libcuda or an object with its functions; loaded when None. Raises `OccupancyError` without a driver or
    without that device.
    """

    def __init__(self, index: int = 0, library: Any = None) -> None:
        self._library = driver_library() if library is None else library
        devices = detect_devices(self._library)
        if index >= len(devices):
            raise OccupancyError(
                f"there is no GPU {index}: the driver shows {len(devices)}",
                hint="CUDA_VISIBLE_DEVICES hides the others.",
            )
        self.device: Device = devices[index]
        self._handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self._handle), index)

    def __enter__(self) -> CudaDevice:
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._handle)
        self.call("cuCtxSetCurrent", context)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._library.cuDevicePrimaryCtxRelease_v2(self._handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function; `DriverError` when it answers anything but success."""
        code = self.result(name, *arguments)
        if code:
            raise DriverError(f"{name}: {self._name_of(code)}", function=name, code=code)

    def result(self, name: str, *arguments: Any) -> int:
        """Call a driver function and return its CUresult."""
        return int(getattr(self._library, name)(*arguments))

    def _name_of(self, code: int) -> str:
        text = ctypes.c_char_p()
        if int(self._library.cuGetErrorName(code, ctypes.byref(text))) or not text.value:
            return f"error {code}"
        return text.value.decode()

    def load(self, cubin: bytes, name: str) -> LoadedKernel:
        """Load `cubin` and find the kernel `name` in it. Raises `DriverError`, for a cubin of another GPU too."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        try:
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            return LoadedKernel(self, module, function)
        except DriverError:
            self._library.cuModuleUnload(module)
            raise


class LoadedKernel:
    """A kernel in the driver's hands. `local_bytes` (spills and stack) and registers are per thread; `static_shared_
    bytes` per CTA, with the 1,024 that the system reserves from compute capability 9.0 on where ptxas counts them.
    """

    def __init__(self, device: CudaDevice, module: ctypes.c_void_p, function: ctypes.c_void_p) -> None:
        self._device = device
        self._module = module
        self._function = function
        self.registers_per_thread = self._attribute(_NUM_REGS)
        self.local_bytes = self._attribute(_LOCAL_BYTES)
        self.static_shared_bytes = self._attribute(_SHARED_BYTES)
        self.max_threads = self._attribute(_MAX_THREADS)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._device.call("cuFuncGetAttribute", ctypes.byref(value), number, self._function)
        return value.value

    def allow_shared(self, shared_bytes: int) -> bool:
        """Ask for that much dynamic shared memory per CTA, as a launch does; False when the driver refuses it."""
        if shared_bytes <= _DEFAULT_SHARED_BYTES:
            return True
        self._device.call("cuFuncSetCacheConfig", self._function, _CACHE_PREFER_SHARED)
        code = self._device.result("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
        if code == _INVALID_VALUE:
            return False
        if code:
            raise DriverError(f"cuFuncSetAttribute: error {code}", function="cuFuncSetAttribute", code=code)
        return True

    def ctas_per_sm(self, threads: int, shared_bytes: int) -> int:
        """The driver's count of CTAs that fit an SM; 0 where a launch would be refused."""
        if threads > self.max_threads or not self.allow_shared(shared_bytes):
            return 0
        found = ctypes.c_int()
        self._device.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(found),
            self._function,
            threads,
            ctypes.c_size_t(shared_bytes),
        )
        return found.value

    def clusters(self, threads: int, shared_bytes: int, num_ctas: int) -> int:
        """The driver's count of clusters of `num_ctas` CTAs that the whole GPU holds; 0 where none fits."""
        if threads > self.max_threads or not self.allow_shared(shared_bytes):
            return 0
        if num_ctas > 8:  # the portable size
            self._device.call("cuFuncSetAttribute", self._function, _NON_PORTABLE_CLUSTER, 1)
        attributes = (LaunchAttribute * 2)()
        attributes[0].id, attributes[0].value[:] = _CLUSTER_DIMENSION, [num_ctas, 1, 1]
        attributes[1].id, attributes[1].value[:] = _CLUSTER_SCHEDULING, [_SCHEDULING_SPREAD, 0, 0]
        config = LaunchConfig(
            grid=(ctypes.c_uint * 3)(num_ctas, 1, 1),
            block=(ctypes.c_uint * 3)(threads, 1, 1),
            shared_bytes=shared_bytes,
            attributes=attributes,
            num_attributes=2,
        )
        found = ctypes.c_int()
        self._device.call("cuOccupancyMaxActiveClusters", ctypes.byref(found), self._function, ctypes.byref(config))
        return found.value

    def unload(self) -> None:
        """Free the module."""
        self._device.call("cuModuleUnload", self._module)
