"""`occupancy verify` with a made-up driver: equal figures pass, each kind of difference fails with both values."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import FakeCuda
from report_schema import valid_report
from typer.testing import CliRunner

from occupancy_cli.answers.verify import Verification, reported, verify
from occupancy_cli.cli import options as cli
from occupancy_cli.cli.app import app
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.device.cuda_driver import CudaDevice, DriverError, pci_bus_id
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.spec.settings import parse_settings

SPEC = """
schema: occupancy/kernel-spec/1
kernel: small.py:scale
shapes: {n: 4096}
configs: autotune
grid: ["ceil_div(n, BLOCK)"]
arguments:
  x_ptr: "*fp32"
  y_ptr: "*fp32"
  n: {type: i32, value: n}
  factor: fp32
"""


@pytest.fixture
def spec_file(kernel_file: Path) -> Path:
    path = kernel_file.parent / "small.yaml"
    path.write_text(SPEC)
    return path


def exit_code(found: Verification) -> int:
    return reported(found, load_gpu("h200")).exit_code


def verified(service: CompileService, spec: Path, driver: FakeCuda, *sets: str) -> Verification:
    return verify(
        read_kernel_input(str(spec)),
        load_gpu("h200"),
        service,
        parse_settings(sets),
        device=lambda: CudaDevice(0, driver),
    )


@pytest.mark.compiles
@pytest.mark.one_triton
def test_equal_figures_pass(spec_file: Path, service: CompileService) -> None:
    driver = FakeCuda()
    found = verified(service, spec_file, driver)
    # 4 configs (BLOCK 64, 128 x 2, 4 warps), one specialization: n = 4096 is a multiple of 16.
    assert len(found.launches) == 4
    assert {launch.specialization for launch in found.launches} == {"multiples of 16"}
    assert [f.name for f in found.launches[0].figures] == [
        "registers per thread",
        "local bytes per thread",
        "static shared bytes",
        "CTAs/SM",
    ]
    assert exit_code(found) == 0 and not any(launch.differences for launch in found.launches)
    assert found.launches[0].figures[0].driver > 0
    assert driver.loaded == {}  # every module was unloaded


@pytest.mark.compiles
@pytest.mark.one_triton
def test_each_specialization_is_compared(spec_file: Path, service: CompileService) -> None:
    found = verified(service, spec_file, FakeCuda(), "n=1,17,4096", "BLOCK=64", "num_warps=2")
    assert sorted(launch.specialization for launch in found.launches) == [
        "multiples of 16",
        "n=1",
        "not multiples of 16: n",
    ]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_declared_heuristic_makes_launches_of_one_class_one_compile(spec_file: Path, service: CompileService) -> None:
    sets = ("n=4096,8192", "BLOCK=64", "num_warps=2")
    # What EVEN comes to is known to the kernel alone: each n is a compile of its own.
    assert len(verified(service, spec_file, FakeCuda(), *sets).launches) == 2
    text = spec_file.read_text()
    spec_file.write_text(text + "constexprs: {EVEN: n % BLOCK == 0}\n")
    found = verified(service, spec_file, FakeCuda(), *sets)
    assert len(found.launches) == 1 and exit_code(found) == 0
    spec_file.write_text(text + "constexprs: {EVEN: false}\n")
    (launch,) = verified(service, spec_file, FakeCuda(), *sets).launches
    assert "the kernel's heuristic gives EVEN = True, the spec says False" in launch.problem


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("change", "figure"),
    [
        ("registers", "registers per thread"),
        ("local", "local bytes per thread"),
        ("static", "static shared bytes"),
        ("ctas", "CTAs/SM"),
    ],
)
def test_a_difference_fails_with_both_values(
    spec_file: Path, change: str, figure: str, service: CompileService
) -> None:
    found = verified(service, spec_file, FakeCuda(**{change: 1}), "BLOCK=64", "num_warps=2")
    assert exit_code(found) == 1
    (difference,) = found.launches[0].differences
    assert difference.name == figure and difference.driver == difference.model + 1


@pytest.mark.compiles
@pytest.mark.one_triton
def test_over_the_cap_is_refused_by_both(tmp_path: Path, service: CompileService) -> None:
    """A tile that needs more than 232,448 bytes: the model says 0 CTAs/SM, the driver refuses the attribute."""
    (tmp_path / "large.py").write_text(LARGE)
    (tmp_path / "large.yaml").write_text(LARGE_SPEC)
    driver = FakeCuda()
    found = verified(service, tmp_path / "large.yaml", driver)
    (launch,) = found.launches
    assert driver.refused == 1
    assert launch.figures[-1].model == launch.figures[-1].driver == 0
    assert exit_code(found) == 0


@pytest.mark.compiles
@pytest.mark.one_triton
def test_clusters_are_shown_and_not_judged(spec_file: Path, service: CompileService) -> None:
    found = verified(service, spec_file, FakeCuda(), "BLOCK=128", "num_warps=2", "num_ctas=2")
    clusters = found.launches[0].figures[-1]
    assert clusters.name == "clusters on the GPU, at most"
    assert clusters.driver < clusters.model and clusters.equal  # 120 of 132 SMs in the fake driver
    assert exit_code(found) == 0


@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_does_not_compile_is_not_decided(spec_file: Path, service: CompileService) -> None:
    found = verified(service, spec_file, FakeCuda(), "BLOCK=63", "num_warps=2")
    assert exit_code(found) == 2
    assert "power of 2" in found.launches[0].problem


@pytest.mark.compiles
@pytest.mark.one_triton
def test_command_line(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCuda(registers=2)
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name, *rest: driver if name == "libcuda.so.1" else load(name, *rest))
    arguments = ["verify", str(spec_file), "--set", "BLOCK=64", "--set", "num_warps=2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "differ in 1" in result.output
    data = valid_report(CliRunner().invoke(app, [*arguments, "--format", "json"]).stdout)
    found = data["verification"]
    registers = found["launches"][0]["figures"]["registers per thread"]
    assert data["schema"] == "occupancy/report/1" and found["differences"] == 1
    assert registers["driver"] == registers["model"] + 2


def test_only_this_machines_gpu() -> None:
    assert cli.local_index("local") == 0 and cli.local_index("Local:3") == 3
    for name in ("h200", "local:x", "sm90"):
        with pytest.raises(InputError, match="not a GPU of this machine"):
            cli.local_index(name)


def test_driver_errors_carry_name_and_code() -> None:
    with CudaDevice(0, FakeCuda()) as device, pytest.raises(DriverError, match="CUDA_ERROR_NO_BINARY_FOR_GPU") as error:
        device.load(b"no cubin", "kernel")
    assert error.value.data == {"function": "cuModuleLoadData", "code": 209}


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(OccupancyError, match="there is no GPU 4: the driver shows 1"):
        CudaDevice(4, FakeCuda())


def test_pci_bus_id() -> None:
    driver: Any = FakeCuda()
    assert pci_bus_id(0, driver) == "0000:3b:00.0"


LARGE = """
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    acc = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        acc = tl.dot(tl.load(a_ptr + i * K + j + k), tl.load(b_ptr + (i + k) * N + j), acc)
    tl.store(c_ptr + i * N + j, acc)
"""
LARGE_SPEC = """
schema: occupancy/kernel-spec/1
kernel: large.py:product
constexprs: {N: 128}
configs: [{num_warps: 8, num_stages: 6}]
grid: [1]
arguments: {a_ptr: "*bf16", b_ptr: "*bf16", c_ptr: "*fp32", K: {type: i32, value: 4096}}
"""
