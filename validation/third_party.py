"""Walks every JIT function of packages nobody here wrote and tries to analyze each, with generic argument types.

    python -m pip download --no-deps -d wheels fla-core==0.6.0 liger-kernel ...
    python validation/third_party.py wheels/*.whl --limit 200 -o validation/third_party

Wheels are unpacked below a temporary folder; nothing of them is installed, and what they depend on need not be: their
modules load with stand-ins. Every kernel is described (signature, autotune configs, heuristics) and compiled for one
GPU up to shared-memory allocation. Argument types are guesses from names and use, constexprs come from the autotuner,
from defaults and from names, so many kernels cannot compile; what counts is that each says why: `unclear` has to be 0.

With `--map` the map of shared memory that `explain` shows is read of each too: its buffers have to end at the bytes of
the launch. With `--explain` each is compiled to the end, and registers that live at the peak should be at most what the
compiler allocated, and not far below. `--jobs` walks in several processes; after `--minutes` what was not begun is
left, and counted as such.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.util
import json
import math
import os
import platform
import random
import re
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from occupancy_cli.compile.compile_service import CompileService, triton_version
from occupancy_cli.compile.kernel_record import KernelDescription
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource, Target
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.errors import OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.source.source_knobs import KernelKnobs, read_knobs

INTEGER_POINTER = re.compile(
    r"idx|indic|index|offset|seqlen|lens?\b|len_|_len|table|slot|ids?\b|_id|loc|mask|block_map|counts?|cu_|perm|order",
    re.IGNORECASE,
)
POINTER = re.compile(r"ptrs?$|ptr_|_ptr|pointer", re.IGNORECASE)
FLOAT = re.compile(r"eps|scale|alpha|beta|gamma|prob|drop|slope|softcap|logit_cap|temperature|lr$|decay|theta")
FLAG = re.compile(
    r"^(is|has|use|do|with|enable|need|apply|save|store|return|causal|even|reverse|mask|skip|norm)_?", re.I
)
DTYPE = re.compile(r"dtype|_type$|^ty$", re.IGNORECASE)
FUNCTIONS_A_SHARE = 12
# What of a wheel is read; its METADATA by packages that ask for their own version.
READ = (".py", ".json", ".yaml", ".dist-info/METADATA")


@dataclass
class Result:
    """What became of one JIT function."""

    package: str
    file: str
    kernel: str
    role: str
    outcome: str
    kind: str = ""
    message: str = ""
    shared_bytes: int | None = None
    over_cap: bool = False
    configs: int = 0
    stand_ins: list[str] = field(default_factory=list)
    seconds: float = 0.0
    mapped_bytes: int | None = None
    """Where the last buffer of the map ends; None where no map was asked for or nothing compiled."""
    buffers: int = 0
    room_buffers: int = 0
    """Buffers whose size was told from the room that they have: no compiler pass said it."""
    registers: int | None = None
    peak_live: int | None = None


# --- guessing a launch -----------------------------------------------------------------------------------------------


def pointer_parameters(function: ast.FunctionDef) -> set[str]:
    """Parameters that are dereferenced: the first term of an address, through any assignments in between."""
    parameters = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    sources: dict[str, set[str]] = {}
    found: set[str] = set()

    def base(node: ast.expr) -> str | None:
        while True:
            if isinstance(node, ast.BinOp):
                node = node.left
            elif isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                node = (
                    node.args[0] if node.func.attr in ("advance", "make_block_ptr") and node.args else node.func.value
                )
            elif isinstance(node, ast.Name):
                return node.id
            else:
                return None

    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            origin = base(node.value)
            if origin:
                sources.setdefault(node.targets[0].id, set()).add(origin)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("load", "store", "make_block_ptr", "make_tensor_descriptor") or name.startswith("atomic_"):
                keywords = [k.value for k in node.keywords if k.arg in ("base", "pointer")]
                for argument in (*node.args[:1], *keywords):
                    origin = base(argument)
                    if origin:
                        found.add(origin)
    todo = list(found)
    while todo:
        for origin in sources.get(todo.pop(), set()):
            if origin not in found:
                found.add(origin)
                todo.append(origin)
    return {p for p in parameters if p in found or POINTER.search(p)}


def guess_arguments(described: KernelDescription, pointers: set[str], element: str) -> list[ArgumentValue]:
    """A type for each run-time argument."""
    arguments = []
    for name in described.arguments:
        if name in described.heuristics:
            continue
        if name in pointers:
            arguments.append(ArgumentValue(name, "*i32" if INTEGER_POINTER.search(name) else f"*{element}"))
        elif FLOAT.search(name):
            arguments.append(ArgumentValue(name, "fp32"))
        else:
            arguments.append(ArgumentValue(name, "i32", 4096))
    return arguments


def guess_constexprs(described: KernelDescription) -> dict[str, Any]:
    """A value for each constexpr that neither the autotuner nor a heuristic sets."""
    configs = (described.autotune.configs if described.autotune else ()) or ({},)
    set_by_tuner = set(configs[0])
    guessed: dict[str, Any] = {}
    for parameter in described.params:
        name = parameter.name
        if not parameter.constexpr or name in set_by_tuner or name in described.heuristics:
            continue
        if parameter.has_default:
            guessed[name] = parameter.default
        elif FLAG.match(name) and not re.match(r"^(norm|mask)_?size|block", name, re.I):
            guessed[name] = False
        elif DTYPE.search(name):
            guessed[name] = "tl.bfloat16"
        elif re.search(r"stage", name, re.I):
            guessed[name] = 1
        elif re.search(r"group|GROUP", name):
            guessed[name] = 8
        else:
            guessed[name] = 64
    return guessed


# --- one package -----------------------------------------------------------------------------------------------------


def functions_of(path: Path) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions of a file by name and line."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return {}
    return {(n.name, n.lineno): n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def chosen(root: Path, limit: int, seed: int) -> tuple[list[KernelKnobs], int]:
    """At most `limit` JIT functions of a package (0: all), in the order of their files, and how many there are."""
    kernels = list(read_knobs(root).kernels)
    total = len(kernels)
    if limit and total > limit:
        kernels = random.Random(seed).sample(kernels, limit)
    return sorted(kernels, key=lambda k: (k.place.file, k.place.line)), total


def is_clear(kind: str, message: str) -> bool:
    """Whether a failure says what is wrong: a kind, and one sentence that is more than an exception's name."""
    text = message.strip()
    if not kind or not text or "\n" in text or "Traceback" in text or len(text) > 900:
        return False
    if re.search(r"PassManager::run failed|error encountered during parsing", text):
        return False
    without_name = re.sub(r"^(\w+(Error|Exception|Exit|Interrupt)(:\s*|$))+", "", text)
    return len(without_name) >= 8


