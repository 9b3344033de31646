"""The entries of a spec's config tables as a check judges them, each at its own line of its own file.

violation  shared-memory-cap  tables/E=8,N=7168,device_name=NVIDIA_H200.json:12  grouped_gemm on H200 SXM, M 64, ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from occupancy_cli.answers import report_parts
from occupancy_cli.answers.analyze import AnalyzedPoint
from occupancy_cli.answers.baseline import Result, result_of
from occupancy_cli.answers.check_budgets import figures_of, judge_config
from occupancy_cli.answers.table_entries import Judged, Tables
from occupancy_cli.gpu.profiles import GpuProfile
from occupancy_cli.plan.check_selection import SelectedKernel, shown_path
from occupancy_cli.report import schema
from occupancy_cli.spec.budget_layers import Limit
from occupancy_cli.spec.config_tables import TableEntry


def table_results(selected: SelectedKernel, tables: Tables) -> Iterator[Result]:
    """What the entries of config tables came to, told apart by their file."""
    for judged in tables.judged:
        if judged.gpu is None or judged.point is None or judged.outcome is None or judged.outcome.resources is None:
            continue
        about = _about(selected, tables, judged, judged.gpu) | _place(judged.entry)
        analyzed = AnalyzedPoint(judged.point, (judged.outcome,))
        figures = figures_of(tables.kernel_on(judged.gpu), judged.gpu, analyzed)
        yield result_of(about, judged.gpu.id, figures, judged.entry.file.name)


def table_findings(
    selected: SelectedKernel,
    tables: Tables,
    limits_of: Callable[[GpuProfile, Mapping[str, Any]], Mapping[str, Limit]],
) -> Iterator[schema.Finding]:
    """What each entry comes to: where it holds at the spec's line, else at the line of the entry itself."""
    spec_place: dict[str, Any] = {"source": selected.file, "file": selected.file, "line": selected.line}
    unknown: dict[str, list[TableEntry]] = {}
    for judged in tables.judged:
        entry = judged.entry
        if judged.gpu is None:
            unknown.setdefault(judged.problem, []).append(entry)
            continue
        base, entry_place = _about(selected, tables, judged, judged.gpu), _place(entry)
        if judged.point is None or judged.outcome is None:
            yield schema.Finding(level="undecided", rule="config", message=judged.problem, **entry_place, **base)
            continue
        analyzed = AnalyzedPoint(judged.point, (judged.outcome,))
        limits = limits_of(judged.gpu, {**judged.config, **base["knobs"]})
        kernel = tables.kernel_on(judged.gpu)
        for finding, _ in judge_config(kernel, judged.gpu, analyzed, {}, True, limits, base):
            yield replace(finding, **(spec_place if finding.level == "ok" else entry_place))
    for problem, entries in unknown.items():
        files = len({e.file for e in entries})
        yield schema.Finding(
            level="undecided",
            kernel=tables.given.name,
            gpu=entries[0].device or "an unnamed GPU",
            config={},
            rule="gpu",
            message=f"{problem}: {len(entries):,} entries in {files:,} tables (see `devices`, or give --gpu)",
            **spec_place,
        )


def _about(selected: SelectedKernel, tables: Tables, judged: Judged, gpu: GpuProfile) -> dict[str, Any]:
    """What an entry's figures and findings say of the kernel and the config that they are of."""
    return {
        "kernel": tables.given.name,
        "gpu": gpu.name,
        "config": report_parts.scalars(judged.config),
        "knobs": {tables.table.key: judged.entry.key},
        "source": selected.file,
    }


def _place(entry: TableEntry) -> dict[str, Any]:
    return {"file": shown_path(str(entry.file)), "line": entry.line}
