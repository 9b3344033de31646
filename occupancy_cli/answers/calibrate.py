"""`calibrate`: the model's terms fitted to measured times, as a file that `recommend --calibration` takes.

The file, `occupancy/calibration/1` in YAML, holds factors on three terms of each compiled kernel's time, and what they
are good for: one GPU, one kernel source, one Triton version. Used for anything else it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.measured_points import MeasuredKernel, MeasuredRow, measured_kernel, predicted_us
from occupancy_cli.answers.times_file import Times, sources_sha256
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.calibration import Calibration, MeasuredPoint, fit
from occupancy_cli.plan.kernel_input import KernelInput, parse_ref
from occupancy_cli.plan.prepared_kernel import kernel_source
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.measured_parts import CalibrationFit, KernelFactors
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION
from occupancy_cli.yaml_reader import load_yaml

SCHEMA = "occupancy/calibration/1"
POINTS_PER_KERNEL = 12
_KEYS = {"schema", "kernel", "source_sha256", "gpu", "triton", "l2", "calibration"}


@dataclass(frozen=True)
class CalibrationFile:
    """A calibration and what it was made of. `path` is where it was read from."""

    calibration: Calibration
    kernel: str
    source_sha256: str
    gpu: str
    triton: str
    l2: str
    path: str = ""

    def to_yaml(self) -> str:
        """The file's text."""
        import yaml

        data = {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "source_sha256": self.source_sha256,
            "gpu": self.gpu,
            "triton": self.triton,
            "l2": self.l2,
            "calibration": self.calibration.to_dict(),
        }
        return str(yaml.safe_dump(data, sort_keys=False, width=120))

    def check(self, *, gpu: str, triton: str, source_sha256: str, cold: bool) -> None:
        """Raise `InputError` unless it was made for this GPU, Triton version, kernel source and state of the L2."""
        l2 = "cold" if cold else "warm"
        for what, mine, asked in (
            ("GPU", self.gpu, gpu),
            ("Triton version", self.triton, triton),
            ("source of the kernel", self.source_sha256, source_sha256),
            ("L2 state", self.l2, l2),
        ):
            if mine != asked and mine and asked:
                shown = "" if what.startswith("source") else f": {mine}, not {asked}"
                raise InputError(
                    f"was made for another {what}{shown}",
                    where=self.path or "calibration",
                    hint="Measure and calibrate there: occupancy measure, occupancy calibrate.",
                )


@dataclass(frozen=True)
class Calibrated:
    """The outcome of a fit: the file to write, errors before and after, how many points took part, and remarks."""

    file: CalibrationFile
    error_before_percent: float | None
    error_after_percent: float
    points: int
    rows: int
    kernels: int
    notes: tuple[str, ...]


def calibration_fit(
    times: Times,
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    output: Path,
    *,
    points_per_kernel: int = POINTS_PER_KERNEL,
) -> Report:
    """The Report of `calibrate`, whose file is written to `output`."""
    fitted = calibrate(times, given, gpu, service, points_per_kernel=points_per_kernel)
    output.write_text(fitted.file.to_yaml(), encoding="utf-8")
    open_ = set(fitted.file.calibration.undetermined)
    return Report(
        command="calibrate",
        toolchain=Toolchain(occupancy=VERSION, triton=service.triton),
        gpu=report_parts.gpu_part(gpu),
        calibration=report_parts.mirrored(
            fitted,
            CalibrationFit,
            path=str(output),
            factors=[
                KernelFactors(
                    kernel=name,
                    start=factors.start,
                    iteration=factors.iteration,
                    sharing=factors.sharing,
                    undetermined=[t for t in ("start", "iteration", "sharing") if f"{name}: {t}" in open_],
                )
                for name, factors in fitted.file.calibration.factors
            ],
        ),
        notes=list(fitted.notes),
    )


def calibrate(
    times: Times,
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    *,
    points_per_kernel: int = POINTS_PER_KERNEL,
) -> Calibrated:
    """Fit the model to a file of times, with at most `points_per_kernel` rows of each compiled kernel.

    Raises `InputError` for times of another GPU, kernel source or Triton version, and when nothing can be fitted.
    """
    measured = measured_kernel(times, given, gpu, service, same_triton=True)
    chosen = [m for group in _by_binary(measured.rows).values() for m in spread(group, points_per_kernel)]
    points = [p for m in chosen for p in _points(m)]
    if not points:
        problems = sorted({m.problem for m in measured.rows if m.problem})
        raise InputError("no point can be predicted", where=times.path, hint="; ".join(problems[:3]))
    calibration = fit(gpu, points, times.header.cold)
    header = times.header
    file = CalibrationFile(
        calibration,
        kernel=header.kernel,
        source_sha256=header.source_sha256,
        gpu=gpu.id,
        triton=header.triton,
        l2="cold" if header.cold else "warm",
    )
    notes = list(measured.notes)
    missing = sum(m.candidate is None for m in measured.rows)
    if missing:
        notes.append(f"{missing} points were measured and cannot launch by the model: left out")
    return Calibrated(
        file,
        error_before_percent=rms_error_percent(gpu, measured, None, header.cold),
        error_after_percent=rms_error_percent(gpu, measured, calibration, header.cold) or 0.0,
        points=len(chosen),
        rows=len(measured.rows),
        kernels=len(calibration.factors),
        notes=tuple(notes),
    )


