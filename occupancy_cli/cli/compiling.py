"""The options that say how to compile, defined once for all commands that do, and the service that they ask for.

@compiles
def analyze(kernel: ..., how: CompileOptions) -> None:     # has --jobs, --timeout, --memory-gb, --no-cache, ...
    with how.service() as service:
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import progress
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.report.visible_text import visible

if TYPE_CHECKING:
    from occupancy_cli.compile.compile_service import CompileService


@dataclass(frozen=True)
class CompileOptions:
    """How to compile: compiles at once, the limits of one in seconds and GB, the result cache, and where."""

    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, max=1024, help="Compiles at once. Default: the cores.")
    ] = None
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that one compile may take.")] = 120.0
    memory_gb: Annotated[
        float, typer.Option("--memory-gb", min=0, help="Address space of one compile worker in GB; 0: no limit.")
    ] = 8.0
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the result cache.")] = False
    executor: Annotated[
        str, typer.Option("--executor", help="Where compiles run: local, or dask://host:port (extra `dask`).")
    ] = "local"
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Say all that keeps a kernel's results from being remembered; of a check, every rule of every config.",
        ),
    ] = False

    @contextlib.contextmanager
    def service(self) -> Iterator[CompileService]:
        """The compile service that the options ask for, with progress on standard error when that is a terminal."""
        from occupancy_cli.compile.compile_service import CompileService
        from occupancy_cli.compile.result_cache import ResultCache
        from occupancy_cli.compile.worker_client import Limits

        with contextlib.ExitStack() as stack:
            engine = None
            if self.executor.startswith("dask://"):
                from occupancy_cli.compile.dask_executor import dask_executor

                engine = stack.enter_context(dask_executor(self.executor.removeprefix("dask://")))
            elif self.executor != "local":
                raise InputError(
                    f"{self.executor!r} is no executor", where="--executor", hint="local, or dask://host:port."
                )
            service = stack.enter_context(
                CompileService(
                    limits=Limits(self.timeout, int(self.memory_gb * 2**30)),
                    jobs=self.jobs,
                    cache=None if self.no_cache else ResultCache(),
                    executor=engine,
                    progress=stack.enter_context(progress.compiling()),
                )
            )
            try:
                yield service
            except OccupancyError as bad:
                if service.interrupted:  # what it misses is what Ctrl-C kept from it
                    raise KeyboardInterrupt from bad
                raise
            finally:
                for line in service.said_of_keeping(all_reasons=self.verbose):
                    typer.echo(visible(line), err=True)


def compiles(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with every option of `CompileOptions` in the place of its parameter `how`."""
    return _with_options(command, tuple(CompileOptions.__dataclass_fields__), {})


def compiles_here(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command whose binaries have to come from this machine now: no cache, no executor."""
    return _with_options(command, ("jobs", "timeout", "memory_gb"), {"no_cache": True})


def compiles_on_this_machine(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that answers others, from the cache too: no executor."""
    return _with_options(command, ("jobs", "timeout", "memory_gb", "no_cache"), {})


def _with_options(command: Callable[..., None], names: tuple[str, ...], fixed: dict[str, Any]) -> Callable[..., None]:
    hints = inspect.get_annotations(command, eval_str=True)
    mine = inspect.get_annotations(CompileOptions, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        p.replace(annotation=hints[p.name], kind=keyword)
        for p in inspect.signature(command).parameters.values()
        if p.name != "how"
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=getattr(CompileOptions, name), annotation=mine[name]) for name in names
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        how = CompileOptions(**fixed, **{name: given.pop(name) for name in names if name in given})
        command(how=how, **given)

    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    del run.__wrapped__
    return run
