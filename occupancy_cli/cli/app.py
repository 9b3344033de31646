"""The `occupancy` command: registers the commands, and turns errors into one sentence and an exit code.

Exit codes: 0 done (and for `check`: everything holds), 1 a check found a violation, 2 it cannot be decided (bad input,
something missing, a compile that failed), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from occupancy_cli.cli.process_ends import (
    READER_GONE,
    ReaderGone,
    debugging,
    drop_output,
    finish_streams,
    prepare_streams,
)
from occupancy_cli.errors import OccupancyError, nearest, sentence
from occupancy_cli.report.visible_text import visible_lines
from occupancy_cli.version import VERSION

# typer carries its own click from some version on: its exception classes are found through the one it exports.
_NO_CHOICE = re.compile(r"'(?P<given>[^']*)' is not one of (?P<valid>'.*')")
_UsageError, _ClickException = cast("tuple[type[Exception], ...]", typer.BadParameter.__mro__[1:3])

# In the order of `--help`, with what it says of each: a line of 80 columns, so that it need not import the command.
# Each is the function of that name in the module of that name.
COMMANDS = {
    "analyze": "Bytes, registers, spills, CTAs per SM and waves of each config.",
    "explain": "Which lines hold bytes and registers, waste them, take the time.",
    "fit": "The smallest changes of a config that reach a goal.",
    "watch": "What `analyze` says, and what each save of the file changes.",
    "diff": "Two configs, GPUs, files, revisions or Tritons, line by line.",
    "recommend": "What to set, what that gains, how sure, and why.",
    "sweep": "Predicted time and waves over batch, of now and of the best.",
    "report": "A page: does it fit, how full is the GPU, what to set.",
    "plot": "One chart, for a paper or a pull request.",
    "check": "The gate: shared-memory cap, budgets and baseline; for CI.",
    "calc": "Occupancy from threads, registers and shared memory.",
    "gpus": "The known GPUs with sources; check or measure this machine's.",
    "init": "Write a commented spec of a kernel.",
    "knobs": "What tunes the kernels: environment, constexprs, configs.",
    "audit": "What a Triton cache holds that one more CTA per SM would help.",
    "verify": "Compare what was compiled with this machine's CUDA driver.",
    "measure": "Time launches over the candidates, on this machine's GPU.",
    "calibrate": "Fit the model's terms to measured times.",
    "compare": "Regret of the recommendation on your own measurements.",
    "schema": "JSON Schema of the report, the spec, or pyproject's table.",
    "cache": "Show the result cache, verify or clear it.",
    "doctor": "What is there, what is missing, and how to get it.",
    "capture": "Run a script without a GPU; each launch becomes a spec.",
    "completion": "The completion script of a shell.",
    "manual": "The man page: occupancy manual | man -l -",
    "mcp": "Serve the answers to an MCP client on standard input, output.",
    "guide": "Which question to ask first, and which next.",
}


class _Commands(Mapping[str, Any]):
    """The commands by name. Each is imported and built when it is asked for: a run needs one of them."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._built:
            module = import_module(f"occupancy_cli.cli.{name}_command")
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name, context_settings=getattr(module, "CONTEXT_SETTINGS", None))(getattr(module, name))
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """A group whose commands are `_Commands`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("Any", _Commands())

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of `--help`, without importing what it lists."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="occupancy",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Before touching a GPU: does each config of a Triton kernel fit, how many CTAs and warps per SM, "
        "how many waves, and what to set. Compiles for the target on any machine."
    ),
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"occupancy {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    return None


def main() -> None:
    """Run the command line; never a traceback for what a person typed or the machine lacked."""
    prepare_streams()
    code: Any = 0
    try:
        try:
            code = app(standalone_mode=False)
        finally:  # before the interpreter does it, whose own words would be a traceback
            finish_streams()
    except OccupancyError as bad:
        _fail(str(bad), bad.exit_code)
    except ReaderGone:
        drop_output()
        sys.exit(READER_GONE)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except _ClickException as bad:
        if type(bad).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{bad}\n")
            sys.exit(2)
        _fail(_usage(bad), 2)
    except Exception as bad:  # noqa: BLE001 - the one place that must answer for everything
        if debugging():
            traceback.print_exception(bad)
        _fail(sentence(bad), 2)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(bad: Any) -> str:
    """A usage error in one sentence, with the nearest option or command."""
    message: str = bad.format_message().replace(": Value error, ", ": ")  # of pydantic, by which typer checks values
    context = getattr(bad, "ctx", None)
    if not isinstance(bad, _UsageError):
        return message
    if context is not None and "Did you mean" not in message and "Possible options" not in message:
        named = getattr(bad, "option_name", None)
        valid = [o for p in context.command.params for o in p.opts if o.startswith("--")]
        if message.startswith("No such command"):
            named, valid = message.partition("'")[2].rpartition("'")[0], context.command.list_commands(context)
        elif choice := _NO_CHOICE.search(message):
            named, valid = choice["given"], re.findall(r"'([^']*)'", choice["valid"])
        close = nearest(named, valid) if named else []
        message += f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{message}\nSee: {context.command_path if context else 'occupancy'} --help"


def _fail(message: str, code: int) -> None:
    drop_output()
    with contextlib.suppress(OSError):
        sys.stderr.write(f"occupancy: {visible_lines(message)}\n")
        sys.stderr.flush()
    sys.exit(code)
