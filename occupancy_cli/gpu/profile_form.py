"""The form of a profile file: its schemas' names, the fields that are values with a source, its shorthands, its names.

What reads a file (`profile_files`), checks it (`profile_schema`) and indexes it (`shipped_index`) shares this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from occupancy_cli.gpu.gpu_names import normalized
from occupancy_cli.gpu.gpu_profile import ComputeCapability, GpuProfile

GPU_SCHEMA = "occupancy/gpu-profile/1"
COMPUTE_CAPABILITY_SCHEMA = "occupancy/compute-capability/1"

_TEXT_FIELDS = {"id", "name", "aliases", "alias_notes", "device_names", "notes", "tensor_formats_absent"}
_NOT_IN_FILES = {"limits", "provenance", "path"}


def _value_fields(cls: type[Any]) -> dict[str, str]:
    """Name -> annotation of the fields of `cls` that are values with a source."""
    skip = _TEXT_FIELDS | _NOT_IN_FILES
    return {f.name: str(f.type) for f in dataclasses.fields(cls) if f.name not in skip}


GPU_VALUES = _value_fields(GpuProfile)
LIMIT_VALUES = {k: v for k, v in _value_fields(ComputeCapability).items() if k != "compute_capability"}


def expanded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A profile's data with its shorthands written out: a bare value is one that its writer assumes, and a compute
    capability without quotes, which YAML takes for a number, is a text."""
    whole = dict(data)
    for section in ("values", "limits"):
        if isinstance(whole.get(section), dict):
            whole[section] = {name: _expanded_entry(name, entry) for name, entry in whole[section].items()}
    if isinstance(whole.get("compute_capability"), float):
        whole["compute_capability"] = f"{whole['compute_capability']:.1f}"
    return whole


def _expanded_entry(name: str, entry: Any) -> Any:
    if not isinstance(entry, dict):
        entry = {"value": entry, "status": "assumed", "note": "stated by the profile, no source"}
    if name == "compute_capability" and isinstance(entry.get("value"), float):
        return {**entry, "value": f"{entry['value']:.1f}"}
    return entry


def names_of(data: Mapping[str, Any], stem: str) -> frozenset[str]:
    """The normalized names that the profile with this data, in a file called `stem`, answers to."""
    named: list[Any] = [stem, data.get("name")]
    for key in ("aliases", "device_names"):
        listed = data.get(key)
        named += listed if isinstance(listed, list) else [listed]
    return frozenset(normalized(name) for name in named if isinstance(name, str)) - {""}
