"""What a check came to before, in a file beside the kernels, and what has changed since.

    {
    "schema": "occupancy/lock/1",
    "triton": "3.9.0",
    "ptxas": "12.9",
    "results": {
    "kernels/ops.yaml scale": {
    "h200-sxm": {
    "BLOCK 64, num_warps 2, num_stages 3": {"shared_bytes": 0, "registers_per_thread": 16, "spill_bytes": 0, ...},

A line a config, all in order, so that a review shows what changed and two branches conflict in few places; a file with
a conflict in it is written anew by the command that wrote it. Names are seen from the file's own folder.

What is worse than before is a violation. What is new, or was there and is no longer judged, is undecided: taking a
kernel or a GPU away must not turn a red gate green. What is better is noted. `--update-baseline` takes all of it in.
"""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.json_reader import parse_json, read_text
from occupancy_cli.report import schema
from occupancy_cli.report.finding_text import config_text
from occupancy_cli.spec.project_settings import Figure

SCHEMA = "occupancy/lock/1"
DEFAULT_FILE = "occupancy.lock.json"
# The least is best but for those that say otherwise.
FIGURES: tuple[str, ...] = get_args(Figure)
_MORE_IS_BETTER = frozenset({"ctas_per_sm", "warps_per_sm"})
TOLERANCES: Mapping[str, float] = {"predicted_time_us": 1.0}
"""In percent, where nothing else is asked: a predicted time is not printed to more than that."""
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")

Figures = dict[str, int | float]


@dataclass(frozen=True)
class Key:
    """One config of one kernel on one GPU: `source` is the file that was asked for, seen from the working directory."""

    source: str
    kernel: str
    gpu: str
    config: str


@dataclass(frozen=True)
class Result:
    """What a config came to in this run, and the parts of a finding on it."""

    key: Key
    figures: Figures
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Lock:
    """A baseline as it was read: figures by key, and the tools that they were made with."""

    path: Path
    triton: str | None = None
    ptxas: str | None = None
    results: dict[Key, Figures] = field(default_factory=dict)


# --- the file ----------------------------------------------------------------------------------------------------


def read_lock(path: Path) -> Lock:
    """The baseline in a file; an `InputError` for none, or for one that is not of that form."""
    text = read_text(path)
    where = str(path)
    hint = f"Write it anew: occupancy check --write-baseline {path}"
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_CONFLICT):
            raise InputError("has a merge conflict in it", where=f"{where}:{number}", hint=hint)
    try:
        data = parse_json(text, where)
    except InputError as bad:
        raise InputError(f"is no baseline: {bad.problem}", where=bad.where, hint=hint) from None
    try:
        if data.get("schema") != SCHEMA:
            raise InputError(f"schema is {data.get('schema')!r}", where=where, hint=f"This version reads {SCHEMA}.")
        found = dict(_results(path, data["results"]))
    except (ValueError, KeyError, AttributeError, TypeError) as bad:
        said = f": {bad}" if isinstance(bad, ValueError) else ""
        raise InputError(f"is no baseline{said}", where=where, hint=hint) from None
    return Lock(path, data.get("triton"), data.get("ptxas"), found)


def _results(path: Path, data: Mapping[str, Any]) -> Iterator[tuple[Key, Figures]]:
    for name, gpus in data.items():
        place, _, kernel = name.rpartition(" ")
        source = place if _is_no_path(place) else Path(os.path.relpath(path.parent / place)).as_posix()
        for gpu, configs in gpus.items():
            for config, figures in configs.items():
                for figure, value in figures.items():
                    if figure not in FIGURES or isinstance(value, bool) or not isinstance(value, (int, float)):
                        raise ValueError(f"{name}, {gpu}, {config}: {figure} is {value!r}")
                yield Key(source, kernel, gpu, config), dict(figures)


def _is_no_path(source: str) -> bool:
    """Whether a source is a module's `package.module:kernel`, the same from everywhere."""
    return ":" in source and "/" not in source and not source.endswith((".py", ".yaml", ".yml"))


