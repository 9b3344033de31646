"""The constants of the GPU at hand, timed by the microbenchmarks of `ptx_kernels`: what `gpus --measure` writes.

    with CudaDevice(0) as device, KernelTimer(device, cubin, PARAMETERS) as timer:
        found = measure(timer, facts)
        found.numbers["l2_latency_cycles"].value, found.curves, found.clock_mhz

Each figure is a median with its spread (largest less smallest of the repetitions, over the median). Names are those of
`GpuProfile`, whose docstring gives their units. Cycles are the SM's own; the clock is what those cycles took by the
GPU's nanosecond counter, not what a driver says it is. It is read between all parts: where it wanders, no figure in
cycles and none in seconds goes with another, and nothing is written (`ClockWandersError`).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from occupancy_cli.device.kernel_timer import Clocks, KernelTimer, Shot
from occupancy_cli.device.ptx_kernels import (
    LINE_BYTES,
    MMA_CHAINS,
    OP_CHAINS,
    OP_UNROLLED,
    OPS,
    SHARED_LOADS,
    UNROLLED,
    VECTOR_BYTES,
    WGMMA,
    WGMMA_GROUPS,
    WGMMA_STEPS,
    Tensor,
    tensors_of,
)
from occupancy_cli.errors import OccupancyError

SCHEDULERS, LANES = 4, 32
MOST_WANDER = 0.03
"""Of the clock, over the run: past it nothing is written."""

WARM_UP_CYCLES, WARM_UP_TIMES = 200_000_000, 5
CLOCK_CYCLES = 10_000_000
CHASE_STEPS = 20_000
FAR_BYTES = 512 << 20
NEAR_LATENCY_MARGIN = 1.25
"""A latency this many times the L2's near one is past what the near half holds."""
L2_PROBES = tuple(sixteenths / 16 for sixteenths in (2, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16, 17, 18, 20, 24, 32))
"""Footprints of a chain of loads, in parts of the L2."""
L1_PROBE_BYTES = 8_192
STREAM_THREADS, PART_THREADS, PART_BYTES = 256, 1_024, 131_072
CTAS_PER_SM = (1, 2, 4, 8)
LEAST_REGION_L2S, MOST_REGION_BYTES = 8, 4 << 30
FEW_PASSES, MANY_PASSES = 4, 36
SAME_SHARERS = 33
SPIN_CYCLES, TURNOVERS = 4_000, 16
NODES = 200
HANDOUT_THREADS, HANDOUT_CTAS_PER_SM = 128, (64, 512)
TENSOR_CYCLES = 50_000_000


class ClockWandersError(OccupancyError):
    """The SM clock was not the same over the run: `data` has the readings in MHz."""


@dataclass(frozen=True)
class Facts:
    """What has to be known of a GPU before it is measured."""

    arch: int
    sm_count: int
    l2_bytes: int
    unified_l1_shared_bytes: int
    shared_per_cta_optin_bytes: int


@dataclass(frozen=True)
class Number:
    """A measured figure: its median, its spread over the repetitions in percent, and how it was taken."""

    value: float
    spread_percent: float
    how: str


@dataclass(frozen=True)
class BandwidthPoint:
    """Reading with so many CTAs on every SM and so many bytes of each SM in flight: GB/s, and the cycles that those
    bytes were under way (Little's law)."""

    memory: str
    ctas_per_sm: int
    bytes_in_flight: int
    gbps: float
    latency_cycles: float


@dataclass
class Constants:
    """All that a run found. `rates` are figures that no profile has: cycles between instructions of a scheduler, and
    operations of an SM a cycle by the tensor instruction; `clocks_mhz` are the readings between the parts."""

    numbers: dict[str, Number] = field(default_factory=dict)
    rates: dict[str, Number] = field(default_factory=dict)
    curves: list[BandwidthPoint] = field(default_factory=list)
    clocks_mhz: list[float] = field(default_factory=list)

    @property
    def clock_mhz(self) -> float:
        """The SM clock while nothing but the tensor cores' part ran."""
        return statistics.median(self.clocks_mhz)


