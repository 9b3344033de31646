"""Every budget, broken by a real kernel, in every format; and how many ways banks conflict, from made-up accesses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from occupancy_cli.answers.access_parts import FollowedLaunch
from occupancy_cli.answers.by_spec import AskedGpu
from occupancy_cli.answers.check import CheckQuestion, check
from occupancy_cli.answers.check_conflicts import worst_of
from occupancy_cli.cli.app import app
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.kernel_explanation import KernelExplanation
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.plan.check_selection import select
from occupancy_cli.readers.accesses import COPY_LINES, DATA_ADDRESS, DATA_MASK, LIKE_NEIGHBOURS, Access, Accesses
from occupancy_cli.readers.shared_map import SharedMap
from occupancy_cli.readers.ttgir import SourceLine
from occupancy_cli.report.check_formats import FORMATS, text_of
from occupancy_cli.report.schema import Report
from occupancy_cli.spec.budget_layers import parse_budgets
from occupancy_cli.spec.kernel_spec import Budgets, build_models

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def gathered(x_ptr, y_ptr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + at)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + at, tl.gather(x, at * STEP % BLOCK, 0))


@triton.jit
def counted(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.histogram(tl.load(x_ptr + at), BLOCK))
"""
# The first config has conflicts, the second spills, the third needs 131,072 bytes of the 101,376 there are.
SPEC = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:gathered
arguments: {x_ptr: "*fp32", y_ptr: "*fp32"}
configs:
  - {BLOCK: 1024, STEP: 32, num_warps: 4}
  - {BLOCK: 8192, STEP: 1, num_warps: 1, maxnreg: 32}
  - {BLOCK: 32768, STEP: 1, num_warps: 16}
grid: [1]
check: {gpus: [rtx-pro-6000]}
"""
COUNTED = """\
schema: occupancy/kernel-spec/1
kernel: ops.py:counted
arguments: {x_ptr: "*i32", y_ptr: "*i32"}
configs: [{BLOCK: 256, num_warps: 4}]
grid: [1]
check: {gpus: [h200]}
"""
TIGHT = {
    "max_shared_bytes": 1,
    "max_registers_per_thread": 1,
    "max_spill_bytes": 0,
    "min_ctas_per_sm": 32,
    "min_warps_per_sm": 64,
    "min_wave_efficiency": 99,
    "max_predicted_time_us": 0.001,
    "max_bank_conflict_ways": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kernels and their specs, in the working directory."""
    made = tmp_path_factory.mktemp("budgets")
    (made / "ops.py").write_text(KERNEL)
    (made / "gathered.yaml").write_text(SPEC)
    (made / "counted.yaml").write_text(COUNTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        yield made


def checked(spec: str, **budgets: float) -> Report:
    question = CheckQuestion(after=parse_budgets([f"{name}={value}" for name, value in budgets.items()]))
    with CompileService(cache=ResultCache()) as service:
        return check(select([spec]), question, AskedGpu("rtx-pro-6000", asked=False), service)


@pytest.fixture(scope="module")
def broken(folder: Path) -> Report:
    """A run in which every budget and the cap are broken."""
    return checked("gathered.yaml", **TIGHT)


# --- each budget, in each format ---------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.one_triton
def test_every_budget_that_there_is_is_broken_below() -> None:
    build_models()
    assert set(TIGHT) | {"fits"} == set(Budgets.model_fields) - {"gpus", "configs", "batches"}


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("rule", ["shared-memory-cap", *TIGHT])
def test_a_broken_budget_fails_in_every_format(broken: Report, rule: str) -> None:
    """`fits`, which is that each config in use be within the cap, is broken by the cap."""
    report = dataclasses.replace(broken, findings=[f for f in broken.findings if f.rule == rule and f.level != "ok"])
    assert {f.level for f in report.findings} == {"violation"}
    assert report.exit_code == 1
    count = len(report.findings)
    text = {name: text_of(report, name) for name in FORMATS}
    head, *failing = (line for line in text["table"].splitlines() if line.startswith("FAIL "))
    assert len(failing) == count and f"{count} over budget" in head
    assert [f["rule"] for f in json.loads(text["json"])["findings"]] == [rule] * count
    *lines, last = map(json.loads, text["jsonl"].splitlines())
    assert ([line["rule"] for line in lines], last["exit_code"]) == ([rule] * count, 1)
    assert text["markdown"].count("| over budget |") == count
    assert text["github"].count("::error file=gathered.yaml,line=") == count
    issues = json.loads(text["gitlab"])
    assert [(i["check_name"], i["severity"], i["location"]["path"]) for i in issues] == [
        (rule, "major", "gathered.yaml")
    ] * count
    (run,) = json.loads(text["sarif"])["runs"]
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [(rule, "error")] * count
    assert run["tool"]["driver"]["rules"][0]["help"]["text"]
    assert ElementTree.fromstring(text["junit"]).get("failures") == str(count)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("name", FORMATS)
def test_the_command_ends_with_the_same_code_in_every_format(broken: Report, name: str) -> None:
    arguments = ["check", "gathered.yaml", "--budget", "max_registers_per_thread=1", "--format", name]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit), done.exception  # ended, not crashed, which would be 1 too
    assert done.exit_code == 1


