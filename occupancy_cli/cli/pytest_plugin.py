"""The gate inside pytest: `pytest --occupancy` adds a test for each kernel, config and GPU; `occupancy_fits` asserts.

    pytest --occupancy                        # what [tool.occupancy] in pyproject.toml names
    pytest --occupancy --occupancy-path=kernels --occupancy-gpu=h200

    def test_the_decode_kernel_fits(occupancy_fits):
        occupancy_fits("kernels/mla.yaml", gpu="h200", max_spill_bytes=0, min_ctas_per_sm=2)

Everything is compiled while tests are collected, all of it together and through the result cache; the tests then say
what came out. pytest loads this module in every run, so it imports the rest when it is asked for something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from occupancy_cli.report.kernel_parts import Finding
    from occupancy_cli.report.report import Report
    from occupancy_cli.spec.project_settings import Project

_BROKEN = ("violation", "undecided")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--occupancy` and what goes with it."""
    group = parser.getgroup("occupancy", "Triton kernels on GPUs that need not be here")
    group.addoption("--occupancy", action="store_true", help="Check kernels too, a test for each config and GPU.")
    several: dict[str, Any] = {"action": "append", "default": []}
    group.addoption(
        "--occupancy-path",
        metavar="PATH",
        help="A spec, Python file or folder. Repeatable. Default: what [tool.occupancy] in pyproject.toml includes.",
        **several,
    )
    group.addoption("--occupancy-gpu", metavar="GPU", help="GPUs that must fit. Repeatable.", **several)
    group.addoption("--occupancy-jobs", type=int, metavar="N", help="Compiles at once. Default: the cores.")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels can be asked for alone: `pytest --occupancy -m occupancy`."""
    config.addinivalue_line("markers", "occupancy: a config of a kernel on a GPU, added by --occupancy")


class KernelConfig(pytest.Item):
    """A config of a kernel on a GPU, or a file that could not be judged, with all that was found of it."""

    def __init__(self, *, findings: Sequence[Finding], **more: Any) -> None:
        super().__init__(**more)
        self.findings = tuple(findings)

    def runtest(self) -> None:
        """Fail for what is broken or unknown; skip what is not in use."""
        broken = [f for f in self.findings if f.level in _BROKEN]
        if broken:
            raise DoesNotFit(broken)
        if all(f.level == "note" for f in self.findings):
            pytest.skip("; ".join(f.message for f in self.findings))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The findings, without a traceback into this module."""
        bad = excinfo.value
        return str(bad) if isinstance(bad, DoesNotFit) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the config is written."""
        first = self.findings[0]
        path = Path(first.file).absolute() if first.file else self.path
        return path, None if first.line is None else first.line - 1, self.name


class DoesNotFit(AssertionError):
    """Findings that are broken or unknown, a line each."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(said_of(f) for f in findings))


