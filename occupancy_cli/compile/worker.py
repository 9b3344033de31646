"""The process that loads kernels and compiles them: reads requests, one JSON a line, and answers each with one.

Whatever a kernel file or the compiler prints goes to a capture file, not into the answers. The process may die at any
time (an LLVM abort, a kernel file that calls `exit()`, a limit): its client notices, gives that request its reason,
and starts another. Started as `python -m occupancy_cli.compile.worker`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_cli.compile import failure_reasons
from occupancy_cli.compile.request import ArgumentValue, CompileRequest
from occupancy_cli.errors import InputError, OccupancyError, unknown_name
from occupancy_cli.loading.file_reads import as_read, file_reads, fingerprint, fingerprints, now_ns
from occupancy_cli.model.resources import KernelResources

# Where things lie on a machine, and what this process or its client sets itself: these decide no result.
_MACHINE_VARIABLES = (
    *("HOME", "PATH", "PWD", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "TERM", "USER", "LOGNAME"),
    *("TRITON_CACHE_DIR", "TRITON_HOME"),
)
_TOOL_VARIABLES = (
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH"),
    *("LLVM_PASS_PLUGIN_PATH", "TRITON_PLUGIN_PATHS"),
)
_VERSIONED = ("triton", "torch", "numpy", "pydantic", "pydantic_core", "yaml", "elftools", "occupancy_cli")
# Of what was printed, so much of the beginning and of the end is searched for the compiler's error.
_PRINTED_BYTES = 1 << 20
# No file that a compile writes comes near; a kernel file that prints without end must not fill the disk.
_MOST_WRITTEN_BYTES = 1 << 30
UNKNOWN_INT32 = 1 << 20
UNKNOWN_INT64 = 1 << 40


class EnvironmentReads:
    """Records which environment variables are read, and the values they were given (None: not set)."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While active, reads through `os.environ` and `os.getenv` are recorded; handing all of it to a child process
        (ptxas), whose shell level and last command change from run to run, is not a read."""
        cls = type(os.environ)
        read, spawn = cls.__getitem__, os.posix_spawn
        handing_on = False

        def recorded(environ: Any, name: Any) -> Any:
            value = None
            try:
                value = read(environ, name)
            finally:
                if isinstance(name, str) and name not in _MACHINE_VARIABLES and not handing_on:
                    self.values[name] = value if _given is None else _given.get(name)
            return value

        def spawned(*arguments: Any, **options: Any) -> int:
            nonlocal handing_on
            handing_on = True
            try:
                return spawn(*arguments, **options)
            finally:
                handing_on = False

        cls.__getitem__, os.posix_spawn = recorded, spawned  # type: ignore[method-assign]
        try:
            yield
        finally:
            cls.__getitem__, os.posix_spawn = read, spawn  # type: ignore[method-assign]


class Loaded:
    """A kernel module as loaded: its object, the files it came from, the environment it read.

    `files` has None for a file whose appearance would change the load; `asked` is what it asked the device. `stand_ins`
    names the missing modules that were stood in for, `notes` says so, and what else a reader should know of how it was
    loaded.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.files: dict[str, str | None] = {}
        self.env: dict[str, str | None] = {}
        self.asked: set[str] = set()
        self.stand_ins: list[str] = []
        self.notes: list[str] = []


# The environment that this process was started with. What it, or a kernel file, sets itself follows from the sources.
_given: dict[str, str] | None = None
# What changes after this worker's start may have been read, by whichever load, as it was before.
_SINCE_NS = now_ns()
_loaded: dict[int, Loaded] = {}


def load(source: Mapping[str, Any]) -> Loaded:
    """Import the module of `source`, once for a target, with stand-ins for what it misses; see `loading`."""
    from occupancy_cli.compile import triton_front
    from occupancy_cli.loading import module_loading

    device = triton_front.active_device()
    reads = EnvironmentReads()
    with reads.recording(), device.asking() as asked, file_reads() as read:
        found = module_loading.load(source, device)
    # Modules that another kernel's load has brought in do not read again.
    found.modules.env |= reads.values
    found.modules.asked |= asked
    found.modules.files |= _read_files(read)
    loaded = _loaded.setdefault(id(found.module), Loaded(found.module))
    loaded.env |= found.modules.env | _compiler_environment()
    loaded.asked |= found.modules.asked
    loaded.stand_ins, loaded.notes = found.stand_ins, found.notes
    new = [m for m in found.new_modules() if getattr(m, "__file__", None) not in loaded.files]
    loaded.files |= found.modules.files | _source_hashes(new) | dict.fromkeys(found.absent_files()) | _versions()
    return loaded


