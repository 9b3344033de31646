"""A capture from outside: starts the script's process, collects what it recorded, writes the folder.

The script runs with a home, cache and configuration folders of its own, made for this capture and removed after it, so
that nothing that a library writes there (a table of "tuned" configs, above all) reaches a real one, or comes from one.
What is written to the output folder appears at once, complete. With a GPU (`live`) the run is a real one, in the
user's own environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from occupancy_cli.capture.captured_spec import INDEX, INDEX_SCHEMA, Captured, captured_from
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.json_reader import parse_json, read_text
from occupancy_cli.loading.target_gpu import target_of
from occupancy_cli.source.given_values import GivenValue
from occupancy_cli.spec.kernel_spec import load_spec
from occupancy_cli.yaml_reader import find_file

MOST_LAUNCHES_PER_KERNEL = 64
_RECORDS = "records.jsonl"

# Folders that tools keep results in, measured times among them; given to the script only if the user had set them, as
# empty ones. HOME and the XDG folders, which all of them fall back to, are always new.
_CACHE_FOLDERS = (
    *("TRITON_DUMP_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLAGGEMS_CACHE_DIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"),
    *("SGLANG_CACHE_DIR", "SGL_DG_CACHE_DIR", "DG_JIT_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "TILELANG_CACHE_DIR"),
    *("CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR", "NUMBA_CACHE_DIR", "MPLCONFIGDIR"),
)
# What would send results elsewhere, or run kernels some other way.
_UNSET = (
    *("TRITON_CACHE_MANAGER", "TRITON_REMOTE_CACHE_BACKEND", "TRITON_OVERRIDE_DIR", "TRITON_KERNEL_OVERRIDE"),
    *("TRITON_INTERPRET", "TRITON_DEFAULT_BACKEND", "TRITON_MOCK_PTX_VERSION"),
)
# Models and their files are data, not results: they stay where they are.
_DATA_FOLDERS = {"HF_HOME": "huggingface", "TORCH_HOME": "torch", "MODELSCOPE_CACHE": "modelscope"}


@dataclass(frozen=True)
class CaptureRequest:
    """What to run and where to write. `gpu` is not used by a `live` capture; `module`: `script` is a module's name.
    `values` are given for lines of its files."""

    script: str
    arguments: tuple[str, ...]
    out: Path
    gpu: GpuProfile | None
    live: bool = False
    module: bool = False
    most_per_kernel: int = MOST_LAUNCHES_PER_KERNEL
    overwrite: bool = False
    values: tuple[GivenValue, ...] = ()


@dataclass(frozen=True)
class CaptureResult:
    """A finished capture. `folder` is None when there was nothing to write; `exit_code` is the script's."""

    captured: Captured
    folder: Path | None
    exit_code: int

    @property
    def spec_paths(self) -> tuple[Path, ...]:
        """The specs written, in the order of their first launch."""
        return tuple(self.folder / s.file for s in self.captured.specs) if self.folder else ()


def capture(request: CaptureRequest) -> CaptureResult:
    """Run the script and write what it launched to `request.out`.

    The script's standard output and error both go to this process's standard error. Raises `InputError` for a script
    that is not there, a GPU without an SM count, or an output folder that holds something else.
    """
    _check(request)
    with _ended_by_signals():
        return _captured(request)


def _captured(request: CaptureRequest) -> CaptureResult:
    private = Path(tempfile.mkdtemp(prefix="occupancy-capture-"))
    try:
        plan = private / "plan.json"
        plan.write_text(json.dumps(_plan(request, private)), encoding="utf-8")
        with _ran(plan, _environment(request, private)) as code:
            records = private / _RECORDS
            text = records.read_text(encoding="utf-8", errors="replace") if records.is_file() else ""
            # A kernel that a library generated lay in a folder that is gone: its path starts at that home.
            text = text.replace(str(private / "home"), "~").replace(f"{private}/", "~/")
            captured = captured_from(text.splitlines(), _title(request))
            folder = _write(captured, request) if captured.launches else None
            if folder is not None:
                captured = folder[1]
            return CaptureResult(captured, folder[0] if folder else None, code)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def spec_paths(folder: Path) -> tuple[Path, ...]:
    """The specs of a capture on disk, in the order of their first launch. `InputError` if `folder` is none."""
    index = _read_index(folder)
    if index is None:
        raise InputError("holds no capture", where=str(folder), hint="Write one: occupancy capture SCRIPT -o FOLDER")
    return tuple(folder / spec["file"] for spec in index["specs"])


