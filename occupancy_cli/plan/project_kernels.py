"""The kernels that a project's settings name, with what its kernel tables say of each.

A kernel without a spec is launched as its table says; a kernel with one has its launch there, and its table only adds
GPUs, the configs in use and budgets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import InputError
from occupancy_cli.plan.check_selection import (
    SelectedKernel,
    Selection,
    SelectionProblem,
    from_source_alone,
    select,
)
from occupancy_cli.plan.kernel_input import KernelInput, parse_ref
from occupancy_cli.spec.budget_layers import layers_from
from occupancy_cli.spec.kernel_spec import SCHEMA, checked_spec
from occupancy_cli.spec.project_settings import LAUNCH_KEYS, Project, unused_tables
from occupancy_cli.yaml_reader import Document

if TYPE_CHECKING:
    from occupancy_cli.source.knob_types import KernelKnobs


def select_of_project(project: Project | None, paths: Sequence[str]) -> Selection:
    """What `paths` stand for, seen from the working directory; without any, what the project includes.

    `InputError` where nothing is named at all.
    """
    if project is None:
        return select(paths)
    settings = project.settings
    include = settings.include
    if not paths and not include:
        raise InputError(
            "nothing is named to check", where=project.document.where(("include",)), hint='Add include = ["kernels"].'
        )

    def from_source(path: Path, kernel: KernelKnobs) -> KernelInput:
        return _launched_by_table(project, path, kernel) or from_source_alone(path, kernel)

    found = select(
        paths or include,
        exclude=settings.exclude,
        base=None if paths else _near(project.folder),
        exclude_from=project.folder,
        specs_elsewhere=_specs_included(project) if paths else (),
        from_source=from_source,
    )
    used: set[str] = set()
    kernels, names, problems = list[SelectedKernel](), list[str](), list(found.problems)
    for selected in found.kernels:
        name = _name_of(project, selected)
        keys = project.tables_for(name)
        used.update(keys)
        names.append(name)
        try:
            kernels.append(_with_tables(project, selected, keys))
        except InputError as bad:
            problems.append(SelectionProblem(selected.file, bad))
    if not paths:
        # A table that fits nothing asks for something of no kernel at all, which must not pass for held.
        path = project.document.path
        problems += [SelectionProblem(path, bad) for bad in unused_tables(project, used, names)]
    return replace(found, kernels=tuple(kernels), problems=tuple(problems))


def _near(folder: Path) -> Path:
    """A folder as it is shortest to write from here."""
    return Path(os.path.relpath(folder))


def _specs_included(project: Project) -> list[Path]:
    """The specs that the project includes: a Python file that is named by itself may have its spec among them."""
    if not project.settings.include:
        return []
    try:
        found = select(project.settings.include, exclude=project.settings.exclude, base=_near(project.folder))
    except InputError:
        return []  # said where the project as a whole is checked
    return [Path(k.given.document.path) for k in found.kernels if not k.given.from_flags]


def _name_of(project: Project, selected: SelectedKernel) -> str:
    """What a table calls a kernel: its file seen from the project, with its name; of a module what its spec says."""
    given = selected.given
    try:
        ref = parse_ref(given.spec.kernel, given.folder)
    except InputError:
        return given.spec.kernel  # said when it is judged
    return given.spec.kernel if ref.file is None else _named(project, ref.file, ref.kernel)


def _named(project: Project, file: Path, kernel: str) -> str:
    return f"{Path(os.path.relpath(file, project.folder)).as_posix()}:{kernel}"


def _launched_by_table(project: Project, path: Path, kernel: KernelKnobs) -> KernelInput | None:
    """A kernel without a spec, launched as its tables say; None where none of them does."""
    tables = project.document.data.get("kernels", {})
    keys = [
        key
        for key in project.tables_for(_named(project, path, kernel.qualname))
        if any(n in tables[key] for n in LAUNCH_KEYS)
    ]
    if not keys:
        return None
    given = project.table_document(keys)
    data: dict[str, Any] = {"schema": SCHEMA, "kernel": f"{path}:{kernel.qualname}", **given.data}
    if kernel.autotune is not None:
        data.setdefault("configs", "autotune")
    document = Document(given.path, data, given.places)
    return KernelInput(checked_spec(document), document, Path.cwd())


def _with_tables(project: Project, selected: SelectedKernel, keys: Sequence[str]) -> SelectedKernel:
    document = project.document
    for key in keys:
        table = project.settings.kernels[key]
        given = [n for n in LAUNCH_KEYS if n in document.data["kernels"][key]]
        if given and selected.given.document.path != document.path:
            where = document.where(("kernels", key, given[0]))
            raise InputError(f"the kernel has a spec, {selected.file}: its {given[0]} stand there", where=where)
        layers = layers_from(table.budgets, document, ("kernels", key, "budgets"), named=True)
        selected = replace(
            selected,
            gpus=tuple(table.gpus) or selected.gpus,
            use=tuple(table.use) if table.use is not None else selected.use,
            budgets=(*selected.budgets, *layers),
        )
    return selected
