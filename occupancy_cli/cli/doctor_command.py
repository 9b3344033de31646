"""`occupancy doctor`: what this installation has, and what each missing part disables."""

from __future__ import annotations

import json
from typing import Any

import typer

from occupancy_cli.cli import options
from occupancy_cli.cli.console import Format


def doctor(output_format: options.FormatOption = Format.table) -> None:
    """Versions of Python, Triton and ptxas, Triton's internals, cubin tools, cache, GPU: what is there, what is not.

    Exit code 2 when kernels cannot be compiled here, 0 otherwise.
    """
    from occupancy_cli.compile.health import examine

    findings = examine()
    if output_format is Format.json:
        data: dict[str, Any] = {"schema": "occupancy/doctor/1", "parts": [f.as_dict() for f in findings]}
        typer.echo(json.dumps(data, indent=2))
    else:
        from occupancy_cli.cli.console import make_console, make_table

        table = make_table("part", "", "found", "without it")
        for finding in findings:
            table.add_row(finding.part, "ok" if finding.ok else "missing", finding.found, finding.disables)
        make_console().print(table)
    if any(not f.ok and f.needed for f in findings):
        raise typer.Exit(2)
