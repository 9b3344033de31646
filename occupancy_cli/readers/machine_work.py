"""The work of a CTA with what its machine code adds: the loop's instruction mix, and the cycles of each part of a CTA.

Loops of the text and of the machine code are paired by their order, what lies inside them and what they do: one with
products is not taken for one that only loads. The compiler may unroll a loop, and then a pass of it covers several
iterations; what is left over of the iterations is run by code behind it, which stands in the path of a warp as if it
always ran: as many iterations as its loads come to are taken off again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from occupancy_cli.gpu.sm_rates import SmGpu, SmRates, l1_bytes, sm_rates
from occupancy_cli.model.cta_work import CtaWork
from occupancy_cli.model.instruction_costs import Touch, access_bytes, tensor_shape
from occupancy_cli.model.kernel_timing import KernelTiming
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.sm_simulation import time_path, trace_path
from occupancy_cli.model.wait_trace import ColdStart, PathTrace
from occupancy_cli.model.warp_path import WarpPath
from occupancy_cli.readers.ir_work import IrWork, LoopPart
from occupancy_cli.readers.sass import (
    SassKernel,
    SassLoop,
    does_products,
    loop_loads,
    loop_mix,
    main_loop,
    moves_memory,
    parse_sass,
    specialized_warps,
    warp_path,
)

_OTHER = 3  # what a pair costs that differs in products, or in loads
_LEFT_OUT = 4  # what a loop without a partner costs
_ONCE_MORE = 1  # what the second loop of the machine code costs that is taken for one of the text


def with_sass(
    ir: IrWork | None,
    sass: str | SassKernel,
    gpu: SmGpu,
    resources: KernelResources,
    ctas_per_sm: int,
) -> CtaWork:
    """The work with what the machine code adds on `gpu`.

    `ir` tells how loads touch memory and how far the compiler unrolled loops; without it lanes are taken to be
    contiguous, the main loop is the only one, and it is not unrolled. The timing stays None where the text has no
    encodings, for a config that cannot launch, and for kernels whose warps do different things.
    """
    code = parse_sass(sass) if isinstance(sass, str) else sass
    work = ir.work if ir is not None else CtaWork()
    paired = _paired(ir, code)
    passes = {loop: (part, _passes(ir, code, loop, part)) for loop, part in paired.items()}
    main = next((loop for loop, part in paired.items() if part == work.main), None)
    if main is not None:
        work = replace(work, loop_mix=loop_mix(code, main, passes[main][1]))
    path = None if specialized_warps(code) or ctas_per_sm < 1 else warp_path(code, passes)
    if path is None:
        return work
    timing = time_path(
        path,
        sm_rates(gpu),
        resources.num_warps,
        ctas_per_sm,
        _touched(ir, paired),
        resources.spill_bytes or 0,
        l1_bytes(gpu.limits, resources.shared_bytes + resources.static_shared_bytes, ctas_per_sm),
    )
    return replace(work, timing=timing if ir is None else _without_rest(ir, path, timing))


@dataclass(frozen=True)
class TracedKernel:
    """The path of a warp, what warps waited for on it, and the part of the main loop (0: there is none)."""

    path: WarpPath
    trace: PathTrace
    main: int


def traced(
    ir: IrWork | None,
    code: SassKernel,
    gpu: SmGpu,
    rates: SmRates,
    resources: KernelResources,
    ctas_per_sm: int,
    turns: Mapping[int, float],
    start: ColdStart,
) -> TracedKernel | None:
    """What the warps of `ctas_per_sm` CTAs on one SM wait for; None where `with_sass` simulates nothing.

    `rates` are those of an SM of `gpu` while the launch runs, `start` how it begins; `turns` says how many iterations
    each loop of the text makes each time that it is entered.
    """
    paired = _paired(ir, code)
    passes = {loop: (part, _passes(ir, code, loop, part)) for loop, part in paired.items()}
    path = None if specialized_warps(code) or ctas_per_sm < 1 else warp_path(code, passes)
    if path is None:
        return None
    turned = {part: turns.get(part, 1.0) / each_pass for part, each_pass in passes.values()}
    trace = trace_path(
        path,
        rates,
        resources.num_warps,
        ctas_per_sm,
        turned,
        start,
        _touched(ir, paired),
        resources.spill_bytes or 0,
        l1_bytes(gpu.limits, resources.shared_bytes + resources.static_shared_bytes, ctas_per_sm),
    )
    main = ir.work.main if ir is not None else max(paired.values(), default=0)
    return TracedKernel(path, trace, main if any(loop.part == main for loop in path.loops) else 0)


def _touched(ir: IrWork | None, paired: Mapping[SassLoop, int]) -> dict[int, Touch]:
    """How the loads of each part touch memory."""
    touched: dict[int, Touch] = {}
    if ir is None:
        return touched
    for number in {0, *paired.values()}:
        # The code of a loop that the compiler unrolled for good lies outside loops.
        mine = ir.of_parts({number} if number else {0, *(p.part for p in ir.parts)} - set(paired.values()))
        touched[number] = Touch(
            mine.lines_by_bytes(),
            mine.traffic_by_bytes(),
            mine.misses_by_bytes,
            mine.lines_by_bytes("store"),
            mine.traffic_by_bytes("store"),
        )
    return touched


def _paired(ir: IrWork | None, code: SassKernel) -> dict[SassLoop, int]:
    """The loops of the machine code, outermost first, each with the part of the text's loop that it is."""
    if ir is None or not ir.parts:
        main = main_loop(code)
        return {} if main is None or ir is not None else {main: 1}
    leaves = [loop for loop in code.loops if not any(loop.holds(other) for other in code.loops)]
    inner = [part for part in ir.parts if part.leaf]
    found = _aligned(ir, code, inner, leaves)
    around = {part.part: part.around for part in ir.parts}
    for loop, part in list(found.items()):
        # The loops that hold it, from the inside out, are those around it in the text.
        outer = [other for other in reversed(code.loops) if other.holds(loop)]
        part = around[part]
        for other in sorted(outer, key=len):
            if not part:
                break
            found[other] = part
            part = around[part]
    # Of several taken for one, the one that was unrolled most says what an iteration costs.
    best: dict[int, SassLoop] = {}
    for loop, part in found.items():
        kept = best.get(part)
        if kept is None or _passes(ir, code, loop, part) > _passes(ir, code, kept, part):
            best[part] = loop
    return {loop: part for loop in code.loops for part in [found.get(loop, 0)] if part and best[part] == loop}


