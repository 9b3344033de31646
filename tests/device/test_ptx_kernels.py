"""The microbenchmarks of `gpus --measure` assemble for every kind of GPU that they are for, with Triton's own ptxas."""

from __future__ import annotations

import pytest

from occupancy_cli.compile.ptx_assembly import assemble
from occupancy_cli.device.ptx_kernels import PARAMETERS, module_text, target_of, tensors_of
from occupancy_cli.errors import CompileError
from occupancy_cli.readers.cubin import read_cubin


@pytest.mark.compiles
@pytest.mark.parametrize("arch", [80, 89, 90, 100, 120])
def test_every_kernel_assembles_and_none_spills(arch: int) -> None:
    kernels = read_cubin(assemble(module_text(arch), arch, target_of(arch)))
    products = {tensor.name for tensor in tensors_of(arch)}
    others = {name for name in PARAMETERS if not name.startswith(("mma_", "wgmma_"))}
    assert {kernel.name for kernel in kernels} == products | others
    assert all(kernel.frame_bytes == 0 for kernel in kernels)


def test_products_are_those_that_the_gpu_has() -> None:
    assert {t.name.partition("_")[0] for t in tensors_of(90)} == {"wgmma"}
    assert {t.dtype for t in tensors_of(90)} == {"bf16", "fp16", "tf32", "fp8", "int8"}
    assert "fp8" not in {t.dtype for t in tensors_of(86)} and "fp8" in {t.dtype for t in tensors_of(89)}
    assert {t.name.partition("_")[0] for t in tensors_of(120)} == {"mma"}
    # m64n256k16: 64 x 256 x 16 products and sums.
    assert next(t for t in tensors_of(90) if t.dtype == "bf16").flops == 524_288


@pytest.mark.compiles
def test_what_ptxas_refuses_is_said_in_its_words() -> None:
    with pytest.raises(CompileError, match=r"ptxas refuses sm_80: .*line 3"):
        assemble(".version 8.4\n.target sm_80\nnonsense\n", 80, "sm_80")
