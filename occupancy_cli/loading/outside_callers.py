"""Whose look at the outside it is: the kernel's, or one of the tool's, of Python's or of a package with a version.

Only what a kernel causes counts: a frame of its own, or of a package that no version number stands for, lies between
the read and the next `<module>` of the standard library, of Triton or of PyTorch, whose own imports their versions
cover.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

VERSIONED = ("triton", "torch", "numpy", "pydantic", "pydantic_core", "yaml", "elftools", "filelock", "occupancy_cli")
"""Packages that a version number stands for: the tool's own, and those that are in a result's key or facts.

(filelock, which comes with PyTorch, looks at its own process when it is imported.)"""

# These keep what they read of the clock and the system to themselves.
_OWN_AFFAIR = ("logging", "threading", "queue", "selectors", "concurrent", "asyncio", "multiprocessing", "tempfile")

_sorts: dict[str, str] = {}


def sort_of(file: str) -> str:
    """Whose code a file is: "stdlib", "versioned", "tool", "generated" or "kernel"."""
    found = _sorts.get(file)
    if found is None:
        found = _sorts[file] = _new_sort(file)
    return found


def _new_sort(file: str) -> str:
    if file.startswith("<"):
        return "generated"
    if file.startswith(_TOOL):
        return "kernel" if file.startswith(_SHIPPED) else "tool"
    packages = max(file.rfind("/site-packages/"), file.rfind("/dist-packages/"))
    if packages >= 0:
        top = file[packages + len("/site-packages/") :].partition("/")[0].removesuffix(".py")
        return "versioned" if top in VERSIONED else "kernel"
    if file.startswith(_STDLIB):
        return "stdlib"
    return "versioned" if file.startswith(_versioned_folders()) else "kernel"


def _versioned_folders() -> tuple[str, ...]:
    # Installed elsewhere, as a checkout. A stand-in for one of them has no file.
    files = [getattr(sys.modules.get(name), "__file__", None) for name in VERSIONED]
    return tuple(f"{os.path.dirname(file)}/" for file in files if isinstance(file, str))  # noqa: PTH120


def cause(frame: FrameType | None) -> FrameType | None:
    """The kernel's frame that caused a read in `frame`; None when it is not the kernel's."""
    while frame is not None:
        sort = sort_of(frame.f_code.co_filename)
        if sort == "kernel":
            return frame
        if _is_its_own(frame, sort):
            return None
        frame = frame.f_back
    return None


def _is_its_own(frame: FrameType, sort: str) -> bool:
    """Whether what is read below `frame` is the business of a package that a version number stands for: its imports,
    and the table that `inspect` makes of where modules lie."""
    name = frame.f_code.co_name
    if name == "<module>":
        return sort in ("stdlib", "versioned")
    return name == "getmodule" and sort == "stdlib"


def is_own_import(frame: FrameType | None) -> bool:
    """Whether a package that a version number stands for reads in `frame`, on its own account."""
    while frame is not None:
        sort = sort_of(frame.f_code.co_filename)
        if _is_its_own(frame, sort):
            return True
        if sort == "kernel":
            return False
        frame = frame.f_back
    return False


def is_own_affair(frame: FrameType | None) -> bool:
    """Whether a read of the clock and the like stays inside the module of the standard library that reads."""
    while frame is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    if frame is None or sort_of(frame.f_code.co_filename) != "stdlib":
        return False
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OWN_AFFAIR


def is_kernels_own(file: str, module: str) -> bool:
    """Whether a module's source is neither the standard library's nor what a version number stands for."""
    return sort_of(file) == "kernel" and module.partition(".")[0] not in VERSIONED


_TOOL = f"{Path(__file__).resolve().parents[1]}/"
_SHIPPED = f"{_TOOL}_shipped/"
_STDLIB = f"{sysconfig.get_paths()['stdlib']}/"
