"""How long a launch takes, term by term: what is true of all launches of one kernel (`LaunchModel`).

`launch_batch` times launches by it, `calibration` fits its factors to measurements; docs/model.md derives each term.

A CTA has parts: what lies outside its loops, and an iteration of each loop. Alone on an SM a part takes the cycles
that the simulation of its machine code finds (`sm_simulation`). With r CTAs on the SM it cannot be faster than r times
what each unit of the SM is busy for one of them: issue, the pipes, shared memory, and the path to the L2 at what an SM
gets of it while that many SMs read. These bounds overlap imperfectly, so they add softly, as a norm, and each counts
for what it adds beyond the CTA alone:

    part(r) = (alone^p + sum over units of ((r unit)^p - unit^p))^(1/p)

Time of a launch = its launch + the soft sum of the schedule of its CTAs (`schedule`), its bytes at the memory
bandwidth, and the handing out of its CTAs. Memory answers at the L2's latency while the launch's bytes fit one half of
the L2 (an SM is near one half, and the other half's lines are copied over), at DRAM's once they outgrow it, and in
between in between; a launch is taken to repeat on the same data, as benchmarks and replayed graphs do, unless `cold`
says that nothing of it is in the L2.

Every term is kept in the result, the one that binds is named, and what is not known is listed with what it makes
uncertain; nothing is filled in silently.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from occupancy_cli.gpu.sm_rates import (
    DRAM_LATENCY_CYCLES,
    L1Limits,
    LaunchGpu,
    LaunchRates,
    l1_bytes,
    launch_rates,
)
from occupancy_cli.model.cta_work import CtaWork, LaunchShape, Stream, Turns
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.schedule import CtaTimes

Floats = npt.NDArray[np.float64]


class GpuRates(LaunchGpu, Protocol):
    """What a time needs to know of a GPU; None where the profile has no value."""

    def __hash__(self) -> int: ...
    @property
    def limits(self) -> L1Limits: ...
    @property
    def sm_count(self) -> int | None: ...
    @property
    def boost_clock_mhz(self) -> float | None: ...
    @property
    def fp16_dense_tflops(self) -> float | None: ...
    @property
    def fp8_dense_tflops(self) -> float | None: ...
    @property
    def dram_latency_cycles(self) -> float | None: ...


class Residency(Protocol):
    """What a time needs to know of an occupancy."""

    def __hash__(self) -> int: ...
    @property
    def ctas_per_sm(self) -> int: ...


SOFTNESS = 2.5
"""The norm in which the bounds of a part add (study of non-decode kernels: 2 to 3)."""
FLOOR_SOFTNESS = 4.0
"""The norm in which the schedule, memory and the handing out of CTAs add (same study: 2 to 8 alike)."""
SHARERS = 2.0
"""From how many CTAs on that load the same an SM gets it at the rate of shared tiles (same study: 2 to 4)."""
L1_FADE = 0.25
"""Of the L1, over which what is loaded again stops being found there (same study: 75 to 100 % full)."""


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel launch: what a CTA takes, how many share an SM, what a CTA does, and the grid."""

    kernel: str
    resources: KernelResources
    occupancy: Residency
    work: CtaWork
    shape: LaunchShape

    @property
    def specialization(self) -> str:
        """A name that launches of the same compiled kernel share: what a calibration is kept under."""
        held = self.resources
        return (
            f"{self.kernel}: {held.num_warps} warps, {held.registers_per_thread} registers, {held.spill_bytes} bytes "
            f"spilled, {held.shared_bytes} bytes shared"
        )


@dataclass(frozen=True)
class Factors:
    """What measurements say of one compiled kernel, as factors on the model's terms: time beyond iterations, time of an
    iteration, and how much CTAs on one SM slow each other."""

    start: float = 1.0
    iteration: float = 1.0
    sharing: float = 1.0


@dataclass(frozen=True)
class TimeEstimate:
    """The predicted time of one launch.

    `time_us` is None when the GPU, the occupancy or the work leave it open; `unknown` then says why. `terms` maps a
    term to its value, in the unit its name ends in. `binding` names what bounds the time: a unit of the SM, "latency"
    when no unit is busy for most of an iteration, or "memory bandwidth" of the whole launch. `unknown` pairs what was
    missing with what that makes uncertain. `interval_us` is where nine of ten such times were measured (`intervals`).
    """

    time_us: float | None
    terms: Mapping[str, float]
    binding: str | None
    unknown: tuple[tuple[str, str], ...] = ()
    times: CtaTimes | None = None
    interval_us: tuple[float, float] | None = None