def measure(timer: KernelTimer, facts: Facts, said: Callable[[str], None] = lambda _part: None) -> Constants:
    """Measure everything, about half a minute. `said` is told of each part before it starts.

    Raises `ClockWandersError`, `OccupancyError` where the GPU has too little free memory, `DriverError`.
    """
    region = _region(timer, facts)
    found = Constants()
    warm_up(timer, facts)
    for part, work in (
        ("latencies and capacities", _latencies),
        ("memory bandwidth", _memory),
        ("L2 bandwidth", _l2),
        ("shared memory and instructions", _sm),
        ("launches", _launches),
    ):
        said(part)
        found.clocks_mhz.append(clock_mhz(timer, facts))
        work(timer, facts, region, found)
    found.clocks_mhz.append(clock_mhz(timer, facts))
    check_clocks(found.clocks_mhz)
    said("tensor cores")
    _tensors(timer, facts, found)
    found.numbers["boost_clock_mhz"] = _number(
        found.clocks_mhz, "SM cycles by the GPU's own nanoseconds, between parts"
    )
    return found


# ---- Clocks.


def warm_up(timer: KernelTimer, facts: Facts) -> None:
    """Keep every SM busy for about half a second: an idle GPU has a low clock."""
    for _ in range(WARM_UP_TIMES):
        timer.run(Shot("spin", facts.sm_count, LANES, (timer.out, WARM_UP_CYCLES)))


def clock_mhz(timer: KernelTimer, facts: Facts) -> float:
    """The SM clock at this moment, with every SM at work."""
    read = timer.clocks(Shot("spin", facts.sm_count, LANES, (timer.out, CLOCK_CYCLES)), times=1)[0]
    return _mhz(read)


def check_clocks(readings: Sequence[float]) -> None:
    """Refuse a run over which the clock changed."""
    if max(readings) - min(readings) > MOST_WANDER * statistics.median(readings):
        shown = ", ".join(f"{mhz:.0f}" for mhz in readings)
        raise ClockWandersError(
            f"the SM clock wandered: {shown} MHz between the parts of the measurement",
            hint="Let the GPU cool down, or fix its clock (nvidia-smi --lock-gpu-clocks), and measure again.",
            clocks_mhz=tuple(readings),
        )


def _mhz(read: Clocks) -> float:
    return 1e3 * read.cycles / read.ns


# ---- Figures.


def _number(values: Iterable[float], how: str) -> Number:
    """Median and spread of repetitions."""
    taken = list(values)
    middle = statistics.median(taken)
    return Number(middle, 100 * (max(taken) - min(taken)) / middle if middle else 0.0, how)


def _cycles(reads: Sequence[Clocks], count: float) -> list[float]:
    return [read.cycles / count for read in reads]


@dataclass(frozen=True)
class Region:
    """Memory of the GPU to read and write: larger than the L2 by far."""

    base: int
    size_bytes: int


