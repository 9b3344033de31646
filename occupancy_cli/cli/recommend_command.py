"""`occupancy recommend`: what to set, for one batch or several."""

from __future__ import annotations

import enum
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.compiling import CompileOptions, compiles
from occupancy_cli.cli.show import end, show
from occupancy_cli.errors import InputError

if TYPE_CHECKING:
    from occupancy_cli.answers.by_spec import AskedGpu
    from occupancy_cli.report.report import Report


class Emit(str, enum.Enum):
    """What `--emit` prints; see `report.emit`."""

    exports = "exports"
    configs = "configs"
    prune = "prune"
    table = "table"
    function = "function"


@dataclass(frozen=True)
class _Question:
    """What is asked, as it was typed; what `--check-emitted` asks again."""

    kernel: str | None
    batch: str | None
    gpu: AskedGpu
    sets: list[str] | None
    mix: str | None
    lengths: str | None
    cold: bool
    calibration: Path | None

    def answer(self, how: CompileOptions) -> Report:
        """The Report."""
        from occupancy_cli.answers.by_spec import recommend_spec
        from occupancy_cli.plan.kernel_input import read_kernel_input

        given = read_kernel_input(self.kernel)
        values = options.settings_beside(self.sets, batch=self.batch, mix=self.mix, lengths=self.lengths)
        workload = options.workload_of(self.batch, self.mix, self.lengths, self.cold)
        with how.service() as service:
            return recommend_spec(given, self.gpu, service, values, workload, self.calibration)


_NAMES = ("kernel", "batch", "gpu", "sets", "mix", "lengths", "cold", "calibration", "emit", "hw_profiles")


@compiles
def recommend(
    context: typer.Context,
    kernel: options.KernelArgument = None,
    batch: options.BatchOption = None,
    gpu: options.GpuOption = options.DEFAULT_GPU,
    sets: options.SetOption = None,
    mix: options.MixOption = None,
    lengths: options.LengthsOption = None,
    cold: options.ColdOption = False,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Measured factors on the model's terms: what `calibrate` wrote."),
    ] = None,
    emit: Annotated[
        Emit | None,
        typer.Option(
            "--emit",
            help="Print only this: exports, configs (triton.Config list without those that cannot launch), "
            "prune (an early_config_prune), table (batch -> setting as JSON), function (the same as Python).",
        ),
    ] = None,
    check_emitted: Annotated[
        Path | None,
        typer.Option(
            "--check-emitted",
            metavar="FILE",
            help="Whether a file that --emit wrote is still what it would write, asked as its head says: exit code 0 "
            "or 1, 2 where that cannot be decided.",
        ),
    ] = None,
    output_format: options.FormatOption = options.Format.table,
    hw_profiles: options.ProfilesOption = None,
    *,
    how: CompileOptions,
) -> None:
    """The knobs and config with the shortest predicted time, beside what is set now, and why.

    What is set now: the spec's defaults, or the environment variables that set its knobs. A knob given by --set keeps
    that value. For several batches the best of each, and the best single setting for all.
    """
    if check_emitted is not None:
        _check(context, check_emitted, output_format, how)
        return
    target = options.asked_gpu(context, gpu, hw_profiles)
    report = _Question(kernel, batch, target, sets, mix, lengths, cold, calibration).answer(how)
    if emit is None:
        show(report, output_format)
        return
    from occupancy_cli.cli.made_by import made_by
    from occupancy_cli.report.emit import emitted

    sys.stdout.write(emitted(emit.value, report, made_by(_words(context))))
    end(report)


def _words(context: typer.Context) -> list[str]:
    """The question as it can be typed again: what was given of it, without how it is compiled and shown."""
    words = ["recommend"]
    for parameter in context.command.params:
        name = str(parameter.name)
        source, value = context.get_parameter_source(name), context.params.get(name)
        if name not in _NAMES or source is None or source.name != "COMMANDLINE":
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif value is True:
            words.append(_option(parameter))
        else:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [_option(parameter), str(getattr(one, "value", one))]
    return words


def _option(parameter: Any) -> str:
    return str(next(name for name in parameter.opts if name.startswith("--")))


def _check(context: typer.Context, file: Path, output_format: options.Format, how: CompileOptions) -> None:
    """Ask again what the head of an emitted file says, and compare."""
    from occupancy_cli.cli.made_by import made_by
    from occupancy_cli.report.emit import checked, read_head

    if len(given := _words(context)) > 1:
        problem = f"the question is the one in the head of the file, and {shlex.join(given[1:])} is given too"
        raise InputError(problem, where=f"--check-emitted {file}")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        said = bad.strerror if isinstance(bad, OSError) else "it is not UTF-8"
        raise InputError(f"cannot be read: {said}", where=f"--check-emitted {file}") from None
    asked, emit, words = _asked_in(context, read_head(text, str(file))["command"], str(file))
    report = asked.answer(how)
    found = checked(text, str(file), emit.value, report, made_by(words))
    show(replace(report, recommendation=None, recommendations=[], single_setting=None, emitted=found), output_format)


def _asked_in(context: typer.Context, command: str, file: str) -> tuple[_Question, Emit, Sequence[str]]:
    """The question of a command in a file's head, which may have the question's options and no other."""
    where, hint = f"{file}: command", "It is what `recommend ... --emit FORM` wrote."
    try:
        words = shlex.split(command)
    except ValueError as bad:
        raise InputError(f"{command!r} cannot be read: {bad}", where=where, hint=hint) from None
    known = {_option(p) for p in context.command.params if p.name in _NAMES and p.param_type_name == "option"}
    wrong = [word for word in words[2:] if word.startswith("-") and word not in known]
    if words[:2] != ["occupancy", "recommend"] or wrong or "--emit" not in words:
        what = f"{wrong[0]} is none of the question's options" if wrong else f"{command!r} is no such command"
        raise InputError(what, where=where, hint=hint)
    inner: Any = context.command.make_context("recommend", words[2:])
    values: dict[str, Any] = inner.params
    folders = [Path(each) for each in values["hw_profiles"] or ()]
    calibration = values["calibration"]
    asked = _Question(
        values["kernel"],
        values["batch"],
        options.asked_gpu(inner, values["gpu"], folders),
        list(values["sets"] or ()),
        values["mix"],
        values["lengths"],
        bool(values["cold"]),
        None if calibration is None else Path(calibration),
    )
    emit = values["emit"]
    return asked, Emit(getattr(emit, "value", emit)), words[1:]
