"""A small split kernel with a combine kernel, to measure and to fuzz with: files, spec, a timer by formula."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy_cli.answers.measure import Machine
from occupancy_cli.compile.request import CompileRequest
from occupancy_cli.device.gpu_state import Reading
from occupancy_cli.device.launch_messages import LaunchedKernel
from occupancy_cli.device.launch_timing import LaunchAnswer

SOURCE = """
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["nsplit"])
def split_sum(x_ptr, part_ptr, nsplit, tiles_per_split, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * nsplit + tl.program_id(1)) * tiles_per_split * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles_per_split):
        acc += tl.load(x_ptr + at + tile * BLOCK)
    tl.store(part_ptr + tl.program_id(0) * nsplit + tl.program_id(1), tl.sum(acc, 0))


@triton.jit(do_not_specialize=["nsplit"])
def combine(part_ptr, out_ptr, nsplit):
    acc = 0.0
    for split in range(nsplit):
        acc += tl.load(part_ptr + tl.program_id(0) * nsplit + split)
    tl.store(out_ptr + tl.program_id(0), acc)


def inputs(values, device):
    import torch

    batch, nsplit = values["batch"], values["nsplit"]
    return {
        "x_ptr": torch.ones(batch * values["tokens"] * 2, device=device),
        "part_ptr": torch.empty(batch * nsplit, device=device),
        "out_ptr": torch.empty(batch, device=device),
    }
"""

SPEC = """
schema: occupancy/kernel-spec/1
name: split_sum
kernel: split_sum.py:split_sum
inputs: split_sum.py:inputs
shapes: {batch: 8, tokens: 4096}
knobs:
  TARGET: {default: 16, values: {for: s, from: 1, to: "min(tiles, 4)", value: batch * s}}
derived:
  tiles: ceil_div(tokens, BLOCK)
  nsplit: clamp(TARGET // batch, 1, tiles)
  tiles_per_split: ceil_div(tiles, nsplit)
configs: [{BLOCK: 256, num_warps: 2}, {BLOCK: 512, num_warps: 4}]
grid: [batch, nsplit]
arguments:
  x_ptr: "*fp32"
  part_ptr: "*fp32"
  nsplit: {type: i32, value: nsplit}
  tiles_per_split: {type: i32, value: tiles_per_split}
work:
  split: {tiles: tiles, tiles_per_split: tiles_per_split, axis: 1}
followed_by:
  - kernel: split_sum.py:combine
    grid: [batch]
    arguments: {part_ptr: "*fp32", out_ptr: "*fp32", nsplit: {type: i32, value: nsplit}}
    work: {iterations: nsplit}
"""


def write_kernel(folder: Path) -> Path:
    """The kernel and its spec in `folder`; the spec's path."""
    (folder / "split_sum.py").write_text(SOURCE)
    path = folder / "split_sum.yaml"
    path.write_text(SPEC)
    return path


class FormulaTimer:
    """Times without a GPU: 2 us + 0.5 us a tile of a CTA, 1 us for what follows. `fails`: problems by BLOCK."""

    def __init__(self, throttled: tuple[str, ...] = (), fails: Mapping[int, str] | None = None) -> None:
        self.torch = "2.11.0"
        self.throttled = throttled
        self.fails = fails or {}
        self.opened = 0
        self.asked: list[tuple[tuple[str, ...], Mapping[str, Any]]] = []
        self.stop_after: int | None = None

    def open(self) -> None:
        self.opened += 1

    def time(
        self, requests: Sequence[tuple[CompileRequest, tuple[int, ...]]], values: Mapping[str, Any]
    ) -> LaunchAnswer:
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append((tuple(r.source.kernel for r, _ in requests), values))
        block = dict(requests[0][0].constexprs)["BLOCK"]
        if block in self.fails:
            return LaunchAnswer(problem=self.fails[block])
        us = 2 + 0.5 * values["tiles_per_split"]
        launched = LaunchedKernel(smem=0, regs=20, spills=0, ctas_per_sm=16)
        return LaunchAnswer(us, us + 1, 0.5, 1980, self.throttled, (launched,))


def machine(timer: FormulaTimer, processes: int = 0) -> Machine:
    """A GPU of that name on which `processes` others compute, timed by `timer`."""

    @contextlib.contextmanager
    def launcher(_inputs: Any, _cache: Path, _method: Any) -> Iterator[FormulaTimer]:
        yield timer

    return Machine("NVIDIA H200", lambda: Reading(1980, 3201, 40, 100.0, (), processes), launcher)


def formula_us(tokens: int, block: int, nsplit: int) -> float:
    """What `FormulaTimer` says of both kernels together."""
    return 3 + 0.5 * math.ceil(math.ceil(tokens / block) / nsplit)
