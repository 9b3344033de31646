"""`occupancy completion`: what a shell sources to complete commands, options and their values."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Shell(str, enum.Enum):
    """A shell whose completion typer knows."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]) -> None:
    """Print the completion script of a shell.

    bash: put eval "$(occupancy completion bash)" into ~/.bashrc. zsh: write it to a file _occupancy in a folder of
    fpath. fish: write it to ~/.config/fish/completions/occupancy.fish.
    """
    from typer._completion_shared import get_completion_script

    typer.echo(
        get_completion_script(prog_name="occupancy", complete_var="_OCCUPANCY_COMPLETE", shell=shell.value).strip()
    )
