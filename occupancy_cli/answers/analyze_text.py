"""`analyze` of what a compiler wrote: a kernel as TTIR, TTGIR, PTX or a cubin, wherever it was dumped from.

    occupancy analyze mm.ttgir --grid 64,80        TTGIR of Triton, of JAX's Pallas, of a dump: compiled on from there
    occupancy analyze mm.cubin                     with mm.json beside it, as a Triton cache has them

TTIR and TTGIR go through the rest of Triton's compile, PTX through its ptxas; a cubin is read as it is. PTX and cubins
do not say how much shared memory their launch asks for: that is in Triton's metadata beside them, else it is given by
`--set shared_bytes=N` (and `--set num_warps=N`, where nothing says how many threads a CTA has).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import stop_above
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.model.launch_options import DEFAULTS, LAUNCH_OPTIONS
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import split_axes
from occupancy_cli.plan.prepared_kernel import device_facts
from occupancy_cli.readers.cubin import compute_capability_of, read_cubin
from occupancy_cli.report import schema
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.settings import Setting, one_value
from occupancy_cli.version import VERSION
from occupancy_cli.yaml_reader import find_file

MOST_BYTES = 64 << 20
_FUNCTION = re.compile(r"tt\.func\s+public\s+@([\w$.]+)")
_TTGIR_TARGET = re.compile(r'"?ttg\.target"?\s*=\s*"cuda:(\d+)"')
_TTGIR_WARPS = re.compile(r'"ttg\.num-warps"\s*=\s*(\d+)')
_PTX_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)", re.MULTILINE)
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PTX_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_LAUNCH = ("shared_bytes", "num_warps", "num_ctas")


@dataclass(frozen=True)
class Dump:
    """A file that a compiler wrote: the kernel's name and what is known without compiling, None for what is not.

    `arch` is 90 for compute capability 9.0.
    """

    path: Path
    name: str
    arch: int | None
    num_warps: int | None
    shared_bytes: int | None
    num_ctas: int = 1

    @property
    def kind(self) -> str:
        """`ttgir`, ..."""
        return self.path.suffix[1:]


def read_dump(text: str) -> Dump:
    """The file and what it says of itself; `InputError` where it is none."""
    path = find_file(Path(text)).resolve()
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.stat().st_size:,} bytes; a kernel may have {MOST_BYTES:,}", where=text)
    data = path.read_bytes()
    said = _metadata(path.with_suffix(".json"))
    shared, warps, ctas = said.get("shared"), said.get("num_warps"), said.get("num_ctas") or 1
    if path.suffix == ".cubin":
        kernels = read_cubin(data, where=text)
        names = [k.name for k in kernels]
        name = said.get("name", names[0] if len(names) == 1 else None)
        if name not in names:
            listed = ", ".join(names[:10]) or "none"
            raise InputError(f"it has {len(names)} kernels: {listed}", where=text, hint="Give a cubin of one kernel.")
        return Dump(path, name, compute_capability_of(data), warps, shared, ctas)
    source = data.decode("utf-8", "replace")
    if path.suffix == ".ptx":
        names = _PTX_ENTRY.findall(source)
        target, threads = _PTX_TARGET.search(source), _PTX_THREADS.search(source)
        if len(names) != 1 or target is None:
            raise InputError(f"PTX with {len(names)} kernels", where=text, hint="Give the PTX of one kernel.")
        if threads is not None:
            x, y, z = (int(n or 1) for n in threads.groups())
            warps = -(-x * y * z // 32)
        return Dump(path, names[0], int(target[1]), warps, shared, ctas)
    function, target, num_warps = (p.search(source) for p in (_FUNCTION, _TTGIR_TARGET, _TTGIR_WARPS))
    if function is None:
        raise InputError("it has no public tt.func", where=text, hint="It is to be the IR of one Triton kernel.")
    return Dump(path, function[1], int(target[1]) if target else None, int(num_warps[1]) if num_warps else None, None)


def _metadata(path: Path) -> Mapping[str, Any]:
    """Triton's metadata beside a file of its cache; nothing where there is none."""
    try:
        found = json.loads(path.read_bytes()) if path.stat().st_size < MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    whole = ("shared", "num_warps", "num_ctas")
    kept = {n: v for n, v in found.items() if n in whole and isinstance(v, int)} if isinstance(found, dict) else {}
    return {**kept, "name": found["name"]} if kept and isinstance(found.get("name"), str) else kept


