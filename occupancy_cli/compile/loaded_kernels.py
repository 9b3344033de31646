"""Kernels as a worker has loaded them, and all that they looked at outside on the way."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from occupancy_cli.compile.kernel_record import Dependencies
from occupancy_cli.compile.request import KernelSource
from occupancy_cli.compile.worker_messages import Seen
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.loading import outside_callers, outside_recordings
from occupancy_cli.loading.outside_facts import MOST_BYTES, TOOL_VARIABLES, hashed, observe
from occupancy_cli.loading.outside_recordings import Recording, recording
from occupancy_cli.loading.target_gpu import active, asking

_NAME_A_TOOL = (
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH"),
    *("LLVM_PASS_PLUGIN_PATH", "TRITON_PLUGIN_PATHS"),
)
_NO_VARIABLES_OF_A_COMPILE = frozenset({"HOME", "TRITON_HOME"})

T = TypeVar("T")


class Loaded:
    """A kernel module as loaded: its object, what was seen outside on the way, and what it asked the device.

    `stand_ins` names the missing modules that were stood in for, `notes` says so, and what else a reader should know of
    how it was loaded. `kernels` are the objects that references named in it.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.seen = Recording()
        self.asked: set[str] = set()
        self.stand_ins: list[str] = []
        self.notes: list[str] = []
        self.kernels: dict[str, Any] = {}


_loaded: dict[int, Loaded] = {}
# What was seen while modules that several kernels share were loaded: it counts for each, whichever loaded them.
_shared: dict[int, tuple[Any, Recording]] = {}
_located: set[tuple[str, Any]] = set()


def load(source: KernelSource) -> Loaded:
    """Import the module of `source`, once for a target, with stand-ins for what it misses; see `loading`.

    What a compiler wrote is no module: of it only the text counts.
    """
    if is_written_by_compiler(source):
        assert source.file is not None
        loaded = Loaded(ModuleType(source.kernel))
        loaded.seen.facts["content", source.file] = observe("content", source.file)
        return loaded
    from occupancy_cli.loading import module_loading

    device = active()
    place = (source.file or source.module or "", device)
    if place not in _located:
        _located.add(place)
        module_loading.locate.cache_clear()  # where a file belongs follows from the folders around it: seen anew
    with recording(forced=True) as seen, asking() as asked:
        found = module_loading.load(asdict(source), device)
    # Modules that another kernel's load has brought in do not look again.
    _, shared = _shared.setdefault(id(found.modules), (found.modules, Recording()))
    shared.add(seen)
    found.modules.asked |= asked
    loaded = _loaded.setdefault(id(found.module), Loaded(found.module))
    loaded.seen.add(shared)
    loaded.asked |= found.modules.asked
    loaded.stand_ins, loaded.notes = found.stand_ins, found.notes
    facts = loaded.seen.facts
    if source.module:
        facts.setdefault(("cwd", ""), outside_recordings.given_folder())
    facts.setdefault(("interpreter", ""), observe("interpreter", ""))
    files = [*_sources(found.new_modules()), *found.absent_files(), *_version_files()]
    for file in files:
        if ("content", file) not in facts:
            facts["content", file] = observe("content", file)
    return loaded


def _version_files() -> list[str]:
    """The version modules of packages that a version stands for and that kernels ask. (Triton is in every key.)"""
    files = [getattr(sys.modules.get(f"{name}.version"), "__file__", None) for name in ("torch", "numpy", "filelock")]
    return [file for file in files if isinstance(file, str)]


@contextlib.contextmanager
def reading(source: KernelSource) -> Iterator[None]:
    """While active, what the kernel's own code looks at counts among what it depends on, for later requests too."""
    with recording() as seen:
        yield
    load(source).seen.add(seen)


def _sources(modules: Iterable[ModuleType]) -> list[str]:
    """The source file of every module that no version number stands for."""
    files = [(module.__name__, getattr(module, "__file__", None)) for module in modules]
    return [
        file
        for name, file in files
        if isinstance(file, str) and file.endswith(".py") and outside_callers.is_kernels_own(file, name)
    ]


