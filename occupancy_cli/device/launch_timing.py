"""Launches on a real GPU, seen from outside: hand a launch worker one point after another, get times or a reason.

The worker is a process of its own (`launch_worker`), started when first needed and again after a launch that failed,
since a fault leaves its CUDA context unusable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from occupancy_cli.compile.request import CompileRequest, KernelSource
from occupancy_cli.compile.worker_client import Limits, WorkerClient, WorkerFailure
from occupancy_cli.errors import InputError

MODULE = "occupancy_cli.device.launch_worker"


@dataclass(frozen=True)
class Method:
    """How a time is taken: launches in one graph replay, timed replays, and whether the L2 holds the data before."""

    launches_per_replay: int = 10
    replays: int = 20
    cold: bool = False

    @property
    def l2(self) -> str:
        """The state of the L2, in words."""
        return (
            "cold: launches go round over copies of the inputs" if self.cold else "warm: every launch the same buffers"
        )


@dataclass(frozen=True)
class LaunchAnswer:
    """Times of one point in microseconds, or the `problem` that left it without.

    `us_split` is the main kernel alone, `us_total` with the kernels that follow it; `spread_percent` the range of the
    middle 80 % of the replays over their median. `launched` has what each loaded kernel takes (smem, regs, spills,
    ctas_per_sm by the driver).
    """

    us_split: float = 0.0
    us_total: float = 0.0
    spread_percent: float = 0.0
    sm_clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    launched: tuple[Mapping[str, Any], ...] = ()
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
        self._open = {
            "action": "open",
            "device": device,
            "pci_bus_id": pci_bus_id,
            "inputs": asdict(inputs),
            "triton_cache": str(triton_cache),
            **asdict(method),
        }
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
            answer = self._client.ask(self._open)
        except WorkerFailure as failed:
            raise InputError(
                f"the launch process did not start: {failed.message}", where="measure", hint=failed.output[-300:]
            ) from None
        if "error" in answer:
            raise InputError(answer["message"], where="measure", hint=answer.get("trace", "").strip()[-300:])
        self.torch = answer["torch"]
        self._opened = True

    def time(
        self, requests: Sequence[tuple[CompileRequest, tuple[int, ...]]], values: Mapping[str, Any]
    ) -> LaunchAnswer:
        """Time launches that run one after the other, each a request with its grid; `values` are for the inputs."""
        self.open()
        launches = []
        for request, grid in requests:
            message = request.to_message()
            launches.append({**{k: message[k] for k in ("source", "arguments", "constexprs", "options")}, "grid": grid})
        try:
            answer = self._client.ask({"action": "time", "launches": launches, "values": dict(values)})
        except WorkerFailure as failed:
            self._opened = False
            return LaunchAnswer(problem=failed.message)
        if "error" in answer:
            self._client.close()
            self._opened = False
            return LaunchAnswer(problem=answer["message"])
        return LaunchAnswer(
            us_split=answer["us_split"],
            us_total=answer["us_total"],
            spread_percent=answer["spread_percent"],
            sm_clock_mhz=answer["sm_clock_mhz"],
            throttled=tuple(answer["throttled"]),
            launched=tuple(answer["launched"]),
        )