def analyze(
    service: CompileService,
    root: Path,
    package: str,
    kernel: KernelKnobs,
    gpu: GpuProfile,
    target: Target,
    depth: str = "",
) -> Result:
    """Describe one JIT function and compile its first config with guessed arguments.

    `depth`: "" up to the allocation of shared memory, "map" with the map of it, "explain" to the end.
    """
    path = root / kernel.place.file
    source = KernelSource(kernel.name, file=str(path))
    result = Result(package, kernel.place.file, kernel.name, kernel.role, "")
    started = time.monotonic()
    try:
        described = service.describe(source, target)
    except OccupancyError as bad:
        kind, message = bad.data.get("kind") or "input", " ".join([bad.problem, *bad.hint.split("\n")]).strip()
        return finished(result, started, kind, message)
    result.configs = len(described.autotune.configs if described.autotune else ())
    node = functions_of(path).get((kernel.name, kernel.place.line))
    pointers = pointer_parameters(node) if node is not None else set()
    config = ((described.autotune.configs if described.autotune else ()) or ({},))[0]
    names = {p.name for p in described.params}
    constexprs = guess_constexprs(described)
    outcome = None
    for element in ("bf16", "fp32", "i32"):
        request = CompileRequest(
            source=source,
            target=target,
            arguments=tuple(guess_arguments(described, pointers, element)),
            constexprs=tuple((constexprs | {n: v for n, v in config.items() if n in names}).items()),
            options=tuple((n, v) for n, v in config.items() if n not in names),
            stop_above=None if depth == "explain" else -1,
            explain=bool(depth),
        )
        tried = service.compile_all([request])[0]
        outcome = tried if outcome is None or tried.ok else outcome  # of several failures the first guess's counts
        if tried.ok or tried.kind != "compile":
            break
    assert outcome is not None
    result.stand_ins = [n for n in outcome.notes if n.startswith("stand-ins for:")]
    if outcome.resources is None:
        return finished(result, started, outcome.kind or "", outcome.message)
    result.shared_bytes = outcome.resources.shared_bytes
    result.over_cap = outcome.resources.shared_bytes > gpu.limits.shared_per_cta_optin_bytes
    if outcome.explanation is not None:
        read = outcome.explanation.read()
        buffers = read.shared_map.buffers
        result.mapped_bytes = max((b.offset + b.bytes for b in buffers), default=0)
        result.buffers, result.room_buffers = len(buffers), sum(not b.bytes_exact for b in buffers)
        if read.registers is not None:
            result.registers, result.peak_live = outcome.resources.registers_per_thread, read.registers.peak
    return finished(result, started, "", "")


def finished(result: Result, started: float, kind: str, message: str) -> Result:
    result.seconds = round(time.monotonic() - started, 3)
    result.kind, result.message = kind, message
    if not kind and not message:
        result.outcome = "compiles"
    else:
        result.outcome = "clear" if is_clear(kind, message) else "unclear"
    return result


