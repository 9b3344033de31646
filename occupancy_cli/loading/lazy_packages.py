"""Packages whose `__init__` is read, not run: what it would re-export is fetched from where its source says it is from.

The modules of a kernel's package import each other from their files. An `__init__` that imports half a framework is
executed only if reading it does not tell where a name comes from.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.loading.import_facts import exports_of
from occupancy_cli.loading.stand_ins import StandIns
from occupancy_cli.loading.torch_answers import NOT_KNOWN


def line_in(module: ModuleType, bad: BaseException) -> int | None:
    """The line of `module`'s own code at which `bad` ended its loading."""
    file = getattr(module, "__file__", None)
    trace, line = bad.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file and trace.tb_frame.f_code.co_name == "<module>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def sentence(bad: BaseException) -> str:
    """What was raised, in one line."""
    text = (bad.problem if isinstance(bad, InputError) else str(bad)).strip().splitlines()
    return f"{type(bad).__name__}: {text[-1].strip()[:200]}" if text else type(bad).__name__


class LazyLoader(importlib.abc.Loader):
    """A package whose `__init__` is read, and executed only if reading does not tell where a name comes from."""

    def __init__(self, owner: StandIns, origin: Path) -> None:
        self._owner = owner
        self._origin = origin

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        lazy = _LazyPackage(self._owner, module, self._origin)
        module.__getattr__ = lazy.attribute  # type: ignore[method-assign]

    def get_source(self, _name: str) -> str:
        return self._origin.read_text(encoding="utf-8", errors="replace")


class _LazyPackage:
    def __init__(self, owner: StandIns, module: ModuleType, origin: Path) -> None:
        self._owner = owner
        self._module = module
        self._origin = origin
        self._executed = False
        self._asked: set[str] = set()

    def attribute(self, name: str) -> Any:
        """What the package would define as `name`."""
        full = f"{self._module.__name__}.{name}"
        if name in self._asked:  # asked again while it is being looked for: a circle of imports
            raise AttributeError(full)
        self._asked.add(name)
        try:
            return self._find(name)
        finally:
            self._asked.discard(name)

    def _find(self, name: str) -> Any:
        package = self._module.__name__
        exports = exports_of(self._origin)
        if name == "__all__":
            if exports.all is None:
                self._execute()
                return [n for n in vars(self._module) if not n.startswith("_")]
            return list(exports.all)
        if name in exports.constants:
            return exports.constants[name]
        if name in exports.sources:
            level, source, original = exports.sources[name]
            value = self._fetch(level, source, original)
            if value is not NOT_KNOWN:
                setattr(self._module, name, value)
                return value
        if name not in exports.assigned and importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name not in exports.sources and name not in exports.assigned:
            for level, source in exports.stars:
                value = self._fetch(level, source, name)
                if value is not NOT_KNOWN:
                    return value
            if not exports.has_getattr:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
        self._execute()
        if name in vars(self._module):
            return vars(self._module)[name]
        own = self._own_getattr
        if own is not None:
            return own(name)
        if package in self._owner.reasons:
            return self._owner.child(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def _fetch(self, level: int, source: str, name: str) -> Any:
        """`name` of the module that `from source import name` in this package names."""
        base = self._module.__name__.split(".")
        base = base[: len(base) - (level - 1)] if level else []
        dotted = ".".join([*base, *([source] if source else [])])
        if dotted == self._module.__name__:
            try:
                return importlib.import_module(f"{dotted}.{name}")
            except ImportError:
                return NOT_KNOWN
        try:
            return getattr(importlib.import_module(dotted), name)
        except AttributeError:
            pass
        try:
            return importlib.import_module(f"{dotted}.{name}")
        except ImportError:
            return NOT_KNOWN

    _own_getattr: Callable[[str], Any] | None = None

    def _execute(self) -> None:
        """Run the `__init__` after all, in place."""
        if self._executed:
            return
        self._executed = True
        ours = self._module.__dict__.get("__getattr__")
        try:
            code = compile(self._origin.read_bytes(), str(self._origin), "exec", dont_inherit=True)
            exec(code, self._module.__dict__)
        except (Exception, SystemExit) as bad:  # noqa: BLE001 (recorded as the reason)
            line = line_in(self._module, bad)
            at = f" at line {line}" if line else ""
            self._owner.reasons[self._module.__name__] = f"stopped loading{at}: {sentence(bad)}"
        finally:
            found = self._module.__dict__.get("__getattr__")
            if found is not ours:
                self._own_getattr = found
            if ours is not None:
                self._module.__getattr__ = ours  # type: ignore[method-assign]
