"""`occupancy mcp` as a client sees it: each tool, what is wrong, what is left out, progress, cancel, limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from locations import ROOT
from mcp_client import client, report_of, talk, text_of
from report_schema import valid_report

import occupancy_cli as occ

anyio = pytest.importorskip("anyio")
pytestmark = pytest.mark.mcp

TOOLS = {"analyze", "recommend", "check", "explain", "fit", "diff", "calc", "gpus"}
CALC = {"num_warps": 4, "regs": 168, "shared": 61_568}


def test_each_tool_says_what_it_takes_and_gives(tmp_path: Path) -> None:
    tools = talk(lambda one: one.list_tools(), tmp_path).tools
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.annotations.read_only_hint and tool.description
        assert tool.input_schema["additionalProperties"] is False
        # Every argument is described, and every definition referred to is there.
        assert all("description" in argument for argument in tool.input_schema["properties"].values()), tool.name
        defined = tool.output_schema["$defs"]
        assert {name.split('"')[0] for name in json.dumps(tool.output_schema).split("#/$defs/")[1:]} == defined.keys()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_answer_is_the_reports_shortened_and_the_whole_is_a_resource(tmp_path: Path, mode: str) -> None:
    async def conversation(one: Any) -> None:
        short = await one.call_tool("calc", {**CALC, "rows": 2})
        # 24 levels of CTAs per SM: two are shown, and it is said.
        assert short.structured_content["left_out"] == [{"at": "calculation.cliffs", "shown": 2, "of": 24}]
        assert "[all of it: read occupancy://reports/1, or ask again with rows=24" in text_of(short)
        found = occ.report_from_json(json.dumps(report_of(short))).calculation
        whole = occ.calc(**CALC)
        assert found is not None and whole.calculation is not None
        assert found.occupancy == whole.calculation.occupancy and found.cliffs == whole.calculation.cliffs[:2]
        link = short.content[1]
        assert (link.type, link.uri) == ("resource_link", "occupancy://reports/1")
        kept = (await one.read_resource(link.uri)).contents[0]
        assert kept.mime_type == "application/json" and valid_report(kept.text) == json.loads(whole.to_json())
        again = await one.call_tool("calc", {**CALC, "rows": 24})
        assert again.structured_content["left_out"] == [] and "all of it" not in text_of(again)
        assert text_of(again).startswith("RTX PRO 6000 Blackwell") and "1 CTA per SM" in text_of(again)

    talk(conversation, tmp_path, mode=mode)


@pytest.mark.slow
def test_an_answer_that_nobody_measured_out_is_short(tmp_path: Path) -> None:
    async def conversation(one: Any) -> None:
        found = await one.call_tool("gpus", {})
        left_out = {row["at"]: row for row in found.structured_content["left_out"]}
        assert left_out["gpus"]["of"] > 30 and left_out["gpus"]["shown"] == len(report_of(found)["gpus"])
        assert len(json.dumps(found.structured_content)) < 25_000 and len(text_of(found)) < 12_000
        one_gpu = await one.call_tool("gpus", {"names": ["h200"], "rows": 100})
        assert report_of(one_gpu)["gpus"][0]["values"]["sm_count"]["value"] == 132
        listed = {str(each.uri) for each in (await one.list_resources()).resources}
        assert {"occupancy://gpus/h200-sxm", "occupancy://specs/sparse_mla_decode", "occupancy://guide"} <= listed
        assert {"occupancy://reports/1", "occupancy://reports/2"} <= listed
        for uri in ("occupancy://gpus/h200", "occupancy://specs/moe_grouped_gemm", "occupancy://schemas/spec"):
            assert (await one.read_resource(uri)).contents[0].text
        guide = (await one.read_resource("occupancy://guide")).contents[0].text
        assert guide == (ROOT / "docs" / "assistants.md").read_text()
        for uri, said in (
            ("occupancy://gpus/h201", "h200-sxm"),
            ("occupancy://reports/9", "keeps the last"),
            ("occupancy://specs/sparse_mla", "sparse_mla_decode"),
            ("occupancy://gpus//etc/passwd.yaml", "unknown resource"),
        ):
            with pytest.raises(Exception, match=said):
                await one.read_resource(uri)

    talk(conversation, tmp_path)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("calc", {"num_warps": 4}, "shared: is missing\n"),
    ("calc", {"num_warp": 4}, "calc: unknown argument 'num_warp'\nDid you mean num_warps"),
    ("calc", {"num_warps": "four"}, "calc: num_warps: 'four' is not possible: input should be a valid integer"),
    ("calc", {**CALC, "gpu": "rtx-509"}, "unknown GPU 'rtx-509'\nDid you mean rtx-5090"),
    ("calc", {**CALC, "rows": 0}, "calc: rows: 0 is not possible"),
    ("gpus", {"names": ["h201"]}, "unknown GPU 'h201'"),
    ("diff", {"before": "h200"}, "diff: after: is missing"),
    ("diff", {"before": "occupancy://reports/7", "after": "h200"}, "before: this session has no occupancy://reports/7"),
    (
        "analyze",
        {"kernel": "sparse-mla-decode"},
        "KERNEL: 'sparse-mla-decode' names no kernel\nDid you mean sparse_mla",
    ),
    ("analyze", {"kernel": "none.py:k"}, "{folder}/none.py: no such file"),
    ("analyze", {"args": {"q_ptr": "*bf16"}}, "args: args is for a kernel without a spec"),
    ("analyze", {"configs": [{"num_warps": 3}]}, "configs[0]: num_warps is 3, not a power of two"),
    ("recommend", {"batch": 0}, "batch 0: '0' is no range"),
    ("recommend", {"lengths": "/etc/passwd"}, "recommend: lengths: '/etc/passwd' is not possible"),
    ("fit", {"ctas": 2, "no_spills": True}, "fit: ctas and no_spills are given both"),
    ("check", {"kernels": ["broken.yaml"]}, "broken.yaml:1:1: schema: the key `schema` is missing"),
]


@pytest.mark.slow
def test_what_is_wrong_is_one_message_and_never_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("shape: {}\n")

    async def conversation(one: Any) -> list[tuple[bool, str]]:
        found = []
        for tool, arguments, _ in WRONG:
            result = await one.call_tool(tool, arguments)
            found.append((result.is_error, text_of(result)))
        with pytest.raises(Exception, match=r"unknown tool 'analyse' Did you mean analyze\?"):
            await one.call_tool("analyse", {})
        return found

    for (tool, arguments, said), (is_error, text) in zip(WRONG, talk(conversation, tmp_path), strict=True):
        assert is_error and text.startswith(said.replace("{folder}", str(tmp_path))), (tool, arguments, text)
        assert "Traceback" not in text and text.count("\n") <= 2, text


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['mcp'] = None; from occupancy_cli.cli.app import main; main()"
    run = [sys.executable, "-c", hidden, "mcp"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "occupancy: `occupancy mcp` needs the package `mcp`, version 2\n"
        "Install it: python -m pip install 'occupancy-cli[mcp]'\n"
    )
    run = [sys.executable, "-m", "occupancy_cli", "mcp", "--root", "none"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, "occupancy: --root: no such folder: none\n")


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x * 2, mask=at < n)
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: scale.py:scale
shapes: {n: 4096}
arguments: {x_ptr: "*fp32", y_ptr: "*fp32", n: {type: i32, value: n}}
configs: [{BLOCK: 128}, {BLOCK: 256}, {BLOCK: 512}]
grid: ["ceil_div(n, BLOCK)"]
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_an_edit_is_explained_before_and_after_with_progress_and_gated(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(KERNEL)
    (tmp_path / "scale.yaml").write_text(SPEC.replace('"*fp32"', '{type: "*fp32"}') + "check: {gpus: [h200]}\n")
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    async def conversation(one: Any) -> None:
        asked = {"kernel": "scale.yaml", "gpu": "h200"}
        before = await one.call_tool("explain", asked, progress_callback=progress)
        configs = report_of(before)["kernels"][0]["configs"]
        assert [c["config"]["BLOCK"] for c in configs] == [128, 256, 512]
        assert all(c["register_use"] is not None for c in configs)
        assert [step[:2] for step in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]
        assert told[-1][2] is not None and told[-1][2].startswith("compiled 3 of 3; last scale BLOCK=")
        # The edit: each element through shared memory, by a reduction over the whole block.
        edited = KERNEL.replace("x * 2", "x * tl.sum(x, axis=0)")
        (tmp_path / "scale.py").write_text(edited)
        await one.call_tool("explain", asked)
        diff = await one.call_tool("diff", {"before": "occupancy://reports/1", "after": "occupancy://reports/2"})
        changes = {each["name"]: each for each in report_of(diff)["diffs"][0]["configs"][0]["figures"]}
        # Four warps leave a float each: 4 x 4 bytes.
        assert (changes["shared_bytes"].get("before"), changes["shared_bytes"].get("after")) == (0, 16)
        # What was compiled is found again, by whoever asks.
        gate = await one.call_tool("check", {"kernels": ["scale.yaml"]})
        assert gate.structured_content["exit_code"] == 0 and report_of(gate)["check"]["seconds"] > 0
        assert text_of(gate).splitlines()[-1].startswith("1 kernel · 3 configs · 1 GPU: 3 ok")
        reached = await one.call_tool("fit", {**asked, "ctas": 8, "config": {"BLOCK": 256}, "limit": 3})
        assert reached.structured_content["exit_code"] == 0 and report_of(reached)["fit"]["base"]["reaches"]

    talk(conversation, tmp_path)


SLOW = """
import os, pathlib, time, triton

