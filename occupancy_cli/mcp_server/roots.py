"""Which paths a client may name: those below its roots, links followed.

    roots = Roots((Path("/home/me/project"),))
    roots.kernel("ops/attention.py:decode", "kernel")   # "ops/attention.py:decode", seen from the first root
    roots.kernel("/etc/passwd.yaml", "kernel")          # an `InputError`, whether that file is there or not

The rule is for what a client names, in a call or in a spec that a call names: kernel files, specs, config tables, GPU
profiles, calibrations and saved Reports. What a kernel file imports is Python's matter, in the worker that loads it,
and so is a kernel that is named by its module. What ships with this tool may always be named.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from occupancy_cli.data_files import shipped_dir
from occupancy_cli.errors import InputError
from occupancy_cli.plan.kernel_input import KernelInput, shipped_specs
from occupancy_cli.source.kernel_text import NOTEBOOK
from occupancy_cli.spec.config_tables import table_files
from occupancy_cli.spec.kernel_spec import ConfigTable

_YAML = (".yaml", ".yml")
_SHIPPED = ("kernels", "hw_profiles")
_PATTERN = re.compile(r"[*?\[]")
_CONFIG = re.compile(r"\s*[A-Za-z_]\w*\s*=[^=]")
_OF_A_PACKAGE = re.compile(r"(?P<package>[A-Za-z_]\w*):(?P<path>.+)")


@dataclass(frozen=True)
class Roots:
    """Folders below which a client may name files. The first is where relative paths are seen from."""

    folders: tuple[Path, ...]

    def path(self, text: str, where: str) -> Path:
        """The file or folder that `text` names, links resolved; a relative one lies in the first root that has it.

        `InputError` for one outside, which does not tell whether it is there.
        """
        inside = [found for found in self._meant(text, where) if self._has(found)]
        if not inside:
            raise self._outside(text, where)
        return next((path for path in inside if path.exists()), inside[0])

    def kernel(self, text: str, where: str) -> str:
        """A kernel as the API takes it, its path held to the roots; a module's or a shipped kernel's name as it is."""
        if Path(text).suffix in _YAML:
            return self._shown(self.path(text, where))
        if text in {path.stem for path in shipped_specs()}:
            return text
        before, call, rest = text.partition("(")
        place, colon, name = before.rpartition(":")
        if not _is_path(place or text):
            return text
        if not place:
            return self._shown(self.path(text, where))
        return f"{self._shown(self.path(place, where))}{colon}{name}{call}{rest}"

    def side(self, text: str, where: str) -> str:
        """A side of `diff`: a saved Report's path or a kernel held to the roots, a config or a GPU's name as it is."""
        if text.endswith(".json"):
            return str(self.path(text, where))
        return text if _CONFIG.match(text) else self.kernel(text, where)

    def gpu(self, text: str, where: str) -> str:
        """A GPU's name; of one that is a profile's path, the path held to the roots."""
        name = text.strip()
        return str(self.path(name, where)) if name.casefold().endswith(_YAML) else text

    def hold(self, given: KernelInput) -> None:
        """`InputError` where a spec names a file outside: a kernel, or tables of configs."""
        for launch in (given.spec, *given.spec.followed_by):
            place = launch.kernel.partition("(")[0].rpartition(":")[0]
            if _is_path(place) and not self._has(_resolved(given.folder / place, given.document.path)):
                raise self._outside(place, f"{given.document.path}: kernel")
            if isinstance(launch.configs, ConfigTable):
                self._hold_tables(launch.configs, given)

    def _hold_tables(self, table: ConfigTable, given: KernelInput) -> None:
        where = f"{given.document.path}: configs.table"
        folder, text, own = given.folder, table.table, Roots(self.folders)
        if packaged := _OF_A_PACKAGE.fullmatch(table.table):
            found = importlib.util.find_spec(packaged["package"])
            places = found.submodule_search_locations if found is not None else None
            if not places:
                return  # the question says that it is not installed
            folder, text = Path(next(iter(places))), packaged["path"]
            own = Roots((*self.folders, folder.resolve()))
        literal = itertools.takewhile(lambda part: not _PATTERN.search(part), (folder / text).parts)
        if not own._has(_resolved(Path(*literal), where)):
            raise self._outside(table.table, where)
        try:
            files = [path for path, _ in table_files(table, given.folder, where)]
        except InputError:
            return  # nothing matches, as the question says
        for path in files:
            if not own._has(_resolved(path, where)):
                raise self._outside(str(path), where)

    def _meant(self, text: str, where: str) -> list[Path]:
        given = Path(text)
        folders = [Path()] if given.is_absolute() else list(self.folders)
        return [_resolved(folder / given, where) for folder in folders]

    def _has(self, path: Path) -> bool:
        shipped = (shipped_dir(name).resolve() for name in _SHIPPED)
        return any(path.is_relative_to(folder) for folder in (*self.folders, *shipped))

    @property
    def home(self) -> Path | None:
        """The folder that relative paths are seen from first; None where no root is a folder."""
        return next((folder for folder in self.folders if folder.is_dir()), None)

    def _shown(self, path: Path) -> str:
        home = self.home
        return str(path.relative_to(home)) if home is not None and path.is_relative_to(home) else str(path)

    def _outside(self, text: str, where: str) -> InputError:
        listed = ", ".join(map(str, self.folders))
        hint = f"It may read {listed}." if listed else "The client has no root that this server may read."
        return InputError(f"{text} lies outside the folders that this server may read", where=where, hint=hint)


def _is_path(place: str) -> bool:
    """Whether the place of a kernel is a path, rather than a module or a name, as `plan.kernel_input` tells them."""
    return "/" in place or place.endswith((".py", NOTEBOOK))


def _resolved(path: Path, where: str) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as bad:  # a loop of links; a NUL
        raise InputError(f"{str(path)[:200]!r} is no path: {bad}", where=where) from None


def allowed_roots(ours: Sequence[Path], asked: Iterable[str] | None, *, only_ours: bool) -> Roots:
    """The roots of a call: the client's `asked` (URIs; None where it has none to tell), or `ours`.

    With `only_ours`, what of them both have: a person named those folders, and no client widens them.
    """
    own = [folder.resolve() for folder in ours]
    if asked is None:
        return Roots(tuple(own))
    theirs = [folder.resolve() for uri in asked if (folder := folder_of(uri)) is not None]
    if only_ours:
        theirs = [each for one, other in itertools.product(theirs, own) if (each := _common(one, other)) is not None]
    return Roots(tuple(dict.fromkeys(theirs)))


def _common(one: Path, other: Path) -> Path | None:
    if one.is_relative_to(other):
        return one
    return other if other.is_relative_to(one) else None


def folder_of(uri: str) -> Path | None:
    """The folder (or file) of this machine that a `file://` URI names; None for any other URI."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path))