class CheckedFile(pytest.File):
    """A spec or Python file with the configs that were judged of it."""

    def collect(self) -> Iterator[pytest.Item]:
        """Nothing: its items are made from the findings."""
        return iter(())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for every kernel, config and GPU, before -k and -m choose among them."""
    if config.getoption("--occupancy"):
        items += _items(session, _checked(config))


def _checked(config: pytest.Config) -> Report:
    from occupancy_cli.errors import OccupancyError
    from occupancy_cli.plan.project_kernels import select_of_project
    from occupancy_cli.spec.project_settings import find_project, refuse_other_triton

    paths = config.getoption("--occupancy-path")
    try:
        project = find_project(config.rootpath)
        if project is None and not paths:
            raise OccupancyError(
                "no pyproject.toml has a table [tool.occupancy]", hint="Name one: --occupancy-path=kernels"
            )
        selection = select_of_project(project, paths)
        with _service(config.getoption("--occupancy-jobs")) as service:
            if project is not None:
                refuse_other_triton(project, service.triton)
            return _answer(selection, project, config.getoption("--occupancy-gpu"), service)
    except OccupancyError as bad:
        raise pytest.UsageError(f"occupancy: {bad}") from None


def _service(jobs: int | None = None) -> Any:
    from occupancy_cli.compile.compile_service import CompileService
    from occupancy_cli.compile.result_cache import ResultCache

    return CompileService(jobs=jobs, cache=ResultCache())


def _answer(selection: Any, project: Project | None, gpus: Sequence[str], service: Any, **more: Any) -> Report:
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.answers.check import CheckQuestion, check
    from occupancy_cli.cli.options import DEFAULT_GPU

    settings = None if project is None else project.settings
    folders = () if project is None else tuple(project.folder / f for f in project.settings.hw_profiles)
    question = CheckQuestion(
        gpus=tuple(gpus),
        project_gpus=tuple(settings.gpus or ()) if settings is not None else (),
        before=() if project is None else project.budgets,
        allow_unknown=tuple(settings.allow_unknown) if settings is not None else (),
        **more,
    )
    return check(selection, question, AskedGpu(DEFAULT_GPU, asked=False, folders=folders), service)


def _items(session: pytest.Session, report: Report) -> Iterator[pytest.Item]:
    from occupancy_cli.report.check_summary import identity

    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in report.findings:
        if finding.level != "note" or finding.config:
            groups.setdefault(identity(finding), []).append(finding)
    files: dict[str, CheckedFile] = {}
    for findings in groups.values():
        first = findings[0]
        source = first.source or first.file or "occupancy"
        if source not in files:
            files[source] = CheckedFile.from_parent(session, path=Path(source).absolute())
        item = KernelConfig.from_parent(files[source], name=_name(first), findings=findings)
        item.add_marker("occupancy")
        yield item


def _name(finding: Finding) -> str:
    """`scale[H200_SXM-BLOCK:64-num_warps:2]`: nothing in it that `-k` cannot name."""
    values = {**finding.knobs, **finding.config}
    shown = [f"{n}:{v}" for n, v in values.items() if v is not None and (n, v) != ("num_ctas", 1)]
    inside = "-".join(p for p in (finding.gpu.replace(" ", "_"), *shown) if p)
    return f"{finding.kernel or finding.rule}[{inside}]" if inside else finding.kernel or finding.rule


def said_of(finding: Finding) -> str:
    """A finding on a line: where, what it is about, what is wrong."""
    from occupancy_cli.report.finding_text import sentence

    place = f"{finding.file}:{finding.line}: " if finding.file and finding.line else ""
    return f"{place}{sentence(finding)}"


@pytest.fixture
def occupancy_fits() -> Callable[..., Report]:
    """`occupancy_fits(kernel, gpu=..., **budgets)`: an assertion that every config in use fits and keeps its budgets.

    `kernel` is a spec, or `file.py:kernel` with `arguments` as --arg takes them (`["x_ptr=*bf16", "n=i32=4096"]`);
    `gpu` one name or several; `sets` gives names a value, as --set does; budgets go by their names. What cannot be
    decided fails too. Returns the Report.
    """
    return fits


def fits(
    kernel: str,
    *,
    gpu: str | Sequence[str],
    arguments: Sequence[str] = (),
    grid: str | None = None,
    sets: Mapping[str, Any] | None = None,
    **budgets: Any,
) -> Report:
    """See `occupancy_fits`."""
    from occupancy_cli.errors import OccupancyError
    from occupancy_cli.plan.check_selection import SelectedKernel, Selection
    from occupancy_cli.plan.kernel_input import read_kernel_input
    from occupancy_cli.spec.budget_layers import parse_budgets
    from occupancy_cli.spec.settings import Setting

    __tracebackhide__ = True
    try:
        given = read_kernel_input(str(kernel), arguments, grid)
        selected = SelectedKernel(given, given.source if given.from_flags else given.document.path)
        after = parse_budgets([f"{name}={value}" for name, value in budgets.items()])
        values = {n: Setting(tuple(v) if isinstance(v, list) else (v,), "sets") for n, v in (sets or {}).items()}
        gpus = [gpu] if isinstance(gpu, str) else list(gpu)
        if not gpus:
            raise OccupancyError("no GPU is named", where="gpu")
        with _service() as service:
            report = _answer(Selection((selected,)), None, gpus, service, after=after, sets=values)
    except OccupancyError as bad:
        raise AssertionError(f"occupancy: {bad}") from None
    broken = [f for f in report.findings if f.level in _BROKEN]
    if broken:
        raise DoesNotFit(broken)
    return report
