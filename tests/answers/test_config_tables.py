"""Config tables: file names into names, entries with their lines, and every entry against a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locations import ROOT

from occupancy_cli.errors import InputError
from occupancy_cli.report import schema
from occupancy_cli.spec.config_tables import names_in, nearest_entries, read_table, read_tables
from occupancy_cli.spec.kernel_spec import ConfigTable, load_spec

EXAMPLE = ROOT / "examples" / "config_tables"
CAP = 101_376  # CC 8.9 and 12.0: 99 KB


def run(*arguments: str, cwd: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def report(*arguments: str, cwd: Path = EXAMPLE) -> dict[str, Any]:
    done = run(*arguments, "--format", "json", cwd=cwd)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, schema.json_schema())
    return found


# --- reading ---


@pytest.mark.parametrize(
    ("name", "names"),
    [
        (
            "E=256,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,64].json",
            {"E": 256, "N": 128, "device_name": "NVIDIA_H200", "dtype": "fp8_w8a8"}
            | {"block_shape_0": 128, "block_shape_1": 64},
        ),
        ("E=8,N=3584,device_name=NVIDIA_L40S.json", {"E": 8, "N": 3584, "device_name": "NVIDIA_L40S"}),
        ("default.json", {}),
    ],
)
def test_names_in_a_file_name(name: str, names: dict[str, Any]) -> None:
    assert names_in(Path(name)) == names


def test_entries_know_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "E=1.json"
    path.write_text('{\n  "triton_version": "3.6.0",\n  "16": {"A": 1, "16": 2},\n\t"2":\n {"A": 2}}')
    entries = read_table(path, {})
    assert [(e.key, e.line, dict(e.config)) for e in entries] == [(2, 4, {"A": 2}), (16, 3, {"A": 1, "16": 2})]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # From Python 3.13 on, the comma is what is wrong, not the brace after it.
        ('{\n "1": {"A": 1},\n}', f"t.json:{2 if sys.version_info >= (3, 13) else 3}: not valid JSON"),
        ('{\n"1": {"A": 1 2}\n}', "t.json:2: not valid JSON"),
        ('{"1": {"A": NaN}}', "NaN is not a finite number"),
        ('{"1": {"A": 1, "A": 2}}', "the key 'A' is given twice"),
        ('{\n"one": {"A": 1}}', "t.json:2: 'one' is no batch"),
        ('{"0": {"A": 1}}', "'0' is no batch"),
        ('{"1": [1]}', "the entry 1 is no config"),
        ('{"1": {"A": [1]}}', "A of the entry 1 is no number"),
        ('{"1": {"A": ' + "9" * 400 + "}}", "A of the entry 1 is no number"),
        ("[1]", "no mapping from batch to config"),
        ("[" * 100_000, "nested too deep"),
        ("", "not valid JSON"),
    ],
)
def test_what_is_no_table_is_refused_where_it_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_table(path, {})
    assert says in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(['{"1": ', '{"A": 1}', "}", "{", '"', ",", "[", "\n", "1", ":", "é"])).map("".join))
def test_any_text_is_a_table_or_an_input_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(text)
    try:
        read_table(path, {})
    except InputError as refused:
        assert "any.json" in str(refused)


def entries_of(**table: Any) -> set[tuple[str, int]]:
    found = read_tables(ConfigTable(**table), EXAMPLE, "k.yaml")
    return {(e.device or "", e.key) for e in found}


def test_files_are_let_in_by_their_names() -> None:
    h200 = {("NVIDIA_H200", key) for key in (16, 256, 1024, 2048)}
    assert entries_of(table="tables", only={"dtype": None, "device_name": "NVIDIA_H*"}) == h200
    assert entries_of(table="tables", only={"dtype": "fp8_w8a8", "block_shape_0": 128}) == {("NVIDIA_H200", 16)}
    assert entries_of(table="tables/*L20.json") == {("NVIDIA_L20", 16)}
    assert entries_of(table="tables", only={"device_name": ["NVIDIA_L20", "NVIDIA_L99"]}) == {
        ("NVIDIA_L20", 16),
        ("NVIDIA_L99", 16),
    }


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"table": "nowhere/*.json"}, "'nowhere/*.json' matches no file"),
        ({"table": "tables", "only": {"dtyp": "fp8"}}, "Did you mean dtype"),
        ({"table": "tables", "only": {"E": 65}}, "none of 5 files passes `only`"),
        ({"table": "no_such_package:configs"}, "no package 'no_such_package' is installed"),
    ],
)
def test_what_matches_nothing_says_so(table: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        entries_of(**table)
    assert says in str(caught.value)


def test_the_nearest_entry_is_what_an_engine_picks() -> None:
    entries = read_tables(ConfigTable(table="tables/*4090.json"), EXAMPLE, "k.yaml")  # 16 and 256
    assert [[e.key for e in nearest_entries(entries, at)] for at in (1, 136, 137, 9999)] == [[16], [16], [256], [256]]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  key: batch", "  kye: batch", "configs.kye: unknown key 'kye'\nDid you mean key?"),
        ("  table: tables", "  tabel: tables", "configs.tabel: unknown key 'tabel'\nDid you mean table?"),
        ("  key: batch", "  values: {BLOCK_SIZE_K: 9**9}", "configs.values.BLOCK_SIZE_K: '**' is not allowed"),
    ],
)
def test_the_schema_is_strict(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "k.yaml"
    text = (EXAMPLE / "grouped_gemm.yaml").read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert says in str(caught.value)


# --- against GPUs ---


@pytest.mark.compiles
@pytest.mark.one_triton
def test_each_entry_is_checked_on_the_gpu_its_file_names() -> None:
    done = run("check", "grouped_gemm.yaml", "--format", "json")
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 2  # NVIDIA_L99
    undecided = [f for f in findings if f["level"] == "undecided"]
    assert [(f["gpu"], f["rule"]) for f in undecided] == [("NVIDIA_L99", "gpu")]
    assert "no profile of a GPU NVIDIA_L99: 1 entries in 1 tables" in undecided[0]["message"]
    held = [(f["gpu"], f["limit"]) for f in findings if f["level"] == "ok"]
    assert sorted(set(held)) == [
        ("GeForce RTX 4090", CAP),
        ("H200 SXM", 232_448),  # 227 KB
        ("any GPU of compute capability 8.9", CAP),  # `devices` says so of NVIDIA_L20
    ]
    assert len(held) == 2 + 4 + 1


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_gpu_asked_for_takes_the_place_of_those_named() -> None:
    done = run("check", "grouped_gemm.yaml", "--gpu", "rtx-pro-6000", "--format", "json")
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    violations = [f for f in findings if f["level"] == "violation"]
    # 128 x 128 x 128 in 3 stages and 128 x 256 x 64 in 4 take more than 99 KB: their first stages alone, without what
    # the last one adds, are 2 * (128 + 128) * 128 * 2 bytes = 131,072 and 3 * (128 + 256) * 64 * 2 = 147,456.
    assert [f["knobs"]["batch"] for f in violations] == [1024, 2048]
    assert [f["required"] for f in violations] >= [131_072, 147_456]
    for violation in violations:
        line = (ROOT / "examples" / "config_tables" / violation["file"]).read_text().splitlines()[violation["line"] - 1]
        assert line.strip().startswith(f'"{violation["knobs"]["batch"]}"')
    assert not [f for f in findings if f["level"] == "undecided"]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_equal_launches_of_several_tables_are_one_compile() -> None:
    (tables,) = report("analyze", "grouped_gemm.yaml", "--gpu", "rtx-pro-6000")["tables"]
    assert (tables["files"], len(tables["entries"]), tables["specializations"]) == (4, 8, 4)
    small = {e["shared_bytes"] for e in tables["entries"] if e["entry"] == 16}
    assert len(small) == 1
    grids = {(e["entry"], e["launch"]["grid"][0]) for e in tables["entries"] if e["launch"]}
    # 16 tokens x 8 experts = 128 rows, + 64 experts x 15 rows of padding = 1,088 in tiles of 16: 68, x 1024 / 64 = 16
    assert (16, 68 * 16) in grids


@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_does_not_fit_is_replaced_by_what_does() -> None:
    by_command = {}
    for command in ("analyze", "recommend"):
        (tables,) = report(command, "grouped_gemm.yaml", "--gpu", "rtx-pro-6000")["tables"]
        over = [e for e in tables["entries"] if e["status"] == "over_cap"]
        assert {e["entry"] for e in over} == {1024, 2048}
        assert all(e["over_bytes"] == e["shared_bytes"] - CAP for e in over)
        assert all(e["instead"]["shared_bytes"] <= CAP for e in over)
        by_command[command] = {e["entry"]: e["instead"]["what"] for e in over}
    assert by_command["analyze"] == {1024: "the entry of batch 256", 2048: "the entry of batch 256"}
    assert by_command["recommend"][1024] == "the same with num_stages 2"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_batch_asked_for_picks_the_nearest_entry_of_each_file() -> None:
    (tables,) = report("analyze", "grouped_gemm.yaml", "--gpu", "5090", "--batch", "300")["tables"]
    picked = {e["device"]: (e["entry"], e["at"]) for e in tables["entries"]}
    assert picked == {
        "NVIDIA_H200": (256, 300),
        "NVIDIA_GeForce_RTX_4090": (256, 300),
        "NVIDIA_L20": (16, 300),
        "NVIDIA_L99": (16, 300),
    }


@pytest.mark.compiles
@pytest.mark.one_triton
def test_values_that_the_launcher_changes_and_names_no_kernel_has(tmp_path: Path) -> None:
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "E=8,N=512,block_shape=[64,64].json").write_text(
        json.dumps({"8": {**config, "num_stages": 2}, "16": {**config, "num_stages": 2, "kpack": 2}})
    )
    (tmp_path / "grouped_gemm.py").write_text((EXAMPLE / "grouped_gemm.py").read_text())
    values = '  values: {BLOCK_SIZE_K: "min(BLOCK_SIZE_K, block_shape_0)"}'
    spec = (EXAMPLE / "grouped_gemm.yaml").read_text()
    (tmp_path / "k.yaml").write_text(spec.replace("  only: {dtype: null}", values))
    (tables,) = report("analyze", "k.yaml", "--gpu", "5090", cwd=tmp_path)["tables"]
    (changed, odd) = tables["entries"]
    direct = ["--set", "BLOCK_SIZE_K=64", "--batch", "8"]
    (plain,) = report("analyze", "k.yaml", "--gpu", "5090", *direct, cwd=tmp_path)["tables"][0]["entries"]
    assert changed["status"] == "ok"
    assert changed["shared_bytes"] == plain["shared_bytes"]
    assert (odd["status"], odd["reason"]) == ("undecided", "kpack is no constexpr of grouped_gemm")
    # 8 x 8 rows + 8 experts x 15 = 184 in tiles of 16: 12, x 512 / 64 = 8: 96 CTAs on the 170 SMs of a 5090
    assert "96 CTAs on 170 SMs" in changed["wastes"]


def test_other_commands_say_that_they_read_no_tables() -> None:
    done = run("verify", "grouped_gemm.yaml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
