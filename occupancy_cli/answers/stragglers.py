"""Which requests of uneven lengths a launch waits for, and how long after the rest it ends for them.

The rest's end is the time of the same launch with the longest requests cut to the length of the next longest: what the
others would take in their company, and not alone on an idle machine.
"""

from __future__ import annotations

from dataclasses import replace

from occupancy_cli.answers.analyze import AnalyzedPoint
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.ranking import Scored, time_candidates
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.report import schema

MOST_SHARE = 8
"""Of requests that are longest together, one in so many: more of them are the load, and no stragglers."""
_LEAST_US = 0.05  # what is printed with one digit would read 0


def straggler_of(
    kernel: Kernel, gpu: GpuProfile, batch: int, analyzed: AnalyzedPoint, workload: Workload, chosen: Scored
) -> schema.Straggler | None:
    """The longest requests of a batch where the launch of `chosen`, compiled as `analyzed`, ends later for them."""
    lengths, ragged = workload.lengths_at(batch), kernel.given.spec.work.ragged
    longest = max(lengths, default=0)
    requests = [number for number, tokens in enumerate(lengths) if tokens == longest]
    if ragged is None or len(requests) > max(1, len(lengths) // MOST_SHARE) or len(requests) == len(lengths):
        return None
    following = max(tokens for tokens in lengths if tokens < longest)
    cut = replace(workload, lengths=",".join(str(min(tokens, following)) for tokens in lengths))
    candidate, _ = candidate_of(kernel, gpu, batch, analyzed, cut)
    if candidate is None:
        return None
    factors = workload.calibration.of if workload.calibration else None
    [rest] = time_candidates(gpu, [candidate], factors, workload.cold)
    if not isinstance(rest, Scored) or chosen.time_us - rest.time_us < _LEAST_US:
        return None
    return schema.Straggler(
        requests=requests,
        tokens=longest,
        next_tokens=following,
        later_us=round(chosen.time_us - rest.time_us, 3),
        program_axis=ragged.axis,
    )
