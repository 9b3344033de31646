"""A baseline: the file that a run writes, and what a later run makes of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.answers.baseline import (
    BaselineRequest,
    Result,
    held_to,
    lock_text,
    parse_tolerances,
    read_lock,
    result_of,
    write_lock,
)
from occupancy_cli.errors import InputError
from occupancy_cli.report.schema import Finding, Toolchain

TOOLS = Toolchain(occupancy="1", triton="3.9.0", ptxas="12.9")


def result(block: int, source: str = "kernels/ops.yaml", gpu: str = "h200-sxm", **figures: float) -> Result:
    about: dict[str, Any] = {
        "kernel": "scale",
        "gpu": gpu,
        "config": {"BLOCK": block, "num_warps": 4, "num_ctas": 1},
        "knobs": {},
        "source": source,
        "file": source,
        "line": 3,
    }
    shown: dict[str, float | None] = {"shared_bytes": 1024 * block, "registers_per_thread": 32, "ctas_per_sm": 2}
    return result_of(about, gpu, {**shown, "predicted_time_us": 10.0, "waves": None, **figures})


RUN = [result(64), result(128), result(64, gpu="b200-sxm"), result(64, source="other/k.yaml")]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A baseline of `RUN` in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("occupancy.lock.json")
    assert held_to(BaselineRequest(path, "write"), None, RUN, [], TOOLS) == ([], [f"{path}: 4 results written"])
    return path


def compared(
    lock: Path, run: list[Result], findings: tuple[Finding, ...] = (), tools: Toolchain = TOOLS, **request: Any
) -> tuple[list[tuple[str, str]], list[str]]:
    made = held_to(BaselineRequest(lock, **request), read_lock(lock), run, findings, tools)
    return [(f.level, f.message) for f in made[0]], made[1]


def test_the_file_has_a_line_a_config_and_the_same_bytes_again(lock: Path) -> None:
    text = lock.read_text()
    figures = '{"shared_bytes": 65536, "registers_per_thread": 32, "ctas_per_sm": 2, "predicted_time_us": 10.0}'
    assert f'"BLOCK 64, num_warps 4": {figures}\n' in text
    assert list(json.loads(text)["results"]) == ["kernels/ops.yaml scale", "other/k.yaml scale"]
    held_to(BaselineRequest(lock, "write"), None, list(reversed(RUN)), [], TOOLS)
    assert lock.read_text() == text


def test_names_are_seen_from_the_file(lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another folder the same kernels have other paths, and it is the same baseline."""
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    there = Path("../occupancy.lock.json")
    moved = [result(64, "ops.yaml"), result(128, "ops.yaml"), result(64, "ops.yaml", gpu="b200-sxm")]
    assert compared(there, moved, covered=("ops.yaml",)) == ([], [])
    before = there.read_text()
    write_lock(there, lock_text(there, {r.key: r.figures for r in [*moved, result(64, "../other/k.yaml")]}, TOOLS))
    assert there.read_text() == before


def test_nothing_changed_is_nothing_said(lock: Path) -> None:
    assert compared(lock, RUN) == ([], [])


@pytest.mark.parametrize(
    ("figures", "level", "says"),
    [
        ({"registers_per_thread": 40}, "violation", "registers_per_thread 32 -> 40"),
        ({"ctas_per_sm": 1}, "violation", "ctas_per_sm 2 -> 1"),
        ({"ctas_per_sm": 3}, "note", "ctas_per_sm 2 -> 3"),
        ({"shared_bytes": 1024}, "note", "shared_bytes 65,536 -> 1,024"),
        ({"predicted_time_us": 10.2}, "violation", "predicted_time_us 10.0 -> 10.2"),  # 2 % more; 1 % is tolerated
        ({"shared_bytes": 1024, "registers_per_thread": 33}, "violation", "registers_per_thread 32 -> 33"),
    ],
)
def test_worse_is_a_violation_and_better_a_note(lock: Path, figures: dict[str, float], level: str, says: str) -> None:
    ((found, message),), _ = compared(lock, [result(64, **figures), *RUN[1:]])
    assert found == level
    assert says in message


