"""Findings of a check on a file or a kernel as a whole: what stands in the way of judging it, and what was left out.

undecided  input   kernels/mla.yaml:9  check.gpus.0: unknown GPU 'h2000'. Did you mean h200?
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy_cli.errors import CompileError, OccupancyError
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.plan.check_selection import SelectedKernel, shown_path
from occupancy_cli.plan.prepared_kernel import Kernel
from occupancy_cli.report import schema

_PLACE = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+)(?::\d+)?(?:: (?P<rest>.*))?$", re.DOTALL)


def problem(
    bad: OccupancyError, *, selected: SelectedKernel | None = None, gpu: str = "", file: str = ""
) -> schema.Finding:
    """What is wrong with a file or a kernel as a whole, at the line that the error names."""
    name = "" if selected is None else selected.given.name
    file = file if selected is None else selected.file
    line = None if selected is None else selected.line
    text, missing = bad.problem, bad.data.get("missing")
    hint = bad.hint
    rule = "loads" if isinstance(bad, CompileError) else "input"
    where = bad.where
    if missing and selected is not None and selected.given.from_flags:
        rule = "arguments"
        text = f"what it is launched with is not known: {text} ({', '.join(missing)})"
        hint = f"Write its spec: occupancy init {selected.given.spec.kernel}"
        where = ""
    found = _PLACE.match(where)
    if found is not None and Path(found["file"]).is_file():
        file, line = shown_path(found["file"]), int(found["line"])
        where = found["rest"] or ""
    elif where and Path(where).exists() and shown_path(where) == file:
        where = ""
    said = f"{where}: {text}" if where and not _names(where, file, name) else text
    hint = " ".join(hint.split("\n"))
    return schema.Finding(
        level="undecided",
        rule=rule,
        kernel=name,
        gpu=gpu,
        config={},
        source=file if selected is None else selected.file,
        file=file,
        line=line,
        message=f"{said}. {hint}" if hint else said,
    )


def _names(where: str, file: str, kernel: str) -> bool:
    """Whether `where` says no more than file and kernel do."""
    return bool(file) and shown_path(where.partition(":")[0]) == file and where.rpartition(":")[2] in (kernel, where)


def _about(selected: SelectedKernel, gpu: GpuProfile) -> dict[str, Any]:
    """What a finding on a kernel as a whole says of where it stands."""
    return {
        "kernel": selected.given.name,
        "gpu": gpu.name,
        "config": {},
        "source": selected.file,
        "file": selected.file,
        "line": selected.given.document.line(("kernel",)) or selected.line,
    }


def not_read(selected: SelectedKernel, kernel: Kernel, gpu: GpuProfile) -> Iterator[schema.Finding]:
    """What the kernel's file says of its launch and was not read: the launch judged here may be another."""
    for text in kernel.from_source.not_read:
        yield schema.Finding(level="undecided", rule="not-read", message=text, **_about(selected, gpu))
    for text in kernel.from_source.notes:
        yield schema.Finding(level="note", rule="source", message=text, **_about(selected, gpu))


def pruned(selected: SelectedKernel, gpu: GpuProfile, left_out: int, all_of_them: int) -> schema.Finding:
    """The configs that the kernel's own pruning leaves out, counted: its autotuner never launches them."""
    message = f"prune_configs_by leaves out {left_out} of {all_of_them} configs for these arguments: not judged"
    return schema.Finding(level="note", rule="pruned", message=message, **_about(selected, gpu))
