"""Options that several commands share, each defined once.

The five that say how to compile are a bundle: see `cli.compiling`.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.data_files import DEFAULT_GPU as DEFAULT_GPU
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.gpu.profiles import GpuProfile
    from occupancy_cli.spec.settings import Setting


class Format(str, enum.Enum):
    """How the answer is printed."""

    table = "table"
    json = "json"


KernelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[KERNEL]",
        help="A spec (file.yaml), file.py:kernel or package.module:kernel. Left out: the shipped sparse MLA decode.",
    ),
]
GpuOption = Annotated[
    str,
    typer.Option("--gpu", help="GPU: a product (5090, h200), sm120 (limits only), local, or a profile's file."),
]
GpusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        help=f"GPU: a product (rtx-pro-6000, 5090, h200), sm120 (limits only), or local; repeatable, all in one table. "
        f"Default: {DEFAULT_GPU}.",
    ),
]
ProfilesOption = Annotated[
    list[Path] | None, typer.Option("--hw-profiles", help="Folder of GPU profiles that adds to the shipped ones.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a shape, knob, constexpr or launch option (num_warps, ...); VALUE,VALUE for several. Repeatable.",
    ),
]
ArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME=TYPE",
        help="Type or value of an argument of a kernel without a spec: q_ptr=*bf16, k_ptr=*fp8e4nv@4, n=4096, p=none.",
    ),
]
GridOption = Annotated[
    str | None, typer.Option("--grid", metavar="X,Y,Z", help="Launch grid of a kernel without a spec; expressions.")
]
SignatureOption = Annotated[
    str | None,
    typer.Option(
        "--signature",
        metavar="TYPES",
        help="All parameters of a kernel without a spec, as Triton's tools.compile takes them: '*fp32:16, i32, 64'.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="table, or json on standard output.")]
BatchOption = Annotated[
    str | None, typer.Option("--batch", help="Requests: 80, or several: 48,64,80 or 1:128. Left out: the spec's.")
]
LocalGpuOption = Annotated[str, typer.Option("--gpu", help="Which GPU of this machine: local, or local:1.")]
TimesArgument = Annotated[Path, typer.Argument(metavar="TIMES", help="A file that `occupancy measure` wrote.")]
MeasuredKernelOption = Annotated[
    str | None, typer.Option("--kernel", help="The kernel, where it lies elsewhere than when it was measured.")
]
MixOption = Annotated[
    str | None,
    typer.Option("--mix", metavar="BATCH:SHARE,...", help="Shares of steps: 48:0.2,80:0.5,96:0.3."),
]
LengthsOption = Annotated[
    str | None,
    typer.Option("--lengths", help="Tokens of each request: 512,512,64, a file, or uniform:LOW:HIGH."),
]
ColdOption = Annotated[
    bool, typer.Option("--cold", help="The launch does not find its data in the L2. Default: it may, as in a replay.")
]


def resolve_gpu(name: str, hw_profiles: list[Path] | None) -> GpuProfile:
    """The profile that `--gpu` names."""
    from occupancy_cli.device.detect import resolve_gpu as resolve

    return resolve(name, hw_profiles or [])


def asked_gpu(context: typer.Context, name: str, hw_profiles: list[Path] | None) -> AskedGpu:
    """The GPU of `--gpu`, and whether the option was given; an `InputError` for one that there is not."""
    from occupancy_cli.answers.by_spec import AskedGpu

    source = context.get_parameter_source("gpu")
    asked = AskedGpu(name, source is not None and source.name != "DEFAULT", tuple(hw_profiles or ()))
    asked.profile()
    return asked


def asked_gpus(context: typer.Context, names: list[str] | None, hw_profiles: list[Path] | None) -> list[AskedGpu]:
    """The GPUs of a --gpu that may be given several times; the default one where it is not given."""
    return [asked_gpu(context, name, hw_profiles) for name in names or [DEFAULT_GPU]]


def local_index(gpu: str) -> int:
    """The number in `local:1`; an `InputError` for a GPU that is not this machine's."""
    name, _, number = gpu.strip().casefold().partition(":")
    if name != "local" or (number and not number.isdecimal()):
        raise InputError(f"{gpu!r} is not a GPU of this machine", where="--gpu", hint="Write local, or local:1.")
    return int(number or 0)


def settings(sets: list[str] | None, batch: str | None = None) -> dict[str, Setting]:
    """The values of `--set`, and of `--batch` as one of them."""
    from occupancy_cli.spec.settings import Setting

    values = settings_beside(sets, batch=batch)
    if batch is not None:
        values["batch"] = Setting(batch_values(batch), "--batch")
    return values


def settings_beside(sets: list[str] | None, **batches: str | None) -> dict[str, Setting]:
    """The values of `--set`, beside options that name the batches too and are read elsewhere (by their names).

    `InputError` where --set and one of them give the batch: no answer could take both.
    """
    from occupancy_cli.spec.settings import parse_settings

    values = parse_settings(sets or [])
    for option, text in batches.items():
        if text is not None and "batch" in values:
            by_set = ",".join(map(str, values["batch"].values))
            problem = f"the batch is given twice, by --{option} {text} and by --set batch={by_set}"
            raise InputError(problem, where=f"--set batch={by_set}", hint="Give one of the two.")
    return values


def batch_values(batch: str | None) -> tuple[int, ...]:
    """The batches that `--batch` names: 80, 48,64,80 or 1:128."""
    from occupancy_cli.spec.settings import parse_range

    return () if batch is None else parse_range(batch, f"--batch {batch}")


def workload_of(batch: str | None, mix: str | None, lengths: str | None, cold: bool) -> Workload:
    """What the options of a recommendation ask for."""
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.spec.traffic import parse_lengths, parse_mix

    batches = batch_values(batch)
    shares = None if mix is None else parse_mix(mix)
    if shares is not None:
        if batches:
            raise InputError("--batch and --mix are given both", where="--mix", hint="--mix names the batches.")
        batches = tuple(shares)
    if lengths is not None and not lengths.startswith("uniform:"):
        given = parse_lengths(lengths)
        if batches not in ((), (len(given),)):
            raise InputError(f"{len(given)} lengths for --batch {batch}", where=f"--lengths {lengths}")
        batches = (len(given),)
    return Workload(batches, shares, lengths, cold)
