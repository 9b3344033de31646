"""`occupancy calc`: one kernel as table and JSON, many as JSON Lines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from occupancy_cli import load_gpu, occupancy
from occupancy_cli.answers.calculated_rows import Count, answer_rows
from occupancy_cli.answers.report_parts import occupancy_part
from occupancy_cli.cli.calc_command import calc
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.report.report import plain

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(calc)
CASE = ["--threads", "128", "--regs", "168", "--shared", "61568"]


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(APP, list(arguments), input=stdin)
    if isinstance(result.exception, OccupancyError):
        raise result.exception
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


# One kernel -----------------------------------------------------------------------------------------------------------


def test_the_table_answers_at_a_glance() -> None:
    code, text, _ = run("--gpu", "5090", *CASE)
    assert code == 0
    shown = lines_of(text)
    assert shown[0] == "GeForce RTX 5090, CC 12.0, 170 SMs"
    assert shown[1] == "128 threads (4 warps), 168 registers per thread, 61,568 bytes of shared memory"
    assert shown[2] == "1 CTA per SM: 4 of 48 warps, 8.3 %, limited by shared memory"
    assert "shared memory 62,592 (61,568 + 1,024 system) 102,400 bytes 1 binds" in shown
    assert "registers 21,504 (4 warps x 5,376) 65,536 (4 x 16,384) 3" in shown
    assert "warps 4 48 12" in shown
    assert "CTAs 1 24 24" in shown
    assert "now 1 4 8.3 % 61,568 (+39,808) 168 (+87) 4 (+8)" in shown
    assert "2 8 16.7 % <= 50,176 (-11,392) as now as now" in shown
    assert "4 16 33.3 % <= 24,576 (-36,992) <= 128 (-40) <= 3 (-1)" in shown


def test_defaults_to_the_rtx_pro_6000_and_says_so() -> None:
    _, text, _ = run(*CASE)
    assert text.startswith("RTX PRO 6000 Blackwell Workstation Edition, CC 12.0, 188 SMs")


def test_a_refused_launch_says_why_and_what_would_do() -> None:
    code, text, _ = run("--num-warps", "4", "--shared", "104704")
    assert code == 0
    shown = lines_of(text)
    assert "cannot launch: 104,704 bytes of shared memory per CTA are 3,328 over the cap of 101,376 (CC 12.0)" in shown
    assert "unknown: the number of registers is not known, so neither is the limit they set" in shown
    assert "1 4 8.3 % <= 101,376 (-3,328) as now" in shown


def test_compute_capability_alone() -> None:
    _, text, _ = run("--gpu", "sm120", *CASE)
    assert "limits only, so no waves" in text


def test_sweep_charts_ranges_and_marks_now() -> None:
    _, text, _ = run("--gpu", "h200", "--threads", "128", "--regs", "168", "--shared", "0", "--sweep", "regs")
    shown = lines_of(text)
    # 32 registers: 1,024 a warp, 16 a sub-partition, 64 warps. 168: 5,376 a warp, 3 a sub-partition, 3 CTAs of 4 warps
    assert f"1 to 32 16 64 100.0 % {'█' * 40}" in shown
    assert f"129 to 168 3 12 18.8 % {'█' * 8} now" in shown  # 40 x 12 / 64 = 7.5, rounded to even: 8
    _, text, _ = run("--gpu", "5090", *CASE, "--sweep", "shared")
    assert f"50,177 to 101,376 1 4 8.3 % {'█' * 3} now" in lines_of(text)
    _, text, _ = run("--gpu", "5090", *CASE, "--sweep", "warps")
    assert len([line for line in lines_of(text) if "█" in line or "cannot launch" in line]) == 32


def test_full_width_when_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide, _ = run("--gpu", "5090", *CASE)
    monkeypatch.setenv("COLUMNS", "40")
    _, narrow, _ = run("--gpu", "5090", *CASE)
    assert wide == narrow and "…" not in wide and max(map(len, wide.splitlines())) > 80


def test_json_stands_alone_and_is_complete() -> None:
    code, text, errors = run("--gpu", "5090", *CASE, "--sweep", "regs", "--format", "json")
    answer = json.loads(text)
    assert code == 0 and errors == ""
    assert (answer["schema"], answer["command"]) == ("occupancy/report/1", "calc")
    gpu, found = answer["gpu"], answer["calculation"]
    assert (gpu["id"], gpu["name"], gpu["compute_capability"]) == ("rtx-5090", "GeForce RTX 5090", "12.0")
    assert gpu["sm_count"] == 170 and "sm_count" not in gpu["assumed"]
    assert found["fits"] and found["resources"]["shared_bytes"] == 61_568
    assert found["occupancy"]["ctas_per_sm"] == 1
    assert found["occupancy"]["limits"] == {"shared": 1, "registers": 3, "warps": 12, "ctas": 24}
    assert found["occupancy"]["next_cta"]["shared_bytes"] == 50_176
    assert [level["ctas_per_sm"] for level in found["cliffs"]] == list(range(1, 25))
    assert found["over"] == "registers" and found["ranges"][-1]["most"] == 255


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--threads", "128"], "--shared: is missing"),
        (["--shared", "1"], "--threads: is missing"),
        (["--threads", "128", "--num-warps", "4", "--shared", "1"], "given both"),
        (["--num-warps", "0", "--shared", "1"], "--num-warps: 0 is not possible"),
        (["--threads", "0", "--shared", "1"], "--threads: 0 is not possible"),
        (["--threads", "128", "--regs", "300", "--shared", "1"], "--regs: 300 is not possible: it is from 0 to 255"),
        (["--threads", "128", "--shared", "-1"], "--shared: -1 is not possible"),
        (["--threads", "128", "--shared", "1", "--tmem", "-1"], "--tmem: -1 is not possible"),
        (["--gpu", "h1000", "--threads", "128", "--shared", "1"], "unknown GPU 'h1000'"),
        (["--input", "no-such-file"], "--input: no-such-file cannot be read: No such file"),
        (["--input", "x", "--sweep", "regs"], "--sweep: a chart is of one kernel"),
    ],
)
def test_errors_name_the_option(arguments: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        run(*arguments)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


# Many kernels ---------------------------------------------------------------------------------------------------------


def answers(rows: list[Any], gpu: str = "rtx-pro-6000", **defaults: Any) -> tuple[list[dict[str, Any]], Count]:
    text = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    count = Count()
    return [json.loads(a) for a in answer_rows(text, defaults, load_gpu(gpu), load_gpu, count)], count


def test_a_row_is_answered_as_the_model_answers_it() -> None:
    row = {"threads": 128, "regs": 168, "shared": 61_568, "id": {"config": [1, "ä"]}}
    (found,), count = answers([row])
    one = occupancy(load_gpu("rtx-pro-6000"), threads_per_cta=128, registers_per_thread=168, shared_bytes=61_568)
    part = plain(occupancy_part(one))
    unsaid = {"slack", "tmem_columns", "tmem_columns_less"}  # the first for speed, the others as nothing is used
    part["next_cta"] = {k: v for k, v in part["next_cta"].items() if k not in unsaid}
    assert found == {
        "row": 1,
        "id": {"config": [1, "ä"]},
        "gpu": "rtx-pro-6000-workstation",
        "fits": True,
        "over_bytes": 0,
        "reason": "",
        "occupancy": {k: v for k, v in part.items() if k not in unsaid},
    }
    assert (count.rows, count.errors) == (1, 0)


def test_every_spelling_of_a_row() -> None:
    spellings = [
        {"threads": 128, "shared": 1000, "regs": 64},
        {"num_warps": 4, "shared": 1000, "regs": 64},
        {"num_warps": 4, "threads": 128, "shared": 1000, "regs": 64},
        {"threads_per_cta": 128, "shared_bytes": 1000, "registers_per_thread": 64},
        {"regs": 64, "shared": 1000, "threads": 128, "carveout": None, "num_ctas": 1, "tmem": 0, "static_shared": 0},
        {"threads": 128, "shared": 1000, "regs": 64, "gpu": "rtx-pro-6000"},
    ]
    found, count = answers(spellings)
    assert count.errors == 0
    for number, row in enumerate(found, start=1):
        assert row.pop("row") == number
        assert row == {k: v for k, v in found[0].items() if k != "row"}


def test_options_fill_what_rows_leave_out() -> None:
    (found,), _ = answers([{"regs": 64}], threads_per_cta=128, shared_bytes=60_000)
    assert found["occupancy"]["limited_by"] == ["shared"]
    (found,), _ = answers([{"threads": 32}], shared_bytes=0, registers_per_thread=255)
    assert found["occupancy"]["limits"]["registers"] == 8  # 2 warps a sub-partition


def test_bad_rows_keep_their_place_and_nothing_is_lost() -> None:
    rows: list[Any] = [
        {"threads": 128, "regs": 168, "shared": 61_568},
        "not json",
        "",
        {"threads": 128, "regs": 300, "shared": 1, "id": 7},
        {"threads": 0, "shared": 1},
        {"threads": 128, "reg": 3, "shared": 1},
        {"threads": 128, "regs": 3},
        [1],
        {"threads": 1056, "shared": 1},
        {"threads": 128, "shared": 1e3},
        {"threads": 128, "shared": 10**30},
        {"threads": True, "shared": 1},
        {"threads": 128, "shared": 1, "gpu": "h900"},
        {"threads": 128, "shared": 1, "gpu": 5},
        {"threads": 128, "shared": 1, "regs": -1},
        {"threads": 128, "shared": 1, "carveout": -1},
        {"threads": 128, "shared": 1, "num_ctas": 0},
        {"threads": 128, "shared": None},
        {"threads": 128, "shared": 1, "shared_bytes": 1},
        {"threads": 128, "num_warps": 5, "shared": 1},
        {"num_warps": "4", "shared": 1},
        "   ",
        {"threads": 64, "regs": 32, "shared": 0},
        '{"threads": 128, "shared": 1, "id": NaN}',
        "[" * 100_000,
    ]
    found, count = answers(rows)
    expected = {
        2: "is not JSON: Expecting value: line 1 column 1 (char 0)",
        4: "regs: 300 is not possible: it is from 0 to 255",
        5: "threads: 0 is not possible: it is at least 1",
        6: "unknown key 'reg'. Did you mean regs?",
        7: "the key 'shared' is missing",
        8: 'an object such as {"threads": 128, "regs": 168, "shared": 61568} is expected, not [1]',
        10: "shared: a whole number is expected, not 1000.0",
        11: f"shared: {10**30:,} is not possible: it is from 0 to 4,294,967,295",
        12: "threads: a whole number is expected, not True",
        14: "gpu: a name is expected, not 5",
        15: "regs: -1 is not possible: it is from 0 to 255",
        16: "carveout: -1 is not possible: it is from 0 to 102,400",
        17: "num_ctas: 0 is not possible: it is at least 1",
        18: "shared: null is not a value here",
        19: "shared: is given twice, under two names",
        20: "num_warps: 5 warps are not 128 threads",
        21: "num_warps: a whole number of at least 1 is expected, not '4'",
        24: "is not JSON: NaN is not a JSON value",
    }
    assert [row["row"] for row in found] == [n for n, row in enumerate(rows, start=1) if row not in ("", "   ")]
    for row in found:
        if row["row"] in expected:
            assert row["error"] == expected[row["row"]]
    by_row = {row["row"]: row for row in found}
    assert by_row[4]["id"] == 7
    assert "unknown GPU 'h900'" in by_row[13]["error"]
    assert not by_row[9]["fits"] and "1,056 threads" in by_row[9]["reason"]
    assert by_row[1]["occupancy"]["ctas_per_sm"] == 1 and by_row[23]["occupancy"]["ctas_per_sm"] == 24
    assert by_row[25]["error"].startswith("is not JSON")
    assert count.rows == 23 and count.errors == len(expected) + 2


def test_clusters_tensor_memory_and_other_gpus_in_one_file() -> None:
    found, count = answers(
        [
            {"threads": 128, "shared": 0, "gpu": "h100", "num_ctas": 2, "regs": 64},
            {"threads": 128, "shared": 0, "gpu": "a100", "num_ctas": 2, "regs": 64},
            {"threads": 128, "shared": 0, "gpu": "b200", "tmem": 33, "regs": 64},
            {"threads": 128, "shared": 0, "regs": None},
        ]
    )
    assert count.errors == 0
    of = [row["occupancy"] for row in found]
    assert of[0]["limits"]["cluster"] is None and "GPC" in of[0]["unknown"]["cluster"]
    assert of[1]["limits"]["cluster"] == 0 and "no clusters" in found[1]["reason"]
    assert of[2]["limits"]["tmem"] == 8 and of[2]["next_cta"]["tmem_columns"] == 32  # 33 -> 64; 512 / 9 -> 32
    assert of[3]["limits"]["registers"] is None and of[3]["next_cta"]["registers_per_thread"] is None
    for row, (gpu, num_ctas, tmem) in zip(found, [("h100", 2, 0), ("a100", 2, 0), ("b200", 1, 33)], strict=False):
        one = occupancy(
            load_gpu(gpu), threads_per_cta=128, registers_per_thread=64, shared_bytes=0, num_ctas=num_ctas,
            tmem_columns=tmem,
        )  # fmt: skip
        part = plain(occupancy_part(one))
        said = row["occupancy"]
        assert {k: part[k] for k in said if k != "next_cta"} == {k: said[k] for k in said if k != "next_cta"}
        assert {k: part["next_cta"][k] for k in said["next_cta"]} == said["next_cta"]
        assert row["reason"] == one.reason


def test_blocks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("occupancy_cli.answers.calculated_rows.ROWS_PER_BLOCK", 3)
    rows = [{"threads": 32 * (i % 8 + 1), "regs": 40, "shared": 500 * i} for i in range(20)]
    found, count = answers(rows)
    assert [row["row"] for row in found] == list(range(1, 21)) and count.rows == 20
    for row, given in zip(found, rows, strict=True):
        one = occupancy(
            load_gpu("rtx-pro-6000"),
            threads_per_cta=given["threads"],
            registers_per_thread=given["regs"],
            shared_bytes=given["shared"],
        )
        assert row["occupancy"]["ctas_per_sm"] == one.ctas_per_sm


def test_input_from_a_file_and_from_a_pipe(tmp_path: Path) -> None:
    text = '{"threads": 128, "regs": 168, "shared": 61568}\n{"threads": 128}\n'
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    for arguments, stdin in ((["--input", str(path)], None), (["--input", "-"], text)):
        code, out, errors = run(*arguments, stdin=stdin)
        assert code == 2  # one row could not be answered
        first, second = (json.loads(line) for line in out.splitlines())
        assert first["occupancy"]["ctas_per_sm"] == 1 and second["error"] == "the key 'shared' is missing"
        assert errors == "1 of 2 rows could not be answered\n"
    code, out, errors = run("--input", str(path), "--shared", "0")
    assert code == 0 and errors == "" and len(out.splitlines()) == 2


def test_input_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"threads": 128, "shared": 0}\n\xff\xfe\n')
    with pytest.raises(InputError, match="is not UTF-8 text"):
        run("--input", str(path))


def test_what_an_id_may_hold_can_always_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\ufeff{"threads": 128, "shared": 0, "id": "\\ud800"}\n', encoding="utf-8")
    code, out, _ = run("--input", str(path))
    assert code == 0 and json.loads(out)["id"] == "\ud800"


def test_no_rows_no_answers() -> None:
    assert run("--input", "-", stdin="") == (0, "", "")


def test_the_calculator_needs_nothing_heavy() -> None:
    code = (
        "import sys; from occupancy_cli.cli.calc_command import calc\n"
        "calc(threads=128, regs=168, shared=61568)\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"triton", "torch", "numpy", "pydantic", "ctypes", "multiprocessing"}


def test_a_plain_encoding_gets_plain_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    from occupancy_cli.cli.calc_command import Sweep

    calc(threads=128, regs=168, shared=0, sweep=Sweep.regs)
    out.flush()
    assert b"####" in out.buffer.getvalue()  # type: ignore[attr-defined]
