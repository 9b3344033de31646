"""Asks the GPU every question through every door, and writes what each said: run as a script, or loaded as a kernel file.

ANSWERS names the file. An answer that is refused is the refusal's sentence.
"""

import json
import os

import triton
import triton.language as tl
import triton.testing
from triton.runtime import driver

try:
    from triton.language.target_info import current_target, is_cuda
except ModuleNotFoundError:  # Triton 3.4

    def current_target():
        return driver.active.get_current_target()

    def is_cuda():
        return current_target().backend == "cuda"


import torch
import pynvml
from cuda.bindings import driver as cuda_driver
from cuda.bindings import runtime as cuda_runtime

properties = torch.cuda.get_device_properties(0)
triton_properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
ATTRIBUTES = cuda_driver.CUdevice_attribute
RUNTIME_ATTRIBUTES = cuda_runtime.cudaDeviceAttr
runtime_properties = cuda_runtime.cudaGetDeviceProperties(0)[1]


def attribute(name):
    result, value = cuda_driver.cuDeviceGetAttribute(getattr(ATTRIBUTES, f"CU_DEVICE_ATTRIBUTE_{name}"), 0)
    assert result == cuda_driver.CUresult.CUDA_SUCCESS
    return value


def runtime_attribute(name):
    result, value = cuda_runtime.cudaDeviceGetAttribute(getattr(RUNTIME_ATTRIBUTES, f"cudaDevAttr{name}"), 0)
    assert result == cuda_runtime.cudaError_t.cudaSuccess
    return value


def text(value):
    return value.decode() if isinstance(value, bytes) else value


