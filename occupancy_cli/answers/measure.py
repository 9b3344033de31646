"""`measure`: times of real launches, point by point, each written as it is taken.

Points are those that `recommend` chooses among: every config x every candidate of the knobs, at each batch. They are
compiled by the same service as for `analyze`; launches then find the binaries in Triton's own cache. With a time budget
the points come first that tell most: of each compiled kernel its smallest and largest launch, then, batch by batch, the
points that the model finds hardest to tell from its best one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint, compile_points
from occupancy_cli.answers.recommend import candidate_points
from occupancy_cli.answers.times_file import SCHEMA, Row, TimesHeader, read_times, row_key, sources_sha256
from occupancy_cli.answers.workload import candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileRequest, KernelSource
from occupancy_cli.device.gpu_state import Reading
from occupancy_cli.device.launch_messages import Method
from occupancy_cli.device.launch_timing import LaunchAnswer, Launcher
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.launch_options import LAUNCH_OPTIONS
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Candidate, Scored, time_candidates
from occupancy_cli.plan.kernel_input import KernelInput, parse_ref
from occupancy_cli.plan.points import Point
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.measured_parts import Measurement
from occupancy_cli.report.report import Report
from occupancy_cli.spec.settings import Setting
from occupancy_cli.version import VERSION

__all__ = ["SCHEMA", "MeasureProgress", "Measured", "Method", "measure"]


class Timer(Protocol):
    """What `measure` needs of a launcher; `device.measure.Launcher` is the real one."""

    torch: str

    def open(self) -> None: ...
    def time(
        self, requests: Sequence[tuple[CompileRequest, tuple[int, ...]]], values: Mapping[str, Any]
    ) -> LaunchAnswer: ...


@dataclass(frozen=True)
class Machine:
    """The GPU of this machine, as `measure` uses it: a look at what else it does, and a launcher for it."""

    device: str
    read: Callable[[], Reading]
    launcher: Callable[[KernelSource, Path, Method], AbstractContextManager[Timer]]


def local_machine(index: int, name: str) -> Machine:
    """The GPU number `index` of this machine."""
    from occupancy_cli.device.cuda_driver import pci_bus_id
    from occupancy_cli.device.gpu_state import GpuState

    bus_id = pci_bus_id(index)

    def read() -> Reading:
        with GpuState(bus_id) as state:
            return state.read()

    return Machine(name, read, lambda inputs, cache, method: Launcher(index, bus_id, inputs, cache, method))


@dataclass(frozen=True)
class MeasureProgress:
    """Where a run stands: points done of `total`, the last point and its time."""

    done: int
    total: int
    row: Row


@dataclass
class Measured:
    """What a run did: `written` points, `known` ones that the file had, `left` for lack of time; `failed` and
    `cannot_launch` map a reason to how many points it cost. `marked` points were throttled or shared."""

    path: str
    written: int = 0
    known: int = 0
    left: int = 0
    marked: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    cannot_launch: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False


def measurement(
    given: KernelInput, gpu: GpuProfile, service: CompileService, machine: Machine, *args: Any, **how: Any
) -> Report:
    """The Report of `measure`, which takes the same arguments."""
    return reported(measure(given, gpu, service, machine, *args, **how), gpu, service.triton)


def reported(done: Measured, gpu: GpuProfile, triton: str) -> Report:
    """The Report of what a run did."""
    return Report(
        command="measure",
        toolchain=Toolchain(occupancy=VERSION, triton=triton),
        gpu=report_parts.gpu_part(gpu),
        measurement=report_parts.mirrored(done, Measurement),
        notes=list(done.notes),
        interrupted=done.interrupted,
    )


def measure(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    machine: Machine,
    sets: Mapping[str, Setting],
    path: Path,
    *,
    kernel_text: str,
    batches: Sequence[int] = (),
    nsplits: Sequence[int] = (),
    budget_s: float | None = None,
    uncertain_first: bool | None = None,
    allow_shared: bool = False,
    method: Method | None = None,
    progress: Callable[[MeasureProgress], None] | None = None,
    today: Callable[[], str] = lambda: time.strftime("%Y-%m-%d", time.gmtime()),
) -> Measured:
    """Time every point and append it to `path`; points that the file has are not timed again.

    `nsplits` keeps the points with those split counts. `budget_s` ends the timing (not the compiling) after that many
    seconds; `uncertain_first` orders the points by how much they tell (default: with a budget). Raises `InputError`
    without an `inputs` function in the spec, for a file of another GPU, kernel or Triton version, and, unless
    `allow_shared`, for a GPU that other processes are using.
    """
    if given.spec.inputs is None:
        raise InputError(
            "the spec does not say how to make the kernel's tensors",
            where=given.document.path,
            hint="Add `inputs: file.py:function`: function(values, device) returns a tensor for each pointer argument.",
        )
    method = method or Method()
    kernel = prepare(given, gpu, service.describe, sets, os.environ, readings=service.readings)
    inputs = parse_ref(given.spec.inputs, given.folder, given.document.where(("inputs",)))
    source = KernelSource(inputs.kernel, str(inputs.file) if inputs.file else None, inputs.module)
    chosen = points_to_measure(kernel, gpu, sets, batches, nsplits)
    done = Measured(str(path))
    before = machine.read()
    shared = bool(before.processes)
    if shared and not allow_shared:
        raise InputError(
            f"{before.processes} other processes compute on {machine.device}: times would be theirs too",
            where="--gpu",
            hint="Wait until they end, choose another GPU, or mark the times: --allow-shared.",
        )
    identity = identity_names(kernel)
    with tempfile.TemporaryDirectory(prefix="occupancy-measure-") as folder:
        telling = uncertain_first if uncertain_first is not None else budget_s is not None
        # Times are predicted for the profile as its file has it: a worker process reads that one.
        profile = load_gpu(gpu.id, [Path(gpu.path).parent]) if telling and gpu.path else gpu
        analyzed = compile_points(kernel, profile, service, chosen, timed=telling, keep_in=Path(folder))
        todo = [a for a in analyzed if _launchable(gpu, a, done)]
        if telling:
            todo = most_telling_first(kernel, profile, todo)
        versions = {n: v for a in analyzed for o in a.outcomes for n, v in o.toolchain}
        with machine.launcher(source, Path(folder) / "triton", method) as timer:
            if todo:
                timer.open()
            header = TimesHeader(
                kernel=kernel_text,
                source_sha256=sources_sha256([kernel.source, *(site.source for site in kernel.followers)]),
                gpu=gpu.id,
                device=machine.device,
                compute_capability=gpu.compute_capability,
                sm_count=gpu.sm_count or 0,
                triton=service.triton,
                ptxas=versions.get("ptxas", ""),
                torch=timer.torch,
                l2=method.l2,
                cold=method.cold,
                launches_per_replay=method.launches_per_replay,
                replays=method.replays,
                identity=identity,
                clocks_unknown="" if before.sm_clock_mhz is not None else "NVML is not available here",
                date=today(),
                occupancy=VERSION,
            )
            _time_all(kernel, machine, timer, todo, header, path, done, shared, budget_s, progress)
    if header.clocks_unknown:
        done.notes.append(f"clocks and other processes are unknown: {header.clocks_unknown}")
    return done


def points_to_measure(
    kernel: Kernel, gpu: GpuProfile, sets: Mapping[str, Setting], batches: Sequence[int], nsplits: Sequence[int]
) -> list[Point]:
    """The candidates at every batch, in the order of the batches; `nsplits` keeps those with these split counts."""
    if batches and "batch" not in kernel.given.spec.shapes:
        raise InputError("the spec has no shape named `batch`", where=kernel.given.document.where(("shapes",)))
    asked: Sequence[int | None] = (None,)
    if "batch" in kernel.given.spec.shapes:
        asked = batches or tuple(kernel.settings["batch"].values)
    points = [c.point for batch in asked for c in candidate_points(kernel, gpu, batch, sets)]
    if not nsplits:
        return points
    if not any("nsplit" in p.names for p in points):
        raise InputError("the spec has no name `nsplit`", where="--nsplit", hint="Use --set for its knobs.")
    kept = [p for p in points if p.names.get("nsplit") in nsplits]
    if not kept:
        found = sorted({p.names["nsplit"] for p in points if "nsplit" in p.names})
        raise InputError("no candidate has such a split count", where="--nsplit", hint=f"There are: {found[:20]}.")
    return kept


def identity_names(kernel: Kernel) -> tuple[str, ...]:
    """The names that make a point: shapes, knobs, config, derived."""
    spec = kernel.given.spec
    config = {n for c in kernel.configs for n in c} | set(kernel.overrides)
    names = [*spec.shapes, *spec.knobs, *(n for n in kernel.description.constexprs if n in config), *LAUNCH_OPTIONS]
    return tuple(dict.fromkeys([*names, *spec.derived]))


def row_of(point: Point, identity: Sequence[str]) -> dict[str, Any]:
    """A point's names as a row has them."""
    values = {**point.names, **point.config}
    return report_parts.scalars({n: values[n] for n in identity if n in values})


