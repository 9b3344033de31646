"""The tools: what each takes, which part of the Report it fills, and the function of the API that answers.

    TOOLS["analyze"].arguments.model_json_schema()   # what a client is told
    arguments_of(TOOLS["analyze"], {"batch": 80})    # checked; an `InputError` of one sentence

A tool's arguments have the names and the meaning of the API's, so that a call is `api.questions.NAME(**arguments)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from occupancy_cli.errors import InputError, unknown_name

ROWS = 12
MOST_ROWS = 1000
REPORTS = "occupancy://reports/"

Value = Annotated[int | float | bool | str, Field(union_mode="smart")]
Config = dict[str, Value | None]
Gpu = Annotated[
    str | None,
    Field(description='A product (h200, 5090), a compute capability (sm120), "local", a profile (.yaml). '
          "Left out: RTX PRO 6000 Blackwell (sm120)."),
]  # fmt: skip
Kernel = Annotated[
    str | None,
    Field(description="A spec (kernel.yaml), path/file.py:kernel, package.module:kernel, or a shipped name "
          "(sparse_mla_decode, moe_grouped_gemm). Left out: sparse_mla_decode."),
]  # fmt: skip
Arguments = Annotated[
    dict[str, Value | None] | None,
    Field(description="Arguments of a kernel without a spec, by name: types (*bf16, *fp8e4nv@4, i32=576) or the values "
          "that production passes (4096): Triton specializes on integers."),
]  # fmt: skip
Settings = Annotated[
    dict[str, Value | list[Value]] | None,
    Field(description="Values of shapes, knobs, constexprs and launch options (num_warps); a list goes through it."),
]
Batch = Annotated[
    int | str | list[int] | None, Field(description='Requests: 80, [48, 64, 80] or "1:128". Left out: the spec\'s.')
]
Grid = Annotated[
    list[int | str] | None,
    Field(description='Launch grid of a kernel without a spec: ["cdiv(n, BLOCK)", "batch"].', max_length=3),
]
Configs = Annotated[
    list[Config] | None, Field(description='In the place of the kernel\'s own: [{"BLOCK": 64, "num_warps": 4}].')
]


class ToolArguments(BaseModel):
    """What every tool takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int | None = Field(
        None,
        ge=1,
        le=MOST_ROWS,
        description=f"Rows of each list that the answer shows. Left out: {ROWS}, or fewer where they are long. What is "
        "left out is named.",
    )


class CompilingArguments(ToolArguments):
    """What every tool takes that may compile."""

    time_limit_s: float | None = Field(
        None, gt=0, description="Seconds this call may take; at most the server's limit. What was compiled is kept."
    )


class KernelArguments(CompilingArguments):
    """A kernel, what it is called with, and the GPU."""

    kernel: Kernel = None
    gpu: Gpu = None
    args: Arguments = None
    settings: Settings = None
    batch: Batch = None
    grid: Grid = None


class AnalyzeArguments(KernelArguments):
    """As `api.questions.analyze`."""

    configs: Configs = None
    full: bool = Field(False, description="Compile configs over the cap to the end too.")
    timed: bool = Field(False, description="Predict the time of each launch too.")


class ExplainArguments(KernelArguments):
    """As `api.questions.explain`."""

    configs: Configs = None
    full: bool = Field(False, description="Compile configs over the cap to the end too.")


class FitArguments(KernelArguments):
    """As `api.questions.fit`."""

    ctas: int | None = Field(None, description="CTAs per SM to reach. Left out: that it can launch.")
    no_spills: bool = Field(False, description="To reach no spills.")
    config: Config | None = Field(None, description="Where to start from. Left out: the kernel's first config.")
    limit: int = Field(60, ge=1, le=1000, description="Candidates that are compiled at most.")


class DiffArguments(KernelArguments):
    """As `api.questions.diff`."""

    before: str | Config = Field(
        description='A config ({"BLOCK": 64}), a GPU (h200), a kernel (a spec, file.py:kernel), or a Report of '
        f"`explain`: its file (.json) or its resource ({REPORTS}1)."
    )
    after: str | Config = Field(description="The other side, of the same forms.")


class RecommendArguments(CompilingArguments):
    """As `api.questions.recommend`."""

    kernel: Kernel = None
    batch: Batch = None
    gpu: Gpu = None
    configs: Configs = None
    settings: Settings = None
    mix: dict[int, float] | None = Field(
        None, description='Batch -> share of steps, in the place of batch: {"48": 0.2, "80": 0.8}.'
    )
    lengths: list[int] | Annotated[str, StringConstraints(pattern=r"^uniform:\d{1,9}:\d{1,9}$")] | None = Field(
        None, description='Tokens of each request: [512, 512, 64] or "uniform:64:512".'
    )
    cold: bool = Field(False, description="The launch does not find its data in the L2.")
    calibration: str | None = Field(None, description="A file that `occupancy calibrate` wrote.")


