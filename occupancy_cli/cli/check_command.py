"""`occupancy check`: a gate for CI. Do the configs that are used fit, on every GPU named?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end
from occupancy_cli.errors import InputError, unknown_name
from occupancy_cli.report.check_formats import FORMATS
from occupancy_cli.report.report import Report

if TYPE_CHECKING:
    from occupancy_cli.answers.baseline import BaselineRequest
    from occupancy_cli.plan.changed_files import ChangedFiles
    from occupancy_cli.spec.project_settings import Project

_FORMS = ", ".join(FORMATS)


@compiles
def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Specs, Python files, file.py:kernel, folders (of a capture too), patterns, shipped kernels' names.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="GPUs that must fit; repeatable. Default: those of each spec.")
    ] = None,
    sets: options.SetOption = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget", metavar="NAME=VALUE", help="A budget for every kernel: max_spill_bytes=0. Repeatable."
        ),
    ] = None,
    allow_unknown: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-unknown",
            metavar="REASON-GLOB",
            help="What may stay unknown, by rule ('not-read') or rule and message ('compiles: *timeout*'). Repeatable.",
        ),
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", help=f"Form of the answer on standard output: {_FORMS}.")
    ] = "table",
    output_files: Annotated[
        list[str] | None,
        typer.Option("--output-file", metavar="FORMAT=PATH", help="Write the answer to a file too. Repeatable."),
    ] = None,
    hw_profiles: options.ProfilesOption = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Hold results to those in this file, which an earlier run wrote.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write what comes out to this file: occupancy.lock.json.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Take what changed into the baseline, and leave the rest of it.")
    ] = False,
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", metavar="FIGURE=PERCENT", help="How much worse than the baseline is no matter."),
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option("--changed-since", metavar="REV", help="Only kernels made from files that changed since (git)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The pyproject.toml to follow. Default: the nearest with [tool.occupancy]."),
    ] = None,
    *,
    how: CompileOptions,
) -> None:
    """Check the shared-memory cap, and budgets, for every config that is declared to be used.

    Without a PATH it checks what `include` in the table [tool.occupancy] of pyproject.toml names; GPUs, budgets and
    more may stand there too (`occupancy schema project`). A file that cannot be read, loaded or compiled is an error of
    that file: all others are judged. Kernels of a Python file are judged by the spec beside it that names them, else by
    what the file itself says of its launches.

    Exit code 0: everything holds. 1: something does not. 2: nothing is known to be broken, but something could not be
    decided (a file with an error, a config that does not compile, a limit that is only assumed), or there was nothing
    to judge.
    """
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.answers.check import CheckQuestion
    from occupancy_cli.answers.check import check as answer
    from occupancy_cli.plan.project_kernels import select_of_project
    from occupancy_cli.spec.budget_layers import parse_budgets
    from occupancy_cli.spec.project_settings import find_project, read_project, refuse_other_triton

    targets = _targets(output_format, output_files or [])
    project = find_project(Path.cwd()) if config is None else read_project(config)
    if not paths and project is None:
        raise InputError(
            "nothing is named to check, and no pyproject.toml here or above has a table [tool.occupancy]",
            where="check",
            hint="Name specs, Python files or folders: occupancy check kernels. The shipped kernels go by their names.",
        )
    if project is not None:
        hw_profiles = [*(hw_profiles or []), *(project.folder / folder for folder in project.settings.hw_profiles)]
    question = CheckQuestion(
        gpus=tuple(gpu or ()),
        project_gpus=() if project is None else tuple(project.settings.gpus or ()),
        sets=options.settings(sets),
        before=() if project is None else project.budgets,
        after=parse_budgets(budget or ()),
        baseline=_baseline(project, baseline, write_baseline, update_baseline, tolerance or [], paths or []),
        changed=_changed(changed_since, project),
        allow_unknown=(*(allow_unknown or ()), *(() if project is None else project.settings.allow_unknown)),
    )
    default = AskedGpu(options.DEFAULT_GPU, asked=False, folders=tuple(hw_profiles or ()))
    selection = select_of_project(project, paths or [])
    with how.service() as service:
        if project is not None:
            refuse_other_triton(project, service.triton)
        report = answer(selection, question, default, service)
    _write(report, output_format, targets, in_full=how.verbose)
    end(report)


def _baseline(
    project: Project | None,
    compare: Path | None,
    write: Path | None,
    update: bool,
    tolerances: list[str],
    paths: list[str],
) -> BaselineRequest | None:
    """What is to be done with a baseline; the project's own where none is named."""
    from occupancy_cli.answers.baseline import DEFAULT_FILE, BaselineRequest, parse_tolerances

    if write is not None:
        if compare is not None or update:
            other = "--baseline" if compare is not None else "--update-baseline"
            raise InputError(f"{other} and --write-baseline are given both", where="--write-baseline")
        return BaselineRequest(write, "write", tuple(paths))
    own = None if project is None else project.settings.baseline
    if compare is None and own is not None and project is not None:
        compare = Path(os.path.relpath(project.folder / own))
    if compare is None and update:
        compare = Path(DEFAULT_FILE)
    of_project: dict[str, float] = {} if project is None else dict(project.settings.tolerances.items())
    parsed = {**of_project, **parse_tolerances(tolerances)}
    if compare is None:
        if tolerances:
            raise InputError("there is no baseline to hold anything to", where="--tolerance", hint="Give --baseline.")
        return None
    return BaselineRequest(compare, "update" if update else "compare", tuple(paths), parsed)


def _changed(revision: str | None, project: Project | None) -> ChangedFiles | None:
    """What changed since a revision; None to judge all, as when the project's own settings changed."""
    if revision is None:
        return None
    from occupancy_cli.plan.changed_files import changed_since

    changed = changed_since(revision)
    return None if project is not None and changed.has([str(project.folder / "pyproject.toml")]) else changed


def _targets(output_format: str, files: list[str]) -> dict[Path, str]:
    """The file of each `FORMAT=PATH`, with its format; all are looked at before anything is compiled."""
    if output_format not in FORMATS:
        raise unknown_name("format", output_format, FORMATS, where="--format")
    targets: dict[Path, str] = {}
    for text in files:
        name, equals, path = text.partition("=")
        where = f"--output-file {text}"
        if not equals or not path:
            raise InputError(
                f"{text!r} names no file", where="--output-file", hint="Write FORMAT=PATH: sarif=out.sarif"
            )
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS, where=where)
        if Path(path) in targets:
            raise InputError(f"{path} is given twice", where=where)
        if Path(path).is_dir():
            raise InputError(f"{path} is a folder", where=where)
        targets[Path(path)] = name
    return targets


def _write(report: Report, output_format: str, targets: dict[Path, str], *, in_full: bool) -> None:
    """Write the files, then standard output: a reader who is gone must not keep the files from being written."""
    from occupancy_cli.report.check_formats import text_of

    for path, name in targets.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(report, name), encoding="utf-8")
        except OSError as bad:
            raise InputError(f"cannot be written: {bad.strerror}", where=str(path)) from None
    if output_format == "table":
        from occupancy_cli.cli.show import print_report
        from occupancy_cli.report.view import View

        print_report(report, options.Format.table, View(everything=in_full))
        return
    sys.stdout.write(text_of(report, output_format))
