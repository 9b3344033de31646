"""The process that answers one call: reads the call from standard input, asks the API, writes lines of JSON.

    {"progress": {"done": 3, "total": 12, "current": "split_kernel BLOCK_T=16 num_warps=4"}}
    {"answer": {"structured": {...}, "text": "...", "whole": "..."}}   or   {"error": "kernel: ... lies outside ..."}

It ends when its standard input does, so that it outlives neither the server nor its call; its compile workers end with
it. What anything else prints here goes to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.api import questions
from occupancy_cli.api.compiling import Compiling
from occupancy_cli.errors import InputError, OccupancyError, sentence
from occupancy_cli.mcp_server.results import short_answer
from occupancy_cli.mcp_server.roots import Roots
from occupancy_cli.mcp_server.tools import (
    REPORTS,
    TOOLS,
    CalcArguments,
    CheckArguments,
    CompilingArguments,
    DiffArguments,
    GpusArguments,
    KernelArguments,
    RecommendArguments,
    ToolArguments,
    arguments_of,
)
from occupancy_cli.report.visible_text import visible_lines

if TYPE_CHECKING:
    from occupancy_cli.compile.compile_service import Progress
    from occupancy_cli.plan.kernel_input import KernelInput
    from occupancy_cli.report.report import Report


@dataclasses.dataclass(frozen=True)
class HowToCompile:
    """The server's limits, as `api.compiling.Compiling` has them."""

    jobs: int | None = None
    timeout_s: float = 120.0
    memory_gb: float = 8.0
    cache: bool = True


@dataclasses.dataclass(frozen=True)
class Call:
    """One call. `reports` has the JSON of each Report of this session that its arguments name."""

    tool: str
    arguments: dict[str, Any]
    roots: tuple[str, ...]
    how: HowToCompile
    reports: dict[str, str]

    def to_json(self) -> str:
        """As the process reads it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Call:
        """What `to_json` wrote."""
        data = json.loads(text)
        return cls(**{**data, "roots": tuple(data["roots"]), "how": HowToCompile(**data["how"])})


def answered(call: Call, asked: ToolArguments, progress: Callable[[Progress], None] | None) -> Report:
    """The Report of a call. `OccupancyError` as the API raises it, and for a path outside the roots."""
    given = _held(asked, Roots(tuple(map(Path, call.roots))), call.reports)
    if isinstance(asked, GpusArguments):
        return questions.gpus(*given["names"])
    if isinstance(asked, CompilingArguments):
        how = dataclasses.asdict(call.how)
        given["compiling"] = Compiling(**how, progress=progress)
    answer: Report = getattr(questions, call.tool)(**given)
    return answer


def _held(asked: ToolArguments, roots: Roots, reports: dict[str, str]) -> dict[str, Any]:
    """The arguments as the API takes them, every path in them held to the roots."""
    given = {name: getattr(asked, name) for name in type(asked).model_fields if name not in ("rows", "time_limit_s")}
    if isinstance(asked, (KernelArguments, RecommendArguments, CalcArguments)) and asked.gpu is not None:
        given["gpu"] = roots.gpu(asked.gpu, "gpu")
    if isinstance(asked, GpusArguments):
        given["names"] = [roots.gpu(name, "names") for name in asked.names]
    if isinstance(asked, CheckArguments):
        given["gpus"] = [roots.gpu(name, "gpus") for name in asked.gpus]
        if asked.kernels is not None:
            given["kernels"] = [_kernel(name, f"kernels[{i}]", roots) for i, name in enumerate(asked.kernels)]
    if isinstance(asked, RecommendArguments) and asked.calibration is not None:
        given["calibration"] = roots.path(asked.calibration, "calibration")
    if isinstance(asked, (KernelArguments, RecommendArguments)) and asked.kernel is not None:
        found = _kernel(asked.kernel, "kernel", roots)
        # `diff` reads the kernel of its sides itself.
        given["kernel"] = roots.kernel(asked.kernel, "kernel") if isinstance(asked, DiffArguments) else found
    if isinstance(asked, DiffArguments):
        for place in ("before", "after"):
            given[place] = _side(given[place], place, roots, reports)
    return given


def _kernel(text: str, where: str, roots: Roots) -> str | KernelInput:
    """A kernel that a client names; of a spec, what it says, the paths in it held to the roots too."""
    name = roots.kernel(text, where)
    if not name.endswith((".yaml", ".yml")):
        return name
    given = questions.load_spec(name)
    roots.hold(given)
    return given


def _side(side: Any, place: str, roots: Roots, reports: dict[str, str]) -> Any:
    if not isinstance(side, str):
        return side
    if side.startswith(REPORTS):
        if side not in reports:
            raise InputError(f"this session has no {side}", where=place, hint="resources/list has those it has.")
        from occupancy_cli.report.schema import report_from_json

        return report_from_json(reports[side])
    held = roots.side(side, place)
    if held.endswith((".yaml", ".yml")):
        _kernel(side, place, roots)
    return held


@dataclasses.dataclass
class _Steps:
    """Progress that never goes back: a question may compile several times over."""

    done: int = 0
    before: int = 0

    def of(self, state: Progress) -> dict[str, Any]:
        """Where the call stands, all that was compiled before counted."""
        if state.done == 0:
            self.before = self.done
        self.done = self.before + state.done
        return {"done": self.done, "total": self.before + state.total, "current": state.current}


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def main() -> None:
    """Answer the call on standard input."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            os._exit(1)
        line += part
    threading.Thread(target=_end_with_input, daemon=True).start()

    def tell(**message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    call, steps = Call.from_json(line.decode()), _Steps()
    try:
        asked = arguments_of(TOOLS[call.tool], call.arguments)
        report = answered(call, asked, lambda state: tell(progress=steps.of(state)))
        tell(answer=dataclasses.asdict(short_answer(report, asked.rows)))
    except OccupancyError as bad:
        tell(error=visible_lines(str(bad)))
    except Exception as bad:  # noqa: BLE001 - what a client is told is a sentence, never a traceback
        tell(error=visible_lines(sentence(bad)))
    sys.stdout.flush()
    os._exit(0)  # the thread above waits for an input that stays open


if __name__ == "__main__":
    main()