# --- before ------------------------------------------------------------------------------------------------------


def _check(request: CaptureRequest) -> None:
    if not request.module:
        find_file(Path(request.script))
    gpu = request.gpu
    if not request.live:
        if gpu is None:
            raise InputError("a capture without a GPU needs one to pretend", where="--gpu")
        if gpu.sm_count is None:
            raise InputError(
                f"{gpu.name} is no product: its number of SMs is not known, and libraries build their configs from it",
                where="--gpu",
                hint="Name a product, such as rtx-pro-6000; `occupancy gpus` lists them.",
            )
    out = request.out
    if out.exists() and not out.is_dir():
        raise InputError("is a file, not a folder", where=f"-o {out}")
    if out.is_dir() and any(out.iterdir()) and not request.overwrite:
        why = _foreign(out)
        if why:
            hint = "Choose another folder, or add --overwrite to replace all of it."
            raise InputError(why, where=f"-o {out}", hint=hint)


def _read_index(folder: Path) -> dict[str, Any] | None:
    file = folder / INDEX
    try:
        index = parse_json(read_text(file), str(file)) if file.is_file() else None
    except InputError:
        return None
    if not isinstance(index, dict) or index.get("schema") != INDEX_SCHEMA:
        return None
    return index


def _foreign(folder: Path) -> str:
    """Why `folder` must not be replaced without being asked: what is in it that no capture wrote."""
    index = _read_index(folder)
    if index is None:
        return "is not empty and holds no earlier capture"
    known = {**index.get("files", {}), INDEX: None}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in path.parts:
            continue
        if name not in known:
            return f"holds {name}, which no capture wrote"
        if known[name] is not None and _hash(path.read_bytes()) != known[name]:
            return f"holds an earlier capture whose {name} was edited"
    return ""


def _title(request: CaptureRequest) -> str:
    command = " ".join([("-m " if request.module else "") + request.script, *request.arguments])
    where = "on the GPU here (--live)" if request.gpu is None or request.live else f"for {request.gpu.name}"
    values = "".join(f" --value {value.text}" for value in request.values)
    return " ".join(f"Captured by `occupancy capture {command}{values}` {where}.".split())


def _plan(request: CaptureRequest, private: Path) -> dict[str, Any]:
    return {
        "script": request.script,
        "arguments": list(request.arguments),
        "module": request.module,
        "live": request.live,
        "records": str(private / _RECORDS),
        "most_per_kernel": request.most_per_kernel,
        "values": [asdict(value) | {"value": repr(value.value)} for value in request.values],
        "target": None if request.live or request.gpu is None else asdict(target_of(request.gpu)),
    }


def _environment(request: CaptureRequest, private: Path) -> dict[str, str]:
    environment = dict(os.environ)
    root = Path(__file__).resolve().parents[3]
    if str(root) not in {str(Path(p).resolve()) for p in site.getsitepackages()}:
        environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    if request.live:
        return environment
    home = private / "home"
    real_home = Path(environment.get("HOME") or Path.home())
    real_cache = Path(environment.get("XDG_CACHE_HOME") or real_home / ".cache")
    for name, folder in _DATA_FOLDERS.items():
        environment.setdefault(name, str(real_cache / folder))
    # Packages of `pip install --user` lie under the real home.
    environment.setdefault("PYTHONUSERBASE", site.getuserbase())
    folders = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local/share",
        "XDG_STATE_HOME": home / ".local/state",
        "TRITON_HOME": home,
        "TRITON_CACHE_DIR": private / "triton",
    }
    folders |= {name: private / name.lower() for name in _CACHE_FOLDERS if name in environment}
    for name, path in folders.items():
        path.mkdir(parents=True, exist_ok=True)
        environment[name] = str(path)
    for name in _UNSET:
        environment.pop(name, None)
    # torch.jit and torch.compile would look through the stand-ins; both leave functions as they are instead.
    environment |= {"PYTORCH_JIT": "0", "TORCHDYNAMO_DISABLE": "1"}
    # flag_gems looks for a vendor's command-line tool unless it is told.
    environment.setdefault("GEMS_VENDOR", "nvidia")
    return environment