def _versions() -> dict[str, str | None]:
    """What stands for the compiled packages that kernels ask: their version modules. (Triton is in every key.)"""
    files = [getattr(sys.modules.get(f"{name}.version"), "__file__", None) for name in ("torch", "numpy")]
    return {file: fingerprint(file) for file in files if isinstance(file, str)}


@contextlib.contextmanager
def _reading(source: Mapping[str, Any]) -> Iterator[None]:
    """While active, what the kernel's own code reads counts among what it depends on."""
    with file_reads() as read:
        yield
    load(source).files |= _read_files(read)


def _read_files(paths: Iterable[str]) -> dict[str, str | None]:
    """Fingerprints of what was read, without what a version number stands for and what compiles leave behind."""
    # A stand-in for one of them has no file.
    files = [getattr(sys.modules.get(name), "__file__", None) for name in _VERSIONED]
    versioned = [str(Path(file).parent) for file in files if isinstance(file, str)]
    stdlib = sysconfig.get_paths()["stdlib"]
    # Packages are installed in a folder of the standard library's.
    inside = [path for path in paths if "site-packages" in path or "dist-packages" in path]
    plain = fingerprints(set(paths) - set(inside), [stdlib, *versioned, os.environ["TRITON_CACHE_DIR"]], _SINCE_NS)
    return plain | fingerprints(inside, versioned, _SINCE_NS)


def _compiler_environment() -> dict[str, str | None]:
    """The variables that Triton may read, as this process was given them."""
    from occupancy_cli.compile import triton_front

    given = os.environ if _given is None else _given
    return {name: given.get(name) for name in triton_front.environment_names() if name not in _MACHINE_VARIABLES}


def _source_hashes(modules: Any) -> dict[str, str | None]:
    """The fingerprint of every source file among `modules` that no version number stands for."""
    stdlib = sysconfig.get_paths()["stdlib"]
    hashes: dict[str, str | None] = {}
    for module in modules:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        if file.startswith(stdlib) and "site-packages" not in file and "dist-packages" not in file:
            continue
        if module.__name__.partition(".")[0] in _VERSIONED:
            continue
        hashes[file] = as_read(file, _SINCE_NS)
    return hashes


def _kernel(source: Mapping[str, Any]) -> Any:
    from occupancy_cli.compile import triton_front

    loaded = load(source)
    value: Any = loaded.module
    for part in source["kernel"].split("."):
        value = getattr(value, part, None)
        if value is None:
            break
    where = source["file"] or source["module"]
    if not triton_front.is_kernel(value):
        kernels = [n for n, v in vars(loaded.module).items() if triton_front.is_kernel(v)]
        if value is not None:
            kind = type(value)
            raise InputError(
                f"{source['kernel']} is of type {kind.__module__}.{kind.__qualname__}, not a Triton kernel",
                where=where,
                hint=f"Kernels there: {', '.join(kernels[:20])}" if kernels else "",
            )
        raise unknown_name("kernel", source["kernel"], kernels, where=where)
    return value


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


def _describe(message: Mapping[str, Any]) -> dict[str, Any]:
    from occupancy_cli.compile import triton_front

    source = message["source"]
    described = triton_front.describe(_kernel(source))
    described["stand_ins"] = load(source).stand_ins
    return {"described": described}