@dataclass(frozen=True)
class Part:
    """A part of a CTA in microseconds: alone with near and with far memory, what it keeps each unit busy, and the
    numbers of its streams; and the bytes of local memory that it reads and writes."""

    near_us: float
    far_us: float
    units_us: tuple[tuple[str, float], ...]
    streams: tuple[int, ...]
    local_read_bytes: float = 0.0
    local_written_bytes: float = 0.0


@dataclass(frozen=True)
class Dealt:
    """How the work of launches is dealt out: of each launch its iterations of the main loop and its programs, those
    that work, and with shape [launches, ...] the turns of each other loop (always, for each iteration of the main one)
    and how many CTAs share each stream."""

    iterations: Floats
    programs: Floats
    working: Floats
    always: Floats
    per_iteration: Floats
    sharers: Floats


@dataclass(frozen=True)
class LaunchModel:
    """Everything about a kernel's time but the launches, so that many can be timed at once.

    `parts` are the CTA's, by number; `main` is that of the main loop (0: none), `loops` those of the others. `l1_bytes`
    is what the shared memory of its CTAs leaves of the L1. `local_outgrown` says that the local memory of its CTAs is
    more than that, `first_us` is how long DRAM takes to answer. None is unknown.
    """

    arch: int
    sm_count: int
    num_ctas: int
    ctas_per_sm: int
    clock_mhz: float
    parts: Mapping[int, Part]
    main: int
    loops: tuple[int, ...]
    streams: tuple[Stream, ...]
    rates: LaunchRates
    l2_bytes: float | None
    l1_bytes: float | None
    bandwidth_bytes_per_us: float | None
    cold: bool = False
    factors: Factors | None = None
    local_outgrown: bool = False
    first_us: float = 0.0

    @property
    def units_us(self) -> tuple[tuple[str, float], ...]:
        """What an iteration of the main loop (without one, a CTA) keeps each unit busy."""
        return self.parts[self.main].units_us or self.parts[0].units_us

    def executions(self, dealt: Dealt, part: int) -> Floats:
        """How often all CTAs of each launch together run a part."""
        if part == 0:
            return dealt.programs
        if part == self.main:
            return dealt.iterations
        at = self.loops.index(part)
        return np.asarray(dealt.programs * dealt.always[:, at] + dealt.iterations * dealt.per_iteration[:, at])

    def total_bytes(self, dealt: Dealt) -> Floats:
        """Distinct bytes of each launch."""
        total: Floats = np.zeros(len(dealt.programs))
        for number, stream in enumerate(self.streams):
            if not stream.again:
                total = total + stream.bytes * self.executions(dealt, stream.part) / dealt.sharers[:, number]
        return total

    def far_share(self, total_bytes: Floats) -> Floats:
        """Share of memory's answers that come from DRAM rather than the L2."""
        if self.cold:
            return np.ones_like(total_bytes)
        if self.l2_bytes is None:
            return np.zeros_like(total_bytes)
        return self._beyond_l2(total_bytes)

    def _beyond_l2(self, held_bytes: Floats) -> Floats:
        """Of so many bytes that are come back to in turn, the share that the L2 no longer holds."""
        if self.l2_bytes is None:
            return np.zeros_like(held_bytes)
        near = self.rates.l2_near_share * self.l2_bytes
        return np.clip((held_bytes - near) / (self.l2_bytes - near), 0.0, 1.0)

    def dram_bytes(self, dealt: Dealt, total_bytes: Floats, far_share: Floats) -> Floats:
        """Bytes that DRAM moves for each launch: of the distinct ones those that the L2 does not hold beforehand, and
        what CTAs load again where neither their L1 nor, under all that the resident CTAs touch, the L2 kept it."""
        again: Floats = np.zeros_like(total_bytes)
        for number, stream in enumerate(self.streams):
            if stream.again:
                missed = stream.bytes * self.executions(dealt, stream.part) * (1.0 - self._hits(stream, dealt))
                again = again + missed / dealt.sharers[:, number]
        resident = np.minimum(self.sm_count * self.ctas_per_sm / (dealt.programs * self.num_ctas), 1.0)
        return np.asarray(total_bytes * far_share + again * self._beyond_l2(total_bytes * resident))

    def memory_us(self, dram_bytes: Floats) -> Floats:
        """Time of so many bytes from DRAM: the first are there after its latency, the last at its bandwidth."""
        if self.bandwidth_bytes_per_us is None:
            return np.zeros_like(dram_bytes)
        return np.where(dram_bytes > 0, self.first_us, 0.0) + dram_bytes / self.bandwidth_bytes_per_us

    def by_residents(self, dealt: Dealt, far_share: Floats) -> tuple[Floats, Floats]:
        """(start, iteration) of the CTAs of launches, each of shape [launches, residents]: what a CTA takes whatever
        its iterations, and what an iteration of the main loop adds, with the turns of other loops in both."""
        start = self._part_us(0, dealt, far_share) + self.rates.cta_turnover_us
        iteration = np.zeros_like(start)
        if self.main:
            iteration = iteration + self._part_us(self.main, dealt, far_share)
        for at, part in enumerate(self.loops):
            if part in self.parts:
                each = self._part_us(part, dealt, far_share)
                start = start + dealt.always[:, at, None] * each
                iteration = iteration + dealt.per_iteration[:, at, None] * each
        if self.factors is not None:
            start = _scaled(start, self.factors.start, self.factors.sharing)
            iteration = _scaled(iteration, self.factors.iteration, self.factors.sharing)
        return start, iteration

    def _part_us(self, number: int, dealt: Dealt, far_share: Floats) -> Floats:
        """Time of one part of CTAs, of shape [launches, residents]."""
        if number not in self.parts:
            return np.zeros((len(far_share), self.ctas_per_sm))
        part = self.parts[number]
        residents = np.arange(1, self.ctas_per_sm + 1, dtype=float)
        alone: Floats = np.asarray(part.near_us + far_share * (part.far_us - part.near_us))
        beyond = residents**SOFTNESS - 1.0
        total: Floats = np.zeros((len(far_share), self.ctas_per_sm))
        for _, busy in part.units_us:
            total = total + beyond * busy**SOFTNESS
        read, few_read, written, few_written = self._path_us(part, dealt)
        for us, few in ((read, few_read), (written, few_written)):
            # The CTA alone was simulated at what an SM gets while few read.
            total = total + np.maximum((residents * us[:, None]) ** SOFTNESS - few[:, None] ** SOFTNESS, 0.0)
        return np.asarray((alone[:, None] ** SOFTNESS + total) ** (1.0 / SOFTNESS))

    def _path_us(self, part: Part, dealt: Dealt) -> tuple[Floats, Floats, Floats, Floats]:
        """What a part of one CTA keeps the path from and to the L2 busy: (reading, reading while few SMs do, writing,
        writing while few do) of each launch."""
        rates = self.rates
        found: list[Floats] = [np.zeros(len(dealt.programs)) for _ in range(4)]
        share = self.sm_count / np.clip(dealt.working * self.num_ctas, 1.0, self.sm_count)
        private = np.minimum(rates.l2_bytes_per_cycle * share, rates.l2_bytes_per_cycle_at_most)
        shared = np.minimum(np.maximum(rates.l2_bytes_per_cycle_shared, private), rates.l2_bytes_per_cycle_at_most)
        write = np.minimum(rates.l2_write_bytes_per_cycle * share, rates.l2_write_bytes_per_cycle_few_sms)
        for number in part.streams:
            stream = self.streams[number]
            cycles = stream.l2_bytes * (1.0 - self._hits(stream, dealt)) / self.clock_mhz
            if stream.writes:
                found[2] += cycles / write
                found[3] += cycles / rates.l2_write_bytes_per_cycle_few_sms
            else:
                found[0] += cycles / np.where(dealt.sharers[:, number] >= SHARERS, shared, private)
                found[1] += cycles / rates.l2_bytes_per_cycle_few_sms
        # Spilled registers are written through to the L2, and read from it where the L1 does not hold them.
        found[2] += part.local_written_bytes / self.clock_mhz / write
        if self.local_outgrown:
            found[0] += part.local_read_bytes / self.clock_mhz / private
            found[1] += part.local_read_bytes / self.clock_mhz / rates.l2_bytes_per_cycle_few_sms
            found[3] += part.local_written_bytes / self.clock_mhz / rates.l2_write_bytes_per_cycle_few_sms
        return found[0], found[1], found[2], found[3]

    def _hits(self, stream: Stream, dealt: Dealt) -> Floats:
        """Of what a CTA loads again, the share that it finds in the L1: all of it while what the CTAs of an SM load
        again fits, none once it fills the L1."""
        if not stream.again or not self.l1_bytes:
            return np.zeros(len(dealt.programs))
        held = sum(
            each.bytes * self.executions(dealt, each.part) / dealt.programs for each in self.streams if each.again
        )
        return np.clip((self.l1_bytes - self.ctas_per_sm * np.asarray(held)) / (L1_FADE * self.l1_bytes), 0.0, 1.0)


