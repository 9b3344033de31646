"""What a compile yields, as worker messages, the result cache and answers have it: one definition for all of them.

A `KernelRecord` is what is known of one compiled kernel, whoever asked; a `KernelDescription` what its source says of
itself. Both are kept by the result cache under what they depend on (`Dependencies`). Times are read from the compiled
text (`compile.simulated_timing`) for one GPU each, under a name for everything of that GPU that a time depends on
(`digest_of`); they stay text until they are wanted, since most runs ask for none and reading one takes numpy.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.typed_json import from_json
from occupancy_cli.loading.outside_facts import Fact
from occupancy_cli.model.resources import KernelResources

if TYPE_CHECKING:
    from occupancy_cli.compile.kernel_explanation import KernelExplanation
    from occupancy_cli.compile.kernel_times import KernelTimes
    from occupancy_cli.gpu.profiles import GpuProfile

MODEL_VERSION = 8
"""Raise it when the readers or the simulation change what they say of the same text: kept timings are then redone."""

EXPLANATION_VERSION = 4
"""Raise it when what an explanation holds changes: kept ones are then made anew when `explain` asks for them."""

ConfigValue = int | float | str | bool | None


@dataclass(frozen=True)
class Dependencies:
    """What a result was made from: facts of the outside, and what the kernel asked its GPU beyond the architecture."""

    facts: tuple[Fact, ...]
    device: tuple[tuple[str, ConfigValue], ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel. `default` is None without one, and the default's own text where that is no number.

    `read` says whether the kernel's body has its name at all.
    """

    name: str
    constexpr: bool
    annotation: str
    default: ConfigValue
    has_default: bool
    specializes: bool
    read: bool = True


@dataclass(frozen=True)
class Autotune:
    """What an @triton.autotune says: its configs by name and value, what it is keyed by, whether it prunes.

    `places` has the file and line that made each config, an empty file where that is not the kernel's side.
    """

    configs: tuple[Mapping[str, ConfigValue], ...]
    key: tuple[str, ...]
    prunes: bool
    restore_value: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class KernelDescription:
    """A kernel's signature and what decorates it; `heuristics` are the names that @triton.heuristics sets."""

    name: str
    params: tuple[Parameter, ...]
    autotune: Autotune | None
    heuristics: tuple[str, ...]
    source_files: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()

    @property
    def constexprs(self) -> tuple[str, ...]:
        """Names of the constexpr parameters."""
        return tuple(p.name for p in self.params if p.constexpr)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the other parameters."""
        return tuple(p.name for p in self.params if not p.constexpr)


@dataclass(frozen=True)
class KeptTimes:
    """A `KernelTimes` as text."""

    text: str

    def read(self) -> KernelTimes:
        """The times, read once."""
        return self._times

    @functools.cached_property
    def _times(self) -> KernelTimes:
        from occupancy_cli.compile.kernel_times import KernelTimes

        return from_json(KernelTimes, self.text)


@dataclass(frozen=True)
class KeptExplanation:
    """A `KernelExplanation` as text, with the version of the readers that made it."""

    text: str
    version: int = 0

    def read(self) -> KernelExplanation:
        """The explanation, read once."""
        return self._explanation

    @functools.cached_property
    def _explanation(self) -> KernelExplanation:
        from occupancy_cli.compile.kernel_explanation import KernelExplanation

        return from_json(KernelExplanation, self.text)


@dataclass(frozen=True)
class KernelRecord:
    """What one compile yields.

    `notes` says what was not as asked (a full compile where the short one is not possible), `toolchain` pairs triton
    and ptxas with their versions, `times` has the kernel's times by `digest_of` a GPU, `compile_seconds` is how long
    the compile took, `explanation` where the resources go, of a compile that was asked for it.
    """

    resources: KernelResources
    notes: tuple[str, ...] = ()
    toolchain: tuple[tuple[str, str], ...] = ()
    times: Mapping[str, KeptTimes] = field(default_factory=dict)
    compile_seconds: float = 0.0
    explanation: KeptExplanation | None = None


@functools.lru_cache
def digest_of(gpu: GpuProfile) -> str:
    """A name for everything about `gpu` that a timing depends on, and for the version of the model."""
    fields: dict[str, Any] = {f.name: repr(getattr(gpu, f.name)) for f in dataclasses.fields(gpu) if f.compare}
    return hashlib.sha256(repr((MODEL_VERSION, sorted(fields.items()))).encode()).hexdigest()[:24]