def _remembering(source: Mapping[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer of `work` with what it depends on: the kernel's files, what it and they read and asked the device."""
    from occupancy_cli.compile import triton_front

    device = triton_front.active_device()
    reads = EnvironmentReads()
    with reads.recording(), device.asking() as asked:
        answer = work()
    loaded = load(source)
    env = loaded.env | reads.values
    told = {name: getattr(device, name) for name in sorted(loaded.asked | asked)}
    return answer | {
        "files": loaded.files | _tool_hashes(env),
        "env": env,
        "device": told,
        "made_by": triton_front.VERSION,
    }


def _prune(message: Mapping[str, Any]) -> dict[str, Any]:
    from occupancy_cli.compile import triton_front

    request = CompileRequest.from_message(message["request"])
    values = {a.name: _stand_in(a) for a in request.arguments} | dict(request.constexprs)
    source = message["request"]["source"]
    kernel = _kernel(source)
    with _reading(source):
        return {"configs": triton_front.pruned_configs(kernel, values)}


def _compile(message: Mapping[str, Any]) -> dict[str, Any]:
    from occupancy_cli.compile import triton_front
    from occupancy_cli.readers import cubin

    request = CompileRequest.from_message(message["request"])
    kernel = _kernel(message["request"]["source"])
    set_by_heuristics = triton_front.heuristic_names(kernel)
    heuristic = {a.name: a.value for a in request.arguments if a.heuristic}
    heuristic |= {n: v for n, v in request.constexprs if n in set_by_heuristics}
    values = {a.name: _stand_in(a) for a in request.arguments if not a.heuristic}
    values |= {n: v for n, v in request.constexprs if n not in set_by_heuristics}
    config = dict(request.options)
    with _reading(message["request"]["source"]):
        values = triton_front.with_heuristics(kernel, values, config)
    for name, declared in heuristic.items():
        if name not in values:
            raise InputError(f"no @triton.heuristics sets {name}, which is marked so", where=str(request.source))
        if values[name] != declared:
            raise InputError(
                f"the kernel's heuristic gives {name} = {values[name]!r}, the spec says {declared!r}",
                where=str(request.source),
                hint="Correct the value or expression in the spec.",
            )
    triton_front.install_driver(
        request.target.arch,
        request.target.shared_per_cta_optin_bytes,
        request.target.sm_count,
        request.target.registers_per_sm,
    )
    notes: list[str] = []
    try:
        result = triton_front.compile_launch(kernel, values, stop_above=request.stop_above)
    except triton_front.EarlyStopUnavailable as why:
        notes.append(f"{why}; compiled in full instead")
        result = triton_front.compile_plainly(kernel, values)
    answer: dict[str, Any] = {
        "shared_bytes": result["shared_bytes"],
        "num_warps": result["num_warps"],
        "threads_per_cta": 32 * result["num_warps"],
        "num_ctas": result["num_ctas"],
        "tmem_columns": result["tmem_columns"],
        "notes": notes,
    }
    if "cubin" in result:
        found = {k.name: k for k in cubin.read_cubin(result["cubin"])}
        if result["name"] not in found:
            raise InputError(f"the cubin has no kernel {result['name']!r}", where=str(request.source))
        mine = found[result["name"]]
        reserved = 1024 if request.target.arch >= 90 else 0
        answer |= {
            "registers_per_thread": mine.registers_per_thread,
            "spill_bytes": mine.frame_bytes,
            "static_shared_bytes": max(0, mine.static_shared_bytes - reserved),
        }
        if request.time_on is not None:
            from occupancy_cli.loading import module_loading

            resources = KernelResources(**{k: v for k, v in answer.items() if k != "notes"})
            tools = Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"
            arguments = {a.name: v if isinstance(v := values[a.name], int) else None for a in request.arguments}
            with module_loading.left_aside():
                from occupancy_cli.compile.simulated_timing import read_timing

                read = read_timing(result["ttgir"], result["cubin"], arguments, resources, request.time_on, tools)
            answer["timings"] = {request.time_on.digest: read}
        if "keep_in" in message:
            file = Path(message["keep_in"]) / f"{request.key()}.cubin"
            file.write_bytes(result["cubin"])
            answer["binary"] = [str(file), result["name"]]
    return answer


def _toolchain(arch: int) -> dict[str, str]:
    from occupancy_cli.compile import triton_front

    return {"triton": triton_front.VERSION, "ptxas": triton_front.ptxas_version(arch)}


def _health(arch: int) -> dict[str, Any]:
    from occupancy_cli.compile import triton_front

    return _toolchain(arch) | {
        "missing_internals": triton_front.check_internals(),
        "path": triton_front.LOCATION,
        "tools": str(Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"),
        "supported": triton_front.is_supported(),
    }


def _answer(message: Mapping[str, Any]) -> dict[str, Any]:
    action = message["action"]
    if action == "warm":
        _import_compiler()
        return {}
    if action == "describe":
        # A driver has to be there while the module loads: some kernels ask for the device then.
        _install(message)
        return _remembering(message["source"], lambda: _describe(message))
    if action == "prune":
        _install(message["request"])
        return _remembering(message["request"]["source"], lambda: _prune(message))
    if action == "health":
        return _health(message["arch"])
    _install(message["request"])
    started = time.perf_counter()
    with _triton_cache(message.get("keep_in")):
        answer = _remembering(message["request"]["source"], lambda: _compile(message))
    answer["seconds"] = time.perf_counter() - started
    answer["notes"] += load(message["request"]["source"]).notes
    answer["toolchain"] = _toolchain(message["request"]["target"]["arch"])
    return answer


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


def _tool_hashes(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """Hashes of the tools and libraries that variables put in the place of Triton's own (TRITON_PTXAS_PATH).

    None where there is no such file: Triton then takes its own, and would take that one if it appeared.
    """
    hashes: dict[str, str | None] = {}
    for name in _TOOL_VARIABLES:
        if value := env.get(name):
            file = Path(shutil.which(value) or value).absolute()
            hashes[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    return hashes


def _import_compiler() -> None:
    # All of Triton and what reads cubins is imported before any kernel file puts its folder on the path: a file there
    # called copy.py or token.py must not take the place of the standard library's.
    from occupancy_cli.compile import triton_front  # noqa: F401
    from occupancy_cli.readers import cubin  # noqa: F401


def _install(message: Mapping[str, Any]) -> None:
    from occupancy_cli.compile import triton_front

    _import_compiler()
    triton_front.install_driver(**message["target"])


def _failure(bad: BaseException) -> dict[str, Any]:
    if isinstance(bad, OccupancyError):
        return {"error": "input", "message": bad.problem, "where": bad.where, "hint": bad.hint}
    try:
        text = str(bad).strip() or type(bad).__name__
    except Exception as worse:  # noqa: BLE001 (a kernel file's own exception may not even tell what it is)
        name = f"{type(bad).__module__}.{type(bad).__qualname__}"
        return {"error": "compile", "message": f"{name}, whose text raises {type(worse).__name__}", "trace": ""}
    if isinstance(bad, MemoryError):
        return {"error": "over_memory", "message": "the compile ran out of the memory it is allowed"}
    frames = {frame.name for frame in traceback.extract_tb(bad.__traceback__)}
    if frames & {"exec_module", "import_module"} or isinstance(bad, ImportError):
        return {"error": "import", "message": f"{type(bad).__name__}: {text}", "trace": _trace(bad)}
    if type(bad).__name__ == "PTXASError":
        return {"error": "ptxas", "message": failure_reasons.ptxas_reason(text), "trace": text}
    gone = _removed_api(bad)
    if gone is not None:
        return {"error": "version", "message": gone, "trace": _trace(bad)}
    return {"error": "compile", "message": failure_reasons.reason(bad, _printed()), "trace": _trace(bad)}


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
    global _given
    capture, memory_bytes = sys.argv[1], int(sys.argv[2])
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    # Bound here: a kernel file may replace what it likes in other modules.
    to_text, own, this_process = json.dumps, os.getpid(), os.getpid
    _children_end_with_this((answers.fileno(), requests.fileno()))
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
    _given = dict(os.environ)
    os.environ["TRITON_CACHE_DIR"] = private
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    os.environ["TRITON_STORE_BINARY_ONLY"] = "0"  # the TTGIR is read too
    if "TRITON_DEFAULT_FP_FUSION" not in os.environ:
        # What Triton 3.4 to 3.9 do when it is unset; set, so that 3.9 does not warn that 3.10 will change it.
        os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    try:
        for line in requests:
            os.ftruncate(captured, 0)
            os.lseek(captured, 0, os.SEEK_SET)
            message = json.loads(line)
            try:
                text = to_text({**_answer(message), "id": message["id"]})
            except BaseException as bad:  # noqa: BLE001 (the reason goes into the answer)
                if this_process() == own:
                    text = to_text({**_failure(bad), "id": message["id"]})
            if this_process() != own:
                os._exit(0)  # the kernel file forked, and this is its copy of the worker: the original answers
            _flush()
            answers.write(text + "\n")
            answers.flush()
    finally:
        shutil.rmtree(private, ignore_errors=True)


if __name__ == "__main__":
    main()