@pytest.mark.parametrize(
    ("figures", "tolerances", "found"),
    [
        ({"predicted_time_us": 10.1}, {}, 0),  # just 1 %
        ({"predicted_time_us": 10.2}, {"predicted_time_us": 2.0}, 0),
        ({"predicted_time_us": 10.2}, {"predicted_time_us": 1.9}, 1),
        ({"registers_per_thread": 33}, {"registers_per_thread": 5.0}, 0),  # 3.1 %
    ],
)
def test_what_is_tolerated(lock: Path, figures: dict[str, float], tolerances: dict[str, float], found: int) -> None:
    assert len(compared(lock, [result(64, **figures), *RUN[1:]], tolerances=tolerances)[0]) == found


def test_new_and_gone_are_undecided_until_they_are_taken_in(lock: Path) -> None:
    run = [*RUN[1:3], result(256)]
    found, _ = compared(lock, run)
    assert [(level, "is not in" in text, "not judged now: BLOCK 64" in text) for level, text in found] == [
        ("undecided", True, False),
        ("undecided", False, True),
        ("undecided", False, True),
    ]
    before = lock.read_text().splitlines()
    assert compared(lock, run, action="update") == ([], [f"{lock}: 0 changed, 1 new, 2 gone"])
    assert compared(lock, run) == ([], [])
    # What did not change is as it was, to the byte.
    kept = [line for line in lock.read_text().splitlines() if '"BLOCK 128' in line]
    assert [line.rstrip(",") for line in kept] == [line.rstrip(",") for line in before if '"BLOCK 128' in line]


def test_a_gpu_that_is_judged_has_one_name(lock: Path) -> None:
    """Keys have ids, findings the GPUs' names: what is gone must not look like another GPU."""
    run = [dataclasses.replace(r, about={**r.about, "gpu": "H200 SXM"}) for r in RUN[:1]]
    found, _ = held_to(BaselineRequest(lock), read_lock(lock), run, (), TOOLS)
    assert {f.gpu for f in found} == {"H200 SXM", "b200-sxm"}


@pytest.mark.parametrize(
    ("covered", "gone"),
    [
        ((), 2),
        (("kernels",), 1),
        (("kernels/ops.yaml",), 1),
        (("kernels/*.yaml",), 1),
        (("./kernels/",), 1),
        ((".",), 2),
        (("third",), 0),
    ],
)
def test_a_run_of_a_part_misses_nothing_of_the_rest(lock: Path, covered: tuple[str, ...], gone: int) -> None:
    assert len(compared(lock, RUN[1:3], covered=covered)[0]) == gone
    whole = tuple(str(Path.cwd() / name) for name in covered)  # as a script may give them
    assert len(compared(lock, RUN[1:3], covered=whole)[0]) == gone


def test_what_could_not_be_judged_stays_in_the_baseline(lock: Path) -> None:
    failed = Finding(level="undecided", kernel="", gpu="", config={}, rule="input", message="x", source="other/k.yaml")
    assert compared(lock, RUN[:3], (failed,)) == ([], [])
    before = lock.read_text()
    assert compared(lock, RUN[:3], (failed,), action="update")[1] == [f"{lock}: 0 changed, 0 new, 0 gone"]
    assert lock.read_text() == before


def test_other_tools_are_named(lock: Path) -> None:
    tools = Toolchain(occupancy="1", triton="3.10.0", ptxas="12.9")
    assert compared(lock, RUN, tools=tools)[1] == [f"{lock} was made with other tools: Triton 3.9.0 -> 3.10.0"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{\n<<<<<<< HEAD\n", "lock:2: has a merge conflict in it\nWrite it anew: occupancy check --write-baseline"),
        ("[]", "is no baseline"),
        ("{", "is no baseline"),
        ('{"schema": "x"}', "schema is 'x'"),
        ('{"schema": "occupancy/lock/1"}', "is no baseline"),
        ('{"schema": "occupancy/lock/1", "results": {"a b": {"g": {"c": {"waves": "1"}}}}}', "waves is '1'"),
        ('{"schema": "occupancy/lock/1", "results": {"a b": {"g": {"c": {"wave": 1}}}}}', "wave is 1"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(InputError) as bad:
        read_lock(path)
    assert says in str(bad.value)


def test_a_baseline_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_lock(tmp_path / "occupancy.lock.json")


@pytest.mark.parametrize("text", ["waves", "waves=", "waves=-1", "waves=x", "waves=inf", "wave=1"])
def test_tolerances_are_percentages_of_figures(text: str) -> None:
    assert parse_tolerances(["waves=5", "shared_bytes=0.5%"]) == {"waves": 5.0, "shared_bytes": 0.5}
    with pytest.raises(InputError):
        parse_tolerances([text])