def lock_text(path: Path, results: Mapping[Key, Figures], toolchain: schema.Toolchain) -> str:
    """The text of a baseline: the same results give the same bytes, wherever it is written from."""
    tree: dict[str, dict[str, dict[str, Figures]]] = {}
    for key, figures in results.items():
        source = key.source
        if not _is_no_path(source):
            source = Path(os.path.relpath(source, path.parent)).as_posix()
        tree.setdefault(f"{source} {key.kernel}", {}).setdefault(key.gpu, {})[key.config] = figures
    kernels = []
    for name in sorted(tree):
        gpus = []
        for gpu in sorted(tree[name]):
            lines = [
                f"{json.dumps(c, ensure_ascii=False)}: {json.dumps(f)}" for c, f in sorted(tree[name][gpu].items())
            ]
            gpus.append(f"{_quoted(gpu)}: {{\n" + ",\n".join(lines) + "\n}")
        kernels.append(f"{_quoted(name)}: {{\n" + ",\n".join(gpus) + "\n}")
    head = [f'"schema": "{SCHEMA}"', f'"triton": {json.dumps(toolchain.triton)}']
    head.append(f'"ptxas": {json.dumps(toolchain.ptxas)}')
    return "{\n" + ",\n".join([*head, '"results": {\n' + ",\n".join(kernels) + "\n}"]) + "\n}\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def write_lock(path: Path, text: str) -> None:
    """Put a baseline in place whole, so that a run that is cut short leaves the one before."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as bad:
        part.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {bad.strerror}", where=str(path)) from None


@dataclass(frozen=True)
class BaselineRequest:
    """What a run does with a baseline: "compare" with it, "update" it, or "write" one that need not be there.

    `covered` are the names that the run was asked for, `tolerances` are in percent, by figure.
    """

    path: Path
    action: Literal["compare", "update", "write"] = "compare"
    covered: tuple[str, ...] = ()
    tolerances: Mapping[str, float] = field(default_factory=dict)


def held_to(
    request: BaselineRequest,
    lock: Lock | None,
    results: Sequence[Result],
    findings: Sequence[schema.Finding],
    toolchain: schema.Toolchain,
    unchanged: AbstractSet[tuple[str, str]] = frozenset(),
) -> tuple[list[schema.Finding], list[str]]:
    """The findings and notes of a run beside its baseline; the file is written where that is asked for.

    `unchanged` are the (source, kernel) that were left out since nothing of theirs changed.
    """
    if request.action == "write" or lock is None:
        written = {r.key: r.figures for r in results}
        write_lock(request.path, lock_text(request.path, written, toolchain))
        return [], [f"{request.path}: {len(written):,} results written"]
    left = {(f.source, f.kernel) for f in findings if f.level in ("undecided", "allowed")} | unchanged
    undecided = frozenset((source, kernel.replace(" ", "_")) for source, kernel in left)
    found = compare(
        lock,
        results,
        covered=request.covered,
        undecided=undecided,
        tolerances=request.tolerances,
        toolchain=toolchain,
    )
    if request.action == "compare":
        return found.findings, found.notes
    changed = sum(found.updated.get(k) != f for k, f in lock.results.items() if k in found.updated)
    new, gone = len(found.updated.keys() - lock.results.keys()), len(lock.results.keys() - found.updated.keys())
    write_lock(request.path, lock_text(request.path, found.updated, toolchain))
    return [], [f"{request.path}: {changed:,} changed, {new:,} new, {gone:,} gone", *found.notes]


# --- comparing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What a baseline and a run differ in: findings, notes, and the results that the baseline would have to have."""

    findings: list[schema.Finding]
    notes: list[str]
    updated: dict[Key, Figures]


