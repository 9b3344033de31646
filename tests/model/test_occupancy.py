"""The occupancy model: figures that can be redone by hand, and properties that hold for every kernel."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_cli import GpuProfile, InputError, Occupancy, load_gpu, occupancy
from occupancy_cli.gpu.profiles import list_compute_capabilities
from occupancy_cli.model.cluster_rules import cluster_doubt
from occupancy_cli.model.cta_demands import tmem_allocation
from occupancy_cli.model.occupancy import refusal
from occupancy_cli.model.occupancy_columns import NONE, batch_occupancy
from occupancy_cli.model.occupancy_ranges import cliffs, sweep

GPUS = {c.compute_capability: load_gpu(c.compute_capability) for c in list_compute_capabilities()}
SM120, SM90, SM100, SM75 = GPUS["12.0"], GPUS["9.0"], GPUS["10.0"], GPUS["7.5"]


def occ(gpu: GpuProfile = SM120, **changes: Any) -> Occupancy:
    kernel: dict[str, Any] = {"threads_per_cta": 128, "registers_per_thread": 168, "shared_bytes": 61_568}
    return occupancy(gpu, **{**kernel, **changes})


# The deployment's figures -------------------------------------------------------------------------------------------


def test_decode_kernel_on_sm120() -> None:
    found = occ()
    # 61,568 + 1,024 = 62,592 = 489 x 128; 102,400 / 62,592 = 1.6
    assert found.shared_allocated_bytes == 62_592
    assert found.limits == {"shared": 1, "registers": 3, "warps": 12, "ctas": 24}
    # registers: 168 x 32 = 5,376 a warp; 16,384 / 5,376 = 3 a sub-partition, 12 warps an SM, 12 / 4 = 3 CTAs
    assert found.registers_allocated_per_cta == 4 * 5_376
    assert (found.ctas_per_sm, found.warps_per_sm, found.max_warps_per_sm) == (1, 4, 48)
    assert found.percent == pytest.approx(100 * 4 / 48)  # 8.3 %
    assert found.limited_by == ("shared",)
    assert found.launchable and found.reason == "" and found.over_bytes == 0 and found.exact
    # next CTA: 102,400 / 2 = 51,200 = 400 x 128, less 1,024: 50,176; 61,568 - 50,176 = 11,392
    assert found.next_cta.ctas == 2
    assert found.next_cta.shared_bytes == 50_176
    assert found.next_cta["shared"].less == 11_392
    assert found.next_cta["shared"].alone
    assert found.next_cta["registers"].less == 0
    assert found.next_cta.binding == ("shared",)
    # room: up to the cap of a CTA, 101,376 - 61,568 = 39,808; 255 - 168 registers; 48 / 4 warps by the registers: 12
    assert (found.slack["shared"].more, found.slack["shared"].capped) == (39_808, True)
    assert (found.slack["registers"].more, found.slack["registers"].capped) == (87, True)
    assert (found.slack["warps"].at_most, found.slack["warps"].capped) == (12, False)


def test_the_next_cta_is_one_byte_away() -> None:
    assert occ(shared_bytes=50_176).ctas_per_sm == 2
    assert occ(shared_bytes=50_177).ctas_per_sm == 1  # 51,201 rounds up to 51,328, and 2 x 51,328 > 102,400
    assert occ(shared_bytes=50_177).next_cta["shared"].less == 1


def test_a_config_over_the_cap() -> None:
    found = occ(shared_bytes=104_704, registers_per_thread=None)
    assert not found.launchable
    assert found.ctas_per_sm == 0 and found.percent == 0.0
    assert found.over_bytes == 3_328  # 104,704 - 101,376
    assert "104,704" in found.reason and "3,328" in found.reason and "101,376" in found.reason
    assert found.next_cta.ctas == 1
    assert found.next_cta.shared_bytes == 101_376
    assert found.slack == {}


def test_eight_warps_double_the_warps_at_one_cta() -> None:
    assert occ(threads_per_cta=256).warps_per_sm == 8


# Registers ------------------------------------------------------------------------------------------------------------


def test_registers_are_allocated_by_sub_partition() -> None:
    # 216 x 32 = 6,912 a warp. A whole SM would hold 65,536 / 6,912 = 9 warps: 9 CTAs of one warp. But a sub-partition
    # holds 16,384 / 6,912 = 2, so the SM holds 8.
    found = occ(threads_per_cta=32, registers_per_thread=216, shared_bytes=0)
    assert found.limits["registers"] == 8


def test_registers_are_rounded_up_to_256_a_warp() -> None:
    # 33 x 32 = 1,056 -> 1,280; 16,384 / 1,280 = 12 a sub-partition: 48 warps. 32 registers: 1,024, 16 each: 64 warps.
    assert occ(SM90, registers_per_thread=33, shared_bytes=0).limits["registers"] == 12
    assert occ(SM90, registers_per_thread=32, shared_bytes=0).limits["registers"] == 16


def test_launch_check_rounds_warps_up_to_four() -> None:
    # 9 warps x 168 registers: 9 x 5,376 = 48,384 fit, and 12 x 5,376 = 64,512 do too: the launch is allowed.
    # 17 warps x 104: 17 x 3,328 = 56,576 fit into 65,536, but 20 x 3,328 = 66,560 do not: refused.
    assert occ(threads_per_cta=288, shared_bytes=0).launchable
    refused = occ(threads_per_cta=544, registers_per_thread=104, shared_bytes=0)
    assert not refused.launchable
    assert refused.limited_by == ("registers",)
    assert "66,560" in refused.reason and "rounded up to 20" in refused.reason


def test_255_registers_is_the_most() -> None:
    for registers in (256, 300, -1):
        with pytest.raises(InputError, match="from 0 to 255"):
            occ(registers_per_thread=registers)
    # 255 x 32 = 8,160 -> 8,192; 2 a sub-partition, 8 warps, 2 CTAs
    assert occ(registers_per_thread=255, shared_bytes=0).limits["registers"] == 2


def test_unknown_registers_are_unknown_not_free() -> None:
    found = occ(registers_per_thread=None)
    assert found.limits["registers"] is None
    assert not found.exact and "registers" in found.unknown
    assert found.next_cta.registers_per_thread is None
    assert "registers" not in found.slack
    assert found.launchable  # nothing that is known forbids it


# Warps, CTAs, ties ----------------------------------------------------------------------------------------------------


def test_part_of_a_warp_is_a_warp() -> None:
    assert occ(threads_per_cta=33).warps_per_cta == 2


def test_all_that_tie_are_named() -> None:
    # 1,024 threads = 32 warps: 48 / 32 = 1; 40 registers: 1,280 a warp, 12 each, 48 warps: 1; 60,000 bytes: 1
    found = occ(threads_per_cta=1024, registers_per_thread=40, shared_bytes=60_000)
    assert found.limited_by == ("shared", "registers", "warps")
    assert found.next_cta.binding == ("shared", "registers", "warps")
    assert not any(change.alone for change in found.next_cta)


def test_limit_of_ctas_has_no_next_one() -> None:
    found = occ(threads_per_cta=32, registers_per_thread=16, shared_bytes=0)
    assert found.limited_by == ("ctas",) and found.ctas_per_sm == 24
    assert not found.next_cta.reachable
    assert not any(change.alone for change in found.next_cta)


def test_too_many_threads_is_an_answer_not_an_error() -> None:
    found = occ(threads_per_cta=1056)
    assert not found.launchable and "1,056 threads" in found.reason
    assert found.next_cta.warps_per_cta == 12  # 168 registers allow 12 warps an SM


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads_per_cta": 0},
        {"threads_per_cta": -32},
        {"shared_bytes": -1},
        {"static_shared_bytes": -1},
        {"carveout_bytes": 102_401},
        {"num_ctas": 0},
        {"threads_per_cta": 128.0},
        {"shared_bytes": True},
        {"num_barriers": 17},
        {"shared_bytes": 2**32},
    ],
)
def test_impossible_inputs_are_errors_with_data(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        occ(**wrong)
    (name,) = wrong
    assert caught.value.where == name
    assert caught.value.data["required"] == wrong[name]
    assert pickle.loads(pickle.dumps(caught.value)).data == caught.value.data


# Shared memory --------------------------------------------------------------------------------------------------------


def test_static_and_dynamic_share_the_cap() -> None:
    found = occ(shared_bytes=100_000, static_shared_bytes=1_377)
    assert not found.launchable and found.over_bytes == 1
    assert occ(shared_bytes=100_000, static_shared_bytes=1_376).launchable


def test_turing_reserves_nothing_and_steps_by_256() -> None:
    found = occ(SM75, registers_per_thread=32, shared_bytes=0)
    assert found.limits["shared"] is None and "shared" not in found.unknown  # no bytes: no limit
    # 16,385 rounds up to 16,640: 65,536 / 16,640 = 3; 16,384 is a quarter of 65,536
    assert occ(SM75, registers_per_thread=32, shared_bytes=16_385).limits["shared"] == 3
    assert occ(SM75, registers_per_thread=32, shared_bytes=16_384).limits["shared"] == 4
    assert not occ(SM75, registers_per_thread=32, shared_bytes=65_537).launchable


def test_carveout_asked_for() -> None:
    # 20,000 + 1,024 = 21,024 -> 21,120. Carveout 32 KiB: 1; 40,000 asked is rounded up to 64 KiB: 3; the largest: 4
    assert occ(shared_bytes=20_000, carveout_bytes=32_768).limits["shared"] == 1
    assert occ(shared_bytes=20_000, carveout_bytes=40_000).limits["shared"] == 3
    assert occ(shared_bytes=20_000).limits["shared"] == 4
    # One that does not hold a CTA gives way to the smallest that does: 64 KiB for 33,000 + 1,024
    gives_way = occ(shared_bytes=33_000, carveout_bytes=0)
    assert gives_way.carveout_bytes == 65_536 and gives_way.limits["shared"] == 1


def test_a_refusal_names_every_cause() -> None:
    found = occ(threads_per_cta=1056, shared_bytes=200_000)
    assert "200,000 bytes" in found.reason and "1,056 threads" in found.reason
    assert found.reason == refusal(SM120, threads_per_cta=1056, registers_per_thread=168, shared_bytes=200_000)


# Tensor memory, clusters, barriers ------------------------------------------------------------------------------------


def test_tensor_memory_on_blackwell() -> None:
    assert [tmem_allocation(c) for c in (0, 1, 32, 33, 128, 129, 512)] == [0, 32, 32, 64, 128, 256, 512]
    found = occ(SM100, shared_bytes=10_000, registers_per_thread=64, tmem_columns=256)
    assert found.limits["tmem"] == 2 and found.limited_by == ("tmem",)  # 512 / 256
    assert found.next_cta["tmem"].at_most == 128 and found.next_cta["tmem"].alone  # 512 / 3 = 170 -> 128
    over = occ(SM100, tmem_columns=768)  # two accumulators of 384: 768 columns, of 512
    assert not over.launchable and over.limited_by == ("tmem",)
    assert over.reason == "768 columns of tensor memory are over the 512 columns of an SM (CC 10.0)"
    none = occ(SM120, tmem_columns=32)
    assert not none.launchable and none.reason.startswith("there is no tensor memory on CC 12.0")
    assert "tmem" not in occ(SM100).limits


def test_clusters_are_unknown_or_refused() -> None:
    found = occ(SM90, num_ctas=2)
    assert found.limits["cluster"] is None and "GPC" in found.unknown["cluster"] and not found.exact
    assert found.launchable and found.ctas_per_sm == occ(SM90).ctas_per_sm
    assert not occ(SM90, num_ctas=17).launchable  # 16 is the most, non-portable
    ampere = occ(GPUS["8.0"], num_ctas=2)
    assert not ampere.launchable and ampere.limited_by == ("cluster",) and "no clusters" in ampere.reason
    assert not ampere.next_cta.reachable
    assert "disputed" in occ(SM120, num_ctas=2).unknown["cluster"]
    assert "portable size of 8" in occ(SM120, num_ctas=9).unknown["cluster"]
    assert "cluster" not in occ(SM90).limits
    for limits in GPUS.values():  # no GPU takes 32, documented or not
        refused = occ(limits, num_ctas=32)
        assert not refused.launchable and "cluster" in refused.reason


def test_a_cluster_that_is_not_certain_to_launch_is_in_doubt() -> None:
    # 9.0: 8 portable, 16 documented as non-portable. 10.3: 8 portable, no more documented. 12.0: 8 or 1, disputed.
    doubted = {cc: [n for n in (1, 2, 8, 16) if cluster_doubt(GPUS[cc].limits, n)] for cc in ("9.0", "10.3", "12.0")}
    assert doubted == {"9.0": [], "10.3": [16], "12.0": [2, 8, 16]}


def test_named_barriers() -> None:
    # 64 barriers an SM on 9.0: 16 a CTA are 4 CTAs
    found = occ(SM90, threads_per_cta=32, registers_per_thread=32, shared_bytes=0, num_barriers=16)
    assert found.limits["barriers"] == 4 and found.limited_by == ("barriers",)
    assert found.next_cta["barriers"].at_most == 12  # 64 / 5


# Properties -----------------------------------------------------------------------------------------------------------

kernels = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(sorted(GPUS)),
        "warps": st.integers(1, 32),
        "registers": st.integers(1, 255),
        "shared": st.one_of(st.integers(0, 8_192), st.integers(0, 233_472)),
        "static": st.sampled_from([0, 0, 16, 1_000, 8_192]),
        "carveout": st.one_of(st.none(), st.integers(0, 65_536)),
    }
)


def answer(k: dict[str, Any], **changes: Any) -> Occupancy:
    k = {**k, **changes}
    return occupancy(
        GPUS[k["gpu"]],
        threads_per_cta=32 * k["warps"],
        registers_per_thread=k["registers"],
        shared_bytes=k["shared"],
        static_shared_bytes=k["static"],
        carveout_bytes=k["carveout"],
    )


@settings(max_examples=300, deadline=None)
@given(kernels, st.integers(0, 20_000), st.integers(0, 64), st.integers(0, 8))
def test_more_never_raises_ctas(k: dict[str, Any], shared: int, registers: int, warps: int) -> None:
    now = answer(k).ctas_per_sm
    assert answer(k, shared=k["shared"] + shared).ctas_per_sm <= now
    assert answer(k, static=k["static"] + shared).ctas_per_sm <= now
    assert answer(k, registers=min(255, k["registers"] + registers)).ctas_per_sm <= now
    assert answer(k, warps=k["warps"] + warps).ctas_per_sm <= now


@settings(max_examples=300, deadline=None)
@given(kernels)
def test_next_cta_is_exact_in_both_directions(k: dict[str, Any]) -> None:
    """At `at_most` the resource's own limits allow the next CTA, one more and they do not; `alone` is what it says."""
    found = answer(k)
    target = found.next_cta.ctas
    assert target == found.ctas_per_sm + 1
    own = {"shared": ("shared",), "registers": ("registers",), "warps": ("warps", "registers")}
    most = {"shared": GPUS[k["gpu"]].limits.shared_per_cta_optin_bytes - k["static"], "registers": 255, "warps": 32}

    def allowed(resource: str, value: int) -> bool:
        limits = answer(k, **{resource: value}).limits
        return all(limits[name] is None or limits[name] >= target for name in own[resource])  # type: ignore[operator]

    for change in found.next_cta:
        least = 0 if change.resource == "shared" else 1
        if change.at_most is None:
            assert not allowed(change.resource, least)
            assert not change.alone
            continue
        assert allowed(change.resource, change.at_most)
        assert change.less == max(0, change.current - change.at_most)
        if change.at_most < most[change.resource]:
            assert not allowed(change.resource, change.at_most + 1)
        if change.less:
            reached = answer(k, **{change.resource: change.at_most}).ctas_per_sm >= target
            assert change.alone == reached


