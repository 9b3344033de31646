"""From the records of a captured run to spec files: one for each kernel and set of arguments, configs listed in it.

Reads the lines that `occupancy_cli.capture.recorder` writes, computes the text of every file of the capture's
folder, and writes nothing itself. Launches of one kernel with equal arguments make one spec: what differs between
them, and what the autotuner sets, is in `configs`. A launch that no spec can carry is listed with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from occupancy_cli.capture.captured_grid import axis_expression
from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.kernel_spec import SCHEMA, canonical_type

INDEX_SCHEMA = "occupancy/capture/1"
INDEX = "index.json"
_WIDTH = 118

CANNOT_SEE = (
    "values that come from the results of kernels that did not run: such tensors held zeros",
    "launches that the script did not make with these arguments, sizes and flags",
    "processes that the script started afresh (spawn, subprocess); forked ones are recorded",
    "kernels that do not go through Triton: CUDA C++, cuBLAS, CUTLASS, and those that torch.compile generates",
    "what runs between launches: only Triton launches are recorded",
)
CANNOT_SEE_LIVE = CANNOT_SEE[1:]


@dataclass(frozen=True)
class CapturedSpec:
    """One spec of a capture. `source` is `file:line` of the kernel.

    `launches` counts real ones: it is 0 where only an autotuner's other configs have these arguments.
    """

    file: str
    kernel: str
    source: str
    reference: str
    launches: int
    configs: int
    tuned: bool
    grid: tuple[int | str, ...]
    notes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotCaptured:
    """Launches of a kernel that have no spec, and why."""

    kernel: str
    source: str
    reason: str
    launches: int

    def __str__(self) -> str:
        count = f"{self.launches:,} launch{'es' if self.launches != 1 else ''}"
        return f"{self.kernel}, {self.source}: {count} without a spec: {self.reason}"


@dataclass(frozen=True)
class Captured:
    """A capture as it will lie on disk. `files` are texts by path within the folder, without the index."""

    files: Mapping[str, str]
    specs: tuple[CapturedSpec, ...]
    not_captured: tuple[NotCaptured, ...]
    notes: tuple[str, ...]
    status: str
    message: str
    versions: Mapping[str, str]

    @property
    def launches(self) -> int:
        """All launches that were seen."""
        return sum(s.launches for s in self.specs) + sum(n.launches for n in self.not_captured)

    def without(self, file: str, reason: str) -> Captured:
        """This capture with one spec moved to the launches that have none."""
        spec = next(s for s in self.specs if s.file == file)
        gone = NotCaptured(spec.kernel, spec.source, reason, spec.launches)
        files = {name: text for name, text in self.files.items() if name != file}
        kept = tuple(s for s in self.specs if s.file != file)
        return replace(self, files=files, specs=kept, not_captured=(*self.not_captured, gone))

    def index(self, header: Mapping[str, Any], hashes: Mapping[str, str]) -> str:
        """The index file: what was run, what came of it, what could not be seen. `hashes` are of the other files."""
        data = {
            "schema": INDEX_SCHEMA,
            **header,
            "status": self.status,
            "message": self.message,
            "versions": dict(self.versions),
            "specs": [vars(s) for s in self.specs],
            "not_captured": [vars(n) for n in self.not_captured],
            "notes": list(self.notes),
            "cannot_see": list(CANNOT_SEE_LIVE if header.get("live") else CANNOT_SEE),
            "files": dict(sorted(hashes.items())),
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


@dataclass
class _Variant:
    """One config of a group: its values, its grid, how often it was launched."""

    values: dict[str, Any]
    grid: tuple[int, ...]
    texts: tuple[str | None, ...]
    launches: int
    kept: bool
    tuned: tuple[str, ...]
    configs: int
    notes: list[str]


@dataclass
class _Records:
    kernels: dict[int, dict[str, Any]] = field(default_factory=dict)
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    launches: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[int, dict[str, dict[str, int]]] = field(default_factory=dict)
    failed: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)

    def with_other_values(self, launch: Mapping[str, Any]) -> int:
        """How many of its launches had other integers, of the same specialization."""
        return sum(of_pid.get("other_values", {}).get(str(launch["id"]), 0) for of_pid in self.counts.values())

    def times(self, launch: Mapping[str, Any]) -> int:
        """How often a launch happened; a process that died may not have counted the last ones."""
        if launch["candidate"]:
            return 0
        counted = sum(of_pid["counts"].get(str(launch["id"]), 0) for of_pid in self.counts.values())
        return max(1, counted)


def captured_from(lines: Iterable[str], title: str) -> Captured:
    """The capture that the records in `lines` make. `title` says what was run, for the head of every spec."""
    records = _read(lines)
    lost: dict[tuple[int, str], int] = {}
    groups: dict[str, list[dict[str, Any]]] = {}
    for launch in records.launches:
        reason = _why_not(launch, records)
        if reason:
            key = (launch["kernel"], reason)
            lost[key] = lost.get(key, 0) + records.times(launch)
            continue
        text = json.dumps([launch["kernel"], launch["snapshot"], launch["arguments"]], sort_keys=True)
        groups.setdefault(text, []).append(launch)
    stems = _Stems(records.kernels)
    files: dict[str, str] = {}
    specs: list[CapturedSpec] = []
    kernel_files: dict[str, str] = {}
    for group in groups.values():
        for variants in _split_by_grid(_variants(group, records)):
            specs.append(_write(group[0], variants, records, stems, files, kernel_files, title))
    not_captured = [
        NotCaptured(records.kernels[kernel]["name"], _source(records.kernels[kernel]), reason, count)
        for (kernel, reason), count in lost.items()
        if count
    ]
    not_captured += _beyond_limit(records)
    return Captured(
        files,
        tuple(specs),
        tuple(not_captured),
        (*_given_values(records), *records.notes, *_failed_configs(records)),
        records.end.get("status", "died"),
        records.end.get("message", "its process ended before the script did"),
        records.end.get("versions", {}),
    )


def _read(lines: Iterable[str]) -> _Records:
    records = _Records()
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # the last line of a process that was killed while writing it
            continue
        event = record.pop("event")
        if event == "kernel":
            records.kernels[record["id"]] = record
        elif event == "snapshot":
            records.snapshots[record["id"]] = record
        elif event == "launch":
            records.launches.append(record)
        elif event == "counts":
            records.counts[record["pid"]] = record
        elif event == "failed_config":
            records.failed.append(record)
        elif event == "value":
            used = record["used"] or records.values.get(record["text"], record)["used"]
            records.values[record["text"]] = {**record, "used": used}
        elif event == "note" and record["text"] not in records.notes:
            records.notes.append(record["text"])
        elif event == "end":
            records.end = record
    return records


def _why_not(launch: Mapping[str, Any], records: _Records) -> str:
    if launch["unsupported"]:
        return "; ".join(launch["unsupported"])
    if launch["grid"] is None:
        return "it was compiled and not launched"
    if any(axis is None for axis in launch["grid"]) or not 1 <= len(launch["grid"]) <= 3:
        return "its grid is not one to three integers"
    if any(axis < 1 for axis in launch["grid"]):
        return "its grid is empty, so that nothing runs"
    for argument in launch["arguments"]:
        try:
            canonical_type(argument["type"])
        except ValueError as bad:
            return f"the argument {argument['name']}: {bad}"
    if launch["snapshot"] is None and not records.kernels[launch["kernel"]]["reference"]:
        return f"its source cannot be carried ({launch['snapshot_error']}) and it cannot be imported by name"
    return ""


def _beyond_limit(records: _Records) -> list[NotCaptured]:
    found = []
    for number, kernel in records.kernels.items():
        more = sum(of_pid["not_kept"].get(str(number), 0) for of_pid in records.counts.values())
        if more:
            reason = "launches with other arguments or grids, beyond the number that is kept of one kernel"
            found.append(NotCaptured(kernel["name"], _source(kernel), reason, more))
    return found


def _failed_configs(records: _Records) -> list[str]:
    found: dict[tuple[str, str], int] = {}
    for failed in records.failed:
        key = (records.kernels[failed["kernel"]]["name"], failed["reason"])
        found[key] = found.get(key, 0) + 1
    return [
        f"{name}: {count} autotune config{'s' if count > 1 else ''} could not be launched: {reason}"
        for (name, reason), count in found.items()
    ]


def _given_values(records: _Records) -> list[str]:
    """What was given for lines of the script, and what of it the script never asked for."""
    return [
        f"--value {value['text']}: "
        + ("given for " if value["used"] else "not used, the script did not come to ")
        + value["stands_for"]
        for value in records.values.values()
    ]


def _source(kernel: Mapping[str, Any]) -> str:
    """`file:line`; a path from ~ is of a file that was generated in the script's own home and is gone."""
    return f"{kernel['file']}:{kernel['line']}"


