"""One function a question, each with a Report for an answer; what they mean is what the commands of that name mean.

    import occupancy_cli as occ

    report = occ.analyze("my_kernel.py:my_kernel", gpu="h200", args={"x_ptr": "*bf16", "n": 4096})
    report.kernels[0].configs[0].occupancy.ctas_per_sm
    report.to_pandas()

A kernel is a spec (`file.yaml`), `file.py:kernel`, `package.module:kernel`, the name of a shipped one, what `load_spec`
returned, or a live `@triton.jit` function, autotuned or not; None is the shipped sparse MLA decode. A GPU is any of its
names or what `load_gpu` returned; None is the RTX PRO 6000 Blackwell. Errors are `OccupancyError`s. Nothing is shared
between two calls but files, so that threads and forked children may ask at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from occupancy_cli.api.compiling import DEFAULT_COMPILING, Compiling, answered
from occupancy_cli.data_files import DEFAULT_GPU
from occupancy_cli.errors import InputError, OccupancyError

if TYPE_CHECKING:
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.gpu.gpu_profile import GpuProfile
    from occupancy_cli.plan.kernel_input import KernelInput
    from occupancy_cli.report.report import Report

_MOST_CTAS = 32

Batches = int | str | Iterable[int]
"""80, [48, 64, 80], range(1, 129), or the command line's "1:128"."""

F = TypeVar("F", bound=Callable[..., Any])


def _python_errors(question: F) -> F:
    """`question`, whose errors name its arguments where the command line's would name options."""
    import functools

    from occupancy_cli.source.source_files import begin_run

    @functools.wraps(question)
    def asked(*args: Any, **kwargs: Any) -> Any:
        begin_run()
        try:
            return question(*args, **kwargs)
        except OccupancyError as bad:
            bad.where, bad.hint, bad.problem = (in_python(text) for text in (bad.where, bad.hint, bad.problem))
            raise

    return asked  # type: ignore[return-value]


_OPTIONS = (
    (re.compile(r"--arg (\w+)=TYPE"), r'args["\1"] = TYPE'),
    (re.compile(r"--set (\w+)=VALUE(,VALUE)?"), r'settings["\1"] = VALUE'),
    (re.compile(r"--set\b"), "settings"),
    (re.compile(r"--arg\b"), "args"),
    (re.compile(r"--hw-profiles\b"), "profiles"),
    (re.compile(r"--gpu\b"), "gpu"),
    (re.compile(r"--config\b"), "config"),
    (re.compile(r"--(batch|mix|lengths|grid|anchor|calibration|threads|regs|shared|carveout|tmem)\b"), r"\1"),
    (re.compile(r"--(num-warps|num-ctas|static-shared)\b"), lambda found: found[1].replace("-", "_")),
)


def in_python(text: str) -> str:
    """A message with the options of the command line as the arguments of the functions here."""
    for pattern, made in _OPTIONS:
        text = pattern.sub(made, text)
    return text


