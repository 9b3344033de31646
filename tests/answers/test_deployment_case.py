"""The deployment that this tool would have spared days: its figures, from its own resources and from our kernel's.

The byte counts of that deployment's kernel are given to the model as they were published; the shipped kernel's own
counts are compiled, and are what they are.
"""

from __future__ import annotations

import pytest
import yaml
from locations import DATA

from occupancy_cli import load_gpu, occupancy
from occupancy_cli.model.observations import Variant, observations
from occupancy_cli.model.occupancy import Occupancy
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.waves import wave_schedule

CASE = yaml.safe_load((DATA / "case" / "deployment_case.yaml").read_text())
GPU = load_gpu("rtx-pro-6000")
SHARED = 61_568


def of(shared_bytes: int, num_warps: int, registers: int | None = 128) -> Occupancy:
    return occupancy(GPU, threads_per_cta=32 * num_warps, registers_per_thread=registers, shared_bytes=shared_bytes)


def variant(shared_bytes: int, num_warps: int, **values: int) -> Variant:
    resources = KernelResources(shared_bytes, num_warps, 32 * num_warps, 128, 0)
    return Variant({**values, "num_warps": num_warps}, resources, of(shared_bytes, num_warps))


def test_the_profile_has_the_limits_of_the_case() -> None:
    limits = CASE["limits"]
    assert GPU.limits.shared_per_cta_optin_bytes == limits["smem_optin_per_cta_bytes"] == 101_376
    assert GPU.limits.max_warps_per_sm == limits["warps_per_sm"] == 48
    assert GPU.sm_count == limits["sms"] == 188


def test_61568_bytes_and_4_warps_are_one_cta_of_4_warps() -> None:
    occ = of(SHARED, 4)
    # 2 x (61,568 + 1,024) = 125,184 > 102,400, so one CTA of 4 warps: 4 of 48 is 8.33 %
    assert (occ.ctas_per_sm, occ.warps_per_sm, occ.max_warps_per_sm) == (1, 4, 48)
    assert round(occ.percent, 1) == CASE["attention_kernel"]["deployed"]["occupancy_percent"] == 8.3
    assert occ.limited_by == ("shared",)
    # 102,400 / 2 = 51,200 a CTA, less the 1,024 that the system reserves: 50,176
    assert occ.next_cta.shared_bytes == 50_176


@pytest.mark.parametrize("config", CASE["attention_kernel"]["configs"], ids=str)
def test_each_config_of_the_case_fits_or_not_as_it_did(config: dict[str, int]) -> None:
    occ = of(config["smem_bytes"], config["num_warps"])
    assert occ.launchable == config["fits"]
    assert occ.over_bytes == config.get("over_by_bytes", 0)  # 104,704 - 101,376 = 3,328


def test_a_smaller_head_tile_alone_buys_no_second_cta_and_the_tool_says_so() -> None:
    # Taking 16 rows of query tile away: 16 x (512 + 64) x 2 = 18,432 bytes; 61,568 + 18,432 = 80,000
    assert SHARED + 16 * (512 + 64) * 2 == 80_000
    larger, smaller = variant(80_000, 4, BLOCK_H=32), variant(SHARED, 4, BLOCK_H=16)
    assert larger.occupancy.ctas_per_sm == smaller.occupancy.ctas_per_sm == 1
    assert observations([larger, smaller]) == [
        "BLOCK_H 32 -> 16 (num_warps 4) frees 18,432 bytes (80,000 -> 61,568) and buys no CTA: 1 CTA/SM both; "
        "the next one needs 50,176 bytes or less"
    ]


def test_8_warps_double_the_warps_at_the_same_ctas() -> None:
    assert observations([variant(SHARED, 4, BLOCK_T=16), variant(SHARED, 8, BLOCK_T=16)]) == [
        "num_warps 4 -> 8 (BLOCK_T 16) keeps 1 CTA/SM and takes 4 to 8 of 48 warps per SM"
    ]


@pytest.mark.parametrize(
    ("batch", "nsplit", "ctas", "tail_ctas", "tail_percent"),
    [
        (80, 256 // 80, 240, 52, 27.66),  # floor: 3 splits; 240 - 188 = 52; 52 / 188
        (80, -(-256 // 80), 320, 132, 70.21),  # ceil: 4 splits; 320 - 188 = 132
        (96, 256 // 96, 192, 4, 2.13),  # floor: 2 splits; 192 - 188 = 4
    ],
)
def test_target_ctas_256_on_188_slots_gives_two_waves(
    batch: int, nsplit: int, ctas: int, tail_ctas: int, tail_percent: float
) -> None:
    waves = wave_schedule((batch, 1, nsplit), ctas_per_sm=1, sm_count=188)
    assert (waves.ctas, waves.slots, waves.full_waves, waves.tail_ctas) == (ctas, 188, 1, tail_ctas)
    assert waves.tail_percent == pytest.approx(tail_percent, abs=0.01)


def test_96_requests_are_slower_than_80_by_waves_alone() -> None:
    """Tokens per second by waves x work: 80 requests in 2 waves of 32 / 3 tiles, 96 in 2 waves of 32 / 2."""
    tiles = 512 // 16
    time_80 = 2 * -(-tiles // 3)  # two waves of ceil(32 / 3) = 11 tiles: 22
    time_96 = 2 * -(-tiles // 2)  # two waves of 16 tiles: 32
    published = CASE["throughput_tok_s"]
    assert 96 / time_96 < 80 / time_80
    assert published["c96"] < published["c80"]
