"""`occupancy schema`: the JSON Schemas of what this tool reads and writes."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer


class SchemaName(str, enum.Enum):
    """What `occupancy schema` prints."""

    report = "report"
    spec = "spec"
    project = "project"


def schema(
    name: Annotated[
        SchemaName,
        typer.Argument(help="report: what --format json prints; spec: a kernel spec; project: [tool.occupancy]."),
    ] = (SchemaName.report),
) -> None:
    """Print a JSON Schema: of the report, of the kernel spec, or of [tool.occupancy] in pyproject.toml."""
    if name is SchemaName.report:
        from occupancy_cli.report.schema import json_schema

        printed = json_schema()
    elif name is SchemaName.project:
        from occupancy_cli.spec.project_settings import json_schema as project_schema

        printed = project_schema()
    else:
        from occupancy_cli.spec.kernel_spec import json_schema as spec_schema

        printed = spec_schema()
    typer.echo(json.dumps(printed, indent=2))
