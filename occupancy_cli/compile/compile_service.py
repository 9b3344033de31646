"""Many requests in, outcomes out: looks in the cache, compiles the rest in parallel, remembers.

Requests of one specialization class are one compile. Work goes to an executor of the standard interface
(`concurrent.futures.Executor`): threads of this process that each own a worker process, or another engine's, such as
dask's client. `perform` is the unit of work: it is given a message, owns its worker, and returns the answer.

A run is of one state of its sources. Every answer says what it was made from, and two that saw different texts of one
file end the run with that file's name (`SourcesChanged`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.kernel_record import (
    ConfigValue,
    KernelDescription,
    KernelRecord,
)
from occupancy_cli.compile.outcomes import failure_from, is_sufficient, outcome_from, raise_failure
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource, Target
from occupancy_cli.compile.result_cache import FORMAT, ResultCache
from occupancy_cli.compile.typed_json import WrongData
from occupancy_cli.compile.worker_client import Limits, WorkerClient, WorkerFailure, close_all, refused_answer
from occupancy_cli.errors import InputError, MissingDependencyError
from occupancy_cli.loading.outside_facts import Fact, World, is_of_files, is_written

# Imported when there is something to compile: a run that finds all in the cache starts no thread and no worker.
if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor

    from occupancy_cli.compile.worker_messages import Answer, Request, Seen

_Index = tuple[str, Target, int | None, str, bool]
_own = threading.local()
# Workers that import Triton while one looks at the kernel: how many there is work for is not known yet.
_WARMED_AHEAD = 3


@dataclass(frozen=True)
class Progress:
    """Where a run of compiles stands. `seconds_left` is None until the first one is done."""

    done: int
    total: int
    current: str
    seconds_left: float | None


@dataclass(frozen=True)
class Performed:
    """What came of one message: the answer, and the end of what was printed meanwhile."""

    answer: Answer
    output: str = ""


class SourcesChanged(InputError):
    """What the answers of one run were made from changed on the way: they are of two states."""


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


def perform(message: Request, limits: Limits, run: str = "") -> Performed:
    """Answer one message with this thread's own worker process; a worker that dies, or answers what was not asked,
    gives a `Failed`.

    A worker serves one `run`: an executor may live for days, and what its workers have loaded is as it was then.
    """
    client: WorkerClient | None = getattr(_own, "client", None)
    if client is None or (client.limits, _own.run) != (limits, run):
        if client is not None:
            client.close()
        client, _own.run = WorkerClient(limits), run
        _own.client = client
    from occupancy_cli.compile.worker_messages import Failed, answer_of, answers, kernel_of, message_text

    kernel = kernel_of(message)
    try:
        reply = client.ask(message_text(message), kernel)
    except WorkerFailure as failed:
        return Performed(Failed(failed.kind, failed.message), failed.output)
    except OSError as bad:
        # No process, no memory for one, or no room for its files.
        return Performed(Failed("crash", f"no compiler process could be started: {bad}"))
    try:
        answer = answer_of(reply.text)
    except WrongData as wrong:
        client.refuse()
        return Performed(Failed("crash", f"{refused_answer(kernel)} ({wrong})"), reply.output)
    if not answers(message, answer):
        client.refuse()
        return Performed(Failed("crash", refused_answer(kernel)), reply.output)
    if isinstance(answer, Failed) and answer.kind == "over_memory":
        client.close()  # what took the memory may still hold it
    return Performed(answer, reply.output)


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
        self._toolchain = {"triton": self.triton, "ptxas": _ptxas_sizes(), "python": sys.version}
        self.interrupted = False
        self.compiled = 0
        self._run_id = os.urandom(8).hex()
        self._executor = executor
        self._progress = progress
        self._threads: ThreadPoolExecutor | None = None
        self._submitted: set[Future[Performed]] = set()
        self.unkept: dict[str, tuple[str, ...]] = {}
        """Kernels whose results are not kept, with what they do that cannot be recorded."""
        self._facts: dict[tuple[str, str], str | None] = {}
        self._written: set[str] = set()

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
        known = self.known_description(source, target)
        if known is not None:
            return known
        from occupancy_cli.compile.worker_messages import Describe, Described, Failed

        done = self._one(Describe(source, target), warm_others=True)
        if isinstance(done.answer, Failed):
            raise_failure(done.answer, done.output, source)
        assert isinstance(done.answer, Described)
        self._remember(self._describe_key(source, target), done.answer.description, done.answer.seen, source)
        return done.answer.description

    def seen_by(self, source: KernelSource, target: Target) -> tuple[Fact, ...] | None:
        """What a kernel that was described looked at outside while it loaded; None where that was not kept."""
        key = self._describe_key(source, target)
        known = self.cache.get(key, KernelDescription, device=vars(target)) if self.cache else None
        return None if known is None else known[1].facts

    def known_description(self, source: KernelSource, target: Target) -> KernelDescription | None:
        """What the cache has of `describe`; starts nothing."""
        key = self._describe_key(source, target)
        known = self.cache.get(key, KernelDescription, device=vars(target)) if self.cache else None
        if known is None:
            return None
        self._agree(known[1].facts, str(source))
        return known[0]

    def _describe_key(self, source: KernelSource, target: Target) -> str:
        return self._key({"describe": asdict(source), "arch": target.arch})

    def pruned_configs(self, request: CompileRequest) -> list[dict[str, ConfigValue]]:
        """The autotune configs that `prune_configs_by` leaves for this launch."""
        key = self._key({"prune": replace(request, exact_values=True).identity()})
        known = self.cache.get(key, KeptConfigs, device=vars(request.target)) if self.cache else None
        if known is not None:
            self._agree(known[1].facts, str(request.source))
            return [dict(c) for c in known[0].configs]
        from occupancy_cli.compile.worker_messages import Failed, Prune, Pruned

        done = self._one(Prune(request))
        if isinstance(done.answer, Failed):
            raise_failure(done.answer, done.output, request.source)
        assert isinstance(done.answer, Pruned)
        self._remember(key, KeptConfigs(done.answer.configs), done.answer.seen, request.source)
        return [dict(c) for c in done.answer.configs]

    def _one(self, message: Request, *, warm_others: bool = False) -> Performed:
        if self.interrupted:
            raise KeyboardInterrupt
        from occupancy_cli.compile.worker_messages import Warm

        fresh = self._executor is None and self._threads is None
        future = self._submit(message)
        if warm_others and fresh:
            for _ in range(min(self.jobs - 1, _WARMED_AHEAD)):
                self._submit(Warm())
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
            index = (request.key(), request.target, request.stop_above, time_on, request.explain)
            order.append(index)
            if index not in outcomes and index not in todo:
                known = self.known_outcome(request) if keep_in is None else None
                if known is not None:
                    outcomes[index] = known
                else:
                    todo[index] = request
        outcomes |= self._run(todo, keep_in)
        if todo and self._executor is None and not self.interrupted:
            # A failure does not say what it saw: that nothing changed meanwhile holds for it too.
            self._still_agree()
        return [outcomes[i] for i in order]

    def known_outcome(self, request: CompileRequest) -> CompileOutcome | None:
        """What the cache has of a request; starts nothing."""
        if self.cache is None:
            return None
        known = self.cache.get(
            self._key(request.identity()),
            KernelRecord,
            lambda found: is_sufficient(found, request),
            device=vars(request.target),
        )
        if known is None:
            return None
        self._agree(known[1].facts, str(request.source))
        return replace(outcome_from(known[0]), cached=True)

    def _run(self, todo: Mapping[_Index, CompileRequest], keep_in: Path | None) -> dict[_Index, CompileOutcome]:
        outcomes: dict[_Index, CompileOutcome] = {}
        if not todo:
            return outcomes
        not_reached = CompileOutcome(None, "interrupted", "not compiled: interrupted")
        if self.interrupted:
            return dict.fromkeys(todo, not_reached)
        from concurrent.futures import as_completed

        from occupancy_cli.compile.worker_messages import Compile

        started = time.monotonic()
        futures: dict[Future[Performed], _Index] = {}
        try:
            for index, request in self._longest_first(todo):
                futures[self._submit(Compile(request, None if keep_in is None else str(keep_in)))] = index
            if self._progress:
                self._progress(Progress(0, len(todo), "", None))
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
        except SourcesChanged:
            for future in futures:
                future.cancel()
            close_all()
            raise
        return outcomes

    def _longest_first(self, todo: Mapping[_Index, CompileRequest]) -> list[tuple[_Index, CompileRequest]]:
        """The longest first, by what each took before its sources changed; those never seen before them, by size."""

        def order(item: tuple[_Index, CompileRequest]) -> tuple[float, float]:
            seconds = self.cache.seconds(self._key(item[1].identity())) if self.cache else None
            return (-math.inf if seconds is None else -seconds, -_size(item[1]))

        return sorted(todo.items(), key=order)

    def _finish(self, request: CompileRequest, future: Future[Performed]) -> CompileOutcome:
        from concurrent.futures import BrokenExecutor, CancelledError

        from occupancy_cli.compile.worker_messages import Compiled, Failed

        try:
            done = future.result()
        except (BrokenExecutor, CancelledError, OSError) as lost:
            return CompileOutcome(None, "crash", f"the executor lost this compile: {type(lost).__name__}: {lost}")
        self.compiled += 1
        answer = done.answer
        if isinstance(answer, Failed):
            return failure_from(answer, done.output)
        assert isinstance(answer, Compiled)
        record = answer.record
        key = self._key(request.identity())
        record = self._with_what_was_known(key, record, request)
        self._remember(key, record, answer.seen, request.source, record.compile_seconds)
        binary = None if answer.binary is None else (answer.binary.file, answer.binary.name)
        return replace(outcome_from(record), output=done.output, binary=binary)

    def _with_what_was_known(self, key: str, record: KernelRecord, request: CompileRequest) -> KernelRecord:
        """A new record with the times on other GPUs, and the explanation, that an earlier one of it has."""
        if self.cache is None or record.resources.registers_per_thread is None:
            return record

        def adds(found: KernelRecord) -> bool:
            whole = found.resources == record.resources
            return whole and bool(found.times or (found.explanation and not record.explanation))

        if not (record.times or record.explanation):
            return record
        before = self.cache.get(key, KernelRecord, adds, device=vars(request.target))
        if before is None:
            return record
        times = {**before[0].times, **record.times}
        return replace(record, times=times, explanation=record.explanation or before[0].explanation)

    def _remember(self, key: str, value: Any, seen: Seen, source: KernelSource, seconds: float = 0.0) -> None:
        self._written |= set(seen.written)
        if seen.changed is not None:
            raise _changed(seen.changed, str(source))
        self._agree(seen.depends_on.facts, str(source))
        if seen.refusals:
            self.unkept[str(source)] = seen.refusals
            if self.cache is not None:
                self.cache.put_unkept(str(source), seen.refusals)
        # A worker on another machine may have another Triton: its results are that one's, not those of this key.
        elif self.cache is not None and seen.made_by == self.triton:
            self.cache.put(key, value, seen.depends_on, triton=self.triton, seconds=seconds, kernel=str(source))

    def said_of_keeping(self) -> list[str]:
        """What a person should know of what was not kept, a line each."""
        lines = [self.cache.notice] if self.cache is not None and self.cache.notice else []
        for kernel, reasons in self.unkept.items():
            more = f", and {len(reasons) - 1} more (`occupancy cache` lists them)" if len(reasons) > 1 else ""
            lines.append(f"not kept for the next run: {kernel}, since {reasons[0]}{more}")
        return lines

    def _agree(self, facts: Iterable[Fact], kernel: str) -> None:
        """Take note of what an answer was made from; `SourcesChanged` when an earlier one saw it otherwise."""
        for fact in facts:
            before = self._facts.setdefault((fact.kind, fact.name), fact.value)
            if before != fact.value and is_of_files(fact.kind) and not is_written(fact.kind, fact.name, self._written):
                raise _changed(str(fact), kernel)

    def _still_agree(self) -> None:
        """`SourcesChanged` when something that an answer of this run was made from is no longer as it was."""
        files = [Fact(k, n, v) for (k, n), v in self._facts.items() if is_of_files(k)]  # type: ignore[arg-type]
        broken = World().broken([f for f in files if not is_written(f.kind, f.name, self._written)])
        if broken is not None:
            raise _changed(str(broken), "")

    def _key(self, identity: Mapping[str, Any]) -> str:
        text = json.dumps({"format": FORMAT, **self._toolchain, **identity}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _submit(self, message: Request) -> Future[Performed]:
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


@dataclass(frozen=True)
class KeptConfigs:
    """What pruning left, as the cache has it."""

    configs: tuple[Mapping[str, ConfigValue], ...]


def _changed(what: str, kernel: str) -> SourcesChanged:
    hint = "Nothing is reported of it: some answers would be of the one state, some of the other. Run it again."
    return SourcesChanged(f"{what} changed during the run", where=kernel, hint=hint)


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
