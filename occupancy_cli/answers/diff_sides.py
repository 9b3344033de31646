"""The two sides of a `diff`, each as a Report of `explain`: from a config, a GPU, a kernel, a saved Report, a revision
of git, or another Triton.

    occupancy diff BLOCK_T=16 BLOCK_T=32                 two configs of one kernel
    occupancy diff rtx-pro-6000 h200                     one kernel on two GPUs
    occupancy diff mine.py:k theirs.py:k                 two kernels
    occupancy diff before.json after.json                Reports that `explain --format json` wrote
    occupancy diff mine.py:k --rev HEAD~1                the kernel then and now
    occupancy diff mine.py:k --triton 3.6.0,3.9.0        under two versions of Triton
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_cli.answers.diff import compared
from occupancy_cli.answers.explain import explain
from occupancy_cli.compile.compile_service import CompileService, triton_version
from occupancy_cli.compile.triton_environments import triton_folder
from occupancy_cli.errors import CompileError, InputError, OccupancyError
from occupancy_cli.plan.kernel_input import KernelInput, read_kernel_input, shipped_specs
from occupancy_cli.report.machine_parts import Toolchain
from occupancy_cli.report.report import Report
from occupancy_cli.version import VERSION

if TYPE_CHECKING:
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.report.explain_parts import SourceText
    from occupancy_cli.spec.settings import Setting

_CONFIG = re.compile(r"\s*[A-Za-z_]\w*\s*=[^=]")
_FORMS = (
    "a config (BLOCK_T=16,num_warps=4), a GPU (h200), a kernel (spec.yaml, file.py:kernel), or a Report that "
    "`explain --format json` wrote (before.json)"
)


@dataclass(frozen=True)
class Asked:
    """What both sides have in common unless an operand says otherwise."""

    kernel: str | None
    gpu: AskedGpu
    sets: Mapping[str, Setting]
    configs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    grid: str | None = None
    command_line: tuple[str, ...] = ()
    """The options above as they were given, for a run in another environment."""

    def input(self) -> KernelInput:
        return read_kernel_input(self.kernel, self.arguments, self.grid)


def diff(
    operands: Sequence[str | Report], asked: Asked, service: CompileService, revisions: str = "", tritons: str = ""
) -> Report:
    """A Report with the Diffs; `revisions` and `tritons` are what --rev and --triton gave, "" without them.

    An operand that is a Report of `explain` is a side as it stands. Raises `InputError` for operands that are none, or
    too few or many of them.
    """
    if revisions and tritons:
        raise InputError("--rev and --triton are given both", where="--triton")
    if revisions or tritons:
        if len(operands) > 1 or (operands and asked.kernel is not None):
            raise InputError(
                "one kernel is compared with itself",
                where="--rev" if revisions else "--triton",
                hint="Name one kernel.",
            )
        asked = replace(asked, kernel=str(operands[0]) if operands else asked.kernel)
        sides = _of_revisions(asked, service, revisions) if revisions else _of_tritons(asked, service, tritons)
    else:
        if len(operands) != 2:
            raise InputError(f"two sides are compared, {len(operands)} given", where="diff", hint=f"Each is {_FORMS}.")
        sides = [
            (name, _with_maps(operand, name))
            if isinstance(operand, Report)
            else (operand, _side(operand, asked, service))
            for name, operand in zip(("before", "after"), operands, strict=True)
        ]
    found = [compared(one, other, (before, after)) for (before, one), (after, other) in itertools.pairwise(sides)]
    return Report(
        command="diff",
        toolchain=sides[-1][1].toolchain if sides else Toolchain(occupancy=VERSION, triton=None, ptxas=None),
        gpu=sides[-1][1].gpu,
        diffs=found,
        interrupted=service.interrupted or any(report.interrupted for _, report in sides),
    )


def _explained(asked: Asked, service: CompileService, given: KernelInput | None = None) -> Report:
    return explain(
        given or asked.input(),
        asked.gpu.profile(),
        service,
        asked.sets,
        asked.configs,
        timed=True,
        try_others=False,
    )


def _side(text: str, asked: Asked, service: CompileService) -> Report:
    """What an operand stands for, by its form."""
    if text.endswith(".json"):
        return _saved(Path(text))
    if _CONFIG.match(text):
        return _explained(
            replace(asked, configs=(*asked.configs, text)) if not asked.configs else _within(asked, text), service
        )
    if ":" in text or text.endswith((".yaml", ".yml", ".py")) or text in {p.stem for p in shipped_specs()}:
        return _explained(replace(asked, kernel=text), service)
    try:
        gpu = replace(asked.gpu, name=text, asked=True)
        gpu.profile()
    except OccupancyError as no_gpu:
        raise InputError(
            f"{text!r} is neither a config nor a kernel, and no GPU either: {no_gpu.problem}",
            where="diff",
            hint=f"{no_gpu.hint}\nEach side is {_FORMS}.".strip(),
        ) from no_gpu
    return _explained(replace(asked, gpu=gpu), service)


def _within(asked: Asked, text: str) -> Asked:
    """A config that an operand names, among those that --config picks."""
    return replace(asked, configs=tuple(f"{each},{text}" for each in asked.configs))


def _saved(path: Path) -> Report:
    from occupancy_cli.report.schema import report_from_json
    from occupancy_cli.yaml_reader import find_file

    text = find_file(path).read_text(encoding="utf-8")
    try:
        report = report_from_json(text)
    except ValueError as bad:
        first = str(bad).splitlines()
        raise InputError(
            f"is no Report: {' '.join(first[:3])}",
            where=str(path),
            hint="Write one by `occupancy explain KERNEL --format json > FILE`.",
        ) from bad
    return _with_maps(report, str(path))


def _with_maps(report: Report, where: str) -> Report:
    if not any(config.shared_map for kernel in report.kernels for config in kernel.configs):
        raise InputError(
            f"is a Report of `{report.command}`, which has no maps of shared memory",
            where=where,
            hint="Write one by `occupancy explain KERNEL --format json > FILE`.",
        )
    return report


# --- revisions ---------------------------------------------------------------------------------------------------


def _of_revisions(asked: Asked, service: CompileService, revisions: str) -> list[tuple[str, Report]]:
    names = [name.strip() for name in revisions.split(",")]
    # What a run was made from has to be there until the run is done: the service looks at it again.
    with contextlib.ExitStack() as stack:
        sides = [(name, _at_revision(name, asked, service, stack)) for name in names]
        return sides if len(sides) > 1 else [*sides, ("now", _explained(asked, service))]


def _at_revision(revision: str, asked: Asked, service: CompileService, stack: contextlib.ExitStack) -> Report:
    """The explanation of the kernel as a revision of its repository has it, its files put where `stack` keeps them."""
    given = asked.input()
    place, _, name = (
        (asked.kernel or given.document.path).partition(":") if asked.kernel else (given.document.path, "", "")
    )
    path = Path(given.document.path if place in {p.stem for p in shipped_specs()} else place).resolve()
    root = Path(_git(path.parent, "rev-parse", "--show-toplevel", what=f"{path} lies in no git repository").strip())
    folder = stack.enter_context(_exported(root, revision))
    then = folder / path.relative_to(root)
    if not then.is_file():
        raise InputError(f"has no {path.relative_to(root)}", where=f"--rev {revision}")
    report = _explained(replace(asked, kernel=f"{then}:{name}" if name else str(then)), service)
    return _renamed(report, lambda file: _without(file, folder, root))


@contextlib.contextmanager
def _exported(root: Path, revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="occupancy-rev-") as name:
        folder = Path(name).resolve()
        done = subprocess.run(
            ["git", "-C", str(root), "archive", "--format=tar", revision, "--"], capture_output=True, check=False
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(f"git has no such revision: {said[-1] if said else ''}", where=f"--rev {revision}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield folder


def _git(folder: Path, *arguments: str, what: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError as missing:
        raise InputError(f"git does not run here: {missing.strerror}", where="--rev") from missing
    if done.returncode:
        raise InputError(what, where="--rev")
    return done.stdout


def _without(file: str, folder: Path, root: Path) -> str:
    path = Path(file)
    if not path.is_relative_to(folder):
        return file
    here = root / path.relative_to(folder)
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _renamed(report: Report, name: Callable[[str], str]) -> Report:
    """A Report whose source lines name files otherwise: as they are now, not where they were put to be compiled."""

    def of(source: SourceText | None) -> SourceText | None:
        if source is None:
            return None
        called = [f"{name(c.rpartition(':')[0])}:{c.rpartition(':')[2]}" for c in source.called_from]
        return replace(source, file=name(source.file), called_from=called)

    kernels = []
    for kernel in report.kernels:
        configs = []
        for config in kernel.configs:
            found, use = config.shared_map, config.register_use
            if found is not None:
                found = replace(found, buffers=[replace(b, source=of(b.source)) for b in found.buffers])
            if use is not None:
                use = replace(
                    use,
                    peak_source=of(use.peak_source),
                    holders=[replace(h, source=of(h.source)) for h in use.holders],
                    lines=[replace(each, source=of(each.source)) for each in use.lines],
                    spills=[replace(s, source=of(s.source)) for s in use.spills],
                )
            configs.append(replace(config, shared_map=found, register_use=use))
        kernels.append(replace(kernel, configs=configs))
    return replace(report, kernels=kernels)


# --- versions of Triton ------------------------------------------------------------------------------------------


def _of_tritons(asked: Asked, service: CompileService, tritons: str) -> list[tuple[str, Report]]:
    names = [name.strip() for name in tritons.split(",") if name.strip()]
    if len(names) < 2 and names != [triton_version()]:
        names.append(triton_version())
    if len(names) < 2:
        raise InputError("one version is compared with itself", where=f"--triton {tritons}", hint="Name two.")
    found = []
    for name in names:
        report = _explained(asked, service) if name == triton_version() else _under(name, asked)
        found.append((f"Triton {report.toolchain.triton}", report))
    return found


def _under(name: str, asked: Asked) -> Report:
    """The explanation that this tool gives with another Triton in front of the one installed."""
    from occupancy_cli.compile.triton_environments import environment_of
    from occupancy_cli.report.schema import report_from_json

    with triton_folder(name) as folder:
        command = [sys.executable, "-m", "occupancy_cli", "explain", *([asked.kernel] if asked.kernel else [])]
        command += [*asked.command_line, "--time", "--no-others", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment_of(folder))
    if not done.stdout.startswith("{"):
        said = done.stderr.strip().splitlines()
        raise CompileError(
            f"the kernel was not explained: {' '.join(said[-3:])[:400]}", where=f"--triton {name}", kind="version"
        )
    return report_from_json(done.stdout)