# --- grouping ----------------------------------------------------------------------------------------------------


def _variants(group: Sequence[Mapping[str, Any]], records: _Records) -> list[_Variant]:
    found: dict[str, _Variant] = {}
    for launch in group:
        # One CTA a cluster is what every launch has unless it says otherwise.
        options = {n: v for n, v in launch["options"].items() if n in LAUNCH_OPTIONS and (n, v) != ("num_ctas", 1)}
        values = {**launch["constexprs"], **options}
        grid = tuple(launch["grid"])
        key = json.dumps([values, grid], sort_keys=True)
        tuned = launch["tuned"] or {"names": [], "kept": True, "configs": 0}
        more = {n: v for n, v in launch["options"].items() if n not in LAUNCH_OPTIONS}
        notes = [f"launched with {n}={v}, which a spec does not carry" for n, v in more.items()]
        if others := records.with_other_values(launch):
            notes.append(f"{others:,} of its launches had other integers, with the same specialization and grid")
        if launch["error"]:
            notes.append(f"the launch failed: {launch['error']}")
        known = found.get(key)
        if known is None:
            kept = bool(tuned["kept"])
            names, count = tuple(tuned["names"]), int(tuned["configs"])
            texts = tuple(launch["grid_text"]) if len(launch["grid_text"]) == len(grid) else (None,) * len(grid)
            found[key] = _Variant(values, grid, texts, records.times(launch), kept, names, count, notes)
        else:
            known.launches += records.times(launch)
            known.kept = known.kept or bool(tuned["kept"])
            known.tuned = known.tuned or tuple(tuned["names"])
            known.configs = max(known.configs, int(tuned["configs"]))
            known.notes += [n for n in notes if n not in known.notes]
    return list(found.values())


