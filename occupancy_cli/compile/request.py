"""What is asked of a compile and what comes back, as plain data that crosses process borders.

A request names one launch: a kernel, its arguments with values, its constexprs and launch options, a target. Its
`key` does not hold integer values but their specialization class (`integer_class`), so that every launch of one class
is one compile. The class is deliberately finer than Triton's own: two values of one class always specialize alike in
every supported Triton (a test asks Triton itself), while Triton may treat two classes the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from occupancy_cli.compile.kernel_record import ConfigValue, KeptExplanation, KeptTimes
from occupancy_cli.loading.target_gpu import TargetGpu
from occupancy_cli.model.resources import KernelResources

Target = TargetGpu
"""What is compiled for, with what kernels may ask of it."""

Kind = Literal[
    "over_memory", "timeout", "crash", "import", "compile", "input", "ptxas", "version", "interrupted", "launch"
]


@dataclass(frozen=True)
class KernelSource:
    """Where a kernel is: a file or a module, and the name in it."""

    kernel: str
    file: str | None = None
    module: str | None = None

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.kernel}"


@dataclass(frozen=True)
class ArgumentValue:
    """One run-time argument: its type, a value where it has one, the alignment of a pointer.

    `heuristic` marks a value that @triton.heuristics computes; the worker checks that it comes to the same.
    `specializes` is False for a parameter of `do_not_specialize`: its value then matters by its width alone.
    """

    name: str
    type: str
    value: int | float | bool | None = None
    align: int = 16
    heuristic: bool = False
    specializes: bool = True


@dataclass(frozen=True)
class TimeOn:
    """A GPU on which the compiled kernel's time is wanted too: its profile's id, and the name of all that it says."""

    gpu: str
    digest: str
    profile_dirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileRequest:
    """One launch to compile.

    The compile ends with shared memory, before LLVM and ptxas, when that is more than `stop_above` bytes (-1: always,
    None: never): registers and spills of a config that cannot launch cost most of a compile and say nothing.
    `explain`: where its shared memory and registers go is wanted too.
    """

    source: KernelSource
    target: Target
    arguments: tuple[ArgumentValue, ...]
    constexprs: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, ConfigValue], ...]
    stop_above: int | None = None
    exact_values: bool = False
    time_on: TimeOn | None = None
    explain: bool = False

    def identity(self) -> dict[str, Any]:
        """What decides the binary, beside the sources and the toolchain."""
        return {
            "source": asdict(self.source),
            "arch": self.target.arch,
            "arguments": [
                (a.name, a.type, specialization_class(a, exact=self.exact_values), a.heuristic) for a in self.arguments
            ],
            "constexprs": [(name, repr(value)) for name, value in self.constexprs],
            "options": list(self.options),
        }

    def identity_text(self) -> str:
        """`identity` as text, worked out once."""
        return self._identity_text

    @functools.cached_property
    def _identity_text(self) -> str:
        return json.dumps(self.identity(), sort_keys=True)

    def key(self) -> str:
        """A hash of `identity`: equal keys are one compile."""
        return self._key

    @functools.cached_property
    def _key(self) -> str:
        return hashlib.sha256(self.identity_text().encode()).hexdigest()


def specialization_class(argument: ArgumentValue, *, exact: bool = False) -> str:
    """A text that two arguments share only if Triton specializes them alike."""
    value = argument.value
    if argument.type.startswith("*"):
        return f"align{min(argument.align, 16)}"
    if value is None or exact or isinstance(value, bool):
        return repr(value)
    if isinstance(value, float):
        return "float"
    return integer_class(value) if argument.specializes else integer_class(value)[:3]


def integer_class(value: int) -> str:
    """The specialization class of an integer: its width in bits, whether it is 0, 1 or a multiple of 16, its sign."""
    width = "i32" if -(2**31) <= value < 2**31 else ("i64" if value < 2**63 else "u64")
    if value in (0, 1):
        return f"{width}={value}"
    return f"{width}{'-' if value < 0 else ''}{'%16' if value % 16 == 0 else ''}"


@dataclass(frozen=True)
class CompileOutcome:
    """What came of one request: resources, or why there are none.

    `message` is one sentence, `output` what the compiler printed. `notes` says what was not as asked (a full compile
    where the short one is not possible). `toolchain` has triton and ptxas versions, `times` the kernel's times by
    `digest_of` a GPU, `explanation` where its resources go, where that was asked for. `binary` is the file of the cubin
    and the kernel's name in it, where the compile was asked to keep it.
    """

    resources: KernelResources | None
    kind: Kind | None = None
    message: str = ""
    output: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    toolchain: tuple[tuple[str, str], ...] = ()
    times: Mapping[str, KeptTimes] = field(default_factory=dict)
    explanation: KeptExplanation | None = None
    cached: bool = False
    binary: tuple[str, str] | None = None

    @property
    def ok(self) -> bool:
        """Whether there are resources."""
        return self.resources is not None
