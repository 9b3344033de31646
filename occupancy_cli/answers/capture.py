"""`capture`: a script's launches as specs, and the analysis of each, in one Report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.answers.report_parts import gpu_part, mirrored
from occupancy_cli.capture.session import CaptureResult
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.report.capture_parts import Capture, CapturedSpec, NotCaptured, NotLaunched
from occupancy_cli.report.kernel_parts import Kernel
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.source.launch_guards import not_launched
from occupancy_cli.source.removed_apis import explain
from occupancy_cli.version import VERSION

MOST_NAMED = 20
"""Kernels named with what stands around their launches, where a script launched none of them."""


def file_of_module(module: str) -> Path | None:
    """The file of a module below the working directory, where `python -m` looks first; None for an installed one."""
    base = Path.cwd().joinpath(*module.split("."))
    places = (base.with_suffix(".py"), base / "__main__.py")
    return next((place for place in places if place.is_file()), None)


def captured(result: CaptureResult, gpu: GpuProfile | None, script: Path | None = None) -> Report:
    """A Report with the capture alone; `script` is the file that ran, whose other kernels are then named."""
    found = result.captured
    launched = {spec.kernel.rpartition(":")[2] for spec in found.specs} | {each.kernel for each in found.not_captured}
    failure = "" if found.status == "complete" else found.message
    missed = not_launched(script, launched, failure) if script is not None else ()
    return Report(
        command="capture",
        toolchain=Toolchain(occupancy=VERSION, triton=found.versions.get("triton")),
        gpu=None if gpu is None else gpu_part(gpu),
        capture=Capture(
            folder=None if result.folder is None else str(result.folder),
            launches=found.launches,
            specs=[mirrored(spec, CapturedSpec) for spec in found.specs],
            not_captured=[mirrored(each, NotCaptured) for each in found.not_captured],
            not_launched=[mirrored(each, NotLaunched) for each in missed],
        ),
        notes=notes_of(result),
        interrupted=found.status == "interrupted" or result.exit_code in (130, -2),
    )


def analyze_captured(
    result: CaptureResult, gpu: GpuProfile, service: CompileService, script: Path | None = None
) -> Report:
    """A Report with the capture and every spec of it analyzed, by the code behind `occupancy analyze`."""
    base = captured(result, gpu, script)
    kernels: list[Kernel] = []
    notes = list(base.notes)
    last: Report | None = None
    for spec, path in zip(result.captured.specs, result.spec_paths, strict=True):
        try:
            report = analyze(read_kernel_input(str(path)), gpu, service, {}, command="capture")
        except OccupancyError as bad:
            notes.append(f"{spec.file} was not analyzed: {bad.problem}")
            continue
        last = report
        kernels += [replace(kernel, tuned=spec.tuned) for kernel in report.kernels]
        notes += [n for n in report.notes if n not in notes]
        if report.interrupted:
            break
    if last is None:
        raise InputError("no captured spec could be analyzed", where=str(result.folder), hint="\n".join(notes))
    return replace(last, kernels=kernels, notes=notes, capture=base.capture)


def notes_of(result: CaptureResult) -> list[str]:
    """What a reader of a capture should know: launches without a spec, and what the kernel files lack."""
    found = result.captured
    notes = [str(n) for n in found.not_captured]
    version = found.versions.get("triton", "of the script")
    for spec in found.specs:
        notes += [f"{spec.file}: {note}" for note in spec.notes if "is a constant of the kernel file" not in note]
        notes += [f"{spec.file}: {explain(name, version)}" for name in spec.removed]
    return [*notes, *found.notes]


def raise_as_the_script_did(result: CaptureResult, out: Path, report: Report) -> None:
    """The error for a script that did not end well, or launched nothing; its own traceback is above it.

    Where nothing was written, it names what the script did not launch, which the report says otherwise.
    """
    found = result.captured
    missed = [] if report.capture is None or result.folder is not None else report.capture.not_launched
    named = "".join(f"\nNot launched: {each.kernel} ({each.source}): {each.reason}" for each in missed[:MOST_NAMED])
    if len(missed) > MOST_NAMED:
        named += f"\nNot launched either: {', '.join(each.kernel for each in missed[MOST_NAMED:])}"
    kept = f"The {len(found.specs)} specs of what it launched before are in {result.folder}." if result.folder else ""
    if found.status == "internals":
        raise OccupancyError(
            f"this Triton ({found.versions.get('triton')}) lacks what capture hooks into: {found.message}",
            hint="Captured are launches of Triton 3.4 to 3.9.",
        )
    if found.status == "died":
        how = f"by signal {-result.exit_code}" if result.exit_code < 0 else f"with exit code {result.exit_code}"
        raise OccupancyError(f"the script's process ended {how}, without a word", hint=kept)
    if found.status != "complete":
        raise OccupancyError(f"the script failed: {found.message}", hint=(kept + named).strip())
    if not found.launches:
        raise OccupancyError(
            "the script ran to its end and launched no Triton kernel",
            hint="Nothing was written. CUDA C++ kernels and those of torch.compile are not seen." + named,
        )
    if not found.specs:
        raise OccupancyError(
            f"none of its {found.launches} launches can be a spec",
            where=str(out),
            hint="\n".join(dict.fromkeys(f"{n.kernel}: {n.reason}" for n in found.not_captured)),
        )
