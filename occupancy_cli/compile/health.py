"""What of the toolchain is there: for `occupancy doctor`."""

from __future__ import annotations

import ctypes
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


@dataclass(frozen=True)
class Part:
    """One part of the toolchain. `needed`: nothing compiles without it."""

    part: str
    ok: bool
    found: str
    disables: str = ""
    needed: bool = False


def examine(arch: int = 120) -> list[Part]:
    """Look at every part; Triton is imported in a worker process, not here."""
    parts = [Part("Python", True, f"{platform.python_version()} ({sys.executable})")]
    parts += _triton(arch)
    parts.append(_module("torch", "occupancy verify, measure and capture need torch; analyzing does not"))
    parts.append(_module("distributed", "--executor dask:// needs it (extra `dask`)"))
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
        return [Part("Triton", False, missing.problem, compiling, needed=True)]
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
        ),
        # Triton asks for its version before anything else, so that without it there is no shared memory either.
        Part("ptxas", bool(answer.ptxas), answer.ptxas or "not found", compiling, needed=True),
    ]
    for tool, disables in (
        ("cuobjdump", "nothing: cubins are read directly"),
        ("nvdisasm", "times without the loop's instructions"),
    ):
        there = (tools / tool).is_file()
        parts.append(Part(tool, there, str(tools / tool) if there else "not in this Triton", disables))
    return parts


def _module(name: str, disables: str) -> Part:
    there = importlib.util.find_spec(name) is not None
    return Part(name, there, "installed" if there else "not installed", disables)


def _driver() -> Part:
    disables = "gpus --detect, --gpu local, verify, measure"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Part("CUDA driver", False, "libcuda.so.1 is not on this machine", disables)
    return Part("CUDA driver", True, "libcuda.so.1")
