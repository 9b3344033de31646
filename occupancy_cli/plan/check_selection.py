"""What a check looks at: from paths, folders, globs, `file.py`, `file.py:kernel` and spec files to kernels.

    select(["kernels"])     the specs in the folder, and each kernel of its Python files that no spec there is of
    select(["ops.py"])      its kernels: by the spec beside it that names one, else by what the file itself says

Source is read and never run here. What is not there at all is a `SelectionError` of its own, so that a name mistyped
never comes out as "everything holds"; what is there and cannot be read becomes the problem of that file, and the others
are selected all the same. A JIT function that other kernels call and nothing launches is a helper: it is counted.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import InputError, OccupancyError, nearest
from occupancy_cli.json_reader import parse_json, read_text
from occupancy_cli.plan.kernel_input import KernelInput, parse_ref, read_kernel_input, shipped_specs
from occupancy_cli.spec.budget_layers import BudgetLayer
from occupancy_cli.spec.kernel_spec import SCHEMA
from occupancy_cli.yaml_reader import find_file

if TYPE_CHECKING:
    from occupancy_cli.source.knob_types import KernelKnobs, SourceKnobs

_SPECS = (".yaml", ".yml")
_SOURCES = (".py", ".ipynb")
_IS_SPEC = re.compile(rf"""^\s*["']?schema["']?\s*:\s*["']?{re.escape(SCHEMA)}""", re.MULTILINE)
_USES_TRITON = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_CAPTURE_INDEX, _CAPTURE_SCHEMA = "index.json", "occupancy/capture/1"
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "venv", "build", "dist", "site-packages"})


class SelectionError(InputError):
    """A name that stands for nothing: no such file, folder, kernel, or no match of a pattern."""


@dataclass(frozen=True)
class SelectedKernel:
    """A kernel to judge. `file` and `line` are where findings on it stand: its spec, or its definition.

    `gpus`, `use` and `budgets` are what a project says of it beside its spec: GPUs where the spec names none, configs
    in use where it declares none, budgets that win over its own.
    """

    given: KernelInput
    file: str
    line: int | None = None
    gpus: tuple[str, ...] = ()
    use: tuple[Mapping[str, Any], ...] | None = None
    budgets: tuple[BudgetLayer, ...] = ()


@dataclass(frozen=True)
class SelectionProblem:
    """A file, or a name in it, of which nothing can be judged, and why."""

    file: str
    error: OccupancyError


@dataclass(frozen=True)
class Selection:
    """What is to be judged, in the order asked for: `kernels`, `problems`, and how many `helpers` were left out."""

    kernels: tuple[SelectedKernel, ...] = ()
    problems: tuple[SelectionProblem, ...] = ()
    helpers: int = 0


KernelFromSource = Callable[[Path, "KernelKnobs"], KernelInput]
"""What makes an input of a kernel that has no spec."""


def shown_path(path: str) -> str:
    """`path` as it is shortest to read: relative to the working directory where it lies in it."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def from_source_alone(path: Path, kernel: KernelKnobs) -> KernelInput:
    """The input of a kernel of which nobody says more than its file does."""
    return read_kernel_input(f"{path}:{kernel.qualname}")


def select(
    names: Iterable[str],
    *,
    exclude: Sequence[str] = (),
    base: Path | None = None,
    exclude_from: Path | None = None,
    specs_elsewhere: Iterable[Path] = (),
    from_source: KernelFromSource = from_source_alone,
) -> Selection:
    """The kernels that `names` stand for.

    Relative names are seen from `base` (default: the working directory), the patterns of `exclude` from `exclude_from`
    (default: `base`). A kernel of a Python file is judged by the spec in the selection, beside the file, or among
    `specs_elsewhere` that names it.
    `SelectionError` when the names stand for nothing at all.
    """
    base = base or Path()
    return _Selector(base, exclude, exclude_from or base, specs_elsewhere, from_source).select(list(names))


@dataclass
class _Gathered:
    """What the names stand for before kernels are looked for in it."""

    specs: dict[Path, None] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    sources: dict[Path, list[str]] = field(default_factory=dict)
    """Python files, each with the patterns that names of its kernels are to match ("": all of them)."""
    modules: list[str] = field(default_factory=list)


