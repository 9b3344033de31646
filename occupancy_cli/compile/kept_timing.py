"""Timings as the result cache keeps them: the name they are kept under, and the work of a CTA read back from them.

`compile.timing` writes them, in a worker; what reads them needs none of that.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.model.cta_work import CtaWork, LoopMix
from occupancy_cli.model.kernel_timing import KernelTiming

MODEL_VERSION = 6
"""Raise it when the readers or the simulation change what they say of the same text: kept timings are then redone."""


@functools.lru_cache
def digest_of(gpu: GpuProfile) -> str:
    """A name for everything about `gpu` that a timing depends on, and for the version of the model."""
    fields = {f.name: repr(getattr(gpu, f.name)) for f in dataclasses.fields(gpu) if f.compare}
    return hashlib.sha256(repr((MODEL_VERSION, sorted(fields.items()))).encode()).hexdigest()[:24]


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
