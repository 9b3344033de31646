"""A sweep over batch as CSV: a row a batch and setting.

batch,setting,BLOCK_H,num_warps,nsplit,predicted_time_us,ctas_per_sm,waves,efficiency_percent,requests_per_s
80,default,32,4,3,51.2,1,1.277,63.83,1562500.0
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from occupancy_cli.report.flat_rows import sweep_rows
from occupancy_cli.report.visible_report import visible_part

if TYPE_CHECKING:
    from occupancy_cli.report.report import Report


def as_csv(report: Report) -> str:
    """One row a batch and side, with every figure."""
    rows = sweep_rows(visible_part(report))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return out.getvalue()
