"""`occupancy verify`: the model against the CUDA driver of this machine, kernel by kernel."""

from __future__ import annotations

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles_here
from occupancy_cli.cli.show import show


@compiles_here
def verify(
    kernel: options.KernelArgument = None,
    batch: options.BatchOption = None,
    gpu: options.LocalGpuOption = "local",
    sets: options.SetOption = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """Compile every config and specialization, load it with this machine's CUDA driver, and compare what both say.

    Registers, local bytes (spills), static shared bytes and CTAs/SM have to be equal, and a config over the cap has to
    be refused by both. Exit code 0: all equal, 1: a difference, 2: something could not be compiled or loaded. Needs an
    NVIDIA driver, not torch; nothing is launched.
    """
    from occupancy_cli.answers.verify import verification
    from occupancy_cli.device.cuda_driver import CudaDevice
    from occupancy_cli.plan.kernel_input import read_kernel_input

    index = options.local_index(gpu)
    given = read_kernel_input(kernel)
    values, batches = options.settings_beside(sets, batch=batch), options.batch_values(batch)
    profile = options.resolve_gpu(gpu, hw_profiles)
    with how.service() as service:
        report = verification(given, profile, service, values, batches, device=lambda: CudaDevice(index))
    show(report, output_format)