def _of_the_compiler() -> Recording:
    """What Triton may read on its own account: variables, and the tools and libraries that they name.

    Asked of Triton and not watched: from 3.6 on it reads them with C's `getenv`.
    """
    from occupancy_cli.compile import triton_front

    given = outside_recordings.given_environment()
    seen = Recording()
    for name in triton_front.environment_names() - _NO_VARIABLES_OF_A_COMPILE:
        if name not in TOOL_VARIABLES:
            seen.facts["variable", name] = hashed(name, given.get(name))
    for name in _NAME_A_TOOL:
        if value := given.get(name):
            # Where there is no such file Triton takes its own, and would take this one if it appeared.
            file = Path(shutil.which(value) or value).absolute()
            seen.facts["content", str(file)] = observe("content", str(file))
            if file.is_file() and file.stat().st_size > MOST_BYTES:
                seen.refusals[f"{name} names a file of more than {MOST_BYTES >> 20} MiB"] = None
    return seen


def loaded_kernel(source: KernelSource) -> Any:
    """The kernel that `source` names, as its module has it; InputError where there is none or it is no kernel."""
    from occupancy_cli.compile import triton_front

    loaded = load(source)
    if source.kernel not in loaded.kernels:
        from occupancy_cli.loading.kernel_objects import kernel_object

        with reading(source) if "(" in source.kernel else contextlib.nullcontext():
            loaded.kernels[source.kernel] = kernel_object(loaded.module, source.kernel, triton_front.is_kernel)
    value = loaded.kernels[source.kernel]
    where = source.file or source.module or ""
    if not triton_front.is_kernel(value):
        kernels = [n for n, v in vars(loaded.module).items() if triton_front.is_kernel(v)]
        if value is not None and not isinstance(value, FunctionType):
            kind = type(value)
            raise InputError(
                f"{source.kernel} is of type {kind.__module__}.{kind.__qualname__}, not a Triton kernel",
                where=where,
                hint=f"Kernels there: {', '.join(kernels[:20])}" if kernels else "",
            )
        raise _unknown_kernel(source, kernels, where, is_function=value is not None)
    return value


def _unknown_kernel(source: KernelSource, kernels: list[str], where: str, *, is_function: bool) -> InputError:
    """What is wrong with the name of a kernel: there is none, or it exists only once a function was called."""
    from occupancy_cli.source.kernel_makers import makers_in

    name = source.kernel.rpartition(".")[2]
    makers = makers_in(Path(source.file)) if source.file else []
    for maker in makers:
        if maker.kernel == name or maker.function == name:
            problem = f"the kernel {maker.kernel} is made inside the function {maker.function} (line {maker.line})"
            return InputError(problem, where=where, hint=f"Name it with its arguments: {maker.reference()}")
    known = [*kernels, *(maker.reference() for maker in makers)]
    if is_function:
        hint = f"Kernels there: {', '.join(known[:20])}" if known else ""
        return InputError(f"{source.kernel} is a function, not a Triton kernel", where=where, hint=hint)
    return unknown_name("kernel", source.kernel, known, where=where)


def remembering(source: KernelSource, work: Callable[[], T]) -> tuple[T, Seen]:
    """What `work` gives, with all that it came from: what the kernel saw while it loaded and since, and what it asked
    the device."""
    from occupancy_cli.compile import triton_front

    with recording() as during, asking() as asked:
        value = work()
    loaded = load(source)
    loaded.seen.add(during)
    seen = Recording()
    seen.add(loaded.seen)
    seen.add(_of_the_compiler())
    seen = seen.without_what_children_write()
    # What was seen before the work is looked at again after it: another state then may have been read in between.
    changed = seen.changed()
    told = tuple((name, getattr(active(), name, None)) for name in sorted(loaded.asked | asked))
    return value, Seen(
        depends_on=Dependencies(seen.as_facts(), told),
        refusals=tuple(seen.refusals),
        written=tuple(sorted(seen.written)),
        changed=None if changed is None else str(changed),
        made_by=triton_front.VERSION,
    )


def is_written_by_compiler(source: KernelSource) -> bool:
    """Whether a source is a kernel's IR or PTX, not Python."""
    return source.file is not None and source.file.endswith((".ttir", ".ttgir", ".ptx"))
