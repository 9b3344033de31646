"""The Report, `occupancy/report/1`: what every command found, in one form that every renderer reads.

    {"schema": "occupancy/report/1", "command": "analyze", "toolchain": {...}, "gpu": {...}, "kernels": [...], ...}

A command fills the parts that its question has; the others are null or empty. `occupancy schema report` prints all of
it as a JSON Schema. Units are in the names; shared memory is in bytes. A value that is not known is null, and `unknown`
or `notes` beside it says why. Fields are only ever added within version 1.

Parts are plain frozen dataclasses, checked by the type checker: what builds a Report is this tool, and a schema that
also validates takes longer to set up than the rest of a run whose results are known (`schema` makes pydantic read them
where that is asked for). Each lies in the module of its matter, which a run imports when it makes such a part.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from occupancy_cli.errors import MissingDependencyError
from occupancy_cli.report.part_values import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATION
from occupancy_cli.report.visible_text import steers

if TYPE_CHECKING:
    from occupancy_cli.report.audit_parts import Audit
    from occupancy_cli.report.calculation_parts import Calculation
    from occupancy_cli.report.capture_parts import Capture
    from occupancy_cli.report.check_parts import CheckRun
    from occupancy_cli.report.choice_parts import (
        Anchor,
        EmittedFile,
        Recommendation,
        SingleSetting,
        Subject,
        SurfacePoint,
        SweepPoint,
    )
    from occupancy_cli.report.device_parts import Device, GpuFacts, MeasuredGpu, Verification
    from occupancy_cli.report.diff_parts import Diff
    from occupancy_cli.report.fit_parts import Fit
    from occupancy_cli.report.installation_parts import Cache, Installation
    from occupancy_cli.report.kernel_parts import ConfigTables, Finding, Kernel
    from occupancy_cli.report.machine_parts import Gpu, Toolchain
    from occupancy_cli.report.measured_parts import CalibrationFit, Comparison, Measurement
    from occupancy_cli.report.source_parts import Knobs, Skeleton

SCHEMA: Literal["occupancy/report/1"] = "occupancy/report/1"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a command found."""

    schema_: Literal["occupancy/report/1"] = field(default=SCHEMA, metadata={"alias": "schema"})
    command: str
    toolchain: Toolchain
    gpu: Gpu | None = None
    kernels: list[Kernel] = field(default_factory=list)
    subject: Subject | None = None
    recommendation: Recommendation | None = None
    recommendations: list[Recommendation] = field(default_factory=list)
    single_setting: SingleSetting | None = None
    emitted: EmittedFile | None = None
    sweep: list[SweepPoint] = field(default_factory=list)
    surface: list[SurfacePoint] = field(
        default_factory=list, metadata={"description": "the least time of each number of splits at each batch"}
    )
    anchor: Anchor | None = None
    findings: list[Finding] = field(default_factory=list)
    check: CheckRun | None = None
    tables: list[ConfigTables] = field(default_factory=list)
    calculation: Calculation | None = None
    gpus: list[GpuFacts] = field(default_factory=list)
    devices: list[Device] | None = None
    fit: Fit | None = None
    diffs: list[Diff] = field(default_factory=list)
    measured_gpu: MeasuredGpu | None = None
    knobs: Knobs | None = None
    skeleton: Skeleton | None = None
    audit: Audit | None = None
    capture: Capture | None = None
    verification: Verification | None = None
    measurement: Measurement | None = None
    calibration: CalibrationFit | None = None
    comparison: Comparison | None = None
    cache: Cache | None = None
    installation: Installation | None = None
    notes: list[str] = field(default_factory=list, metadata={"prose": True})
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """130 when interrupted, else 1 when something is violated, else 2 when something is undecided, else 0.

        Each part says so of itself by `exit_code`; one that does not is no question of passing.
        """
        if self.interrupted:
            return EXIT_INTERRUPTED
        codes = set()
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            for part in value if isinstance(value, list) else [value]:
                codes.add(getattr(part, "exit_code", EXIT_OK))
        if self.devices is not None and not self.devices:
            codes.add(EXIT_UNDECIDED)
        return next((code for code in (EXIT_VIOLATION, EXIT_UNDECIDED) if code in codes), EXIT_OK)

    def to_json(self) -> str:
        """The report as indented JSON."""
        return json_text(self, indent=2)

    def rows(self) -> list[dict[str, Any]]:
        """Its main table as rows of plain values: a row a config, a batch and setting, a finding (`flat_rows`)."""
        from occupancy_cli.report.flat_rows import rows_of

        return rows_of(self)

    def to_pandas(self) -> Any:
        """`rows` as a `pandas.DataFrame`."""
        try:
            from pandas import DataFrame
        except ImportError as missing:
            raise _needs("pandas", "to_pandas") from missing
        return DataFrame(self.rows())

    def to_arrow(self) -> Any:
        """`rows` as a `pyarrow.Table`."""
        try:
            from pyarrow import Table
        except ImportError as missing:
            raise _needs("pyarrow", "to_arrow") from missing
        return Table.from_pylist(self.rows())

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100) -> str:
        """What the command prints on a terminal of `width` columns, without colours."""
        from io import StringIO

        from rich.console import Console

        from occupancy_cli.report.terminal import render

        out = StringIO()
        render(self, Console(file=out, width=width, markup=False, highlight=False, emoji=False, no_color=True))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"

    def __rich_console__(self, console: Any, _options: Any) -> Iterator[Any]:
        """What the command prints, for `rich.print` and rich's consoles."""
        from occupancy_cli.report.terminal import renderables

        yield from renderables(self, console)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from occupancy_cli.report.html.notebook import fragment

        return str(fragment(self))


def _needs(package: str, method: str) -> MissingDependencyError:
    hint = f"Install it: python -m pip install {package}"
    return MissingDependencyError(f"Report.{method} needs the package `{package}`", hint=hint)


def json_text(part: Any, *, indent: int | None = None) -> str:
    """A part as JSON: letters of every language as they are, what a terminal would obey as \\uXXXX."""
    text = json.dumps(plain(part), indent=indent, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1] if steers(found[0]) else found[0], text)


# JSON itself escapes the control characters below these.
_NOT_ASCII = re.compile(r"[^\x00-\x7e]")


def plain(value: Any) -> Any:
    """A part as JSON-ready data, keys as the schema names them; what is not finite becomes null."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if dataclasses.is_dataclass(value):
        return {f.metadata.get("alias", f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value
