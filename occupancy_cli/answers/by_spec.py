"""`analyze` and `recommend` of whatever a spec holds: configs of a kernel, or tables of configs.

A table names the GPU of each of its files, so for one the GPU counts only where a person asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_cli.device.detect import resolve_gpu
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.spec.kernel_spec import ConfigTable

if TYPE_CHECKING:
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.compile.compile_service import CompileService
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.report.report import Report
    from occupancy_cli.spec.settings import Setting


@dataclass(frozen=True)
class AskedGpu:
    """The GPU of a question: `asked` says whether a person named it, `folders` add profiles to the shipped ones."""

    name: str
    asked: bool = True
    folders: tuple[Path, ...] = ()

    def profile(self) -> GpuProfile:
        """Its profile."""
        return self.resolve(self.name)

    def resolve(self, name: str) -> GpuProfile:
        """The profile of another name, found in the same folders."""
        return resolve_gpu(name, list(self.folders))


def analyze_spec(
    given: KernelInput,
    gpus: Sequence[AskedGpu],
    service: CompileService,
    sets: Mapping[str, Setting],
    *,
    full: bool = False,
    timed: bool = False,
) -> Report:
    """The Report of `analyze`, on one GPU or several; `full` and `timed` as there."""
    if isinstance(given.spec.configs, ConfigTable):
        return _tables("analyze", given, gpus, service, sets)
    from occupancy_cli.answers.analyze import analyze, analyze_on

    if len(gpus) > 1:
        profiles = list({p.id: p for p in (gpu.profile() for gpu in gpus)}.values())
        return analyze_on(profiles, given, service, sets, full=full, timed=timed)
    return analyze(given, gpus[0].profile(), service, sets, full=full, timed=timed)


def analyze_compiled(
    text: str, gpu: AskedGpu, service: CompileService, sets: Mapping[str, Setting], grid: str | None
) -> Report:
    """The Report of `analyze` for a file that a compiler wrote.

    Where no GPU was named it is the default one, or for another compute capability that one's limits.
    """
    from occupancy_cli.answers.analyze_text import analyze_dump, read_dump

    dump = read_dump(text)
    profile = gpu.profile()
    if not gpu.asked and dump.arch not in (None, profile.arch):
        profile = gpu.resolve(f"sm{dump.arch}")
    return analyze_dump(dump, profile, service, sets, grid)


def recommend_spec(
    given: KernelInput,
    gpu: AskedGpu,
    service: CompileService,
    sets: Mapping[str, Setting],
    workload: Workload,
    calibration: Path | None = None,
) -> Report:
    """The Report of `recommend`; `calibration` is a file that `calibrate` wrote. Tables take the batches as their key.

    Raises `InputError` as `recommend` and `calibration_for` do.
    """
    profile = gpu.profile()
    if calibration is not None:
        from occupancy_cli.answers.calibrate import calibration_for

        factors = calibration_for(calibration, given, profile, service.triton, cold=workload.cold)
        workload = replace(workload, calibration=factors)
    if isinstance(given.spec.configs, ConfigTable):
        from occupancy_cli.spec.settings import Setting

        batch = {"batch": Setting(workload.batches, "--batch")} if workload.batches else {}
        return _tables("recommend", given, [gpu], service, {**sets, **batch})
    from occupancy_cli.answers.recommend import recommend

    return recommend(given, profile, service, sets, workload)


def _tables(
    command: str, given: KernelInput, gpus: Sequence[AskedGpu], service: CompileService, sets: Mapping[str, Setting]
) -> Report:
    from occupancy_cli.answers.table_entries import analyze_tables

    asked = [gpu.profile() for gpu in gpus if gpu.asked]
    return analyze_tables(given, asked or None, gpus[0].resolve, service, sets, command=command)
