"""`occupancy verify`: the model against the CUDA driver of this machine, kernel by kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format, counted, make_console, make_table
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.answers.verify import Figure, Verification

SCHEMA = "occupancy/verify/1"


def verify(
    kernel: options.KernelArgument = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Requests: 80, or several: 48,64,80 or 1:128. Left out: the spec's.")
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="Which GPU of this machine: local, or local:1.")] = "local",
    sets: options.SetOption = None,
    output_format: options.FormatOption = Format.table,
    jobs: options.JobsOption = None,
    timeout: options.TimeoutOption = 120.0,
    memory_gb: options.MemoryOption = 8.0,
    hw_profiles: options.ProfilesOption = None,
) -> None:
    """Compile every config and specialization, load it with this machine's CUDA driver, and compare what both say.

    Registers, local bytes (spills), static shared bytes and CTAs/SM have to be equal, and a config over the cap has to
    be refused by both. Exit code 0: all equal, 1: a difference, 2: something could not be compiled or loaded. Needs an
    NVIDIA driver, not torch; nothing is launched.
    """
    from occupancy_cli.answers.verify import verify as run
    from occupancy_cli.device.cuda_driver import CudaDevice
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.spec.settings import parse_settings

    index = local_index(gpu)
    given = read_kernel_input(kernel)
    values = parse_settings(sets or [])
    batches = options.batch_values(batch)
    profile = options.resolve_gpu(gpu, hw_profiles)
    with options.compile_service(
        jobs=jobs, timeout=timeout, memory_gb=memory_gb, no_cache=True, executor="local"
    ) as service:
        found = run(given, profile, service, values, batches, device=lambda: CudaDevice(index))
    if output_format is Format.json:
        sys.stdout.write(json.dumps(as_json(found), indent=2) + "\n")
    else:
        _print(found)
    raise typer.Exit(found.exit_code)


def local_index(gpu: str) -> int:
    """The number in `local:1`; an `InputError` for a GPU that is not this machine's."""
    name, _, number = gpu.strip().casefold().partition(":")
    if name != "local" or (number and not number.isdecimal()):
        raise InputError(f"{gpu!r} is not a GPU of this machine", where="--gpu", hint="Write local, or local:1.")
    return int(number or 0)


def as_json(found: Verification) -> dict[str, Any]:
    """The verification as JSON-ready data."""
    return {
        "schema": SCHEMA,
        "kernel": found.kernel,
        "gpu": found.gpu,
        "triton": found.triton,
        "ptxas": found.ptxas,
        "kernels": len(found.launches),
        "differences": sum(bool(launch.differences) for launch in found.launches),
        "undecided": sum(bool(launch.problem) for launch in found.launches),
        "launches": [
            {
                "kernel": launch.kernel,
                "config": dict(launch.config),
                "specialization": launch.specialization,
                "example": dict(launch.example),
                "figures": {
                    f.name: {"model": f.model, "driver": f.driver, "compared": f.compared} for f in launch.figures
                },
                "problem": launch.problem,
            }
            for launch in found.launches
        ],
    }


def _print(found: Verification) -> None:
    console = make_console()
    table = make_table(
        "kernel",
        "config",
        "specialization",
        "regs",
        "local B",
        "static B",
        "CTAs/SM",
        "clusters",
        "",
        right=(3, 4, 5, 6),
    )
    for launch in found.launches:
        by_name = {f.name: f for f in launch.figures}
        verdict = launch.problem or ("differs" if launch.differences else "equal")
        table.add_row(
            launch.kernel,
            _config(launch.config),
            launch.specialization,
            *(
                _both(by_name.get(name))
                for name in ("registers per thread", "local bytes per thread", "static shared bytes", "CTAs/SM")
            ),
            _both(by_name.get("clusters on the GPU, at most")),
            verdict,
        )
    console.print(table)
    different = sum(bool(launch.differences) for launch in found.launches)
    undecided = sum(bool(launch.problem) for launch in found.launches)
    parts = [f"{found.kernel} on {found.gpu}: {counted(len(found.launches), 'compiled kernel')}"]
    parts.append("model / driver differ in " + str(different) if different else "the driver says the same of all")
    if undecided:
        parts[-1] = f"{different} differ, {undecided} not decided"
    console.print(f"{parts[0]}; {parts[1]} (Triton {found.triton}, ptxas {found.ptxas or 'unknown'})")


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{n}={v}" for n, v in config.items())


def _both(figure: Figure | None) -> str:
    """One number when both say it, else "model / driver"."""
    if figure is None:
        return ""
    if figure.model == figure.driver:
        return f"{figure.model:,}"
    return f"{figure.model:,} / {figure.driver:,}"
