"""`occupancy capture`: run a script, write down every Triton launch as a spec, and analyze them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end, print_report

# Options of the script pass through; this command's own may stand before or after them. What follows `--` is the
# script's alone.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": True}


@compiles
def capture(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script, or with -m a module.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own. After --, all are the script's.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the specs; replaced if it holds an unedited capture.")
    ] = Path("captured"),
    gpu: options.GpuOption = options.DEFAULT_GPU,
    live: Annotated[bool, typer.Option("--live", help="Run on the GPU here, for real, and record what runs.")] = False,
    module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is a module, as for python -m.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze/--no-analyze", help="Analyze the specs, or only write them.")
    ] = True,
    most: Annotated[
        int, typer.Option("--launches-per-kernel", min=1, max=10_000, help="Distinct launches kept of one kernel.")
    ] = 64,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            metavar="PATH:LINE=VALUE",
            help="What the condition, or what is assigned, in that line of a script is: train.py:39=True. Repeatable.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder, whatever is in it.")] = False,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Run a script and write each Triton launch that it makes as a spec; then analyze the specs.

    Without a GPU: torch's CPU build stands in for CUDA, kernels do not run, and every config that an autotuner has is
    recorded once, untimed. Sizes, strides, alignments and grids are real. Results of kernels are zeros, so what the
    script computes from them is not: where a launch depends on that, give what it would be, --value train.py:39=True.
    Each kernel that was not launched is named with what stands around its launch; the index in the folder lists what
    a capture cannot see. The script's home and
    caches are empty ones of its own, so that nothing it writes reaches yours. Its output goes to standard error.

    Exit code 2 when the script failed (what it launched before is kept), when nothing was captured, or when a config
    did not compile; 130 when interrupted; else 0.
    """
    from occupancy_cli.answers.capture import analyze_captured, captured, file_of_module, raise_as_the_script_did
    from occupancy_cli.capture.session import CaptureRequest
    from occupancy_cli.capture.session import capture as run
    from occupancy_cli.source.given_values import parse_values

    profile = None if live and gpu == options.DEFAULT_GPU else options.resolve_gpu(gpu, hw_profiles)
    values = parse_values(value or ())
    request = CaptureRequest(script, tuple(arguments or ()), out, profile, live, module, most, overwrite, values)
    result = run(request)
    file = file_of_module(script) if module else Path(script)
    report = captured(result, profile, file)
    if result.spec_paths and analyze and not report.interrupted:
        # A run on a GPU that was not named is analyzed for that GPU.
        target = profile or options.resolve_gpu("local", hw_profiles)
        with how.service() as service:
            report = analyze_captured(result, target, service, file)
    if report.capture is not None and report.capture.folder is not None:
        print_report(report, output_format)
    if not report.interrupted:
        raise_as_the_script_did(result, out, report)
    end(report)
