"""What `source_knobs` finds in source: plain frozen values, with the place of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from occupancy_cli.model.launch_options import LAUNCH_OPTIONS


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class EnvironmentRead:
    """One read of an environment variable.

    `how` is the call as a person would search for it. `default` is the default as written (None: no default) and
    `default_value` what it comes to where reading the source tells; `used_as` is what is made of the text (`int`,
    `flag`), empty when that is not seen.
    """

    place: Place
    how: str
    default: str | None = None
    default_value: int | float | str | None = None
    used_as: str = ""


@dataclass(frozen=True)
class EnvironmentVariable:
    """One variable and every place that reads it. `literal` is False when `name` is an expression, not a name."""

    name: str
    reads: tuple[EnvironmentRead, ...]
    literal: bool = True
    beside_kernels: bool = False
    """Whether a file with kernels or launches reads it."""

    @property
    def defaults(self) -> tuple[str, ...]:
        """The defaults, each once."""
        return tuple(dict.fromkeys(r.default for r in self.reads if r.default is not None))

    @property
    def used_as(self) -> tuple[str, ...]:
        """What is made of its text, each once."""
        return tuple(dict.fromkeys(r.used_as for r in self.reads if r.used_as))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel; `default` as written, None without one."""

    name: str
    default: str | None = None


@dataclass(frozen=True)
class Autotune:
    """An autotuner on a kernel.

    `configs` are what reading the source gives: constexprs and launch options by name; a value that is not computable
    is its source text. None when the list as a whole is not: `why_unknown` says why, `names` has the definitions that
    `source` refers to. `assumes` names environment variables (with their defaults) that the list was computed for.
    """

    decorator: str
    source: str
    key: tuple[str, ...] = ()
    configs: tuple[Mapping[str, Any], ...] | None = None
    why_unknown: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    assumes: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    """prune_configs_by, restore_value, reset_to_zero and the like, as written."""


@dataclass(frozen=True)
class KernelKnobs:
    """A JIT function: its parameters and what decorates it. `role` is "kernel" or "helper"."""

    name: str
    place: Place
    role: str
    arguments: tuple[Parameter, ...]
    constexprs: tuple[Parameter, ...]
    autotune: Autotune | None = None
    heuristics: tuple[str, ...] = ()
    heuristics_source: str = ""
    jit_options: Mapping[str, str] = field(default_factory=dict)
    qualname: str = ""
    """The name to call it by in its module, with the classes around it: `Ops.copy`."""
    function: str = ""
    """The function that it is made of, where that has another name: `scale = triton.jit(_body)`."""


@dataclass(frozen=True)
class Definition:
    """Where a name used at a launch gets its value, as written."""

    line: int
    text: str


@dataclass(frozen=True)
class LaunchSite:
    """One `kernel[grid](...)`.

    `kernels` are the JIT functions it may mean. `options` and `constexprs` are keyword arguments as written;
    `definitions` holds, for every plain name among those and the grid, what it was assigned before the launch.
    """

    kernel: str
    kernels: tuple[str, ...]
    place: Place
    function: str
    grid: str
    options: Mapping[str, str]
    constexprs: Mapping[str, str]
    definitions: Mapping[str, tuple[Definition, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SplitExpression:
    """An expression that decides how many splits a launch has."""

    name: str
    text: str
    place: Place
    function: str


@dataclass(frozen=True)
class SkippedFile:
    """A file that could not be read or parsed."""

    file: str
    why: str


@dataclass(frozen=True)
class SourceKnobs:
    """Everything found under `root`. Paths are relative to it (to its folder, when it is a file)."""

    root: str
    files: int
    skipped: tuple[SkippedFile, ...]
    environment: tuple[EnvironmentVariable, ...]
    kernels: tuple[KernelKnobs, ...]
    launches: tuple[LaunchSite, ...]
    splits: tuple[SplitExpression, ...]


@dataclass(frozen=True)
class NotRead:
    """What the file says of a launch and reading does not give: `name` (empty: whatever it carries), where, and why."""

    name: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class SourceLaunch:
    """One config that the file gives: launch options and constexprs by name, where, and how it was read."""

    values: Mapping[str, Any]
    file: str
    line: int
    how: str
    not_read: tuple[NotRead, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The integers among the arguments that stand there as such."""
    one_of: int = 1
    """How many configs this place gives, where only the run knows which it takes."""

    @property
    def options(self) -> dict[str, Any]:
        """Its launch options."""
        return {n: v for n, v in self.values.items() if n in LAUNCH_OPTIONS}


@dataclass(frozen=True)
class SourceOptions:
    """What a file says of one kernel's launches.

    `decorated` are configs that decorators carry, `launches` those of launch sites. `not_read` is what decorators hold
    beyond that. `bare` names decorators of absent packages that are given nothing. `configs_not_read` says why the list
    of a `triton.autotune` is not known from the source alone. `signature` has the types of arguments where generated
    code states them.
    """

    decorated: tuple[SourceLaunch, ...] = ()
    launches: tuple[SourceLaunch, ...] = ()
    not_read: tuple[NotRead, ...] = ()
    bare: tuple[NotRead, ...] = ()
    configs_not_read: NotRead | None = None
    signature: Mapping[str, str] | None = None
