"""What goes to a worker process and what comes back: one dataclass a message, as `typed_json` writes them.

A message is an object with one key, the name of its class, and the value under it. An answer says what it answers (a
request's key, a source), and is checked against what was asked before anything else believes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from occupancy_cli.compile.kernel_record import ConfigValue, Dependencies, KernelDescription, KernelRecord
from occupancy_cli.compile.request import CompileRequest, KernelSource, Kind, Target
from occupancy_cli.compile.typed_json import WrongData, from_plain, to_plain


@dataclass(frozen=True)
class Warm:
    """Import the compiler, since a request will come."""


@dataclass(frozen=True)
class AskHealth:
    """Say what of the toolchain is there."""

    arch: int


@dataclass(frozen=True)
class Describe:
    """Say what a kernel's source says of itself."""

    source: KernelSource
    target: Target


@dataclass(frozen=True)
class Prune:
    """Say which autotune configs `prune_configs_by` leaves for a launch."""

    request: CompileRequest


@dataclass(frozen=True)
class Compile:
    """Compile a launch; with `keep_in`, a folder, leave the binary there."""

    request: CompileRequest
    keep_in: str | None = None


Request = Warm | AskHealth | Describe | Prune | Compile


@dataclass(frozen=True)
class Seen:
    """What a result came from: `refusals` says why it cannot be kept, `written` what the kernel itself wrote, `changed`
    what was no longer as it had been read when the result was done, `made_by` the Triton that made it."""

    depends_on: Dependencies
    refusals: tuple[str, ...]
    written: tuple[str, ...]
    changed: str | None
    made_by: str


@dataclass(frozen=True)
class Warmed:
    """The compiler is imported."""


@dataclass(frozen=True)
class Health:
    """What of the toolchain is there: versions, folders, and the internals of Triton that are not."""

    triton: str
    ptxas: str
    missing_internals: tuple[str, ...]
    path: str
    tools: str
    supported: bool


@dataclass(frozen=True)
class Described:
    """The answer to `Describe`."""

    source: KernelSource
    arch: int
    description: KernelDescription
    seen: Seen


@dataclass(frozen=True)
class Pruned:
    """The answer to `Prune`; `key` is the request's."""

    key: str
    configs: tuple[Mapping[str, ConfigValue], ...]
    seen: Seen


@dataclass(frozen=True)
class Binary:
    """A cubin's file, and the name of the kernel in it."""

    file: str
    name: str


@dataclass(frozen=True)
class Compiled:
    """The answer to `Compile`; `key` and `arch` are the request's, `output` is what was printed."""

    key: str
    arch: int
    record: KernelRecord
    seen: Seen
    binary: Binary | None = None


@dataclass(frozen=True)
class Failed:
    """A request without a result: its kind, and one sentence why. `output` is what the compiler or Python said."""

    kind: Kind
    message: str
    where: str = ""
    hint: str = ""
    output: str = ""


Answer = Warmed | Health | Described | Pruned | Compiled | Failed
_REQUESTS: dict[str, type[Any]] = {c.__name__: c for c in (Warm, AskHealth, Describe, Prune, Compile)}
_ANSWERS: dict[str, type[Any]] = {c.__name__: c for c in (Warmed, Health, Described, Pruned, Compiled, Failed)}


def message_text(message: Request | Answer) -> str:
    """A message as one line of JSON."""
    return json.dumps({type(message).__name__: to_plain(message)})


def request_of(text: str) -> Request:
    """The request that `message_text` wrote; `WrongData` when it is none."""
    found: Request = _read(text, _REQUESTS)
    return found


def answer_of(text: str) -> Answer:
    """The answer that `message_text` wrote; `WrongData` when it is none, or has a part that cannot be read."""
    found: Answer = _read(text, _ANSWERS)
    if isinstance(found, Compiled):
        for times in found.record.times.values():
            times.read()
        if found.record.explanation is not None:
            found.record.explanation.read()
    return found


def _read(text: str, kinds: Mapping[str, type[Any]]) -> Any:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise WrongData(f"is no JSON: {bad}") from bad
    if not isinstance(data, dict) or len(data) != 1:
        raise WrongData("is no message")
    name, value = next(iter(data.items()))
    if name not in kinds:
        raise WrongData(f"{name!r} is no known message")
    return from_plain(kinds[name], value, name)


def answers(request: Request, answer: Answer) -> bool:
    """Whether an answer is one to this request."""
    if isinstance(answer, Failed):
        return True
    if isinstance(request, Describe):
        same = isinstance(answer, Described) and (answer.source, answer.arch) == (request.source, request.target.arch)
    elif isinstance(request, Prune):
        same = isinstance(answer, Pruned) and answer.key == request.request.key()
    elif isinstance(request, Compile):
        asked = request.request
        same = isinstance(answer, Compiled) and (answer.key, answer.arch) == (asked.key(), asked.target.arch)
        if same and isinstance(answer, Compiled):
            wanted = set() if asked.time_on is None else {asked.time_on.digest}
            same = set(answer.record.times) <= wanted and (answer.binary is None or request.keep_in is not None)
            same = same and (answer.record.explanation is None or asked.explain)
    else:
        same = isinstance(answer, Warmed if isinstance(request, Warm) else Health)
    return same


def kernel_of(request: Request) -> str:
    """The kernel that a request is about, for a reason; empty for none."""
    if isinstance(request, Describe):
        return str(request.source)
    return str(request.request.source) if isinstance(request, (Prune, Compile)) else ""
