"""The process that loads kernels and compiles them: reads requests (`worker_messages`), and answers each with one.

Whatever a kernel file or the compiler prints goes to a capture file, not into the answers. The process may die at any
time (an LLVM abort, a kernel file that calls `exit()`, a limit): its client notices, gives that request its reason,
and starts another. Everything that a kernel looks at outside is watched (`loading.outside_reads`) from before the first
one is loaded; an answer says what it was, for the cache. Started as `python -m occupancy_cli.compile.worker`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from occupancy_cli.compile import failure_reasons, worker_channel
from occupancy_cli.compile.kernel_record import (
    EXPLANATION_VERSION,
    Autotune,
    ConfigValue,
    Dependencies,
    KeptExplanation,
    KeptTimes,
    KernelDescription,
    KernelRecord,
    Parameter,
)
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource, Target
from occupancy_cli.compile.typed_json import from_plain, to_json
from occupancy_cli.compile.worker_messages import (
    Answer,
    AskHealth,
    Binary,
    Compile,
    Compiled,
    Describe,
    Described,
    Failed,
    Health,
    Prune,
    Pruned,
    Request,
    Seen,
    Warm,
    Warmed,
    message_text,
    request_of,
)
from occupancy_cli.errors import InputError, OccupancyError, unknown_name
from occupancy_cli.loading import outside_callers, outside_reads, outside_recordings
from occupancy_cli.loading.outside_facts import MOST_BYTES, TOOL_VARIABLES, hashed, observe
from occupancy_cli.loading.outside_recordings import Recording, recording
from occupancy_cli.loading.target_gpu import active, asking
from occupancy_cli.model.resources import KernelResources

_NAME_A_TOOL = (
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH"),
    *("LLVM_PASS_PLUGIN_PATH", "TRITON_PLUGIN_PATHS"),
)
# Of what was printed, so much of the beginning and of the end is searched for the compiler's error.
_PRINTED_BYTES = 1 << 20
# No file that a compile writes comes near; a kernel file that prints without end must not fill the disk.
_MOST_WRITTEN_BYTES = 1 << 30
_NO_VARIABLES_OF_A_COMPILE = frozenset({"HOME", "TRITON_HOME"})
UNKNOWN_INT32 = 1 << 20
UNKNOWN_INT64 = 1 << 40

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
def _reading(source: KernelSource) -> Iterator[None]:
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


def _kernel(source: KernelSource) -> Any:
    from occupancy_cli.compile import triton_front

    loaded = load(source)
    if source.kernel not in loaded.kernels:
        from occupancy_cli.loading.kernel_objects import kernel_object

        with _reading(source) if "(" in source.kernel else contextlib.nullcontext():
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


def _stand_in(argument: ArgumentValue) -> Any:
    from occupancy_cli.compile import triton_front

    if argument.type == "none":
        return None
    if argument.type.startswith("*"):
        return triton_front.TensorStandIn(argument.type[1:], argument.align)
    if argument.type.startswith("tensordesc<"):
        return triton_front.descriptor_stand_in(argument.type)
    if argument.value is not None:
        return argument.value
    if argument.type.startswith("fp") or argument.type.startswith("bf"):
        return 1.5
    if argument.type == "i1":
        return True
    return UNKNOWN_INT64 if argument.type in ("i64", "u64") else UNKNOWN_INT32


def _remembering(source: KernelSource, work: Callable[[], T]) -> tuple[T, Seen]:
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


def _describe(message: Describe) -> Described:
    def work() -> KernelDescription:
        from occupancy_cli.compile import triton_front

        found = triton_front.describe(_kernel(message.source))
        tuned = found["autotune"]
        return KernelDescription(
            name=found["name"],
            params=tuple(from_plain(Parameter, p, "parameter") for p in found["params"]),
            autotune=None if tuned is None else from_plain(Autotune, tuned, "autotune"),
            heuristics=tuple(found["heuristics"]),
            source_files=tuple(found["source_files"]),
            stand_ins=tuple(load(message.source).stand_ins),
        )

    description, seen = _remembering(message.source, work)
    return Described(message.source, message.target.arch, description, seen)


def _prune(message: Prune) -> Pruned:
    def work() -> tuple[dict[str, ConfigValue], ...]:
        from occupancy_cli.compile import triton_front

        request = message.request
        values = {a.name: _stand_in(a) for a in request.arguments} | dict(request.constexprs)
        kernel = _kernel(request.source)
        with _reading(request.source):
            return tuple(triton_front.pruned_configs(kernel, values))

    configs, seen = _remembering(message.request.source, work)
    return Pruned(message.request.key(), configs, seen)


def _compile(message: Compile) -> tuple[KernelRecord, Binary | None]:
    from occupancy_cli.compile import triton_front
    from occupancy_cli.readers import cubin

    request = message.request
    if is_written_by_compiler(request.source):
        return _compile_on(request), None
    kernel = _kernel(request.source)
    set_by_heuristics = triton_front.heuristic_names(kernel)
    heuristic = {a.name: a.value for a in request.arguments if a.heuristic}
    heuristic |= {n: v for n, v in request.constexprs if n in set_by_heuristics}
    values = {a.name: _stand_in(a) for a in request.arguments if not a.heuristic}
    values |= {n: v for n, v in request.constexprs if n not in set_by_heuristics}
    config = dict(request.options)
    taken: set[str] = set()
    with _reading(request.source):
        values = triton_front.with_heuristics(kernel, values, config, heuristic, taken)
    for name, declared in heuristic.items():
        if name in taken:
            continue  # a value of the launch, not what is to come out
        if name not in values:
            raise InputError(f"no @triton.heuristics sets {name}, which is marked so", where=str(request.source))
        if values[name] != declared:
            raise InputError(
                f"the kernel's heuristic gives {name} = {values[name]!r}, the spec says {declared!r}",
                where=str(request.source),
                hint="Correct the value or expression in the spec.",
            )
    triton_front.install_driver(request.target)
    notes: list[str] = []
    try:
        result = triton_front.compile_launch(
            kernel, values, stop_above=request.stop_above, keep_allocated=request.explain
        )
    except triton_front.EarlyStopUnavailable as why:
        notes.append(f"{why}; compiled in full instead")
        result = triton_front.compile_plainly(kernel, values)
    resources = KernelResources(
        shared_bytes=result["shared_bytes"],
        num_warps=result["num_warps"],
        threads_per_cta=32 * result["num_warps"],
        num_ctas=result["num_ctas"],
        tmem_columns=result["tmem_columns"],
    )
    explanation = _explanation(result) if request.explain and result.get("allocated") else None
    if "cubin" not in result:
        return KernelRecord(resources, tuple(notes), explanation=explanation), None
    found = {k.name: k for k in cubin.read_cubin(result["cubin"])}
    if result["name"] not in found:
        raise InputError(f"the cubin has no kernel {result['name']!r}", where=str(request.source))
    mine = found[result["name"]]
    reserved = 1024 if request.target.arch >= 90 else 0
    resources = replace(
        resources,
        registers_per_thread=mine.registers_per_thread,
        spill_bytes=mine.frame_bytes,
        static_shared_bytes=max(0, mine.static_shared_bytes - reserved),
    )
    times: dict[str, KeptTimes] = {}
    if request.time_on is not None:
        from occupancy_cli.loading import module_loading

        tools = Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"
        arguments = {a.name: v if isinstance(v := values[a.name], int) else None for a in request.arguments}
        with module_loading.left_aside():
            from occupancy_cli.compile.simulated_timing import read_timing

            read = read_timing(result["ttgir"], result["cubin"], arguments, resources, request.time_on, tools)
        times[request.time_on.digest] = KeptTimes(to_json(read))
    binary = None
    if message.keep_in is not None:
        file = Path(message.keep_in) / f"{request.key()}.cubin"
        file.write_bytes(result["cubin"])
        binary = Binary(str(file), result["name"])
    return KernelRecord(resources, tuple(notes), times=times, explanation=explanation), binary


def _explanation(result: Mapping[str, Any]) -> KeptExplanation:
    """Where the resources of a compile go, from the IR behind its allocation pass and its cubin."""
    from occupancy_cli.compile import triton_front
    from occupancy_cli.loading import module_loading

    tools = Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"
    with module_loading.left_aside():
        from occupancy_cli.compile.explaining import read_explanation

        read = read_explanation(
            result["allocated"], result.get("cubin"), result.get("ttgir", ""), result.get("name", ""), tools
        )
    return KeptExplanation(to_json(read), EXPLANATION_VERSION)


def is_written_by_compiler(source: KernelSource) -> bool:
    """Whether a source is a kernel's IR or PTX, not Python."""
    return source.file is not None and source.file.endswith((".ttir", ".ttgir", ".ptx"))


