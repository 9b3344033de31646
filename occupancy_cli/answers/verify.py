"""`verify`: does the CUDA driver of this machine say the same of each compiled kernel as the model does?

Every config in every specialization that its knobs can reach is compiled as for `analyze`, its cubin loaded by the
driver, and each figure compared with the driver's own: registers, local bytes (spills), static shared bytes, threads,
CTAs/SM, and for clusters the number that the whole GPU holds. A config over the cap has to be refused by both. A
difference is a failure; what could not be compiled or loaded is not decided.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.recommend import candidate_points
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import CompileOutcome, integer_class
from occupancy_cli.device.cuda_driver import CudaDevice, DriverError, LoadedKernel
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.waves import cta_slots
from occupancy_cli.plan.kernel_input import KernelInput
from occupancy_cli.plan.launch_plan import LaunchPlan
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.report import device_parts
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.spec.settings import Setting
from occupancy_cli.version import VERSION


@dataclass(frozen=True)
class Figure:
    """One figure of a compiled kernel, by the model and by the driver. `compared` is False where the model says that it
    does not know (the resident clusters of a GPU), so that the two are shown and not judged."""

    name: str
    model: int
    driver: int
    compared: bool = True

    @property
    def equal(self) -> bool:
        """Whether both say the same, or are not to be compared."""
        return not self.compared or self.model == self.driver


@dataclass(frozen=True)
class VerifiedLaunch:
    """One compiled kernel: `config` and the specialization it was compiled for, and its figures.

    `problem` says why there are none. `example` is a point that launches it (shapes, knobs, derived names).
    """

    kernel: str
    config: Mapping[str, Any]
    specialization: str
    example: Mapping[str, Any]
    figures: tuple[Figure, ...] = ()
    problem: str = ""

    @property
    def differences(self) -> tuple[Figure, ...]:
        """The figures that are not equal."""
        return tuple(f for f in self.figures if not f.equal)


@dataclass(frozen=True)
class Verification:
    """All compiled kernels of one spec on one GPU."""

    kernel: str
    gpu: str
    triton: str
    ptxas: str
    launches: tuple[VerifiedLaunch, ...]


def verification(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    batches: Sequence[int] = (),
    *,
    device: Callable[[], CudaDevice] = CudaDevice,
) -> Report:
    """The Report of `verify`."""
    return reported(verify(given, gpu, service, sets, batches, device=device), gpu)


def reported(found: Verification, gpu: GpuProfile) -> Report:
    """The Report of a verification on this machine's `gpu`."""
    return Report(
        command="verify",
        toolchain=Toolchain(occupancy=VERSION, triton=found.triton, ptxas=found.ptxas or None),
        gpu=report_parts.gpu_part(gpu),
        verification=device_parts.Verification(
            kernel=found.kernel,
            gpu=found.gpu,
            kernels=len(found.launches),
            differences=sum(bool(launch.differences) for launch in found.launches),
            undecided=sum(bool(launch.problem) for launch in found.launches),
            launches=[
                device_parts.VerifiedLaunch(
                    kernel=launch.kernel,
                    config=report_parts.scalars(launch.config),
                    specialization=launch.specialization,
                    example=report_parts.scalars(launch.example),
                    figures={
                        f.name: device_parts.Figure(model=f.model, driver=f.driver, compared=f.compared)
                        for f in launch.figures
                    },
                    differs=[f.name for f in launch.differences],
                    problem=launch.problem,
                )
                for launch in found.launches
            ],
        ),
    )


def verify(
    given: KernelInput,
    gpu: GpuProfile,
    service: CompileService,
    sets: Mapping[str, Setting],
    batches: Sequence[int] = (),
    *,
    device: Callable[[], CudaDevice] = CudaDevice,
) -> Verification:
    """Compare every compiled kernel of `given` with what the driver says of it; `gpu` is this machine's own.

    `device` makes the CUDA device, a fake one in tests.
    """
    kernel = prepare(given, gpu, service.describe, sets, os.environ)
    plans = compiled_plans(kernel, gpu, sets, batches)
    with tempfile.TemporaryDirectory(prefix="occupancy-verify-") as folder:
        outcomes = service.compile_all([plan.request for plan, _ in plans], keep_in=Path(folder))
        with device() as opened:
            launches = tuple(
                _verified(opened, gpu, plan, config, outcome)
                for (plan, config), outcome in zip(plans, outcomes, strict=True)
            )
    versions = {n: v for outcome in outcomes for n, v in outcome.toolchain}
    return Verification(given.name, opened.device.name, service.triton, versions.get("ptxas", ""), launches)


