"""Importing a kernel's module in a worker: plainly where that works, with stand-ins where it does not.

Every load sees a set of modules of its own: what one kernel file imported, under one target and with certain stand-ins,
must neither answer for another file's imports nor count among its sources. Modules are swapped in and out of
`sys.modules` as a worker turns from one kernel to another. Compiled packages (torch, numpy) cannot be loaded twice in a
process; they and Triton stay.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from occupancy_cli.errors import InputError
from occupancy_cli.loading.absent_modules import hooked
from occupancy_cli.loading.stand_ins import StandIns, ValueNeeded
from occupancy_cli.loading.target_gpu import TargetGpu
from occupancy_cli.loading.torch_answers import had_a_gpu

MOST_CHOICES = 5
MOST_NAMES = 8
_STAY = frozenset({"triton", "torch", "numpy", "occupancy_cli", "__main__"})


@dataclass
class Modules:
    """The modules that belong to one way of loading, while they are not in `sys.modules`."""

    root: str = ""
    """The folder that is first on `sys.path` while these modules are in; for a module's name the working directory."""
    stand_ins: StandIns | None = None
    set_aside: dict[str, ModuleType] = field(default_factory=dict)
    displaced: dict[str, ModuleType] = field(default_factory=dict)
    """Installed modules that stand-ins hide while these modules are in."""
    hook: Any = None
    asked: set[str] = field(default_factory=set)
    """What they asked the device while they loaded, whichever kernel they were loaded for."""


@dataclass
class LoadedModule:
    """A kernel's module. `failure` says why the module did not load to its end, when it did not."""

    module: ModuleType
    modules: Modules
    failure: str = ""
    _counted: int = 0

    @property
    def stand_ins(self) -> list[str]:
        """Names of the modules that stand-ins were used for."""
        used = self.modules.stand_ins
        return used.names() if used is not None else []

    @property
    def notes(self) -> list[str]:
        """What a report should say of how this module was loaded; empty when it was plainly."""
        used = self.modules.stand_ins
        if used is None:
            return []
        names, choices = used.names(), used.choices()
        notes = [f"stand-ins for: {', '.join(names)}"] if names else []
        if choices:
            more = f" and {len(choices) - MOST_CHOICES} more" if len(choices) > MOST_CHOICES else ""
            notes.append(f"while loading, {'; '.join(choices[:MOST_CHOICES])}{more}")
        if self.failure:
            notes.append(f"the module did not load to its end: {self.failure}")
        return notes

    def new_modules(self) -> list[ModuleType]:
        """The Python modules that this one was loaded with, itself among them, that were not told before.

        It has to be the one loaded last.
        """
        if len(sys.modules) == self._counted:
            return []
        self._counted = len(sys.modules)
        return [self.module, *(sys.modules[name] for name in sorted(_swappable()) if _file_of(sys.modules[name]))]

    def absent_files(self) -> list[str]:
        """Where files would appear if what is stood in for were installed: none of them exists now."""
        used = self.modules.stand_ins
        if used is None:
            return []
        tops = {name.partition(".")[0] for name in used.reasons if "." not in name}
        folders = {sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")}
        paths = [
            Path(folder) / part for folder in folders for top in tops for part in (f"{top}/__init__.py", f"{top}.py")
        ]
        return sorted(str(p) for p in paths if not p.exists())


_baseline: set[str] = set()
_plain: dict[tuple[str, TargetGpu], Modules] = {}
_entries: dict[tuple[str, TargetGpu], LoadedModule] = {}
_current: list[Modules] = []


def load(source: Mapping[str, Any], device: TargetGpu) -> LoadedModule:
    """The module of `source` (`file` or `module`, and `kernel`) as it loads for `device`, and its modules swapped in.

    Tried plainly first. When that fails, with stand-ins for what is missing; the module may then fail below the
    kernel's definition, and counts all the same. Raises what the plain import raised when that does not help either.
    """
    if not _baseline:
        _baseline.update(sys.modules)
    name = str(source["file"] or source["module"])
    entry = _entries.get((name, device))
    if entry is not None and (not entry.failure or _has_kernel(entry.module, source)):
        _switch(entry.modules)
        return entry
    plain = _plain.setdefault((_root_of(source), device), Modules(_root_of(source)))
    _switch(plain)
    before = set(sys.modules)
    try:
        entry = LoadedModule(_import_plainly(source), plain)
        if _is_plain_function(entry.module, source) and _torch_without_gpu():
            # Packages replace `triton.jit` where they see no GPU.
            entry = _try_stand_ins(source, device, []) or entry
            _switch(entry.modules)
    except Exception as failed:
        for new in set(sys.modules) - before:
            if new in _swappable():
                del sys.modules[new]
        if not _stand_ins_may_help(failed, source):
            raise
        entry = _with_stand_ins(source, device, failed)
    _entries[name, device] = entry
    return entry


def _has_kernel(module: ModuleType, source: Mapping[str, Any]) -> bool:
    name: str = source["kernel"].partition(".")[0]
    return name in vars(module)


def _is_plain_function(module: ModuleType, source: Mapping[str, Any]) -> bool:
    return isinstance(vars(module).get(source["kernel"]), FunctionType)


def _stand_ins_may_help(failed: Exception, source: Mapping[str, Any]) -> bool:
    """Not for what is wrong with the file itself, or when it is the kernel's own module that is not there."""
    if isinstance(failed, (InputError, MemoryError)):
        return False
    if isinstance(failed, SyntaxError):
        return str(failed.filename) != str(source["file"])
    if isinstance(failed, ModuleNotFoundError) and source["module"] and failed.name:
        return not f"{source['module']}.".startswith(f"{failed.name}.")
    return True


# --- importing -------------------------------------------------------------------------------------------------------


def _import_plainly(source: Mapping[str, Any]) -> ModuleType:
    if not source["file"]:
        return importlib.import_module(source["module"])
    path = Path(source["file"])
    _, name = locate(path)
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    if "." in name:
        return importlib.import_module(name)
    return _execute(_spec(name, path))


def _root_of(source: Mapping[str, Any]) -> str:
    return str(locate(Path(source["file"]))[0]) if source["file"] else str(Path.cwd())


@functools.lru_cache(maxsize=1024)
def locate(path: Path) -> tuple[Path, str]:
    """The folder to import `path` from, and its dotted name there.

    The outermost enclosing folder of a package: one with an `__init__.py` all the way down, or one that the file itself
    imports by name (packages may leave out `__init__.py`).
    """
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    tree = _parsed(path)
    root = _enough_parents(
        path, root, max((n.level for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)), default=0)
    )
    imported = _imported_tops(tree) - _STAY - sys.stdlib_module_names
    for folder in path.parents:
        if folder.name in imported and folder.name.isidentifier() and _is_that_package(folder):
            root = min(root, folder.parent, key=lambda f: len(f.parts))
            break
    parts = path.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        # "moe_v1.2.py", "my kernel.py": no import can name it, and a dot in its name is not a package.
        return path.parent, re.sub(r"\W", "_", f"_{path.stem}_{zlib.crc32(os.fsencode(path)):x}")
    return root, ".".join(parts).removesuffix(".__init__")


