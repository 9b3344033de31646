"""The kernel spec file, `occupancy/kernel-spec/1`: what a kernel is called with, what tunes it, what it launches.

`KernelSpecFile` is the schema itself (`occupancy schema spec` prints it); `load_spec` reads a YAML file strictly and
says where a wrong value stands. Nothing in a spec is executed: expressions are arithmetic (`expressions`), and the
kernel that it names is loaded by a worker process only.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from occupancy_cli.errors import InputError, nearest, unknown_name
from occupancy_cli.model.launch_options import check_launch_option
from occupancy_cli.spec.expressions import parse_expression
from occupancy_cli.spec.model_errors import input_error
from occupancy_cli.yaml_reader import Document, KeyPath, dotted, load_yaml

SCHEMA = "occupancy/kernel-spec/1"
PLACEHOLDER = "FILL:"
MAX_ALIGN = 1 << 20

ELEMENT_TYPES = (
    *("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    *("fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16"),
)
TYPE_ALIASES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
DEVICE_FACTS = ("sm_count", "max_shared_bytes", "gpu_arch")
"""Names that every expression of a spec may use: SMs, shared memory of a CTA, compute capability (120) of the GPU."""
_building = threading.Lock()
_DESCRIPTOR = re.compile(r"tensordesc<(?P<element>\w+)\[(?P<shape>[^\[\]]+)\]>$")
_COMMA = re.compile(r",(?![^()]*\))")

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
Scalar = Annotated[int | float | bool | str, Field(union_mode="smart")]


class Strict(BaseModel):
    """A part of a file that people write: a key that it does not know is an error."""

    # Built when first used: a run validates `KernelSpecFile`, which has the others inside it.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


def canonical_type(text: str) -> str:
    """A type as Triton writes it: `*bf16`, `i32`, `fp32`, `none` or `tensordesc<bf16[64,64]>`; ValueError if none.

    The block shape of a descriptor may be of expressions: `tensordesc<bf16[BLOCK_M,2 * BLOCK_K]>`.
    """
    given = text.strip()
    if given in ("none", "None"):
        return "none"
    if match := _DESCRIPTOR.match(given):
        axes = [_axis(text) for text in _COMMA.split(match["shape"])]
        return f"tensordesc<{_element(match['element'])}[{','.join(axes)}]>"
    pointer = given.startswith("*")
    return ("*" if pointer else "") + _element(given[1:] if pointer else given)


def _axis(text: str) -> str:
    try:
        parse_expression(text)
    except InputError as bad:
        raise ValueError(f"the block shape has {text.strip()!r}, which {bad.problem}") from None
    return text.strip()


def takes_value(argument: Argument) -> bool:
    """Whether an argument is a number that specializes: no pointer, descriptor or float."""
    return not argument.type.startswith(("*", "tensordesc", "none", "fp", "bf"))


def descriptor_shape(kind: str) -> tuple[str, ...]:
    """The block shape in the canonical type of a descriptor, an expression an axis; empty for any other type."""
    match = _DESCRIPTOR.match(kind)
    return tuple(_COMMA.split(match["shape"])) if match else ()


def with_shape(kind: str, axes: Sequence[int]) -> str:
    """The type of a descriptor with this block shape in the place of its own."""
    return f"{kind.partition('[')[0]}[{','.join(map(str, axes))}]>"


def _element(name: str) -> str:
    name = TYPE_ALIASES.get(name, name)
    if name not in ELEMENT_TYPES:
        close = nearest(name, [*ELEMENT_TYPES, *TYPE_ALIASES])
        hint = f"; did you mean {' or '.join(close)}?" if close else f"; known: {', '.join(ELEMENT_TYPES)}"
        hint += "; *bf16 is a pointer, tensordesc<bf16[64, 64]> a descriptor with its block shape"
        raise ValueError(f"unknown type {name!r}{hint}")
    return name


class Argument(Strict):
    """One run-time argument of the kernel (constexpr parameters are not listed here)."""

    type: str = Field(description="*bf16, fp32, i32, none, tensordesc<bf16[BLOCK_M, 64]>")
    value: Scalar | None = Field(None, description="value or expression; needed for integers, since they specialize")
    align: int = Field(16, description="bytes that divide a pointer's address", ge=1, le=MAX_ALIGN)
    heuristic: bool = Field(False, description="set by @triton.heuristics; the value given here is checked against it")

    @field_validator("type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        return canonical_type(value)


class Shape(Strict):
    """A number that the workload decides (batch, heads, ...)."""

    default: int | float
    help: str = ""


class EachValue(Strict):
    """Candidate values made by counting: `value` for every `name` from `from` to `to`."""

    name: Name = Field(alias="for")
    first: Scalar = Field(1, alias="from")
    last: Scalar = Field(alias="to")
    value: Scalar


class Knob(Strict):
    """Something a person sets: an environment variable of the server, or a constexpr."""

    default: Scalar = Field(description="a number, or an expression over shapes, facts of the GPU and the knobs before")
    values: list[int | float | bool] | EachValue = Field(
        default_factory=list, description="what `recommend` may choose from"
    )
    env: str | None = Field(None, description="environment variable that sets it; honoured when analyzing")
    help: str = ""

    @field_validator("env")
    @classmethod
    def _is_a_variable(cls, name: str | None) -> str | None:
        # It stands in lines that a shell evaluates.
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is no name of an environment variable: letters, digits and _, no digit first")
        return name


class ConfigProduct(Strict):
    """Every combination of the values given."""

    product: dict[Name, Annotated[list[int | float | bool | str], Field(min_length=1)]]


class ConfigTable(Strict):
    """JSON files from batch to config, as vLLM and SGLang ship them; the names in a file's name may be used too."""

    table: str = Field(
        description="a file, a folder or a glob, relative to this file; or package:path inside an installed package",
        min_length=1,
        max_length=1000,
    )
    key: Name = Field("batch", description="the name that an entry's key gives a value to")
    only: dict[Name, Scalar | list[Scalar | None] | None] = Field(
        default_factory=dict,
        description="files by what their names say: a value, a pattern (NVIDIA_H200*), several, or null (no such name)",
    )
    values: dict[Name, Scalar] = Field(
        default_factory=dict,
        description="config values that the launcher changes: expressions over the entry's own, and gpu_arch (120)",
    )
    devices: dict[str, str] = Field(
        default_factory=dict, description="the GPU that a device_name means, where no profile has that name"
    )


