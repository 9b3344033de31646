"""Launches on a real GPU, seen from outside: hand a launch worker one point after another, get times or a reason.

The worker is a process of its own (`launch_worker`), started when first needed and again after a launch that failed,
since a fault leaves its CUDA context unusable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from occupancy_cli.compile.kernel_record import ConfigValue
from occupancy_cli.compile.request import CompileRequest, KernelSource
from occupancy_cli.compile.typed_json import WrongData
from occupancy_cli.compile.worker_client import Limits, WorkerClient, WorkerFailure
from occupancy_cli.device.launch_messages import (
    Launch,
    LaunchedKernel,
    LaunchFailed,
    Message,
    Method,
    Open,
    Opened,
    Time,
    Timed,
    message_of,
    message_text,
)
from occupancy_cli.errors import InputError

MODULE = "occupancy_cli.device.launch_worker"


@dataclass(frozen=True)
class LaunchAnswer:
    """Times of one point in microseconds, or the `problem` that left it without.

    `us_split` is the main kernel alone, `us_total` with the kernels that follow it; `spread_percent` the range of the
    middle 80 % of the replays over their median. `launched` has what each loaded kernel takes.
    """

    us_split: float = 0.0
    us_total: float = 0.0
    spread_percent: float = 0.0
    sm_clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    launched: tuple[LaunchedKernel, ...] = ()
    problem: str = ""


class Launcher:
    """Times points on GPU `device`, from `__enter__` to `__exit__`. `inputs` names the function that makes tensors."""

    def __init__(
        self,
        device: int,
        pci_bus_id: str,
        inputs: KernelSource,
        triton_cache: Path,
        method: Method,
        *,
        seconds: float = 120.0,
        module: str = MODULE,
    ) -> None:
        self._open = Open(device, pci_bus_id, inputs, str(triton_cache), method)
        self._client = WorkerClient(Limits(seconds, 0), module)
        self._opened = False
        self.torch = ""

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._client.close()

    def open(self) -> None:
        """Start the worker and load the inputs function; an `InputError` says why that is not possible."""
        if self._opened:
            return
        try:
            answer = self._ask(self._open)
        except WorkerFailure as failed:
            raise InputError(
                f"the launch process did not start: {failed.message}", where="measure", hint=failed.output[-300:]
            ) from None
        if isinstance(answer, LaunchFailed):
            raise InputError(answer.message, where="measure", hint=answer.trace.strip()[-300:])
        if not isinstance(answer, Opened):
            self._client.refuse()
            raise InputError("the launch process answered what was not asked", where="measure")
        self.torch = answer.torch
        self._opened = True

    def _ask(self, message: Open | Time) -> Message:
        reply = self._client.ask(message_text(message), str(self._open.inputs))
        try:
            return message_of(reply.text)
        except WrongData as wrong:
            self._client.refuse()
            raise WorkerFailure("crash", f"the launch process answered what was not asked: {wrong}") from None

    def time(
        self, requests: Sequence[tuple[CompileRequest, tuple[int, ...]]], values: Mapping[str, ConfigValue]
    ) -> LaunchAnswer:
        """Time launches that run one after the other, each a request with its grid; `values` are for the inputs."""
        self.open()
        launches = tuple(
            Launch(request.source, request.arguments, request.constexprs, request.options, tuple(grid))
            for request, grid in requests
        )
        try:
            answer = self._ask(Time(launches, dict(values)))
        except WorkerFailure as failed:
            self._opened = False
            return LaunchAnswer(problem=failed.message)
        if not isinstance(answer, Timed):
            self._client.close()
            self._opened = False
            problem = answer.message if isinstance(answer, LaunchFailed) else "it answered what was not asked"
            return LaunchAnswer(problem=problem)
        return LaunchAnswer(
            us_split=answer.us_split,
            us_total=answer.us_total,
            spread_percent=answer.spread_percent,
            sm_clock_mhz=answer.sm_clock_mhz,
            throttled=answer.throttled,
            launched=answer.launched,
        )