def _launchable(gpu: GpuProfile, analyzed: AnalyzedPoint, done: Measured) -> bool:
    for plan, outcome in zip(analyzed.point.launches, analyzed.outcomes, strict=True):
        reason = ""
        if outcome.resources is None:
            reason = outcome.message
        elif not occupancy_of(gpu, outcome.resources).launchable:
            reason = occupancy_of(gpu, outcome.resources).reason
        elif plan.grid is None:
            reason = f"{plan.request.source.kernel} has no grid in the spec"
        if reason:
            done.cannot_launch[reason] = done.cannot_launch.get(reason, 0) + 1
            return False
    return True


def most_telling_first(kernel: Kernel, gpu: GpuProfile, analyzed: Sequence[AnalyzedPoint]) -> list[AnalyzedPoint]:
    """Points ordered by what they tell: the smallest and the largest launch of each compiled kernel, then round by
    round of the batches the points whose predicted time is nearest the batch's best; last those without a prediction.
    """
    order: dict[int, None] = {}
    by_binary: dict[str, list[int]] = {}
    for i, each in enumerate(analyzed):
        by_binary.setdefault(each.point.main.request.key(), []).append(i)
    for pick in (min, max):
        for members in by_binary.values():
            order.setdefault(pick(members, key=lambda i: _ctas(analyzed[i])))
    gaps: dict[Any, list[tuple[float, int]]] = {}
    for i, (each, time_us) in enumerate(zip(analyzed, _predicted(kernel, gpu, analyzed), strict=True)):
        gaps.setdefault(repr(sorted(each.point.shapes.items())), []).append((time_us, i))
    queues = [[i for _, i in sorted(group)] for group in gaps.values()]
    for place in range(max((len(q) for q in queues), default=0)):
        for queue in queues:
            if place < len(queue):
                order.setdefault(queue[place])
    return [analyzed[i] for i in order]


