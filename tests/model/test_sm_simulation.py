"""The simulated scheduler: cycles of small programs by hand, and of a real kernel beside its measured time."""

import dataclasses

import pytest

from occupancy_cli.compile.typed_json import from_json, to_json
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.gpu.sm_rates import (
    DRAM_BANDWIDTH_SHARE,
    L2_BYTES_PER_CYCLE_FEW_SMS,
    SmRates,
    dram_share,
    l1_bytes,
    sm_rates,
)
from occupancy_cli.model.instruction_costs import Step, access_bytes, tensor_shape
from occupancy_cli.model.kernel_timing import KernelTiming
from occupancy_cli.model.sm_simulation import (
    WarpPath,
    residents_to_simulate,
    time_path,
)

RATES = SmRates(90, 300.0, 700.0, (("bf16", 1024.0), ("fp8", 2048.0)), l2_bytes_per_cycle=32.0)


def cycles(steps, num_warps=4, ctas=1, **options):
    """Cycles of a program without a loop, one CTA a count of residents, near memory."""
    return time_path(WarpPath(tuple(steps)), RATES, num_warps, ctas, **options).start_near[-1]


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
    timing = time_path(WarpPath(tuple(program)), RATES, 4, 1)
    # One line and 128 bytes a warp: 4 cycles for the lookups of four schedulers, 4 x 128 B at 32 B a cycle to the L2.
    assert timing.start_near[0] == pytest.approx(300 + 16, abs=2)
    assert timing.start_far[0] - timing.start_near[0] == pytest.approx(400, abs=1)


def test_stores_leave_at_the_rate_of_writing():
    # Ten stores of 512 bytes a warp from four warps, 20,480 bytes, at 17 bytes a cycle.
    assert cycles([Step("STG.E.128")] * 10) == pytest.approx(20480 / 17, rel=0.02)


def test_loads_wait_for_bandwidth_and_not_at_higher_rates():
    # 16 loads of 512 bytes by each of four warps: 32 KB an iteration.
    loop = (*[Step("LDG.E.128", write_barrier=0)] * 16, Step("FADD", wait_mask=1))
    rates = dataclasses.replace(RATES, dram_bytes_per_cycle=16.0)
    timing = time_path(WarpPath((), loop), rates, 4, 1)
    # From memory at 16 bytes a cycle 2048 cycles, at the L2's 32 half of it, at 70 468; then the wait shows less.
    assert timing.iteration_far[0] == pytest.approx(2048 + 700, rel=0.02)
    assert [each.bytes_per_cycle for each in timing.faster_far] == [32.0, L2_BYTES_PER_CYCLE_FEW_SMS]
    assert timing.faster_far[0].iteration[0] == pytest.approx(1024 + 700, rel=0.02)
    assert timing.few_far is not None and timing.few_far.iteration[0] < timing.faster_far[0].iteration[0]
    assert from_json(KernelTiming, to_json(timing)) == timing


def test_short_runs_of_bytes_get_less_of_the_memory_bandwidth():
    assert dram_share(64) == 0.51 and dram_share(4096) == DRAM_BANDWIDTH_SHARE
    # Between 64 and 128 bytes, in the middle of their logarithms.
    assert dram_share(64 * 2**0.5) == pytest.approx((0.51 + 0.88) / 2)
    assert dram_share(8) == dram_share(32) == 0.34


def test_lines_of_a_gather_are_looked_up_one_a_cycle():
    program = [Step("LDG.E.U8", write_barrier=0)] * 8 + [Step("FADD", wait_mask=1)]
    close = cycles(program, lines_by_bytes={1: 1})
    spread = cycles(program, lines_by_bytes={1: 32})
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
    loop = tuple([Step("FADD", stall=4)] * 25)
    path = WarpPath((Step("FADD", stall=15),) * 4, loop, (Step("EXIT"),), iterations_per_pass=2)
    timing = time_path(path, RATES, 4, 1)
    assert timing.iteration_near[0] == pytest.approx(50, abs=1)  # 25 x 4 cycles for two iterations
    assert timing.start_near[0] == pytest.approx(60, abs=2)  # 4 x 15


def test_code_beyond_the_instruction_cache_is_supplied_at_half_rate_to_one_warp():
    short = WarpPath((), (Step("FADD"),) * 1000, (Step("EXIT"),))
    long = WarpPath((), (Step("FADD"),) * 4000, (Step("EXIT"),))
    assert time_path(short, RATES, 4, 1).iteration_near[0] == pytest.approx(1000, rel=0.02)
    assert time_path(long, RATES, 4, 1).iteration_near[0] == pytest.approx(8000, rel=0.02)
    assert time_path(long, RATES, 8, 1).iteration_near[0] == pytest.approx(8000, rel=0.02)  # two warps share the supply


def test_residents_share_what_they_both_need_and_hide_what_they_wait_for():
    waiting = WarpPath((), (Step("LDG.E", write_barrier=0), Step("FADD", wait_mask=1)), (Step("EXIT"),))
    timing = time_path(waiting, RATES, 4, 2)
    assert timing.iteration_near[1] < 1.15 * timing.iteration_near[0]
    busy = WarpPath((), (Step("MUFU.EX2"),) * 50, (Step("EXIT"),))
    timing = time_path(busy, RATES, 4, 2)
    assert timing.iteration_near[1] == pytest.approx(2 * timing.iteration_near[0], rel=0.05)


def test_spills_that_outgrow_the_l1_are_slower():
    loop = WarpPath((), (Step("LDL", write_barrier=0), Step("FADD", wait_mask=1)) * 20, (Step("EXIT"),))
    # 1,000 bytes x 128 threads: one CTA fits 200,000 bytes, two do not.
    held = time_path(loop, RATES, 4, 2, local_bytes_per_thread=1000, l1_bytes=200_000)
    assert held.iteration_near[1] > 3 * held.iteration_near[0]


def test_tensor_instructions_and_their_work():
    assert tensor_shape("HMMA.16816.F32.BF16") == ("bf16", 2 * 16 * 8 * 16)
    # A warpgroup product: 64 x 128 x 16, a quarter a warp.
    assert tensor_shape("HGMMA.64x128x16.F32.BF16") == ("bf16", 2 * 64 * 128 * 16 / 4)
    assert tensor_shape("QGMMA.64x128x32.F32.E4M3.E4M3") == ("fp8", 2 * 64 * 128 * 32 / 4)
    assert tensor_shape("QMMA.16832.F32.E4M3.E4M3") == ("fp8", 2 * 16 * 8 * 32)
    assert [access_bytes(o) for o in ("LDG.E.U8", "LDG.E", "LDG.E.64", "LDG.E.128")] == [1, 4, 8, 16]
    # 16 x 8 x 16 x 2 = 4096 FLOPs at 1024 a cycle are 4 cycles; mma.sync reaches 62 % of it on Hopper.
    assert cycles([Step("HMMA.16816.F32.BF16")] * 10) == pytest.approx(9 * 4 / 0.62, abs=1)


def test_residents_between_simulated_counts_are_interpolated():
    assert residents_to_simulate(1) == (1,)
    assert residents_to_simulate(3) == (1, 2, 3)
    assert residents_to_simulate(12) == (1, 2, 3, 4, 8, 12)
    timing = KernelTiming((1, 2, 4), 300, 700, (10, 20, 40), (10, 20, 40), (1, 2, 4), (3, 4, 6), ())
    start, iteration = timing.cycles(4, 500)
    assert start == (10, 20, 30, 40)
    assert iteration == (2, 3, 4, 5)
    assert from_json(KernelTiming, to_json(timing)) == timing


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