def analyze_dump(
    dump: Dump, gpu: GpuProfile, service: CompileService, sets: Mapping[str, Setting], grid: str | None = None
) -> schema.Report:
    """A Report with the kernel as its one config.

    Raises `InputError` for a GPU that the file is not for, and where the launch's shared memory or threads are unknown.
    """
    if dump.arch is not None and dump.arch != gpu.arch:
        problem = f"it is for sm_{dump.arch}, and {gpu.name} is sm_{gpu.arch}"
        raise InputError(problem, where=str(dump.path), hint=f"Give --gpu sm{dump.arch}, or a product of that kind.")
    given = _given(dump, sets)
    outcome = _outcome(dump, gpu, service, given)
    notes = []
    if dump.kind == "ttir":
        defaults = [f"{n} {DEFAULTS[n]}" for n in ("num_warps", "num_stages") if n not in given]
        notes += [f"defaults: {', '.join(defaults)} (TTIR does not say them)"] if defaults else []
    options = {n: v for n, v in given.items() if n in LAUNCH_OPTIONS}
    base: dict[str, Any] = {"config": report_parts.scalars(options), "notes": [*outcome.notes, *notes]}
    if outcome.resources is None:
        error = report_parts.error_part(outcome)
        config = schema.Config(
            status="failed", fits=None, over_bytes=0, reason=outcome.message, error=error, **base
        )  # fmt: skip
    else:
        occupancy = occupancy_of(gpu, outcome.resources)
        axes = None if grid is None else _axes(grid, gpu)
        config = schema.Config(
            status="ok" if occupancy.launchable else "over_cap",
            fits=occupancy.launchable,
            over_bytes=occupancy.over_bytes,
            reason=occupancy.reason,
            resources=report_parts.resources_part(outcome.resources),
            occupancy=report_parts.occupancy_part(occupancy),
            launch=report_parts.launch_part(report_parts.waves_of(gpu, outcome.resources, occupancy, axes)),
            **base,
        )
    versions = dict(outcome.toolchain)
    kernel = schema.Kernel(
        name=dump.name,
        source=str(dump.path),
        kernel=f"{dump.path}:{dump.name}",
        settings={n: s.origin for n, s in sets.items()},
        configs=[config],
    )
    return schema.Report(
        command="analyze",
        toolchain=schema.Toolchain(occupancy=VERSION, triton=versions.get("triton"), ptxas=versions.get("ptxas")),
        gpu=report_parts.gpu_part(gpu),
        kernels=[kernel],
        interrupted=service.interrupted,
    )


def _given(dump: Dump, sets: Mapping[str, Setting]) -> dict[str, Any]:
    """What --set gives, in the place of what the file says."""
    valid = {"ttir": LAUNCH_OPTIONS, "ttgir": ("maxnreg",)}.get(dump.kind, _LAUNCH)
    for name in sets:
        if name not in valid:
            raise unknown_name(f"setting of a launch of {dump.kind.upper()}", name, valid, where=f"--set {name}")
    given = {n: one_value(s.values, n, f"--set {n}") for n, s in sets.items()}
    if dump.kind == "ttgir" and dump.num_warps is not None:
        return {"num_warps": dump.num_warps, **given}
    if dump.kind == "ttir":
        return given
    known = {"shared_bytes": dump.shared_bytes, "num_warps": dump.num_warps, "num_ctas": dump.num_ctas, **given}
    missing = [n for n, v in known.items() if v is None]
    if missing:
        beside = dump.path.with_suffix(".json").name
        hint = f"Add {' '.join(f'--set {n}=VALUE' for n in missing)}, or put Triton's {beside} beside it."
        raise InputError(f"{dump.kind} does not say {' and '.join(missing)}", where=str(dump.path), hint=hint)
    return known


def _outcome(dump: Dump, gpu: GpuProfile, service: CompileService, given: Mapping[str, Any]) -> CompileOutcome:
    if dump.kind != "cubin":
        request = CompileRequest(
            KernelSource(dump.name, str(dump.path)), target_of(gpu), (), (), tuple(sorted(given.items())),
            stop_above(gpu, full=False),
        )  # fmt: skip
        (outcome,) = service.compile_all([request])
        return outcome
    binary = next(k for k in read_cubin(dump.path.read_bytes(), where=str(dump.path)) if k.name == dump.name)
    reserved = 1024 if gpu.arch >= 90 else 0
    warps = given["num_warps"]
    return CompileOutcome(
        KernelResources(
            shared_bytes=given["shared_bytes"],
            num_warps=warps,
            threads_per_cta=32 * warps,
            registers_per_thread=binary.registers_per_thread,
            spill_bytes=binary.frame_bytes,
            static_shared_bytes=max(0, binary.static_shared_bytes - reserved),
            num_ctas=given["num_ctas"],
        )
    )


def _axes(grid: str, gpu: GpuProfile) -> tuple[int, ...]:
    facts = device_facts(gpu)
    return tuple(int(parse_expression(axis, "--grid")(facts, "--grid")) for axis in split_axes(grid))