def _ctas(analyzed: AnalyzedPoint) -> int:
    return math.prod(analyzed.point.main.grid or (0,))


def _predicted(kernel: Kernel, gpu: GpuProfile, analyzed: Sequence[AnalyzedPoint]) -> list[float]:
    """The predicted time of each point, microseconds; infinite for one without a prediction."""
    known: dict[int, Candidate] = {}
    for i, each in enumerate(analyzed):
        with contextlib.suppress(InputError):  # the spec does not say what a CTA does: no prediction
            candidate, _ = candidate_of(kernel, gpu, int(each.point.shapes.get("batch", 0)), each)
            if candidate is not None:
                known[i] = candidate
    times = [math.inf] * len(analyzed)
    for i, found in zip(known, time_candidates(gpu, list(known.values())), strict=True):
        if isinstance(found, Scored):
            times[i] = found.time_us
    return times


def _time_all(
    kernel: Kernel,
    machine: Machine,
    timer: Timer,
    todo: Sequence[AnalyzedPoint],
    header: TimesHeader,
    path: Path,
    done: Measured,
    shared: bool,
    budget_s: float | None,
    progress: Callable[[MeasureProgress], None] | None,
) -> None:
    known = _known(path, header)
    started = time.monotonic()
    try:
        with path.open("a", encoding="utf-8") as file:
            if not known[0]:
                file.write(header.to_line() + "\n")
                file.flush()
            for number, each in enumerate(todo):
                row = row_of(each.point, header.identity)
                if row_key(row, header.identity) in known[1]:
                    done.known += 1
                    continue
                if budget_s is not None and time.monotonic() - started >= budget_s:
                    done.left += 1
                    continue
                requests = [(plan.request, plan.grid or (1,)) for plan in each.point.launches]
                answer = timer.time(requests, report_parts.scalars(each.point.names))
                if answer.problem:
                    done.failed[answer.problem] = done.failed.get(answer.problem, 0) + 1
                    continue
                now = machine.read() if number % 16 == 0 else None
                # The launch process itself is one; more than that is somebody else.
                shared = shared or (now is not None and (now.processes or 0) > 1)
                row |= _measured(answer, requests[0][1], shared)
                file.write(json_line(row))
                file.flush()
                done.written += 1
                done.marked += bool(answer.throttled or shared)
                if progress:
                    progress(MeasureProgress(number + 1, len(todo), row))
    except KeyboardInterrupt:
        done.interrupted = True
    done.seconds = time.monotonic() - started


def _measured(answer: LaunchAnswer, grid: tuple[int, ...], shared: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"grid": list(grid), **(asdict(answer.launched[0]) if answer.launched else {})}
    row |= {"us_split": answer.us_split, "us_total": answer.us_total}
    row |= {"spread_percent": round(answer.spread_percent, 2), "sm_clock_mhz": answer.sm_clock_mhz}
    if answer.throttled:
        row["throttled"] = list(answer.throttled)
    if shared:
        row["shared"] = True
    return row


def json_line(row: Row) -> str:
    """A row as a line of the file."""
    return json.dumps(row) + "\n"


def _known(path: Path, header: TimesHeader) -> tuple[bool, set[str]]:
    """Whether the file is there already, and the keys of its points; `InputError` when it is of another measurement."""
    if not path.exists() or path.stat().st_size == 0:
        return False, set()
    times = read_times(path)
    different = header.same_measurement(times.header)
    if different:
        name = different[0]
        raise InputError(
            f"the file has {name} {getattr(times.header, name)!r}, this measurement {getattr(header, name)!r}",
            where=str(path),
            hint="Their times do not belong together: write to another file.",
        )
    _end_line(path)
    return True, {row_key(row.names, header.identity) for row in times.rows}


def _end_line(path: Path) -> None:
    """Cut off a last line that was not finished."""
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