def _is_that_package(folder: Path) -> bool:
    """Whether importing the folder's name would find this folder, or nothing yet."""
    spec = importlib.machinery.PathFinder.find_spec(folder.name)
    return spec is None or str(folder) in (spec.submodule_search_locations or ())


def _enough_parents(path: Path, root: Path, level: int) -> Path:
    """A root that leaves the file as many packages around it as its relative imports climb; `root` if it does."""
    while len(path.parent.relative_to(root).parts) < level and root != root.parent:
        root = root.parent
        while (root / "__init__.py").is_file():
            root = root.parent
    return root


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def _imported_tops(tree: ast.Module) -> set[str]:
    """Top-level names that a file imports absolutely."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _spec(name: str, path: Path) -> importlib.machinery.ModuleSpec:
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=str(path))
    return spec


def _execute(spec: importlib.machinery.ModuleSpec) -> ModuleType:
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    return module


def _with_stand_ins(source: Mapping[str, Any], device: TargetGpu, plain: Exception) -> LoadedModule:
    failures: list[str] = []
    found = _try_stand_ins(source, device, failures)
    if found is not None:
        return found
    used = _current[0].stand_ins.names() if _current and _current[0].stand_ins else []
    more = f" and {len(used) - MOST_NAMES} more" if len(used) > MOST_NAMES else ""
    names = ", ".join(used[:MOST_NAMES]) + more
    _switch(_plain[_root_of(source), device])
    second = f"; with stand-ins for {names or 'what is missing'}: {failures[-1]}" if failures else ""
    raise ImportError(" ".join(f"{type(plain).__name__}: {plain}{second}".split())) from plain


def _try_stand_ins(source: Mapping[str, Any], device: TargetGpu, failures: list[str]) -> LoadedModule | None:
    """The first way of standing in that gives the kernel; else the first that gives something of its name."""
    # A PyTorch without a GPU answers for the target, but has no tensors there: its stand-in has all.
    ways: list[tuple[str, ...]] = [("torch",), ()] if _torch_without_gpu() else [()]
    second_best: LoadedModule | None = None
    for hidden in ways:
        for guards in (True, False):
            found = _attempt(source, device, hidden, guards, failures)
            if found is not None and not _is_plain_function(found.module, source):
                return found
            second_best = second_best or found
    if second_best is not None:
        _switch(second_best.modules)
    return second_best


def _attempt(
    source: Mapping[str, Any], device: TargetGpu, hidden: tuple[str, ...], guards: bool, failures: list[str]
) -> LoadedModule | None:
    if source["file"]:
        _, name = locate(Path(source["file"]))
    else:
        name = str(source["module"])
    packages = (name.partition(".")[0],) if "." in name else ()
    used = StandIns(packages, hidden, guards, target=name)
    modules = Modules(_root_of(source), used)
    _switch(modules)
    module: ModuleType | None = None
    try:
        module, spec = _prepare(name, source)
        _run(module, spec, used)
    except Exception as bad:  # noqa: BLE001 (the reason goes into the error or the report)
        failures.append(_sentence(bad))
        if module is None or not _has_kernel(module, source):
            return None
        used.sealed = True
        return LoadedModule(module, modules, failure=failures[-1])
    used.sealed = True
    if not _has_kernel(module, source) and guards and used.reasons:
        # A guarded import that failed may be why the kernel is not defined.
        failures.append(f"it defines no {source['kernel']}")
        return None
    return LoadedModule(module, modules)


def _run(module: ModuleType, spec: importlib.machinery.ModuleSpec, used: StandIns) -> None:
    """Execute the module, again for each name that has to be supplied to what it imports from."""
    assert spec.loader is not None
    while True:
        try:
            spec.loader.exec_module(module)
            return
        except ImportError as bad:
            if not used.supply(bad):
                raise


def _prepare(name: str, source: Mapping[str, Any]) -> tuple[ModuleType, importlib.machinery.ModuleSpec]:
    """The module, not yet executed, in its package."""
    parent, _, last = name.rpartition(".")
    owner = importlib.import_module(parent) if parent else None
    if source["file"]:
        spec = _spec(name, Path(source["file"]))
    else:
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec = _spec(name, Path(found.origin))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if owner is not None:
        setattr(owner, last, module)
    return module, spec


def _sentence(bad: BaseException) -> str:
    if isinstance(bad, ValueNeeded):
        return bad.problem
    lines = str(bad).strip().splitlines()
    frames = traceback.extract_tb(bad.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(bad).__name__}: {lines[-1].strip()[:300]}{at}" if lines else f"{type(bad).__name__}{at}"


@functools.lru_cache(maxsize=1)
def _torch_without_gpu() -> bool:
    """Whether PyTorch is installed, and has no GPU to answer for."""
    try:
        import torch

        return not had_a_gpu(torch)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return False


# --- whose modules are in sys.modules --------------------------------------------------------------------------------


def _file_of(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _swappable() -> set[str]:
    """Names in `sys.modules` that one load brought in and that another may load anew."""
    compiled = {
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if _file_of(module).endswith((".so", ".pyd")) or getattr(module, "__spec__", None) is None
    }
    stay = (_STAY | compiled | sys.stdlib_module_names) - _stood_in_tops()
    return {name for name in sys.modules if name not in _baseline and name.partition(".")[0] not in stay}


def _stood_in_tops() -> set[str]:
    used = _current[0].stand_ins if _current else None
    if used is None:
        return set()
    return {name for name in (*used.reasons, *used.hidden) if "." not in name}


@contextlib.contextmanager
def left_aside() -> Iterator[None]:
    """While active, imports do not look among a kernel's files; what they bring stays when others are switched in.

    For what the tool itself does between two steps of a compile: libraries import parts of themselves when used.
    """
    before = _current[0] if _current else None
    _switch(Modules())
    try:
        yield
        _baseline.update(sys.modules)
    finally:
        if before is not None:
            _switch(before)


def _switch(to: Modules) -> None:
    """Take the modules of the load at hand out of `sys.modules` and put those of `to` in."""
    if _current and _current[0] is to:
        return
    if _current:
        now = _current[0]
        now.set_aside = {name: sys.modules.pop(name) for name in _swappable()}
        if now.hook is not None:
            now.hook.__exit__(None, None, None)
            now.hook = None
        if now.root:
            with contextlib.suppress(ValueError):
                sys.path.remove(now.root)
        sys.modules.update(now.displaced)
        now.displaced = {}
        _current.clear()
    if to.root:
        sys.path.insert(0, to.root)
    if to.stand_ins is not None:
        hidden = to.stand_ins.hidden
        to.displaced = {n: sys.modules.pop(n) for n in list(sys.modules) if n.partition(".")[0] in hidden}
        to.hook = hooked(to.stand_ins)
        to.hook.__enter__()
    sys.modules.update(to.set_aside)
    to.set_aside = {}
    _current.append(to)
