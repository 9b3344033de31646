"""What a CTA loads is found for the arguments of each launch, and of many launches as of each alone."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occupancy_cli.answers.analyze import compile_points
from occupancy_cli.answers.candidate_times import CandidateTimes, compile_tables
from occupancy_cli.answers.workload import Workload, candidate_of
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.kept_readings import KeptReadings
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.cta_work import CtaWork
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.launch_loads import Loads
from occupancy_cli.plan.launch_work import argument_values, timing_of, work_of
from occupancy_cli.plan.point_table import candidate_tables
from occupancy_cli.plan.points import make_point
from occupancy_cli.plan.prepared_kernel import prepare

H200 = load_gpu("h200")
ROWS, COLUMNS = 32, 64
KERNELS = {
    # Rows past the end are masked off.
    "masked": ("rows[:, None] < batch", "rows"),
    # Rows past the end come round again: their bytes are the first rows', loaded once.
    "wrapped": ("rows[:, None] >= 0", "rows % batch"),
    # The rows of a request that are left after `skip`, of which there are as many as the batch.
    "skipped": ("(rows[:, None] >= skip) & (columns[None, :] < width)", "rows"),
}
SOURCE = """
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["batch", "skip", "width"])
def copy_rows(x_ptr, y_ptr, batch, skip, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    inside = {mask}
    x = tl.load(x_ptr + ({place})[:, None] * COLUMNS + columns[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + (tl.program_id(0) * ROWS + rows)[:, None] * COLUMNS + columns[None, :], x)
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: rows.py:copy_rows
shapes: {{batch: 8, skip: 3, width: 50}}
constexprs: {{ROWS: {rows}, COLUMNS: {columns}}}
configs: [{{num_warps: 4}}]
grid: [batch]
arguments:
  x_ptr: "*fp32"
  y_ptr: "*fp32"
  batch: {{type: i32, value: batch}}
  skip: {{type: i32, value: {skip}}}
  width: {{type: i32, value: width}}
"""


def loaded_bytes(kind: str, batch: int, skip: int, width: int) -> float:
    """What one CTA loads and stores, element by element."""
    rows, columns = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    places = rows * COLUMNS + columns
    if kind == "masked":
        read = places[rows < batch]
    elif kind == "wrapped":
        read = (rows % batch) * COLUMNS + columns
    else:
        read = places[(rows >= skip) & (columns < width)]
    return 4.0 * np.unique(read).size + 4.0 * places.size


@pytest.fixture(scope="module")
def service() -> Iterator[CompileService]:
    with CompileService(limits=Limits(120, 0), jobs=1, cache=ResultCache()) as one:
        yield one


def write(folder: Path, kind: str) -> Path:
    mask, place = KERNELS[kind]
    (folder / "rows.py").write_text(SOURCE.format(mask=mask, place=place))
    spec = folder / "rows.yaml"
    skip = "batch // 2" if kind == "skipped" else "skip"
    spec.write_text(SPEC.format(rows=ROWS, columns=COLUMNS, skip=skip))
    return spec


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("kind", KERNELS)
def test_bytes_are_those_of_each_launch(kind: str, tmp_path: Path, service: CompileService) -> None:
    """One binary; launches in an order by chance, so that none may be given the bytes of the one before it."""
    kernel = prepare(read_kernel_input(str(write(tmp_path, kind))), H200, service.describe, {}, {})
    chance = random.Random(kind)
    settings = [
        {"batch": chance.randint(2, 2 * ROWS), "skip": chance.randint(2, 20), "width": chance.randint(2, 2 * COLUMNS)}
        for _ in range(12)
    ]
    points = [make_point(kernel, H200, each, {"num_warps": 4}, {}, None) for each in settings]
    compiled = compile_points(kernel, H200, service, points, timed=True)
    assert len({point.main.request.identity_text() for point in points}) == 1
    for each, analyzed in zip(settings, compiled, strict=True):
        skip = each["batch"] // 2 if kind == "skipped" else each["skip"]
        work = work_of(kernel, H200, analyzed.point.main, analyzed.outcomes[0])
        assert work.prologue_bytes is not None and work.epilogue_bytes is not None
        expected = loaded_bytes(kind, each["batch"], skip, each["width"])
        assert work.prologue_bytes + work.epilogue_bytes == expected, each
    # Of many launches at once, every one gets what it gets alone, and few are read: where the batch is beyond the tile,
    # one reading stands for all.
    found = timing_of(H200, compiled[0].outcomes[0])
    assert found is not None
    columns = {
        name: None if value is None else np.array([argument_values(p.main)[name] for p in points])
        for name, value in argument_values(points[0].main).items()
    }
    together = Loads(found.ir)
    seen: dict[int, CtaWork] = {}
    for rows, work in together.by_rows(columns, np.arange(len(points))):
        seen |= dict.fromkeys(rows.tolist(), work)
    assert sorted(seen) == list(range(len(points)))
    for row, work in seen.items():
        assert work == Loads(found.ir).at(argument_values(points[row].main))
    if kind == "masked":
        distinct = {min(each["batch"], ROWS) for each in settings}
        assert together.readings == len(distinct)
    # A later run reads nothing of what this one read, and what is damaged in the cache is read anew.
    cache = ResultCache(tmp_path / "readings")
    first = KeptReadings(cache)
    by_row = dict(_by_row(Loads(found.ir, first), columns, len(points)))
    first.flush()
    later = Loads(found.ir, KeptReadings(ResultCache(tmp_path / "readings")))
    before = later.readings
    assert before and dict(_by_row(later, columns, len(points))) == by_row == seen
    assert later.readings == before
    with sqlite3.connect(cache.path) as file:
        file.execute("UPDATE derived SET payload = replace(payload, '4', '5')")
    assert Loads(found.ir, KeptReadings(ResultCache(tmp_path / "readings"))).readings == 0


def _by_row(loads: Loads, columns: dict[str, Any], rows: int) -> Iterator[tuple[int, CtaWork]]:
    for these, work in loads.by_rows(columns, np.arange(rows)):
        yield from ((row, work) for row in these.tolist())


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_sweep_times_each_batch_by_its_own_bytes(tmp_path: Path, service: CompileService) -> None:
    """Batches 5, 40 and 3 share a binary; in one table each has the time that it has alone."""
    kernel = prepare(read_kernel_input(str(write(tmp_path, "masked"))), H200, service.describe, {}, {})
    batches = [5, 40, 3]
    compiled, _ = compile_tables(H200, service, candidate_tables(kernel, H200, batches, {}, None))
    times = CandidateTimes(kernel, H200, compiled, batches, lambda _: (), None, True)
    memory_us, at_most_us = {}, {}
    for position, batch in enumerate(batches):
        (which,) = times.of_batch(position).tolist()
        point = make_point(kernel, H200, {"batch": batch, "skip": 3, "width": 50}, {"num_warps": 4}, {}, None)
        (alone,) = compile_points(kernel, H200, service, [point], timed=True)
        candidate, why = candidate_of(kernel, H200, batch, alone, Workload(cold=True))
        assert candidate is not None, why
        work = candidate.launches[0].work
        assert work.prologue_bytes == 4.0 * min(batch, ROWS) * COLUMNS
        scored = times.timed(which, candidate)
        memory_us[batch] = scored.estimates[0].terms["memory_us"]
        at_most_us[batch] = batch * (work.prologue_bytes + 4.0 * ROWS * COLUMNS) / 4.8e6 / 0.3
        again = CandidateTimes(
            kernel,
            H200,
            compile_tables(H200, service, candidate_tables(kernel, H200, [batch], {}, None))[0],
            [batch],
            lambda _: (),
            None,
            True,
        )
        assert again.time_us(0) == times.time_us(which)
    # Over the first answer of memory, which all wait for, the bytes of a batch's own rows.
    assert memory_us[3] < memory_us[5] < memory_us[40]
    assert memory_us[40] - memory_us[3] <= at_most_us[40]