def unpacked(wheels: list[Path], into: Path) -> Iterator[tuple[str, Path]]:
    """(name and version, folder) of each wheel, unpacked; a folder is taken as it is."""
    for wheel in wheels:
        if wheel.is_dir():
            yield wheel.name, wheel
            continue
        name = "-".join(wheel.name.split("-")[:2])
        folder = into / name
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [i for i in archive.namelist() if i.endswith(READ)])
        yield name, folder


@dataclass(frozen=True)
class Share:
    """Some JIT functions of a package, for one process to walk."""

    package: str
    root: Path
    kernels: tuple[KernelKnobs, ...]


@dataclass(frozen=True)
class Walk:
    """How each is walked. `until` is when nothing more is begun, as `time.monotonic` counts on this machine."""

    gpu: str
    timeout: float
    depth: str
    until: float
    loud: bool


def shares_of(package: str, root: Path, kernels: Sequence[KernelKnobs], most: int) -> list[Share]:
    """Of `most` functions or more, those of a file together: a worker loads a file once."""
    found: list[list[KernelKnobs]] = [[]]
    for kernel in kernels:
        if len(found[-1]) >= most and found[-1][-1].place.file != kernel.place.file:
            found.append([])
        found[-1].append(kernel)
    return [Share(package, root, tuple(each)) for each in found if each]


def walked(share: Share, walk: Walk) -> tuple[list[Result], int]:
    """(what became of a share's functions, how many were not reached)."""
    gpu = load_gpu(walk.gpu)
    target = target_of(gpu)
    results: list[Result] = []
    if time.monotonic() > walk.until:
        return results, len(share.kernels)
    with CompileService(limits=Limits(walk.timeout, 8 << 30), jobs=1) as service:
        for i, kernel in enumerate(share.kernels):
            if time.monotonic() > walk.until:
                return results, len(share.kernels) - i
            try:
                result = analyze(service, share.root, share.package, kernel, gpu, target, walk.depth)
            except Exception as bad:  # noqa: BLE001 (a fault of the tool's own counts as one, and the walk goes on)
                said = f"{type(bad).__name__}: {bad}"
                result = Result(share.package, kernel.place.file, kernel.name, kernel.role, "unclear", "", said)
            results.append(result)
            if result.outcome == "unclear" or walk.loud:
                print(f"{result.outcome} {kernel.place}:{kernel.name} {result.kind}: {result.message}", flush=True)
    return results, 0


