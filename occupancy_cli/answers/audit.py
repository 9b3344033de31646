"""Which compiled kernels could gain most: the occupancy of every kernel of a Triton cache, ranked.

The rule (`RULE`): a kernel's score is the resident warps that one more CTA per SM would add, relative to those of now,
times the part of each binding resource that may stay. One CTA where two would fit with 20 % less shared memory scores
1.00 x 0.80; the ninth CTA for 5 % fewer registers scores 0.125 x 0.95. Kernels that cannot launch come first, by the
bytes they are over the cap; then by score; those that have nothing to gain come last. Where a resource binds together
with another, the larger cut counts. What the rule cannot see: grid sizes are not in a cache, and a launch with fewer
CTAs than the GPU holds gains nothing from one more CTA per SM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from occupancy_cli.answers import report_parts
from occupancy_cli.errors import OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.model.cta_demands import CLUSTER, CTAS, WARPS, Change
from occupancy_cli.model.occupancy import Occupancy, occupancy_of
from occupancy_cli.readers.triton_cache import CachedKernel, TritonCache, default_triton_cache, read_triton_cache
from occupancy_cli.report import audit_parts
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION

RULE = (
    "Ranked by what can be gained: resident warps that one more CTA per SM would add, relative to now, x the part of "
    "the binding resource that may stay. Kernels that cannot launch come first."
)
BLIND_SPOT = (
    "Grid sizes are not in a cache: a launch with fewer CTAs than the GPU holds gains nothing from one more CTA per SM."
)

_UNIT = {"shared": "shared bytes", "registers": "registers", "tmem": "tensor memory columns"}


@dataclass(frozen=True)
class Gain:
    """What one more CTA per SM would bring a kernel.

    `score` is the rule's number, 0 when there is nothing to gain. `ctas_per_sm` and `warps_per_sm` are those after the
    change, `cuts` the changes that bring it, `text` all of that in a sentence. `more_warps` is relative (1.0: twice as
    many), `cut` the largest relative cut.
    """

    score: float
    ctas_per_sm: int
    warps_per_sm: int
    more_warps: float
    cut: float
    cuts: tuple[Change, ...]
    text: str


@dataclass(frozen=True)
class AuditedKernel:
    """A kernel of the cache on a GPU. `occupancy` and `gain` are None where `unknown` says why."""

    kernel: CachedKernel
    gpu: str
    occupancy: Occupancy | None = None
    gain: Gain | None = None
    unknown: str = ""


@dataclass(frozen=True)
class Audit:
    """A whole cache, best gain first. `gpu` is the GPU that was asked for, None for each kernel's own target."""

    cache: TritonCache
    kernels: tuple[AuditedKernel, ...]
    gpu: GpuProfile | None = None
    notes: tuple[str, ...] = ()


def audit_cache(
    folder: Path | None,
    gpu: GpuProfile | None,
    profile_folders: Sequence[Path] = (),
    progress: Callable[[int, str], None] | None = None,
) -> Report:
    """A Report with the audit of a cache's folder (None: Triton's own), on `gpu` or each kernel on its own target."""
    cache = read_triton_cache(folder or default_triton_cache(), progress=progress)
    result = audit(cache, lambda arch: load_gpu(f"sm{arch}", profile_folders), gpu)
    return Report(
        command="audit",
        toolchain=Toolchain(occupancy=VERSION),
        gpu=None if gpu is None else report_parts.gpu_part(gpu),
        audit=audit_parts.Audit(
            root=cache.root,
            rule=RULE,
            kernels=[_row(row) for row in result.kernels],
            set_aside=[audit_parts.SetAside(path=a.path, state=a.state, why=a.why) for a in cache.set_aside],
            counts={"kernels": len(result.kernels), **{str(state): n for state, n in cache.counts().items()}},
        ),
        notes=[*result.notes, BLIND_SPOT] if result.kernels else [],
    )