def _split_by_grid(variants: Sequence[_Variant]) -> list[list[_Variant]]:
    """Groups in which a config has one grid and in which every axis can be written as one expression."""
    groups: list[dict[str, _Variant]] = []
    for variant in variants:
        key = json.dumps(variant.values, sort_keys=True)
        for group in groups:
            if key not in group and len(next(iter(group.values())).grid) == len(variant.grid):
                group[key] = variant
                break
        else:
            groups.append({key: variant})
    found: list[list[_Variant]] = []
    for members in groups:
        chosen = list(members.values())
        if _grid(chosen, {}) is None:
            by_grid: dict[tuple[int, ...], list[_Variant]] = {}
            for variant in chosen:
                by_grid.setdefault(variant.grid, []).append(variant)
            found += by_grid.values()
        else:
            found.append(chosen)
    return found


def _grid(variants: Sequence[_Variant], names: Mapping[str, int]) -> list[int | str] | None:
    configs = [v.values for v in variants]
    axes: list[int | str] = []
    for i, values in enumerate(zip(*(v.grid for v in variants), strict=True)):
        axis = axis_expression(values, configs, [v.texts[i] for v in variants], names)
        if axis is None:
            return None
        axes.append(axis)
    return axes


# --- writing -----------------------------------------------------------------------------------------------------


class _Stems:
    """File names: the kernel's, with its file's before it where two kernels share a name, numbered after the first."""

    def __init__(self, kernels: Mapping[int, Mapping[str, Any]]) -> None:
        self._kernels = kernels
        self._used: dict[str, int] = {}
        places: dict[str, set[str]] = {}
        for kernel in kernels.values():
            places.setdefault(kernel["name"], set()).add(f"{kernel['file']}:{kernel['qualname']}")
        self._shared = {name for name, where in places.items() if len(where) > 1}

    def new(self, number: int) -> str:
        kernel = self._kernels[number]
        stem = kernel["name"]
        if stem in self._shared:
            stem = re.sub(r".*/|\.py$", "", kernel["file"]) + "." + stem
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:120]
        self._used[stem] = self._used.get(stem, 0) + 1
        return stem if self._used[stem] == 1 else f"{stem}-{self._used[stem]}"