# --- running -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _ran(plan: Path, environment: Mapping[str, str]) -> Iterator[int]:
    """Run the script to its end; its exit code, negative for a signal. Ctrl-C ends the script, then this goes on.

    Between the two stands `script_guard`, which ends the script however this process ends, and removes the plan's
    folder then or at the end of this context.
    """
    try:
        error = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a stand-in of a test or a notebook
        error = 2
    alive, kept_open = os.pipe()
    told, result = os.pipe()
    start = [sys.executable, "-m", "occupancy_cli.capture."]
    command = [*start[:2], f"{start[2]}script_guard", str(alive), str(result), str(plan.parent), str(os.getppid())]
    command += [*start[:2], f"{start[2]}script_process", str(plan)]
    guard = subprocess.Popen(command, env=dict(environment), stdout=error, stderr=error, pass_fds=(alive, result))
    os.close(alive)
    os.close(result)
    try:
        with os.fdopen(told) as answers:
            script = int(answers.readline() or 0)
            code = _waited_for(answers, script) if script else None
        if code is None:
            raise OccupancyError("the process that runs the script could not be started, or was ended", where="capture")
        yield code
    finally:
        os.close(kept_open)
        guard.wait()


def _waited_for(answers: TextIO, script: int) -> int | None:
    """The exit code of the process `script`, as the guard tells it; None when it does not."""
    try:
        return _number(answers.readline())
    except KeyboardInterrupt:
        # A terminal has sent the signal to the script too.
        for sign, seconds in ((signal.SIGINT, 5.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
            if select.select([answers], [], [], seconds)[0]:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(script, sign)
        return _number(answers.readline())


def _number(line: str) -> int | None:
    return int(line) if line.strip() else None


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While active, TERM and HUP end this process as Ctrl-C does, by way of what clears up behind it."""
    before: dict[int, Any] = {}

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for sign in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(sign) is signal.SIG_DFL:  # what ignores it (nohup), or deals with it, knows why
                before[sign] = signal.signal(sign, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- writing -----------------------------------------------------------------------------------------------------


def _write(captured: Captured, request: CaptureRequest) -> tuple[Path, Captured]:
    """Write the folder as a whole, beside its place, then put it there; a spec that does not load is not kept."""
    out = request.out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    try:
        for name, text in captured.files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for spec in captured.specs:
            try:
                load_spec(partial / spec.file)
            except InputError as bad:
                (partial / spec.file).unlink()
                captured = captured.without(spec.file, f"no spec can carry it: {bad.problem}")
        hashes = {name: _hash(text.encode()) for name, text in captured.files.items()}
        index = captured.index(_header(request), hashes)
        (partial / INDEX).write_text(index, encoding="utf-8")
        partial.chmod(0o777 & ~_umask())
        _replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return request.out, captured


def _header(request: CaptureRequest) -> dict[str, Any]:
    return {
        "command": [*(["-m"] if request.module else []), request.script, *request.arguments],
        "values": [value.text for value in request.values],
        "live": request.live,
        "gpu": None if request.live or request.gpu is None else request.gpu.name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _replace(new: Path, place: Path) -> None:
    """Put the folder `new` at `place`; what was there goes once the new one stands."""
    if not place.exists():
        new.rename(place)
        return
    old = place.parent / f".{place.name}.replaced-{os.getpid()}"
    place.rename(old)
    try:
        new.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
