"""What a project says of its checks: the table `[tool.occupancy]` of its pyproject.toml.

    [tool.occupancy]
    include = ["kernels"]                     # paths and patterns, seen from this file
    gpus = ["h200", "rtx-pro-6000"]
    triton = ["3.9"]                          # the versions that the numbers are for

    [tool.occupancy.budgets]
    max_spill_bytes = 0

    [tool.occupancy.kernels."kernels/ops.py:softmax"]
    arguments = { x_ptr = "*bf16", n = { type = "i32", value = 4096 } }

`ProjectSettings` is the schema, read as strictly as a spec: an unknown key is an error with its line and the nearest
valid one.
"""

from __future__ import annotations

import fnmatch
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator

from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.spec.budget_layers import BudgetLayer, layers_from
from occupancy_cli.spec.kernel_spec import (
    Argument,
    Budgets,
    ConfigProduct,
    Name,
    Scalar,
    Shape,
    Strict,
    build_models,
    gpu_names,
)
from occupancy_cli.spec.model_errors import input_error
from occupancy_cli.spec.toml_places import toml_places
from occupancy_cli.yaml_reader import Document, KeyPath, find_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"
_TABLE: KeyPath = ("tool", "occupancy")
LAUNCH_KEYS = ("arguments", "shapes", "constexprs", "derived", "configs", "grid")
"""The keys of a kernel's table that a spec has too: how a kernel without a spec is launched."""

Figure = Literal[
    "shared_bytes",
    "registers_per_thread",
    "spill_bytes",
    "ctas_per_sm",
    "warps_per_sm",
    "waves",
    "predicted_time_us",
]
"""What a baseline has of a config."""

_Text = Annotated[str, StringConstraints(min_length=1)]


class KernelTable(Strict):
    """What a project says of one kernel, or of those whose `file.py:kernel` its pattern fits."""

    gpus: list[str] = Field(default_factory=list, description="GPUs that must fit, where its spec names none")
    use: list[dict[Name, Any]] | None = Field(None, description="the configs that are used, by any of these values")
    budgets: Budgets | list[Budgets] = Field(default_factory=Budgets.model_construct)
    arguments: dict[Name, Argument | str] = Field(default_factory=dict, description="as in a spec")
    shapes: dict[Name, int | float | Shape] = Field(default_factory=dict)
    constexprs: dict[Name, Scalar | None] = Field(default_factory=dict)
    derived: dict[Name, Scalar] = Field(default_factory=dict)
    configs: Literal["autotune"] | ConfigProduct | list[dict[Name, Any]] | None = Field(
        None, description="autotune | a list of configs | {product: {NAME: [values]}}"
    )
    grid: list[Scalar] | None = None

    @field_validator("gpus", mode="before")
    @classmethod
    def _gpu_names(cls, value: Any) -> Any:
        return gpu_names(value)


class ProjectSettings(Strict):
    """The table `[tool.occupancy]`."""

    include: list[_Text] = Field(default_factory=list, description="what is checked where nothing is named")
    exclude: list[_Text] = Field(default_factory=list, description="files and folders that are left out")
    gpus: list[str] | None = Field(None, min_length=1, description="GPUs that must fit, where a spec names none")
    hw_profiles: list[_Text] = Field(default_factory=list, description="folders of GPU profiles")
    triton: list[str] | None = Field(None, min_length=1, description='versions of Triton: "3.9" is any 3.9.x')
    allow_unknown: list[_Text] = Field(default_factory=list, description="patterns of what may stay unknown")
    baseline: str | None = Field(None, min_length=1, description="the file that results are compared with")
    tolerances: dict[Figure, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="percent by which a figure may be worse than the baseline's"
    )
    budgets: Budgets | list[Budgets] = Field(default_factory=Budgets.model_construct)
    kernels: dict[str, KernelTable] = Field(
        default_factory=dict, description="by file.py:kernel, seen from this file; patterns too"
    )

    @field_validator("gpus", mode="before")
    @classmethod
    def _gpu_names(cls, value: Any) -> Any:
        return gpu_names(value)


@dataclass(frozen=True)
class Project:
    """The settings of a project and where they stand; `folder` is what its paths are seen from."""

    settings: ProjectSettings
    document: Document
    folder: Path

    @property
    def budgets(self) -> tuple[BudgetLayer, ...]:
        """The budgets of all its kernels."""
        return layers_from(self.settings.budgets, self.document, ("budgets",), named=True)

    def tables_for(self, name: str) -> list[str]:
        """The keys of the kernel tables that fit a kernel's name, in the file's order."""
        return [key for key in self.settings.kernels if fnmatch.fnmatchcase(name, key)]

    def table_document(self, keys: list[str]) -> Document:
        """The launch keys of the tables, later ones over earlier ones, as a document of its own."""
        data: dict[str, Any] = {}
        places: dict[KeyPath, tuple[int, int]] = {}
        for key in keys:
            at: KeyPath = ("kernels", key)
            given = self.document.data["kernels"][key]
            data |= {name: given[name] for name in LAUNCH_KEYS if name in given}
            places |= {(): self.document.places.get(at, (1, 1))}
            places |= {p[2:]: place for p, place in self.document.places.items() if p[:2] == at and p[2:]}
        return Document(self.document.path, data, places)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the table."""
    return ProjectSettings.model_json_schema(by_alias=True)


def find_project(start: Path) -> Project | None:
    """The nearest pyproject.toml with a table for us, from `start` upwards; None where there is none."""
    for folder in (start, *start.parents):
        path = folder / FILE
        if path.is_file():
            found = read_project(path, required=False)
            if found is not None:
                return found
    return None


def read_project(path: Path, *, required: bool = True) -> Project | None:
    """The settings in a file. Without the table: None, or with `required` an `InputError`."""
    find_file(path)
    shown = _shown(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as bad:
        raise InputError(f"cannot be read: {bad.strerror}", where=shown) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", where=shown) from None
    except tomllib.TOMLDecodeError as bad:
        raise InputError(f"not valid TOML: {bad}", where=shown) from None
    tools = data.get("tool")
    table = tools.get("occupancy") if isinstance(tools, dict) else None
    if table is None:
        if required:
            raise InputError("has no table [tool.occupancy]", where=shown)
        return None
    places = {p[2:]: place for p, place in toml_places(text).items() if p[:2] == _TABLE}
    document = Document(shown, table, places)
    if not isinstance(table, dict):
        raise InputError("tool.occupancy is no table", where=shown)
    build_models()
    try:
        settings = ProjectSettings.model_validate(table)
    except ValidationError as bad:
        raise input_error(bad, document, ProjectSettings) from None
    return Project(settings, document, path.resolve().parent)


def refuse_other_triton(project: Project, installed: str) -> None:
    """`InputError` when the Triton that is installed is none of those that the project's numbers are for."""
    wanted = project.settings.triton
    if wanted is None or any(installed == w or installed.startswith(f"{w}.") for w in wanted):
        return
    raise InputError(
        f"Triton {installed} is installed, and the project asks for {' or '.join(wanted)}",
        where=project.document.where(("triton",)),
        hint="The same kernel takes other resources with another Triton. Install that one, or change `triton`.",
    )


def unused_tables(project: Project, used: set[str], names: list[str]) -> list[InputError]:
    """An error for each kernel table that no kernel fits, with the nearest names that there are."""
    return [
        unknown_name("kernel", key, names, where=project.document.where(("kernels", key)))
        for key in project.settings.kernels
        if key not in used
    ]


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