class Ragged(Strict):
    """Iterations of a CTA whose request has `length` tokens, for `--lengths`; may use pid0, pid1, pid2 too."""

    axis: int = Field(0, ge=0, le=2, description="grid axis that counts requests")
    iterations: Scalar


class Work(Strict):
    """Work of one CTA, where the kernel's IR does not tell. Expressions may also use pid0, pid1, pid2."""

    iterations: Scalar | None = Field(None, description="iterations of the main loop of CTA (pid0, pid1, pid2)")
    split: dict[Literal["tiles", "tiles_per_split", "axis"], Scalar] | None = Field(
        None, description="tiles dealt along a grid axis, tiles_per_split to each index in turn"
    )
    ragged: Ragged | None = None
    prologue_bytes: Scalar | None = None
    bytes_per_iteration: Scalar | None = Field(
        None, description="bytes an iteration moves: less than its tiles where lanes are masked"
    )
    epilogue_bytes: Scalar | None = None
    unique_bytes_per_iteration: Scalar | None = Field(
        None,
        description="of these, what no other CTA loads: distinct bytes of a launch / its iterations",
    )
    tensor_flops_per_iteration: dict[Literal["bf16", "fp16", "fp8", "tf32", "int8"], Scalar] | None = None
    fp32_flops_per_iteration: Scalar | None = None
    dependent_loads: Scalar | None = None
    pipeline_depth: Scalar | None = None


