"""What `gpus --measure` makes of launches, on a GPU made up here whose constants are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_cuda import FakeNvml
from made_up_gpu import CUBIN, L2_BYTES, SMS, MadeUp, TimedCuda, made_up_machine

from occupancy_cli.answers.measured_gpu import Machine, best_by_flight, measured_gpu
from occupancy_cli.device.cuda_driver import CudaDevice
from occupancy_cli.device.gpu_constants import ClockWandersError, Constants, Facts, crossing, measure
from occupancy_cli.device.kernel_timer import KernelTimer, Shot
from occupancy_cli.device.ptx_kernels import PARAMETERS
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import load_gpu

FACTS = Facts(90, SMS, L2_BYTES, 262_144, 232_448)


def measured(made: MadeUp, facts: Facts = FACTS) -> Constants:
    with CudaDevice(0, TimedCuda(made)) as device, KernelTimer(device, CUBIN, PARAMETERS) as timer:
        return measure(timer, facts)


@pytest.fixture(scope="module")
def found() -> Constants:
    return measured(MadeUp())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("boost_clock_mhz", 1500.0),
        ("tensor_clock_mhz", 1200.0),
        ("l1_latency_cycles", 40.0),
        ("l2_latency_cycles", 250.0),
        ("dram_latency_cycles", 700.0),
        ("shared_latency_cycles", 30.0),
        ("memory_bandwidth_measured_gbps", 3000.0),
        ("l2_read_bytes_per_cycle", 25.0),
        ("l2_read_few_sms_bytes_per_cycle", 70.0),
        ("l2_read_same_bytes_per_cycle", 55.0),
        ("l2_write_bytes_per_cycle", 16.0),
        ("l2_write_few_sms_bytes_per_cycle", 28.0),
        ("shared_bytes_per_cycle", 128.0),
        ("issue_cycles", 1.25),
        ("launch_us", 0.6005),  # with the one CTA that it hands out
        ("kernel_gap_us", 0.8),
        ("cta_turnover_us", 0.2),
        ("cta_handout_us", 0.0005),
        ("fp32_tflops", 2 * 128 * 132 * 1500e6 / 1e12),  # an FMA of 128 lanes a cycle and SM
        ("fp16_dense_tflops", 4096 * 132 * 1200e6 / 1e12),
        ("fp8_dense_tflops", 8192 * 132 * 1200e6 / 1e12),
        ("tf32_dense_tflops", 2048 * 132 * 1200e6 / 1e12),
        ("int8_dense_tops", 8192 * 132 * 1200e6 / 1e12),
    ],
)
def test_constants_are_those_of_the_gpu(found: Constants, name: str, value: float) -> None:
    number = found.numbers[name]
    assert number.value == pytest.approx(value, rel=2e-3)
    assert number.spread_percent < 0.5 and number.how


def test_capacities_lie_between_the_footprints_around_them(found: Constants) -> None:
    # Footprints of 3/8 and 7/16 of the L2 are 23.6 and 27.5 MB, those of 7/8 and 15/16 55.05 and 58.98.
    assert 23.5e6 < found.numbers["l2_near_bytes"].value < 27.6e6
    assert 55.0e6 < found.numbers["l2_effective_bytes"].value < 59.0e6
    assert 196_608 <= found.numbers["l1_effective_bytes"].value <= 204_800


def test_bandwidth_by_what_is_in_flight(found: Constants) -> None:
    """4,096 bytes of an SM in flight for 700 cycles of 1.5 GHz are 8.78 GB/s an SM, 1,158 of 132."""
    dram = best_by_flight([p for p in found.curves if p.memory == "DRAM"])
    assert dram[4096].gbps == pytest.approx(132 * 4096 * 1.5 / 700, rel=1e-2)
    assert dram[4096].latency_cycles == pytest.approx(700, rel=1e-2)
    # Past what 3,000 GB/s need, more in flight waits longer: 262,144 bytes at 15.15 a cycle and SM.
    assert dram[262_144].gbps == pytest.approx(3000, rel=2e-3)
    assert dram[262_144].latency_cycles == pytest.approx(262_144 / (3e6 / 1500 / 132), rel=2e-3)


def test_a_gpu_without_warpgroup_products() -> None:
    found = measured(MadeUp(), dataclasses.replace(FACTS, arch=80))
    assert "fp8_dense_tflops" not in found.numbers  # no instruction of 8.0
    assert found.numbers["fp16_dense_tflops"].value == pytest.approx(4096 * 132 * 1200e6 / 1e12, rel=2e-3)
    assert found.numbers["fp16_dense_fp16acc_tflops"].value == pytest.approx(4096 * 132 * 1200e6 / 1e12, rel=2e-3)


def test_a_rate_that_these_instructions_do_not_reach_is_no_constant() -> None:
    found = measured(MadeUp(), dataclasses.replace(FACTS, arch=100))
    assert not any("dense" in name for name in found.numbers)
    assert found.rates["mma_fp8_operations_per_cycle"].value == pytest.approx(8192, rel=2e-3)


def test_parts_of_their_own_stay_within_a_small_l2() -> None:
    """8 MB: half of it holds the 131,072 bytes of 30 SMs, fewer than half or a fourth of 132."""
    found = measured(MadeUp(), dataclasses.replace(FACTS, l2_bytes=8_000_000))
    assert found.numbers["l2_write_few_sms_bytes_per_cycle"].how.startswith("30 SMs write")
    assert found.numbers["l2_read_few_sms_bytes_per_cycle"].how.startswith("30 SMs read")
    assert found.numbers["l2_write_few_sms_bytes_per_cycle"].value == pytest.approx(28.0, rel=2e-3)


def test_loads_that_the_l1_does_not_keep_tell_nothing_of_it() -> None:
    found = measured(MadeUp(l1_latency=249.0))
    assert "l1_latency_cycles" not in found.numbers and "l1_effective_bytes" not in found.numbers


def test_a_clock_that_wanders_is_refused() -> None:
    with pytest.raises(ClockWandersError, match="1500, 1500, 1400") as refused:
        measured(MadeUp(clocks_mhz=(1500.0, 1500.0, 1400.0)))
    assert min(refused.value.data["clocks_mhz"]) == pytest.approx(1400, rel=1e-3)
    assert measured(MadeUp(clocks_mhz=(1500.0, 1490.0, 1500.0))).clock_mhz == pytest.approx(1500, rel=1e-3)


def test_too_little_memory_is_refused() -> None:
    driver = TimedCuda(MadeUp())
    driver.free = 1 << 30
    refused = pytest.raises(OccupancyError, match="1,024 MiB of the GPU's memory are free")
    with refused, CudaDevice(0, driver) as device, KernelTimer(device, CUBIN, PARAMETERS) as timer:
        measure(timer, FACTS)
    assert driver.freed == 1 and not driver.loaded  # what was taken is given back


def test_a_launch_without_all_its_values_is_an_error() -> None:
    refused = pytest.raises(ValueError, match="spin takes out, cycles, not 1 values")
    with refused, CudaDevice(0, TimedCuda(MadeUp())) as device, KernelTimer(device, CUBIN, PARAMETERS) as timer:
        timer.run(Shot("spin", 1, 32, (timer.out,)))


def test_crossing() -> None:
    points = [(1.0, 10.0), (2.0, 10.0), (4.0, 30.0), (8.0, 30.0)]
    assert crossing(points, 15.0) == 2.5  # a quarter of the way from 10 to 30
    assert crossing(points, 40.0) is None


# ---- The profile that is written.


@pytest.fixture
def machine() -> Machine:
    return made_up_machine()


def test_what_is_written_is_a_profile_of_this_gpu(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "my-gpu.yaml"
    report = measured_gpu(machine, path, (), today=lambda: "2026-12-03")
    gpu, shipped = load_gpu(str(path)), load_gpu("h200")
    assert (gpu.id, gpu.name, gpu.compute_capability) == ("my-gpu", "NVIDIA H200, measured", "9.0")
    assert (gpu.l2_latency_cycles, gpu.boost_clock_mhz, gpu.cta_handout_us) == (250.0, 1500.0, 0.0005)
    assert (gpu.tdp_w, gpu.sm_count, gpu.limits) == (shipped.tdp_w, 132, shipped.limits)
    source = gpu.provenance["l2_latency_cycles"]
    assert source.status == "measured" and "spread 0.0 %" in source.note
    assert "NVIDIA H200, driver 580.1 (CUDA 13.0), SM clock 1500 MHz, 2026-12-03" in source.sources[0]
    assert any(note.startswith("measured DRAM reads, bytes in flight of an SM") for note in gpu.notes)
    part = report.measured_gpu
    assert part is not None and report.exit_code == 0
    l2 = next(v for v in part.values if v.field == "l2_latency_cycles")
    assert (l2.value, l2.profile, l2.difference_percent) == (250.0, 283.0, -11.7)  # 250 / 283


def test_a_gpu_that_others_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OccupancyError, match="2 other processes compute on NVIDIA H200"):
        measured_gpu(made_up_machine(FakeNvml(processes=2)), tmp_path / "my-gpu.yaml", ())
    assert not (tmp_path / "my-gpu.yaml").exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("h200-sxm.yaml", "h200-sxm is the name of the profile that it extends"),
        ("mine.json", "mine.json is no name of a profile"),
    ],
)
def test_a_file_that_could_not_be_used_is_refused(machine: Machine, tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        measured_gpu(machine, tmp_path / name, ())
