"""What is asked of a recommendation beside the kernel, and a compiled point as a candidate for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from occupancy_cli.answers.analyze import AnalyzedPoint
from occupancy_cli.answers.candidate_times import no_work, short_config
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.calibration import Calibration
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.ranking import Candidate, KernelLaunch
from occupancy_cli.plan.launch_work import launch_shape, loads_of, timing_of, work_of
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.traffic import parse_lengths


@dataclass(frozen=True)
class Workload:
    """What is asked of a recommendation beside the kernel: the batches (with `mix`, their shares of steps), the tokens
    of each request (`lengths`), whether the launch finds its data in the L2 (`cold`: it does not), and measurements."""

    batches: tuple[int, ...] = ()
    mix: Mapping[int, float] | None = None
    lengths: str | None = None
    cold: bool = False
    calibration: Calibration | None = None

    def lengths_at(self, batch: int) -> tuple[int, ...]:
        """The tokens of each request at a batch; empty when all have as many."""
        return () if self.lengths is None else _lengths(self.lengths, batch)


EVEN = Workload()
_lengths = lru_cache(maxsize=4096)(parse_lengths)


def candidate_of(
    kernel: Kernel, gpu: GpuProfile, batch: int, analyzed: AnalyzedPoint, workload: Workload = EVEN
) -> tuple[Candidate | None, str]:
    """A compiled point as a candidate, or None and why it cannot launch. `InputError` where no work is given."""
    point = analyzed.point
    launches = []
    for plan, outcome in zip(point.launches, analyzed.outcomes, strict=True):
        if outcome.resources is None:
            return None, f"{short_config(point)}: {outcome.message}"
        occupancy = occupancy_of(gpu, outcome.resources)
        if not occupancy.launchable:
            return None, f"{short_config(point)}: {occupancy.reason}"
        work, found = work_of(kernel, gpu, plan, outcome), timing_of(gpu, outcome)
        shape = launch_shape(kernel.given, plan, found, workload.lengths_at(batch), work, loads_of(kernel, found))
        if isinstance(shape, str):
            raise no_work(kernel, plan, shape)
        launches.append(KernelLaunch(plan.request.source.kernel, outcome.resources, occupancy, work, shape))
    nsplit = point.names.get("nsplit")
    partials = kernel.given.spec.partials_bytes
    where = kernel.given.document.where(("partials_bytes",))
    return (
        Candidate(
            batch=batch,
            knobs=tuple(point.knobs.items()),
            config=tuple((n, v) for n, v in point.config.items() if n not in point.knobs),
            launches=tuple(launches),
            nsplit=None if nsplit is None else int(nsplit),
            partial_bytes=0 if partials is None else int(parse_expression(partials, where)(point.names, where)),
        ),
        "",
    )
