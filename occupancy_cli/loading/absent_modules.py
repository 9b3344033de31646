"""The import hooks that put stand-ins where a kernel's module would find nothing.

What is stood in for:

- a module that is not installed, unless its import is guarded (`try: import x ... except ImportError`): there the
  module's own answer to its absence is what counts. PyTorch is the exception, as Triton's users do have it.
- the `__init__` of `packages` (see `lazy_packages`).
- what a module other than the kernel's own would have defined below the line at which it failed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_cli.loading.device_doors import DOORS
from occupancy_cli.loading.import_facts import LEFT_ALONE, guarded, importer_is_left_alone, only_asked
from occupancy_cli.loading.lazy_packages import LazyLoader, line_in, sentence
from occupancy_cli.loading.stand_ins import StandIns, stand_in_module


class _StandInLoader(importlib.abc.Loader):
    def __init__(self, owner: StandIns) -> None:
        self._owner = owner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return stand_in_module(self._owner, spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        return None


class _TolerantLoader(importlib.abc.Loader):
    """Executes a module; what it would have defined after the line at which it fails is stood in for."""

    def __init__(self, owner: StandIns, inner: importlib.abc.Loader) -> None:
        self._owner = owner
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._inner.exec_module(module)
        except (Exception, SystemExit) as bad:
            if isinstance(bad, ImportError) and self._owner.guards and guarded(sys._getframe(1), self._owner.target):
                raise
            if self._owner.supply(bad):
                self.exec_module(module)
                return
            stand_in_for_rest(self._owner, module, bad)

    def __getattr__(self, name: str) -> Any:
        # get_source and its kin, for inspect and linecache.
        return getattr(self._inner, name)


def stand_in_for_rest(owner: StandIns, module: ModuleType, bad: BaseException) -> None:
    """Make every attribute that `module` did not come to define a stand-in."""
    name = module.__name__
    line = line_in(module, bad)
    owner.reasons[name] = f"stopped loading{f' at line {line}' if line else ''}: {sentence(bad)}"
    before = module.__dict__.get("__getattr__")

    def attribute(attr: str) -> Any:
        if attr.startswith("__") and attr.endswith("__"):
            raise AttributeError(attr)
        if before is not None:
            with contextlib.suppress(AttributeError):
                return before(attr)
        return owner.child(f"{name}.{attr}")

    module.__getattr__ = attribute  # type: ignore[method-assign]


# --- the import hooks ------------------------------------------------------------------------------------------------


class _FirstFinder(importlib.abc.MetaPathFinder):
    """Before the usual finders: hidden modules, packages whose `__init__` waits, modules that may fail in part."""

    def __init__(self, owner: StandIns) -> None:
        self._owner = owner

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in self._owner.hidden:
            if not importer_is_left_alone(sys._getframe(1)):
                self._owner.reasons.setdefault(top, "has no GPU here to answer for")
            return importlib.machinery.ModuleSpec(fullname, _StandInLoader(self._owner), is_package=True)
        if top in LEFT_ALONE or top in sys.stdlib_module_names or fullname in DOORS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader) or spec.origin is None:
            return None
        if Path(spec.origin).name == "__init__.py" and top in self._owner.packages:
            lazy = importlib.machinery.ModuleSpec(
                fullname, LazyLoader(self._owner, Path(spec.origin)), origin=spec.origin, is_package=True
            )
            lazy.submodule_search_locations = list(spec.submodule_search_locations or ())
            lazy.has_location = True
            return lazy
        if fullname != self._owner.target:
            spec.loader = _TolerantLoader(self._owner, spec.loader)
        return spec


class _LastFinder(importlib.abc.MetaPathFinder):
    """After the usual finders: a stand-in for what none of them found."""

    def __init__(self, owner: StandIns) -> None:
        self._owner = owner

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        owner = self._owner
        wanted = owner.target
        if fullname == wanted or wanted.startswith(f"{fullname}.") or only_asked(sys._getframe(1)):
            return None
        top = fullname.partition(".")[0]
        if top in sys.stdlib_module_names or importer_is_left_alone(sys._getframe(1)):
            return None
        if owner.guards and top != "torch" and guarded(sys._getframe(1), owner.target):
            return None
        parent = fullname.rpartition(".")[0]
        if not (parent and isinstance(_loader_of(parent), _StandInLoader)):
            owner.reasons.setdefault(
                fullname, "is not installed" if parent == "" else f"is not in {parent} as installed"
            )
        return importlib.machinery.ModuleSpec(fullname, _StandInLoader(owner), is_package=True)


def _loader_of(name: str) -> Any:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "loader", None)


@contextlib.contextmanager
def hooked(owner: StandIns) -> Iterator[None]:
    """While active, imports are answered with `owner`'s stand-ins where they would fail."""
    first, last = _FirstFinder(owner), _LastFinder(owner)
    for (module, name), stand_in in owner.supplied.items():
        setattr(sys.modules[module], name, stand_in)
    sys.meta_path.insert(0, first)
    sys.meta_path.append(last)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.meta_path.remove(first)
        sys.meta_path.remove(last)
        for (module, name), stand_in in owner.supplied.items():
            # Nothing of it stays behind in a module that others use.
            if getattr(sys.modules.get(module), name, None) is stand_in:
                delattr(sys.modules[module], name)


@contextlib.contextmanager
def standing_in(
    *,
    packages: Iterable[str] = (),
    hidden: Iterable[str] = (),
    guards: bool = True,
    target: str = "",
) -> Iterator[StandIns]:
    """While active, imports that would fail give stand-ins; sealed at the end.

    `packages` are top-level packages whose `__init__` files are to be read, not run; `hidden` installed ones to stand
    in for all the same; with `guards` a guarded import of something missing fails, as it
    would; `target` is the module that is being loaded, which is never stood in for.
    """
    used = StandIns(tuple(packages), tuple(hidden), guards, target)
    with hooked(used):
        yield used
    used.sealed = True