def _write(
    launch: Mapping[str, Any],
    variants: Sequence[_Variant],
    records: _Records,
    stems: _Stems,
    files: dict[str, str],
    kernel_files: dict[str, str],
    title: str,
) -> CapturedSpec:
    kernel = records.kernels[launch["kernel"]]
    stem = stems.new(launch["kernel"])
    snapshot = records.snapshots.get(launch["snapshot"]) if launch["snapshot"] is not None else None
    notes: list[str] = list(dict.fromkeys(n for v in variants for n in v.notes))
    if snapshot is not None:
        text = snapshot["text"]
        if text not in kernel_files:
            kernel_files[text] = f"kernels/{stem}.py"
            files[kernel_files[text]] = text
        reference = f"{kernel_files[text]}:{snapshot['kernel']}"
        notes += [f"{name} = {value} is a constant of the kernel file" for name, value in snapshot["baked"].items()]
        notes += [f"the kernel file lacks {one}" for one in snapshot["left_out"]]
        notes += [f"the kernel file imports {one}" for one in snapshot["imports"]]
    else:
        reference = kernel["reference"]
        notes.append(f"refers to the installed module, since {launch['snapshot_error']}")
    tuned = max(v.configs for v in variants)
    launches = sum(v.launches for v in variants)
    data = _spec_data(launch, variants, reference, stem)
    head = [f"# {title}", f"# {kernel['qualname']}, {_source(kernel)}: {_times(launches)}."]
    own = sum(bool(v.configs) for v in variants)
    if tuned > 1 and own >= tuned:
        head.append(f"# {tuned} autotune configs, all listed; `check` looks at those that pruning leaves.")
    elif tuned > 1:
        head.append(f"# {own} of its {tuned} autotune configs: with the others its arguments are of other types.")
    files[f"{stem}.yaml"] = "\n".join([*head, *(f"# {n}" for n in notes)]) + "\n" + _yaml(data)
    return CapturedSpec(
        file=f"{stem}.yaml",
        kernel=kernel["name"],
        source=_source(kernel),
        reference=f"{kernel['module']}:{kernel['qualname']}",
        launches=launches,
        configs=len(variants),
        tuned=tuned > 1,
        grid=tuple(data["grid"]),
        notes=tuple(notes),
        removed=tuple(snapshot["removed"]) if snapshot else (),
    )


def _times(count: int) -> str:
    if not count:
        return "no launch, but configs that its autotuner may choose"
    return f"{count:,} launch{'es' if count != 1 else ''}"


def _spec_data(launch: Mapping[str, Any], variants: Sequence[_Variant], reference: str, stem: str) -> dict[str, Any]:
    first = variants[0].values
    tuned = {name for v in variants for name in v.tuned}
    arguments = {a["name"]: {k: v for k, v in a.items() if k != "name"} for a in launch["arguments"]}
    integers = {n: a["value"] for n, a in arguments.items() if isinstance(a.get("value"), int) and a["type"] != "i1"}
    listed = [
        name
        for name in first
        if name in LAUNCH_OPTIONS
        or name in tuned
        or (isinstance(first[name], str) and _reads_as_expression(first[name], integers | first))
        or any(repr(v.values.get(name)) != repr(first[name]) for v in variants)
    ]
    listed += [n for v in variants for n in v.values if n not in first and n not in listed]
    listed = [n for n in dict.fromkeys(listed) if any(n in v.values for v in variants)]
    fixed = {n: v for n, v in first.items() if n not in listed}
    numbers = integers | {n: v for n, v in fixed.items() if isinstance(v, int) and not isinstance(v, bool)}
    grid = _grid(variants, numbers) or list(variants[0].grid)
    read = set(re.findall(r"[A-Za-z_]\w*", " ".join(str(axis) for axis in grid)))
    shapes = {n: v for n, v in integers.items() if n in read}
    for name in shapes:
        arguments[name]["value"] = name
    configs = [{n: v.values[n] for n in listed if n in v.values} for v in variants]
    data: dict[str, Any] = {"schema": SCHEMA, "name": stem, "kernel": reference}
    if shapes:
        data["shapes"] = shapes
    data["grid"] = grid
    data["arguments"] = {name: _short(argument) for name, argument in arguments.items()}
    if fixed:
        data["constexprs"] = fixed
    data["configs"] = configs
    if not all(v.kept for v in variants):
        data["check"] = {"use": [c for c, v in zip(configs, variants, strict=True) if v.kept]}
    return data


def _reads_as_expression(text: str, names: Mapping[str, Any]) -> bool:
    """Whether a text among `constexprs` would be taken for an expression; in a config it is itself."""
    try:
        return parse_expression(text).names <= {*names, *LAUNCH_OPTIONS}
    except InputError:
        return False


def _short(argument: dict[str, Any]) -> Any:
    if argument.get("align") == 16:
        argument = {k: v for k, v in argument.items() if k != "align"}
    return argument["type"] if len(argument) == 1 else argument


def _yaml(data: Mapping[str, Any]) -> str:
    """Keys and arguments one a line, configs too; what is inside them in braces."""
    parts = []
    for key, value in data.items():
        # A mapping of plain values would become one long line of braces.
        flow = False if not isinstance(value, (list, dict)) or key in ("shapes", "constexprs") else None
        if key == "arguments" and all(isinstance(v, str) for v in value.values()):
            flow = False
        parts.append(
            yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=flow, width=_WIDTH, allow_unicode=True)
        )
    return "".join(parts)
