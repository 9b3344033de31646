"""Which GPU a name means: profiles by product name, short name or compute capability.

    from occupancy_cli import load_gpu
    gpu = load_gpu("rtx-pro-6000")         # a product, a short name, "sm120" or "12.0"; case, punctuation ignored
    gpu.limits.shared_per_cta_optin_bytes  # 101376: limits that every GPU of its compute capability shares
    gpu.sm_count                           # 188; None when the profile has limits only (load_gpu("sm120"))
    gpu.provenance["sm_count"].status      # "documented", "measured" or "assumed"; .sources, .disputed, .note

Profiles are YAML files: one per GPU product (schema `occupancy/gpu-profile/1`) and one per compute capability (schema
`occupancy/compute-capability/1`, in a folder `compute_capability/`). The shipped ones lie in `hw_profiles/`, whose
README describes the format. Folders given by the caller come first, then those of the environment variable
OCCUPANCY_HW_PROFILES (a list as in PATH), then the shipped one; the first that knows a name answers. A shipped name
costs two files, the product's and its compute capability's (`shipped_index`); a folder of the caller's is read whole.

`load_gpu("local")` is not answered here, as it needs a device: see `occupancy_cli.device.detect.resolve_gpu`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from occupancy_cli.data_files import DEFAULT_GPU, shipped_dir
from occupancy_cli.errors import InputError, OccupancyError, UnknownNameError, nearest, unknown_name
from occupancy_cli.gpu.gpu_names import normalized, parse_compute_capability, why_not_covered
from occupancy_cli.gpu.gpu_profile import (
    STATUSES,
    ComputeCapability,
    Disputed,
    GpuProfile,
    Provenance,
    arch_of,
)
from occupancy_cli.gpu.profile_files import known_capabilities, limits_of, product_in
from occupancy_cli.gpu.profile_form import names_of
from occupancy_cli.gpu.shipped_index import is_as_shipped, shipped_index
from occupancy_cli.yaml_reader import load_yaml

# The door to this folder: what describes a GPU is imported from here.
__all__ = [
    "DEFAULT_GPU",
    "PROFILE_DIRS_VARIABLE",
    "STATUSES",
    "ComputeCapability",
    "Disputed",
    "GpuProfile",
    "Provenance",
    "arch_of",
    "limits_only_gpu",
    "list_compute_capabilities",
    "list_gpus",
    "load_compute_capability",
    "load_gpu",
    "names_of",
    "normalized",
    "parse_compute_capability",
    "search_dirs",
]

PROFILE_DIRS_VARIABLE = "OCCUPANCY_HW_PROFILES"


def search_dirs(profile_dirs: Sequence[Path | str] = ()) -> tuple[Path, ...]:
    """The folders that profiles are looked for in, first to last; an `InputError` for one that does not exist.

    `profile_dirs`, then those of the environment variable OCCUPANCY_HW_PROFILES, then the shipped folder.
    """
    asked = [(Path(d).expanduser(), "--hw-profiles") for d in profile_dirs]
    listed = os.environ.get(PROFILE_DIRS_VARIABLE, "")
    asked += [(Path(d).expanduser(), PROFILE_DIRS_VARIABLE) for d in listed.split(os.pathsep) if d]
    for folder, origin in asked:
        if not folder.is_dir():
            raise InputError(f"no such folder: {folder}", where=origin)
    return (*(folder for folder, _ in asked), shipped_dir("hw_profiles"))


def _files(folder: Path) -> dict[str, Path]:
    """Id -> file of the product profiles in `folder`."""
    return {
        entry.name.rpartition(".")[0]: Path(entry.path)
        for entry in sorted(os.scandir(folder), key=lambda e: e.name)
        if entry.name.endswith((".yaml", ".yml")) and not entry.name.startswith(".")
    }


def _names_in(path: Path) -> frozenset[str]:
    """The names that a file answers to. One that cannot be read answers to its own name alone, and is reported when it
    is loaded."""
    try:
        return _names_kept(path, path.stat().st_mtime_ns)
    except OSError:
        return frozenset({normalized(path.stem)})


@functools.lru_cache(maxsize=512)
def _names_kept(path: Path, _modified_ns: int) -> frozenset[str]:
    try:
        data = load_yaml(path).data
    except OccupancyError:
        data = None
    return names_of(data if isinstance(data, dict) else {}, path.stem)


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The file that answers to `name`; an error that lists the variants when several of one folder do."""
    wanted = normalized(name)
    for folder in folders:
        files = _files(folder)
        exact = [path for stem, path in files.items() if normalized(stem) == wanted]
        if len(exact) == 1:
            return exact[0]
        hits = _answering(wanted, folder, files.values())
        if len(hits) > 1:
            ids = [path.stem for path in hits]
            raise InputError(f"{name!r} may be {' or '.join(ids)}", hint="Name one of them.", name=name, valid=ids)
        if hits:
            # An earlier folder may have a file of that id, under which it stands in for this one.
            return next(p for f in folders if (p := _files(f).get(hits[0].stem)) is not None)
    return None


def _answering(wanted: str, folder: Path, files: Iterable[Path]) -> list[Path]:
    """The files of `folder` that answer to a normalized name; of the shipped folder the index is asked first."""
    if folder == shipped_dir("hw_profiles"):
        hinted = [folder / file for file in shipped_index().files.get(wanted, ())]
        if hinted and all(is_as_shipped(path) for path in hinted):
            return hinted
        if not hinted and parse_compute_capability(wanted):
            return []  # no shipped profile is called sm120, and reading them all would be for nothing
    return [path for path in files if wanted in _names_in(path)]