def _compile_on(request: CompileRequest) -> KernelRecord:
    """Compile a kernel on from its TTIR, TTGIR or PTX."""
    from occupancy_cli.compile import triton_front
    from occupancy_cli.readers import cubin

    assert request.source.file is not None
    triton_front.install_driver(request.target)
    result = triton_front.compile_text(Path(request.source.file), request.target.arch, dict(request.options))
    found = {k.name: k for k in cubin.read_cubin(result["cubin"])}
    if result["name"] not in found:
        raise InputError(f"the cubin has no kernel {result['name']!r}", where=str(request.source))
    mine = found[result["name"]]
    resources = KernelResources(
        shared_bytes=result["shared_bytes"],
        num_warps=result["num_warps"],
        threads_per_cta=32 * result["num_warps"],
        registers_per_thread=mine.registers_per_thread,
        spill_bytes=mine.frame_bytes,
        static_shared_bytes=max(0, mine.static_shared_bytes - (1024 if request.target.arch >= 90 else 0)),
        num_ctas=result["num_ctas"],
        tmem_columns=result["tmem_columns"],
    )
    return KernelRecord(resources)


def _toolchain(arch: int) -> dict[str, str]:
    from occupancy_cli.compile import triton_front

    return {"triton": triton_front.VERSION, "ptxas": triton_front.ptxas_version(arch)}


