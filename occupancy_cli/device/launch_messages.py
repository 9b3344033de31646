"""What goes to a launch worker and what comes back, as `typed_json` writes them: one dataclass a message.

A message is an object with one key, the name of its class, and the value under it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_cli.compile.kernel_record import ConfigValue
from occupancy_cli.compile.request import ArgumentValue, KernelSource
from occupancy_cli.compile.typed_json import WrongData, from_plain, to_plain


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
class Open:
    """Prepare GPU `device`; `inputs` names the function that makes tensors, `triton_cache` has the binaries."""

    device: int
    pci_bus_id: str
    inputs: KernelSource
    triton_cache: str
    method: Method


@dataclass(frozen=True)
class Launch:
    """One kernel's launch: what a `CompileRequest` says of it, and its grid."""

    source: KernelSource
    arguments: tuple[ArgumentValue, ...]
    constexprs: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, ConfigValue], ...]
    grid: tuple[int, ...]


@dataclass(frozen=True)
class Time:
    """Time launches that run one after the other; `values` are for the inputs function."""

    launches: tuple[Launch, ...]
    values: Mapping[str, ConfigValue]


@dataclass(frozen=True)
class Opened:
    """The GPU is ready. `nvml` says why clocks are unknown, where they are."""

    torch: str
    nvml: str


@dataclass(frozen=True)
class LaunchedKernel:
    """What a loaded kernel takes: dynamic shared memory in bytes, registers and spilled registers per thread, and the
    CTAs/SM by the driver (None: it would not say)."""

    smem: int
    regs: int
    spills: int
    ctas_per_sm: int | None


@dataclass(frozen=True)
class Timed:
    """Times of one point in microseconds.

    `us_split` is the main kernel alone, `us_total` with the kernels that follow it; `spread_percent` the range of the
    middle 80 % of the replays over their median; `copies` how many copies of the inputs the launches went round over.
    """

    us_split: float
    us_total: float
    spread_percent: float
    sm_clock_mhz: int | None
    throttled: tuple[str, ...]
    launched: tuple[LaunchedKernel, ...]
    copies: int = 1


@dataclass(frozen=True)
class LaunchFailed:
    """A message without a result, and one sentence why. `trace` is what Python said."""

    message: str
    trace: str = ""


Message = Open | Time | Opened | Timed | LaunchFailed
_KINDS: dict[str, type[Any]] = {c.__name__: c for c in (Open, Time, Opened, Timed, LaunchFailed)}


def message_text(message: Message) -> str:
    """A message as one line of JSON."""
    return json.dumps({type(message).__name__: to_plain(message)})


def message_of(text: str) -> Message:
    """The message that `message_text` wrote; `WrongData` when it is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise WrongData(f"is no JSON: {bad}") from bad
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in _KINDS:
        raise WrongData("is no message of a launch worker")
    name, value = next(iter(data.items()))
    found: Message = from_plain(_KINDS[name], value, name)
    return found
