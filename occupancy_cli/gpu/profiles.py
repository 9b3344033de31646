"""GPU profiles: what one GPU product offers a kernel, each value with its source and status.

    from occupancy_cli import load_gpu
    gpu = load_gpu("rtx-pro-6000")         # a product, a short name, "sm120" or "12.0"; case, punctuation ignored
    gpu.limits.shared_per_cta_optin_bytes  # 101376: limits that every GPU of its compute capability shares
    gpu.sm_count                           # 188; None when the profile has limits only (load_gpu("sm120"))
    gpu.provenance["sm_count"].status      # "documented", "measured" or "assumed"; .sources, .disputed, .note

Profiles are YAML files: one per GPU product (schema `occupancy/gpu-profile/1`) and one per compute capability (schema
`occupancy/compute-capability/1`, in a folder `compute_capability/`). The shipped ones lie in `hw_profiles/`, whose
README describes the format. Folders given by the caller come first, then those of the environment variable
OCCUPANCY_HW_PROFILES (a list as in PATH), then the shipped one; the first that knows a name answers.

The schemas are strict: an unknown key, a wrong type, a value without a status is an `InputError` that names the file
and the key. Nothing is guessed: what a profile does not state is None.

`load_gpu("local")` is not answered here, as it needs a device: see `occupancy_cli.device.detect.resolve_gpu`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from occupancy_cli.data_files import shipped_dir
from occupancy_cli.errors import InputError, UnknownNameError, nearest, unknown_name

GPU_SCHEMA = "occupancy/gpu-profile/1"
COMPUTE_CAPABILITY_SCHEMA = "occupancy/compute-capability/1"
PROFILE_DIRS_VARIABLE = "OCCUPANCY_HW_PROFILES"
DEFAULT_GPU = "rtx-pro-6000"

# documented: NVIDIA's documents, headers and tools print it, or a specification page that a reader can open.
# measured:   read from a device (a driver query) or timed on one, published by whoever did it.
# assumed:    no source that a reader can open states it for this product; the note says how it was inferred.
STATUSES = ("documented", "measured", "assumed")


@dataclass(frozen=True)
class Disputed:
    """Another value that some source publishes; `sources` are addresses, `note` says what is known against it."""

    value: int | float | str
    sources: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Provenance:
    """Where one value comes from. `chosen_because` says why this value and not one of `disputed`."""

    status: str
    sources: tuple[str, ...] = ()
    note: str = ""
    disputed: tuple[Disputed, ...] = ()
    chosen_because: str = ""


@dataclass(frozen=True)
class ComputeCapability:
    """The limits that all GPUs of one compute capability share.

    `_bytes` are bytes, `_regs`/`registers` 32-bit registers, `_warps` warps of 32 threads. A CTA may have
    `shared_per_cta_optin_bytes` of shared memory (dynamic and static together); the system takes
    `shared_reserved_per_cta_bytes` more for itself, and the sum is rounded up to `shared_alloc_granularity_bytes`.
    `carveouts_bytes` are the sizes that the shared part of the L1 array can be set to, ascending.
    `max_cluster_size_nonportable` is None where no source states it, and both cluster sizes are None where clusters
    do not exist. `tmem_columns_per_sm` is 0 where there is no tensor memory.
    """

    compute_capability: str
    max_threads_per_cta: int
    max_warps_per_sm: int
    max_threads_per_sm: int
    max_ctas_per_sm: int
    barriers_per_sm: int
    registers_per_sm: int
    max_registers_per_cta: int
    max_registers_per_thread: int
    register_alloc_unit_regs: int
    warp_alloc_granularity_warps: int
    sm_subpartitions: int
    shared_per_sm_bytes: int
    shared_per_cta_default_bytes: int
    shared_per_cta_optin_bytes: int
    shared_reserved_per_cta_bytes: int
    shared_alloc_granularity_bytes: int
    carveouts_bytes: tuple[int, ...]
    unified_l1_shared_bytes: int
    cluster_supported: bool
    tmem_columns_per_sm: int
    max_cluster_size_portable: int | None = None
    max_cluster_size_nonportable: int | None = None
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)

    @property
    def arch(self) -> int:
        """The number in `sm_120` and in Triton's target: 120 for compute capability 12.0."""
        return arch_of(self.compute_capability)


