"""Recommendations on the measured surface: the times they lead to, beside the best that was measured.

The numbers asserted are the project's acceptance; `validation/regret.md` records what is reached.
"""

from pathlib import Path

import numpy as np
import pytest
import regret
from surfaces import GIVEN, MEASURED, read_surface

from occupancy_cli.model.ranking import OTHER_CONFIG_ERROR_PERCENT, SAME_CONFIG_ERROR_PERCENT


@pytest.fixture(scope="module")
def surface():
    return read_surface(GIVEN / "sparse_mla_decode_h200.jsonl.gz")


@pytest.fixture(scope="module")
def predicted(surface):
    return regret.predicted_us(surface, surface.rows)


def split_of(surface):
    return lambda row: (surface.config(row), surface.case(row))


def by(table):
    return lambda rows, _surface: min(rows, key=lambda row: table[id(row)])


def test_known_rules_have_their_known_regret(surface):
    floor = list(regret.regrets(surface, regret.RULES["TARGET_CTAS=256, floor"], split_of(surface)).values())
    # The surface's own description: 16.8 % mean, 68.4 % worst.
    assert np.mean(floor) == pytest.approx(0.168, abs=0.001)
    assert max(floor) == pytest.approx(0.684, abs=0.001)


def test_splits_chosen_with_nothing_fitted(surface, predicted):
    found = list(regret.regrets(surface, by(predicted), split_of(surface)).values())
    assert np.mean(found) <= 0.025
    assert max(found) <= 0.20


def test_config_and_split_chosen_together(surface, predicted):
    found = list(regret.regrets(surface, by(predicted), surface.case).values())
    assert np.mean(found) <= 0.06
    assert max(found) <= 0.20


def test_splits_chosen_after_calibration_with_8_points_a_config(surface):
    for rows in regret._grouped(surface.rows, surface.config).values():
        assert len(regret.calibration_points(surface, rows)) <= 8
    calibration = regret.calibrate(surface)
    table = regret.predicted_us(surface, surface.rows, calibration)
    found = list(regret.regrets(surface, by(table), split_of(surface)).values())
    assert np.mean(found) <= 0.015
    assert max(found) <= 0.10


@pytest.mark.parametrize(
    "name", ["gqa_decode", "gqa_decode_8_heads", "moe_grouped_gemm", "moe_grouped_gemm_64_experts"]
)
def test_other_kernels_measured_on_an_h200(name):
    measured = read_surface(MEASURED / f"{name}.jsonl.gz")
    predicted = regret.predicted_us(measured, measured.rows)
    together = list(regret.regrets(measured, by(predicted), measured.case).values())
    assert np.mean(together) <= 0.06
    assert max(together) <= 0.20
    if measured.about["choice"]:
        splits = list(regret.regrets(measured, by(predicted), split_of(measured)).values())
        assert np.mean(splits) <= 0.025
        assert max(splits) <= 0.20


def test_another_kernel_calibrated_with_8_points_a_config():
    measured = read_surface(MEASURED / "gqa_decode_8_heads.jsonl.gz")
    calibration = regret.calibrate(measured)
    table = regret.predicted_us(measured, measured.rows, calibration)
    splits = list(regret.regrets(measured, by(table), split_of(measured)).values())
    assert np.mean(splits) <= 0.015
    assert max(splits) <= 0.10


def test_the_models_error_is_the_recorded_one():
    text = (Path(regret.__file__).parent / "regret.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| nothing fitted |")]
    assert rows
    for constant, column in ((SAME_CONFIG_ERROR_PERCENT, 4), (OTHER_CONFIG_ERROR_PERCENT, 5)):
        recorded = [float(row[column]) for row in rows if row[column].strip() != "-"]
        assert constant == max(recorded)
