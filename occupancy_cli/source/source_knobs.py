"""What tunes a kernel, read from source: `read_knobs` lists it for a file or a whole package.

Environment variables with their defaults and where they are read, the constexprs of each kernel, its autotune configs
and keys, its heuristics, the launch options and grids at launch sites, and the expressions that choose splits. Source
is parsed, never imported or executed. What can be computed is (`static_values`); the rest is shown as written.

A JIT function is one decorated with `triton.jit` or `gluon.jit`, by whatever name those were imported. It counts as a
helper when other JIT functions call it and nothing launches it.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from occupancy_cli.errors import InputError, nearest
from occupancy_cli.source.environment_reads import environment_of
from occupancy_cli.source.kernel_text import parse
from occupancy_cli.source.knob_types import (
    Autotune,
    Definition,
    EnvironmentRead,
    EnvironmentVariable,
    KernelKnobs,
    LaunchSite,
    Parameter,
    Place,
    SkippedFile,
    SourceKnobs,
    SplitExpression,
)
from occupancy_cli.source.module_names import Module
from occupancy_cli.source.source_files import read_source, split_reference
from occupancy_cli.source.source_reader import FileReader, Found

__all__ = [
    "Autotune",
    "Definition",
    "EnvironmentRead",
    "EnvironmentVariable",
    "KernelKnobs",
    "LaunchSite",
    "Parameter",
    "Place",
    "SkippedFile",
    "SourceKnobs",
    "SplitExpression",
    "locate",
    "python_files",
    "read_knobs",
    "resolve_import",
]

MAX_FILE_BYTES = 8 << 20

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", ".git", ".venv", ".tox", ".mypy_cache", ".ruff_cache"})
_RELEVANT = re.compile(rb"env|jit|autotune|num_warps|num_stages")
# Other splits (of data, of text) are common in files that launch nothing; these names are a kernel's.
_SPLIT_OF_A_LAUNCH = re.compile(r"kv_splits?$|nsplits?$|split_?k$|target_ctas$", re.IGNORECASE)


# --- finding files ---------------------------------------------------------------------------------------------------


def locate(target: str, *, search: Iterable[str] | None = None) -> tuple[Path, str | None]:
    """The file or folder that `target` means, and the kernel name after a colon if there is one.

    `target` is a path, or a dotted module or package name looked up along `search` (default `sys.path`) without
    importing anything.
    """
    text, kernel = split_reference(target)
    if not (kernel.isidentifier() or not kernel or Path(text).expanduser().is_file()):
        text, kernel = target, ""
    path = Path(text).expanduser()
    if path.exists():
        return path, kernel or None
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
        found = _find_module(text, sys.path if search is None else search)
        if found is not None:
            return found, kernel or None
    raise InputError(f"no such file, folder or package: {text}", hint=_elsewhere(path))


def _find_module(dotted: str, search: Iterable[str]) -> Path | None:
    """The folder of a package or the file of a module, by the files alone (a dotted import would run the parents)."""
    first, *rest = dotted.split(".")
    candidates = [Path(folder or ".") for folder in search]
    for folder in candidates:
        top = folder / first
        if top.is_dir() and (rest or next(python_files(top), None) is not None):
            found = top.joinpath(*rest)
            if found.is_dir():
                return found
            if found.with_name(found.name + ".py").is_file():
                return found.with_name(found.name + ".py")
        elif not rest and top.with_name(first + ".py").is_file():
            return top.with_name(first + ".py")
    return None


def module_file(dotted: str) -> Path | None:
    """The file of a module by its dotted name along `sys.path`, without importing anything."""
    found = _find_module(dotted, sys.path) if dotted else None
    if found is not None and found.is_dir():
        found = found / "__init__.py"
    return found if found is not None and found.is_file() else None


def _elsewhere(path: Path) -> str:
    """Where a file of that name does lie, or which name is near."""
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    near: dict[str, Path] = {}
    for seen, (current, folders, files) in enumerate(os.walk(folder)):
        folders[:] = [d for d in folders if d not in _SKIPPED_FOLDERS and not d.startswith(".")]
        if path.name in files or path.name in folders:
            return f"There is {Path(current) / path.name}."
        near |= {f: Path(current) / f for f in files if f.endswith(".py") and f not in near}
        if seen > 2_000:
            break
    close = nearest(path.name, near)
    return f"Did you mean {' or '.join(str(near[name]) for name in close)}?" if close else ""


def python_files(root: Path) -> Iterator[Path]:
    """Every .py file under `root`, in a stable order; links to folders are not followed."""
    if not root.is_dir():
        yield root
        return
    for current, folders, files in os.walk(root):
        folders[:] = sorted(d for d in folders if d not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".py"):
                yield Path(current) / name


# --- reading ---------------------------------------------------------------------------------------------------------


def read_knobs(
    root: Path,
    *,
    kernel: str | None = None,
    files: Sequence[Path] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> SourceKnobs:
    """The knobs of a file, or of every Python file under a folder (of `files` in it alone, where they are given).

    With `kernel`, only that kernel, its launches, and the variables and splits of the files those are in. Raises
    `InputError` when there is nothing to read or no such kernel.
    """
    reader = _Reader(root)
    files = list(python_files(root)) if files is None else files
    if not files:
        raise InputError("no Python file in it", where=str(root))
    with _collector_paused():
        for done, path in enumerate(files):
            if progress:
                progress(done, len(files), path.name)
            reader.read(path)
    if not root.is_dir() and reader.skipped:
        raise InputError(f"cannot be read as Python: {reader.skipped[0].why}", where=str(root))
    found = reader.result(len(files))
    return found if kernel is None else _only(found, kernel)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Syntax trees are many small objects in no cycles: looking for cycles among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _only(found: SourceKnobs, kernel: str) -> SourceKnobs:
    kernels = tuple(k for k in found.kernels if kernel in (k.name, k.qualname))
    if not kernels:
        names = [k.qualname for k in found.kernels]
        close = nearest(kernel, names)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Kernels there: {', '.join(names[:20]) or 'none'}"
        raise InputError(f"no JIT function {kernel!r}", where=found.root, hint=hint)
    launches = tuple(launch for launch in found.launches if kernels[-1].name in launch.kernels)
    files = {k.place.file for k in kernels} | {launch.place.file for launch in launches}
    environment = (
        replace(v, reads=reads)
        for v in found.environment
        if (reads := tuple(r for r in v.reads if r.place.file in files))
    )
    splits = tuple(s for s in found.splits if s.place.file in files)
    return replace(found, kernels=kernels, launches=launches, environment=tuple(environment), splits=splits)


class _Reader:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root if root.is_dir() else root.parent
        self.found = Found()
        self.skipped: list[SkippedFile] = []
        self._modules: dict[Path, Module | None] = {}
        self._declared_in: set[Path] = set()

    def read(self, path: Path) -> None:
        data = self._data(path)
        if data is None or (self.root.is_dir() and not _RELEVANT.search(data)):
            return
        module = self._modules.get(path) or self._parse(path, data)
        if module is None:
            return
        try:
            FileReader(module, self.found).read()
        except RecursionError:
            self._skip(path, "nested too deep")
            return
        if not self.root.is_dir():
            self._read_declarations(path, module)

    def _skip(self, path: Path, why: str) -> None:
        self.skipped.append(SkippedFile(self._shown(path), why))

    def _shown(self, path: Path) -> str:
        try:
            return path.relative_to(self.base).as_posix()
        except ValueError:
            return os.path.relpath(path, self.base)

    def _data(self, path: Path) -> bytes | None:
        try:
            if not path.is_file():
                self._skip(path, "not a regular file")
                return None
            size = path.stat().st_size
            if size > MAX_FILE_BYTES:
                self._skip(path, f"{size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
                return None
            return read_source(path)
        except OSError as bad:
            self._skip(path, bad.strerror or str(bad))
            return None

    def _parse(self, path: Path, data: bytes) -> Module | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = parse(path, data)
        except SyntaxError as bad:
            self._skip(path, f"line {bad.lineno}: {bad.msg}" if bad.lineno else str(bad.msg))
            return None
        except (ValueError, RecursionError, MemoryError) as bad:
            self._skip(path, str(bad) or type(bad).__name__)
            return None
        return Module(tree, self._shown(path), lambda dotted: self._imported(path, dotted))

    def _imported(self, importer: Path, dotted: str) -> Module | None:
        """The module that `dotted`, imported in `importer`, refers to, when it lies in the same package."""
        path = resolve_import(importer, dotted)
        if path is None:
            return None
        if path not in self._modules:
            self._modules[path] = None
            skipped = len(self.skipped)
            data = self._data(path)
            if data is not None:
                self._modules[path] = self._parse(path, data)
            del self.skipped[skipped:]  # it was not asked for
        return self._modules[path]

    def _read_declarations(self, path: Path, module: Module) -> None:
        """Of the modules that a single file imports its variables from: the declarations of those it uses."""
        used = {name for _, name, _ in self.found.uses}
        called = {call.node.func.id for call in self.found.helper_calls if isinstance(call.node.func, ast.Name)}
        for name, dotted in module.imports.items():
            owner = dotted.rpartition(".")[0]
            for candidate in (dotted, owner) if "env" in name.lower() or name in called else ():
                source = resolve_import(path, candidate) if candidate.strip(".") else None
                if source is None or source == path or source in self._declared_in:
                    continue
                self._declared_in.add(source)
                declaring = self._imported(path, candidate)
                if declaring is None:
                    continue
                declared = Found()
                FileReader(declaring, declared).read()
                self.found.helpers += [h for h in declared.helpers if h.name in called]
                self.found.env_classes |= declared.env_classes
                self.found.class_bases |= declared.class_bases
                self.found.fields += [f for f in declared.fields if f[1] in used]
                self.found.reads += [r for r in declared.reads if r[0] in used]

    def result(self, files: int) -> SourceKnobs:
        found = self.found
        kernel_files = {k.place.file for k in found.kernels} | {launch.place.file for launch, _ in found.launches}
        names = {k.name for k in found.kernels}
        launches = [launch for launch, certain in found.launches if certain or set(launch.kernels) & names]
        launched = {name for launch in launches for name in launch.kernels}
        kernels = [
            replace(k, role="helper")
            if k.name in found.called_in_jit and k.name not in launched and k.autotune is None and not k.heuristics
            else k
            for k in found.kernels
        ]
        launch_files = {k.place.file for k in kernels} | {launch.place.file for launch in launches}
        return SourceKnobs(
            root=str(self.root),
            files=files,
            skipped=tuple(self.skipped),
            environment=environment_of(found, kernel_files),
            kernels=tuple(sorted(kernels, key=lambda k: (k.place.file, k.place.line))),
            launches=tuple(sorted(launches, key=lambda s: (s.place.file, s.place.line))),
            splits=tuple(
                s
                for s in sorted(found.splits, key=lambda s: (s.place.file, s.place.line))
                if not self.root.is_dir() or s.place.file in launch_files or _SPLIT_OF_A_LAUNCH.search(s.name)
            ),
        )


def resolve_import(importer: Path, dotted: str) -> Path | None:
    """The file that `dotted` (relative ones start with dots) names, seen from `importer`, within its own package."""
    level = len(dotted) - len(dotted.lstrip("."))
    parts = [p for p in dotted.lstrip(".").split(".") if p]
    folder = importer.resolve().parent
    if level:
        for _ in range(level - 1):
            folder = folder.parent
        return _module_file(folder, parts)
    if not parts:
        return None
    beside = _module_file(folder, parts)
    if beside is not None:
        return beside
    package = next((f for f in (folder, *folder.parents) if f.name == parts[0]), None)
    return None if package is None else _module_file(package.parent, parts)


def _module_file(folder: Path, parts: list[str]) -> Path | None:
    base = folder.joinpath(*parts)
    for path in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