def turns_of(loops: Sequence[int], turns: Sequence[Turns]) -> tuple[list[float], list[float]]:
    """(always, for each iteration of the main loop) of each loop, 0 where nothing is said of it."""
    by_part = {each.part: each for each in turns}
    nothing = Turns(0)
    found = [by_part.get(part, nothing) for part in loops]
    return [each.always for each in found], [each.per_iteration for each in found]


@functools.lru_cache(maxsize=2048)  # a sweep asks for the same few kernels thousands of times
def launch_model(
    gpu: GpuRates,
    resources: KernelResources,
    occupancy: Residency,
    work: CtaWork,
    factors: Factors | None = None,
    cold: bool = False,
    follows: bool = False,
) -> tuple[LaunchModel | None, tuple[tuple[str, str], ...]]:
    """The model of a kernel's launches, or None, and what is unknown about it.

    `follows` says that the kernel reads what the launch before it has just written.
    """
    missing = [
        (name, "the time")
        for name, value in (("SM count", gpu.sm_count), ("clock", gpu.boost_clock_mhz))
        if value is None
    ]
    if missing:
        return None, tuple(missing)
    if occupancy.ctas_per_sm < 1:
        return None, (("a CTA that fits an SM", "the launch fails"),)
    assert gpu.sm_count is not None and gpu.boost_clock_mhz is not None
    unknown: list[tuple[str, str]] = []
    rates, assumed = launch_rates(gpu)
    clock = gpu.boost_clock_mhz  # cycles a microsecond
    parts = {}
    if work.timing is not None:
        timing, latency = work.timing, work.timing.near_latency_cycles
        if follows:
            latency = min(max(latency, rates.just_written_latency_cycles), timing.far_latency_cycles)
        later = timing.far_share(latency)
        for each in timing.parts:
            near = each.near + later * (each.far - each.near)
            units = tuple((name, cycles / clock) for name, cycles in each.unit_cycles)
            local = (each.local_read_bytes, each.local_written_bytes)
            parts[each.part] = Part(near / clock, each.far / clock, units, _streams_of(work, each.part), *local)
        for number in {work.main, *work.loops} - parts.keys():
            # What the compiler unrolled for good lies outside loops; its bytes are still those of its iterations.
            parts[number] = Part(0.0, 0.0, (), _streams_of(work, number))
        unknown.extend(timing.assumed)
        if work.tensor_flops_per_iteration and work.main in parts:
            # Products that tensor memory holds are not in the simulation: no iteration beats the tensor rate.
            tensor = _tensor_us(gpu, work.tensor_flops_per_iteration, unknown) or 0.0
            parts[work.main] = _at_least(parts[work.main], tensor)
    else:
        parts = _from_bytes(gpu, work, unknown)
    unknown.extend(assumed)
    if work.bytes_per_iteration is None:
        unknown.append(("bytes an iteration loads", "whether memory bandwidth binds, and whether the data fits the L2"))
    if work.prologue_bytes is None or work.epilogue_bytes is None:
        unknown.append(("bytes of the prologue or epilogue", "the memory traffic that no iteration shows"))
    if gpu.memory_bandwidth_gbps is None:
        unknown.append(("memory bandwidth", "whether it binds"))
    if gpu.l2_bytes is None:
        unknown.append(("L2 size", "memory latency; taken as the L2's"))
    bandwidth = None
    if gpu.memory_bandwidth_gbps is not None:
        bandwidth = gpu.memory_bandwidth_gbps * 1e3 * (work.dram_share or rates.dram_bandwidth_share)
    held = resources.shared_bytes + resources.static_shared_bytes
    l1 = l1_bytes(gpu.limits, held, occupancy.ctas_per_sm)
    spilled = (resources.spill_bytes or 0) * 32 * resources.num_warps * occupancy.ctas_per_sm
    far_cycles = DRAM_LATENCY_CYCLES if gpu.dram_latency_cycles is None else gpu.dram_latency_cycles
    model = LaunchModel(
        arch=gpu.arch,
        sm_count=gpu.sm_count,
        num_ctas=resources.num_ctas,
        ctas_per_sm=occupancy.ctas_per_sm,
        clock_mhz=clock,
        parts=parts,
        main=work.main,
        loops=work.loops,
        streams=work.streams,
        rates=rates,
        l2_bytes=gpu.l2_bytes,
        l1_bytes=float(l1),
        bandwidth_bytes_per_us=bandwidth,
        cold=cold,
        factors=factors,
        local_outgrown=spilled > l1,
        first_us=far_cycles / clock,
    )
    return model, tuple(dict.fromkeys(unknown))


