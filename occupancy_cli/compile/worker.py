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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_cli.compile import failure_reasons, worker_channel
from occupancy_cli.compile.compiled_kernels import compiled, stand_in
from occupancy_cli.compile.kernel_record import (
    Autotune,
    ConfigValue,
    KernelDescription,
    Parameter,
)
from occupancy_cli.compile.loaded_kernels import load, loaded_kernel, reading, remembering
from occupancy_cli.compile.request import Target
from occupancy_cli.compile.typed_json import from_plain
from occupancy_cli.compile.worker_messages import (
    Answer,
    AskHealth,
    Compiled,
    Describe,
    Described,
    Failed,
    Health,
    Prune,
    Pruned,
    Request,
    Warm,
    Warmed,
    message_text,
    request_of,
)
from occupancy_cli.errors import OccupancyError
from occupancy_cli.loading import outside_reads

if TYPE_CHECKING:
    pass

# Of what was printed, so much of the beginning and of the end is searched for the compiler's error.
_PRINTED_BYTES = 1 << 20
# No file that a compile writes comes near; a kernel file that prints without end must not fill the disk.
_MOST_WRITTEN_BYTES = 1 << 30


def _describe(message: Describe) -> Described:
    def work() -> KernelDescription:
        from occupancy_cli.compile import triton_front

        found = triton_front.describe(loaded_kernel(message.source))
        tuned = found["autotune"]
        return KernelDescription(
            name=found["name"],
            params=tuple(from_plain(Parameter, p, "parameter") for p in found["params"]),
            autotune=None if tuned is None else from_plain(Autotune, tuned, "autotune"),
            heuristics=tuple(found["heuristics"]),
            source_files=tuple(found["source_files"]),
            stand_ins=tuple(load(message.source).stand_ins),
        )

    description, seen = remembering(message.source, work)
    return Described(message.source, message.target.arch, description, seen)


def _prune(message: Prune) -> Pruned:
    def work() -> tuple[dict[str, ConfigValue], ...]:
        from occupancy_cli.compile import triton_front

        request = message.request
        values = {a.name: stand_in(a) for a in request.arguments} | dict(request.constexprs)
        kernel = loaded_kernel(request.source)
        with reading(request.source):
            return tuple(triton_front.pruned_configs(kernel, values))

    configs, seen = remembering(message.request.source, work)
    return Pruned(message.request.key(), configs, seen)


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
        (record, binary), seen = remembering(request.source, lambda: compiled(message))
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
