"""One compile in a worker: of a kernel for its launch's arguments, or on from IR or PTX; what is read of its result."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.compile.kernel_record import EXPLANATION_VERSION, KeptExplanation, KeptTimes, KernelRecord
from occupancy_cli.compile.loaded_kernels import is_written_by_compiler, loaded_kernel, reading
from occupancy_cli.compile.request import ArgumentValue, CompileRequest
from occupancy_cli.compile.typed_json import to_json
from occupancy_cli.compile.worker_messages import Binary, Compile
from occupancy_cli.errors import InputError
from occupancy_cli.model.resources import KernelResources

if TYPE_CHECKING:
    from occupancy_cli.compile.shared_allocation import FinishedCompiles

UNKNOWN_INT32 = 1 << 20
UNKNOWN_INT64 = 1 << 40


def stand_in(argument: ArgumentValue) -> Any:
    """What a kernel is given for an argument: its value, or an object of its type and divisibility."""
    from occupancy_cli.compile import triton_front

    if argument.type == "none":
        return None
    if argument.type.startswith("*"):
        return triton_front.TensorStandIn(argument.type[1:], argument.align)
    if argument.type.startswith("tensordesc<"):
        return triton_front.descriptor_stand_in(argument.type)
    if argument.value is not None:
        return argument.value
    if argument.type.startswith("fp") or argument.type.startswith("bf"):
        return 1.5
    if argument.type == "i1":
        return True
    return UNKNOWN_INT64 if argument.type in ("i64", "u64") else UNKNOWN_INT32


@functools.lru_cache(maxsize=1)
def _finished() -> FinishedCompiles:
    """The compiles that this process has done."""
    from occupancy_cli.compile.shared_allocation import FinishedCompiles

    return FinishedCompiles()


def compiled(message: Compile) -> tuple[KernelRecord, Binary | None]:
    """What a compile yields, and the file of its binary where one is to be kept."""
    from occupancy_cli.compile import triton_front

    request = message.request
    if is_written_by_compiler(request.source):
        return compiled_on(request), None
    kernel = loaded_kernel(request.source)
    set_by_heuristics = triton_front.heuristic_names(kernel)
    heuristic = {a.name: a.value for a in request.arguments if a.heuristic}
    heuristic |= {n: v for n, v in request.constexprs if n in set_by_heuristics}
    values = {a.name: stand_in(a) for a in request.arguments if not a.heuristic}
    values |= {n: v for n, v in request.constexprs if n not in set_by_heuristics}
    config = dict(request.options)
    taken: set[str] = set()
    with reading(request.source):
        values = triton_front.with_heuristics(kernel, values, config, heuristic, taken)
    for name, declared in heuristic.items():
        if name in taken:
            continue  # a value of the launch, not what is to come out
        if name not in values:
            raise InputError(f"no @triton.heuristics sets {name}, which is marked so", where=str(request.source))
        if values[name] != declared:
            raise InputError(
                f"the kernel's heuristic gives {name} = {values[name]!r}, the spec says {declared!r}",
                where=str(request.source),
                hint="Correct the value or expression in the spec.",
            )
    triton_front.install_driver(request.target)
    notes: list[str] = []
    try:
        result = triton_front.compile_launch(
            kernel,
            values,
            stop_above=request.stop_above,
            keep_allocated=request.explain,
            # A binary that is kept is to be found in Triton's own cache too, which only a compile fills.
            finished=_finished() if message.keep_in is None else None,
        )
    except triton_front.EarlyStopUnavailable as why:
        notes.append(f"{why}; compiled in full instead")
        result = triton_front.compile_plainly(kernel, values)
    resources = _resources(result, request)
    explanation = _explanation(result) if request.explain and result.get("allocated") else None
    if "cubin" not in result:
        return KernelRecord(resources, tuple(notes), explanation=explanation), None
    times: dict[str, KeptTimes] = {}
    if request.time_on is not None:
        from occupancy_cli.loading import module_loading

        tools = Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"
        arguments = {a.name: v if isinstance(v := values[a.name], int) else None for a in request.arguments}
        with module_loading.left_aside():
            from occupancy_cli.compile.simulated_timing import read_timing

            read = read_timing(result["ttgir"], result["cubin"], arguments, resources, request.time_on, tools)
        times[request.time_on.digest] = KeptTimes(to_json(read))
    binary = None
    if message.keep_in is not None:
        file = Path(message.keep_in) / f"{request.key()}.cubin"
        file.write_bytes(result["cubin"])
        binary = Binary(str(file), result["name"])
    return KernelRecord(resources, tuple(notes), times=times, explanation=explanation), binary


def _explanation(result: Mapping[str, Any]) -> KeptExplanation:
    """Where the resources of a compile go, from the IR behind its allocation pass and its cubin."""
    from occupancy_cli.compile import triton_front
    from occupancy_cli.loading import module_loading

    tools = Path(triton_front.LOCATION) / "backends" / "nvidia" / "bin"
    with module_loading.left_aside():
        from occupancy_cli.compile.explaining import read_explanation

        read = read_explanation(
            result["allocated"], result.get("cubin"), result.get("ttgir", ""), result.get("name", ""), tools
        )
    return KeptExplanation(to_json(read), EXPLANATION_VERSION)


def compiled_on(request: CompileRequest) -> KernelRecord:
    """Compile a kernel on from its TTIR, TTGIR or PTX."""
    from occupancy_cli.compile import triton_front

    assert request.source.file is not None
    triton_front.install_driver(request.target)
    result = triton_front.compile_text(Path(request.source.file), request.target.arch, dict(request.options))
    return KernelRecord(_resources(result, request))


def _resources(result: Mapping[str, Any], request: CompileRequest) -> KernelResources:
    """What one CTA takes, by Triton's metadata and, where the compile went to its end, by the cubin."""
    from occupancy_cli.readers import cubin

    resources = KernelResources(
        shared_bytes=result["shared_bytes"],
        num_warps=result["num_warps"],
        threads_per_cta=32 * result["num_warps"],
        num_ctas=result["num_ctas"],
        tmem_columns=result["tmem_columns"],
    )
    if "cubin" not in result:
        return resources
    found = {k.name: k for k in cubin.read_cubin(result["cubin"])}
    if result["name"] not in found:
        raise InputError(f"the cubin has no kernel {result['name']!r}", where=str(request.source))
    mine = found[result["name"]]
    reserved = 1024 if request.target.arch >= 90 else 0
    return replace(
        resources,
        registers_per_thread=mine.registers_per_thread,
        spill_bytes=mine.frame_bytes,
        static_shared_bytes=max(0, mine.static_shared_bytes - reserved),
    )
