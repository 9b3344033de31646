"""The kernels in a Triton cache directory: what each was built for and what it takes, read from the files alone.

An entry is a folder that holds a kernel's binary and its metadata side by side (`add.cubin`, `add.json`), as Triton
writes it since 3.0; TorchInductor keeps the same folders below `triton/<device>/` of its own cache, so the whole tree
is searched. Registers, local memory and static shared memory come from the cubin, dynamic shared memory, warps and the
target from the metadata. Nothing is loaded that could run, and Triton need not be installed.

What is not a kernel for an NVIDIA GPU, or is not whole, is set aside with its reason: `partial` (a part is missing),
`corrupt` (a part cannot be read), `foreign` (built for another kind of device), `other` (launcher stubs, autotuner
timings and whatever else Triton keeps there).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from occupancy_cli.errors import InputError
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.readers.cubin import CubinKernel, read_cubin

MAX_METADATA_BYTES = 4 << 20
MAX_CUBIN_BYTES = 256 << 20

State = Literal["partial", "corrupt", "foreign", "other"]

_IR = (".source", ".ttir", ".ttgir", ".llir", ".ptx")
_FOREIGN_BINARIES = {".hsaco": "AMD (hsaco)", ".spv": "Intel (spv)", ".zebin": "Intel (zebin)", ".npubin": "Ascend"}
_GROUP = "__grp__"
_LOCATION = re.compile(rb'loc\("([^"\n]+)":(\d+):\d+')
_LOCATION_BYTES = 64 << 10


@dataclass(frozen=True)
class CachedKernel:
    """One compiled kernel of a cache.

    `entry` is its folder relative to the cache. `arch` is 90 for compute capability 9.0. `num_stages`, `maxnreg` and
    `triton` are None where the metadata does not have them; `source` is "file:line" of the kernel, or "".
    """

    name: str
    entry: str
    arch: int
    resources: KernelResources
    num_stages: int | None = None
    maxnreg: int | None = None
    triton: str | None = None
    source: str = ""


@dataclass(frozen=True)
class SetAside:
    """Something in the cache that is no whole kernel for an NVIDIA GPU. `path` is relative to the cache."""

    path: str
    state: State
    why: str


@dataclass(frozen=True)
class TritonCache:
    """What a cache directory holds."""

    root: str
    kernels: tuple[CachedKernel, ...]
    set_aside: tuple[SetAside, ...]

    def counts(self) -> dict[State, int]:
        """How many were set aside for each reason."""
        found: dict[State, int] = {"partial": 0, "corrupt": 0, "foreign": 0, "other": 0}
        for item in self.set_aside:
            found[item.state] += 1
        return found


def default_triton_cache() -> Path:
    """Where Triton keeps its cache: TRITON_CACHE_DIR, else .triton/cache in TRITON_HOME or the home directory."""
    if given := os.environ.get("TRITON_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"


def read_triton_cache(root: Path, *, progress: Callable[[int, str], None] | None = None) -> TritonCache:
    """Every kernel under `root`, by name and folder; `InputError` when there is no such folder.

    `progress` is called with the number of folders seen and the name of the one at hand.
    """
    if not root.is_dir():
        problem = "is a file, not a cache directory" if root.exists() else "no such folder"
        hint = f"Triton's cache here would be {default_triton_cache()}."
        raise InputError(problem, where=str(root), hint=hint)
    kernels: list[CachedKernel] = []
    aside: list[SetAside] = []

    def unreadable(error: OSError) -> None:
        aside.append(SetAside(_relative(Path(error.filename), root), "corrupt", error.strerror or str(error)))

    for seen, (current, folders, files) in enumerate(os.walk(root, onerror=unreadable)):
        folders.sort()
        folder = Path(current)
        if progress:
            progress(seen, folder.name)
        for found in _read_entry(folder, sorted(files), root):
            if isinstance(found, CachedKernel):
                kernels.append(found)
            else:
                aside.append(found)
    kernels.sort(key=lambda k: (k.name, k.entry))
    return TritonCache(str(root), tuple(kernels), tuple(sorted(aside, key=lambda a: a.path)))


def _relative(path: Path, root: Path) -> str:
    try:
        return path.relative_to(root).as_posix() or "."
    except ValueError:
        return str(path)


def _read_entry(folder: Path, files: list[str], root: Path) -> Iterator[CachedKernel | SetAside]:
    """The kernels of one folder, and what else lies in it."""
    at = _relative(folder, root)
    by_stem: dict[str, set[str]] = {}
    for name in files:
        stem, dot, ending = name.rpartition(".")
        by_stem.setdefault(stem if dot else name, set()).add(f".{ending}" if dot else "")
    interrupted = folder.name.startswith("tmp.pid_")
    for stem, endings in sorted(by_stem.items()):
        path = f"{at}/{stem}" if at != "." else stem
        foreign = next((_FOREIGN_BINARIES[e] for e in sorted(endings) if e in _FOREIGN_BINARIES), None)
        if stem.startswith(_GROUP):
            of = stem.removeprefix(_GROUP)
            if of not in by_stem:
                yield SetAside(path, "partial", f"lists the files of {of}, which are not there")
        elif stem.endswith(".autotune"):
            yield SetAside(path, "other", "autotuner timings")
        elif foreign is not None:
            yield SetAside(path, "foreign", f"built for {foreign}")
        elif interrupted:
            yield SetAside(path, "partial", "left by a write that was interrupted")
        elif ".cubin" in endings:
            yield _kernel(folder, stem, path)
        elif endings & set(_IR):
            yield _without_binary(folder, stem, endings, path)
        elif ".json" in endings:
            yield from _lone_json(folder, stem, path)
        elif endings & {".so", ".pyd"}:
            yield SetAside(path, "other", "a launcher or driver stub")
        elif endings & {".c", ".cpp", ".py", ".best_config", ".lock", ".log", ".txt", ""}:
            continue
        else:
            yield SetAside(path, "other", f"not a kernel ({', '.join(sorted(endings))})")


class _Unusable(Exception):
    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state: State = state
        self.why = why


def _kernel(folder: Path, stem: str, path: str) -> CachedKernel | SetAside:
    try:
        metadata = _metadata(folder / f"{stem}.json")
        arch = _arch(metadata)
        binary = _cubin_kernel(folder / f"{stem}.cubin", str(metadata.get("name") or stem))
        return CachedKernel(
            name=binary.name,
            entry=path.rpartition("/")[0] or ".",
            arch=arch,
            resources=_resources(metadata, arch, binary),
            num_stages=_whole(metadata, "num_stages", None),
            maxnreg=_whole(metadata, "maxnreg", None),
            triton=str(metadata["triton_version"]) if metadata.get("triton_version") else None,
            source=_source(folder / f"{stem}.ttir"),
        )
    except _Unusable as unusable:
        return SetAside(path, unusable.state, unusable.why)


def _without_binary(folder: Path, stem: str, endings: set[str], path: str) -> SetAside:
    if ".json" in endings:
        try:
            _arch(_metadata(folder / f"{stem}.json"))
        except _Unusable as unusable:
            return SetAside(path, unusable.state, unusable.why)
    last = next(e for e in reversed(_IR) if e in endings)
    return SetAside(path, "partial", f"there is no cubin, the last stage is {last}")


def _lone_json(folder: Path, stem: str, path: str) -> Iterator[SetAside]:
    try:
        metadata = _metadata(folder / f"{stem}.json")
        if "target" in metadata or "num_warps" in metadata:
            _arch(metadata)
            yield SetAside(path, "partial", "there is metadata, but no cubin")
        else:
            yield SetAside(path, "other", "a JSON file that is no kernel's metadata")
    except _Unusable as unusable:
        yield SetAside(path, unusable.state, unusable.why)


def _metadata(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise _Unusable("partial", "there is a cubin, but no metadata")
        if path.stat().st_size > MAX_METADATA_BYTES:
            raise _Unusable("corrupt", f"metadata of {path.stat().st_size:,} bytes")
        data = json.loads(path.read_bytes())
    except OSError as bad:
        raise _Unusable("corrupt", f"metadata: {bad.strerror or bad}") from None
    except (ValueError, RecursionError) as bad:
        raise _Unusable("corrupt", f"metadata is no JSON: {bad}") from None
    if not isinstance(data, dict):
        raise _Unusable("corrupt", "metadata is no JSON object")
    return data


def _arch(metadata: Mapping[str, Any]) -> int:
    """The target as 90 for compute capability 9.0; a foreign backend and a missing target are `_Unusable`."""
    target = metadata.get("target")
    if isinstance(target, Mapping):
        backend, arch = target.get("backend"), target.get("arch")
    elif isinstance(target, (list, tuple)) and len(target) >= 2:
        backend, arch = target[0], target[1]
    else:
        raise _Unusable("corrupt", "the metadata has no target")
    if backend != "cuda":
        raise _Unusable("foreign", f"built for {backend} {arch}")
    if isinstance(arch, str) and (match := re.match(r"(?:sm_?)?(\d+)", arch)):
        arch = int(match[1])
    if isinstance(arch, bool) or not isinstance(arch, int):
        raise _Unusable("corrupt", f"the target's architecture is {arch!r}")
    return arch


def _whole(metadata: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = metadata.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Unusable("corrupt", f"{name} is {value!r} in the metadata")
    return value


def _cubin_kernel(path: Path, name: str) -> CubinKernel:
    try:
        if not path.is_file():
            raise _Unusable("partial", "there is metadata, but no cubin")
        if path.stat().st_size > MAX_CUBIN_BYTES:
            raise _Unusable("corrupt", f"a cubin of {path.stat().st_size:,} bytes")
        found = read_cubin(path.read_bytes(), where=path.name)
    except OSError as bad:
        raise _Unusable("corrupt", f"cubin: {bad.strerror or bad}") from None
    except InputError as bad:
        raise _Unusable("corrupt", bad.problem) from None
    by_name = {k.name: k for k in found}
    if name in by_name:
        return by_name[name]
    if len(found) != 1:
        raise _Unusable("corrupt", f"the cubin has {len(found)} kernels and none is {name!r}")
    return found[0]


def _resources(metadata: Mapping[str, Any], arch: int, binary: CubinKernel) -> KernelResources:
    shared, warps = _whole(metadata, "shared", None), _whole(metadata, "num_warps", None)
    if shared is None or not warps:
        raise _Unusable("corrupt", f"the metadata has no {'shared' if shared is None else 'num_warps'}")
    reserved = 1024 if arch >= 90 else 0
    return KernelResources(
        shared_bytes=shared,
        num_warps=warps,
        threads_per_cta=32 * warps,
        registers_per_thread=binary.registers_per_thread,
        spill_bytes=binary.frame_bytes,
        static_shared_bytes=max(0, binary.static_shared_bytes - reserved),
        num_ctas=_whole(metadata, "num_ctas", 1) or 1,
        tmem_columns=_whole(metadata, "tmem_size", 0) or 0,
    )


def _source(ttir: Path) -> str:
    """ "file:line" of the kernel: the first location that its IR names."""
    try:
        with ttir.open("rb") as file:
            match = _LOCATION.search(file.read(_LOCATION_BYTES))
    except OSError:
        return ""
    return f"{match[1].decode(errors='replace')}:{int(match[2])}" if match else ""
