"""The occupancy model and its table against NVIDIA's own software: driver, Nsight Compute, cuda_occupancy.h."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from locations import DATA

from occupancy_cli import load_gpu, occupancy
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import list_compute_capabilities
from occupancy_cli.model.occupancy_columns import NO_LIMIT, batch_occupancy

ORACLE = DATA / "oracle"
NCU_TABLE: dict[str, dict[str, Any]] = json.loads((ORACLE / "ncu_gpu_data.json").read_text())["compute_capabilities"]
CAPABILITIES = [limits.compute_capability for limits in list_compute_capabilities()]


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(ORACLE / name, "rt") as file:
        return [json.loads(line) for line in file]


def test_driver_every_row() -> None:
    recorded = rows("driver.jsonl.gz")
    assert len(recorded) == 1440
    gpu = load_gpu("9.0")
    differing = []
    for row in recorded:
        assert row["cc"] == "9.0"
        found = occupancy(
            gpu,
            threads_per_cta=row["threads"],
            registers_per_thread=row["regs"],
            shared_bytes=row["smem"],
            static_shared_bytes=row["smem_static"],
        )
        if found.ctas_per_sm != row["blocks"]:
            differing.append((row, found.limits))
    assert differing == []


def test_nsight_compute_every_row_but_the_allocation_edge() -> None:
    recorded = rows("ncu.jsonl.gz")
    assert len(recorded) == 6421
    gpus = {cc: load_gpu(cc) for cc in {row["cc"] for row in recorded}}
    assert set(gpus) == set(NCU_TABLE)
    edge = 0
    for row in recorded:
        gpu = gpus[row["cc"]]
        found = occupancy(
            gpu, threads_per_cta=row["threads"], registers_per_thread=row["regs"], shared_bytes=row["smem"]
        )
        limits = gpu.limits
        # The one known difference: the tool divides by the bytes as they are rounded down, not up, to the unit.
        total = row["smem"] + limits.shared_reserved_per_cta_bytes
        unit = limits.shared_alloc_granularity_bytes
        generous = limits.carveouts_bytes[-1] // (total // unit * unit) if total >= unit else None
        if found.limits["shared"] != generous and found.limited_by == ("shared",) and row["blocks"] == generous:
            assert total % unit != 0
            assert row["blocks"] == found.ctas_per_sm + 1, (row, found.limits)
            edge += 1
            continue
        assert found.ctas_per_sm == row["blocks"], (row, found.limits)
        assert found.percent == pytest.approx(row["occupancy"], abs=1e-3), row
    assert edge == 150  # 2.3 % of 6,421


@pytest.mark.parametrize("cc", sorted(NCU_TABLE))
def test_the_table_of_limits_is_nsight_computes(cc: str) -> None:
    printed, limits = NCU_TABLE[cc], load_gpu(cc).limits
    assert limits.max_threads_per_cta == printed["max_thread_block_size"]
    assert limits.max_warps_per_sm == printed["max_warps_per_sm"]
    assert limits.max_threads_per_sm == printed["max_threads_per_sm"]
    assert limits.max_ctas_per_sm == printed["max_thread_blocks_per_sm"]
    assert limits.barriers_per_sm == printed["block_barriers_per_sm"]
    assert limits.registers_per_sm == printed["registers_per_sm"]
    assert limits.max_registers_per_cta == printed["max_regs_per_block"]
    assert limits.max_registers_per_thread == printed["max_regs_per_thread"]
    assert limits.register_alloc_unit_regs == printed["reg_allocation_unit_size"]
    assert printed["reg_allocation_granularity"] == "warp"
    assert limits.warp_alloc_granularity_warps == printed["warps_allocation_granularity"]
    assert limits.shared_per_sm_bytes == printed["smem_per_sm"]
    assert (
        limits.shared_per_cta_optin_bytes + limits.shared_reserved_per_cta_bytes == printed["max_shared_mem_per_block"]
    )
    assert limits.shared_alloc_granularity_bytes == printed["shared_mem_allocation_unit_size"]
    assert sorted(limits.carveouts_bytes) == sorted(printed["shared_mem_size_configs"])
    assert f"sm_{limits.arch}" == printed["sm_version"]


def test_every_compute_capability_has_an_oracle() -> None:
    # Nsight Compute 2025.3.1 knows no Volta any more; cuda_occupancy.h, from which 7.0 is, does.
    assert set(CAPABILITIES) - {"7.0"} == set(NCU_TABLE)


# ---------------------------------------------------------------------------------------------------------------------
# cuda_occupancy.h

CASES_PER_CAPABILITY = 5_000  # 12 compute capabilities: 60,000 in all

# What the header is told of a device. Of Volta, which Nsight Compute no longer has, what a V100-SXM2-16GB's driver
# prints (openxla/xla, target_config/specs/v100.txtpb); the carveouts are the header's own and serve to aim the cases.
DEVICES = {
    **NCU_TABLE,
    "7.0": {
        **NCU_TABLE["7.5"],
        "max_threads_per_sm": 2048,
        "max_thread_blocks_per_sm": 32,
        "smem_per_sm": 98_304,
        "max_shared_mem_per_block": 98_304,
        "shared_mem_size_configs": [0, 8192, 16_384, 32_768, 65_536, 98_304],
    },
}

# The header of CUDA 13.0 and earlier does not know these; it knows a part that it treats by the same rules:
# 10.3 has the carveouts and limits of 10.0, 11.0 was called 10.1, 12.1 has those of 12.0 (CUDA guide, one column 12.x).
STAND_IN = {"10.3": (10, 0), "11.0": (10, 1), "12.1": (12, 0)}

HARNESS = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
    cudaOccDeviceProp device;
    int major, minor, maxThreads, threadsPerSm, regsPerBlock, regsPerSm; long perBlock, perSm, optin, reserved;
    if (scanf("%d %d %d %d %d %d %ld %ld %ld %ld", &major, &minor, &maxThreads, &threadsPerSm, &regsPerBlock,
              &regsPerSm, &perBlock, &perSm, &optin, &reserved) != 10) return 2;
    device.computeMajor = major; device.computeMinor = minor; device.maxThreadsPerBlock = maxThreads;
    device.maxThreadsPerMultiprocessor = threadsPerSm; device.regsPerBlock = regsPerBlock;
    device.regsPerMultiprocessor = regsPerSm; device.warpSize = 32; device.sharedMemPerBlock = perBlock;
    device.sharedMemPerMultiprocessor = perSm; device.numSms = 1; device.sharedMemPerBlockOptin = optin;
    device.reservedSharedMemPerBlock = reserved;
    int threads, regs, carveout; long smem, smemStatic;
    while (scanf("%d %d %ld %ld %d", &threads, &regs, &smem, &smemStatic, &carveout) == 5) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1 << 30; kernel.numRegs = regs; kernel.sharedSizeBytes = smemStatic;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = optin - smemStatic; kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = carveout;
        cudaOccResult result;
        cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, smem);
        if (error) printf("%d -1 -1 -1 -1 -1\n", -(int)error);
        else printf("%d %d %d %d %d %zu\n", result.activeBlocksPerMultiprocessor, result.blockLimitSharedMem,
                    result.blockLimitRegs, result.blockLimitWarps, result.blockLimitBlocks,
                    result.allocatedSharedMemPerBlock);
    }
}
"""
INT_MAX = 2**31 - 1


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("the header ships inside the triton wheel, which is not installed")
    include = Path(triton.origin).parent / "backends" / "nvidia" / "include"
    if not (include / "cuda_occupancy.h").is_file():
        pytest.skip("this triton wheel ships no cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("header")
    source, program = folder / "harness.cpp", folder / "harness"
    source.write_text(HARNESS)
    subprocess.run(
        [compiler, "-O1", "-w", "-I", str(include), "-o", str(program), str(source)], check=True, timeout=120
    )
    return program


def ask_header(program: Path, version: tuple[int, int], printed: dict[str, Any], cases: np.ndarray) -> np.ndarray:
    """Columns: CTAs per SM, limits by shared memory, registers, warps and CTAs, allocated shared bytes.

    The device's properties are Nsight Compute's, not this project's. A negative first column is an error code.
    """
    reserved = 1024 if version >= (8, 0) else 0
    device = (
        *version, printed["max_thread_block_size"], printed["max_threads_per_sm"], printed["max_regs_per_block"],
        printed["registers_per_sm"], 49_152, printed["smem_per_sm"], printed["max_shared_mem_per_block"] - reserved,
        reserved,
    )  # fmt: skip
    lines = [" ".join(map(str, device)), *(" ".join(map(str, case)) for case in cases.tolist())]
    answer = subprocess.run(
        [str(program)], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=120
    )
    return np.array([[int(v) for v in line.split()] for line in answer.stdout.splitlines()], dtype=np.int64)


def cases_for(cc: str, seed: int) -> np.ndarray:
    """threads, registers, dynamic and static shared bytes, carveout in per cent (-1: none asked for)."""
    rng = np.random.default_rng(seed)
    printed, n = DEVICES[cc], CASES_PER_CAPABILITY
    reserved = 0 if cc in ("7.0", "7.5") else 1024
    cap = printed["max_shared_mem_per_block"] - reserved
    threads = rng.integers(1, 1025, n)
    whole = rng.random(n) < 0.6
    threads[whole] = 32 * rng.integers(1, 33, whole.sum())
    threads[:20] = [1, 31, 32, 33, 64, 127, 128, 129, 256, 512, 768, 992, 993, 1023, 1024, 1025, 1056, 2048, 4096, 96]
    registers = rng.integers(0, 256, n)
    edge = rng.random(n) < 0.4
    registers[edge] = np.clip(8 * rng.integers(1, 33, edge.sum()) + rng.integers(-1, 2, edge.sum()), 0, 255)
    static = np.where(rng.random(n) < 0.5, 0, rng.integers(0, 16_384, n))
    dynamic = rng.integers(0, cap + 2_000, n)
    # Around every division point of every carveout, a byte and an allocation unit to both sides.
    near = rng.random(n) < 0.5
    carveouts = np.array([c for c in printed["shared_mem_size_configs"] if c])
    share = rng.choice(carveouts, n) // rng.integers(1, printed["max_thread_blocks_per_sm"] + 1, n)
    step = rng.choice([-129, -128, -127, -1, 0, 1, 127, 128, 129, 255, 256, 257], n)
    dynamic[near] = np.maximum(0, share + step - reserved - static)[near]
    dynamic[rng.random(n) < 0.05] = 0
    carveout = np.where(rng.random(n) < 0.5, -1, rng.integers(0, 101, n))
    return np.stack([threads, registers, dynamic, static, carveout], axis=1)


@pytest.mark.parametrize("cc", CAPABILITIES)
def test_nvidias_header_agrees_on_every_case(cc: str, harness: Path) -> None:
    gpu, printed = load_gpu(cc), DEVICES[cc]
    cases = cases_for(cc, seed=int(10 * float(cc)))
    version = (gpu.arch // 10, gpu.arch % 10)
    answers = ask_header(harness, version, printed, cases)
    if (answers[:, 0] == -2).all():  # CUDA_OCC_ERROR_UNKNOWN_DEVICE
        assert cc in STAND_IN, f"the header does not know {cc}"
        answers = ask_header(harness, STAND_IN[cc], printed, cases)
    assert (answers[:, 0] >= 0).all()
    threads, registers, dynamic, static, percent = cases.T
    # The header turns a preference in per cent into bytes, whole ones, and then takes the next supported size.
    carveout = np.where(percent < 0, -1, percent * printed["smem_per_sm"] // 100)
    found = batch_occupancy(
        gpu,
        threads_per_cta=threads,
        registers_per_thread=registers,
        shared_bytes=dynamic,
        static_shared_bytes=static,
        carveout_bytes=carveout,
    )
    assert found.possible.all()

    def unlimited(limit: np.ndarray) -> np.ndarray:
        return np.where(limit == NO_LIMIT, INT_MAX, limit)

    for column, (name, values) in enumerate(
        [
            ("CTAs per SM", found.ctas_per_sm),
            ("shared", unlimited(found.limits["shared"])),
            ("registers", unlimited(found.limits["registers"])),
            ("warps", found.limits["warps"]),
            ("ctas", found.limits["ctas"]),
        ]
    ):
        wrong = np.flatnonzero(values != answers[:, column])
        assert wrong.size == 0, (name, cases[wrong[0]], values[wrong[0]], answers[wrong[0]])
    # The scalar model says the same; every 25th case, as it is slower.
    for i in range(0, len(cases), 25):
        one = occupancy(
            gpu,
            threads_per_cta=int(threads[i]),
            registers_per_thread=int(registers[i]),
            shared_bytes=int(dynamic[i]),
            static_shared_bytes=int(static[i]),
            carveout_bytes=None if carveout[i] < 0 else int(carveout[i]),
        )
        assert one.ctas_per_sm == answers[i, 0]
        assert one.shared_allocated_bytes == answers[i, 5]


def test_the_one_deviation_from_the_header_is_256_registers(harness: Path) -> None:
    """From compute capability 7.0 on the header lets 256 registers per thread pass; the instruction set ends at 255."""
    case = np.array([[128, 256, 0, 0, -1], [128, 257, 0, 0, -1]])
    answers = ask_header(harness, (9, 0), NCU_TABLE["9.0"], case)
    assert answers[0, 0] == 2  # 256 x 32 = 8,192 a warp, 16,384 / 8,192 = 2 a sub-partition, 8 warps, 2 CTAs of 4
    assert answers[1, 0] == 0
    for registers in (256, 257, 300):
        with pytest.raises(InputError, match="from 0 to 255"):
            occupancy(load_gpu("9.0"), threads_per_cta=128, registers_per_thread=registers, shared_bytes=0)
