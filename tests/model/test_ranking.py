"""Ranking: ties go to the incumbent, single settings, the Pareto front."""

from dataclasses import dataclass

import pytest
from launch_oracle import best_single_setting

from occupancy_cli.compile.kernel_times import merged
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.gpu_profile import ComputeCapability
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.ranking import Candidate, KernelLaunch, pareto, rank, time_candidates
from occupancy_cli.model.resources import KernelResources


@dataclass(frozen=True)
class Gpu:
    arch: int = 90
    limits: ComputeCapability = load_gpu("h200").limits
    sm_count: int | None = 10
    boost_clock_mhz: float | None = 1000.0
    memory_bandwidth_gbps: float | None = 1000.0
    fp16_dense_tflops: float | None = 100.0
    fp8_dense_tflops: float | None = None
    dram_latency_cycles: float | None = 1000.0
    l2_bytes: int | None = 1_000_000
    l2_near_bytes: int | None = None
    memory_bandwidth_measured_gbps: float | None = None
    l2_read_bytes_per_cycle: float | None = None
    l2_write_bytes_per_cycle: float | None = None
    l2_write_few_sms_bytes_per_cycle: float | None = None
    kernel_gap_us: float | None = None
    cta_turnover_us: float | None = None
    cta_handout_us: float | None = None


@dataclass(frozen=True)
class Held:
    ctas_per_sm: int


# An iteration waits 1 us.
WORK = merged(CtaWork(0.0, 0.0, 0.0, (), dependent_loads=1, pipeline_depth=1), None)


def candidate(nsplit, batch=10, per_sm=1, target=0, tiles=12):
    launch = KernelLaunch(
        "split",
        KernelResources(0, 4, 128),
        Held(per_sm),
        WORK,
        LaunchShape.split((batch, 1, nsplit), tiles, -(-tiles // nsplit)),
    )
    return Candidate(batch, (("TARGET_CTAS", target),), (("num_warps", 4),), (launch,), nsplit, nsplit * batch * 100)


def ranked(candidates, incumbent=None, error_percent=None):
    """The candidates with their times, ranked."""
    base = None if incumbent is None else time_candidates(Gpu(), [incumbent])[0]
    return rank(Gpu(), time_candidates(Gpu(), candidates), base, error_percent)


def test_the_fastest_is_chosen_and_compared_with_the_incumbent():
    # 10 SMs, batch 10: one split is 1.21 + 12 us; two splits are two waves of 1.21 + 6 us, slower by a start.
    ranking = ranked([candidate(1), candidate(2)], candidate(2), error_percent=0.5)
    assert ranking.chosen.candidate.nsplit == 1
    assert ranking.runner_up.candidate.nsplit == 2
    # (0.8 + 14.42) / (0.8 + 13.21)
    assert ranking.predicted_ratio == pytest.approx(15.22 / 14.01)
    assert len(ranking.reasons) == 3
    assert "20 CTAs on 10 slots" in ranking.reasons[0]


def test_the_incumbent_wins_within_the_models_error():
    ranking = ranked([candidate(1), candidate(2)], candidate(2), error_percent=9.0)  # the gain is 8.6 %
    assert ranking.kept_incumbent and ranking.chosen.candidate.nsplit == 2
    assert "9.0 %" in ranking.reasons[2]


def test_what_cannot_launch_is_kept_apart():
    ranking = ranked([candidate(1), candidate(2, per_sm=0)])
    assert [each.candidate.nsplit for each in ranking.cannot_launch] == [2]
    with pytest.raises(InputError):
        ranked([candidate(2, per_sm=0)])
    with pytest.raises(InputError):
        ranked([])


def test_one_setting_for_several_batches():
    # Setting A splits by 1 everywhere, setting B by 2. At batch 5 two splits fit one wave (7 us v 13); at batch 10 not.
    by_batch = [ranked([candidate(1, b, target=1), candidate(2, b, target=2)]) for b in (5, 10)]
    best = best_single_setting(by_batch)
    assert dict(best.knobs) == {"TARGET_CTAS": 2}
    assert best.slowdown == pytest.approx((1 + 15.22 / 14.01) / 2)
    mostly_ten = best_single_setting(by_batch, {5: 0.01, 10: 0.99})
    assert dict(mostly_ten.knobs) == {"TARGET_CTAS": 1}


def test_pareto_keeps_what_is_faster_or_smaller():
    ranking = ranked([candidate(n, batch=2) for n in (1, 2, 3, 6, 5)])
    front = pareto(ranking.ranked)
    # Batch 2 on 10 SMs: up to 5 splits fit; 5 gives parts of 3 like 4 would. Six splits are 12 CTAs: two waves.
    sizes = [s.candidate.partial_bytes for s in front]
    assert sizes == sorted(sizes, reverse=True)
    assert front[0] is ranking.ranked[0] and front[-1].candidate.nsplit == 1
