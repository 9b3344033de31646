"""The study of an engine's tables: what it takes from a wheel, which points it asks about, what it makes of times."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from occupancy_cli.gpu.profiles import load_gpu

SCRIPT = Path(__file__).resolve().parent / "sglang" / "engine_tables.py"


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPT.parent))  # the study's own processes import it too
    yield importlib.import_module(SCRIPT.stem)
    sys.path.remove(str(SCRIPT.parent))


ENTRY = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 8,
    "num_warps": 8,
    "num_stages": 4,
}
GEMM = "engine/kernels/ops/gemm/configs/"
MOE = "engine/srt/layers/moe/moe_runner/triton_utils/configs/"
FILES = {
    f"{GEMM}N=4096,K=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json": {
        "1": ENTRY,
        "64": {**ENTRY, "SPLIT_K": 2},  # another kernel of the engine
    },
    f"{GEMM}N=4096,K=512,device_name=NVIDIA_A100-SXM4-80GB,dtype=int8_w8a8,block_shape=[128, 128].json": {"1": ENTRY},
    f"{GEMM}N=4096,K=512,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128, 128].json": {"1": ENTRY},
    f"{MOE}triton_3_1_0/E=8,N=512,device_name=NVIDIA_H200.json": {"1": {**ENTRY, "num_warps": 4}},
    f"{MOE}triton_3_5_1/E=8,N=512,device_name=NVIDIA_H200.json": {
        "1": {n: v for n, v in ENTRY.items() if "num" not in n}
    },
    f"{MOE}triton_3_5_1/E=8,N=512,device_name=NVIDIA_H200_down.json": {"1": ENTRY},
    f"{MOE}triton_3_5_1/E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json": {"1": ENTRY, "triton_version": "3.5.1"},
    f"{MOE}moe.py": "code",
}


def test_a_wheels_tables_are_read_and_nothing_else(tables: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "engine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        for name, content in FILES.items():
            files.writestr(name, json.dumps(content))
    data = tables.collect(wheel)
    assert "code" not in json.dumps(data)
    (gemm,) = tables.winners(data, "gemm_fp8_blocks")
    assert (gemm.device, gemm.shape, gemm.batch, gemm.blocks) == ("NVIDIA_H200", (("N", 4096), ("K", 512)), 1, True)
    assert gemm.config == (64, 128, 128, 8, 8, 4)
    # The newer Triton's entry, whose launch options are Triton's own.
    (bf16,) = tables.winners(data, "moe_bf16")
    assert (bf16.shape, bf16.config) == ((("E", 8), ("N", 512)), (64, 128, 128, 8, 4, 3))
    (fp8,) = tables.winners(data, "moe_fp8")
    assert not fp8.blocks and fp8.config == (64, 128, 128, 8, 8, 4)


def test_the_recorded_tables_are_of_many_gpus(tables: ModuleType) -> None:
    data = json.loads(gzip.decompress(tables.TABLES.read_bytes()))
    assert data["wheel"].startswith("sglang-") and len(data["sha256"]) == 64
    devices = {row[0] for rows in data["tables"].values() for row in rows}
    assert {"NVIDIA_H200", "NVIDIA_B200", "NVIDIA_L40S"} <= devices and len(devices) >= 18
    for family in tables.FAMILIES:
        assert len(tables.winners(data, family)) > 1000


def test_points_are_spread_over_the_shapes_of_a_gpu(tables: ModuleType) -> None:
    shapes = [(("N", n), ("K", 512)) for n in (128, 256, 512, 1024)]
    points = [tables.Winner("X", s, b, True, (64, 128, 128, 8, 4, 3)) for s in shapes for b in (1, 2, 64)]
    kept = tables.chosen(points, 2, (1, 64))
    assert [(dict(p.shape)["N"], p.batch) for p in kept] == [(128, 1), (128, 64), (512, 1), (512, 64)]


def test_the_default_is_the_engines(tables: ModuleType) -> None:
    h200, rtx = load_gpu("h200"), load_gpu("rtx-4090")  # 232,448 and 101,376 bytes of shared memory a CTA
    few, many = (tables.Winner("X", (("E", 64), ("N", 512)), b, False, ()) for b in (64, 65))
    assert tables.moe_fp8_default(few, h200) == (64, 128, 128, 1, 4, 4)
    assert tables.moe_fp8_default(many, h200) == (128, 256, 128, 32, 8, 4)
    assert tables.moe_fp8_default(few, rtx) == (32, 64, 256, 1, 4, 4)
    assert tables.moe_bf16_default(few, h200) == (16, 32, 64, 1, 4, 3)
    assert tables.gemm_row({"N": 512, "K": 512}, 1, (64, 128, 64, 1, 4, 3)) is None  # tiles are 128 deep


def test_what_is_said_of_winners(tables: ModuleType) -> None:
    winner = tables.Winner("X", (("N", 1), ("K", 1)), 1, True, (64, 128, 128, 8, 4, 3))
    judged = [
        tables.JudgedWinner(winner, 10.0, 12.0, 10.0, False),  # the best, and preferred
        tables.JudgedWinner(winner, 13.0, 12.0, 10.0, False),  # 30 % behind, and not
        tables.JudgedWinner(winner, 11.0, 11.0, 10.0, True),  # 10 % behind; it is the default
        tables.JudgedWinner(winner, 10.2, None, 10.0, False),  # 2 % behind; the default cannot launch
    ]
    # Behind: 0, 2, 10, 30 %: median 6, p90 at 2.7 of the way from 10 to 30: 24. Two have another default to beat.
    assert tables.row_of("X", 5, judged) == ["X", "4 of 5", "6.0", "24.0", "50", "50 of 2", "1.06"]
    assert tables.row_of("X", 5, [])[1] == "0 of 5"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_winner_is_timed_beside_the_others(tables: ModuleType, tmp_path: Path) -> None:
    shape = (("N", 512), ("K", 512))
    small, wide = (16, 64, 128, 1, 4, 3), (64, 128, 128, 1, 4, 3)
    points = [tables.Winner("H200", shape, batch, True, config) for batch, config in ((16, small), (64, wide))]
    found = tables.alone("gemm_fp8_blocks", "h200", points, tmp_path)
    assert [j.winner for j in found] == points
    assert all(j.best_us <= j.winner_us and j.default_us and not j.is_default for j in found)
    assert min(j.behind_percent for j in found) >= 0
    assert len(list(tmp_path.glob("*.json.gz"))) == 3  # the default too; M, N, K are multiples of 16 in all