@settings(max_examples=300, deadline=None)
@given(kernels)
def test_slack_is_exact(k: dict[str, Any]) -> None:
    found = answer(k)
    if not found.launchable:
        assert found.slack == {}
        return
    for slack in found.slack.values():
        assert slack.more >= 0
        assert answer(k, **{slack.resource: slack.at_most}).ctas_per_sm == found.ctas_per_sm
        if not slack.capped:
            assert answer(k, **{slack.resource: slack.at_most + 1}).ctas_per_sm < found.ctas_per_sm


@settings(max_examples=200, deadline=None)
@given(kernels)
def test_binding_limits_are_the_least(k: dict[str, Any]) -> None:
    found = answer(k)
    known = {name: limit for name, limit in found.limits.items() if limit is not None}
    assert found.ctas_per_sm == min(known.values())
    assert set(found.limited_by) == {name for name, limit in known.items() if limit == found.ctas_per_sm}
    assert found.percent <= 100.0
    assert found.launchable == (found.ctas_per_sm > 0) == (found.reason == "")


@settings(max_examples=60, deadline=None)
@given(kernels, st.sampled_from(["shared", "registers", "warps"]))
def test_sweep_agrees_with_single_answers(k: dict[str, Any], resource: str) -> None:
    k = {**k, "static": 0}
    gpu = GPUS[k["gpu"]]
    ranges = sweep(
        gpu,
        resource,
        threads_per_cta=32 * k["warps"],
        registers_per_thread=k["registers"],
        shared_bytes=k["shared"],
        carveout_bytes=k["carveout"],
    )
    ends = {"shared": gpu.limits.shared_per_cta_optin_bytes, "registers": 255, "warps": 32}
    assert ranges[0].least == (0 if resource == "shared" else 1)
    assert ranges[-1].most == ends[resource]
    for before, after in pairwise(ranges):
        assert after.least == before.most + 1
    for plateau in ranges:
        for value in {plateau.least, (plateau.least + plateau.most) // 2, plateau.most}:
            found = answer(k, **{resource: value})
            assert (found.ctas_per_sm, found.warps_per_sm) == (plateau.ctas_per_sm, plateau.warps_per_sm)


def test_cliffs_go_through_every_level() -> None:
    levels = cliffs(SM120, threads_per_cta=128, registers_per_thread=168, shared_bytes=61_568)
    assert [level.ctas for level in levels] == list(range(1, 25))
    # 3 CTAs: 102,400 / 3 = 34,133 -> 34,048 = 266 x 128, less 1,024
    assert levels[2].shared_bytes == 33_024
    # 4 CTAs of 4 warps: 4 warps a sub-partition, 16,384 / 4 = 4,096 a warp, 128 registers
    assert levels[3].registers_per_thread == 128
    assert occ(registers_per_thread=128, shared_bytes=levels[3].shared_bytes).ctas_per_sm == 4


# Many at once ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(kernels, min_size=1, max_size=60), st.data())
def test_batch_equals_one_by_one(many: list[dict[str, Any]], data: st.DataObject) -> None:
    cc = data.draw(st.sampled_from(sorted(GPUS)))
    gpu = GPUS[cc]
    tmem = [data.draw(st.integers(0, 2 * gpu.limits.tmem_columns_per_sm + 64)) for _ in many]
    registers = [data.draw(st.sampled_from([None, 0, k["registers"]])) for k in many]
    threads = [max(1, 32 * k["warps"] - data.draw(st.integers(-64, 31))) for k in many]
    batch = batch_occupancy(
        gpu,
        threads_per_cta=threads,
        registers_per_thread=[-1 if r is None else r for r in registers],
        shared_bytes=[k["shared"] for k in many],
        static_shared_bytes=[k["static"] for k in many],
        carveout_bytes=[-1 if k["carveout"] is None else k["carveout"] for k in many],
        tmem_columns=tmem,
    )
    for i, k in enumerate(many):
        try:
            one = occupancy(
                gpu,
                threads_per_cta=threads[i],
                registers_per_thread=registers[i],
                shared_bytes=k["shared"],
                static_shared_bytes=k["static"],
                carveout_bytes=k["carveout"],
                tmem_columns=tmem[i],
            )
        except InputError:
            assert not batch.possible[i]
            continue
        assert batch.possible[i]
        assert batch.ctas_per_sm[i] == one.ctas_per_sm
        assert batch.warps_per_sm[i] == one.warps_per_sm
        assert batch.percent[i] == one.percent
        assert batch.limited_by_names(i) == one.limited_by
        assert batch.over_bytes[i] == one.over_bytes
        nexts = (batch.next_shared_bytes[i], batch.next_registers[i], batch.next_warps[i])
        expected = (one.next_cta.shared_bytes, one.next_cta.registers_per_thread, one.next_cta.warps_per_cta)
        assert nexts == tuple(NONE if v is None else v for v in expected)
        if tmem[i]:
            at_most = one.next_cta["tmem"].at_most
            assert batch.next_tmem_columns[i] == (NONE if at_most is None else at_most)


def test_batch_marks_impossible_rows() -> None:
    batch = batch_occupancy(
        SM120, threads_per_cta=[128, 0, 128, 128], registers_per_thread=[168, 168, 256, 168], shared_bytes=[0, 0, 0, -1]
    )
    assert batch.possible.tolist() == [True, False, False, False]
