"""A Report as rows of plain values: what `to_pandas`, `to_arrow`, CSV and a page's tables are made from.

    [{"kernel": "sparse_mla_decode", "batch": 80, "BLOCK_H": 32, "num_warps": 4, "status": "ok",
      "shared_bytes": 50176, "registers_per_thread": 255, "ctas_per_sm": 2, "waves": 0.64, ...}, ...]

One row a config, a batch and setting, a finding, a GPU or a way of choosing, by what the Report has. Names are those of
the Report's parts, with their units; a value that is not known is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from occupancy_cli.errors import OccupancyError

if TYPE_CHECKING:
    from occupancy_cli.report.choice_parts import Choice
    from occupancy_cli.report.kernel_parts import Config, Kernel
    from occupancy_cli.report.report import Report

Row = dict[str, Any]
SIDES = ("default", "recommended", "best")
_CHOICES = ("default", "chosen", "runner_up")
_RESOURCES = ("shared_bytes", "registers_per_thread", "spill_bytes")
_OCCUPANCY = ("ctas_per_sm", "warps_per_sm", "percent")
_LAUNCH = ("ctas", "slots", "waves", "tail_percent", "efficiency_percent")
_SIDE = ("nsplit", "predicted_time_us", "ctas_per_sm", "waves", "efficiency_percent", "requests_per_s")


def rows_of(report: Report) -> list[Row]:
    """The rows of the first part that the Report has; every row has the same names, in the same order.

    An `OccupancyError` for a Report of which no table can be made.
    """
    for field, make in _TABLES.items():
        if getattr(report, field):
            return _squared(make(report))
    raise OccupancyError(f"a Report of `{report.command}` has no table", hint="`to_json` has all that it says.")


def _squared(rows: Sequence[Row]) -> list[Row]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _picked(part: Any, names: Sequence[str]) -> Row:
    return {name: getattr(part, name, None) for name in names}


def _config_rows(report: Report) -> list[Row]:
    gpu = report.gpu.id if report.gpu else None
    return [_config_row(kernel, config, gpu) for kernel in report.kernels for config in kernel.configs]


def _config_row(kernel: Kernel, config: Config, gpu: str | None) -> Row:
    occupancy, time = config.occupancy, config.time
    return {
        "kernel": kernel.name,
        "gpu": gpu,
        **config.shapes,
        **config.knobs,
        **config.given,
        **config.config,
        "status": config.status,
        "fits": config.fits,
        "over_bytes": config.over_bytes,
        **_picked(config.resources, _RESOURCES),
        **_picked(occupancy, _OCCUPANCY),
        "limited_by": ", ".join(occupancy.limited_by) if occupancy else None,
        **_picked(config.launch, _LAUNCH),
        **({} if time is None else {"predicted_time_us": time.time_us, "binding": time.binding}),
        "reason": config.reason,
    }


def _choice_rows(report: Report) -> list[Row]:
    return [
        _choice_row(found.batch, side, choice)
        for found in report.recommendations
        for side in _CHOICES
        if (choice := getattr(found, side)) is not None
    ]


def _choice_row(batch: int, side: str, choice: Choice) -> Row:
    return {
        "batch": batch,
        "setting": side,
        **choice.knobs,
        **choice.config,
        **_picked(choice, ("nsplit", "predicted_time_us", "ctas_per_sm", "warps_per_sm", "partials_bytes", "binding")),
        **_picked(choice.launch, _LAUNCH),
    }


def sweep_rows(report: Report) -> list[Row]:
    """A row a batch and side of a sweep."""
    knobs = list(dict.fromkeys(n for p in report.sweep for n in {**p.best.knobs, **p.best.config}))
    found = []
    for point in report.sweep:
        for name in SIDES:
            side = getattr(point, name)
            if side is not None:
                values = {**side.knobs, **side.config}
                chosen = {n: values.get(n) for n in knobs}
                found.append({"batch": point.batch, "setting": name, **chosen, **_picked(side, _SIDE)})
    return found


def _finding_rows(report: Report) -> list[Row]:
    return [
        {n: v for n, v in _flat(finding).items() if n not in ("config", "knobs")} | {**finding.knobs, **finding.config}
        for finding in report.findings
    ]


def _entry_rows(report: Report) -> list[Row]:
    return [
        {"kernel": table.kernel, **{n: v for n, v in _flat(entry).items() if not isinstance(v, dict)}}
        | {**entry.names, **entry.config}
        for table in report.tables
        for entry in table.entries
    ]


def _calculation_rows(report: Report) -> list[Row]:
    found = report.calculation
    assert found is not None
    if found.ranges:
        ranges = [_flat(each) | {"limited_by": ", ".join(each.limited_by)} for each in found.ranges]
        return [{"over": found.over, **row} for row in ranges]
    gpu = report.gpu.id if report.gpu else None
    limits = {f"{n}_limit_ctas": v for n, v in found.occupancy.limits.items()}
    return [
        {"gpu": gpu, "fits": found.fits, **_flat(found.resources), **_picked(found.occupancy, _OCCUPANCY), **limits}
        | {"limited_by": ", ".join(found.occupancy.limited_by)}
    ]


def _gpu_rows(report: Report) -> list[Row]:
    names = ("id", "name", "compute_capability", "limits_only")
    return [
        _picked(gpu, names)
        | {n: v.value for n, v in {**gpu.values, **gpu.limits}.items() if not isinstance(v.value, list)}
        for gpu in report.gpus
    ]


def _regret_rows(report: Report) -> list[Row]:
    found = report.comparison
    assert found is not None
    asked = {"split": found.splits, "config and split": found.settings}
    return [{"choice_of": what, **_flat(regret)} for what, regrets in asked.items() for regret in regrets]


def _flat(part: Any) -> Row:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


# A field of the Report -> what makes rows of it, the first that is there.
_TABLES: Mapping[str, Callable[[Report], list[Row]]] = {
    "kernels": _config_rows,
    "sweep": sweep_rows,
    "recommendations": _choice_rows,
    "findings": _finding_rows,
    "tables": _entry_rows,
    "calculation": _calculation_rows,
    "gpus": _gpu_rows,
    "comparison": _regret_rows,
}
