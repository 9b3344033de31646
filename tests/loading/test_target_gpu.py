"""One GPU behind every door: each question asked of PyTorch, Triton, NVML, cuda-python and the environment, compared.

Asked while a kernel file loads, with PyTorch installed and without, and in a captured script.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from locations import DATA

from occupancy_cli.capture.session import CaptureRequest, capture
from occupancy_cli.gpu.profiles import GpuProfile, load_gpu
from occupancy_cli.loading.device_figures import DriverProperties, attribute, torch_properties
from occupancy_cli.loading.target_gpu import FigureUnknown, TargetGpu, asking, target_of

pytestmark = pytest.mark.compiles  # Triton is imported where the questions are asked

QUESTIONS = DATA / "device_questions.py"
GPU = load_gpu("rtx-pro-6000")
UNKNOWN = "FigureUnknown: "

# NVIDIA's packages where they are installed: they ask this machine's driver, and it has none or another GPU.
NVIDIA_PACKAGES = {
    "pynvml.py": """
        NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
        class NVMLError(Exception): pass
        def nvmlInit(): raise NVMLError("Driver Not Loaded")
        """
    + "".join(
        f"\n        def {name}(*_): raise NVMLError('Uninitialized')"
        for name in (
            *("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"),
            *("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMemoryBusWidth"),
            "nvmlDeviceGetTemperature",
        )
    ),
    "cuda/__init__.py": "",
    "cuda/bindings/__init__.py": "",
    "cuda/bindings/driver.py": """
        import enum
        class CUresult(enum.IntEnum):
            CUDA_SUCCESS = 0
            CUDA_ERROR_NO_DEVICE = 100
        class CUdevice_attribute(enum.IntEnum):
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12
            CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
            CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36
            CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37
            CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
        def no_device(*_): return (CUresult.CUDA_ERROR_NO_DEVICE, None)
        cuDeviceGetCount = cuDeviceGet = cuDeviceGetName = cuDeviceComputeCapability = no_device
        cuDeviceTotalMem = cuDeviceGetAttribute = no_device
        """,
    "cuda/bindings/runtime.py": """
        import enum
        class cudaError_t(enum.IntEnum):
            cudaSuccess = 0
            cudaErrorNoDevice = 100
        class cudaDeviceAttr(enum.IntEnum):
            cudaDevAttrMultiProcessorCount = 16
            cudaDevAttrMaxThreadsPerMultiProcessor = 39
            cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
        def no_device(*_): return (cudaError_t.cudaErrorNoDevice, None)
        cudaGetDeviceCount = cudaGetDevice = cudaGetDeviceProperties = cudaDeviceGetAttribute = no_device
        """,
}

LOADING = """
import importlib.machinery, json, sys
find_spec = importlib.machinery.PathFinder.find_spec
def without_torch(name, *rest):
    return None if name.partition(".")[0] == "torch" else find_spec(name, *rest)
if sys.argv[3] == "without torch":
    importlib.machinery.PathFinder.find_spec = without_torch
