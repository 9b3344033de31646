"""`gpus`: the profiles with the source of every value, and this machine's GPUs beside theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from occupancy_cli.answers.report_parts import mirrored
from occupancy_cli.device.detect import DeviceCheck, check_device, detect_devices, resolve_gpu
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile, list_gpus
from occupancy_cli.report.device_parts import Device, DeviceField, GpuFacts, SourcedValue
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION


def known_gpus(names: Sequence[str] | None, folders: Sequence[Path]) -> Report:
    """A Report with the GPUs of `names` (None: all that have a profile)."""
    if names is not None and not names:
        raise InputError("no GPU is named", where="gpus show", hint="Such as: occupancy gpus show h100")
    found = list_gpus(folders) if names is None else [resolve_gpu(name, list(folders)) for name in names]
    return Report(command="gpus", toolchain=Toolchain(occupancy=VERSION), gpus=[gpu_facts(gpu) for gpu in found])


def machine_gpus(folders: Sequence[Path]) -> Report:
    """A Report with this machine's GPUs, each value beside that of the profile."""
    known = list_gpus(folders)
    devices = [_device(check_device(device, known)) for device in detect_devices()]
    return Report(command="gpus", toolchain=Toolchain(occupancy=VERSION), devices=devices)


def gpu_facts(gpu: GpuProfile) -> GpuFacts:
    """A profile with the source of every value."""
    return GpuFacts(
        id=gpu.id,
        name=gpu.name,
        aliases=list(gpu.aliases),
        alias_notes=dict(gpu.alias_notes),
        compute_capability=gpu.compute_capability,
        limits_only=gpu.limits_only,
        values=_values(gpu, gpu),
        limits=_values(gpu, gpu.limits),
        tensor_formats_absent=list(gpu.tensor_formats_absent),
        notes=[*gpu.notes, *gpu.limits.notes],
        path=str(gpu.path or ""),
    )


def _values(gpu: GpuProfile, owner: Any) -> dict[str, SourcedValue]:
    """Every value of `owner` (the profile, or its limits) that has a source."""
    found = {}
    for name in (f.name for f in fields(owner) if f.name in gpu.provenance):
        if owner is gpu or name != "compute_capability":
            value = getattr(owner, name)
            value = list(value) if isinstance(value, tuple) else value
            found[name] = mirrored(gpu.provenance[name], SourcedValue, value=value)
    return found


def _device(check: DeviceCheck) -> Device:
    return Device(
        index=check.device.index,
        name=check.device.name,
        compute_capability=check.device.compute_capability,
        profile=check.profile.id if check.profile else None,
        fields=[mirrored(field, DeviceField) for field in check.fields],
        differences=[field.field for field in check.differences],
    )
