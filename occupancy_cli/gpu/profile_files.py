"""A profile file becomes a value: the product or the limits that a YAML file states, each number with its provenance.

A file is checked against its schema (`profile_schema`) before it is used, but for one that is shipped and unchanged
since the index of shipped files was written (`shipped_index`): that one was checked then. Nothing is guessed: what a
profile does not state is None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_cli.errors import InputError, UnknownNameError
from occupancy_cli.gpu.gpu_profile import ComputeCapability, Disputed, GpuProfile, Provenance, arch_of
from occupancy_cli.gpu.profile_form import COMPUTE_CAPABILITY_SCHEMA, GPU_SCHEMA, GPU_VALUES, expanded
from occupancy_cli.gpu.shipped_index import is_as_shipped
from occupancy_cli.yaml_reader import Document, load_yaml


def read_profile(path: Path, schema: str) -> dict[str, Any]:
    """The data of a profile file, checked and with its shorthands written out."""
    document = load_yaml(path)
    if not is_as_shipped(path):
        _check(document, schema)
    return expanded(document.data)


def _check(document: Document, schema: str) -> None:
    from occupancy_cli.gpu.profile_schema import check_profile  # pydantic, which a shipped file does without

    check_profile(document, schema)


def _entries(section: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Provenance]]:
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, entry in section.items():
        value = entry["value"]
        values[name] = tuple(value) if isinstance(value, list) else value
        disputed = tuple(
            Disputed(other["value"], tuple(sources[key] for key in other.get("sources", ())), other.get("note", ""))
            for other in entry.get("disputed", ())
        )
        provenance[name] = Provenance(
            entry["status"],
            tuple(sources[key] for key in entry.get("sources", ())),
            entry.get("note", ""),
            disputed,
            entry.get("chosen_because", ""),
        )
    return values, provenance


def limits_of(compute_capability: str, folders: Sequence[Path]) -> ComputeCapability:
    """The limits of `compute_capability`, from the first of `folders` that has them; `UnknownNameError` when none."""
    for folder in folders:
        path = folder / "compute_capability" / f"{compute_capability}.yaml"
        if path.is_file():
            return _limits_in(path, compute_capability, path.stat().st_mtime_ns)
    known = known_capabilities(folders)
    raise UnknownNameError(
        f"unknown compute capability {compute_capability!r}",
        hint=f"Known: {', '.join(known)}",
        name=compute_capability,
        valid=known,
    )


def known_capabilities(folders: Sequence[Path]) -> list[str]:
    """Every compute capability that has a file, ascending."""
    known = {p.stem for folder in folders for p in (folder / "compute_capability").glob("*.yaml")}
    return sorted(known, key=arch_of)


@functools.lru_cache(maxsize=64)
def _limits_in(path: Path, compute_capability: str, _modified_ns: int) -> ComputeCapability:
    """The limits that a file states. Kept, as listing all products asks for the same few files again and again."""
    data = read_profile(path, COMPUTE_CAPABILITY_SCHEMA)
    if data["compute_capability"] != compute_capability:
        raise InputError("compute_capability is not the file's name", where=str(path))
    values, provenance = _entries(data["limits"], data.get("sources", {}))
    return ComputeCapability(
        compute_capability=compute_capability, notes=tuple(data.get("notes", ())), provenance=provenance, **values
    )


def product_in(
    path: Path, limits: Callable[[str], ComputeCapability], parent: Callable[[str], GpuProfile]
) -> GpuProfile:
    """The product that a file states; `limits` gives those of a compute capability, `parent` the profile it extends."""
    data = read_profile(path, GPU_SCHEMA)
    where = str(path)
    if data["id"] != path.stem:
        raise InputError(f"id is {data['id']!r}", where=where, hint=f"A profile's id is its file name: {path.stem}")
    texts: dict[str, Any] = {"id": path.stem, "path": where}
    for key in ("name", "alias_notes"):
        if key in data:
            texts[key] = data[key]
    for key in ("aliases", "device_names", "tensor_formats_absent", "notes"):
        if key in data:
            texts[key] = tuple(data[key])
    values: dict[str, Any] = {}
    own: dict[str, Provenance] = {}
    if "extends" in data:
        base = parent(data["extends"])
        values = {name: getattr(base, name) for name in GPU_VALUES}
        own = {name: entry for name, entry in base.provenance.items() if name in GPU_VALUES}
        inherited = ["name", "tensor_formats_absent", "notes"]
        if base.id == path.stem:
            inherited += ["aliases", "alias_notes", "device_names"]
        texts = {**{key: getattr(base, key) for key in inherited}, **texts}
    elif "name" not in texts:
        raise InputError("the key 'name' is missing", where=where)
    stated, sourced = _entries(data.get("values", {}), data.get("sources", {}))
    values.update(stated)
    own.update(sourced)
    if "compute_capability" not in values:
        raise InputError("values.compute_capability is missing", where=where)
    shared = limits(values["compute_capability"])
    return GpuProfile(limits=shared, provenance={**shared.provenance, **own}, **texts, **values)