class _Selector:
    def __init__(
        self,
        base: Path,
        exclude: Sequence[str],
        exclude_from: Path,
        specs_elsewhere: Iterable[Path],
        from_source: KernelFromSource,
    ) -> None:
        self.base, self.exclude_from, self.exclude, self.from_source = base, exclude_from, tuple(exclude), from_source
        self.specs_elsewhere = tuple(specs_elsewhere)
        self.kernels: list[SelectedKernel] = []
        self.problems: list[SelectionProblem] = []
        self.covered: set[tuple[str, str]] = set()
        self.read: set[Path] = set()
        self.helpers: set[tuple[str, str]] = set()

    def select(self, names: Sequence[str]) -> Selection:
        gathered, missing = _Gathered(), list[tuple[str, InputError]]()
        for name in names:
            try:
                self._gather(name, gathered)
            except SelectionError as bad:
                missing.append((name, bad))
        self.problems += [SelectionProblem(name, bad) for name, bad in missing]
        for spec in gathered.specs:
            self._spec(spec)
        self._of_folders(gathered.folders)
        for source, patterns in gathered.sources.items():
            for pattern in dict.fromkeys(patterns):
                self._of_source(source, pattern)
        for reference in gathered.modules:
            self._try(reference, functools.partial(self._module, reference))
        if not self.kernels:
            self._refuse_if_nothing(names)
        return Selection(tuple(self.kernels), tuple(self.problems), len(self.helpers))

    def _refuse_if_nothing(self, names: Sequence[str]) -> None:
        """Nothing to judge is an error of what was typed, unless a file that is there has a problem of its own."""
        errors = [p.error for p in self.problems]
        if not errors:
            skipped = f", {len(self.helpers)} helpers skipped" if self.helpers else ""
            hint = "Nothing to judge is not the same as everything holds."
            raise SelectionError(f"no spec and no kernel there{skipped}", where=" ".join(names) or "check", hint=hint)
        if all(isinstance(e, SelectionError) for e in errors):
            raise errors[0] if len(errors) == 1 else _joined(errors)

    # --- names ---

    def _gather(self, name: str, into: _Gathered) -> None:
        place, kernel = _split_kernel(name)
        path = self.base / place
        if _exists(path):
            self._gather_path(path, kernel, name, into)
            return
        if glob.has_magic(place):
            found = self._matches(place)
            taken = [match for match in found if self._gather_path(match, kernel, name, into, of_a_pattern=True)]
            if not taken:
                what = f"matches {len(found)} files, none of them a spec or a Python file" if found else "matches none"
                raise SelectionError(f"the pattern {what}", where=name, hint="A pattern: 'kernels/**/*.py'")
            return
        shipped = {p.stem: p for p in shipped_specs()}
        if name in shipped:
            into.specs[shipped[name]] = None
        elif kernel and not path.suffix and "/" not in place:
            into.modules.append(name)
        else:
            raise self._missing(name, path, list(shipped))

    def _missing(self, name: str, path: Path, shipped: Sequence[str]) -> SelectionError:
        """An error that says where a file of that name does lie, or which name is near."""
        try:
            if path.suffix in (*_SPECS, *_SOURCES):
                find_file(path)
            near = {p.name: p for p in path.parent.glob("*") if p.is_dir() or p.suffix in (*_SPECS, *_SOURCES)}
        except InputError as bad:
            return SelectionError(bad.problem, where=name, hint=bad.hint)
        except (OSError, RuntimeError) as bad:  # before Python 3.13 a link to itself is a RuntimeError
            why = getattr(bad, "strerror", None) or "is a link that leads to itself"
            return SelectionError(why, where=name[:200])
        close = [str(near[n]) for n in nearest(path.name, near)]
        close += nearest(name.replace("-", "_"), shipped) if "/" not in name else []
        hint = f"Did you mean {' or '.join(close)}?" if close else ""
        return SelectionError("no such file, folder or shipped kernel", where=name, hint=hint)

    def _gather_path(self, path: Path, kernel: str, name: str, into: _Gathered, *, of_a_pattern: bool = False) -> bool:
        """Take a path; whether it is something to judge. What a pattern matches need not be."""
        if of_a_pattern and self._is_excluded(path):
            return False
        if path.is_dir():
            if kernel:
                raise SelectionError("is a folder: name the file that the kernel is in", where=name)
            into.folders.append(path)
        elif path.suffix in _SPECS:
            if of_a_pattern and not _is_spec(path):
                return False
            into.specs[path] = None
        elif path.suffix in _SOURCES:
            into.sources.setdefault(path, []).append(kernel)
        elif of_a_pattern:
            return False
        else:
            hint = "Give a spec, file.py or file.py:kernel."
            raise SelectionError("is neither a spec (.yaml) nor a Python file", where=name, hint=hint)
        return True

    def _matches(self, pattern: str) -> list[Path]:
        found = glob.glob(pattern, root_dir=self.base, recursive=True)  # noqa: PTH207 (takes absolute ones too)
        paths = [self.base / f for f in sorted(found) if not set(Path(f).parts) & _SKIPPED_FOLDERS]
        # A folder that a pattern matches would bring files that it does not: `**` matches folders too.
        return [p for p in paths if p.is_file()]

    def _is_excluded(self, path: Path) -> bool:
        if not self.exclude:
            return False
        seen = os.path.relpath(path, self.exclude_from)
        upwards = [seen, *map(str, Path(seen).parents)]
        return any(fnmatch.fnmatchcase(part, pattern.rstrip("/")) for part in upwards for pattern in self.exclude)

    # --- specs ---

    def _spec(self, path: Path) -> None:
        if path.resolve() in self.read:
            return
        self.read.add(path.resolve())
        self._try(str(path), lambda: self._read_spec(path))

    def _read_spec(self, path: Path) -> None:
        given = read_kernel_input(str(path))
        self.covered |= _kernels_of(given)
        line = given.document.line(("configs",)) or given.document.line(("kernel",))
        self.kernels.append(SelectedKernel(given, shown_path(str(path)), line))

    def _try(self, name: str, read: Callable[[], None]) -> None:
        try:
            read()
        except OccupancyError as bad:
            self.problems.append(SelectionProblem(shown_path(name), bad))

    # --- folders and Python files ---

    def _of_folders(self, folders: Sequence[Path]) -> None:
        sources: dict[Path, list[Path]] = {}
        for folder in folders:
            for path in self._files(folder):
                if path.suffix == ".py":
                    sources.setdefault(folder, []).append(path)
                else:
                    self._spec(path)
        for folder, files in sources.items():
            self._kernels_in(folder, files)

    def _files(self, folder: Path) -> Iterator[Path]:
        """The specs and the Python files of a folder; of a capture what its index lists, since all else is a copy."""
        for current, folders, files in os.walk(folder):
            captured = _captured_specs(Path(current))
            if captured is not None:
                folders.clear()
                yield from captured
                continue
            folders[:] = sorted(
                f
                for f in folders
                if not f.startswith(".") and f not in _SKIPPED_FOLDERS and not self._is_excluded(Path(current, f))
            )
            for path in (Path(current, name) for name in sorted(files)):
                wanted = path.suffix == ".py" or (path.suffix in _SPECS and _is_spec(path))
                if wanted and not self._is_excluded(path):
                    yield path

    def _kernels_in(self, folder: Path, files: Sequence[Path]) -> None:
        from occupancy_cli.source.source_knobs import read_knobs

        wanted = {p.resolve(): p for p in files}
        found = read_knobs(folder, files=files)
        for skipped in found.skipped:
            path = folder / skipped.file
            if path.resolve() in wanted and _uses_triton(path):
                error = InputError(f"cannot be read as Python: {skipped.why}", where=str(path))
                self.problems.append(SelectionProblem(shown_path(str(path)), error))
        for kernel in found.kernels:
            file = wanted.get((folder / kernel.place.file).resolve())
            if file is not None:
                self._kernel(file, kernel)

    def _of_source(self, path: Path, pattern: str) -> None:
        for beside in sorted(path.parent.glob("*")):
            if beside.suffix in _SPECS and _is_spec(beside):
                self._spec_of(beside, path, pattern)
        for elsewhere in self.specs_elsewhere:
            self._spec_of(elsewhere, path, pattern)
        self._try(str(path), lambda: self._read_source(path, pattern))

    def _spec_of(self, spec: Path, source: Path, pattern: str) -> None:
        """Select a spec if its own kernel is in the file, by a name that the pattern matches."""
        if spec.resolve() in self.read:
            return
        try:
            given = read_kernel_input(str(spec))
            file, name = next(iter(_kernels_of(given, followers=False)), ("", ""))
        except OccupancyError:
            return  # it was not asked for: what it says of itself is told where it is
        if file == str(source.resolve()) and _fits(name, pattern):
            self._spec(spec)

    def _read_source(self, path: Path, pattern: str) -> None:
        found = _knobs_of(path)
        named = [k for k in found.kernels if _fits(k.qualname, pattern) or _fits(k.name, pattern)]
        if pattern and not named:
            names = [k.qualname for k in found.kernels]
            close = nearest(pattern, names) or names[:5]
            hint = f"Did you mean {' or '.join(f'{path}:{n}' for n in close)}?" if close else "It has no kernel."
            raise SelectionError(f"no kernel {pattern!r}", where=str(path), hint=hint)
        if not found.kernels:
            raise SelectionError("no Triton kernel in it", where=str(path))
        for kernel in named:
            self._kernel(path, kernel, asked=bool(pattern) and not glob.has_magic(pattern))

    def _kernel(self, path: Path, kernel: KernelKnobs, *, asked: bool = False) -> None:
        key = (str(path.resolve()), kernel.qualname)
        if key in self.covered:
            return
        if kernel.role == "helper" and not asked:
            self.helpers.add(key)
            return
        self.covered.add(key)
        name, line = shown_path(str(path)), kernel.place.line

        def read() -> None:
            self.kernels.append(SelectedKernel(self.from_source(path, kernel), name, line))

        self._try(name, read)

    def _module(self, reference: str) -> None:
        self.kernels.append(SelectedKernel(read_kernel_input(reference), reference))


