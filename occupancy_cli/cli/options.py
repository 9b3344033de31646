"""Options that several commands share, the service they set up, and how a Report is printed."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli.console import Format
from occupancy_cli.errors import InputError, OccupancyError

if TYPE_CHECKING:
    from occupancy_cli.answers.recommend import Workload
    from occupancy_cli.compile.compile_service import CompileService, Progress
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.plan.kernel_input import KernelInput
    from occupancy_cli.report.schema import Report
    from occupancy_cli.spec.settings import Setting

KernelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[KERNEL]",
        help="A spec (file.yaml), file.py:kernel or package.module:kernel. Left out: the shipped sparse MLA decode.",
    ),
]
GpuOption = Annotated[
    str, typer.Option("--gpu", help="GPU: a product (rtx-pro-6000, 5090, h200), sm120 (limits only), or local.")
]
ProfilesOption = Annotated[
    list[Path] | None, typer.Option("--hw-profiles", help="Folder of GPU profiles that adds to the shipped ones.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a shape, knob, constexpr or launch option (num_warps, ...); VALUE,VALUE for several. Repeatable.",
    ),
]
ArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME=TYPE",
        help="Type of an argument of a kernel without a spec: q_ptr=*bf16, stride=i32=576, k_ptr=*fp8e4nv@4, p=none.",
    ),
]
GridOption = Annotated[
    str | None, typer.Option("--grid", metavar="X,Y,Z", help="Launch grid of a kernel without a spec; expressions.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="table, or json on standard output.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, max=1024, help="Compiles at once. Default: the cores.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that one compile may take.")]
MemoryOption = Annotated[
    float, typer.Option("--memory-gb", min=0, help="Address space of one compile worker in GB; 0: no limit.")
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the result cache.")]
ExecutorOption = Annotated[
    str, typer.Option("--executor", help="Where compiles run: local, or dask://host:port (extra `dask`).")
]

MixOption = Annotated[
    str | None,
    typer.Option("--mix", metavar="BATCH:SHARE,...", help="Shares of steps: 48:0.2,80:0.5,96:0.3."),
]
LengthsOption = Annotated[
    str | None,
    typer.Option("--lengths", help="Tokens of each request: 512,512,64, a file, or uniform:LOW:HIGH."),
]
ColdOption = Annotated[
    bool, typer.Option("--cold", help="The launch does not find its data in the L2. Default: it may, as in a replay.")
]


class SchemaName(str, enum.Enum):
    """What `occupancy schema` prints."""

    report = "report"
    spec = "spec"


@contextlib.contextmanager
def compile_service(
    *, jobs: int | None, timeout: float, memory_gb: float, no_cache: bool, executor: str
) -> Iterator[CompileService]:
    """The compile service that the options ask for, with progress on standard error when that is a terminal."""
    from occupancy_cli.compile.compile_service import CompileService, dask_executor
    from occupancy_cli.compile.result_cache import ResultCache
    from occupancy_cli.compile.worker_client import Limits

    with contextlib.ExitStack() as stack:
        engine = None
        if executor.startswith("dask://"):
            engine = stack.enter_context(dask_executor(executor.removeprefix("dask://")))
        elif executor != "local":
            raise InputError(f"{executor!r} is no executor", where="--executor", hint="local, or dask://host:port.")
        service = stack.enter_context(
            CompileService(
                limits=Limits(timeout, int(memory_gb * 2**30)),
                jobs=jobs,
                cache=None if no_cache else ResultCache(),
                executor=engine,
                progress=stack.enter_context(_progress()),
            )
        )
        try:
            yield service
        except OccupancyError as bad:
            if service.interrupted:  # what it misses is what Ctrl-C kept from it
                raise KeyboardInterrupt from bad
            raise
        finally:
            for line in service.said_of_keeping():
                typer.echo(line, err=True)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Progress], None] | None]:
    """Progress with count, current config and time left; None when standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    bar = rich_progress.Progress(
        rich_progress.TextColumn("compiling"),
        rich_progress.BarColumn(20),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[current]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: list[rich_progress.TaskID] = []

    def show(state: Progress) -> None:
        if not tasks:
            bar.start()
            tasks.append(bar.add_task("", total=state.total, current=""))
        bar.update(tasks[0], total=state.total, completed=state.done, current=state.current)

    try:
        yield show
    finally:
        if tasks:
            bar.stop()


def resolve_gpu(name: str, hw_profiles: list[Path] | None) -> GpuProfile:
    """The profile that `--gpu` names."""
    from occupancy_cli.device.detect import resolve_gpu as resolve

    return resolve(name, hw_profiles or [])


def has_tables(given: KernelInput) -> bool:
    """Whether a spec takes its configs from config tables."""
    from occupancy_cli.spec.kernel_spec import ConfigTable

    return isinstance(given.spec.configs, ConfigTable)


def tables_report(
    command: str,
    context: typer.Context,
    given: KernelInput,
    gpu: str,
    hw_profiles: list[Path] | None,
    service: CompileService,
    sets: Mapping[str, Setting],
) -> Report:
    """The Report of a spec's config tables: on the GPU of --gpu if it was given, else on those that the files name."""
    from occupancy_cli.answers.table_entries import analyze_tables

    source = context.get_parameter_source("gpu")
    asked = source is not None and source.name != "DEFAULT"
    gpus = [resolve_gpu(gpu, hw_profiles)] if asked else None
    return analyze_tables(given, gpus, lambda n: resolve_gpu(n, hw_profiles), service, sets, command=command)


def print_report(report: Report, output_format: Format) -> None:
    """A Report on standard output."""
    if output_format is Format.json:
        sys.stdout.write(report.to_json() + "\n")
        return
    from occupancy_cli.cli.console import make_console
    from occupancy_cli.report.table import render

    render(report, make_console())


def batch_values(batch: str | None) -> tuple[int, ...]:
    """The batches that `--batch` names: 80, 48,64,80 or 1:128."""
    from occupancy_cli.spec.settings import parse_range

    return () if batch is None else parse_range(batch, f"--batch {batch}")


def workload_of(batch: str | None, mix: str | None, lengths: str | None, cold: bool) -> Workload:
    """What the options of a recommendation ask for."""
    from occupancy_cli.answers.recommend import Workload
    from occupancy_cli.spec.traffic import parse_lengths, parse_mix

    batches = batch_values(batch)
    shares = None if mix is None else parse_mix(mix)
    if shares is not None:
        if batches:
            raise InputError("--batch and --mix are given both", where="--mix", hint="--mix names the batches.")
        batches = tuple(shares)
    if lengths is not None and not lengths.startswith("uniform:"):
        given = parse_lengths(lengths)
        if batches not in ((), (len(given),)):
            raise InputError(f"{len(given)} lengths for --batch {batch}", where=f"--lengths {lengths}")
        batches = (len(given),)
    return Workload(batches, shares, lengths, cold)