def _row(row: AuditedKernel) -> audit_parts.AuditedKernel:
    kernel, found, gain = row.kernel, row.occupancy, row.gain
    return audit_parts.AuditedKernel(
        kernel=kernel.name,
        entry=kernel.entry,
        source=kernel.source or None,
        arch=kernel.arch,
        triton=kernel.triton,
        num_stages=kernel.num_stages,
        maxnreg=kernel.maxnreg,
        resources=report_parts.resources_part(kernel.resources),
        gpu=row.gpu,
        fits=None if found is None else found.launchable,
        over_bytes=0 if found is None else found.over_bytes,
        reason="" if found is None else found.reason,
        shared_cap_bytes=None if found is None else found.shared_cap_bytes,
        occupancy=None if found is None else report_parts.occupancy_part(found),
        gain=None
        if gain is None
        else audit_parts.Gain(
            score=round(gain.score, 4),
            ctas_per_sm=gain.ctas_per_sm,
            warps_per_sm=gain.warps_per_sm,
            cuts=[
                audit_parts.Cut(resource=c.resource, unit=c.unit, current=c.current, at_most=c.at_most)
                for c in gain.cuts
            ],
            text=gain.text,
        ),
        unknown=row.unknown,
    )


def audit(cache: TritonCache, profile_of: Callable[[int], GpuProfile], gpu: GpuProfile | None = None) -> Audit:
    """Judge every kernel on `gpu`, or on its own target (`profile_of(90)`: any GPU of compute capability 9.0)."""
    rows = [_judge(kernel, profile_of, gpu) for kernel in cache.kernels]
    rows.sort(key=_rank)
    notes = []
    if gpu is not None:
        others = sorted({k.arch for k in cache.kernels if k.arch != gpu.arch})
        if others:
            built = ", ".join(f"sm{arch}" for arch in others)
            notes.append(
                f"Kernels built for {built} are judged on {gpu.id} as built; compiled for sm{gpu.arch}, their "
                "registers and shared memory can differ."
            )
    return Audit(cache, tuple(rows), gpu, tuple(notes))


def _judge(kernel: CachedKernel, profile_of: Callable[[int], GpuProfile], gpu: GpuProfile | None) -> AuditedKernel:
    resources = kernel.resources
    name = gpu.id if gpu is not None else f"sm{kernel.arch}"
    try:
        profile = gpu or profile_of(kernel.arch)
        found = occupancy_of(profile, resources)
    except OccupancyError as bad:
        return AuditedKernel(kernel, name, unknown=bad.problem)
    return AuditedKernel(kernel, name, found, gain(found))


def _rank(row: AuditedKernel) -> tuple[int, float, int, str, str]:
    if row.occupancy is None or row.gain is None:
        group, order = 2, 0.0
    elif not row.occupancy.launchable:
        group, order = 0, float(-row.occupancy.over_bytes)
    else:
        group, order = 1, -row.gain.score
    spill = row.kernel.resources.spill_bytes or 0
    return group, order, -spill, row.kernel.name, row.kernel.entry


def gain(found: Occupancy) -> Gain:
    """What the next CTA per SM would bring, by the module's rule."""
    following = found.next_cta
    now = found.ctas_per_sm

    def nothing(why: str) -> Gain:
        return Gain(0.0, now, found.warps_per_sm, 0.0, 0.0, (), why)

    if not found.launchable and CLUSTER in following.binding:
        return nothing(found.reason)
    if CTAS in following.binding:
        return nothing(f"at the SM's limit of {now} CTAs")
    if WARPS in following.binding:
        return nothing(f"{found.warps_per_sm} of {found.max_warps_per_sm} warps per SM: another CTA does not fit")
    cuts = tuple(c for c in following if c.resource in following.binding)
    if not cuts or not following.reachable or any(c.at_most is None or not c.current for c in cuts):
        return nothing("no amount of the binding resource brings another CTA")
    cut = max((c.less or 0) / c.current for c in cuts)
    more = 1.0 / now if now else 1.0
    warps = following.ctas * found.warps_per_cta
    needs = " and ".join(
        f"{c.less:,} {_UNIT.get(c.resource, c.resource)} less ({c.current:,} to {c.at_most:,})" for c in cuts
    )
    return Gain(
        score=more * (1.0 - cut),
        ctas_per_sm=following.ctas,
        warps_per_sm=warps,
        more_warps=more,
        cut=cut,
        cuts=cuts,
        text=needs,
    )