@dataclass(frozen=True)
class GpuProfile:
    """One GPU product, or (when `limits_only`) any GPU of one compute capability.

    Rates are dense, without sparsity, tensor cores with FP32 accumulate (`fp16_` also stands for bf16; `fp4_` is
    block-scaled), in 1e12 operations a second; `memory_bandwidth_gbps` is theoretical, in 1e9 bytes a second;
    `memory_gb` the marketed capacity, `memory_bytes` what a device reports. Latencies are in SM clock cycles. None
    means that no source was found, unless the format is in `tensor_formats_absent`: then the GPU does not have it.

    `provenance` has an entry for every value that is not None, the shared limits included, by field name.
    """

    id: str
    name: str
    compute_capability: str
    limits: ComputeCapability
    aliases: tuple[str, ...] = ()
    alias_notes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    device_names: tuple[str, ...] = ()
    sm_count: int | None = None
    boost_clock_mhz: float | None = None
    tensor_clock_mhz: float | None = None
    memory_gb: float | None = None
    memory_bytes: int | None = None
    memory_bandwidth_gbps: float | None = None
    memory_bandwidth_measured_gbps: float | None = None
    l2_bytes: int | None = None
    fp4_dense_tflops: float | None = None
    fp8_dense_tflops: float | None = None
    fp16_dense_tflops: float | None = None
    fp8_dense_fp16acc_tflops: float | None = None
    fp16_dense_fp16acc_tflops: float | None = None
    fp32_tflops: float | None = None
    tdp_w: float | None = None
    shared_latency_cycles: float | None = None
    l1_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    dram_latency_cycles: float | None = None
    tensor_formats_absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)
    path: str = field(default="", compare=False, repr=False)

    @property
    def arch(self) -> int:
        """The number in `sm_120` and in Triton's target: 120 for compute capability 12.0."""
        return arch_of(self.compute_capability)

    @property
    def limits_only(self) -> bool:
        """True for `sm120` and its like: occupancy can be told, waves cannot, as the number of SMs is not known."""
        return self.sm_count is None

    def status(self, name: str) -> str:
        """The status of the value `name`: documented, measured, assumed, or "unknown" where there is none."""
        entry = self.provenance.get(name)
        return entry.status if entry else "unknown"


def arch_of(compute_capability: str) -> int:
    """120 for "12.0"."""
    major, minor = compute_capability.split(".")
    return int(major) * 10 + int(minor)


# ---------------------------------------------------------------------------------------------------------------------
# The schemas, from the dataclasses above, so that the two cannot drift apart.

_TEXT_FIELDS = {"id", "name", "aliases", "alias_notes", "device_names", "notes", "tensor_formats_absent"}
_NOT_IN_FILES = {"limits", "provenance", "path"}


def _value_fields(cls: type[Any]) -> dict[str, str]:
    """Name -> annotation of the fields of `cls` that are values with a source."""
    skip = _TEXT_FIELDS | _NOT_IN_FILES
    return {f.name: str(f.type) for f in dataclasses.fields(cls) if f.name not in skip}


_GPU_VALUES = _value_fields(GpuProfile)
_LIMIT_VALUES = {k: v for k, v in _value_fields(ComputeCapability).items() if k != "compute_capability"}
_GPU_KEYS = (
    "schema", "id", "name", "extends", "aliases", "alias_notes", "device_names", "sources", "values",
    "tensor_formats_absent", "notes",
)  # fmt: skip
_LIMIT_KEYS = ("schema", "compute_capability", "sources", "limits", "notes")
_ENTRY_KEYS = ("value", "status", "sources", "note", "disputed", "chosen_because")
_DISPUTED_KEYS = ("value", "sources", "note")
_MAY_BE_ZERO = {"shared_reserved_per_cta_bytes", "tmem_columns_per_sm"}


