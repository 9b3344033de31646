"""Many requests in, outcomes out: looks in the cache, compiles the rest in parallel, remembers.

Requests of one specialization class are one compile. Work goes to an executor of the standard interface
(`concurrent.futures.Executor`): threads of this process that each own a worker process, or another engine's, such as
dask's client. `perform` is the unit of work: it is given plain data, owns its worker, and returns plain data.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource, Kind, Target
from occupancy_cli.compile.result_cache import FORMAT, ResultCache
from occupancy_cli.compile.worker_client import Limits, WorkerClient, WorkerFailure, close_all
from occupancy_cli.errors import CompileError, InputError, MissingDependencyError
from occupancy_cli.model.resources import KernelResources

# Imported when there is something to compile: a run that finds all in the cache starts no thread and no worker.
if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor

_Index = tuple[str, Target, int | None, str]
_own = threading.local()
# Workers that import Triton while one looks at the kernel: how many there is work for is not known yet.
_WARMED_AHEAD = 3
_RESOURCE_FIELDS = tuple(KernelResources.__dataclass_fields__)


@dataclass(frozen=True)
class Progress:
    """Where a run of compiles stands. `seconds_left` is None until the first one is done."""

    done: int
    total: int
    current: str
    seconds_left: float | None


@dataclass(frozen=True)
class KernelDescription:
    """A kernel's signature and what decorates it (see `triton_front.describe`)."""

    name: str
    params: tuple[Mapping[str, Any], ...]
    autotune: Mapping[str, Any] | None
    heuristics: tuple[str, ...]

    @property
    def constexprs(self) -> tuple[str, ...]:
        """Names of the constexpr parameters."""
        return tuple(p["name"] for p in self.params if p["constexpr"])

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the other parameters."""
        return tuple(p["name"] for p in self.params if not p["constexpr"])


def _triton_file() -> Path:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        raise MissingDependencyError("triton is not installed", hint="Install it: python -m pip install triton")
    return Path(spec.origin)


def triton_version() -> str:
    """The version of the Triton that workers import, read from its files without importing it."""
    match = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", _triton_file().read_text(encoding="utf-8")[:2000])
    return match.group(1) if match else "unknown"


def _ptxas_sizes() -> list[tuple[str, int]]:
    """Each ptxas in Triton's folder with its bytes: a distribution may put another one there, Triton being the same.

    The size stands for the version, which only running it would tell.
    """
    tools = _triton_file().parent / "backends" / "nvidia" / "bin"
    return sorted((file.name, file.stat().st_size) for file in tools.glob("ptxas*") if file.is_file())


def perform(message: Mapping[str, Any], limits: Limits, run: str = "") -> dict[str, Any]:
    """Answer one worker message with this thread's own worker process; a worker that dies gives an `error` answer.

    A worker serves one `run`: an executor may live for days, and what its workers have loaded is as it was then.
    """
    client: WorkerClient | None = getattr(_own, "client", None)
    if client is None or (client.limits, _own.run) != (limits, run):
        if client is not None:
            client.close()
        client, _own.run = WorkerClient(limits), run
        _own.client = client
    try:
        return client.ask(message)
    except WorkerFailure as failed:
        return {"error": failed.kind, "message": failed.message, "output": failed.output}
    except OSError as bad:
        # No process, no memory for one, or no room for its files.
        return {"error": "crash", "message": f"no compiler process could be started: {bad}", "output": ""}


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CompileService:
    """Compiles requests and remembers their outcomes.

    `jobs` is how many compiles run at once (default: the cores of this machine), `executor` what runs them,
    `progress` is called as they finish. `interrupted` is set once Ctrl-C cut a run short: outcomes not reached have
    the kind "interrupted", and nothing more is compiled.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        jobs: int | None = None,
        cache: ResultCache | None = None,
        executor: Executor | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.jobs = jobs or cpu_count()
        self.cache = cache
        self.triton = triton_version()
        self._toolchain = {"triton": self.triton, "ptxas": _ptxas_sizes()}
        self.interrupted = False
        self.compiled = 0
        self._run_id = os.urandom(8).hex()
        self._executor = executor
        self._progress = progress
        self._threads: ThreadPoolExecutor | None = None
        self._submitted: set[Future[dict[str, Any]]] = set()

    def __enter__(self) -> CompileService:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        if self._threads is not None:
            from concurrent.futures import wait

            self._threads.shutdown(wait=False, cancel_futures=True)
            close_all()
            while running := [f for f in list(self._submitted) if not f.done()]:
                wait(running, timeout=0.05)
                close_all()  # a worker that was being started meanwhile
            self._threads.shutdown()
            self._threads = None
        self._submitted.clear()

    # --- what a kernel is ---

    def describe(self, source: KernelSource, target: Target) -> KernelDescription:
        """Signature and decorators of a kernel; `InputError` or `CompileError` says why it did not load."""
        key = self._key({"describe": asdict(source), "arch": target.arch})
        known = self.cache.get(key, device=vars(target)) if self.cache else None
        if known is not None:
            with contextlib.suppress(KeyError, TypeError):
                return _description(known["described"])
        message = {"action": "describe", "source": asdict(source), "target": asdict(target)}
        answer = self._one(message, warm_others=True)
        _raise_failure(answer, source)
        self._remember(key, {"described": answer["described"]}, answer)
        return _description(answer["described"])

    def pruned_configs(self, request: CompileRequest) -> list[dict[str, Any]]:
        """The autotune configs that `prune_configs_by` leaves for this launch."""
        key = self._key({"prune": replace(request, exact_values=True).identity()})
        answer = (
            self.cache.get(key, lambda found: "configs" in found, device=vars(request.target)) if self.cache else None
        )
        if answer is None:
            answer = self._one({"action": "prune", "request": request.to_message()})
            _raise_failure(answer, request.source)
            self._remember(key, {"configs": answer["configs"]}, answer)
        return [dict(c) for c in answer["configs"]]

    def _one(self, message: Mapping[str, Any], *, warm_others: bool = False) -> dict[str, Any]:
        if self.interrupted:
            raise KeyboardInterrupt
        fresh = self._executor is None and self._threads is None
        future = self._submit(message)
        if warm_others and fresh:
            for _ in range(min(self.jobs - 1, _WARMED_AHEAD)):
                self._submit({"action": "warm"})
        try:
            return future.result()
        except KeyboardInterrupt:
            self.interrupted = True
            close_all()
            raise

    # --- compiling ---

    def compile_all(self, requests: Sequence[CompileRequest], *, keep_in: Path | None = None) -> list[CompileOutcome]:
        """The outcome of each request, in order. Requests that share a key are compiled once.

        With `keep_in`, a folder of this machine, everything is compiled anew and each cubin left there
        (`CompileOutcome.binary`), with a Triton cache in `keep_in`/triton that launches of the same kernels find.
        """
        outcomes: dict[_Index, CompileOutcome] = {}
        todo: dict[_Index, CompileRequest] = {}
        order = []
        for request in requests:
            # GPUs of one architecture are told apart: the kernel may ask its driver what they differ in.
            time_on = request.time_on.digest if request.time_on else ""
            index = (request.key(), request.target, request.stop_above, time_on)
            order.append(index)
            if index not in outcomes and index not in todo:
                known = self._recall(request) if keep_in is None else None
                if known is not None:
                    outcomes[index] = known
                else:
                    todo[index] = request
        outcomes |= self._run(todo, keep_in)
        return [outcomes[i] for i in order]

    def _recall(self, request: CompileRequest) -> CompileOutcome | None:
        if self.cache is None:
            return None
        target = vars(request.target)
        payload = self.cache.get(
            self._key(request.identity()), lambda found: _sufficient(found, request), device=target
        )
        if payload is None:
            return None
        try:
            return replace(outcome_from(payload), cached=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # not what this version writes

    def _run(self, todo: Mapping[_Index, CompileRequest], keep_in: Path | None) -> dict[_Index, CompileOutcome]:
        outcomes: dict[_Index, CompileOutcome] = {}
        if not todo:
            return outcomes
        not_reached = CompileOutcome(None, "interrupted", "not compiled: interrupted")
        if self.interrupted:
            return dict.fromkeys(todo, not_reached)
        from concurrent.futures import as_completed

        started = time.monotonic()
        futures: dict[Future[dict[str, Any]], _Index] = {}
        try:
            for index, request in self._longest_first(todo):
                message = {"action": "compile", "request": request.to_message()}
                if keep_in is not None:
                    message["keep_in"] = str(keep_in)
                futures[self._submit(message)] = index
            for future in as_completed(futures):
                index = futures[future]
                outcomes[index] = self._finish(todo[index], future)
                if self._progress:
                    spent = time.monotonic() - started
                    left = spent / len(outcomes) * (len(todo) - len(outcomes))
                    self._progress(Progress(len(outcomes), len(todo), label(todo[index]), left))
        except KeyboardInterrupt:
            self.interrupted = True
            for future in futures:
                future.cancel()
            close_all()
            for index in todo:
                outcomes.setdefault(index, not_reached)
        return outcomes

    def _longest_first(self, todo: Mapping[_Index, CompileRequest]) -> list[tuple[_Index, CompileRequest]]:
        """The longest first, by what each took before its sources changed; those never seen before them, by size."""

        def order(item: tuple[_Index, CompileRequest]) -> tuple[float, float]:
            seconds = self.cache.seconds(self._key(item[1].identity())) if self.cache else None
            return (-math.inf if seconds is None else -seconds, -_size(item[1]))

        return sorted(todo.items(), key=order)

    def _finish(self, request: CompileRequest, future: Future[dict[str, Any]]) -> CompileOutcome:
        from concurrent.futures import BrokenExecutor, CancelledError

        try:
            answer = future.result()
        except (BrokenExecutor, CancelledError, OSError) as lost:
            return CompileOutcome(None, "crash", f"the executor lost this compile: {type(lost).__name__}: {lost}")
        self.compiled += 1
        if "error" in answer:
            return failure_from(answer)
        left_out = ("files", "env", "device", "output", "binary", "made_by")
        payload = {k: v for k, v in answer.items() if k not in left_out}
        key = self._key(request.identity())
        if self.cache and "timings" in payload:  # times on other GPUs stay known
            before = self.cache.get(key, lambda found: "timings" in found, device=vars(request.target))
            payload["timings"] = (before or {}).get("timings", {}) | payload["timings"]
        self._remember(key, payload, answer)
        binary = tuple(answer["binary"]) if "binary" in answer else None
        return replace(outcome_from(payload), output=answer.get("output", ""), binary=binary)

    def _remember(self, key: str, payload: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        # A worker on another machine may have another Triton: its results are that one's, not those of this key.
        if self.cache is not None and answer["made_by"] == self.triton:
            seconds = float(answer.get("seconds", 0.0))
            self.cache.put(
                key,
                payload,
                files=answer["files"],
                env=answer["env"],
                device=answer["device"],
                triton=self.triton,
                seconds=seconds,
            )

    def _key(self, identity: Mapping[str, Any]) -> str:
        text = json.dumps({"format": FORMAT, **self._toolchain, **identity}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _submit(self, message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        future = self._pool().submit(perform, message, self.limits, self._run_id)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        return future

    def _pool(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(self.jobs, thread_name_prefix="compile")
        return self._threads


def _description(found: Mapping[str, Any]) -> KernelDescription:
    return KernelDescription(found["name"], tuple(found["params"]), found["autotune"], tuple(found["heuristics"]))


def _size(request: CompileRequest) -> float:
    """A guess at how long a compile takes beside others: larger tiles and fewer warps compile longer."""
    product = 1.0
    for _name, value in (*request.constexprs, *request.options):
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            product *= value
    warps = dict(request.options).get("num_warps", 4)
    # Configs of an autotuner may ask for what no launch can have: the compiler is to say so.
    return product / (warps if isinstance(warps, int) and warps > 0 else 4) ** 2


def label(request: CompileRequest) -> str:
    """A request in a few words, for progress."""
    parts = [f"{n}={v}" for n, v in (*request.constexprs, *request.options)]
    return f"{request.source.kernel} {' '.join(parts)}"


def _sufficient(payload: Mapping[str, Any], request: CompileRequest) -> bool:
    """Whether a record has all that is asked: it may have ended at shared memory, or lack a time on this GPU."""
    if payload.get("registers_per_thread") is None:
        return request.stop_above is not None and int(payload["shared_bytes"]) > request.stop_above
    return request.time_on is None or request.time_on.digest in payload.get("timings", {})


def outcome_from(payload: Mapping[str, Any]) -> CompileOutcome:
    """The outcome that a worker's answer or a cache record holds."""
    resources = KernelResources(**{k: payload[k] for k in _RESOURCE_FIELDS if k in payload})
    return CompileOutcome(
        resources,
        seconds=float(payload.get("seconds", 0.0)),
        notes=tuple(payload.get("notes", ())),
        toolchain=tuple(sorted(payload.get("toolchain", {}).items())),
        timings=payload.get("timings", {}),
    )


def failure_from(answer: Mapping[str, Any]) -> CompileOutcome:
    """The outcome of an answer that is an error."""
    kind: Kind = answer["error"] if answer["error"] in get_args(Kind) else "compile"
    message = answer["message"]
    if answer.get("hint"):
        message += f" ({answer['hint']})"
    return CompileOutcome(None, kind, message, output=answer.get("output") or answer.get("trace", ""))


def _raise_failure(answer: Mapping[str, Any], source: KernelSource) -> None:
    if "error" not in answer:
        return
    if answer["error"] == "input":
        raise InputError(answer["message"], where=answer.get("where", ""), hint=answer.get("hint", ""))
    output = answer.get("output", "").strip()
    shown = f"It printed: {output.splitlines()[-1][:200]}" if output else ""
    raise CompileError(
        f"the kernel file did not load: {answer['message']}", where=str(source), hint=shown, kind=answer["error"]
    )


@contextlib.contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """An executor on the workers of a dask scheduler at `address` (host:port)."""
    try:
        from distributed import Client
    except ImportError as missing:
        raise MissingDependencyError(
            "--executor dask:// needs the package `distributed`",
            hint="Install it: python -m pip install 'occupancy-cli[dask]'",
        ) from missing
    try:
        client = Client(f"tcp://{address}", timeout="10s")
    except OSError as bad:
        raise InputError(f"no dask scheduler answers: {bad}", where=f"--executor dask://{address}") from bad
    except ValueError as bad:  # an address without a port, or with one that is no number
        form = "Write --executor dask://host:port."
        raise InputError(f"{address!r} is no address", where=f"--executor dask://{address}", hint=form) from bad
    with client:
        # A compile whose worker was lost runs again elsewhere; `pure=False` keeps equal messages apart.
        yield client.get_executor(pure=False, retries=2)