def _health(arch: int) -> Health:
    from occupancy_cli.compile import triton_front

    return Health(
        **_toolchain(arch),
        missing_internals=tuple(str(moved) for moved in triton_front.check_internals()),
        path=triton_front.LOCATION,
        tools=str(Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"),
        supported=triton_front.is_supported(),
    )


def _answer(message: Request) -> Answer:
    if isinstance(message, Warm):
        _import_compiler()
        return Warmed()
    if isinstance(message, AskHealth):
        return _health(message.arch)
    if isinstance(message, Describe):
        # A driver has to be there while the module loads: some kernels ask for the device then.
        _install(message.target)
        return _describe(message)
    _install(message.request.target)
    if isinstance(message, Prune):
        return _prune(message)
    request = message.request
    started = time.perf_counter()
    with _triton_cache(message.keep_in):
        (record, binary), seen = _remembering(request.source, lambda: _compile(message))
    record = replace(
        record,
        notes=(*record.notes, *load(request.source).notes),
        toolchain=tuple(sorted(_toolchain(request.target.arch).items())),
        compile_seconds=time.perf_counter() - started,
    )
    return Compiled(request.key(), request.target.arch, record, seen, binary)


@contextlib.contextmanager
def _triton_cache(folder: str | None) -> Iterator[None]:
    """While active, Triton's own cache lies in `folder`/triton, for a process that launches what is compiled here.

    Without a folder nobody looks anything up in it.
    """
    if folder is None:
        from occupancy_cli.compile import triton_front

        with triton_front.unhashed_installation():
            yield
        return
    private = os.environ["TRITON_CACHE_DIR"]
    os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
    try:
        yield
    finally:
        os.environ["TRITON_CACHE_DIR"] = private


def _import_compiler() -> None:
    # All of Triton and what reads cubins is imported before any kernel file puts its folder on the path: a file there
    # called copy.py or token.py must not take the place of the standard library's.
    from occupancy_cli.compile import triton_front  # noqa: F401
    from occupancy_cli.readers import cubin  # noqa: F401


def _install(target: Target) -> None:
    from occupancy_cli.compile import triton_front
    from occupancy_cli.compile.triton_internals import require_internals

    _import_compiler()
    require_internals(("compile",))
    triton_front.install_driver(target)


def _failure(bad: BaseException) -> Failed:
    if isinstance(bad, OccupancyError):
        return Failed("input", bad.problem, bad.where, bad.hint)
    try:
        text = str(bad).strip() or type(bad).__name__
    except Exception as worse:  # noqa: BLE001 (a kernel file's own exception may not even tell what it is)
        name = f"{type(bad).__module__}.{type(bad).__qualname__}"
        return Failed("compile", f"{name}, whose text raises {type(worse).__name__}")
    if isinstance(bad, MemoryError):
        return Failed("over_memory", "the compile ran out of the memory it is allowed")
    frames = {frame.name for frame in traceback.extract_tb(bad.__traceback__)}
    if frames & {"exec_module", "import_module"} or isinstance(bad, ImportError):
        return Failed("import", f"{type(bad).__name__}: {text}", output=_trace(bad))
    if type(bad).__name__ == "PTXASError":
        return Failed("ptxas", failure_reasons.ptxas_reason(text), output=text)
    gone = _removed_api(bad)
    if gone is not None:
        return Failed("version", gone + failure_reasons.place(bad), output=_trace(bad))
    return Failed("compile", failure_reasons.reason(bad, _printed()), output=_trace(bad))


def _removed_api(bad: BaseException) -> str | None:
    """A sentence when the kernel uses a name that this Triton no longer has."""
    from occupancy_cli.compile.compile_service import triton_version
    from occupancy_cli.source import removed_apis

    return removed_apis.explain_failure(f"{bad}\n{bad.__cause__ or ''}", triton_version())


def _printed() -> str:
    """What was printed since the request came in; of much, its beginning and its end."""
    _flush()
    try:
        with Path(sys.argv[1]).open("rb") as file:
            text = file.read(_PRINTED_BYTES)
            file.seek(max(_PRINTED_BYTES, file.seek(0, os.SEEK_END) - _PRINTED_BYTES))
            return (text + file.read()).decode(errors="replace")
    except (OSError, IndexError):
        return ""


def _flush() -> None:
    # A kernel file may have closed them, or put something else in their place.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _trace(bad: BaseException) -> str:
    return "".join(traceback.format_exception(type(bad), bad, bad.__traceback__))[-4000:]


def _end_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it, however that ends (Linux: PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _children_end_with_this(files: Iterable[int]) -> None:
    """Processes forked from now on let go of `files`, and end with the one that forked them, whatever their session."""
    libc = ctypes.CDLL(None)

    def in_child() -> None:
        for file in files:
            with contextlib.suppress(OSError):
                os.close(file)
        if sys.platform == "linux":
            libc.prctl(1, signal.SIGKILL)
            if os.getppid() == 1:  # that one is gone already
                os._exit(1)

    os.register_at_fork(after_in_child=in_child)


def main() -> None:
    """Serve requests from standard input until it closes. Arguments: the capture file, the memory limit in bytes."""
    capture, memory_bytes = sys.argv[1], int(sys.argv[2])
    _end_with_parent()
    channel = worker_channel.WorkerEnd()
    # Bound here: a kernel file may replace what it likes in other modules.
    to_text, own, this_process = message_text, os.getpid(), os.getpid
    _children_end_with_this(channel.descriptors)
    # From here on whatever is printed, by Python, LLVM or a child, lands in the capture file.
    captured = os.open(capture, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(captured, 1)
    os.dup2(captured, 2)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 (lives as long as the process)
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
    # Triton's own cache must neither answer for a compile nor keep what is compiled here.
    private = tempfile.mkdtemp(prefix="occupancy-triton-")
    outside_reads.install([private, str(Path(capture).parent)])
    os.environ["TRITON_CACHE_DIR"] = private
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    os.environ["TRITON_STORE_BINARY_ONLY"] = "0"  # the TTGIR is read too
    if "TRITON_DEFAULT_FP_FUSION" not in os.environ:
        # What Triton 3.4 to 3.9 do when it is unset; set, so that 3.9 does not warn that 3.10 will change it.
        os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    try:
        for text in channel:
            os.ftruncate(captured, 0)
            os.lseek(captured, 0, os.SEEK_SET)
            try:
                answer = to_text(_answer(request_of(text)))
            except BaseException as bad:  # noqa: BLE001 (the reason goes into the answer)
                if this_process() == own:
                    answer = to_text(_failure(bad))
            if this_process() != own:
                os._exit(0)  # the kernel file forked, and this is its copy of the worker: the original answers
            _flush()
            channel.answer(answer)
    finally:
        shutil.rmtree(private, ignore_errors=True)


if __name__ == "__main__":
    main()
