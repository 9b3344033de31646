"""`fit` on a made-up compiler: what it takes and holds follows from a formula, so that the smallest change is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report_schema import valid_report
from small_gemm import small_gemm
from typer.testing import CliRunner

from occupancy_cli.answers import fit as fitting
from occupancy_cli.answers.fit import Goal, fit
from occupancy_cli.cli.app import app
from occupancy_cli.compile.kept_readings import KeptReadings
from occupancy_cli.compile.kernel_explanation import KernelExplanation
from occupancy_cli.compile.kernel_record import EXPLANATION_VERSION, KeptExplanation, KernelDescription, Parameter
from occupancy_cli.compile.request import CompileOutcome, CompileRequest, KernelSource, Target
from occupancy_cli.compile.typed_json import to_json
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.readers.shared_map import SharedBuffer, SharedMap
from occupancy_cli.readers.ttgir import SourceLine
from occupancy_cli.report.fit_parts import Fit
from occupancy_cli.spec.settings import parse_settings

KERNEL = """
import triton
@triton.jit
def gemm(a_ptr, BLOCK, TILE):
    pass
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: gemm.py:gemm
knobs:
  TILE: {default: 64, values: [TILES]}
configs:
  product:
    BLOCK: [BLOCKS]
    num_warps: [4, 8]
    num_stages: [3]