def _region(timer: KernelTimer, facts: Facts) -> Region:
    least = 2 * LEAST_REGION_L2S * facts.l2_bytes
    size = min(MOST_REGION_BYTES, timer.free_bytes() // 2)
    if size < least:
        raise OccupancyError(
            f"{timer.free_bytes() >> 20:,} MiB of the GPU's memory are free",
            hint=f"At least {2 * least >> 20:,} MiB are needed: memory that the L2 cannot hold.",
        )
    size -= size % LINE_BYTES
    return Region(timer.allocate(size), size)


def coprime_step(lines: int) -> int:
    """A step through `lines` lines that comes by all of them, and far from the one before: about 0.38 of them."""
    step = max(1, round(0.381966 * lines))
    while math.gcd(step, lines) != 1:
        step += 1
    return step


def chase_cycles(timer: KernelTimer, facts: Facts, kernel: str, base: int, size_bytes: int) -> list[float]:
    """Cycles of a load in a chain over `size_bytes` that has been through before."""
    lines = max(size_bytes // LINE_BYTES, 2)
    timer.run(_chain(facts, base, lines))
    return _cycles(timer.clocks(Shot(kernel, 1, LANES, (base, timer.out, lines, CHASE_STEPS)), times=2), CHASE_STEPS)


def _chain(facts: Facts, base: int, lines: int) -> Shot:
    """Writing the chain, by all SMs."""
    return Shot("chain", 4 * facts.sm_count, STREAM_THREADS, (base, lines, coprime_step(lines)))


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where values that rise along a sequence of places pass `level`, straight between the two places around it."""
    for (low, below), (high, above) in itertools.pairwise(points):
        if below <= level < above:
            return low + (high - low) * (level - below) / (above - below)
    return None


# ---- Latencies, and how much a cache holds.


def _latencies(timer: KernelTimer, facts: Facts, region: Region, found: Constants) -> None:
    base, numbers = region.base, found.numbers
    small = min(1 << 20, facts.l2_bytes // 8)
    near = _number(
        chase_cycles(timer, facts, "chase_l2", base, small),
        f"a chain of loads past the L1 over {small:,} bytes",
    )
    numbers["l2_latency_cycles"] = near
    # What wrote the chain lies in the L2: the other half of the region is read before each chain that is to miss it.
    far_bytes = min(region.size_bytes // 4, max(FAR_BYTES, LEAST_REGION_L2S * facts.l2_bytes))
    half = region.size_bytes // 2
    far = []
    for _ in range(3):
        timer.run(_chain(facts, base, far_bytes // LINE_BYTES))
        timer.run(streaming("read_4", timer, base + half, half, 4 * facts.sm_count))
        far += _cycles(
            timer.clocks(Shot("chase_l2", 1, LANES, (base, timer.out, 0, CHASE_STEPS)), times=1), CHASE_STEPS
        )
    numbers["dram_latency_cycles"] = _number(far, f"a chain of loads over {far_bytes:,} bytes, none of them in the L2")
    timer.prefer_shared("chase_l1", 0)
    l1 = _number(chase_cycles(timer, facts, "chase_l1", base, 16_384), "a chain of loads over 16,384 bytes")
    if l1.value < (1 + near.value) / 2:  # else these loads are not kept in the L1 here
        numbers["l1_latency_cycles"] = l1
        _l1_capacity(timer, facts, base, l1.value, near.value, found)
    reads = timer.clocks(Shot("chase_shared", 1, LANES, (timer.out, CHASE_STEPS)))
    numbers["shared_latency_cycles"] = _number(_cycles(reads, CHASE_STEPS), "a chain of loads in shared memory")
    _l2_capacity(timer, facts, region, found)


def _l1_capacity(timer: KernelTimer, facts: Facts, base: int, l1: float, l2: float, found: Constants) -> None:
    sizes = range(2 * L1_PROBE_BYTES, facts.unified_l1_shared_bytes + 4 * L1_PROBE_BYTES, L1_PROBE_BYTES)
    points = [(float(size), statistics.median(chase_cycles(timer, facts, "chase_l1", base, size))) for size in sizes]
    held = crossing(points, (l1 + l2) / 2)
    if held is not None:
        found.numbers["l1_effective_bytes"] = Number(
            round(held),
            100 * L1_PROBE_BYTES / held,
            "no shared memory carved out; the chain's latency is half way to the L2's",
        )


def _l2_capacity(timer: KernelTimer, facts: Facts, region: Region, found: Constants) -> None:
    near, far = found.numbers["l2_latency_cycles"].value, found.numbers["dram_latency_cycles"].value
    points = []
    for share in L2_PROBES:
        size = int(share * facts.l2_bytes) // LINE_BYTES * LINE_BYTES
        points.append((float(size), statistics.median(chase_cycles(timer, facts, "chase_l2", region.base, size))))
    # Within the L2 both its halves answer, the farther one later: what lies past it answers later still.
    plateau = max(cycles for size, cycles in points if size <= 5 / 8 * facts.l2_bytes)
    step = 100 / 16
    for name, level, how in (
        (
            "l2_near_bytes",
            NEAR_LATENCY_MARGIN * near,
            f"a chain's latency is {NEAR_LATENCY_MARGIN} times the L2's near one",
        ),
        (
            "l2_effective_bytes",
            (plateau + far) / 2,
            "a chain's latency is half way from the L2's farther half to DRAM's",
        ),
    ):
        held = crossing(points, level)
        if held is not None:
            found.numbers[name] = Number(min(round(held), facts.l2_bytes), step, how)


# ---- Bandwidths.


def streaming(
    kernel: str,
    timer: KernelTimer,
    base: int,
    size_bytes: int,
    ctas: int,
    *,
    threads: int = STREAM_THREADS,
    passes: int = 1,
) -> Shot:
    """Reading or writing a region once a pass, all CTAs side by side."""
    unit = ctas * threads * _unrolled(kernel)
    vectors = size_bytes // VECTOR_BYTES // unit * unit
    if not vectors:
        raise ValueError(f"{size_bytes} bytes are less than {ctas} CTAs of {threads} threads take at once")
    return Shot(kernel, ctas, threads, (base, timer.out, vectors, 1, 1, ctas * threads, passes))


def in_parts(kernel: str, timer: KernelTimer, base: int, ctas: int, parts: int, passes: int) -> Shot:
    """Each CTA goes over one of `parts` parts of `PART_BYTES`, again and again."""
    vectors = PART_BYTES // VECTOR_BYTES
    return Shot(kernel, ctas, PART_THREADS, (base, timer.out, vectors, parts, 0, PART_THREADS, passes))


def _unrolled(kernel: str) -> int:
    return int(kernel.removeprefix("read_")) if kernel.startswith("read_") else 4


def moved_bytes(shot: Shot) -> int:
    """What a launch of `streaming` or `in_parts` reads or writes, all passes together."""
    _, _, vectors, _, spread, _, passes = shot.arguments
    return vectors * VECTOR_BYTES * passes * (1 if spread else shot.ctas)


def steady_gbps(timer: KernelTimer, few: Shot, many: Shot) -> list[float]:
    """GB/s of what `many` moves beyond `few`: without the launch, and without what the first pass has to fetch."""
    start = statistics.median(timer.graph_us([few]))
    return [(moved_bytes(many) - moved_bytes(few)) / 1e3 / (us - start) for us in timer.graph_us([many])]


def _memory(timer: KernelTimer, facts: Facts, region: Region, found: Constants) -> None:
    best: list[float] = []
    clock = found.clocks_mhz[-1]
    for ctas, count in itertools.product(CTAS_PER_SM, UNROLLED):
        shot = streaming(f"read_{count}", timer, region.base, region.size_bytes, ctas * facts.sm_count)
        gbps = [moved_bytes(shot) / 1e3 / us for us in timer.graph_us([shot], times=3)]
        found.curves.append(_point("DRAM", facts, ctas, count, statistics.median(gbps), clock))
        best = max(best, gbps, key=lambda values: statistics.median(values) if values else 0.0)
    found.numbers["memory_bandwidth_measured_gbps"] = _number(best, f"reading {region.size_bytes >> 20:,} MiB")


def _point(memory: str, facts: Facts, ctas: int, count: int, gbps: float, clock: float) -> BandwidthPoint:
    flight = ctas * STREAM_THREADS * VECTOR_BYTES * count
    per_cycle = gbps * 1e3 / clock / facts.sm_count
    return BandwidthPoint(memory, ctas, flight, gbps, flight / per_cycle)


def _l2(timer: KernelTimer, facts: Facts, region: Region, found: Constants) -> None:
    sms, base, clock = facts.sm_count, region.base, found.clocks_mhz[-1]
    size = facts.l2_bytes // 4
    best: list[float] = []
    for ctas, count in itertools.product(CTAS_PER_SM, UNROLLED):
        if ctas * sms * STREAM_THREADS * count * VECTOR_BYTES > size:
            continue
        few, many = (
            streaming(f"read_{count}", timer, base, size, ctas * sms, passes=p) for p in (FEW_PASSES, MANY_PASSES)
        )
        gbps = steady_gbps(timer, few, many)
        found.curves.append(_point("L2", facts, ctas, count, statistics.median(gbps), clock))
        best = max(best, gbps, key=lambda values: statistics.median(values) if values else 0.0)

    def per_cycle(gbps: Iterable[float], at: int, how: str) -> Number:
        return _number([each * 1e3 / clock / at for each in gbps], how)

    def parts(kernel: str, ctas: int, count: int) -> list[float]:
        few, many = (in_parts(kernel, timer, base, ctas, count, p) for p in (FEW_PASSES, 2 * MANY_PASSES))
        return steady_gbps(timer, few, many)

    # As many SMs as have parts of their own in half of the L2.
    room = max(facts.l2_bytes // 2 // PART_BYTES, 1)
    few_sms, half, same = (min(max(sms // each, 1), room) for each in (4, 2, SAME_SHARERS))
    layer = sms * STREAM_THREADS * _unrolled("write") * VECTOR_BYTES  # what a CTA on every SM writes at once
    written = max(size, layer)
    fits = max(c for c in CTAS_PER_SM if c * layer <= written)
    few, many = (streaming("write", timer, base, written, fits * sms, passes=p) for p in (FEW_PASSES, MANY_PASSES))
    found.numbers |= {
        "l2_read_bytes_per_cycle": per_cycle(best, sms, f"all SMs read {size:,} bytes between them"),
        "l2_read_few_sms_bytes_per_cycle": per_cycle(
            parts("read_8", few_sms, few_sms), few_sms, f"{few_sms} SMs read, each {PART_BYTES:,} bytes of its own"
        ),
        "l2_read_same_bytes_per_cycle": per_cycle(
            parts("read_8", sms, same), sms, f"all SMs read, in {same} groups, each the same {PART_BYTES:,} bytes"
        ),
        "l2_write_bytes_per_cycle": per_cycle(steady_gbps(timer, few, many), sms, f"all SMs write {written:,} bytes"),
        "l2_write_few_sms_bytes_per_cycle": per_cycle(
            parts("write", half, half), half, f"{half} SMs write, each {PART_BYTES:,} bytes of its own"
        ),
    }


# ---- An SM by itself.


def _sm(timer: KernelTimer, facts: Facts, _region: Region, found: Constants) -> None:
    warps, rounds = 16, 2_000
    reads = timer.clocks(Shot("shared_read", 1, warps * LANES, (timer.out, rounds)))
    loaded = rounds * SHARED_LOADS * warps * LANES * VECTOR_BYTES
    found.numbers["shared_bytes_per_cycle"] = _number(
        (loaded / r.cycles for r in reads), "16 warps load 16 bytes a lane"
    )
    for op in OPS:
        reads = timer.clocks(Shot(f"op_{op.name}", 1, warps * LANES, (timer.out, rounds, 0x3F800000)))
        issued = rounds * OP_CHAINS * OP_UNROLLED * warps // SCHEDULERS
        found.rates[f"{op.name}_cycles_per_scheduler"] = _number(_cycles(reads, issued), "16 warps of 8 chains each")
    issue = found.rates["issue_cycles_per_scheduler"]
    found.numbers["issue_cycles"] = Number(issue.value, issue.spread_percent, "FP32 FMA and LOP3 by turns")
    fma = found.rates["fma_fp32_cycles_per_scheduler"]
    each = 2 * LANES * SCHEDULERS / fma.value
    found.numbers["fp32_tflops"] = Number(
        each * facts.sm_count * found.clocks_mhz[-1] / 1e6, fma.spread_percent, f"{each:.0f} FLOPs a cycle of an SM"
    )


# ---- Launches.


def _launches(timer: KernelTimer, facts: Facts, _region: Region, found: Constants) -> None:
    sms, clock, numbers = facts.sm_count, found.clocks_mhz[-1], found.numbers
    node = [us / NODES for us in timer.graph_us([Shot("empty", 1, LANES)] * NODES)]
    numbers["launch_us"] = _number(node, f"a node of a graph of {NODES} empty kernels")
    # One CTA an SM, since no two have the shared memory; each waits for so many cycles.
    shared = facts.shared_per_cta_optin_bytes * 3 // 4

    def spinning(ctas: int) -> list[float]:
        shot = Shot("spin", ctas, HANDOUT_THREADS, (timer.out, SPIN_CYCLES), shared)
        return [us / 20 for us in timer.graph_us([shot] * 20)]

    waits = SPIN_CYCLES / clock
    once = spinning(sms)
    numbers["kernel_gap_us"] = _number(
        (us - waits for us in once), f"from the end of one kernel of {sms} CTAs to the start of the next, in a graph"
    )
    start = statistics.median(once)
    numbers["cta_turnover_us"] = _number(
        ((us - start) / TURNOVERS - waits for us in spinning(sms * (TURNOVERS + 1))),
        "from the end of a CTA to the start of the next in its place",
    )
    few, many = (each * sms for each in HANDOUT_CTAS_PER_SM)
    first = statistics.median(timer.graph_us([Shot("empty", few, HANDOUT_THREADS)]))
    numbers["cta_handout_us"] = _number(
        ((us - first) / (many - few) for us in timer.graph_us([Shot("empty", many, HANDOUT_THREADS)])),
        f"of {many:,} empty CTAs of {HANDOUT_THREADS} threads, each beyond {few:,}",
    )


# ---- Tensor cores.

# By the name of a product's operands (and what it adds up in): the profile's field.
TENSOR_FIELDS: Mapping[tuple[str, bool], str] = {
    ("bf16", True): "fp16_dense_tflops",
    ("fp16", False): "fp16_dense_fp16acc_tflops",
    ("fp8", True): "fp8_dense_tflops",
    ("tf32", True): "tf32_dense_tflops",
    ("int8", True): "int8_dense_tops",
}


def _tensors(timer: KernelTimer, facts: Facts, found: Constants) -> None:
    """Rates of an SM by its cycles, all SMs at work, and the clock that it then has."""
    clocks: list[float] = []
    for tensor in tensors_of(facts.arch):
        reads, each = _tensor_reads(timer, facts, tensor)
        rate = _number(
            (each / r.cycles for r in reads), f"operations of an SM a cycle, by {tensor.name.partition('_')[0]}"
        )
        found.rates[f"{tensor.name}_operations_per_cycle"] = rate
        if tensor.dtype == "bf16":
            clocks = [_mhz(r) for r in reads]
    found.numbers["tensor_clock_mhz"] = _number(clocks, "while all SMs multiply BF16")
    if 100 <= facts.arch < 120:
        return  # the rate of tcgen05, which these instructions do not have
    clock = found.numbers["tensor_clock_mhz"].value
    for tensor in tensors_of(facts.arch):
        name = TENSOR_FIELDS.get((tensor.dtype, tensor.whole))
        if name is not None:
            rate = found.rates[f"{tensor.name}_operations_per_cycle"]
            how = f"{rate.value:.0f} a cycle of an SM, at the clock of BF16 products"
            found.numbers[name] = Number(rate.value * facts.sm_count * clock / 1e6, rate.spread_percent, how)


def _tensor_reads(timer: KernelTimer, facts: Facts, tensor: Tensor) -> tuple[list[Clocks], float]:
    """What products of about `TENSOR_CYCLES` cycles say of themselves, and the operations of an SM in them."""
    whole = tensor in WGMMA
    threads = WGMMA_GROUPS * 128 if whole else 16 * LANES
    each = tensor.flops * (WGMMA_STEPS * WGMMA_GROUPS if whole else MMA_CHAINS * threads // LANES)

    def shot(rounds: int) -> Shot:
        return Shot(tensor.name, facts.sm_count, threads, (timer.out, rounds))

    first = timer.clocks(shot(200), times=1)[0]
    rounds = max(200, int(TENSOR_CYCLES * 200 / first.cycles))
    return timer.clocks(shot(rounds), times=3), each * rounds
