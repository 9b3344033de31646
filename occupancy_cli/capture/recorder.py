"""Takes launches down: one line of JSON for every kernel, kernel snapshot and distinct launch, as they happen.

Two launches are the same when Triton would specialize them alike, and their integers and grids are equal; the second
is only counted. So are, after the first few, launches that differ in their integers alone: a counter that goes up with
every step changes neither the binary nor the grid. What is on disk stays there if the script's process dies, and a
forked child of it writes to the same file. The format is read by
`occupancy_cli.capture.captured_spec`.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from occupancy_cli.capture.kernel_snapshot import CannotSnapshot, Snapshot, is_jit_callable, line_of, literal, snapshot
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS

FLUSH_COUNTS_AFTER_S = 1.0
MOST_VALUES = 4  # launches kept that differ in the values of integers alone
# Options that say how the compiler is watched or where it lies, not what the launch is.
_NOT_OPTIONS = frozenset({"arch", "backend_name", "extern_libs", "debug", "instrumentation_mode", "ir_override"})


@dataclass(frozen=True)
class Tuned:
    """The autotuner's part in a launch: the names it sets, whether pruning left this config, how many there are."""

    names: tuple[str, ...]
    kept: bool
    configs: int


@dataclass(frozen=True)
class Bound:
    """A launch as Triton's own binder made it: its arguments by name, their types and hints, its options as given."""

    jit: JITFunction
    arguments: Mapping[str, Any]
    specialization: Sequence[Any]
    options: Mapping[str, Any]
    backend: Any


@dataclass
class _State(threading.local):
    """What the current thread is doing."""

    tuned: list[Tuned] = field(default_factory=list)
    dry: int = 0
    in_launch: int = 0
    benchmark: bool = False
    last_is_new: bool = False