QUESTIONS = {
    "devices": {
        "torch": torch.cuda.device_count,
        "torch.accelerator": torch.accelerator.device_count,
        "nvml": pynvml.nvmlDeviceGetCount,
        "driver API": lambda: cuda_driver.cuDeviceGetCount()[1],
        "runtime API": lambda: cuda_runtime.cudaGetDeviceCount()[1],
        "environment": lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")),
    },
    "current device": {
        "torch": torch.cuda.current_device,
        "torch.accelerator": torch.accelerator.current_device_index,
        "triton": driver.active.get_current_device,
        "triton's interface": lambda: driver.active.get_device_interface().current_device(),
        "driver API": lambda: cuda_driver.cuDeviceGet(0)[1],
        "runtime API": lambda: cuda_runtime.cudaGetDevice()[1],
        "environment": lambda: int(os.environ["CUDA_VISIBLE_DEVICES"]),
    },
    "is there": {
        "torch": torch.cuda.is_available,
        "torch.accelerator": torch.accelerator.is_available,
        "triton": is_cuda,
        "triton's interface": lambda: driver.active.get_device_interface().is_available(),
        "torch's build": torch.backends.cuda.is_built,
    },
    "name": {
        "torch": torch.cuda.get_device_name,
        "torch's properties": lambda: properties.name,
        "nvml": lambda: text(pynvml.nvmlDeviceGetName(handle)),
        "driver API": lambda: text(cuda_driver.cuDeviceGetName(256, 0)[1]),
        "runtime API": lambda: text(runtime_properties.name),
    },
    "capability": {
        "torch": lambda: list(torch.cuda.get_device_capability(torch.cuda.current_device())),
        "torch's properties": lambda: [properties.major, properties.minor],
        "torch's builds": lambda: list(divmod(int(torch.cuda.get_arch_list()[-1].removeprefix("sm_")), 10)),
        "triton": lambda: list(divmod(driver.active.get_current_target().arch, 10)),
        "triton's capability": lambda: list(driver.active.get_device_capability(0)),
        "triton.language": lambda: list(divmod(current_target().arch, 10)),
        "nvml": lambda: list(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "driver API": lambda: list(cuda_driver.cuDeviceComputeCapability(0)[1:]),
        "attributes": lambda: [attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")],
        "runtime API": lambda: [runtime_properties.major, runtime_properties.minor],
        "environment": lambda: [int(n) for n in os.environ["TORCH_CUDA_ARCH_LIST"].split(".")],
    },
    "SMs": {
        "torch": lambda: properties.multi_processor_count,
        "triton": lambda: triton_properties["multiprocessor_count"],
        "attribute": lambda: attribute("MULTIPROCESSOR_COUNT"),
        "runtime API": lambda: runtime_properties.multiProcessorCount,
        "runtime attribute": lambda: runtime_attribute("MultiProcessorCount"),
    },
    "shared bytes of a CTA": {
        "torch": lambda: properties.shared_memory_per_block_optin,
        "triton": lambda: triton_properties["max_shared_mem"],
        "attribute": lambda: attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        "runtime API": lambda: runtime_properties.sharedMemPerBlockOptin,
        "runtime attribute": lambda: runtime_attribute("MaxSharedMemoryPerBlockOptin"),
    },
    "shared bytes of an SM": {
        "torch": lambda: properties.shared_memory_per_multiprocessor,
        "attribute": lambda: attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
    },
    "registers of an SM": {
        "torch": lambda: properties.regs_per_multiprocessor,
        "attribute": lambda: attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
    },
    "registers of a CTA": {
        "triton": lambda: triton_properties["max_num_regs"],
        "attribute": lambda: attribute("MAX_REGISTERS_PER_BLOCK"),
        "runtime API": lambda: runtime_properties.regsPerBlock,
    },
    "threads of an SM": {
        "torch": lambda: properties.max_threads_per_multi_processor,
        "attribute": lambda: attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        "runtime attribute": lambda: runtime_attribute("MaxThreadsPerMultiProcessor"),
    },
    "warp": {
        "torch": lambda: properties.warp_size,
        "triton": lambda: triton_properties["warpSize"],
        "triton's target": lambda: driver.active.get_current_target().warp_size,
        "attribute": lambda: attribute("WARP_SIZE"),
    },
    "memory": {
        "torch": lambda: properties.total_memory,
        "torch.cuda.mem_get_info": lambda: torch.cuda.mem_get_info()[1],
        "free": lambda: torch.cuda.mem_get_info(0)[0],
        "nvml": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "driver API": lambda: cuda_driver.cuDeviceTotalMem(0)[1],
        "runtime API": lambda: runtime_properties.totalGlobalMem,
        "nvidia-smi, in whole MiB": lambda: triton.testing.nvsmi(["memory.total"])[0],
    },
    "L2": {
        "torch": lambda: properties.L2_cache_size,
        "attribute": lambda: attribute("L2_CACHE_SIZE"),
        "runtime API": lambda: runtime_properties.l2CacheSize,
    },
    "SM clock, kHz": {
        "torch": lambda: properties.clock_rate,
        "triton": lambda: triton_properties["sm_clock_rate"],
        "attribute": lambda: attribute("CLOCK_RATE"),
        "nvml": lambda: 1000 * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "nvidia-smi": lambda: 1000 * triton.testing.nvsmi(["clocks.max.sm"])[0],
    },
    "memory bandwidth": {"triton.testing": triton.testing.get_dram_gbps},
    "tensor rate at 1 GHz": {
        "triton.testing": lambda: triton.testing.get_max_tensorcore_tflops(torch.float16, 1_000_000)
    },
    "memory clock": {
        "torch": lambda: properties.memory_clock_rate,
        "triton": lambda: triton_properties["mem_clock_rate"],
        "attribute": lambda: attribute("MEMORY_CLOCK_RATE"),
        "nvml": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "nvidia-smi": lambda: triton.testing.nvsmi(["clocks.max.memory"]),
    },
    "bus width": {
        "torch": lambda: properties.memory_bus_width,
        "triton": lambda: triton_properties["mem_bus_width"],
        "attribute": lambda: attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        "nvml": lambda: pynvml.nvmlDeviceGetMemoryBusWidth(handle),
    },
    "temperature": {
        "torch": torch.cuda.temperature,
        "nvml": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "nvidia-smi": lambda: triton.testing.nvsmi(["temperature.gpu"]),
    },
}


def answer(ask):
    try:
        return ask()
    except Exception as bad:
        return f"{type(bad).__name__}: {bad}"


with open(os.environ["ANSWERS"], "w") as file:
    json.dump({what: {door: answer(ask) for door, ask in doors.items()} for what, doors in QUESTIONS.items()}, file)


@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


if __name__ == "__main__":
    kernel[(1,)](torch.zeros(64), BLOCK=64)