class Launch(Strict):
    """One kernel and how it is launched."""

    kernel: str = Field(description="path/to/file.py:kernel (relative to this file) or package.module:kernel")
    arguments: dict[Name, Argument] = Field(default_factory=dict)
    constexprs: dict[Name, Scalar | None] = Field(default_factory=dict, description="constexpr parameters, fixed")
    configs: Literal["autotune"] | ConfigProduct | ConfigTable | list[dict[Name, Any]] = Field(
        [{}], description="autotune | a list of configs | {product: {NAME: [values]}} | {table: JSON files}"
    )
    grid: list[Scalar] | None = Field(
        None, min_length=1, max_length=3, description="programs along x, y, z; without it waves are unknown"
    )
    work: Work = Field(default_factory=Work.model_construct)


class Budgets(Strict):
    """What `occupancy check` holds the configs to, beside the shared-memory cap."""

    gpus: list[str] = Field(default_factory=list, description="GPUs that these budgets are for; none: all")
    configs: list[dict[Name, Any]] = Field(
        default_factory=list, description="configs that they are for, by any of these values; none: all"
    )
    batches: list[int] = Field(
        default_factory=list, description="batches that waves and time are looked at; none: the shape's own value"
    )
    fits: Literal["each", "one"] | None = Field(
        None, description="each: every config in use must fit (the default); one: at least one of them must"
    )
    max_shared_bytes: int | None = Field(None, ge=0)
    max_registers_per_thread: int | None = Field(None, ge=1)
    max_spill_bytes: int | None = Field(None, ge=0)
    min_ctas_per_sm: int | None = Field(None, ge=1)
    min_warps_per_sm: int | None = Field(None, ge=1)
    min_wave_efficiency: float | None = Field(
        None, gt=1, le=100, description="percent of the SMs' CTA slots that the launch keeps busy: 80"
    )
    max_predicted_time_us: float | None = Field(None, gt=0, description="of the launch and what follows it")
    max_bank_conflict_ways: float | None = Field(
        None,
        ge=1,
        description="wavefronts of a shared-memory access over the least for its bytes; 1: none conflicts",
    )

    @field_validator("gpus", mode="before")
    @classmethod
    def _gpu_names(cls, value: Any) -> Any:
        return gpu_names(value)

    @field_validator("batches")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(n < 1 for n in value):
            raise ValueError(f"a batch is 1 or more, not {min(value)}")
        return value


def gpu_names(value: Any) -> Any:
    """5090 and 12.0 are names of GPUs too, whatever YAML takes them for."""
    return [str(v) if isinstance(v, (int, float)) else v for v in value] if isinstance(value, list) else value


