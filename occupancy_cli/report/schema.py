"""Every part of a Report by its name, and all of it as a JSON Schema.

    schema.Config(...)        loads `kernel_parts`, and no other module of parts
    json_schema()             the schema that `report.schema.json`, in this folder, is made from

The published file is made anew by `python -m occupancy_cli.report.schema`; a test holds it to what the classes say.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_cli.report.part_values import Scalar
from occupancy_cli.report.report import SCHEMA, Report

if TYPE_CHECKING:
    from occupancy_cli.report.check_parts import CheckRun
    from occupancy_cli.report.choice_parts import (
        Anchor,
        Choice,
        EmittedFile,
        Recommendation,
        SingleSetting,
        Subject,
        SweepPoint,
        SweepSide,
    )
    from occupancy_cli.report.explain_parts import (
        AccessCause,
        Buffer,
        MemoryAccess,
        OperationRange,
        OptionTried,
        RegisterHolder,
        RegisterLine,
        RegisterUse,
        SharedMemoryMap,
        SourceText,
        SpillLine,
    )
    from occupancy_cli.report.kernel_parts import (
        Config,
        ConfigTables,
        EntryStatus,
        Error,
        Finding,
        Follower,
        Instead,
        Kernel,
        Level,
        TableEntry,
    )
    from occupancy_cli.report.machine_parts import Gpu, Toolchain
    from occupancy_cli.report.occupancy_parts import Launch, NextCta, Occupancy, Resources, Time

__all__ = [
    "SCHEMA",
    "AccessCause",
    "Anchor",
    "Buffer",
    "CheckRun",
    "Choice",
    "Config",
    "ConfigTables",
    "EmittedFile",
    "EntryStatus",
    "Error",
    "Finding",
    "Follower",
    "Gpu",
    "Instead",
    "Kernel",
    "Launch",
    "Level",
    "MemoryAccess",
    "NextCta",
    "Occupancy",
    "OperationRange",
    "OptionTried",
    "Recommendation",
    "RegisterHolder",
    "RegisterLine",
    "RegisterUse",
    "Report",
    "Resources",
    "Scalar",
    "SharedMemoryMap",
    "SingleSetting",
    "SourceText",
    "SpillLine",
    "Subject",
    "SweepPoint",
    "SweepSide",
    "TableEntry",
    "Time",
    "Toolchain",
    "json_schema",
    "report_from_json",
]

PUBLISHED = Path(__file__).with_name("report.schema.json")
# Where a name is looked for, those that most runs load first.
MODULES = (
    "machine_parts",
    "occupancy_parts",
    "kernel_parts",
    "check_parts",
    "explain_parts",
    "fit_parts",
    "diff_parts",
    "choice_parts",
    "calculation_parts",
    "audit_parts",
    "capture_parts",
    "device_parts",
    "installation_parts",
    "measured_parts",
    "source_parts",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in MODULES:
            parts = import_module(f"occupancy_cli.report.{module}")
            if hasattr(parts, name):
                globals()[name] = getattr(parts, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _adapter(part: str) -> Any:
    """Pydantic's view of a part, for which the names in the fields' types have to be known where they are read."""
    import sys

    from pydantic import TypeAdapter

    names: dict[str, Any] = {}
    homes = [vars(sys.modules[Report.__module__])]
    for module in MODULES:
        homes.append(vars(import_module(f"occupancy_cli.report.{module}")))
        names |= homes[-1]
    parts = {n: v for n, v in names.items() if isinstance(v, type)}
    for home in homes:
        home.update({n: v for n, v in parts.items() if n not in home})
    return TypeAdapter(names.get(part, Report))


def report_from_json(text: str) -> Report:
    """The Report that `to_json` wrote, checked against the schema."""
    report: Report = _adapter("Report").validate_json(text)
    return report


def json_schema(part: str = "Report") -> dict[str, Any]:
    """The JSON Schema of the Report, or of another part: `CalculatedRow` is a line of `calc --input`."""
    made: dict[str, Any] = _adapter(part).json_schema(by_alias=True)
    return made


def published_text() -> str:
    """What the published file has to hold."""
    import json

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(published_text(), encoding="utf-8")
