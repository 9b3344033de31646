"""`occupancy measure`: times of real launches on this machine's GPU, into a file."""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import counted, make_console
from occupancy_cli.cli.verify_command import local_index
from occupancy_cli.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from occupancy_cli.answers.measure import Measured, MeasureProgress


class Order(str, enum.Enum):
    """Which points are timed first."""

    grid = "grid"
    telling = "telling"


class L2(str, enum.Enum):
    """Whether a launch finds its data in the L2."""

    warm = "warm"
    cold = "cold"


def measure(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File of times (JSON lines); one that exists goes on.")
    ],
    kernel: options.KernelArgument = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Requests: 80, or several: 48,64,80 or 1:128. Left out: the spec's.")
    ] = None,
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
    gpu: Annotated[str, typer.Option("--gpu", help="Which GPU of this machine: local, or local:1.")] = "local",
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Time real launches over the grid of candidates, on this machine's GPU, and write each point as it is taken.

    Launches of a point are captured in a CUDA graph and replayed between events; the median counts. The main kernel
    alone and with what follows it. Clocks are read, never set: points measured with the clock held down are marked, a
    GPU that others use is refused. Needs the extra `gpu` (torch) and `inputs` in the spec. Exit code 2 when points
    failed.
    """
    from occupancy_cli.answers.measure import Method, local_machine
    from occupancy_cli.answers.measure import measure as run
    from occupancy_cli.plan.kernel_input import SHIPPED_KERNEL, read_kernel_input
    from occupancy_cli.spec.settings import parse_range, parse_settings

    index = local_index(gpu)
    seconds = None if budget is None else parse_seconds(budget)
    splits = () if nsplit is None else parse_range(nsplit, f"--nsplit {nsplit}")
    given = read_kernel_input(kernel)
    values = parse_settings(sets or [])
    batches = options.batch_values(batch)
    profile = options.resolve_gpu(gpu, hw_profiles)
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "measuring needs torch", hint="Install it: python -m pip install 'occupancy-cli[gpu]'"
        )
    if not output.resolve().parent.is_dir():
        raise InputError("there is no such folder", where=str(output.resolve().parent))
    if not resume:
        output.unlink(missing_ok=True)
    with (
        options.compile_service(
            jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=True, executor="local"
        ) as service,
        _progress() as progress,
    ):
        done = run(
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
            progress=progress,
        )
    _print(done)
    if done.interrupted:
        raise typer.Exit(130)
    if done.failed or not (done.written or done.known or done.left):
        raise typer.Exit(2)


def parse_seconds(text: str) -> float:
    """Seconds from `60`, `60s`, `5m` or `1h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*", text)
    if match is None:
        raise InputError(f"{text!r} is no time", where="--budget", hint="Write 60s, 5m or 1h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[MeasureProgress], None] | None]:
    """A line on standard error that follows the points, when that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(state: MeasureProgress) -> None:
        row = state.row
        what = " ".join(f"{n}={row[n]}" for n in ("batch", "nsplit", "BLOCK_H", "BLOCK_M", "num_warps") if n in row)
        sys.stderr.write(f"\r\x1b[Kmeasuring {state.done} of {state.total}: {what}  {row['us_total']:.1f} us")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")


def _print(done: Measured) -> None:
    console = make_console()
    parts = [f"{counted(done.written, 'point')} measured in {done.seconds:.1f} s, written to {done.path}"]
    if done.known:
        parts.append(f"{done.known} were there")
    if done.left:
        parts.append(f"{done.left} left for lack of time")
    console.print("; ".join(parts))
    if done.marked:
        console.print(f"{counted(done.marked, 'point')} marked: the clock was held down, or others used the GPU")
    for title, reasons in (("cannot launch", done.cannot_launch), ("failed", done.failed)):
        for reason, count in reasons.items():
            console.print(f"{title}: {counted(count, 'point')}: {reason}")
    for note in done.notes:
        console.print(note)