class Check(Strict):
    """What `occupancy check` looks at."""

    gpus: list[str] = Field(default_factory=list, description="GPUs whose cap must hold; default: the command's")

    @field_validator("gpus", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return gpu_names(value)

    use: Literal["all"] | list[dict[Name, Any]] = Field(
        "all", description="the configs that are used: all, or those that match any of these values"
    )
    budgets: Budgets | list[Budgets] = Field(
        default_factory=Budgets.model_construct, description="budgets, or a list of them, of which a later one wins"
    )


class KernelSpecFile(Launch):
    """A kernel, its workload, its knobs, and the kernels that follow it."""

    schema_: Literal["occupancy/kernel-spec/1"] = Field(alias="schema")
    name: str | None = None
    description: str = ""
    shapes: dict[Name, int | float | Shape] = Field(default_factory=dict)
    knobs: dict[Name, Knob] = Field(default_factory=dict)
    derived: dict[Name, Scalar] = Field(default_factory=dict, description="names computed in this order, per config")
    followed_by: list[Launch] = Field(default_factory=list, description="kernels launched after it, such as a combine")
    in_use: dict[Name, Scalar | None] = Field(
        default_factory=dict,
        description="the setting that runs today, of knobs and configs, which a recommendation is compared with",
    )
    tuned: bool = Field(False, description="the configs listed are an autotuner's, which drops what cannot launch")
    partials_bytes: Scalar | None = Field(None, description="memory for partial results of one launch")
    inputs: str | None = Field(
        None,
        description="file.py:function(values, device) that returns the tensors by argument name, for `measure`",
    )
    check: Check = Field(default_factory=Check.model_construct)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a kernel spec file."""
    return KernelSpecFile.model_json_schema(by_alias=True)


def load_spec(path: Path) -> tuple[KernelSpecFile, Document]:
    """Read and validate a spec; one `InputError` naming file, line, key, value and the nearest valid key."""
    document = load_yaml(path)
    _check_filled(document)
    return checked_spec(document), document


def checked_spec(document: Document) -> KernelSpecFile:
    """A document as a spec, its expressions and launch options looked at too."""
    spec = validate(document)
    _check_expressions(spec, document)
    _check_options(spec, document)
    return spec


def _check_options(spec: KernelSpecFile, document: Document) -> None:
    """Refuse launch options that no launch can have, in the configs of the kernel and of those that follow it."""
    launches: list[tuple[Launch, KeyPath]] = [(spec, ())]
    launches += [(launch, ("followed_by", i)) for i, launch in enumerate(spec.followed_by)]
    for launch, at in launches:
        if isinstance(launch.configs, ConfigProduct):
            for name, values in launch.configs.product.items():
                for i, value in enumerate(values):
                    check_launch_option(name, value, document.where((*at, "configs", "product", name, i)))
        elif isinstance(launch.configs, list):
            for i, config in enumerate(launch.configs):
                for name, value in config.items():
                    if isinstance(value, (list, dict)):
                        given = "a list" if isinstance(value, list) else "a mapping"
                        hint = "Several values of a name: configs: {product: {NAME: [values]}}."
                        where = document.where((*at, "configs", i, name))
                        raise InputError(f"{given} where one value is needed", where=where, hint=hint)
                    check_launch_option(name, value, document.where((*at, "configs", i, name)))


def _check_filled(document: Document) -> None:
    """Refuse a skeleton (`occupancy init`) until its marked places are filled; all of them are named at once."""

    def places(value: Any, at: KeyPath) -> list[KeyPath]:
        if isinstance(value, str):
            return [at] if value.startswith(PLACEHOLDER) else []
        if isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return [place for key, inner in items for place in places(inner, (*at, key))]
        return []

    left = places(document.data, ())
    if left:
        count = "1 place is" if len(left) == 1 else f"{len(left)} places are"
        named = [f"line {document.line(at) or '?'}: {dotted(at)}" for at in left]
        more = f"\nand {len(named) - 40} more" if len(named) > 40 else ""
        hint = "\n".join(named[:40]) + more
        raise InputError(f"{count} still to be filled", where=document.where(left[0]), hint=hint, places=named)


def validate(document: Document) -> KernelSpecFile:
    """The document as a spec, shorthands expanded (`q_ptr: "*bf16"`)."""
    data = document.data
    if not isinstance(data, dict):
        raise InputError(f"a spec is a mapping that starts with `schema: {SCHEMA}`", where=document.path)
    if data.get("schema") != SCHEMA:
        problem = f"schema is {data.get('schema')!r}" if "schema" in data else "the key `schema` is missing"
        raise InputError(problem, where=document.where(("schema",)), hint=f"This version reads `schema: {SCHEMA}`.")
    data = _expand(data)
    build_models()
    try:
        return KernelSpecFile.model_validate(data)
    except ValidationError as bad:
        raise input_error(bad, document, KernelSpecFile) from None


def build_models() -> None:
    """Set the models up, once, without pydantic's plugins: to find some it reads what every installed package says."""
    with _building:  # of two threads the second would take the first's setting for the user's
        if KernelSpecFile.__pydantic_complete__:
            return
        before = os.environ.get("PYDANTIC_DISABLE_PLUGINS")
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"
        try:
            KernelSpecFile.model_rebuild()
        finally:
            if before is None:
                del os.environ["PYDANTIC_DISABLE_PLUGINS"]
            else:
                os.environ["PYDANTIC_DISABLE_PLUGINS"] = before


def _new_lock() -> None:
    global _building
    _building = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may have held it


def _expand(data: dict[str, Any]) -> dict[str, Any]:
    expanded = dict(data)
    for launch in [expanded, *_copied(expanded, "followed_by")]:
        arguments = launch.get("arguments")
        if isinstance(arguments, dict):
            launch["arguments"] = {k: {"type": v} if isinstance(v, str) else v for k, v in arguments.items()}
    return expanded


def _copied(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = data.get(key)
    if not isinstance(items, list):
        return []
    data[key] = [dict(i) if isinstance(i, dict) else i for i in items]
    return [i for i in data[key] if isinstance(i, dict)]


def _expressions(spec: KernelSpecFile) -> Iterator[tuple[Any, KeyPath]]:
    """Every value of a spec that may be an expression, with its place; numbers among them, and what is not given."""
    yield from ((value, ("derived", name)) for name, value in spec.derived.items())
    yield spec.partials_bytes, ("partials_bytes",)
    for name, knob in spec.knobs.items():
        yield knob.default, ("knobs", name, "default")
        if isinstance(knob.values, EachValue):
            yield knob.values.first, ("knobs", name, "values", "from")
            yield knob.values.last, ("knobs", name, "values", "to")
            yield knob.values.value, ("knobs", name, "values", "value")
    if isinstance(spec.configs, ConfigTable):
        yield from ((value, ("configs", "values", name)) for name, value in spec.configs.values.items())
    launches: list[tuple[Launch, KeyPath]] = [(spec, ())]
    launches += [(launch, ("followed_by", i)) for i, launch in enumerate(spec.followed_by)]
    for launch, at in launches:
        yield from ((axis, (*at, "grid", i)) for i, axis in enumerate(launch.grid or ()))
        yield from ((a.value, (*at, "arguments", name, "value")) for name, a in launch.arguments.items())
        for name, argument in launch.arguments.items():
            yield from ((axis, (*at, "arguments", name, "type")) for axis in descriptor_shape(argument.type))
        for key, value in launch.work.model_dump(exclude_none=True).items():
            inner = value.items() if isinstance(value, dict) else ()
            yield from ((text, (*at, "work", key, name)) for name, text in inner)
            if not isinstance(value, dict):
                yield value, (*at, "work", key)


def names_in_expressions(spec: KernelSpecFile) -> frozenset[str]:
    """Every name that an expression of the spec reads, in constexprs too."""
    texts = [value for value, _ in _expressions(spec)]
    texts += [value for launch in (spec, *spec.followed_by) for value in launch.constexprs.values()]
    found: set[str] = set()
    for text in texts:
        if isinstance(text, str):
            with contextlib.suppress(InputError):  # a text of a constexpr that is no expression
                found |= parse_expression(text).names
    return frozenset(found)


def _check_expressions(spec: KernelSpecFile, document: Document) -> None:
    """Parse every expression once, so that a spec is refused as a whole and at the right line."""
    for value, at in _expressions(spec):
        if isinstance(value, str):
            parse_expression(value, document.where(at))
    for name, knob in spec.knobs.items():
        if isinstance(knob.default, str):
            valid = {*spec.shapes, *spec.knobs, *DEVICE_FACTS} - {name}
            for used in sorted(parse_expression(knob.default).names - valid):
                where = document.where(("knobs", name, "default"))
                raise unknown_name("shape, knob or fact of the GPU", used, valid, where=where)
