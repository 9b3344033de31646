"""`occupancy measure`: times of real launches on this machine's GPU, into a file."""

from __future__ import annotations

import enum
import importlib.util
import re
from pathlib import Path
from typing import Annotated

import typer

from occupancy_cli.cli import options, progress
from occupancy_cli.cli.compiling import CompileOptions, compiles_here
from occupancy_cli.cli.show import show
from occupancy_cli.errors import InputError, MissingDependencyError


class Order(str, enum.Enum):
    """Which points are timed first."""

    grid = "grid"
    telling = "telling"


class L2(str, enum.Enum):
    """Whether a launch finds its data in the L2."""

    warm = "warm"
    cold = "cold"


@compiles_here
def measure(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File of times (JSON lines); one that exists goes on.")
    ],
    kernel: options.KernelArgument = None,
    batch: options.BatchOption = None,
    nsplit: Annotated[
        str | None, typer.Option("--nsplit", help="Only these split counts: 1,2,4 or 1:32. Left out: all candidates.")
    ] = None,
    sets: options.SetOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time on the GPU: 60s or 5m. The points that tell most come first.")
    ] = None,
    order: Annotated[
        Order | None, typer.Option("--order", help="grid, or telling (the default with --budget).")
    ] = None,
    l2: Annotated[
        L2, typer.Option("--l2", help="warm: replays on the same buffers; cold: on changing copies.")
    ] = L2.warm,
    replays: Annotated[int, typer.Option("--replays", min=3, max=1000, help="Timed graph replays a point.")] = 20,
    launches: Annotated[int, typer.Option("--launches", min=1, max=1000, help="Launches in one replay.")] = 10,
    allow_shared: Annotated[
        bool, typer.Option("--allow-shared", help="Measure although other processes use the GPU; times are marked.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume/--overwrite", help="Go on with a file, or start it anew.")] = True,
    gpu: options.LocalGpuOption = "local",
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Time real launches over the grid of candidates, on this machine's GPU, and write each point as it is taken.

    Launches of a point are captured in a CUDA graph and replayed between events; the median counts. The main kernel
    alone and with what follows it. Clocks are read, never set: points measured with the clock held down are marked, a
    GPU that others use is refused. Needs the extra `gpu` (torch) and `inputs` in the spec. Exit code 2 when points
    failed.
    """
    from occupancy_cli.answers.measure import Method, local_machine, measurement
    from occupancy_cli.plan.kernel_input import SHIPPED_KERNEL, read_kernel_input
    from occupancy_cli.spec.settings import parse_range

    index = options.local_index(gpu)
    seconds = None if budget is None else parse_seconds(budget)
    splits = () if nsplit is None else parse_range(nsplit, f"--nsplit {nsplit}")
    given = read_kernel_input(kernel)
    values, batches = options.settings_beside(sets, batch=batch), options.batch_values(batch)
    profile = options.resolve_gpu(gpu, hw_profiles)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "measuring needs torch", hint="Install it: python -m pip install 'occupancy-cli[gpu]'"
        )
    if not output.resolve().parent.is_dir():
        raise InputError("there is no such folder", where=str(output.resolve().parent))
    if not resume:
        output.unlink(missing_ok=True)
    with how.service() as service, progress.measuring() as show_progress:
        report = measurement(
            given,
            profile,
            service,
            local_machine(index, profile.name),
            values,
            output,
            kernel_text=kernel or SHIPPED_KERNEL,
            batches=batches,
            nsplits=splits,
            budget_s=seconds,
            uncertain_first=None if order is None else order is Order.telling,
            allow_shared=allow_shared,
            method=Method(launches, replays, l2 is L2.cold),
            progress=show_progress,
        )
    show(report, output_format)


def parse_seconds(text: str) -> float:
    """Seconds from `60`, `60s`, `5m` or `1h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*", text)
    if match is None:
        raise InputError(f"{text!r} is no time", where="--budget", hint="Write 60s, 5m or 1h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]
