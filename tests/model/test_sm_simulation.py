"""The simulated scheduler: cycles of small programs by hand, and of a real kernel beside its measured time."""

import pytest

from occupancy_cli.compile.typed_json import from_json, to_json
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.gpu.sm_rates import DRAM_BANDWIDTH_SHARE, SmRates, dram_share, l1_bytes, sm_rates
from occupancy_cli.model.instruction_costs import Step, Touch, access_bytes, tensor_shape
from occupancy_cli.model.kernel_timing import KernelTiming
from occupancy_cli.model.sm_simulation import time_path
from occupancy_cli.model.warp_path import LoopSpan, WarpPath

RATES = SmRates(90, 300.0, 700.0, (("bf16", 1024.0), ("fp8", 2048.0)), l2_bytes_per_cycle=32.0)


def cycles(steps, num_warps=4, **options):
    """Cycles of a program without a loop, near memory."""
    return time_path(WarpPath(tuple(steps)), RATES, num_warps, 1, **options).parts[0].near


def looped(*steps, before=(), passes=1.0):
    """A path of these steps as a loop, with what stands before it."""
    return WarpPath((*before, *steps, Step("EXIT")), (LoopSpan(len(before), len(before) + len(steps), 1, passes),))


def part(path, number, num_warps=4, ctas=1, **options):
    """The timing of a part of a path."""
    return time_path(path, RATES, num_warps, ctas, **options).parts[number]


def test_dependent_instructions_take_their_stalls():
    # Ten instructions 4 cycles apart: the last one issues at cycle 36.
    assert cycles([Step("FADD", stall=4)] * 10) == pytest.approx(36, abs=1)


def test_warps_of_one_scheduler_fill_each_others_stalls():
    # 16 warps are 4 a scheduler: 10 instructions each, one a cycle.
    assert cycles([Step("FADD", stall=4)] * 10, num_warps=16) == pytest.approx(40, abs=2)


def test_the_transcendental_pipe_takes_a_warp_every_8_cycles():
    assert cycles([Step("MUFU.EX2")] * 10) == pytest.approx(72, abs=1)
    assert cycles([Step("MUFU.EX2")] * 10, num_warps=8) == pytest.approx(152, abs=1)


def test_a_load_is_waited_for_where_its_scoreboard_is():
    program = [Step("LDG.E", write_barrier=0), Step("FADD", wait_mask=1)]
    start = part(WarpPath(tuple(program)), 0)
    # One line and 128 bytes a warp: 4 cycles for the lookups of four schedulers, 4 x 128 B at 70 B a cycle to the L2.
    assert start.near == pytest.approx(300 + 8, abs=2)
    assert start.far - start.near == pytest.approx(400, abs=1)


def test_stores_leave_at_the_rate_of_writing():
    # Ten stores of 512 bytes a warp from four warps, 20,480 bytes, at the 30 bytes a cycle that few SMs have.
    assert cycles([Step("STG.E.128")] * 10) == pytest.approx(20480 / 30, rel=0.02)


def test_loads_come_at_the_rate_that_few_sms_have():
    # 16 loads of 512 bytes by each of four warps, 32 KB an iteration, at 70 bytes a cycle: 468 cycles and the wait.
    timing = part(looped(*[Step("LDG.E.128", write_barrier=0)] * 16, Step("FADD", wait_mask=1)), 1)
    assert timing.near == pytest.approx(468 + 300, rel=0.02)
    kept = KernelTiming(300, 700, (timing,))
    assert from_json(KernelTiming, to_json(kept)) == kept


def test_short_runs_of_bytes_get_less_of_the_memory_bandwidth():
    assert dram_share(64) == 0.51 and dram_share(4096) == DRAM_BANDWIDTH_SHARE
    # Between 64 and 128 bytes, in the middle of their logarithms.
    assert dram_share(64 * 2**0.5) == pytest.approx((0.51 + 0.88) / 2)
    assert dram_share(8) == dram_share(32) == 0.34


def test_lines_of_a_gather_are_looked_up_one_a_cycle():
    program = [Step("LDG.E.U8", write_barrier=0)] * 8 + [Step("FADD", wait_mask=1)]
    close = cycles(program, touched={0: Touch({1: 1})})
    spread = cycles(program, touched={0: Touch({1: 32})})
    # 8 loads x 4 warps x 31 lines more; the last of them is still waited for.
    assert spread - close == pytest.approx(8 * 4 * 31, rel=0.1)


def test_a_barrier_holds_all_warps_of_its_cta():
    late = [Step("MUFU.EX2", write_barrier=0)] * 4
    program = [*late, Step("BAR.SYNC.DEFER_BLOCKING"), Step("FADD")]
    # 8 warps are 2 a scheduler, 8 MUFU of 8 cycles: the barrier opens 13 + 2 x 8 cycles after the last one arrives.
    assert cycles(program, num_warps=8) == pytest.approx(56 + 1 + 29, abs=3)


def test_asynchronous_copies_are_waited_for_by_group():
    copy = [Step("LDGSTS.E.BYPASS.128"), Step("LDGDEPBAR")]
    for_all = cycles([*copy, *copy, Step("DEPBAR.LE", allowed=0)])
    for_older = cycles([*copy, *copy, Step("DEPBAR.LE", allowed=1)])
    assert 300 < for_older < for_all