class Recorder:
    """Writes to the open file descriptor `fd`; at most `most_per_kernel` distinct launches of a kernel are kept."""

    def __init__(self, fd: int, most_per_kernel: int) -> None:
        self._fd = fd
        self._most = most_per_kernel
        self._lock = threading.RLock()
        self._kernels: dict[int, int] = {}
        self._alive: list[Any] = []
        self._snapshots: dict[Any, tuple[int | None, str]] = {}
        self._launches: dict[Any, int] = {}
        self._alike: dict[Any, list[int]] = {}
        self._other_values: dict[int, int] = {}
        self._per_kernel: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._not_kept: dict[int, int] = {}
        self._noted: set[str] = set()
        self._flushed = time.monotonic()
        self._pid = os.getpid()
        self._next = 0
        self.state = _State()

    # --- writing ---

    def event(self, event: str, **values: Any) -> None:
        """Append one record."""
        line = json.dumps({"event": event, "pid": os.getpid(), **values}, default=repr) + "\n"
        os.write(self._fd, line.encode())

    def note(self, text: str) -> None:
        """Say something about the capture, once."""
        if text not in self._noted:
            self._noted.add(text)
            self.event("note", text=text)

    def flush(self) -> None:
        """Write the counts as they stand."""
        with self._lock:
            self._forked()
            self._flushed = time.monotonic()
            self.event("counts", counts=self._counts, not_kept=self._not_kept, other_values=self._other_values)

    def _id(self) -> int:
        self._next += 1
        return self._next

    def _forked(self) -> None:
        """In a forked child, what the parent counted is the parent's; its records keep their numbers."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._counts, self._not_kept, self._other_values = {}, {}, {}
            self._next = max(self._next, 1) + (os.getpid() << 24)

    # --- what the current thread is doing ---

    @contextlib.contextmanager
    def tuning(self, tuned: Tuned) -> Iterator[None]:
        """Launches in here are made by an autotuner."""
        self.state.tuned.append(tuned)
        try:
            yield
        finally:
            self.state.tuned.pop()

    @contextlib.contextmanager
    def dry(self) -> Iterator[None]:
        """Launches in here are candidates: written down, not carried out."""
        self.state.dry += 1
        try:
            yield
        finally:
            self.state.dry -= 1

    # --- launches ---

    def launch(
        self,
        bound: Bound,
        grid: Sequence[Any] | None,
        error: str = "",
        *,
        axes_text: Callable[[Mapping[str, Any]], Sequence[str | None]] | None = None,
        candidate: bool = False,
    ) -> None:
        """One launch. `grid` None: compiled, not launched.

        A `candidate` is a launch that an autotuner would make, or made to try it. `axes_text` tells how the grid comes
        from the arguments; it is asked about new launches only.
        """
        axes = None if grid is None else tuple(_integer(axis) for axis in grid)
        numbers = tuple(v for v in bound.arguments.values() if isinstance(v, int) and not isinstance(v, bool))
        options = str(sorted(bound.options.items(), key=str))
        alike = (id(bound.jit), str(bound.specialization), axes, options, candidate)
        key = (alike, numbers)
        with self._lock:
            self._forked()
            known = self._launches.get(key)
            self.state.last_is_new = known is None
            if known is None:
                known = self._new_launch(bound, axes, error, axes_text, alike)
                if known is None:
                    self.state.last_is_new = False
                    self._flush_now_and_then()
                    return
                self._launches[key] = known
            if not candidate:
                self._counts[known] = self._counts.get(known, 0) + 1
                self._flush_now_and_then()

    def _new_launch(
        self,
        bound: Bound,
        axes: tuple[int | None, ...] | None,
        error: str,
        axes_text: Callable[[Mapping[str, Any]], Sequence[str | None]] | None,
        alike: tuple[Any, ...],
    ) -> int | None:
        """Write a launch down; its number, that of one like it, or None when there are too many of its kernel."""
        kernel = self._kernel(bound.jit)
        candidate = bool(alike[-1])
        others = self._alike.setdefault(alike, [])
        if len(others) >= MOST_VALUES:
            self.state.last_is_new = False
            if not candidate:
                self._other_values[others[0]] = self._other_values.get(others[0], 0) + 1
            return others[0]
        if not candidate:
            if self._per_kernel.get(kernel, 0) >= self._most:
                self._not_kept[kernel] = self._not_kept.get(kernel, 0) + 1
                return None
            self._per_kernel[kernel] = self._per_kernel.get(kernel, 0) + 1
        number = self._id()
        others.append(number)
        self.event(
            "launch",
            id=number,
            kernel=kernel,
            candidate=candidate,
            grid=axes,
            grid_text=list(axes_text(bound.arguments)) if axes_text is not None else [],
            error=error,
            tuned=self._tuned(),
            **self._described(bound),
        )
        return number

    def failed_config(self, jit: JITFunction, config: Mapping[str, Any], why: BaseException) -> None:
        """A config that the autotuner has but whose launch cannot even be prepared."""
        with self._lock:
            failed = {"kernel": self._kernel(jit), "config": _plain_config(config)}
            key = repr(failed)
            if key not in self._noted:
                self._noted.add(key)
                self.event("failed_config", **failed, reason=f"{type(why).__name__}: {why}"[:500])

    def _flush_now_and_then(self) -> None:
        if time.monotonic() - self._flushed > FLUSH_COUNTS_AFTER_S:
            self.flush()

    def _tuned(self) -> dict[str, Any] | None:
        if not self.state.tuned:
            return None
        return {
            "names": sorted({name for one in self.state.tuned for name in one.names}),
            "kept": all(one.kept for one in self.state.tuned),
            "configs": self.state.tuned[-1].configs,
        }

    def _kernel(self, jit: JITFunction) -> int:
        known = self._kernels.get(id(jit))
        if known is None:
            known = self._kernels[id(jit)] = self._id()
            self._alive.append(jit)
            self.event(
                "kernel",
                id=known,
                name=jit.fn.__name__,
                qualname=jit.fn.__qualname__,
                module=jit.fn.__module__,
                file=os.path.abspath(jit.fn.__code__.co_filename),  # noqa: PTH100 (resolving links would rename it)
                line=line_of(jit),
                reference=_reference(jit),
            )
        return known

    def _described(self, bound: Bound) -> dict[str, Any]:
        arguments: list[dict[str, Any]] = []
        constexprs: dict[str, Any] = {}
        baked: dict[str, Any] = {}
        unsupported: list[str] = []
        for param, (kind, _hint) in zip(bound.jit.params, _pairs(bound.specialization), strict=False):
            value = bound.arguments[param.name]
            if param.is_constexpr or (kind == "constexpr" and _is_compile_time(value)):
                _constexpr(param.name, value, constexprs, baked, unsupported)
            else:
                argument, why = _argument(param.name, kind, value)
                arguments.append(argument)
                if why:
                    unsupported.append(why)
        number, trouble = self._snapshot(bound.jit, baked) if not unsupported else (None, "")
        return {
            "snapshot": number,
            "snapshot_error": trouble,
            "arguments": arguments,
            "constexprs": constexprs,
            "options": _options(bound.options, bound.backend),
            "unsupported": unsupported,
        }

    def _snapshot(self, jit: JITFunction, baked: Mapping[str, Any]) -> tuple[int | None, str]:
        key = (id(jit), tuple(sorted((n, literal(v) or str(id(v))) for n, v in baked.items())))
        if key not in self._snapshots:
            self._alive += list(baked.values())
            try:
                taken: Snapshot = snapshot(jit, baked)
                number = self._id()
                self.event(
                    "snapshot",
                    id=number,
                    text=taken.text,
                    kernel=taken.kernel,
                    baked=dict(taken.baked),
                    left_out=list(taken.left_out),
                    imports=list(taken.imports),
                    removed=list(taken.removed),
                )
                self._snapshots[key] = (number, "")
            except (CannotSnapshot, SyntaxError, RecursionError) as why:
                self._snapshots[key] = (None, str(why) or type(why).__name__)
        return self._snapshots[key]


def _reference(jit: JITFunction) -> str:
    """`module:name` under which the function can be imported, through its decorators; empty where it cannot."""
    module, name = jit.fn.__module__, jit.fn.__qualname__
    if module == "__main__" or "<" in name:
        return ""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    while found is not None and found is not jit:
        found, name = getattr(found, "fn", None), f"{name}.fn"
    return f"{module}:{name}" if found is jit else ""


def _pairs(specialization: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Type and hint of each parameter, as Triton's binder gives them (one more text may follow, of a pass pipeline)."""
    return [(one[0], one[1] if len(one) > 1 else None) for one in specialization if isinstance(one, (tuple, list))]