@dataclass(frozen=True)
class _Document:
    """A parsed profile file: its text fields, and its values with where they come from."""

    path: Path
    data: dict[str, Any]
    values: dict[str, Any]
    provenance: dict[str, Provenance]


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        """YAML lets a later key silently replace an earlier one of the same name; a profile must not."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key_node, _ in node.value:
                key = key_node.value
                if key in seen:
                    raise InputError(f"the key {key!r} is given twice", where=f"{path}:{key_node.start_mark.line + 1}")
                seen.add(key)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return mapping

    try:
        with path.open("rb") as file:
            data = yaml.load(file, Loader=Loader)
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {error}", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise InputError("is not a profile: a mapping of keys is expected", where=str(path))
    return data


def _check_keys(data: Mapping[Any, Any], valid: Iterable[str], where: str) -> None:
    for key in data:
        if key not in valid:
            raise unknown_name("key", str(key), valid, where=where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"a text is expected, not {value!r}", where=where)
    return value.strip()


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"a list of texts is expected, not {value!r}", where=where)
    return tuple(_text(item, where) for item in value)


def _number(name: str, annotation: str, value: Any, where: str) -> Any:
    """`value` checked against the dataclass field's annotation."""
    if name == "compute_capability":
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        if not re.fullmatch(r"\d+\.\d", text):
            raise InputError(f"a compute capability such as '12.0' is expected, not {value!r}", where=where)
        return text
    if annotation.startswith("bool"):
        if not isinstance(value, bool):
            raise InputError(f"true or false is expected, not {value!r}", where=where)
        return value
    if annotation.startswith("tuple"):
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value) or value != sorted(value):
            raise InputError(f"an ascending list of whole numbers is expected, not {value!r}", where=where)
        return tuple(value)
    whole = annotation.startswith("int")
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise InputError(f"a {'whole number' if whole else 'number'} is expected, not {value!r}", where=where)
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO) or value == float("inf") or value != value:
        raise InputError(f"a number above 0 is expected, not {value!r}", where=where)
    return value


def _sources(value: Any, names: Mapping[str, str], where: str) -> tuple[str, ...]:
    keys = _texts(value, where)
    for key in keys:
        if key not in names:
            raise unknown_name("source", key, names, where=where)
    return tuple(names[key] for key in keys)


def _entry(name: str, annotation: str, raw: Any, names: Mapping[str, str], where: str) -> tuple[Any, Provenance]:
    """A value and its provenance. A bare value, without a mapping around it, is one that its writer assumes."""
    if not isinstance(raw, dict):
        return _number(name, annotation, raw, where), Provenance("assumed", note="stated by the profile, no source")
    _check_keys(raw, _ENTRY_KEYS, where)
    if "value" not in raw:
        raise InputError("the key 'value' is missing", where=where)
    value = _number(name, annotation, raw["value"], where)
    status = raw.get("status")
    if status not in STATUSES:
        raise InputError(f"status {status!r} is none of {', '.join(STATUSES)}", where=where)
    sources = _sources(raw.get("sources", []), names, f"{where}: sources")
    note = _text(raw["note"], f"{where}: note") if "note" in raw else ""
    if status != "assumed" and not sources:
        raise InputError(f"a {status} value names its sources", where=where, hint="Add sources, or call it assumed.")
    disputed = []
    listed = raw.get("disputed", [])
    if not isinstance(listed, list):
        raise InputError("a list is expected", where=f"{where}: disputed")
    for other in listed:
        if not isinstance(other, dict) or "value" not in other:
            raise InputError("each entry is a mapping with 'value'", where=f"{where}: disputed")
        _check_keys(other, _DISPUTED_KEYS, f"{where}: disputed")
        disputed.append(
            Disputed(
                other["value"],
                _sources(other.get("sources", []), names, f"{where}: disputed: sources"),
                _text(other["note"], f"{where}: disputed: note") if "note" in other else "",
            )
        )
    chosen = _text(raw["chosen_because"], f"{where}: chosen_because") if "chosen_because" in raw else ""
    if disputed and not chosen:
        raise InputError("a disputed value says why it was chosen", where=where, hint="Add chosen_because.")
    return value, Provenance(status, sources, note, tuple(disputed), chosen)


def _document(path: Path, schema: str, keys: Iterable[str], values_key: str, fields: Mapping[str, str]) -> _Document:
    data = _read_yaml(path)
    where = str(path)
    if data.get("schema") != schema:
        raise InputError(f"schema is {data.get('schema')!r}", where=where, hint=f"This version reads {schema}.")
    _check_keys(data, keys, where)
    names = data.get("sources", {})
    if not isinstance(names, dict):
        raise InputError("a mapping of short name to address is expected", where=f"{where}: sources")
    names = {_text(k, f"{where}: sources"): _text(v, f"{where}: sources") for k, v in names.items()}
    raw = data.get(values_key, {})
    if not isinstance(raw, dict):
        raise InputError("a mapping is expected", where=f"{where}: {values_key}")
    _check_keys(raw, fields, f"{where}: {values_key}")
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, entry in raw.items():
        values[name], provenance[name] = _entry(name, fields[name], entry, names, f"{where}: {values_key}.{name}")
    if "notes" in data:
        _texts(data["notes"], f"{where}: notes")
    return _Document(path, data, values, provenance)