def _joined(errors: Sequence[OccupancyError]) -> SelectionError:
    return SelectionError(
        f"none of the {len(errors)} names is there", where="check", hint="\n".join(str(bad) for bad in errors)
    )


def _split_kernel(name: str) -> tuple[str, str]:
    """`file.py:kernel` as both; a name without a kernel with an empty one."""
    place, colon, kernel = name.rpartition(":")
    is_kernel = bool(colon) and "/" not in kernel and re.fullmatch(r"[\w.*?\[\]-]+", kernel)
    return (place, kernel) if is_kernel and place else (name, "")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a file, or a link that leads to itself
        return False


def _fits(name: str, pattern: str) -> bool:
    return not pattern or fnmatch.fnmatchcase(name, pattern)


def _is_spec(path: Path) -> bool:
    """Whether a YAML file means to be a spec: other YAML is no business of a check's."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return _IS_SPEC.search(file.read(1 << 16)) is not None
    except OSError:
        return False


def _uses_triton(path: Path) -> bool:
    try:
        return _USES_TRITON.search(path.read_bytes()) is not None
    except OSError:
        return True  # what cannot be read may well be a kernel's


def _captured_specs(folder: Path) -> list[Path] | None:
    """The specs that the index of a capture lists; None for a folder that is no capture's."""
    index = folder / _CAPTURE_INDEX
    if not index.is_file():
        return None
    try:
        data = parse_json(read_text(index), str(index))
    except InputError:
        return None
    if not isinstance(data, dict) or data.get("schema") != _CAPTURE_SCHEMA:
        return None
    specs = data.get("specs")
    files = [spec.get("file") for spec in specs if isinstance(spec, Mapping)] if isinstance(specs, list) else []
    return [folder / file for file in files if isinstance(file, str)]


def _kernels_of(given: KernelInput, *, followers: bool = True) -> set[tuple[str, str]]:
    """The kernels that a spec launches, by file and name; those of modules by the files of these."""
    launches = [given.spec, *given.spec.followed_by] if followers else [given.spec]
    found = set()
    for launch in launches:
        try:
            ref = parse_ref(launch.kernel, given.folder)
        except InputError:
            continue  # said when the spec is judged
        file = ref.file
        if file is None:
            from occupancy_cli.source.source_knobs import module_file

            file = module_file(ref.module or "")
        if file is not None:
            found.add((str(file.resolve()), ref.kernel))
    return found


def _knobs_of(path: Path) -> SourceKnobs:
    from occupancy_cli.source.source_knobs import read_knobs

    return read_knobs(path)
