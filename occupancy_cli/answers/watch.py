"""`watch`: what a saved change of a kernel does to its configs: bytes, registers, CTAs, time.

Looked at are the spec, the files of its kernels, and the Python files and specs beside them, by content: an editor that
writes a file anew with the same text changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from occupancy_cli.answers.diff import compared
from occupancy_cli.plan.kernel_input import KernelInput, parse_ref
from occupancy_cli.report.diff_parts import Diff
from occupancy_cli.report.report import Report

_ENDINGS = (".py", ".yaml", ".yml")


@dataclass
class Watched:
    """Files and their content. `changed` reads again those alone whose time or size is another than before."""

    folders: tuple[Path, ...]
    _known: dict[Path, tuple[int, int, str]] = field(default_factory=dict)

    def changed(self) -> list[Path]:
        """What is new, gone or of another content since the last call; all of it at the first."""
        found: dict[Path, tuple[int, int, str]] = {}
        for path in self._files():
            try:
                stat = path.stat()
                known = self._known.get(path)
                if known is not None and known[:2] == (stat.st_mtime_ns, stat.st_size):
                    found[path] = known
                else:
                    found[path] = (stat.st_mtime_ns, stat.st_size, hashlib.sha256(path.read_bytes()).hexdigest())
            except OSError:  # between the listing and the look: an editor is at it
                continue
        before, self._known = self._known, found
        return [path for path in sorted({*before, *found}) if _content(before, path) != _content(found, path)]

    def _files(self) -> Iterable[Path]:
        return (path for folder in self.folders for path in folder.glob("*") if path.suffix in _ENDINGS)


def _content(known: Mapping[Path, tuple[int, int, str]], path: Path) -> str:
    return known[path][2] if path in known else ""


def watched(given: KernelInput) -> Watched:
    """The folders of a kernel's spec, of its file, and of those of its followers."""
    kernels = [given.spec.kernel, *(follower.kernel for follower in given.spec.followed_by)]
    files = [parse_ref(kernel, given.folder).file for kernel in kernels]
    folders = [file.parent for file in files if file is not None]
    return Watched(tuple(dict.fromkeys([*folders, *([] if given.from_flags else [given.folder])])))


def difference(before: Report, after: Report) -> Diff:
    """What changed from one Report of `analyze` to the next, config by config."""
    return compared(_alone(before), _alone(after), ("before", "now"))


def _alone(report: Report) -> Report:
    return replace(report, notes=[])