def _streams_of(work: CtaWork, part: int) -> tuple[int, ...]:
    return tuple(number for number, stream in enumerate(work.streams) if stream.part == part)


def _at_least(part: Part, tensor_us: float) -> Part:
    """A part that keeps the tensor cores busy for at least that long."""
    units = dict(part.units_us)
    units["tensor"] = max(units.get("tensor", 0.0), tensor_us)
    return replace(
        part,
        near_us=max(part.near_us, tensor_us),
        far_us=max(part.far_us, tensor_us),
        units_us=tuple(units.items()),
    )


def _scaled(by_residents: Floats, factor: float, sharing: float) -> Floats:
    """Times by residents with `factor` on the first and `sharing` on what each further resident adds."""
    alone = by_residents[:, :1]
    return np.asarray(factor * (alone + sharing * (by_residents - alone)))


def _tensor_us(gpu: GpuRates, flops: tuple[tuple[str, float], ...], unknown: list[tuple[str, str]]) -> float | None:
    """Time of one CTA's tensor FLOPs on one SM at full rate, microseconds."""
    rates = {
        "fp16": gpu.fp16_dense_tflops,
        "bf16": gpu.fp16_dense_tflops,
        "tf32": None if gpu.fp16_dense_tflops is None else gpu.fp16_dense_tflops / 2,
        "fp8": gpu.fp8_dense_tflops,
        "int8": gpu.fp8_dense_tflops,
    }
    total = 0.0
    for dtype, amount in flops:
        rate = rates.get(dtype)
        if rate is None or gpu.sm_count is None:
            unknown.append((f"{dtype} tensor rate", "whether tensor cores bind"))
            return None
        total += amount / (rate * 1e6 / gpu.sm_count)  # a TFLOP/s is 1e6 FLOP/us
    return total


