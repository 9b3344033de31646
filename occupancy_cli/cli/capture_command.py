"""`occupancy capture`: run a script, write down every Triton launch as a spec, and analyze them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import DEFAULT_GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_cli.capture.session import CaptureResult
    from occupancy_cli.compile.compile_service import CompileService
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.report.schema import Report

# Options of the script pass through; this command's own may stand before or after them. What follows `--` is the
# script's alone.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": True}

_SHOWN_NOTES = 12


def capture(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script, or with -m a module.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own. After --, all are the script's.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the specs; replaced if it holds an unedited capture.")
    ] = Path("captured"),
    gpu: options.GpuOption = DEFAULT_GPU,
    live: Annotated[bool, typer.Option("--live", help="Run on the GPU here, for real, and record what runs.")] = False,
    module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is a module, as for python -m.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze/--no-analyze", help="Analyze the specs, or only write them.")
    ] = True,
    most: Annotated[
        int, typer.Option("--launches-per-kernel", min=1, max=10_000, help="Distinct launches kept of one kernel.")
    ] = 64,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder, whatever is in it.")] = False,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    no_cache: options.NoCacheOption = False,
    executor: options.ExecutorOption = "local",
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Run a script and write each Triton launch that it makes as a spec; then analyze the specs.

    Without a GPU: torch's CPU build stands in for CUDA, kernels do not run, and every config that an autotuner has is
    recorded once, untimed. Sizes, strides, alignments and grids are real. Results of kernels are zeros, so what the
    script computes from them is not; the index in the folder lists what a capture cannot see. The script's home and
    caches are empty ones of its own, so that nothing it writes reaches yours. Its output goes to standard error.

    Exit code 2 when the script failed (what it launched before is kept), when nothing was captured, or when a config
    did not compile; 130 when interrupted; else 0.
    """
    from occupancy_cli.capture.session import CaptureRequest
    from occupancy_cli.capture.session import capture as run

    profile = None if live and gpu == DEFAULT_GPU else options.resolve_gpu(gpu, hw_profiles)
    request = CaptureRequest(script, tuple(arguments or ()), out, profile, live, module, most, overwrite)
    result = run(request)
    if output_format is Format.table:
        _print_capture(result, with_notes=not analyze)
    if _interrupted(result):
        raise typer.Exit(130)
    if result.spec_paths and analyze:
        # A run on a GPU that was not named is analyzed for that GPU.
        target = profile or options.resolve_gpu("local", hw_profiles)
        with options.compile_service(
            jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=no_cache, executor=executor
        ) as service:
            report = analyze_captured(result, target, service)
        options.print_report(report, output_format)
    elif output_format is Format.json:
        _print_json(result)
    _fail_as_the_script_did(result, out)
    if result.spec_paths and analyze:
        if report.interrupted:
            raise typer.Exit(130)
        if any(c.status == "failed" for k in report.kernels for c in k.configs):
            raise typer.Exit(2)


def analyze_captured(result: CaptureResult, gpu: GpuProfile, service: CompileService) -> Report:
    """One Report over all specs of a capture, by the code behind `occupancy analyze`."""
    from occupancy_cli.answers.analyze import analyze
    from occupancy_cli.plan.kernel_input import read_kernel_input

    kernels: list[Any] = []
    notes = [f"the specs are in {result.folder}", *notes_of(result)]
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
    return replace(last, kernels=kernels, notes=notes)


def notes_of(result: CaptureResult) -> Sequence[str]:
    """What a reader of a capture should know: launches without a spec, and what the kernel files lack."""
    from occupancy_cli.source.removed_apis import explain

    captured = result.captured
    notes = [str(n) for n in captured.not_captured]
    for spec in captured.specs:
        notes += [f"{spec.file}: {note}" for note in spec.notes if "is a constant of the kernel file" not in note]
        version = captured.versions.get("triton", "of the script")
        notes += [f"{spec.file}: {explain(name, version)}" for name in spec.removed]
    return [*notes, *captured.notes]


def _print_capture(result: CaptureResult, *, with_notes: bool) -> None:
    from occupancy_cli.cli.console import counted, make_console, make_table

    captured = result.captured
    console = make_console()
    if result.folder is None:
        return
    kernels = len({s.source for s in captured.specs})
    console.print(
        f"{counted(captured.launches, 'launch', 'launches')} of {counted(kernels, 'kernel')}: "
        f"{counted(len(captured.specs), 'spec')} in {result.folder}"
    )
    table = make_table("spec", "launches", "configs", "grid", "kernel", right=(1, 2))
    for spec in captured.specs:
        grid = " x ".join(str(axis) for axis in spec.grid)
        configs = f"{spec.configs:,}" + (" autotuned" if spec.tuned else "")
        table.add_row(spec.file, f"{spec.launches:,}", configs, grid, spec.source)
    console.print(table)
    console.print(f"What a capture cannot see is listed in {result.folder}/index.json.")
    notes = notes_of(result) if with_notes else ()
    for note in notes[:_SHOWN_NOTES]:
        console.print(f"note: {note}")
    if len(notes) > _SHOWN_NOTES:
        console.print(f"note: {len(notes) - _SHOWN_NOTES} more notes are in {result.folder}/index.json")


def _print_json(result: CaptureResult) -> None:
    import json

    from occupancy_cli.capture.captured_spec import INDEX

    text = (result.folder / INDEX).read_text(encoding="utf-8") if result.folder else json.dumps(None)
    print(text.rstrip())  # noqa: T201


def _interrupted(result: CaptureResult) -> bool:
    return result.captured.status == "interrupted" or result.exit_code in (130, -2)


def _fail_as_the_script_did(result: CaptureResult, out: Path) -> None:
    """The error for a script that did not end well, or launched nothing; its own traceback is above it."""
    captured = result.captured
    kept = (
        f"The {len(captured.specs)} specs of what it launched before are in {result.folder}." if result.folder else ""
    )
    if captured.status == "internals":
        raise OccupancyError(
            f"this Triton ({captured.versions.get('triton')}) lacks what capture hooks into: {captured.message}",
            hint="Captured are launches of Triton 3.4 to 3.9.",
        )
    if captured.status == "died":
        how = f"by signal {-result.exit_code}" if result.exit_code < 0 else f"with exit code {result.exit_code}"
        raise OccupancyError(f"the script's process ended {how}, without a word", hint=kept)
    if captured.status != "complete":
        raise OccupancyError(f"the script failed: {captured.message}", hint=kept)
    if not captured.launches:
        raise OccupancyError(
            "the script ran to its end and launched no Triton kernel",
            hint="Nothing was written. CUDA C++ kernels and those of torch.compile are not seen.",
        )
    if not captured.specs:
        raise OccupancyError(
            f"none of its {captured.launches} launches can be a spec",
            where=str(out),
            hint="\n".join(dict.fromkeys(f"{n.kernel}: {n.reason}" for n in captured.not_captured)),
        )
