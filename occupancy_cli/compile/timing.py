"""What a compiled kernel's own text says of its time on one GPU: work from its TTGIR, cycles from its SASS.

Runs in the worker, right after a full compile, when a request asks for a time (`TimeOn`): disassembles the cubin with
the nvdisasm that ships with Triton, reads both texts (`ir_work`, `sass`), and returns plain data that the cache keeps
under the GPU's `TimeOn.digest`. `work_from` reads it back. Without nvdisasm there is work from the TTGIR alone, and
`note` says so.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from occupancy_cli.compile.ir_work import read_work, with_sass
from occupancy_cli.compile.request import TimeOn
from occupancy_cli.errors import OccupancyError
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.pipeline import KernelTiming
from occupancy_cli.model.profiles import GpuProfile, load_gpu
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.model.work import CtaWork, LoopMix

MODEL_VERSION = 5
"""Raise it when the readers or the simulation change what they say of the same text: kept timings are then redone."""
DISASSEMBLY_SECONDS = 60


@functools.lru_cache
def digest_of(gpu: GpuProfile) -> str:
    """A name for everything about `gpu` that a timing depends on, and for the version of the model."""
    fields = {f.name: repr(getattr(gpu, f.name)) for f in dataclasses.fields(gpu) if f.compare}
    return hashlib.sha256(repr((MODEL_VERSION, sorted(fields.items()))).encode()).hexdigest()[:24]


def read_timing(
    ttgir: str, cubin: bytes, arguments: Mapping[str, Any], resources: KernelResources, time_on: TimeOn, tools: Path
) -> dict[str, Any]:
    """The work and timing of one compiled kernel on the GPU named, as data for `work_from`.

    `arguments` are all run-time arguments in order, pointers with None; `tools` is the folder of nvdisasm.
    """
    gpu = load_gpu(time_on.gpu, [Path(d) for d in time_on.profile_dirs])
    resident = occupancy_of(gpu, resources)
    ir = read_work(ttgir, arguments)
    found: dict[str, Any] = {"trip_count": ir.trip_count, "unread": list(ir.unread)}
    try:
        work = with_sass(ir, _disassemble(cubin, tools), gpu, resources, resident.ctas_per_sm)
    except (OSError, subprocess.SubprocessError, OccupancyError) as failed:
        work = ir.work
        found["note"] = f"its SASS was not read ({failed}): the time is of bytes and FLOPs alone"
    return found | {"work": dataclasses.asdict(work)}


def _disassemble(cubin: bytes, tools: Path) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [str(tools / "nvdisasm"), "-hex", "-c", file.name],
            capture_output=True,
            text=True,
            check=True,
            timeout=DISASSEMBLY_SECONDS,
        )
    return done.stdout


def work_from(found: Mapping[str, Any]) -> CtaWork:
    """The `CtaWork` that `read_timing` wrote, as it came back from JSON."""
    data = dict(found["work"])
    flops = data["tensor_flops_per_iteration"]
    data["tensor_flops_per_iteration"] = None if flops is None else tuple((d, float(n)) for d, n in flops)
    data["loads_by_axes"] = tuple(
        (float(loaded), None if axes is None else tuple((int(a), int(n)) for a, n in axes))
        for loaded, axes in data["loads_by_axes"]
    )
    if data["loop_mix"] is not None:
        mix = dict(data["loop_mix"])
        for key in ("by_pipe", "tensor_by_shape"):
            mix[key] = tuple((name, float(n)) for name, n in mix[key])
        data["loop_mix"] = LoopMix(**mix)
    if data["timing"] is not None:
        data["timing"] = KernelTiming.from_dict(data["timing"])
    return CtaWork(**data)


def merged(given: CtaWork, read: CtaWork | None) -> CtaWork:
    """What the spec gives, and for the rest what was read from the kernel's own text."""
    if read is None:
        return given
    said = {f.name: v for f in dataclasses.fields(given) if (v := getattr(given, f.name)) != f.default}
    return dataclasses.replace(read, **said)