pathlib.Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
time.sleep(600)


@triton.jit
def k(x_ptr):
    pass
"""


async def _written(path: Path) -> int:
    with anyio.fail_after(60):
        while not (path.exists() and path.read_text()):
            await anyio.sleep(0.05)
    return int(path.read_text())


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def _ends(pid: int) -> None:
    with anyio.fail_after(20):
        while _runs(pid):
            await anyio.sleep(0.05)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_that_is_cancelled_ends_with_its_compiles_and_no_other(tmp_path: Path, mode: str) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(SLOW)

    async def conversation(one: Any) -> None:
        async with anyio.create_task_group() as others, anyio.create_task_group() as cancelled:
            for group, name in ((others, "other"), (cancelled, "one")):
                group.start_soon(one.call_tool, "analyze", {"kernel": f"{name}.py:k", "args": {"x_ptr": "*fp32"}})
            other, mine = await _written(tmp_path / "other.pid"), await _written(tmp_path / "one.pid")
            cancelled.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await _ends(mine)
                assert _runs(other)
                # The session goes on.
                assert not (await one.call_tool("calc", CALC)).is_error
            others.cancel_scope.cancel()
        await _ends(other)

    talk(conversation, tmp_path, mode=mode)


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_call_that_takes_too_long_ends_with_its_compiles(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    asked = {"kernel": "slow.py:k", "args": {"x_ptr": "*fp32"}}

    async def conversation(one: Any) -> None:
        late = await one.call_tool("analyze", {**asked, "time_limit_s": 500})
        assert late.is_error
        assert text_of(late).startswith("analyze: not done within 6 s, the limit of this call\nWhat was compiled")
        late = await one.call_tool("analyze", {**asked, "time_limit_s": 0.5})
        assert text_of(late).startswith("analyze: not done within 0.5 s")
        if (tmp_path / "slow.pid").exists():
            await _ends(int((tmp_path / "slow.pid").read_text()))

    talk(conversation, tmp_path, "--time-limit", "6")


@pytest.mark.compiles
@pytest.mark.one_triton
def test_compiles_end_with_a_client_that_goes_away(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(SLOW)

    async def run() -> None:
        async with client(tmp_path) as one, anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "analyze", {"kernel": "left.py:k", "args": {"x_ptr": "*fp32"}})
            pid = await _written(tmp_path / "left.pid")
            group.cancel_scope.cancel()
        await _ends(pid)

    anyio.run(run)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
def test_two_clients_at_once_have_each_their_own_session(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    whole = occ.analyze(batch=80)

    async def ask(folder: Path, answers: list[Any]) -> None:
        async with client(folder) as one:
            answers.append(await one.call_tool("analyze", {"batch": 80}))
            there = {str(each.uri) for each in (await one.list_resources()).resources}
            assert {uri for uri in there if "reports" in uri} == {"occupancy://reports/1"}
            elsewhere = next(other for other in folders if other != folder)
            refused = await one.call_tool("analyze", {"kernel": f"{elsewhere}/k.yaml"})
            assert refused.is_error and f"It may read {folder}" in text_of(refused)

    async def both() -> list[Any]:
        answers: list[Any] = []
        async with anyio.create_task_group() as group:
            for folder in folders:
                group.start_soon(ask, folder, answers)
        return answers

    for answer in anyio.run(both):
        found = occ.report_from_json(json.dumps(report_of(answer)))
        assert [c.resources for c in found.kernels[0].configs] == [c.resources for c in whole.kernels[0].configs]
        assert text_of(answer).splitlines()[0].startswith("sparse_mla_decode on RTX PRO 6000 Blackwell")