grid: [400]
arguments: {a_ptr: "*bf16"}
work: {iterations: 64, bytes_per_iteration: 64 * BLOCK}
"""
SOURCE = (SourceLine("gemm.py", 4),)


class MadeUp:
    """A compile service: BLOCK x TILE x 2 bytes a stage, TILE * BLOCK / threads registers and 40 more, cut at 128 by
    spilling unless maxnreg says where."""

    triton, cache, interrupted = "3.9.0", None, False

    def __init__(self) -> None:
        self.compiled: list[dict[str, Any]] = []

    def readings(self) -> KeptReadings:
        return KeptReadings(None)

    def describe(self, source: KernelSource, target: Target) -> KernelDescription:
        names = [("a_ptr", False), ("BLOCK", True), ("TILE", True)]
        params = tuple(Parameter(n, constexpr, "", None, False, True) for n, constexpr in names)
        return KernelDescription("gemm", params, None, ())

    def compile_all(self, requests: Sequence[CompileRequest], *, keep_in: Path | None = None) -> list[CompileOutcome]:
        return [self._compile(request) for request in requests]

    def _compile(self, request: CompileRequest) -> CompileOutcome:
        given = {**dict(request.constexprs), **dict(request.options)}
        self.compiled.append({n: v for n, v in given.items() if v is not None})
        shared = given["BLOCK"] * given["TILE"] * 2 * given.get("num_stages", 3)
        warps = given.get("num_warps", 4)
        wanted = 40 + given["BLOCK"] * given["TILE"] // (32 * warps)
        most = given.get("maxnreg") or 128
        registers, spilled = min(wanted, most), max(0, wanted - most) * 4
        buffer = SharedBuffer(0, shared, True, (given["BLOCK"],), "bf16", given.get("num_stages", 3), "pipelined load",
                              "a", 1, 9, SOURCE)  # fmt: skip
        explained = KernelExplanation(SharedMap(shared, 10, (), (buffer,)), None, {"gemm.py:4": "a = tl.load(a_ptr)"})
        kept = KeptExplanation(to_json(explained), EXPLANATION_VERSION)
        if request.stop_above is not None and shared > request.stop_above:
            return CompileOutcome(KernelResources(shared, warps, 32 * warps), explanation=kept)
        return CompileOutcome(KernelResources(shared, warps, 32 * warps, registers, spilled), explanation=kept)


def _fit(
    folder: Path, goal: Goal, *, tiles: str = "32, 64", blocks: str = "64, 128", sets: Sequence[str] = (), **given: Any
) -> tuple[Fit, MadeUp]:
    (folder / "gemm.py").write_text(KERNEL)
    (folder / "gemm.yaml").write_text(SPEC.replace("TILES", tiles).replace("BLOCKS", blocks))
    service = MadeUp()
    kernel = read_kernel_input(str(folder / "gemm.yaml"))
    report = fit(kernel, load_gpu("rtx-pro-6000"), service, parse_settings(sets), goal, **given)  # type: ignore[arg-type]
    assert report.fit is not None
    return report.fit, service


def _changes(found: Fit) -> list[dict[str, Any]]:
    return [{c.name: c.after for c in p.changes} for p in found.proposals]


def test_the_smallest_single_changes_are_found_and_what_they_shrink(tmp_path: Path) -> None:
    # 128 x 64 x 2 bytes x 3 stages = 49,152; three CTAs leave (102,400 / 3 - 1,024) down to 128s: 33,024 bytes.
    found, _ = _fit(tmp_path, Goal(ctas=3), chosen="BLOCK=128,num_warps=4")
    assert found.base.shared_bytes == 49_152 and found.base.ctas_per_sm == 2
    # Two stages take 32,768; one would go further for nothing. Half a tile: 24,576. num_warps changes no byte.
    assert {tuple(c.items()) for c in _changes(found)} == {
        (("num_stages", 2),), (("TILE", 32),), (("BLOCK", 64),),
    }  # fmt: skip
    stages = next(p for p in found.proposals if p.changes[0].name == "num_stages")
    assert (stages.buffers[0].before_bytes, stages.buffers[0].after_bytes) == (49_152, 32_768)
    assert stages.buffers[0].said == "shrank by 16,384, 3 copies became 2"
    assert stages.buffers[0].source_after is not None and stages.buffers[0].source_after.text == "a = tl.load(a_ptr)"
    assert all(p.ctas_per_sm >= 3 and p.reaches for p in found.proposals)
    assert found.exit_code == 0


def test_proposals_are_ranked_by_predicted_time(tmp_path: Path) -> None:
    found, _ = _fit(tmp_path, Goal(ctas=3), chosen="BLOCK=128,num_warps=4")
    times = [p.time_us for p in found.proposals]
    assert None not in times and times == sorted(times, key=float)  # type: ignore[arg-type]


def test_the_answer_is_the_same_from_any_order(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, _ = _fit(tmp_path / "one", Goal(ctas=3), chosen="BLOCK=128,num_warps=4")
    given = {"tiles": "64, 32", "blocks": "128, 64", "chosen": "BLOCK=128,num_warps=4"}
    other, _ = _fit(tmp_path / "other", Goal(ctas=3), **given)
    assert one == other


def test_two_changes_where_one_is_not_enough_and_none_that_leads_away(tmp_path: Path) -> None:
    # Seven CTAs leave 13,568 bytes: no change of 49,152 alone, but 64 x 32 x 2 x 3 = 12,288.
    found, service = _fit(tmp_path, Goal(ctas=7), chosen="BLOCK=128,num_warps=4")
    assert {"BLOCK": 64, "TILE": 32} in _changes(found)
    assert all(len(p.changes) == 2 for p in found.proposals)
    # BLOCK 256 is twice the tile: it leads away, and is tried alone.
    assert sum(c["BLOCK"] == 256 for c in service.compiled) == 1


def test_registers_are_held_to_what_the_goal_leaves(tmp_path: Path) -> None:
    # 40 + 64 * 64 / 256 = 56 registers at 8 warps: 65,536 / (56 * 32 * 8) = 4 CTAs; five take 48 or fewer at 8 warps.
    found, _ = _fit(tmp_path, Goal(ctas=5), chosen="BLOCK=64,num_warps=8", sets=["num_stages=1", "TILE=64"])
    by_name = {c.name: (p, c) for p in found.proposals for c in p.changes}
    proposal, change = by_name["maxnreg"]
    assert change.after == 48 and proposal.registers_per_thread == 48
    assert proposal.spill_bytes == (56 - 48) * 4 and "32 more bytes spilled a thread" in " ".join(proposal.costs)


def test_no_spills(tmp_path: Path) -> None:
    # 40 + 128 * 128 / 128 = 168 registers, 128 of them there: 160 bytes spilled. Twice the warps or half a tile: none.
    sets = ["TILE=128", "num_stages=1"]
    found, _ = _fit(tmp_path, Goal(no_spills=True), tiles="64, 128", chosen="BLOCK=128,num_warps=4", sets=sets)
    assert found.base.spill_bytes == 160
    assert {tuple(c) for c in _changes(found)} == {("BLOCK",), ("num_warps",)}


def test_fits_starts_from_what_does_not(tmp_path: Path) -> None:
    # 256 x 128 x 2 x 3 = 196,608 bytes, over the cap of 101,376.
    found, _ = _fit(tmp_path, Goal(), tiles="32, 128", blocks="32, 256", sets=["TILE=128"])
    assert found.base.values["BLOCK"] == 256 and not found.base.reaches
    assert found.proposals and all(p.shared_bytes <= 101_376 for p in found.proposals)


def test_a_goal_that_is_reached_already_compiles_one_config(tmp_path: Path) -> None:
    found, service = _fit(tmp_path, Goal(ctas=2), chosen="BLOCK=128,num_warps=4")
    assert found.base.reaches and not found.proposals and len(service.compiled) == 1 and found.exit_code == 0


def test_what_stands_in_the_way_where_nothing_reaches_it(tmp_path: Path) -> None:
    sets = ["TILE=64", "num_stages=3"]
    found, _ = _fit(tmp_path, Goal(ctas=9), chosen="BLOCK=128,num_warps=4", sets=sets)
    # BLOCK 64, the least there is at this tile but for 32: nine CTAs leave 10,240 bytes, 64 x 64 x 2 x 3 is 24,576.
    assert not found.proposals and found.exit_code == 1
    assert found.nearest is not None and found.nearest.values["BLOCK"] == 64
    assert (found.nearest.short_of, found.nearest.short_by) == ("shared", 24_576 - 10_240)
    assert found.in_the_way is not None and found.in_the_way.what == "a, pipelined load"
    assert found.in_the_way.source is not None and found.in_the_way.source.line == 4


def test_what_the_bound_leaves_out_is_undecided(tmp_path: Path) -> None:
    found, service = _fit(tmp_path, Goal(ctas=9), chosen="BLOCK=128,num_warps=4", limit=3)
    assert len(service.compiled) == 1 + 3 and found.left_out > 0 and found.exit_code == 2


def test_more_ctas_than_an_sm_has_are_refused_without_a_search(tmp_path: Path) -> None:
    found, service = _fit(tmp_path, Goal(ctas=32), chosen="BLOCK=128,num_warps=4")
    assert len(service.compiled) == 1 and "no kernel has so many CTAs" in found.reason and found.exit_code == 1


@pytest.mark.compiles
@pytest.mark.one_triton
def test_every_proposal_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    # Three stages of two tiles of 64 x 64 BF16 take 49,152 bytes at most: 4 CTAs leave 24,576 - 1,024.
    command = ["fit", *small_gemm(tmp_path), "--ctas", "4", "--limit", "4", "--format", "json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, (done.output, done.exception)
    found = valid_report(done.stdout)["fit"]
    assert found["base"]["ctas_per_sm"] < 4
    proposal = next(p for p in found["proposals"] if [c["name"] for c in p["changes"]] == ["num_stages"])
    assert proposal["ctas_per_sm"] >= 4 and proposal["shared_bytes"] <= 23_552
    assert {b["source_after"]["text"].partition(" ")[0] for b in proposal["buffers"] if b["source_after"]} >= {"a", "b"}


def test_a_goal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ([], ["--fits", "--ctas", "2"]):
        done = CliRunner().invoke(app, ["fit", *given])
        assert isinstance(done.exception, InputError) and "--no-spills" in str(done.exception)


def test_the_default_bound_is_the_commands() -> None:
    from inspect import signature

    from occupancy_cli.cli.fit_command import fit as command

    assert signature(command).parameters["limit"].default == fitting.DEFAULT_LIMIT
