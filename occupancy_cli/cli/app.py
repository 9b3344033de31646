"""The `occupancy` command: registers the commands, and turns errors into one sentence and an exit code.

Exit codes: 0 done (and for `check`: everything holds), 1 a check found a violation, 2 it cannot be decided (bad input,
something missing, a compile that failed), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from occupancy_cli.cli import analyze, cache, calc, check, doctor, gpus, recommend, schema
from occupancy_cli.errors import OccupancyError, nearest
from occupancy_cli.version import VERSION

app = typer.Typer(
    name="occupancy",
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


for _command in (
    analyze.analyze,
    recommend.recommend,
    check.check,
    calc.calc,
    gpus.gpus,
    schema.schema,
    cache.cache,
    doctor.doctor,
):
    app.command()(_command)


def main() -> None:
    """Run the command line; never a traceback for what a person typed."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except OccupancyError as bad:
        _fail(str(bad), bad.exit_code)
    except click.UsageError as bad:
        _fail(_usage(bad), 2)
    except click.ClickException as bad:
        _fail(bad.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output went away: nothing to say, and nothing more to write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(bad: click.UsageError) -> str:
    message = bad.format_message()
    command = bad.ctx.command_path if bad.ctx else "occupancy"
    if isinstance(bad, click.NoSuchOption) and not bad.possibilities and bad.ctx is not None:
        valid = [o for p in bad.ctx.command.params for o in p.opts if o.startswith("--")]
        if close := nearest(bad.option_name, valid):
            message += f" Did you mean {' or '.join(close)}?"
    elif message.startswith("No such command") and bad.ctx is not None and isinstance(bad.ctx.command, click.Group):
        named = message.partition("'")[2].rpartition("'")[0]
        close = nearest(named, bad.ctx.command.commands)
        if close and "Did you mean" not in message:
            message += f" Did you mean {' or '.join(close)}?"
    return f"{message}\nSee: {command} --help"


def _fail(message: str, code: int) -> None:
    first, *rest = message.splitlines() or [""]
    print(f"occupancy: {first}", *rest, sep="\n", file=sys.stderr)  # noqa: T201
    sys.exit(code)