# --- bank conflicts ----------------------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.one_triton
def test_conflicts_name_their_line(broken: Report) -> None:
    """Lane i gathers element 4 i x 32 modulo 1024 first: eight different words, all in bank 0."""
    (found,) = [f for f in broken.findings if f.rule == "max_bank_conflict_ways" and f.level == "violation"]
    assert found.config["STEP"] == 32
    assert found.required == 8
    assert found.message.startswith("8 ways of bank conflict at ops.py:10: tl.store(")
    assert "(LDS: 8 wavefronts an access, 1 at least), budget at most 4" in found.message


@pytest.mark.compiles
@pytest.mark.one_triton
def test_conflicts_that_data_decide_are_unknown(folder: Path) -> None:
    report = checked("counted.yaml", max_bank_conflict_ways=8)
    (found,) = [f for f in report.findings if f.rule == "max_bank_conflict_ways"]
    assert (found.level, report.exit_code) == ("undecided", 2)
    assert "ATOMS" in found.message and DATA_ADDRESS in found.message


def access(op: str, taken: float | None, least: float | None, unknown: str = "", *assumes: str) -> Access:
    return Access(16, op, 32, 64, taken, least, 0, 0, 0.0, 0.0, False, unknown, assumes)


def conflicts(*accesses: Access, limit: float, stopped: str = "") -> tuple[float | None, str]:
    followed = FollowedLaunch(Accesses(accesses, 8, 8, stopped), {16: (SourceLine("mm.py", 3),)})
    read = KernelExplanation(SharedMap(0, 0, (), ()), None, {"mm.py:3": "x"})
    ways, at, why = worst_of(followed, read).within(limit)
    return ways, at or why


NONE = access("STS.128", 4.0, 4.0)
TWO = access("LDS.64", 4.0, 2.0)
GATHERED = access("LDS", None, None, DATA_ADDRESS)


@pytest.mark.parametrize(
    ("accesses", "ways", "says"),
    [
        ((), 1.0, ""),
        ((NONE,), 1.0, ""),  # four wavefronts of 128 bytes for 32 lanes of 16
        ((NONE, TWO), 2.0, " at mm.py:3: x (LDS.64: 4 wavefronts an access, 2 at least)"),
        ((access("LDG.E", 0.0, 0.0), access("LDS", 0.0, 0.0)), 1.0, ""),  # not shared memory; never run
        ((NONE, GATHERED), None, f"LDS at mm.py:3: x: {DATA_ADDRESS}"),
        ((GATHERED, GATHERED, access("STS", 8.0, 1.0)), 8.0, "STS: 8 wavefronts"),  # broken, whatever else is
        ((access("STS", 8.0, 1.0, "", LIKE_NEIGHBOURS),), 8.0, "STS: 8"),
        ((access("STS", 8.0, 1.0, "", DATA_MASK),), None, DATA_MASK),
        ((access("STS", 1.0, 1.0, "", DATA_MASK),), None, DATA_MASK),
        ((access("LDGSTS.E.BYPASS.128", 8.0, 4.0, "", COPY_LINES),), 1.0, ""),  # 2 ways at most, 2 are asked for
        ((access("LDGSTS.E.BYPASS.128", 16.0, 4.0, "", COPY_LINES),), None, COPY_LINES),
    ],
)
def test_the_worst_access_counts_and_doubts_leave_it_open(
    accesses: tuple[Access, ...], ways: float | None, says: str
) -> None:
    found, text = conflicts(*accesses, limit=2.0)
    assert found == ways
    assert says in text


def test_what_was_not_followed_to_its_end_is_in_doubt() -> None:
    assert conflicts(NONE, limit=2.0, stopped="BRX is not followed") == (None, "BRX is not followed")


def test_a_launch_that_cannot_be_followed_is_in_doubt() -> None:
    nothing: Any = FollowedLaunch(None, {}, why="give its grid")
    found = worst_of(nothing, KernelExplanation(SharedMap(0, 0, (), ()), None, {}))
    assert found.within(2.0) == (None, "", "give its grid")
