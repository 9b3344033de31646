"""The GPUs of this machine: what the CUDA driver says of them, and how that compares with their profiles.

    for device in detect_devices():             # reads libcuda through ctypes; no torch, no context, no memory taken
        check = check_device(device, list_gpus())
        check.profile, check.differences
    gpu = resolve_gpu("local")                  # the profile of device 0, its readings in the place of the file's

Values come from `cuDeviceGetAttribute` (CUDA driver API, CUdevice_attribute). CUDA_VISIBLE_DEVICES is honoured, as the
driver does so. Memory bandwidth is computed from the memory clock and the bus width (two transfers a clock), the way
`deviceQuery` and the shipped profiles' device readings do; the driver's clock is the highest one, not the rated boost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError, OccupancyError, UnknownNameError
from occupancy_cli.gpu.profiles import (
    GpuProfile,
    Provenance,
    limits_only_gpu,
    list_gpus,
    load_gpu,
)

DRIVER_LIBRARY = "libcuda.so.1"
DRIVER_SOURCE = "the CUDA driver of this machine"

# Field of the profile or of its limits -> CUdevice_attribute (cuda.h), and how a reading becomes the field's value.
_ATTRIBUTES: dict[str, int] = {
    "sm_count": 16,
    "l2_bytes": 38,
    "max_threads_per_cta": 1,
    "max_threads_per_sm": 39,
    "max_ctas_per_sm": 106,
    "registers_per_sm": 82,
    "max_registers_per_cta": 12,
    "shared_per_sm_bytes": 81,
    "shared_per_cta_default_bytes": 8,
    "shared_per_cta_optin_bytes": 97,
    "shared_reserved_per_cta_bytes": 111,
    "cluster_supported": 120,
}
_MAJOR, _MINOR, _CLOCK_KHZ, _MEMORY_CLOCK_KHZ, _BUS_BITS = 75, 76, 13, 36, 37

# Rounded figures: equal when within this share of each other. Marketed gigabytes are GiB less what the board keeps;
# the marketed 4,800 GB/s of an H200 are 4,917 by its memory clock.
_TOLERANCE = {"memory_bandwidth_gbps": 0.05, "memory_gb": 0.06}
_REMARKS = {
    "boost_clock_mhz": "the driver's is the highest clock, the profile's the rated boost",
    "memory_bandwidth_gbps": "the driver's is computed from memory clock and bus width",
    "memory_gb": "the driver's is what is usable, in GiB",
}


@dataclass(frozen=True)
class Device:
    """One GPU as the driver describes it. `readings` has the values by the names of `GpuProfile` and its limits."""

    index: int
    name: str
    compute_capability: str
    readings: dict[str, int | float | bool]


@dataclass(frozen=True)
class FieldCheck:
    """One value on the device and in the profile; `profile` is None where the profile does not state it."""

    field: str
    device: int | float | bool | str
    profile: int | float | bool | str | None
    equal: bool
    remark: str = ""


@dataclass(frozen=True)
class DeviceCheck:
    """A device, the profile that was matched to it (None when none fits) and every value that both could state."""

    device: Device
    profile: GpuProfile | None
    fields: tuple[FieldCheck, ...]

    @property
    def differences(self) -> tuple[FieldCheck, ...]:
        """The fields that both state and that are not equal."""
        return tuple(f for f in self.fields if not f.equal and f.profile is not None)


def driver_library() -> Any:
    """libcuda, loaded through ctypes; an `OccupancyError` that says what is missing when there is no driver."""
    import ctypes

    try:
        return ctypes.CDLL(DRIVER_LIBRARY)
    except OSError as error:
        raise OccupancyError(
            f"no NVIDIA driver on this machine ({error})",
            hint="Name a GPU with --gpu: a profile needs no device. `occupancy gpus` lists them.",
        ) from None


def _call(library: Any, name: str, *arguments: Any) -> None:
    code = int(getattr(library, name)(*arguments))
    if code:
        raise OccupancyError(f"the CUDA driver answers {name} with error {code}", hint="Does `nvidia-smi` work here?")


def detect_devices(library: Any = None) -> list[Device]:
    """Every GPU that the driver shows, by its index; an `OccupancyError` when there is no driver or it fails.

    `library` is libcuda or an object with its functions; loaded when None.
    """
    import ctypes

    library = driver_library() if library is None else library
    _call(library, "cuInit", 0)
    count = ctypes.c_int()
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    return [_read_device(library, index) for index in range(count.value)]


def _read_device(library: Any, index: int) -> Device:
    import ctypes

    handle = ctypes.c_int()
    _call(library, "cuDeviceGet", ctypes.byref(handle), index)
    label = ctypes.create_string_buffer(256)
    _call(library, "cuDeviceGetName", label, 256, handle)
    total = ctypes.c_size_t()
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(total), handle)

    def attribute(number: int) -> int | None:
        """None for an attribute that this driver is too old to know."""
        value = ctypes.c_int()
        code = int(library.cuDeviceGetAttribute(ctypes.byref(value), number, handle))
        return None if code else value.value

    major, minor = attribute(_MAJOR), attribute(_MINOR)
    readings: dict[str, int | float | bool] = {}
    for field, number in _ATTRIBUTES.items():
        value = attribute(number)
        if value is not None:
            readings[field] = bool(value) if field == "cluster_supported" else value
    readings["memory_bytes"] = total.value
    clock = attribute(_CLOCK_KHZ)
    if clock:
        readings["boost_clock_mhz"] = clock / 1000
    memory_clock, bus = attribute(_MEMORY_CLOCK_KHZ), attribute(_BUS_BITS)
    if memory_clock and bus:
        readings["memory_bandwidth_gbps"] = round(2 * memory_clock * 1e3 * bus / 8 / 1e9, 1)
    return Device(index, label.value.decode("utf-8", "replace"), f"{major}.{minor}", readings)


def match_profile(device: Device, gpus: Iterable[GpuProfile]) -> GpuProfile | None:
    """The profile of `device`: by the name the driver gives, and among several of that name the nearest memory.

    A profile of another compute capability is never matched. None when no profile has the name.
    """
    named = [gpu for gpu in gpus if gpu.compute_capability == device.compute_capability and gpu.is_named(device.name)]
    gib = float(device.readings.get("memory_bytes", 0)) / 2**30
    return min(named, key=lambda gpu: abs((gpu.memory_gb or 0) - gib), default=None)


def check_device(device: Device, gpus: Iterable[GpuProfile]) -> DeviceCheck:
    """Every reading of `device` beside the value of the profile that fits it."""
    profile = match_profile(device, gpus)
    fields = []
    for name, reading in device.readings.items():
        shown: int | float | bool = reading
        field = name
        if name == "memory_bytes" and (profile is None or profile.memory_bytes is None):
            field, shown = "memory_gb", round(float(reading) / 2**30, 1)
        stated = None
        if profile is not None:
            stated = getattr(profile, field) if hasattr(profile, field) else getattr(profile.limits, field)
        equal = stated == shown
        if not equal and stated is not None and field in _TOLERANCE:
            equal = abs(float(stated) - float(shown)) <= _TOLERANCE[field] * float(stated)
        fields.append(FieldCheck(field, shown, stated, equal, _REMARKS.get(field, "")))
    return DeviceCheck(device, profile, tuple(fields))


def local_gpu(profile_dirs: Sequence[Path | str] = (), *, index: int = 0, library: Any = None) -> GpuProfile:
    """The GPU of this machine as a profile: the driver's readings, and the rest from the matched profile file.

    A reading replaces the file's value (a MIG slice has fewer SMs than its board). Clock and bandwidth are the file's
    where it states them, as the driver gives the highest clock and computes the bandwidth. Without a matching file the
    readings and the limits of the compute capability are all there is.
    """
    devices = detect_devices(library)
    if index >= len(devices):
        raise OccupancyError(
            f"there is no GPU {index}: the driver shows {len(devices)}", hint="CUDA_VISIBLE_DEVICES hides the others."
        )
    device = devices[index]
    base = match_profile(device, list_gpus(profile_dirs))
    if base is None:
        try:
            base = limits_only_gpu(device.compute_capability, profile_dirs)
        except UnknownNameError as error:
            raise InputError(
                f"{device.name} has compute capability {device.compute_capability}, which this version does not know",
                hint=error.hint,
            ) from None
        base = dataclasses.replace(base, id="local", name=device.name)
    limit_names = {f.name for f in dataclasses.fields(base.limits)}
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    provenance = dict(base.provenance)
    for name, value in device.readings.items():
        if name in ("boost_clock_mhz", "memory_bandwidth_gbps") and getattr(base, name) is not None:
            continue
        (shared if name in limit_names else own)[name] = value
        before = getattr(base.limits if name in limit_names else base, name)
        if before != value:
            note = f"replaces the profile's {before}" if before is not None else _REMARKS.get(name, "")
            provenance[name] = Provenance("measured", (DRIVER_SOURCE,), note)
    limits = dataclasses.replace(base.limits, provenance=provenance, **shared)
    return dataclasses.replace(base, limits=limits, provenance=provenance, **own)


def resolve_gpu(
    name: str, profile_dirs: Sequence[Path | str] = (), *, library: Callable[[], Any] = driver_library
) -> GpuProfile:
    """As `load_gpu`, and "local" (or "local:1") for this machine's own GPU."""
    folded = name.strip().casefold()
    if folded == "local" or folded.startswith("local:"):
        number = folded.partition(":")[2] or "0"
        if not number.isdecimal():
            raise InputError(f"{name!r} is not of the form local or local:N", where="--gpu")
        return local_gpu(profile_dirs, index=int(number), library=library())
    return load_gpu(name, profile_dirs)