def test_iterations_are_told_from_the_rest():
    path = looped(*[Step("FADD", stall=4)] * 25, before=[Step("FADD", stall=15)] * 4, passes=2)
    assert part(path, 1).near == pytest.approx(50, abs=1)  # 25 x 4 cycles for two iterations
    assert part(path, 0).near == pytest.approx(60, abs=2)  # 4 x 15
    assert dict(part(path, 1).unit_cycles)["issue"] == 12.5


def test_a_loop_inside_another_counts_for_itself():
    # Outside 10 x 4 cycles, in the outer loop 5 x 8, in the inner one 20 x 2.
    steps = [*[Step("FADD", stall=4)] * 10, *[Step("FADD", stall=8)] * 5, *[Step("FADD", stall=2)] * 20, Step("EXIT")]
    path = WarpPath(tuple(steps), (LoopSpan(10, 35, 1), LoopSpan(15, 35, 2)))
    timing = {each.part: each for each in time_path(path, RATES, 4, 1).parts}
    assert [round(timing[number].near) for number in (0, 1, 2)] == [40, 40, 40]
    assert [dict(timing[number].unit_cycles)["issue"] for number in (0, 1, 2)] == [11, 5, 20]


def test_code_beyond_the_instruction_cache_is_supplied_at_half_rate():
    short, long = looped(*[Step("FADD")] * 1000), looped(*[Step("FADD")] * 4000)
    assert part(short, 1).near == pytest.approx(1000, rel=0.02)
    assert part(long, 1).near == pytest.approx(8000, rel=0.02)
    assert part(long, 1, num_warps=8).near == pytest.approx(8000, rel=0.02)  # two warps share the supply
    assert dict(part(long, 1).unit_cycles)["issue"] == 8000


def test_spills_that_outgrow_the_l1_are_slower():
    loop = looped(*(Step("LDL", write_barrier=0), Step("FADD", wait_mask=1)) * 20)
    # 1,000 bytes x 128 threads: one CTA fits 200,000 bytes, two do not.
    fits, outgrown = (part(loop, 1, ctas=n, local_bytes_per_thread=1000, l1_bytes=200_000) for n in (1, 2))
    assert outgrown.near > 3 * fits.near


def test_warpgroup_products_read_their_operands_from_shared_memory():
    # 64 x 32 x 16 is 16 cycles of a warp at 1024 FLOPs a cycle; its operands, 64 x 16 and 32 x 16 of 2 bytes, take 24
    # cycles at 128 bytes a cycle; with the first in registers 8, so the products bind.
    product = Step("HGMMA.64x32x16.F32.BF16")
    assert dict(part(WarpPath((product,)), 0).unit_cycles)["tensor"] == pytest.approx(24)
    held = product._replace(from_registers=True)
    assert dict(part(WarpPath((held,)), 0).unit_cycles)["tensor"] == pytest.approx(16)


def test_tensor_instructions_and_their_work():
    assert tensor_shape("HMMA.16816.F32.BF16") == ("bf16", 2 * 16 * 8 * 16)
    # A warpgroup product: 64 x 128 x 16, a quarter a warp.
    assert tensor_shape("HGMMA.64x128x16.F32.BF16") == ("bf16", 2 * 64 * 128 * 16 / 4)
    assert tensor_shape("QGMMA.64x128x32.F32.E4M3.E4M3") == ("fp8", 2 * 64 * 128 * 32 / 4)
    assert tensor_shape("QMMA.16832.F32.E4M3.E4M3") == ("fp8", 2 * 16 * 8 * 32)
    assert [access_bytes(o) for o in ("LDG.E.U8", "LDG.E", "LDG.E.64", "LDG.E.128")] == [1, 4, 8, 16]
    # 16 x 8 x 16 x 2 = 4096 FLOPs at 1024 a cycle are 4 cycles; mma.sync reaches 62 % of it on Hopper.
    assert cycles([Step("HMMA.16816.F32.BF16")] * 10) == pytest.approx(9 * 4 / 0.62, abs=1)


def test_rates_come_from_the_profile_and_what_is_missing_is_said():
    gpu = load_gpu("h200-sxm")
    rates = sm_rates(gpu)
    # 989 TFLOP/s over 132 SMs of 4 schedulers at 1.83 GHz: 1,024 FLOPs a cycle.
    assert dict(rates.tensor_flops_per_cycle)["bf16"] == pytest.approx(1024, rel=0.01)
    assert (rates.near_latency_cycles, rates.far_latency_cycles) == (gpu.l2_latency_cycles, gpu.dram_latency_cycles)
    bare = sm_rates(load_gpu("sm120"))
    assert {"L2 latency", "DRAM latency", "fp16 tensor rate"} <= {what for what, _ in bare.assumed}


def test_what_shared_memory_leaves_for_the_l1():
    limits = load_gpu("h200-sxm").limits
    # Two CTAs of 41,088 + 1,024 bytes: 84,224, the 100 KiB carveout; 256 - 100 = 156 KiB are left.
    assert l1_bytes(limits, 41_088, 2) == 156 * 1024


def test_impossible_arguments_are_errors():
    with pytest.raises(InputError):
        time_path(WarpPath((Step("EXIT"),)), RATES, 0, 1)