from occupancy_cli.compile import triton_front
from occupancy_cli.loading import module_loading, target_gpu
triton_front.install_driver(triton_front.TargetGpu(**json.loads(sys.argv[2])))
loaded = module_loading.load({"file": sys.argv[1], "module": None, "kernel": "kernel"}, target_gpu.active())
assert not loaded.failure, loaded.failure
print(*loaded.stand_ins)
"""


def asked(how: str, folder: Path, gpu: GpuProfile = GPU) -> dict[str, dict[str, Any]]:
    """What the doors said: `how` is "with torch", "without torch" or "captured"."""
    answers = folder / "answers.json"
    packages = folder / "packages"
    if how != "without torch":
        for name, text in NVIDIA_PACKAGES.items():
            (packages / name).parent.mkdir(parents=True, exist_ok=True)
            (packages / name).write_text(textwrap.dedent(text))
    environment = {
        "ANSWERS": str(answers),
        "PYTHONPATH": str(packages),
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(folder),
    }
    if how == "captured":
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            result = capture(CaptureRequest(str(QUESTIONS), (), folder / "captured", gpu))
        assert result.captured.status == "complete", result.captured.message
    else:
        target = json.dumps(dataclasses.asdict(target_of(gpu)))
        command = [sys.executable, "-c", LOADING, str(QUESTIONS), target, how]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.split() == ([] if how == "with torch" else ["cuda", "pynvml", "torch"])
    found: dict[str, dict[str, Any]] = json.loads(answers.read_text())
    return found


@pytest.fixture(scope="module", params=["with torch", "without torch", "captured"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    if request.param != "without torch":
        pytest.importorskip("torch")
    yield asked(request.param, tmp_path_factory.mktemp("doors"))


MEMORY_BYTES = GPU.memory_bytes or round((GPU.memory_gb or 0) * 1e9)
KNOWN: dict[str, Any] = {
    "devices": 1,
    "current device": 0,
    "is there": True,
    "name": GPU.device_names[0],
    "capability": [12, 0],
    "SMs": GPU.sm_count,
    "shared bytes of a CTA": GPU.limits.shared_per_cta_optin_bytes,
    "shared bytes of an SM": GPU.limits.shared_per_sm_bytes,
    "registers of an SM": GPU.limits.registers_per_sm,
    "registers of a CTA": GPU.limits.max_registers_per_cta,
    "threads of an SM": GPU.limits.max_threads_per_sm,
    "warp": 32,
    "memory": MEMORY_BYTES,
    "L2": GPU.l2_bytes,
    "SM clock, kHz": round((GPU.boost_clock_mhz or 0) * 1000),
    "memory bandwidth": GPU.memory_bandwidth_gbps,
    # Triton's formula: 4 sub-cores an SM, 512 operations of fp16 a cycle each, at 1e6 kHz
    "tensor rate at 1 GHz": pytest.approx((GPU.sm_count or 0) * 4 * 512 * 1e-3),
}


@pytest.mark.parametrize("question", KNOWN)
def test_every_door_gives_the_profiles_answer(answers: dict[str, Any], question: str) -> None:
    for door, said in answers[question].items():
        expected = KNOWN[question]
        assert said == (expected >> 20 if "MiB" in door else expected), door


@pytest.mark.parametrize("question", ["memory clock", "bus width", "temperature"])
def test_what_no_profile_states_is_refused_by_name_at_every_door(answers: dict[str, Any], question: str) -> None:
    for door, said in answers[question].items():
        assert str(said).startswith(UNKNOWN), door
        assert GPU.device_names[0] in said and "was asked of" in said, door


def test_a_figure_that_this_profile_lacks_is_refused_not_made_up() -> None:
    gpu = TargetGpu(120, 101_376, None, 65_536, name="any GPU of 12.0")
    refused = (
        lambda: torch_properties(gpu).multi_processor_count,
        lambda: getattr(torch_properties(gpu), "multi_processor_count", 1),  # a default is no figure of this GPU
        lambda: DriverProperties(gpu)["multiprocessor_count"],
        lambda: attribute(gpu, 16, "cuDeviceGetAttribute"),
        lambda: attribute(gpu, 9999, "cuDeviceGetAttribute"),
    )
    for ask in refused:
        with pytest.raises(FigureUnknown):
            ask()
    assert "multiprocessor_count" not in dict(DriverProperties(gpu))
    assert not hasattr(torch_properties(gpu), "no_such_property")


def test_what_was_asked_is_gathered_for_the_cache() -> None:
    gpu = target_of(GPU)
    with asking() as outer:
        with asking() as inner:
            assert torch_properties(gpu).multi_processor_count == GPU.sm_count
            assert torch_properties(gpu).name
        assert inner == {"sm_count", "name"}
        assert torch_properties(gpu).major == 12  # the architecture is in every key
        assert DriverProperties(gpu)["max_shared_mem"]
    assert outer == {"sm_count", "name", "shared_per_cta_optin_bytes"}


def test_every_figure_of_the_target_can_be_asked_for_by_some_door() -> None:
    from occupancy_cli.loading.device_figures import SPELLINGS

    fields = {f.name for f in dataclasses.fields(TargetGpu)}
    assert fields - {s.figure for s in SPELLINGS} == {"arch", "name", "memory_bandwidth_gbps"}