def compiled_plans(
    kernel: Kernel, gpu: GpuProfile, sets: Mapping[str, Setting], batches: Sequence[int]
) -> list[tuple[LaunchPlan, Mapping[str, Any]]]:
    """One launch for each kernel that is compiled at any candidate of any batch and any value of --set, and its config.

    Raises `InputError` when batches are given and the kernel has no shape of that name.
    """
    if batches and "batch" not in kernel.given.spec.shapes:
        raise InputError("the spec has no shape named `batch`", where=kernel.given.document.where(("shapes",)))
    asked: Sequence[int | None] = (
        batches or kernel.settings["batch"].values if "batch" in kernel.given.spec.shapes else (None,)
    )
    found: dict[str, tuple[LaunchPlan, Mapping[str, Any]]] = {}
    for single in _one_valued(kernel):
        for batch in asked:
            for chosen in candidate_points(single, gpu, batch, sets, full=True):
                point = chosen.point
                found.setdefault(point.main.request.key(), (point.main, point.config))
                for plan in point.followers:
                    found.setdefault(plan.request.key(), (plan, dict(plan.request.constexprs)))
    return list(found.values())


def _one_valued(kernel: Kernel) -> list[Kernel]:
    """The kernel once for every combination of shapes and --set values that have several, batch and knobs apart."""
    apart = {"batch", *kernel.given.spec.knobs}
    many = {n: s for n, s in kernel.settings.items() if n not in apart and len(s.values) > 1}
    over = {n: s for n, s in kernel.overrides.items() if len(s.values) > 1}
    found = []
    for values in itertools.product(*(s.values for s in (*many.values(), *over.values()))):
        chosen = dict(zip((*many, *over), values, strict=True))
        settings = {n: Setting((chosen[n],), s.origin) if n in many else s for n, s in kernel.settings.items()}
        overrides = {n: Setting((chosen[n],), s.origin) if n in over else s for n, s in kernel.overrides.items()}
        found.append(replace(kernel, settings=settings, overrides=overrides))
    return found


def _verified(
    device: CudaDevice, gpu: GpuProfile, plan: LaunchPlan, config: Mapping[str, Any], outcome: CompileOutcome
) -> VerifiedLaunch:
    names = {n: v for n, v in plan.names.items() if isinstance(v, (int, float, bool, str))}
    launch = VerifiedLaunch(plan.request.source.kernel, config, specialization_text(plan), names)
    if outcome.resources is None or outcome.binary is None:
        return replace(launch, problem=outcome.message or "no cubin was kept")
    file, name = outcome.binary
    try:
        loaded = device.load(Path(file).read_bytes(), name)
    except DriverError as refused:
        return replace(launch, problem=f"the driver does not load it: {refused.problem}")
    try:
        return replace(launch, figures=figures(gpu, outcome.resources, loaded))
    except DriverError as refused:
        return replace(launch, problem=refused.problem)
    finally:
        loaded.unload()


def figures(gpu: GpuProfile, resources: KernelResources, loaded: LoadedKernel) -> tuple[Figure, ...]:
    """Each figure of the model beside the driver's."""
    occupancy = occupancy_of(gpu, resources)
    reserved = gpu.limits.shared_reserved_per_cta_bytes if gpu.arch >= 90 else 0
    threads, num_ctas = resources.threads_per_cta, resources.num_ctas
    found = [
        Figure("registers per thread", resources.registers_per_thread or 0, loaded.registers_per_thread),
        Figure("local bytes per thread", resources.spill_bytes or 0, loaded.local_bytes),
        Figure(
            "static shared bytes",
            resources.static_shared_bytes,
            # ptxas counts the system's share only in kernels that use shared memory at all.
            loaded.static_shared_bytes - (reserved if loaded.static_shared_bytes >= reserved else 0),
        ),
        Figure("CTAs/SM", occupancy.ctas_per_sm, loaded.ctas_per_sm(threads, resources.shared_bytes)),
    ]
    if num_ctas > 1 and occupancy.ctas_per_sm:
        slots = cta_slots(gpu.sm_count or 0, occupancy.ctas_per_sm, num_ctas)
        clusters = loaded.clusters(threads, resources.shared_bytes, num_ctas)
        found.append(Figure("clusters on the GPU, at most", slots // num_ctas, clusters, compared=False))
    return tuple(found)


def specialization_text(plan: LaunchPlan) -> str:
    """What Triton made of the integer arguments: those that became constants, and those that are multiples of 16."""
    ones: list[str] = []
    sixteens: list[str] = []
    others: list[str] = []
    for argument in plan.request.arguments:
        value = argument.value
        if isinstance(value, bool) or not isinstance(value, int) or not argument.specializes:
            continue
        kind = integer_class(value)
        if value == 1:
            ones.append(argument.name)
        else:
            (sixteens if kind.endswith("%16") or value == 0 else others).append(argument.name)
    parts = [f"{n}=1" for n in ones]
    if others:
        parts.append(f"not multiples of 16: {', '.join(others)}")
    elif sixteens:
        parts.append("multiples of 16")
    return "; ".join(parts) or "no integer argument"