def load_compute_capability(compute_capability: str, profile_dirs: Sequence[Path | str] = ()) -> ComputeCapability:
    """The limits of `compute_capability` ("12.0"); an `UnknownNameError` that lists the known ones."""
    return limits_of(compute_capability, search_dirs(profile_dirs))


def _load_product(path: Path, folders: Sequence[Path], seen: tuple[Path, ...] = ()) -> GpuProfile:
    def parent(name: str) -> GpuProfile:
        # A profile may extend the one of its own name in a later folder: that is how a single value is overridden.
        own = normalized(name) == normalized(path.stem) and path.parent in folders
        others = folders[folders.index(path.parent) + 1 :] if own else folders
        found = _find(name, others)
        if found is None:
            raise unknown_name("GPU", name, _all_ids(folders), where=f"{path}: extends")
        if found in (*seen, path):
            raise InputError("extends itself", where=f"{path}: extends")
        return _load_product(found, folders, (*seen, path))

    return product_in(path, lambda capability: limits_of(capability, folders), parent)


def _all_ids(folders: Sequence[Path]) -> list[str]:
    return sorted({stem for folder in folders for stem in _files(folder)})


def limits_only_gpu(compute_capability: str, profile_dirs: Sequence[Path | str] = ()) -> GpuProfile:
    """A profile that has the limits of a compute capability and nothing else: occupancy yes, waves no."""
    limits = load_compute_capability(compute_capability, profile_dirs)
    return GpuProfile(
        id=f"sm{limits.arch}",
        name=f"any GPU of compute capability {compute_capability}",
        compute_capability=compute_capability,
        limits=limits,
        provenance=limits.provenance,
    )


def _file_named(name: str) -> Path | None:
    """The profile file that a name is the path of, by its ending; an `InputError` where there is none."""
    if not name.strip().casefold().endswith((".yaml", ".yml")):
        return None
    path = Path(name.strip()).expanduser()
    if not path.is_file():
        raise InputError(f"no such file: {name}", where="--gpu", hint="`occupancy gpus --measure -o FILE` writes one.")
    return path.resolve()


def load_gpu(name: str, profile_dirs: Sequence[Path | str] = ()) -> GpuProfile:
    """The profile that `name` means: a product, a short name, a compute capability (`sm120`, `12.0`: limits only), or
    the path of a profile file (`my-gpu.yaml`).

    `profile_dirs` are searched before OCCUPANCY_HW_PROFILES and the shipped profiles. Raises `UnknownNameError` with
    the nearest names on a miss, `InputError` when the name fits several products or a profile file is wrong.
    """
    folders = search_dirs(profile_dirs)
    path = _file_named(name) or (_find(name, folders) if normalized(name) else None)
    if path is not None:
        return _load_product(path, folders)
    capability = parse_compute_capability(name)
    if capability is not None and capability in known_capabilities(folders):
        return limits_only_gpu(capability, profile_dirs)
    if reason := why_not_covered(name):
        raise UnknownNameError(reason, hint="`occupancy gpus` lists all.", name=name, valid=_all_ids(folders))
    if capability is not None:
        return limits_only_gpu(capability, profile_dirs)
    raise _unknown_gpu(name, folders)


def _unknown_gpu(name: str, folders: Sequence[Path]) -> UnknownNameError:
    """The nearest ids, by every name a profile answers to."""
    by_name: dict[str, str] = {}
    for folder in folders:
        for stem, path in _files(folder).items():
            for alias in _names_in(path):
                by_name.setdefault(alias, stem)
    if normalized(name) == "local":
        return UnknownNameError("'local' is this machine's GPU, and a profile file cannot tell it", name=name)
    close = list(dict.fromkeys(by_name[n] for n in nearest(normalized(name), by_name, most=6)))[:3]
    if not close:
        # No spelling comes near: the products whose name contains it, or it contains.
        wanted = normalized(name)
        close = list(dict.fromkeys(s for n, s in by_name.items() if len(wanted) > 1 and (wanted in n or n in wanted)))[
            :3
        ]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return UnknownNameError(
        f"unknown GPU {name!r}",
        hint=f"{hint}`occupancy gpus` lists all; sm120 or 12.0 asks for a compute capability's limits alone.",
        name=name,
        valid=_all_ids(folders),
    )


def list_gpus(profile_dirs: Sequence[Path | str] = ()) -> list[GpuProfile]:
    """Every product profile, newest compute capability first, then by name; an earlier folder hides a later one."""
    folders = search_dirs(profile_dirs)
    chosen: dict[str, Path] = {}
    for folder in folders:
        for stem, path in _files(folder).items():
            chosen.setdefault(stem, path)
    gpus = [_load_product(path, folders) for path in chosen.values()]
    return sorted(gpus, key=lambda g: (-g.arch, g.name.casefold()))


def list_compute_capabilities(profile_dirs: Sequence[Path | str] = ()) -> list[ComputeCapability]:
    """The limits of every known compute capability, ascending."""
    folders = search_dirs(profile_dirs)
    return [limits_of(name, folders) for name in known_capabilities(folders)]