def _from_bytes(gpu: GpuRates, work: CtaWork, unknown: list[tuple[str, str]]) -> dict[int, Part]:
    """The parts of a CTA without machine code: from bytes and FLOPs."""
    assert gpu.sm_count is not None and gpu.boost_clock_mhz is not None
    clock = gpu.boost_clock_mhz
    unknown.append(("machine code of the kernel", "issue time, and how CTAs on one SM slow each other"))
    latency = gpu.dram_latency_cycles
    if latency is None:
        latency = DRAM_LATENCY_CYCLES
        unknown.append(("memory latency of this GPU", f"taken as {latency:.0f} cycles"))
    latency_us = latency / clock
    occupying: dict[str, float] = {}
    wait = 0.0
    mix = work.loop_mix
    if mix is not None:
        # Without the order of the instructions: one at a time, 4 cycles apart (dependent arithmetic since Volta).
        occupying["issue"] = mix.instructions / clock
        wait += 3.0 * mix.instructions / clock
    if work.dependent_loads is None:
        unknown.append(("length of the chain of dependent loads", "latency of an iteration; taken as 1"))
    if work.pipeline_depth is None:
        unknown.append(("iterations in flight", "how much of the memory latency is hidden; taken as 1"))
    loads = 1.0 if work.dependent_loads is None else work.dependent_loads
    wait += loads * latency_us / (work.pipeline_depth or 1.0)
    if work.tensor_flops_per_iteration is None:
        unknown.append(("tensor FLOPs of an iteration", "whether tensor cores bind"))
    else:
        tensor = _tensor_us(gpu, work.tensor_flops_per_iteration, unknown)
        if tensor is not None:
            occupying["tensor"] = tensor
    if work.shared_bytes_per_iteration is not None:
        occupying["shared memory and L1"] = work.shared_bytes_per_iteration / 128.0 / clock  # 32 banks x 4 bytes
    edges = any(stream.part == 0 for stream in work.streams)
    first = (2 if edges else 1) * latency_us
    start = Part(first, first, (), _streams_of(work, 0))
    if not work.main:
        return {0: start}
    busiest = wait + max(occupying.values(), default=0.0)
    return {0: start, work.main: Part(busiest, busiest, tuple(occupying.items()), _streams_of(work, work.main))}
