"""What of the toolchain is there: for `occupancy doctor`."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.compile.compile_service import perform
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.compile.worker_messages import AskHealth, Failed, Health
from occupancy_cli.errors import MissingDependencyError

_DISTRIBUTION = "occupancy-cli"
_INSTALL_TRITON = "python -m pip install 'triton>=3.4,<3.10' (Linux)"
# By extra of the distribution: the module to look for, its name here, and what does not work without it.
_EXTRAS = {
    "gpu": ("torch", "torch", "occupancy verify, measure and capture need torch; analyzing does not"),
    "charts": ("vl_convert", "vl-convert", "occupancy report draws no pictures"),
    "dask": ("distributed", "distributed", "--executor dask:// needs it"),
    "mcp": ("mcp", "mcp", "occupancy mcp"),
    "docs": ("material", "mkdocs-material", "the site is not built from a checkout: make docs"),
}


@dataclass(frozen=True)
class Part:
    """One part of the toolchain. `needed`: nothing compiles without it. `get`: how to have it, where it is missing."""

    part: str
    ok: bool
    found: str
    disables: str = ""
    needed: bool = False
    get: str = ""


def examine(arch: int = 120) -> list[Part]:
    """Look at every part; Triton is imported in a worker process, not here."""
    parts = [Part("Python", True, f"{platform.python_version()} ({sys.executable})")]
    parts += _triton(arch)
    parts += _extras()
    cache = ResultCache().info()
    found = cache.trouble or f"{cache.path}, {cache.records:,} results"
    parts.append(Part("result cache", not cache.trouble, found, "every run compiles anew" if cache.trouble else ""))
    parts.append(_driver())
    return parts


def _triton(arch: int) -> list[Part]:
    compiling = "nothing can be compiled: analyze, recommend, check"
    try:
        answer = perform(AskHealth(arch), Limits(60.0, 0)).answer
    except MissingDependencyError as missing:
        return [Part("Triton", False, missing.problem, compiling, needed=True, get=_INSTALL_TRITON)]
    if not isinstance(answer, Health):
        reason = answer.message if isinstance(answer, Failed) else "the compiler process did not say"
        return [Part("Triton", False, reason, compiling, needed=True)]
    moved = answer.missing_internals
    tools = Path(answer.tools)
    parts = [
        Part("Triton", True, f"{answer.triton} ({answer.path})"),
        Part(
            "Triton's internals",
            not moved,
            "all where they are looked for" if not moved else "; ".join(moved),
            "" if not moved else compiling,
            needed=True,
        ),
        Part(
            "supported Triton",
            answer.supported,
            "tested with 3.4 to 3.9",
            "" if answer.supported else "results may be wrong with this version",
            get=_INSTALL_TRITON,
        ),
        # Triton asks for its version before anything else, so that without it there is no shared memory either.
        Part(
            "ptxas",
            bool(answer.ptxas),
            answer.ptxas or "not found",
            compiling,
            needed=True,
            get="Triton's wheel has it; of a CUDA toolkit: TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
        ),
    ]
    for tool, disables in (
        ("cuobjdump", "nothing: cubins are read directly"),
        ("nvdisasm", "times without the loop's instructions"),
    ):
        there = (tools / tool).is_file()
        found = str(tools / tool) if there else "not in this Triton"
        parts.append(Part(tool, there, found, disables, get=f"Triton's wheel has it; or copy CUDA's into {tools}"))
    return parts


def _extras() -> list[Part]:
    """What each extra of the distribution brings, those that this version has."""
    try:
        offered = importlib.metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        offered = list(_EXTRAS)
    parts = []
    for extra, (module, name, disables) in _EXTRAS.items():
        if extra in offered:
            there = importlib.util.find_spec(module) is not None
            found = "installed" if there else "not installed"
            parts.append(Part(name, there, found, disables, get=f"python -m pip install '{_DISTRIBUTION}[{extra}]'"))
    return parts


def _driver() -> Part:
    disables = "gpus --detect, --gpu local, verify, measure"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        get = "it comes with NVIDIA's driver, on a machine that has a GPU"
        return Part("CUDA driver", False, "libcuda.so.1 is not on this machine", disables, get=get)
    return Part("CUDA driver", True, "libcuda.so.1")
