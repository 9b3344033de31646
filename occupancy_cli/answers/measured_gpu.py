"""`gpus --measure`: the constants of this machine's GPU, timed, as a profile that extends the shipped one.

    $ occupancy gpus --measure -o my-gpu.yaml
    $ occupancy recommend --batch 80 --gpu my-gpu.yaml

Refused where other processes compute on the GPU, and where its clock wanders while it is measured: what would be
written then is no constant of it. Nothing of the GPU is set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.answers.report_parts import mirrored
from occupancy_cli.compile.ptx_assembly import assemble
from occupancy_cli.device.cuda_driver import CudaDevice, pci_bus_id
from occupancy_cli.device.detect import DRIVER_SOURCE, Device, match_profile
from occupancy_cli.device.gpu_constants import BandwidthPoint, Constants, Facts, Number, measure
from occupancy_cli.device.gpu_state import GpuState
from occupancy_cli.device.kernel_timer import KernelTimer
from occupancy_cli.device.ptx_kernels import LEAST_ARCH, PARAMETERS, module_text, target_of
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import (
    GpuProfile,
    arch_of,
    limits_only_gpu,
    list_gpus,
    normalized,
)
from occupancy_cli.report import device_parts
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION

SOURCE = "measured"
_DRIVER = "driver"
# Readings of the driver that a profile states too; of the others (clock, bandwidth) what was measured counts.
_READINGS = ("sm_count", "l2_bytes", "memory_bytes")
_WHOLE = ("_bytes",)
_SIGNIFICANT = 4


@dataclass(frozen=True)
class Machine:
    """A GPU of this machine and how to time it: `state` looks at it, `timed` measures it and tells the driver's CUDA
    version."""

    device: Device
    state: GpuState
    timed: Callable[[Facts, Callable[[str], None]], tuple[Constants, str]]


def local_machine(index: int, library: Any = None) -> Machine:
    """The GPU number `index` of this machine; `library` is libcuda or an object with its functions."""
    cuda = CudaDevice(index, library)
    arch = arch_of(cuda.device.compute_capability)

    def timed(facts: Facts, said: Callable[[str], None]) -> tuple[Constants, str]:
        cubin = assemble(module_text(arch), arch, target_of(arch))
        with cuda, KernelTimer(cuda, cubin, PARAMETERS) as timer:
            return measure(timer, facts, said), timer.driver_version()

    return Machine(cuda.device, GpuState(pci_bus_id(index, library)), timed)


def measured_gpu(
    machine: Machine,
    output: Path,
    folders: Sequence[Path],
    said: Callable[[str], None] = lambda _part: None,
    today: Callable[[], str] = lambda: time.strftime("%Y-%m-%d", time.gmtime()),
) -> Report:
    """Measure `machine` and write the profile `output`; the Report has each figure beside the known profile's.

    Raises `InputError` for a file that cannot be a profile, `OccupancyError` for a GPU that is used by others, too old
    or too full, `ClockWandersError` where its clock changes.
    """
    device = machine.device
    known = match_profile(device, list_gpus(folders))
    check_output(output, known)
    if arch_of(device.compute_capability) < LEAST_ARCH:
        raise OccupancyError(
            f"{device.name} has compute capability {device.compute_capability}",
            hint="The microbenchmarks need 8.0: they use its tensor instructions.",
        )
    base = known or limits_only_gpu(device.compute_capability, folders)
    started = time.monotonic()
    notes = []
    with machine.state as state:
        before = state.read()
        if before.processes:
            raise others_use(device, before.processes)
        found, cuda = machine.timed(_facts(device, base), said)
        after = state.read()
        if after.processes and after.processes > 1:  # this process may still be one of them
            raise others_use(device, after.processes)
        driver = " ".join(filter(None, (state.driver_version(), f"(CUDA {cuda})")))
        if state.trouble:
            notes.append(f"whether others used the GPU is not known: {state.trouble}")
        if after.throttled:
            notes.append(f"held the clock down at the end: {', '.join(after.throttled)}")
    text = profile_text(output.stem, device, known, found, driver, today())
    output.write_text(text, encoding="utf-8")
    return Report(
        command="gpus",
        toolchain=Toolchain(occupancy=VERSION),
        measured_gpu=device_parts.MeasuredGpu(
            path=str(output),
            device=device.name,
            driver=driver,
            profile=known.id if known else None,
            clock_mhz=round(found.clock_mhz, 1),
            seconds=round(time.monotonic() - started, 1),
            values=[_value(name, number, known) for name, number in found.numbers.items()],
            rates=[_value(name, number, None) for name, number in found.rates.items()],
            curves=[mirrored(point, device_parts.BandwidthPoint) for point in found.curves],
        ),
        notes=notes,
    )


def others_use(device: Device, processes: int) -> OccupancyError:
    """The refusal of a GPU that other processes compute on."""
    return OccupancyError(
        f"{processes} other processes compute on {device.name}: its constants would be theirs too",
        hint="Wait until they end, or choose another GPU: --gpu local:1.",
    )


def check_output(output: Path, known: GpuProfile | None) -> None:
    """Refuse a file that could not be used as a profile afterwards."""
    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output.name} is no name of a profile", where="-o", hint="Write it to my-gpu.yaml.")
    if not output.resolve().parent.is_dir():
        raise InputError("there is no such folder", where=str(output.resolve().parent))
    if known is not None and normalized(output.stem) == normalized(known.id):
        raise InputError(
            f"{output.stem} is the name of the profile that it extends", where="-o", hint="Choose another."
        )


def _facts(device: Device, base: GpuProfile) -> Facts:
    readings = device.readings
    missing = [name for name in ("sm_count", "l2_bytes") if not readings.get(name)]
    if missing:
        raise OccupancyError(f"the driver does not tell the {' and '.join(missing)} of {device.name}")
    return Facts(
        arch=arch_of(device.compute_capability),
        sm_count=int(readings["sm_count"]),
        l2_bytes=int(readings["l2_bytes"]),
        unified_l1_shared_bytes=base.limits.unified_l1_shared_bytes,
        shared_per_cta_optin_bytes=int(
            readings.get("shared_per_cta_optin_bytes", base.limits.shared_per_cta_optin_bytes)
        ),
    )


def rounded(name: str, value: float) -> int | float:
    """A figure as a profile states it: four significant digits, bytes whole."""
    if name.endswith(_WHOLE):
        return round(value)
    return float(f"{value:.{_SIGNIFICANT}g}")


def _value(name: str, number: Number, known: GpuProfile | None) -> device_parts.MeasuredValue:
    stated = getattr(known, name, None) if known else None
    value = rounded(name, number.value)
    return device_parts.MeasuredValue(
        field=name,
        value=value,
        spread_percent=round(number.spread_percent, 1),
        profile=stated,
        difference_percent=None if not stated else round(100 * (value / stated - 1), 1),
        how=number.how,
    )


# ---- The profile.


def profile_text(name: str, device: Device, known: GpuProfile | None, found: Constants, driver: str, date: str) -> str:
    """The profile `name`: what was measured, each figure with its spread, over the profile of this GPU if there is
    one."""
    import yaml

    clock = f"SM clock {found.clock_mhz:.0f} MHz"
    how = f"occupancy gpus --measure {VERSION}: {device.name}, driver {driver}, {clock}, {date}"
    values: dict[str, Any] = {}
    if known is None:
        values["compute_capability"] = {"value": device.compute_capability, "status": SOURCE, "sources": [_DRIVER]}
    for field in _READINGS:
        if field in device.readings and (known is None or getattr(known, field) != device.readings[field]):
            values[field] = {"value": device.readings[field], "status": SOURCE, "sources": [_DRIVER]}
    if known is None and "memory_bandwidth_gbps" in device.readings:
        reading = device.readings["memory_bandwidth_gbps"]
        note = "computed from memory clock and bus width"
        values["memory_bandwidth_gbps"] = {"value": reading, "status": SOURCE, "sources": [_DRIVER], "note": note}
    for field, number in found.numbers.items():
        note = f"spread {number.spread_percent:.1f} %; {number.how}"
        values[field] = {"value": rounded(field, number.value), "status": SOURCE, "sources": [SOURCE], "note": note}
    data: dict[str, Any] = {"schema": "occupancy/gpu-profile/1", "id": name, "name": f"{device.name}, measured"}
    if known is not None:
        data["extends"] = known.id
    data |= {
        "sources": {SOURCE: how, _DRIVER: DRIVER_SOURCE},
        "values": values,
        "notes": [*(known.notes if known else ()), *_notes(found)],
    }
    head = f"# Measured: {device.name}, driver {driver}, {clock}, {date}. `--gpu {name}.yaml` uses it.\n"
    return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _notes(found: Constants) -> list[str]:
    """What was measured and has no field: rates of instructions, and bandwidth by what is in flight."""
    rates = ", ".join(f"{name} {rounded(name, number.value):g}" for name, number in found.rates.items())
    notes = [f"measured rates of an SM: {rates}"] if rates else []
    for memory in dict.fromkeys(point.memory for point in found.curves):
        points = best_by_flight([p for p in found.curves if p.memory == memory])
        text = ", ".join(f"{size:,}: {p.gbps:.0f} ({p.latency_cycles:.0f})" for size, p in points.items())
        notes.append(f"measured {memory} reads, bytes in flight of an SM: GB/s (cycles under way): {text}")
    return notes


def best_by_flight(points: Sequence[BandwidthPoint]) -> Mapping[int, BandwidthPoint]:
    """The fastest way to have so many bytes in flight, by these bytes, ascending."""
    best: dict[int, BandwidthPoint] = {}
    for point in points:
        if point.bytes_in_flight not in best or point.gbps > best[point.bytes_in_flight].gbps:
            best[point.bytes_in_flight] = point
    return dict(sorted(best.items()))
