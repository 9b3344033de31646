"""The end of every command: the Report in the form asked for, then its exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from occupancy_cli.cli.options import Format

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report
    from occupancy_cli.report.view import View


def show(report: Report, output_format: Format, view: View | None = None) -> None:
    """Print a Report on standard output and end with its exit code."""
    print_report(report, output_format, view)
    end(report)


def print_report(report: Report, output_format: Format, view: View | None = None) -> None:
    """Print a Report on standard output."""
    if output_format is Format.json:
        sys.stdout.write(report.to_json() + "\n")
        return
    from occupancy_cli.report.terminal import render
    from occupancy_cli.report.terminal.console import make_console
    from occupancy_cli.report.view import WHOLE

    render(report, make_console(), view or WHOLE)


def end(report: Report) -> None:
    """End the command with the exit code that the Report has."""
    if report.exit_code:
        raise typer.Exit(report.exit_code)