class CheckArguments(CompilingArguments):
    """As `api.questions.check`."""

    kernels: list[str] | None = Field(
        None, min_length=1, description="Specs, or file.py:kernel. Left out: the shipped ones."
    )
    gpus: list[str] = Field(default_factory=list, description="GPUs to hold, in the place of those the specs name.")
    settings: Settings = None


class CalcArguments(ToolArguments):
    """As `api.questions.calc`."""

    threads: int | None = Field(None, description="Threads per CTA; or num_warps.")
    num_warps: int | None = Field(None, description="Warps per CTA, in the place of threads.")
    regs: int | None = Field(None, description="Registers per thread. Left out: not known, and no limit by them.")
    shared: int | None = Field(None, description="Dynamic shared memory per CTA in bytes (Triton's metadata.shared).")
    static_shared: int = Field(0, description="Static shared memory per CTA in bytes, without the system's 1 KB.")
    carveout: int | None = Field(None, description="Shared part of the L1 array in bytes. Left out: the largest.")
    num_ctas: int = Field(1, description="CTAs per cluster.")
    tmem: int = Field(0, description="Tensor memory columns per CTA (CC 10.x and 11.0).")
    gpu: Gpu = None
    over: Literal["registers", "shared", "warps"] | None = Field(
        None, description="The whole range of one resource too."
    )


class GpusArguments(ToolArguments):
    """As `api.questions.gpus`."""

    names: list[str] = Field(default_factory=list, description="Left out: all that have a profile.")


@dataclass(frozen=True)
class Tool:
    """A tool; `parts` are the fields of the Report that its answer fills."""

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    parts: tuple[str, ...]


_ALL = (
    Tool(
        "analyze",
        "Does each config fit, and how full is the GPU",
        "Compiles each config of a Triton kernel for a GPU (none is needed) and gives its shared memory, registers and "
        "spills, CTAs and warps per SM and what limits them, waves and their tail. First question about any kernel.",
        AnalyzeArguments,
        ("kernels",),
    ),
    Tool(
        "recommend",
        "What to set",
        "The knobs and config with the shortest predicted time for each batch, beside what is set now, why, what is "
        "tied with it and the error of the prediction. Needs a spec with a grid.",
        RecommendArguments,
        ("recommendations", "single_setting", "tables"),
    ),
    Tool(
        "check",
        "Does everything in use fit and keep its budgets",
        "The gate: whether the configs in use fit every GPU named and keep their spec's budgets. exit_code is the "
        "verdict: 0 everything holds, 1 something does not, 2 it cannot be decided.",
        CheckArguments,
        ("check", "findings", "kernels", "tables"),
    ),
    Tool(
        "explain",
        "Where shared memory and registers go",
        "Each buffer of shared memory with its life and source line, what lies at the peak, registers and spills by "
        "line, memory accesses against the least, and what other launch options would do.",
        ExplainArguments,
        ("kernels",),
    ),
    Tool(
        "fit",
        "The smallest change that reaches a goal",
        "The smallest changes of a config that reach a goal (so many CTAs per SM, no spills, else that it can launch), "
        "each compiled; where none does, what is in the way. exit_code is 0 where something reaches it.",
        FitArguments,
        ("fit", "kernels"),
    ),
    Tool(
        "diff",
        "Two sides beside each other",
        "Resources, limits, predicted time and each buffer of two configs, GPUs, kernels or Reports of `explain`, with "
        "the source lines that make the difference. Explain before and after an edit, then compare the two Reports.",
        DiffArguments,
        ("diffs",),
    ),
    Tool(
        "calc",
        "Occupancy from numbers at hand",
        "Occupancy from threads, registers and bytes of shared memory: every limit, what binds, what the next CTA per "
        "SM would take. Compiles nothing.",
        CalcArguments,
        ("calculation",),
    ),
    Tool(
        "gpus",
        "The GPUs known",
        "GPUs with the source and status (documented, measured, assumed) of every value; without names a list of all.",
        GpusArguments,
        ("gpus",),
    ),
)
TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _ALL}


def arguments_of(tool: Tool, given: Mapping[str, Any]) -> ToolArguments:
    """The arguments of a call, checked; an `InputError` names the first that is wrong, or the nearest one known."""
    try:
        return tool.arguments.model_validate(dict(given))
    except ValidationError as bad:
        raise _wrong(tool, bad) from None


def _wrong(tool: Tool, bad: ValidationError) -> InputError:
    # A union is tried member by member, and each of them says something: the first of the first argument is named.
    first = bad.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return unknown_name("argument", name, tool.arguments.model_fields, where=tool.name)
    if first["type"] == "missing":
        return InputError("is missing", where=f"{tool.name}: {name}")
    field = tool.arguments.model_fields.get(name)
    value = repr(first["input"])
    shown = value if len(value) <= 80 else f"{value[:79]}…"
    hint = field.description or "" if field is not None else ""
    return InputError(f"{shown} is not possible: {_lowered(first['msg'])}", where=f"{tool.name}: {name}", hint=hint)


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]
