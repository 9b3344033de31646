"""What every command takes, in words: made from the commands themselves, for the man page and the site's reference.

    pages()[1].name                    # "analyze"
    pages()[1].options[0]              # ("--batch <str>", "Sets the shape `batch`: 80, or 48,64,80, or 1:128.")
    man_page()                         # roff, as `man -l` reads it

Nothing here knows an option of a command: a new one is in both as soon as it is in the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from occupancy_cli.version import VERSION

EXIT_CODES = (
    ("0", "Done; of a check: everything holds."),
    ("1", "A check found a violation: something does not fit, a budget or the baseline is broken, figures differ."),
    ("2", "It cannot be decided: bad input, something is missing, a config that does not compile."),
    ("130", "Interrupted."),
    ("141", "What read the output has gone."),
)
_IN_SHORT = "what launches of Triton kernels need, how full they make a GPU, and what to set, without a GPU"
ENVIRONMENT = (
    ("OCCUPANCY_CACHE_DIR", "Folder of the result cache. Default: ~/.cache/occupancy."),
    ("OCCUPANCY_HW_PROFILES", "Folders of GPU profiles that add to the shipped ones, a list as in PATH."),
    ("OCCUPANCY_DEBUG", "Set to 1, an error that nobody foresaw prints its traceback."),
    ("NO_COLOR, FORCE_COLOR", "No colours; colours where the output is no terminal."),
)


@dataclass(frozen=True)
class CommandPage:
    """A command: its usage, what it does, and each argument and option with its help.

    `text` is in paragraphs, the first of them the summary; `name` is empty for `occupancy` itself.
    """

    name: str
    usage: str
    text: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        return f"occupancy {self.name}".rstrip()


def pages() -> list[CommandPage]:
    """`occupancy` itself, then every command in the order of `--help`."""
    import typer

    from occupancy_cli.cli.app import app

    group: Any = typer.main.get_command(app)
    return [_page("", group), *(_page(name, group.commands[name]) for name in group.commands)]


def _page(name: str, command: Any) -> CommandPage:
    title = f"occupancy {name}".rstrip()
    settings = {"help_option_names": ["-h", "--help"]}
    with command.make_context(title, [], resilient_parsing=True, **settings) as context:
        usage = " ".join([title, *command.collect_usage_pieces(context)])
        records = [(p.param_type_name, p.get_help_record(context)) for p in command.get_params(context)]
        return CommandPage(
            name=name,
            usage=usage,
            text=_paragraphs(command.help or ""),
            arguments=tuple(record for kind, record in records if kind == "argument" and record),
            options=tuple(record for kind, record in records if kind == "option" and record),
        )


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def man_page() -> str:
    """The manual of section 1, every command in it."""
    own, *commands = pages()
    lines = [
        f'.TH OCCUPANCY 1 "" "occupancy {VERSION}" "User Commands"',
        ".SH NAME",
        f"occupancy \\- {_roff(_IN_SHORT)}",
        ".SH SYNOPSIS",
        f".B {_roff(own.usage)}",
        ".SH DESCRIPTION",
        *_running_text(own.text),
        *_tagged(own.options),
        ".SH COMMANDS",
    ]
    for command in commands:
        lines += [f".SS {_roff(command.name)}", f".B {_roff(command.usage)}", *_running_text(command.text, ".PP")]
        lines += _tagged((*command.arguments, *command.options))
    lines += [".SH EXIT STATUS", *_tagged(EXIT_CODES), ".SH ENVIRONMENT", *_tagged(ENVIRONMENT)]
    return "\n".join(lines) + "\n"


def _running_text(paragraphs: Iterable[str], before: str = "") -> list[str]:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += [*([before or ".PP"] if lines or before else []), _roff(paragraph)]
    return lines


def _tagged(entries: Iterable[tuple[str, str]]) -> list[str]:
    return [line for term, text in entries for line in (".TP", f".B {_roff(term)}", _roff(" ".join(text.split())))]


def _roff(text: str) -> str:
    """A line of text that roff prints as it is: no escape, no request at its start, hyphens that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