def main() -> int:
    """Run over the wheels given, write OUT.json and OUT.md; the exit code is 1 when a failure was unclear or a map
    does not end where its launch does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path, help="wheel files, or folders that hold an unpacked one")
    parser.add_argument("--limit", type=int, default=200, help="JIT functions of each package, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", default="rtx-pro-6000")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--kernel", help="only JIT functions whose file:name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="processes that walk at once")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing more after this time")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--map", dest="depth", action="store_const", const="map", default="", help="check the map of shared memory"
    )
    depth.add_argument(
        "--explain", dest="depth", action="store_const", const="explain",
        help="compile to the end; check the map and the registers",
    )  # fmt: skip
    parser.add_argument("-o", "--out", type=Path, default=None)
    given = parser.parse_args()
    results: list[Result] = []
    totals: dict[str, int] = {}
    left = 0
    started = time.monotonic()
    walk = Walk(given.gpu, given.timeout, given.depth, started + 60 * given.minutes, bool(given.kernel))
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.jobs) as processes:
        packages = list(unpacked(given.wheels, Path(folder)))
        count = len(packages)
        read = processes.map(chosen, [root for _, root in packages], [given.limit] * count, [given.seed] * count)
        shares: list[Share] = []
        for (package, root), (kernels, totals[package]) in zip(packages, read, strict=True):
            wanted = [k for k in kernels if not given.kernel or given.kernel in f"{k.place.file}:{k.name}"]
            shares += shares_of(package, root, wanted, len(wanted) if given.jobs == 1 else FUNCTIONS_A_SHARE)
        # What is left when time is over is some of every package.
        order = list(range(len(shares)))
        if given.jobs > 1:
            random.Random(given.seed).shuffle(order)
        found = dict(zip(order, processes.map(walked, [shares[i] for i in order], [walk] * len(order)), strict=True))
        for i in range(len(shares)):
            results += found[i][0]
            left += found[i][1]
    if given.out is not None:
        given.out.with_suffix(".json").write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
        text = report(results, totals, given, triton_version(), time.monotonic() - started)
        given.out.with_suffix(".md").write_text(text)
    for package in totals:
        print(f"{package}: {dict(Counter(r.outcome for r in results if r.package == package))}")
    if left:
        print(f"{left:,} functions were not reached in {given.minutes:g} minutes")
    if given.depth:
        print(explained(results))
    wrong = any(r.mapped_bytes is not None and r.mapped_bytes != r.shared_bytes for r in results)
    return 1 if wrong or any(r.outcome == "unclear" for r in results) else 0


def explained(results: list[Result]) -> str:
    """How many maps end at the launch's bytes, and how near the live registers come to the compiler's."""
    mapped = [r for r in results if r.mapped_bytes is not None]
    missed = [r for r in mapped if r.mapped_bytes != r.shared_bytes]
    counted = [(r.peak_live, r.registers) for r in mapped if r.peak_live is not None and r.registers is not None]
    above = sum(peak > allocated for peak, allocated in counted)
    near = sum(0.9 * allocated <= peak <= allocated for peak, allocated in counted)
    room = sum(r.room_buffers > 0 for r in mapped)
    lines = [
        f"{len(mapped):,} maps of shared memory ({sum(bool(r.shared_bytes) for r in mapped):,} of them not empty, "
        f"{sum(r.buffers for r in mapped):,} buffers), {len(missed)} that do not end at the launch's bytes; in {room} "
        f"the size of a buffer is told from the room that it has",
    ]
    if counted:
        lines.append(
            f"{len(counted):,} counts of live registers: {above} above the compiler's, {near} within 10 % below it"
        )
    lines += [f"missed: {r.package} {r.file}:{r.kernel}: {r.mapped_bytes} of {r.shared_bytes} bytes" for r in missed]
    return "\n".join(lines)


def report(
    results: list[Result], totals: dict[str, int], given: argparse.Namespace, triton: str, seconds: float
) -> str:
    """The record of a run, in Markdown."""
    lines = [
        "# Kernels of packages nobody here wrote",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} cores, no GPU, Python {platform.python_version()}, Triton "
        f"{triton} "
        f"{'without' if importlib.util.find_spec('torch') is None else 'with a CPU build of'} PyTorch,",
        f"target {given.gpu}. {seconds / 60:.0f} minutes, {given.jobs} at a time. Command:",
        "",
        f"    python validation/third_party.py WHEELS --limit {given.limit} --seed {given.seed} --gpu {given.gpu} "
        f"--timeout {given.timeout:g}{f' --{given.depth}' if given.depth else ''}"
        f"{f' --jobs {given.jobs}' if given.jobs > 1 else ''}",
        "",
        "Each JIT function is loaded from its wheel (without the wheel's dependencies), described, and compiled up to",
        "shared-memory allocation with guessed argument types. `unclear` are failures without a kind and a sentence",
        "that says why.",
        "",
        "A helper is a JIT function that only other JIT functions call.",
        "",
        "| package | JIT functions | tried | kernels that compile | helpers that compile | over the cap "
        "| fail clearly | fail unclearly |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for package in (*totals, "all"):
        rows = [r for r in results if package in (r.package, "all")]
        total = sum(totals.values()) if package == "all" else totals[package]
        count = Counter(r.outcome for r in rows)
        fits = [f"{done:,} of {of:,}" for done, of in (by_role(rows, "kernel"), by_role(rows, "helper"))]
        lines.append(
            f"| {package} | {total:,} | {len(rows):,} | {' | '.join(fits)} | {sum(r.over_cap for r in rows)} "
            f"| {count['clear']:,} | {count['unclear']:,} |"
        )
    lines += [
        "",
        "## Reasons",
        "",
        "| kind | what it says | how many |",
        "|---|---|---|",
    ]
    reasons = Counter((r.kind, pattern(r.message)) for r in results if r.outcome != "compiles")
    lines += [f"| {kind} | {text} | {n} |" for (kind, text), n in reasons.most_common(40)]
    loaded = [r for r in results if r.stand_ins]
    compiled = sum(r.outcome == "compiles" for r in results)
    lines += ["", f"{len(loaded):,} of the {compiled:,} that compile were loaded with stand-ins.", ""]
    if given.depth:
        lines += ["## Maps of shared memory", "", *explained(results).splitlines(), ""]
    return "\n".join(lines)


def by_role(rows: list[Result], role: str) -> tuple[int, int]:
    """How many of a role compile, of how many."""
    of = [r for r in rows if r.role == role]
    return sum(r.outcome == "compiles" for r in of), len(of)


def pattern(message: str) -> str:
    """A message with its names and numbers left out, so that equal reasons count together."""
    text = re.sub(r"'[^']{1,80}'", "'…'", message.splitlines()[0] if message else "")
    text = re.sub(r"\b\d+\b", "N", text)
    text = re.sub(r"<[^<>]{1,80}>", "<…>", text)
    return text.replace("|", "\\|")[:140]


if __name__ == "__main__":
    sys.exit(main())