def rms_error_percent(
    gpu: GpuProfile, measured: MeasuredKernel, calibration: Calibration | None, cold: bool
) -> float | None:
    """Root mean square of predicted / measured - 1 over every row with a prediction, in percent; None without any."""
    errors = [
        time_us / float(each.row["us_total"]) - 1
        for each, time_us in zip(measured.rows, predicted_us(gpu, measured.rows, calibration, cold), strict=True)
        if time_us is not None
    ]
    if not errors:
        return None
    return float(100 * (sum(e * e for e in errors) / len(errors)) ** 0.5)


def _by_binary(rows: Sequence[MeasuredRow]) -> Mapping[str, list[MeasuredRow]]:
    """Rows by the main kernel that they launch, those that can be predicted."""
    found: dict[str, list[MeasuredRow]] = {}
    for each in rows:
        if each.candidate is not None:
            found.setdefault(each.candidate.launches[0].specialization, []).append(each)
    return found


def spread(rows: Sequence[MeasuredRow], most: int) -> list[MeasuredRow]:
    """At most `most` rows, evenly spread over their launches' sizes (CTAs, then work), both ends in; of launches where
    most CTAs have nothing to do none, if there are others."""

    def size(each: MeasuredRow) -> tuple[int, float]:
        assert each.candidate is not None
        shape = each.candidate.launches[0].shape
        return shape.programs, shape.total_iterations

    def mostly_idle(each: MeasuredRow) -> bool:
        # More splits than tiles: their time tells of empty CTAs and of partial results that nobody wrote.
        assert each.candidate is not None
        shape = each.candidate.launches[0].shape
        return shape.working < shape.programs / 2

    ordered = sorted([r for r in rows if not mostly_idle(r)] or rows, key=size)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (most - 1))] for i in range(most)]


def _points(each: MeasuredRow) -> list[MeasuredPoint]:
    """The main kernel's own time and, where others follow it, the time of all."""
    assert each.candidate is not None
    launches = each.candidate.launches
    points = [MeasuredPoint(launches[:1], float(each.row.get("us_split", each.row["us_total"])))]
    if len(launches) > 1:
        points.append(MeasuredPoint(launches, float(each.row["us_total"])))
    return points


def calibration_for(path: Path, given: KernelInput, gpu: GpuProfile, triton: str, *, cold: bool) -> Calibration:
    """The calibration of a file, for this kernel on this GPU; `InputError` where it was made for anything else."""
    file = read_calibration(path)
    spec, where = given.spec, given.document.where
    refs = [(spec.kernel, where(("kernel",)))]
    refs += [(launch.kernel, where(("followed_by", i, "kernel"))) for i, launch in enumerate(spec.followed_by)]
    sources = [kernel_source(parse_ref(text, given.folder, at)) for text, at in refs]
    file.check(gpu=gpu.id, triton=triton, source_sha256=sources_sha256(sources), cold=cold)
    return file.calibration


def read_calibration(path: Path) -> CalibrationFile:
    """Read a calibration file; `InputError` names what is wrong in it."""
    document = load_yaml(path)
    data = document.data
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InputError(
            f"is no calibration: the key `schema: {SCHEMA}` is missing",
            where=document.path,
            hint="`occupancy calibrate TIMES -o FILE` writes one.",
        )
    for key in _KEYS:
        if key not in data:
            raise InputError(f"the key {key!r} is missing", where=document.path)
    for key in data:
        if key not in _KEYS:
            raise InputError(f"unknown key {key!r}", where=document.where((key,)), hint=f"Valid: {', '.join(_KEYS)}")
    try:
        calibration = Calibration.from_dict(data["calibration"])
    except (KeyError, TypeError, ValueError) as bad:
        raise InputError(f"the factors cannot be read: {bad}", where=document.where(("calibration",))) from bad
    texts: dict[str, Any] = {k: str(data[k]) for k in ("kernel", "source_sha256", "gpu", "triton", "l2")}
    return CalibrationFile(calibration, path=document.path, **texts)
