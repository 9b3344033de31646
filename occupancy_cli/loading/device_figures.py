"""How each door spells a figure of the target GPU: a row a figure, a column a door.

`TorchProperties` is what `torch.cuda.get_device_properties` returns, `DriverProperties` what `get_device_properties` of
Triton's driver returns, `RuntimeProperties` what `cudaGetDeviceProperties` of cuda-python returns; `attribute` answers
`cuDeviceGetAttribute` and `cudaDeviceGetAttribute`. Names and numbers are those of PyTorch's `cudaDeviceProp` binding,
of Triton's `backends/nvidia/driver.c` and of `cuda.h`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_cli.loading.target_gpu import WARP_SIZE, TargetGpu, unknown


@dataclass(frozen=True)
class Spelling:
    """One figure: its field of `TargetGpu` (a name that is no field is never known), its name at each door.

    All doors speak in bytes and kHz. `number` is the attribute's in `cuda.h`.
    """

    figure: str
    torch: str = ""
    driver: str = ""
    runtime: str = ""
    attribute: str = ""
    number: int = 0


SPELLINGS: tuple[Spelling, ...] = (
    Spelling("max_threads_per_cta", "max_threads_per_block", "", "maxThreadsPerBlock", "MAX_THREADS_PER_BLOCK", 1),
    Spelling(
        "shared_per_cta_default_bytes",
        *("shared_memory_per_block", "", "sharedMemPerBlock", "MAX_SHARED_MEMORY_PER_BLOCK"),
        number=8,
    ),
    Spelling("max_registers_per_cta", "", "max_num_regs", "regsPerBlock", "MAX_REGISTERS_PER_BLOCK", 12),
    Spelling("sm_clock_khz", "clock_rate", "sm_clock_rate", "clockRate", "CLOCK_RATE", 13),
    Spelling(
        "sm_count",
        *("multi_processor_count", "multiprocessor_count", "multiProcessorCount", "MULTIPROCESSOR_COUNT"),
        number=16,
    ),
    Spelling("memory_clock_khz", "memory_clock_rate", "mem_clock_rate", "memoryClockRate", "MEMORY_CLOCK_RATE", 36),
    Spelling(
        "memory_bus_width_bits",
        *("memory_bus_width", "mem_bus_width", "memoryBusWidth", "GLOBAL_MEMORY_BUS_WIDTH"),
        number=37,
    ),
    Spelling("l2_bytes", "L2_cache_size", "", "l2CacheSize", "L2_CACHE_SIZE", 38),
    Spelling(
        "max_threads_per_sm",
        *("max_threads_per_multi_processor", "", "maxThreadsPerMultiProcessor", "MAX_THREADS_PER_MULTIPROCESSOR"),
        number=39,
    ),
    Spelling(
        "shared_per_sm_bytes",
        *("shared_memory_per_multiprocessor", "", "sharedMemPerMultiprocessor"),
        attribute="MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
        number=81,
    ),
    Spelling(
        "registers_per_sm",
        *("regs_per_multiprocessor", "", "regsPerMultiprocessor", "MAX_REGISTERS_PER_MULTIPROCESSOR"),
        number=82,
    ),
    Spelling(
        "shared_per_cta_optin_bytes",
        *("shared_memory_per_block_optin", "max_shared_mem", "sharedMemPerBlockOptin"),
        attribute="MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        number=97,
    ),
    Spelling("max_ctas_per_sm", "", "", "maxBlocksPerMultiProcessor", "MAX_BLOCKS_PER_MULTIPROCESSOR", 106),
    Spelling(
        "shared_reserved_per_cta_bytes",
        *("", "", "reservedSharedMemPerBlock", "RESERVED_SHARED_MEMORY_PER_BLOCK"),
        number=111,
    ),
    Spelling("memory_bytes", "total_memory", "", "totalGlobalMem"),
)
# What a board says of itself beyond any profile.
_TORCH_NEVER_KNOWN = ("uuid", "pci_bus_id", "pci_device_id", "pci_domain_id", "is_integrated", "is_multi_gpu_board")
_RUNTIME_NEVER_KNOWN = ("uuid", "pciBusID", "pciDeviceID", "pciDomainID", "integrated", "isMultiGpuBoard", "ECCEnabled")


class Properties:
    """A figure an attribute; one that the profile does not state is a `FigureUnknown`, not a missing attribute.

    Code that asks `getattr(properties, name, default)` would take its default for the GPU's figure otherwise.
    """

    def __init__(self, target: TargetGpu, door: str, same: Mapping[str, Any], figures: Mapping[str, str]) -> None:
        self.__dict__.update(same)
        self.__dict__["_occupancy"] = (target, door, figures)

    def __getattr__(self, name: str) -> Any:
        if name == "_occupancy":  # a copy that is not filled in yet
            raise AttributeError(name)
        target, door, figures = self._occupancy
        if name not in figures:
            raise AttributeError(f"{door} has no {name}")
        return target.tell(figures[name], f"{door}.{name}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._occupancy[2]})

    def __repr__(self) -> str:
        target, door, figures = self._occupancy
        shown = {n: v for n, v in vars(self).items() if n != "_occupancy"}
        shown |= {n: v for n, f in figures.items() if (v := target.figure(f)) is not None}
        return f"<{door} of the target GPU: {', '.join(f'{n}={v!r}' for n, v in shown.items())}>"


def torch_properties(target: TargetGpu) -> Properties:
    """What `torch.cuda.get_device_properties` returns."""
    major, minor = target.capability
    same = {"major": major, "minor": minor, "warp_size": WARP_SIZE}
    figures = {s.torch: s.figure for s in SPELLINGS if s.torch} | dict.fromkeys(_TORCH_NEVER_KNOWN, "board")
    return Properties(
        target, "torch.cuda.get_device_properties()", same, figures | {"name": "name", "gcnArchName": "name"}
    )


def runtime_properties(target: TargetGpu) -> Properties:
    """What `cudaGetDeviceProperties` of cuda-python returns."""
    major, minor = target.capability
    same = {"major": major, "minor": minor, "warpSize": WARP_SIZE, "name": target.tell("name", "its name").encode()}
    figures = {s.runtime: s.figure for s in SPELLINGS if s.runtime} | dict.fromkeys(_RUNTIME_NEVER_KNOWN, "board")
    return Properties(target, "cudaGetDeviceProperties()", same, figures)


class DriverProperties(Mapping[str, Any]):
    """What `get_device_properties` of Triton's driver returns; it lists the names of what is known."""

    _FIGURES: Mapping[str, str] = {s.driver: s.figure for s in SPELLINGS if s.driver}

    def __init__(self, target: TargetGpu) -> None:
        self._target = target

    def __getitem__(self, name: str) -> Any:
        if name == "warpSize":
            return WARP_SIZE
        return self._target.tell(self._FIGURES[name], f"triton's get_device_properties()[{name!r}]")

    def __iter__(self) -> Iterator[str]:
        yield "warpSize"
        yield from (name for name, figure in self._FIGURES.items() if self._target.figure(figure) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_MAJOR, _MINOR, _WARP_SIZE = 75, 76, 10
_FIXED = {"WARP_SIZE": _WARP_SIZE, "COMPUTE_CAPABILITY_MAJOR": _MAJOR, "COMPUTE_CAPABILITY_MINOR": _MINOR}
_NUMBERS = {s.attribute: s.number for s in SPELLINGS if s.attribute} | _FIXED
_FIGURE_OF = {s.number: s for s in SPELLINGS if s.attribute}
_RUNTIME_SPELLS = {  # the others are the driver's names in camel case
    "MULTIPROCESSOR_COUNT": "MultiProcessorCount",
    "MAX_THREADS_PER_MULTIPROCESSOR": "MaxThreadsPerMultiProcessor",
}


def _runtime_attribute(name: str) -> str:
    return "cudaDevAttr" + (_RUNTIME_SPELLS.get(name) or "".join(part.title() for part in name.split("_")))


CUdevice_attribute = enum.IntEnum(  # type: ignore[misc]
    "CUdevice_attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": number for name, number in _NUMBERS.items()}
)
"""The attributes that a profile may know, in the place of cuda-python's own class where that is not installed."""

cudaDeviceAttr = enum.IntEnum(  # type: ignore[misc]
    "cudaDeviceAttr", {_runtime_attribute(name): number for name, number in _NUMBERS.items()}
)
"""The same by the runtime's names."""


def attribute(target: TargetGpu, asked: Any, question: str) -> int:
    """The value of an attribute, by number or enum member; `question` is the function that asks."""
    number = int(getattr(asked, "value", asked))
    if number in (_MAJOR, _MINOR):
        return target.capability[number - _MAJOR]
    if number == _WARP_SIZE:
        return WARP_SIZE
    named = getattr(asked, "name", number)
    if number not in _FIGURE_OF:
        target.figure(f"attribute {number}")
        raise unknown(f"{question}({named})")
    return int(target.tell(_FIGURE_OF[number].figure, f"{question}({named})"))
