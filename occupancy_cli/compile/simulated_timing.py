"""What a compiled kernel's own text says of its time on one GPU: work from its TTGIR, cycles from its SASS.

Runs in the worker, right after a full compile, when a request asks for a time (`TimeOn`): disassembles the cubin with
the nvdisasm that ships with Triton and reads both texts (`ir_work`, `sass`). The cache keeps what comes of it under the
GPU's `TimeOn.digest`. Without nvdisasm there is work from the TTGIR alone, and `note` says so.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from occupancy_cli.compile.kernel_times import Iterations, KernelTimes
from occupancy_cli.compile.packed_text import packed
from occupancy_cli.compile.request import TimeOn
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.occupancy import occupancy_of
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.readers.ir_operations import LOADED_LENGTH
from occupancy_cli.readers.ir_work import read_work, trip_counts
from occupancy_cli.readers.machine_work import with_sass
from occupancy_cli.readers.ttgir import TtgirKernel, parse_ttgir
from occupancy_cli.spec.expressions import parse_expression

DISASSEMBLY_SECONDS = 60


def read_timing(
    ttgir: str, cubin: bytes, arguments: Mapping[str, Any], resources: KernelResources, time_on: TimeOn, tools: Path
) -> KernelTimes:
    """The work and timing of one compiled kernel on the GPU named; `tools` is the folder of nvdisasm."""
    return read_texts(ttgir, lambda: _disassemble(cubin, tools), arguments, resources, time_on)


def read_texts(
    ttgir: str,
    disassembled: Callable[[], str],
    arguments: Mapping[str, Any],
    resources: KernelResources,
    time_on: TimeOn,
) -> KernelTimes:
    """The same from the texts alone. `arguments` are all run-time arguments in order, pointers with None."""
    gpu = load_gpu(time_on.gpu, [Path(d) for d in time_on.profile_dirs])
    resident = occupancy_of(gpu, resources)
    kernel = parse_ttgir(ttgir)
    ir = read_work(kernel, arguments)
    iterations = read_iterations(kernel, ttgir, ir.trip_count, arguments)
    try:
        work = with_sass(ir, disassembled(), gpu, resources, resident.ctas_per_sm)
    except (OSError, subprocess.SubprocessError, OccupancyError) as failed:
        note = f"its SASS was not read ({failed}): the time is of bytes and FLOPs alone"
        return KernelTimes(iterations, ir.work, ir.unread, note, packed(ttgir))
    return KernelTimes(iterations, work, ir.unread, ir=packed(ttgir))


def read_iterations(
    kernel: TtgirKernel, ttgir: str, trip_count: str | None, arguments: Mapping[str, Any]
) -> Iterations:
    """Iterations of a CTA's main loop, from the bounds that the TTGIR gives it."""
    loops = set(re.findall(r"\bscf\.(for|while)\b", ttgir))
    if not loops:
        return Iterations("0")
    loaded = trip_count is not None and "[]" in trip_count
    reason = "the main loop's bounds are not arithmetic of its arguments"
    if "for" not in loops:
        reason = "the main loop is a `while`"
    elif trip_count is not None:
        text = re.sub(r"\w+\[\]", str(LOADED_LENGTH), trip_count)
        if text.startswith("ceil("):
            text = "ceil_div({}, {})".format(*text[len("ceil(") : -1].rsplit(" / ", 1))
        reason = _contradiction(kernel, text, arguments)
        if not reason:
            return Iterations(text, loaded)
    return Iterations(None, loaded, reason)


def _contradiction(kernel: TtgirKernel, text: str, arguments: Mapping[str, Any]) -> str:
    """Why a text is not a CTA's iterations; empty when it gives what the IR gives, for arguments as they are and others
    of the same specialization, in every program of a small grid."""
    grid = (3, 2, 5)
    others = {
        n: v + 16 * i if isinstance(v, int) and v not in (0, 1) else v for i, (n, v) in enumerate(arguments.items(), 1)
    }
    for values in (arguments, others):
        counts = trip_counts(kernel, values, grid, at_most=True)
        if counts is None:
            return "the main loop lies inside another one, or loaded data alone decides how long it runs"
        programs = itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))
        env: dict[str, Any] = {**values, **{f"programs{i}": extent for i, extent in enumerate(grid)}}
        try:
            expression = parse_expression(text)
            found = [max(0, expression(env | {"pid0": x, "pid1": y, "pid2": z})) for z, y, x in programs]
        except InputError as bad:
            return f"the main loop's iterations `{text}` cannot be worked out: {bad.problem}"
        if found != counts.tolist():
            return f"the main loop's iterations `{text}` do not tell one value"
    return ""


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