def _aligned(ir: IrWork, code: SassKernel, parts: Sequence[LoopPart], loops: Sequence[SassLoop]) -> dict[SassLoop, int]:
    """The cheapest way to pair both in order; a loop of either may stay alone, and one of the text have several."""
    loads = {part.part: any(a.part == part.part for a in ir.accesses) for part in parts}

    def differ(part: LoopPart, loop: SassLoop) -> float:
        body = code.body(loop)
        return _OTHER * ((part.flops > 0) != does_products(body)) + _OTHER * (loads[part.part] != moves_memory(body))

    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for i in range(len(parts), -1, -1):
        for j in range(len(loops), -1, -1):
            if i == len(parts) and j == len(loops):
                best[i, j] = (0.0, ())
                continue
            ways = []
            if i < len(parts):
                cost, pairs = best[i + 1, j]
                ways.append((cost + _LEFT_OUT, pairs))
            if j < len(loops):
                cost, pairs = best[i, j + 1]
                ways.append((cost + _LEFT_OUT, pairs))
                if i < len(parts):
                    cost, pairs = best[i + 1, j + 1]
                    ways.append((cost + differ(parts[i], loops[j]), ((i, j), *pairs)))
                    cost, pairs = best[i, j + 1]
                    if pairs and pairs[0][0] == i:
                        ways.append((cost + _ONCE_MORE + differ(parts[i], loops[j]), ((i, j), *pairs)))
            best[i, j] = min(ways)
    return {loops[j]: parts[i].part for i, j in best[0, 0][1]}


def _passes(ir: IrWork | None, code: SassKernel, loop: SassLoop, part: int) -> float:
    """Iterations of the text's loop that one pass of the machine's covers."""
    if ir is None:
        return 1.0
    about = next(each for each in ir.parts if each.part == part)
    if not about.leaf:
        return 1.0
    found = []
    if about.flops:
        done = sum(tensor_shape(each.opcode)[1] for each in code.body(loop) if does_products([each]))
        found.append(float(max(round(done * ir.num_warps / about.flops), 1)))
    loaded = loop_loads(code, loop)
    if loaded or not found:
        found.append(ir.of_parts({part}).passes(loaded))
    # Warps may repeat each other's products or loads, but leave none out: the least tells.
    return min(found)


def _without_rest(ir: IrWork, path: WarpPath, timing: KernelTiming) -> KernelTiming:
    """The timing without the iterations that stand outside an unrolled loop, for what is left over."""
    outside = Counter(access_bytes(step.opcode) for step in path.own(0) if step.opcode.startswith(("LDG.", "LD.")))
    rest: dict[int, float] = {}
    for loop in path.loops:
        if loop.iterations_per_pass <= 1:
            continue
        inside = Counter(
            access_bytes(step.opcode) for step in path.own(loop.part) if step.opcode.startswith(("LDG.", "LD."))
        )
        expected = _loads_of(ir, 0)
        left = [
            (outside[size] - expected.get(size, 0.0)) / (count / loop.iterations_per_pass)
            for size, count in inside.items()
        ]
        if left:
            rest[loop.part] = min(max(min(left), 0.0), loop.iterations_per_pass)
    if not any(rest.values()):
        return timing
    by_part = {part.part: part for part in timing.parts}
    start = by_part[0]
    near, far, units = start.near, start.far, dict(start.unit_cycles)
    for part, count in rest.items():
        near -= count * by_part[part].near
        far -= count * by_part[part].far
        for unit, cycles in by_part[part].unit_cycles:
            units[unit] = max(units[unit] - count * cycles, 0.0)
    start = replace(start, near=max(near, 0.0), far=max(far, near, 0.0), unit_cycles=tuple(units.items()))
    return replace(timing, parts=(start, *(part for part in timing.parts if part.part)))


def _loads_of(ir: IrWork, part: int) -> Mapping[int, float]:
    """Loads of a thread in one execution of a part, by the bytes that each moves."""
    found: dict[int, float] = {}
    for access in ir.accesses:
        if access.part == part and access.kind == "load" and access.bytes_per_lane:
            count = max(access.requested_bytes / (32.0 * ir.num_warps * access.bytes_per_lane), 1.0)
            found[access.bytes_per_lane] = found.get(access.bytes_per_lane, 0.0) + count
    return found