def compare(
    lock: Lock,
    results: Sequence[Result],
    *,
    covered: Sequence[str],
    undecided: frozenset[tuple[str, str]],
    tolerances: Mapping[str, float],
    toolchain: schema.Toolchain,
) -> Comparison:
    """Hold a run to a baseline.

    `covered` are the names that the run was asked for (none: the whole project): entries of other files are no matter
    of it. `undecided` are the (source, kernel) of which something did not come to a result (kernel "": a whole file):
    what the baseline has of them stays. `tolerances` are in percent, by figure.
    """
    findings: list[schema.Finding] = []
    updated = dict(lock.results)
    by_key = {result.key: result for result in results}
    for key, result in by_key.items():
        before = lock.results.get(key)
        updated[key] = result.figures if before is None else _kept(before, result.figures)
        if before is None:
            text = f"is not in {lock.path}: `--update-baseline` takes it in"
            findings.append(schema.Finding(level="undecided", rule="baseline", message=text, **result.about))
            continue
        worse, better = _changes(before, result.figures, tolerances)
        if worse:
            text = f"worse than {lock.path} has it: {', '.join(worse)}"
            findings.append(schema.Finding(level="violation", rule="baseline", message=text, **result.about))
        elif better:
            text = f"better than {lock.path} has it: {', '.join(better)}"
            findings.append(schema.Finding(level="note", rule="baseline", message=text, **result.about))
    gone: dict[tuple[str, str, str], list[Key]] = {}
    for key in lock.results:
        is_open = {(key.source, key.kernel), (key.source, "")} & undecided
        if key not in by_key and _is_covered(key.source, covered) and not is_open:
            gone.setdefault((key.source, key.kernel, key.gpu), []).append(key)
            del updated[key]
    # A GPU that is judged is called as it is there, or it would be counted as another one.
    names = {result.key.gpu: result.about["gpu"] for result in results}
    for (source, kernel, gpu), keys in gone.items():
        shown = "; ".join(k.config for k in keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
        text = f"in {lock.path} and not judged now: {shown}. If that is meant, `--update-baseline` takes it out"
        about: dict[str, Any] = {"kernel": kernel, "gpu": names.get(gpu, gpu), "config": {}}
        about |= {"source": source, "file": source}
        findings.append(schema.Finding(level="undecided", rule="baseline", message=text, **about))
    return Comparison(findings, _of_tools(lock, toolchain), updated)


def _kept(before: Figures, now: Figures) -> Figures:
    """The figures to write: those of now, and of before what this run did not ask for."""
    return {name: now.get(name, before.get(name, 0)) for name in FIGURES if name in now or name in before}


def _changes(before: Figures, now: Figures, tolerances: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """The figures that are worse by more than is tolerated, and those that are better."""
    worse: list[str] = []
    better: list[str] = []
    for name in FIGURES:
        old, new = before.get(name), now.get(name)
        if old is None or new is None or old == new:
            continue
        percent = tolerances.get(name, TOLERANCES.get(name, 0.0))
        if abs(new - old) * 100 <= percent * abs(old):
            continue
        text = f"{name} {_number(old)} -> {_number(new)}"
        (worse if (new < old) == (name in _MORE_IS_BETTER) else better).append(text)
    return worse, better


def _number(value: float) -> str:
    return f"{value:,}"


def _is_covered(source: str, covered: Sequence[str]) -> bool:
    """Whether a run that was asked for the names `covered` (none: for everything) would have judged a file."""
    if not covered:
        return True
    for name in covered:
        place = name if _is_no_path(name) else Path(os.path.relpath(name)).as_posix()
        if place == "." and not source.startswith("../"):
            return True
        if source == place or source.startswith(f"{place}/") or fnmatch.fnmatchcase(source, place):
            return True
    return False


def _of_tools(lock: Lock, toolchain: schema.Toolchain) -> list[str]:
    pairs = (("Triton", lock.triton, toolchain.triton), ("ptxas", lock.ptxas, toolchain.ptxas))
    changed = [f"{name} {old} -> {new}" for name, old, new in pairs if old and new and old != new]
    return [f"{lock.path} was made with other tools: {', '.join(changed)}"] if changed else []


def parse_tolerances(texts: Sequence[str]) -> dict[str, float]:
    """`FIGURE=PERCENT` each, as `--tolerance` takes them."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        where = f"--tolerance {text}"
        if not equals:
            raise InputError("is no tolerance", where=where, hint="Write FIGURE=PERCENT: registers_per_thread=5.")
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES, where=where)
        try:
            found[name] = float(value.removesuffix("%"))
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] < float("inf"):
            raise InputError(f"{value!r} is no percentage", where=where, hint="0 or more: 5.")
    return found


def result_of(about: Mapping[str, Any], gpu_id: str, figures: Mapping[str, float | None], what: str = "") -> Result:
    """A result with the figures that are known; `what` tells apart what knobs and config do not."""
    known = {n: round(v, 3) if isinstance(v, float) else v for n, v in figures.items() if v is not None}
    config = config_text({**about["knobs"], **about["config"]})
    key = Key(about["source"], about["kernel"].replace(" ", "_"), gpu_id, f"{what}: {config}" if what else config)
    return Result(key, known, about)