@_python_errors
def analyze(
    kernel: Any = None,
    *,
    gpu: str | GpuProfile | None = None,
    args: Mapping[str, Any] | None = None,
    configs: Iterable[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: Batches | None = None,
    grid: Sequence[int | str] | None = None,
    full: bool = False,
    timed: bool = False,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Shared memory, registers, spills, CTAs and warps per SM, waves: a `Config` for each config of the kernel.

    `args` gives the arguments of a kernel without a spec: types, dtypes, tensors or values by name. `configs` takes the
    place of the kernel's own (mappings or `triton.Config`s). `settings` are values of shapes, knobs, constexprs and
    launch options, a list to go through several. `full` compiles configs over the cap to the end, `timed` predicts
    times. `profiles` are folders of GPU profiles that add to the shipped ones.
    """
    from occupancy_cli.answers.by_spec import analyze_spec
    from occupancy_cli.api.given_kernel import given_kernel

    sets = _with_batch(settings, batch)
    given = given_kernel(kernel, args=args, grid=grid, configs=configs, settings=sets)
    asked = asked_gpu(gpu, profiles)
    report = answered(
        compiling, lambda service: analyze_spec(given.kernel, [asked], service, given.settings, full=full, timed=timed)
    )
    return _with_notes(report, given.notes)


@_python_errors
def explain(
    kernel: Any = None,
    *,
    gpu: str | GpuProfile | None = None,
    args: Mapping[str, Any] | None = None,
    configs: Iterable[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: Batches | None = None,
    grid: Sequence[int | str] | None = None,
    full: bool = False,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Where bytes and registers go: as `analyze`, each `Config` with its `shared_map` and `register_use` by line.

    Of one or two configs it also says what other launch options would do (`options_tried`); each is a compile.
    """
    from occupancy_cli.answers.explain import explain as explained
    from occupancy_cli.api.given_kernel import given_kernel

    sets = _with_batch(settings, batch)
    given = given_kernel(kernel, args=args, grid=grid, configs=configs, settings=sets)
    profile = asked_gpu(gpu, profiles).profile()
    report = answered(
        compiling, lambda service: explained(given.kernel, profile, service, given.settings, full=full)
    )  # fmt: skip
    return _with_notes(report, given.notes)


@_python_errors
def fit(
    kernel: Any = None,
    *,
    ctas: int | None = None,
    no_spills: bool = False,
    config: Any = None,
    gpu: str | GpuProfile | None = None,
    args: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: Batches | None = None,
    grid: Sequence[int | str] | None = None,
    limit: int = 60,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """The smallest changes of a config that reach a goal: so many `ctas` per SM, `no_spills`, else that it can launch.

    `config` is where to start from (a mapping or `triton.Config`; None: the kernel's first); at most `limit`
    candidates are compiled. `exit_code` is 0 where something reaches the goal.
    """
    from occupancy_cli.answers.fit import Goal
    from occupancy_cli.answers.fit import fit as fitted
    from occupancy_cli.api.argument_types import config_of
    from occupancy_cli.api.given_kernel import given_kernel

    if ctas is not None and no_spills:
        raise InputError("ctas and no_spills are given both", where="fit", hint="One goal at a time.")
    if ctas is not None and not 1 <= ctas <= _MOST_CTAS:
        raise InputError(f"{ctas} CTAs per SM", where="ctas", hint=f"It is 1 to {_MOST_CTAS}.")
    sets = _with_batch(settings, batch)
    given = given_kernel(kernel, args=args, grid=grid, configs=None, settings=sets)
    start = None if config is None else ",".join(f"{n}={v}" for n, v in config_of(config, 0).items())
    profile, goal = asked_gpu(gpu, profiles).profile(), Goal(ctas, no_spills)
    report = answered(
        compiling, lambda service: fitted(given.kernel, profile, service, given.settings, goal, start, limit=limit)
    )
    return _with_notes(report, given.notes)


@_python_errors
def diff(
    before: Any,
    after: Any,
    *,
    kernel: str | Path | None = None,
    gpu: str | GpuProfile | None = None,
    args: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: Batches | None = None,
    grid: Sequence[int | str] | None = None,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Two sides beside each other: resources, limits, predicted time, each buffer, with the lines that differ.

    A side is a config (a mapping or `triton.Config`), a GPU's name, a kernel (a spec, `file.py:kernel`), a Report of
    `explain`, or the path of one (`.json`). `kernel` is whose sides they are where they do not say; `gpu`, `args`,
    `settings`, `batch` and `grid` hold for both.
    """
    from occupancy_cli.answers.diff_sides import Asked
    from occupancy_cli.answers.diff_sides import diff as compared
    from occupancy_cli.api.argument_types import argument_text
    from occupancy_cli.api.given_kernel import axes_of, settings_of

    operands = [_operand(side, place) for side, place in ((before, "before"), (after, "after"))]
    axes = axes_of(grid)
    asked = Asked(
        None if kernel is None else str(kernel),
        asked_gpu(gpu, profiles),
        settings_of(_with_batch(settings, batch)),
        arguments=tuple(argument_text(name, value) for name, value in (args or {}).items()),
        grid=None if axes is None else ",".join(axes),
    )
    return answered(compiling, lambda service: compared(operands, asked, service))


def _operand(side: Any, place: str) -> str | Report:
    """A side of `diff` as the command line has it: `NAME=VALUE,...` for a config, else its text; a Report as it is."""
    from occupancy_cli.api.argument_types import config_of
    from occupancy_cli.report.report import Report

    if isinstance(side, (str, Path, Report)):
        return str(side) if isinstance(side, Path) else side
    try:
        config = config_of(side, 0)
    except InputError:
        hint = 'A config such as {"BLOCK": 64}, a GPU, a kernel, or a Report of explain.'
        raise InputError(f"a {type(side).__name__} is no side of a diff", where=place, hint=hint) from None
    if not config:
        raise InputError("a config without a value names none", where=place, hint='Such as {"BLOCK": 64}.')
    return ",".join(f"{name}={value}" for name, value in config.items())


@_python_errors
def recommend(
    kernel: Any = None,
    *,
    batch: Batches | None = None,
    gpu: str | GpuProfile | None = None,
    configs: Iterable[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    mix: Mapping[int, float] | None = None,
    lengths: str | Sequence[int] | None = None,
    cold: bool = False,
    calibration: str | Path | None = None,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """What to set: the knobs and config with the shortest predicted time for each batch, beside what is set now.

    `kernel` needs a spec with a grid. `mix` is batch -> share of steps, in the place of `batch`; `lengths` the tokens
    of each request; `cold`: the launch does not find its data in the L2. `calibration` is a file of `calibrate`.
    """
    from occupancy_cli.answers.by_spec import recommend_spec
    from occupancy_cli.api.given_kernel import given_kernel

    given = given_kernel(kernel, args=None, grid=None, configs=configs, settings=settings)
    workload, asked = _workload(batch, mix, lengths, cold), asked_gpu(gpu, profiles)
    factors = None if calibration is None else Path(calibration)
    return answered(
        compiling, lambda service: recommend_spec(given.kernel, asked, service, given.settings, workload, factors)
    )


@_python_errors
def sweep(
    kernel: Any = None,
    *,
    batch: Batches = "8:128:8",
    gpu: str | GpuProfile | None = None,
    configs: Iterable[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    lengths: str | None = None,
    cold: bool = False,
    anchor: tuple[int, float] | None = None,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Predicted time, waves and CTAs per SM over batch: of what is set now, of one setting for all, of each best.

    `anchor` is (batch, milliseconds) as measured of what is set now; all times are scaled to meet it.
    """
    from occupancy_cli.answers.sweep import AnchorPoint
    from occupancy_cli.answers.sweep import sweep as swept
    from occupancy_cli.api.given_kernel import given_kernel

    given = given_kernel(kernel, args=None, grid=None, configs=configs, settings=settings)
    workload, profile = _workload(batch, None, lengths, cold), asked_gpu(gpu, profiles).profile()
    point = None if anchor is None else AnchorPoint(int(anchor[0]), float(anchor[1]))
    if point is not None and not point.ms > 0:
        raise InputError(f"{anchor!r} is no anchor", where="anchor", hint="Such as (80, 0.0512): batch, milliseconds.")
    return answered(compiling, lambda service: swept(given.kernel, profile, service, given.settings, workload, point)
    )  # fmt: skip


@_python_errors
def check(
    kernels: Any = None,
    *,
    gpus: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Do the configs in use fit every GPU named, and keep the budgets of their spec? `exit_code` is the verdict.

    `kernels` is one kernel or a list of them (None: those that ship); `gpus` takes the place of their specs' own.
    """
    from occupancy_cli.answers.check import CheckQuestion
    from occupancy_cli.answers.check import check as checked
    from occupancy_cli.api.given_kernel import given_kernel, settings_of
    from occupancy_cli.plan.check_selection import SelectedKernel, Selection, shown_path
    from occupancy_cli.plan.kernel_input import shipped_specs

    one_by_one = kernels if isinstance(kernels, (list, tuple)) else [kernels]
    if kernels is None:
        one_by_one = list(shipped_specs())
    if not one_by_one:
        raise InputError("there is none", where="kernels", hint="Leave it out to check the shipped ones.")
    read = [given_kernel(one, args=None, grid=None, configs=None, settings=None) for one in one_by_one]
    inputs = [one.kernel for one in read]
    selection = Selection(
        tuple(
            SelectedKernel(given, shown_path(given.document.path), given.document.line(("kernel",))) for given in inputs
        )
    )
    question = CheckQuestion((gpus,) if isinstance(gpus, str) else tuple(gpus), sets=settings_of(settings or {}))
    default = asked_gpu(None, profiles)
    report = answered(compiling, lambda service: checked(selection, question, default, service))
    return _with_notes(report, tuple(n for one in read for n in one.notes))


@_python_errors
def compare(
    times: str | Path,
    *,
    kernel: str | Path | None = None,
    calibration: str | Path | None = None,
    profiles: Sequence[str | Path] = (),
    compiling: Compiling = DEFAULT_COMPILING,
) -> Report:
    """Regret of the recommendation, of the default and of known rules on times that `occupancy measure` wrote.

    `kernel` says where the kernel lies if not where it was measured.
    """
    from occupancy_cli.answers.compare import comparison
    from occupancy_cli.answers.times_file import read_times
    from occupancy_cli.plan.kernel_input import read_kernel_input

    found = read_times(Path(times))
    profile = asked_gpu(found.header.gpu, profiles).profile()
    given = read_kernel_input(str(kernel) if kernel is not None else found.header.kernel)
    factors = None if calibration is None else Path(calibration)
    return answered(compiling, lambda service: comparison(found, given, profile, service, factors))


@_python_errors
def calc(
    *,
    threads: int | None = None,
    num_warps: int | None = None,
    regs: int | None = None,
    shared: int | None = None,
    static_shared: int = 0,
    carveout: int | None = None,
    num_ctas: int = 1,
    tmem: int = 0,
    gpu: str | GpuProfile | None = None,
    over: Literal["registers", "shared", "warps"] | None = None,
    profiles: Sequence[str | Path] = (),
) -> Report:
    """The occupancy of one kernel from its numbers (threads or warps, registers, bytes), and what more CTAs take.

    `over` adds the whole range of one resource. For one number at a time without a Report: `occupancy`.
    """
    from occupancy_cli.answers.calc import calculate

    if (threads is None) == (num_warps is None):
        problem = "are given both" if threads is not None else "are both missing"
        raise InputError(f"threads and num_warps {problem}", where="threads", hint="One of them is needed.")
    if num_warps is not None and num_warps < 1:
        raise InputError(f"{num_warps} is not possible: it is at least 1", where="num_warps")
    if shared is None:
        hint = "Bytes of dynamic shared memory per CTA; 0 for none."
        raise InputError("is missing", where="shared", hint=hint)
    kernel = {
        "threads_per_cta": 32 * num_warps if num_warps is not None else threads,
        "registers_per_thread": regs,
        "shared_bytes": shared,
        "static_shared_bytes": static_shared,
        "carveout_bytes": carveout,
        "num_ctas": num_ctas,
        "tmem_columns": tmem,
    }
    return calculate(asked_gpu(gpu, profiles).profile(), kernel, over)


@_python_errors
def gpus(*names: str, profiles: Sequence[str | Path] = ()) -> Report:
    """The GPUs of these names with the source of every value; without names all that have a profile.

    `gpus("local")` is this machine's GPU as its driver describes it.
    """
    from occupancy_cli.answers.gpus import known_gpus

    return known_gpus(list(names) or None, [Path(p) for p in profiles])


@_python_errors
def load_spec(path: str | Path) -> KernelInput:
    """A kernel spec, read and validated: `.spec` has its keys, `.document` where each stands. Every question takes it.

    Also for a shipped kernel's name, and for `file.py:kernel` whose file states the types of its arguments.
    """
    from occupancy_cli.plan.kernel_input import read_kernel_input

    return read_kernel_input(str(path))


def asked_gpu(gpu: str | GpuProfile | None, profiles: Sequence[str | Path]) -> AskedGpu:
    """The GPU of a question (None: the default, but for config tables, which name theirs).

    An `InputError` for one that there is not, or a profile that no file has.
    """
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.gpu.gpu_profile import GpuProfile

    folders = tuple(Path(p) for p in ([profiles] if isinstance(profiles, (str, Path)) else profiles))
    if gpu is None or isinstance(gpu, str):
        asked = AskedGpu(gpu or DEFAULT_GPU, asked=gpu is not None, folders=folders)
        asked.profile()
        return asked
    if not isinstance(gpu, GpuProfile):
        raise InputError(f"a {type(gpu).__name__} names no GPU", where="gpu", hint='Such as "h200".')
    # Workers read the profile from its file: one that is only in memory would be another GPU there.
    own = (Path(gpu.path).parent,) if gpu.path else ()
    asked = AskedGpu(gpu.id, folders=(*own, *folders))
    if asked.profile() != gpu:
        problem = f"the profile {gpu.id} in memory is not what its file says"
        raise InputError(problem, where="gpu", hint="Write it to a file and name its folder in profiles.")
    return asked


def _with_notes(report: Report, notes: tuple[str, ...]) -> Report:
    return dataclasses.replace(report, notes=[*report.notes, *notes]) if notes else report


def _with_batch(settings: Mapping[str, Any] | None, batch: Batches | None) -> dict[str, Any]:
    sets = dict(settings or {})
    if batch is not None:
        if "batch" in sets:
            raise InputError("batch is given twice", where='settings["batch"]')
        sets["batch"] = list(batches_of(batch))
    return sets


def batches_of(batch: Batches | None) -> tuple[int, ...]:
    """Batches as numbers."""
    from occupancy_cli.spec.settings import parse_range

    if batch is None:
        return ()
    text = batch if isinstance(batch, str) else ",".join(map(str, [batch] if isinstance(batch, int) else batch))
    return parse_range(text, f"batch {text}")


def _workload(
    batch: Batches | None, mix: Mapping[int, float] | None, lengths: str | Sequence[int] | None, cold: bool
) -> Workload:
    """What a recommendation is for; the rules are the command line's."""
    from occupancy_cli.answers.workload import Workload
    from occupancy_cli.spec.traffic import parse_lengths, parse_mix

    batches = batches_of(batch)
    shares = None if mix is None else parse_mix(",".join(f"{b}:{share:.9f}" for b, share in mix.items()))
    if shares is not None:
        if batches:
            raise InputError("batch and mix are given both", where="mix", hint="mix names the batches.")
        batches = tuple(shares)
    text = lengths if lengths is None or isinstance(lengths, str) else ",".join(map(str, lengths))
    if text is not None and not text.startswith("uniform:"):
        count = len(parse_lengths(text))
        if batches not in ((), (count,)):
            raise InputError(f"{count} lengths for batch {batches}", where="lengths")
        batches = (count,)
    return Workload(batches, shares, text, cold)