def _is_compile_time(value: Any) -> bool:
    """Whether a value passed for a run-time parameter is nevertheless one of compile time, such as a function."""
    return isinstance(value, (tl.constexpr, tl.dtype)) or is_jit_callable(value)


def _constexpr(
    name: str, value: Any, constexprs: dict[str, Any], baked: dict[str, Any], unsupported: list[str]
) -> None:
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None or isinstance(value, (bool, str)):
        constexprs[name] = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        constexprs[name] = int(value)
    elif isinstance(value, float) and math.isfinite(value):
        constexprs[name] = float(value)
    elif literal(value) is not None or is_jit_callable(value):
        baked[name] = value
    elif is_jit_callable(getattr(value, "fn", None)):
        baked[name] = value.fn
    else:
        with contextlib.suppress(TypeError):
            constexprs[name] = operator.index(value)  # an integer of another library, such as numpy.int64
            return
        kind = type(value)
        unsupported.append(f"the constexpr {name} is a {kind.__module__}.{kind.__name__}, which no spec can carry")


def _argument(name: str, kind: Any, value: Any) -> tuple[dict[str, Any], str]:
    """One run-time argument, and why a spec cannot carry it."""
    if value is None:
        return {"name": name, "type": "none"}, ""
    if not isinstance(kind, str):
        return {"name": name, "type": str(kind)}, f"the argument {name} is a tuple, {kind}, which no spec can carry"
    if kind == "constexpr":  # an integer equal to 1, which Triton turns into a constant
        return {"name": name, "type": "i32", "value": 1}, ""
    if kind.startswith("*"):
        element = kind.lstrip("*").removeprefix("k")
        return {
            "name": name,
            "type": "*" * kind.count("*") + ("i1" if element == "u1" else element),
            "align": _alignment(value),
        }, ""
    if kind.startswith("tensordesc<"):
        return {"name": name, "type": kind}, ""
    if kind in ("u1", "i1"):
        return {"name": name, "type": "i1", "value": bool(value)}, ""
    if kind[:1] in "iu" and kind[1:].isdigit():
        number = _integer(value)
        if number is None:
            return {"name": name, "type": kind}, f"the argument {name} is no number: {type(value).__name__}"
        if not -(2**63) <= number < 2**63:
            return {"name": name, "type": kind}, f"the argument {name} is {number}, more than 63 bits"
        return {"name": name, "type": kind, "value": number}, ""
    if kind[:2] in ("fp", "bf"):
        try:
            real = float(value)
        except (TypeError, ValueError):
            real = math.nan
        return {"name": name, "type": kind} | ({"value": real} if math.isfinite(real) else {}), ""
    return {"name": name, "type": kind}, f"the argument {name} has the type {kind}, which no spec can carry"


def _alignment(value: Any) -> int:
    """The largest power of two, up to 16, that divides a pointer's address; Triton asks about 16 alone."""
    pointer = getattr(value, "data_ptr", None)
    address = pointer() if callable(pointer) else 0
    return 16 if address % 16 == 0 else address & -address


def _integer(value: Any) -> int | None:
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return int(value) if float(value).is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None


def _options(given: Mapping[str, Any], backend: Any) -> dict[str, Any]:
    """Launch options as Triton's backend sees them: the four that a spec has, and others that are not the default."""
    parsed = vars(backend.parse_options(dict(given)))
    default = vars(backend.parse_options({}))
    options = {name: parsed.get(name) for name in LAUNCH_OPTIONS if parsed.get(name) is not None}
    for name, value in parsed.items():
        if name not in options and name not in _NOT_OPTIONS and value != default.get(name):
            options[name] = value if isinstance(value, (int, float, str, bool)) else repr(value)
    return options


def _plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v if isinstance(v, (int, float, str, bool)) else repr(v) for n, v in config.items() if v is not None}


def versions() -> dict[str, str]:
    """Triton's version, and torch's where the script loaded it."""
    import platform

    torch = sys.modules.get("torch")
    found = {"triton": triton.__version__, "python": platform.python_version()}
    if torch is not None:
        found["torch"] = str(getattr(torch, "__version__", "unknown"))
    return found
