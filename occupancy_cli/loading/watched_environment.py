"""Reads of `os.environ`, `os.environb` and `posix.environ`: one variable, or all of them.

The environment counts whoever reads it, but for where things lie on a machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from occupancy_cli.loading.outside_callers import cause
from occupancy_cli.loading.outside_facts import TOOL_VARIABLES
from occupancy_cli.loading.outside_recordings import active, counts, given, looking, note

# Where things lie on a machine: what Triton, PyTorch and Python read of it decides no result. What a kernel reads does.
_MACHINE_VARIABLES = frozenset(
    {"HOME", "PATH", "PWD", "PYTHONPATH", "LANG", "TERM", "USER", "LOGNAME", "TRITON_HOME", "COLUMNS", "LINES"}
)


def watch_environment() -> None:
    """Reads of `os.environ` and `os.environb`, one variable or all of them."""
    cls: Any = type(os.environ)
    read, delete = cls.__getitem__, cls.__delitem__

    def tell(name: Any, frame: FrameType) -> None:
        if not active or getattr(looking, "on", False):
            return
        text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
        if not text or text in TOOL_VARIABLES:
            return
        recordings = list(active)
        if cause(frame) is None and (text in _MACHINE_VARIABLES or _hands_on(frame)):
            return
        note("variable", text, recordings)

    def getitem(self: Any, name: Any) -> Any:
        tell(name, sys._getframe(1))
        return read(self, name)

    def whole(original: Callable[..., Any]) -> Callable[..., Any]:
        def every(self: Any, *args: Any) -> Any:
            frame = sys._getframe(1)
            if recordings := counts(frame):
                note("variables", "", recordings)
                if original.__name__ not in ("__iter__", "__len__"):
                    for name in list(given):
                        tell(name, frame)
            return original(self, *args)

        return every

    def delitem(self: Any, name: Any) -> None:
        tell(name, sys._getframe(1))  # whether it fails tells whether it was there
        delete(self, name)

    cls.__getitem__, cls.__delitem__ = getitem, delitem
    for name in ("__iter__", "__len__", "copy", "__repr__", "__or__", "__ror__"):
        if name in vars(cls):
            setattr(cls, name, whole(vars(cls)[name]))
    for environ in (os.environ, getattr(os, "environb", None)):
        if environ is None:
            continue
        data = vars(environ).pop("_data")
        _raw_data[id(environ)] = data

    def raw(self: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_globals.get("__name__") != "os" and (recordings := counts(frame)):
            note("variables", "", recordings)
            for name in list(given):
                tell(name, frame)
        return _raw_data[id(self)]

    cls._data = property(raw, lambda self, data: _raw_data.__setitem__(id(self), data))
    system = sys.modules["posix"]
    if hasattr(system, "environ"):
        system.environ = _RawEnvironment(system.environ, tell)  # type: ignore[attr-defined]


_raw_data: dict[int, Any] = {}


class _RawEnvironment(dict[Any, Any]):
    """`posix.environ`, as the process was started with: any look at it is a look at all of it."""

    def __init__(self, values: Any, tell: Callable[[Any, FrameType], None]) -> None:
        super().__init__(values)
        self._tell = tell

    def _look(self, frame: FrameType) -> None:
        if recordings := counts(frame):
            note("variables", "", recordings)
            for name in list(given):
                self._tell(name, frame)

    def __getitem__(self, name: Any) -> Any:
        self._look(sys._getframe(1))
        return super().__getitem__(name)

    def __iter__(self) -> Any:
        self._look(sys._getframe(1))
        return super().__iter__()

    def __len__(self) -> int:
        self._look(sys._getframe(1))
        return super().__len__()

    def __contains__(self, name: object) -> bool:
        self._look(sys._getframe(1))
        return super().__contains__(name)

    def get(self, name: Any, default: Any = None) -> Any:
        self._look(sys._getframe(1))
        return super().get(name, default)

    def keys(self) -> Any:
        self._look(sys._getframe(1))
        return super().keys()

    def items(self) -> Any:
        self._look(sys._getframe(1))
        return super().items()

    def values(self) -> Any:
        self._look(sys._getframe(1))
        return super().values()

    def copy(self) -> Any:
        self._look(sys._getframe(1))
        return super().copy()


def _hands_on(frame: FrameType | None) -> bool:
    """Whether the environment is read to be handed to a child process (ptxas), whose shell level and last command
    change from run to run."""
    while frame is not None:
        if frame.f_code.co_name in ("_execute_child", "_posix_spawn") and "subprocess" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
