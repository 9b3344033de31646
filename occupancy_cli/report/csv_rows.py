"""A sweep over batch as CSV: a row a batch and setting.

batch,setting,BLOCK_H,num_warps,nsplit,predicted_time_us,ctas_per_sm,waves,efficiency_percent,requests_per_s
80,default,32,4,3,51.2,1,1.277,63.83,1562500.0
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from occupancy_cli.report.visible_report import visible_part

if TYPE_CHECKING:
    from occupancy_cli.report.choice_parts import SweepSide
    from occupancy_cli.report.report import Report

_SIDES = ("default", "recommended", "best")


def as_csv(report: Report) -> str:
    """One row a batch and side, with every figure."""
    report = visible_part(report)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    knobs = list(dict.fromkeys(n for p in report.sweep for n in {**p.best.knobs, **p.best.config}))
    columns = ["nsplit", "predicted_time_us", "ctas_per_sm", "waves", "efficiency_percent", "requests_per_s"]
    writer.writerow(["batch", "setting", *knobs, *columns])
    for point in report.sweep:
        for name in _SIDES:
            side: SweepSide | None = getattr(point, name)
            if side is not None:
                values = {**side.knobs, **side.config}
                row = [values.get(n, "") for n in knobs]
                writer.writerow([point.batch, name, *row, *(getattr(side, c) for c in columns)])
    return out.getvalue()