# ---------------------------------------------------------------------------------------------------------------------
# Finding a name without parsing every file.

_MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro)\b")
_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[ _-]?(\d{1,2})\.?(\d)[af]?")
# A top-level key of a YAML file with all that belongs to it: up to the next line that starts with something else.
_NAMING_KEYS = re.compile(r"^(name|aliases|device_names):(.*(?:\n(?:[ \t-].*|[ \t]*(?=\n)))*)", re.MULTILINE)


def normalized(name: str) -> str:
    """`name` as names are compared: lower case, letters and digits alone, without NVIDIA, GeForce, Tesla, Quadro."""
    folded = re.sub(r"[^a-z0-9]+", " ", name.casefold())
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", folded) or folded)


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
    """The normalized names that a profile answers to, read without parsing the file as a whole.

    Only the blocks of the naming keys are parsed. A file that cannot be read that way answers to its id alone, and is
    reported when it is loaded.
    """
    try:
        return _names_kept(path, path.stat().st_mtime_ns)
    except OSError:
        return frozenset({normalized(path.stem)})


@functools.lru_cache(maxsize=512)
def _names_kept(path: Path, _modified_ns: int) -> frozenset[str]:
    names = {normalized(path.stem)}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return frozenset(names)
    for match in _NAMING_KEYS.finditer(text):
        inline = match[2].strip()
        listed: Any
        if re.fullmatch(r"\[[^\]\[{}\"'#]*\]", inline):
            listed = inline[1:-1].split(",")  # the shipped files' form; a YAML parser takes ten times as long
        else:
            import yaml

            try:
                listed = yaml.safe_load(match[0])[match[1]]
            except (yaml.YAMLError, TypeError, KeyError):
                continue
        names.update(normalized(str(n)) for n in (listed if isinstance(listed, list) else [listed]) if n is not None)
    names.discard("")
    return frozenset(names)


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The file that answers to `name`; an error that lists the variants when several of one folder do."""
    wanted = normalized(name)
    for folder in folders:
        files = _files(folder)
        exact = [path for stem, path in files.items() if normalized(stem) == wanted]
        if len(exact) == 1:
            return exact[0]
        hits = [path for path in files.values() if wanted in _names_in(path)]
        if len(hits) > 1:
            ids = [path.stem for path in hits]
            raise InputError(f"{name!r} may be {' or '.join(ids)}", hint="Name one of them.", name=name, valid=ids)
        if hits:
            # An earlier folder may have a file of that id, under which it stands in for this one.
            return next(p for f in folders if (p := _files(f).get(hits[0].stem)) is not None)
    return None


def load_compute_capability(compute_capability: str, profile_dirs: Sequence[Path | str] = ()) -> ComputeCapability:
    """The limits of `compute_capability` ("12.0"); an `UnknownNameError` that lists the known ones."""
    return _load_limits(compute_capability, search_dirs(profile_dirs))


def _load_limits(compute_capability: str, folders: Sequence[Path]) -> ComputeCapability:
    for folder in folders:
        path = folder / "compute_capability" / f"{compute_capability}.yaml"
        if path.is_file():
            break
    else:
        known = {p.stem for folder in folders for p in (folder / "compute_capability").glob("*.yaml")}
        ordered = sorted(known, key=arch_of)
        raise UnknownNameError(
            f"unknown compute capability {compute_capability!r}",
            hint=f"Known: {', '.join(ordered)}",
            name=compute_capability,
            valid=ordered,
        )
    return _limits_in(path, compute_capability, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _limits_in(path: Path, compute_capability: str, _modified_ns: int) -> ComputeCapability:
    """The limits that a file states. Kept, as listing all products asks for the same few files again and again."""
    document = _document(path, COMPUTE_CAPABILITY_SCHEMA, _LIMIT_KEYS, "limits", _LIMIT_VALUES)
    if str(document.data.get("compute_capability")) != compute_capability:
        raise InputError("compute_capability is not the file's name", where=str(path))
    required = {f.name for f in dataclasses.fields(ComputeCapability) if f.default is dataclasses.MISSING}
    for name in sorted(required & set(_LIMIT_VALUES)):
        if name not in document.values:
            raise InputError(f"the limit {name!r} is missing", where=str(path))
    return ComputeCapability(
        compute_capability=compute_capability,
        notes=tuple(document.data.get("notes", ())),
        provenance=document.provenance,
        **document.values,
    )


def _load_product(path: Path, folders: Sequence[Path], seen: tuple[Path, ...] = ()) -> GpuProfile:
    document = _document(path, GPU_SCHEMA, _GPU_KEYS, "values", _GPU_VALUES)
    data, where = document.data, str(path)
    if data.get("id") != path.stem:
        raise InputError(f"id is {data.get('id')!r}", where=where, hint=f"A profile's id is its file name: {path.stem}")
    texts: dict[str, Any] = {"id": path.stem, "path": where}
    if "name" in data:
        texts["name"] = _text(data["name"], f"{where}: name")
    for key in ("aliases", "device_names", "tensor_formats_absent", "notes"):
        if key in data:
            texts[key] = _texts(data[key], f"{where}: {key}")
    if "alias_notes" in data:
        notes = data["alias_notes"]
        if not isinstance(notes, dict):
            raise InputError("a mapping of alias to reason is expected", where=f"{where}: alias_notes")
        texts["alias_notes"] = {str(k): _text(v, f"{where}: alias_notes") for k, v in notes.items()}

    if "extends" in data:
        parent_name = _text(data["extends"], f"{where}: extends")
        # A profile may extend the one of its own name in a later folder: that is how a single value is overridden.
        others = folders
        if normalized(parent_name) == normalized(path.stem):
            others = folders[folders.index(path.parent) + 1 :]
        parent_path = _find(parent_name, others)
        if parent_path is None:
            raise unknown_name("GPU", parent_name, _all_ids(folders), where=f"{where}: extends")
        if parent_path in (*seen, path):
            raise InputError("extends itself", where=f"{where}: extends")
        parent = _load_product(parent_path, folders, (*seen, path))
        values = {name: getattr(parent, name) for name in _GPU_VALUES}
        own = dict(parent.provenance)
        texts.setdefault("name", parent.name)
        texts.setdefault("tensor_formats_absent", parent.tensor_formats_absent)
        texts.setdefault("notes", parent.notes)
        if parent.id == path.stem:
            for key in ("aliases", "alias_notes", "device_names"):
                texts.setdefault(key, getattr(parent, key))
    else:
        values, own = {}, {}
        if "name" not in texts:
            raise InputError("the key 'name' is missing", where=where)
    values.update(document.values)
    own.update(document.provenance)
    if "compute_capability" not in values:
        raise InputError("values.compute_capability is missing", where=where)
    limits = _load_limits(values["compute_capability"], folders)
    return GpuProfile(limits=limits, provenance={**limits.provenance, **own}, **texts, **values)


def _all_ids(folders: Sequence[Path]) -> list[str]:
    return sorted({stem for folder in folders for stem in _files(folder)})


def parse_compute_capability(name: str) -> str | None:
    """ "12.0" for `sm120`, `sm_120a`, `compute_120`, `12.0` or `120`; None when `name` is not of that form."""
    match = _CAPABILITY.fullmatch(name.strip().casefold())
    return f"{int(match[1])}.{match[2]}" if match else None


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


def load_gpu(name: str, profile_dirs: Sequence[Path | str] = ()) -> GpuProfile:
    """The profile that `name` means: a product, a short name, or a compute capability (`sm120`, `12.0`: limits only).

    `profile_dirs` are searched before OCCUPANCY_HW_PROFILES and the shipped profiles. Raises `UnknownNameError` with
    the nearest names on a miss, `InputError` when the name fits several products or a profile file is wrong.
    """
    folders = search_dirs(profile_dirs)
    path = _find(name, folders) if normalized(name) else None
    if path is not None:
        return _load_product(path, folders)
    capability = parse_compute_capability(name)
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
    known = {p.stem for folder in folders for p in (folder / "compute_capability").glob("*.yaml")}
    return [_load_limits(name, folders) for name in sorted(known, key=arch_of)]
