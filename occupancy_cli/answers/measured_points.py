"""Measured rows as launches of the model: each compiled again for its GPU, so that it can be predicted beside its time.

Shared by `calibrate` (fits the model to the times) and `compare` (judges choices by them).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_cli.answers.analyze import compile_points, stop_above
from occupancy_cli.answers.times_file import Measurement, Row, Times, sources_sha256
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.ranking import Candidate, Scored, time_candidates
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.points import Point, make_point
from occupancy_cli.plan.prepared_kernel import Kernel, prepare


@dataclass(frozen=True)
class MeasuredRow:
    """A row with its launches; `candidate` is None where the model says it cannot launch (`problem` says why)."""

    measurement: Measurement
    point: Point
    candidate: Candidate | None
    problem: str = ""

    @functools.cached_property
    def row(self) -> Row:
        """The measurement as its line has it."""
        return self.measurement.row


@dataclass(frozen=True)
class MeasuredKernel:
    """A kernel with the usable rows of a file of times, and what is to be said of the others."""

    kernel: Kernel
    rows: tuple[MeasuredRow, ...]
    notes: tuple[str, ...]


def measured_kernel(
    times: Times, given: KernelInput, gpu: GpuProfile, service: CompileService, *, same_triton: bool
) -> MeasuredKernel:
    """Compile every usable row's launches for `gpu`.

    Raises `InputError` when the times are of another GPU, of a kernel whose source has changed since, or, where
    `same_triton`, of another Triton version (its binaries take other registers and shared memory).
    """
    header = times.header
    if header.gpu != gpu.id:
        raise InputError(
            f"the times were measured on {header.device} ({header.gpu}), not on {gpu.id}", where=f"{times.path}:1"
        )
    if not gpu.is_named(header.device):
        raise InputError(f"device is {header.device!r}, which is no name of {gpu.id}", where=f"{times.path}:1")
    for name, theirs, ours in (
        ("compute_capability", header.compute_capability, gpu.compute_capability),
        ("sm_count", header.sm_count, gpu.sm_count),
    ):
        if ours is not None and theirs != ours:
            raise InputError(f"{name} is {theirs}; {gpu.id} has {ours}", where=f"{times.path}:1")
    notes = []
    if header.triton != service.triton:
        text = f"the times were measured with Triton {header.triton}, this is {service.triton}"
        if same_triton:
            raise InputError(text, where=f"{times.path}:1", hint=f"Run it with Triton {header.triton}.")
        notes.append(f"{text}: predictions are for other binaries than those that were timed")
    kernel = prepare(given, gpu, service.describe, {}, {}, readings=service.readings)
    now = sources_sha256([kernel.source, *(site.source for site in kernel.followers)])
    if header.source_sha256 and now and header.source_sha256 != now:
        raise InputError(
            "the kernel's source has changed since it was measured", where=f"{times.path}:1", hint="Measure it again."
        )
    rows, left_out = times.usable()
    if not rows:
        raise InputError("no usable point", where=times.path, hint="; ".join(left_out))
    points = [_point_at(kernel, gpu, row, times.path) for row in rows]
    workload = Workload(cold=header.cold)
    found = []
    for row, analyzed in zip(rows, compile_points(kernel, gpu, service, points, timed=True), strict=True):
        batch = analyzed.point.shapes.get("batch", 1)
        candidate, problem = candidate_of(kernel, gpu, batch, analyzed, workload)
        found.append(MeasuredRow(row, analyzed.point, candidate, problem))
    return MeasuredKernel(kernel, tuple(found), (*left_out, *notes))


def predicted_us(
    gpu: GpuProfile, rows: Sequence[MeasuredRow], calibration: Calibration | None, cold: bool
) -> list[float | None]:
    """The predicted time of each row, microseconds; None for one that cannot launch or has no time."""
    return [None if each is None else each.time_us for each in predictions(gpu, rows, calibration, cold)]


def predictions(
    gpu: GpuProfile, rows: Sequence[MeasuredRow], calibration: Calibration | None, cold: bool
) -> list[Scored | None]:
    """The prediction of each row with its terms; None for one that cannot launch or has no time."""
    known = [each.candidate for each in rows if each.candidate is not None]
    found = iter(time_candidates(gpu, known, calibration.of if calibration else None, cold))
    times = [None if each.candidate is None else next(found) for each in rows]
    return [each if isinstance(each, Scored) else None for each in times]


def _point_at(kernel: Kernel, gpu: GpuProfile, measured: Measurement, path: str) -> Point:
    """The point of a measurement; an error names its line."""
    where = f"{path}:{measured.line}"
    for name in kernel.given.spec.shapes:
        value = measured.names.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
            raise InputError(f"{name} is {value}: no shape is below 0", where=where)
    try:
        return point_of(kernel, gpu, measured.row)
    except InputError as bad:
        raise InputError(
            f"{bad.problem} ({bad.where})" if bad.where else bad.problem, where=where, hint=bad.hint
        ) from bad


def point_of(kernel: Kernel, gpu: GpuProfile, row: Row) -> Point:
    """The point that a row was measured at. A knob that the row lacks is replaced by its derived names."""
    spec = kernel.given.spec
    settings: dict[str, Any] = {n: row.get(n, s.values[0]) for n, s in kernel.settings.items()}
    config = _config_of(kernel.configs, row)
    override: dict[str, Any] = {}
    if any(n not in row for n in spec.knobs):
        override = {n: row[n] for n in spec.derived if n in row}
    return make_point(kernel, gpu, settings, config, override, stop_above(gpu, full=False))


def _config_of(configs: Sequence[Mapping[str, Any]], row: Row) -> dict[str, Any]:
    """The config of the kernel that a row has; its own values where the kernel no longer lists it."""
    for config in configs:
        if all(row.get(n, v) == v for n, v in config.items()):
            return dict(config)
    return {n: row[n] for config in configs[:1] for n in config if n in row}
