"""What tunes the kernels of a file or package, as its source says it, and a spec drawn up from it: `knobs` and `init`.

    Environment variable  Default     Used as  Read at
    MY_SPLITS             '4' ("4")   int      kernel.py:12
    built, kernel.py:30
      constexprs  BLOCK
      autotune    3 configs: BLOCK 16, 32; num_warps 4; num_stages 1, 2

Expressions are strings of Python source; paths are relative to `root`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from occupancy_cli.report.part_values import Scalar


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariable:
    """One variable and every place that reads it. `literal` is False when `name` is an expression, not a name."""

    name: str
    reads: list[EnvironmentRead]
    literal: bool = True
    beside_kernels: bool = False
    """Whether a file with kernels or launches reads it."""
    defaults: list[str] = field(default_factory=list)
    used_as: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a kernel; `default` as written, None without one."""

    name: str
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class Autotune:
    """An autotuner on a kernel.

    `configs` are what reading the source gives: constexprs and launch options by name; a value that is not computable
    is its source text. None when the list as a whole is not: `why_unknown` says why, `names` has the definitions that
    `source` refers to. `assumes` names environment variables (with their defaults) that the list was computed for.
    """

    decorator: str
    source: str
    key: list[str] = field(default_factory=list)
    configs: list[dict[str, Scalar]] | None = None
    why_unknown: str = ""
    names: dict[str, str] = field(default_factory=dict)
    assumes: dict[str, str] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    """prune_configs_by, restore_value, reset_to_zero and the like, as written."""


@dataclass(frozen=True, kw_only=True)
class KernelKnobs:
    """A JIT function: its parameters and what decorates it. `role` is "kernel" or "helper"."""

    name: str
    place: Place
    role: str
    arguments: list[Parameter]
    constexprs: list[Parameter]
    autotune: Autotune | None = None
    heuristics: list[str] = field(default_factory=list)
    heuristics_source: str = ""
    jit_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Where a name used at a launch gets its value, as written."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """One `kernel[grid](...)`.

    `kernels` are the JIT functions it may mean. `options` and `constexprs` are keyword arguments as written;
    `definitions` holds, for every plain name among those and the grid, what it was assigned before the launch.
    """

    kernel: str
    kernels: list[str]
    place: Place
    function: str
    grid: str
    options: dict[str, str]
    constexprs: dict[str, str]
    definitions: dict[str, list[Definition]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SplitExpression:
    """An expression that decides how many splits a launch has."""

    name: str
    text: str
    place: Place
    function: str


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A file that could not be read or parsed."""

    file: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Everything found under `root`. Paths are relative to it (to its folder, when it is a file)."""

    root: str
    files: int
    skipped: list[SkippedFile]
    environment: list[EnvironmentVariable]
    kernels: list[KernelKnobs]
    launches: list[LaunchSite]
    splits: list[SplitExpression]


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """A spec that `init` drew up. `path` is the file written (null: none, `text` is to be printed); `guessed`
    names the places whose values the source does not say, and `to_fill` those that are left to a person.
    """

    path: str | None
    text: str = field(metadata={"prose": True})
    to_fill: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
