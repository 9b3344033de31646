"""The GPU that is compiled for, as source code may ask about it: one answer to each question, through every door.

Kernel files, libraries and scripts ask PyTorch, Triton's driver, `triton.testing`, cuda-python, NVML or the
environment. Each of those doors (`torch_answers`, `nvidia_answers`, `triton_answers`, `compile.target_driver`) only
spells: the figure comes from here, for every command alike. A figure that the profile does not state is a
`FigureUnknown` that names the question; no door makes a number up.

GPUs of one architecture differ in their figures, so that what came of an answer holds for those alone that answer
alike: `asking` gathers the names of the figures that were told.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile

WARP_SIZE = 32
DEVICE_COUNT = 1
"""Code sees the target alone, as device 0."""

CUDA_VERSION = (13, 0)
"""A driver and a toolkit that know every architecture there are profiles for; code compares it with its least."""


class FigureUnknown(InputError):
    """Source code asked the target GPU for something that its profile does not state."""


@dataclass(frozen=True)
class TargetGpu:
    """What the target says of itself. None: its profile does not state it.

    Clocks are in kHz, as drivers give them; `memory_bytes` is what a device reports or, where no one published that,
    the marketed capacity; `memory_bandwidth_gbps` in 1e9 bytes a second.
    """

    arch: int
    shared_per_cta_optin_bytes: int
    sm_count: int | None
    registers_per_sm: int
    name: str = ""
    max_registers_per_cta: int | None = None
    shared_per_cta_default_bytes: int | None = None
    shared_per_sm_bytes: int | None = None
    shared_reserved_per_cta_bytes: int | None = None
    max_threads_per_cta: int | None = None
    max_threads_per_sm: int | None = None
    max_ctas_per_sm: int | None = None
    sm_clock_khz: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth_gbps: float | None = None
    l2_bytes: int | None = None

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability: (12, 0) for `arch` 120. Not noted as asked: the architecture is in every result's key."""
        return divmod(self.arch, 10)

    def tell(self, figure: str, question: str) -> Any:
        """The figure of that name, noted as asked for; `FigureUnknown` names `question` when it is not known."""
        value = self.figure(figure)
        if value is None or value == "":
            raise unknown(question)
        return value

    def figure(self, figure: str) -> Any:
        """As `tell`, with None for what is not known: that it is not is an answer too, and noted."""
        for asked in _asking:
            asked.add(figure)
        return getattr(self, figure, None)


def unknown(question: str) -> FigureUnknown:
    """The error for a question that no profile answers; it names the active target."""
    name = _active[0].name or f"sm_{_active[0].arch}" if _active else "the target GPU"
    return FigureUnknown(
        f"{question} was asked of {name}, whose profile does not state it",
        hint="A GPU profile of your own can state it (--hw-profiles), or the code can be given the value.",
    )


def target_of(gpu: GpuProfile) -> TargetGpu:
    """The figures of a profile."""
    limits = gpu.limits
    memory_bytes = gpu.memory_bytes or (round(gpu.memory_gb * 1e9) if gpu.memory_gb else None)
    same = {f.name for f in dataclasses.fields(TargetGpu)} & {f.name for f in dataclasses.fields(limits)}
    return TargetGpu(
        arch=gpu.arch,
        name=gpu.device_names[0] if gpu.device_names else gpu.name,
        sm_count=gpu.sm_count,
        sm_clock_khz=round(gpu.boost_clock_mhz * 1000) if gpu.boost_clock_mhz else None,
        memory_bytes=memory_bytes,
        memory_bandwidth_gbps=gpu.memory_bandwidth_gbps,
        l2_bytes=gpu.l2_bytes,
        **{name: getattr(limits, name) for name in same},
    )


# --- which target answers now ----------------------------------------------------------------------------------------

_active: list[TargetGpu] = []
_asking: list[set[str]] = []


def set_active(target: TargetGpu) -> None:
    """Let every door of this process answer for `target` from now on."""
    _active[:] = [target]


def is_active() -> bool:
    """Whether this process answers for a target."""
    return bool(_active)


def active() -> TargetGpu:
    """The target that this process answers for."""
    if not _active:
        raise RuntimeError("no target GPU is set")
    return _active[0]


@contextlib.contextmanager
def asking() -> Iterator[set[str]]:
    """The names of the figures that are asked for while this is active."""
    asked: set[str] = set()
    _asking.append(asked)
    try:
        yield asked
    finally:
        _asking[:] = [other for other in _asking if other is not asked]


def device_index(device: Any, invalid: type[Exception] = ValueError) -> int:
    """0 for every way to say the target (None, 0, "cuda", "cuda:0", a device object); `invalid` for another index."""
    index = device
    if isinstance(device, str):
        index = device.partition(":")[2] or 0
    elif device is not None and not isinstance(device, int):
        index = getattr(device, "index", None)
    if isinstance(index, (int, str)) and str(index) not in ("0", "-1"):  # a stand-in, or a device of no number, is 0
        raise invalid(f"Invalid device id: {device}. The target is the only device, number 0.")
    return 0
