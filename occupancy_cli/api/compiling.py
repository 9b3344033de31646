"""How a question of a program compiles: at once, limits, cache, executor, and who is told how far it is.

occ.analyze(kernel, compiling=occ.Compiling(jobs=2, timeout_s=30))
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from occupancy_cli.compile.compile_service import CompileService, Progress
    from occupancy_cli.report.report import Report


@dataclass(frozen=True)
class Compiling:
    """`jobs`: compiles at once (None: the cores); `timeout_s` and `memory_gb`: limits of one (0 GB: none).

    `cache`: whether results are remembered, or the folder to remember them in. `executor` is "local",
    "dask://host:port", or any `concurrent.futures.Executor` whose workers have this package. `progress` is called as
    compiles finish, in the thread that asked.
    """

    jobs: int | None = None
    timeout_s: float = 120.0
    memory_gb: float = 8.0
    cache: bool | str | Path = True
    executor: str | Executor = "local"
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"{self.jobs} compiles at once", where="jobs", hint="It is at least 1.")
        if self.timeout_s <= 0 or self.memory_gb < 0:
            raise InputError(f"a limit of {self.timeout_s:g} s and {self.memory_gb:g} GB", where="compiling")

    @contextlib.contextmanager
    def _service(self) -> Iterator[CompileService]:
        from occupancy_cli.compile.compile_service import CompileService
        from occupancy_cli.compile.result_cache import ResultCache
        from occupancy_cli.compile.worker_client import Limits

        with contextlib.ExitStack() as stack:
            engine: Executor | None = None
            if not isinstance(self.executor, str):
                engine = self.executor
            elif self.executor.startswith("dask://"):
                from occupancy_cli.compile.dask_executor import dask_executor

                engine = stack.enter_context(dask_executor(self.executor.removeprefix("dask://")))
            elif self.executor != "local":
                hint = "local, dask://host:port, or a concurrent.futures.Executor."
                raise InputError(f"{self.executor!r} is no executor", where="executor", hint=hint)
            folder = None if isinstance(self.cache, bool) else Path(self.cache)
            yield stack.enter_context(
                CompileService(
                    limits=Limits(self.timeout_s, int(self.memory_gb * 2**30)),
                    jobs=self.jobs,
                    cache=ResultCache(folder) if self.cache else None,
                    executor=engine,
                    progress=self.progress,
                )
            )


DEFAULT_COMPILING = Compiling()


def answered(compiling: Compiling, ask: Callable[[CompileService], Report]) -> Report:
    """The Report of `ask`, with what the run says of results that were not kept; ends its workers.

    A run that Ctrl-C cut short raises `KeyboardInterrupt`, as any call in a notebook does.
    """
    with compiling._service() as service:
        report = ask(service)
        if service.interrupted:
            raise KeyboardInterrupt
        said = service.said_of_keeping()
    return dataclasses.replace(report, notes=[*report.notes, *said]) if said else report
