"""The command line as a stranger meets it: JSON alone on standard output, one error, exit codes, frozen tables.

The frozen tables are made from reports with fixed numbers, so that they hold under every Triton; what the compiler
finds is tested in test_compile.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from locations import ROOT
from rich.console import Console

from occupancy_cli.cli.app import COMMANDS
from occupancy_cli.report import schema
from occupancy_cli.report.terminal import render
from occupancy_cli.report.view import View

COMMAND = [sys.executable, "-m", "occupancy_cli"]


def run(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **env}
    )


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
def test_analyze_json_is_alone_on_standard_output_and_valid() -> None:
    done = run("analyze", "--batch", "80", "--set", "BLOCK_H=16,32", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema.json_schema())
    assert report["schema"] == "occupancy/report/1"
    configs = report["kernels"][0]["configs"]
    assert len(configs) == 12  # 3 tiles x 2 num_warps x 2 BLOCK_H
    assert {c["status"] for c in configs} == {"ok", "over_cap"}
    for config in configs:
        assert config["fits"] == (config["resources"]["shared_bytes"] <= 101_376)
        assert config["over_bytes"] == max(0, config["resources"]["shared_bytes"] - 101_376)
        # batch 80, one head group, 256 // 80 = 3 splits (16 heads in a group of 32, or of 16)
        assert config["launch"]["grid"] == [80, 1, 3]
        assert config["knobs"]["TARGET_CTAS"] == 256
    assert report["toolchain"]["triton"] and report["toolchain"]["ptxas"]


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
def test_recommend_names_what_to_set_and_why() -> None:
    done = run("recommend", "--batch", "80", "--set", "BLOCK_H=16", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)["recommendation"]
    assert found["batch"] == 80
    assert found["knobs"]["BLOCK_H"] == 16
    assert len(found["reasons"]) == 3
    assert found["set_line"].startswith("export SGLANG_SM120_MMA_BLOCK_H=16 SGLANG_SM120_MMA_TARGET_CTAS=")
    assert found["left_open"].startswith("left to the autotuner, which is taken to find BLOCK_T=")
    assert found["against"] == "what is set now (BLOCK_H by --set)"
    assert 1 <= found["tied"] < found["candidates"] and {"name": "BLOCK_H", "values": [16]} in found["tied_values"]
    assert any(line.startswith("now -> this: split_kernel ") for line in found["why"])
    assert found["exports"][0] == "export SGLANG_SM120_MMA_BLOCK_H=16"
    assert found["exports"][1] == f"export SGLANG_SM120_MMA_TARGET_CTAS={found['knobs']['TARGET_CTAS']}"
    assert found["predicted_speedup_vs_default"] >= 1
    assert found["chosen"]["predicted_time_us"] <= found["default"]["predicted_time_us"]
    nsplit = max(1, found["knobs"]["TARGET_CTAS"] // 80)
    assert found["nsplit"] == min(nsplit, 32)
    assert found["chosen"]["launch"]["grid"] == [80, 1, found["nsplit"]]


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
def test_an_environment_knob_is_honoured_and_named() -> None:
    done = run("analyze", "--format", "json", "--set", "BLOCK_T=16", SGLANG_SM120_MMA_BLOCK_H="16")
    kernel = json.loads(done.stdout)["kernels"][0]
    assert kernel["settings"]["BLOCK_H"] == "environment SGLANG_SM120_MMA_BLOCK_H"
    assert {c["knobs"]["BLOCK_H"] for c in kernel["configs"]} == {16}


@pytest.mark.compiles
def test_a_kernel_by_reference_with_flags(kernel_file: Path) -> None:
    done = run(
        "analyze", f"{kernel_file}:scale", "--format", "json", "--grid", "ceil_div(n, BLOCK)",
        "--arg", "x_ptr=*bf16", "--arg", "y_ptr=*bf16@4", "--arg", "n=i32=4096", "--arg", "factor=fp32",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    configs = json.loads(done.stdout)["kernels"][0]["configs"]
    assert [(c["config"]["BLOCK"], c["config"]["num_warps"]) for c in configs] == [(64, 2), (64, 4), (128, 2), (128, 4)]
    assert [c["launch"]["grid"] for c in configs] == [[64], [64], [32], [32]]  # 4096 / 64, 4096 / 128


@pytest.mark.compiles
@pytest.mark.one_triton
def test_missing_arguments_are_listed_once_all_of_them(kernel_file: Path) -> None:
    done = run("analyze", f"{kernel_file}:scale", "--arg", "n=i32=4096")
    assert done.returncode == 2
    assert "3 arguments have no type" in done.stderr
    assert "--arg x_ptr=TYPE --arg y_ptr=TYPE --arg factor=TYPE" in done.stderr


SPEC = """\
schema: occupancy/kernel-spec/1
kernel: small.py:plain
arguments:
  x_ptr: "*fp32"
  n: {type: i32, value: 4096}
configs: [{BLOCK: 64, num_warps: 4}]
grid: [1]
check: {gpus: [5090, h100, sm86], budgets: {max_registers_per_thread: 255, min_ctas_per_sm: 1}}
"""


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("", "", 0, "ok "),
        ("max_registers_per_thread: 255", "max_registers_per_thread: 1", 1, "registers per thread, budget at most 1"),
        ("min_ctas_per_sm: 1", "min_ctas_per_sm: 33", 1, "CTAs/SM, budget at least 33"),
        ("BLOCK: 64", "BLOCK: 65", 2, "did not compile"),
    ],
)
def test_check_exit_codes(kernel_file: Path, old: str, new: str, code: int, says: str) -> None:
    (kernel_file.parent / "k.yaml").write_text(SPEC.replace(old, new, 1))
    done = run("check", "k.yaml", cwd=kernel_file.parent)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout


@pytest.mark.compiles
def test_check_really_fails_a_kernel_over_the_cap() -> None:
    spec = (ROOT / "kernels" / "sparse_mla_decode.yaml").read_text()
    assert run("check", "kernels").returncode == 0
    whole = spec[: spec.index("check:")] + spec[spec.index("followed_by:") :]
    copy = ROOT / "kernels" / "_all_used.yaml"
    copy.write_text(whole)
    try:
        done = run("check", str(copy))
    finally:
        copy.unlink()
    assert done.returncode == 1
    head, *failing = (line for line in done.stdout.splitlines() if line.startswith("FAIL"))
    assert head.endswith("12 configs: 10 ok, 2 over budget, 0 unknown")
    assert len(failing) == 2  # BLOCK_T 64 at BLOCK_H 32, 4 and 8 warps
    assert all("over the cap of 101,376" in line for line in failing)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analyze", "nosuch/sparse_mla_decode.yaml"], "lies at kernels/sparse_mla_decode.yaml"),
        (["analyze", "kernels/sparse_mla_decode.yml"], "Nearest name: kernels/sparse_mla_decode.yaml"),
        (["analyze", "kernels/sparse_mla_decode.py"], "Name the kernel in it"),
        (["analyze", "--gpu", "5091"], "rtx-5090"),
        (["analyze", "--batch", "0"], "1:128"),
        (["analyze", "--set", "BLOCK_H"], "--set NAME=VALUE"),
        (["recommend", "--gpu", "sm120"], "no SM count"),
        (["analyze", "--executor", "slurm://x"], "local, or dask://host:port"),
        (["analyz"], "analyze"),
        (["analyze", "--bach", "80"], "--batch"),
        (["analyze", "--format", "jsno"], "'jsno' is not one of 'table', 'json'. Did you mean json?"),
        (["plot", "wavse", "-o", "x.png"], "Did you mean waves?"),
        (["analyze", "--arg", "x=*bf16"], "--arg is for a kernel without a spec"),
        (["analyze", "no.such.module:kernel"], "no module 'no'"),
        (["check", "missing.yaml"], "missing.yaml: no such file"),
        (["analyze", "sparse-mla-decode"], "Did you mean sparse_mla_decode?"),
        (["check", "moe-grouped-gemm"], "Did you mean moe_grouped_gemm?"),
        (["analyze", "kernels/sparse_mla_decode.py:split-kernel"], "sparse_mla_decode.py:split_kernel"),
        (["analyze", "kernels/sparse_mla_decode.py"], "kernels/sparse_mla_decode.py:split_kernel or "),
        (["analyze", "kernels/sparse_mla_decode.ymal"], "Did you mean kernels/sparse_mla_decode.yaml"),
        (["analyze", "kernel.sparse_mla_decode:split_kernel"], "Did you mean kernels?"),
        (["init", "kernels/sparse_mla_decode.py:split-kernel"], "Did you mean split_kernel"),
        (["analyze", "/dev/null"], "names no kernel"),
        (["analyze", "--set", "num_warps=0"], "--set num_warps=0: num_warps is 0, not a power of two"),
        (["analyze", "--set", "num_warps=4,6"], "num_warps is 6, not a power of two"),
        (["analyze", "--set", "num_warps=true"], "num_warps is True, not a power of two"),
        (["analyze", "--set", "num_stages=-1"], "num_stages is -1, not a whole number from 0 on"),
        (["analyze", "--set", "maxnreg=0"], "maxnreg is 0, not a whole number from 1 on"),
        (["analyze", "--set", "BLOCK_H=nan"], "nan is not a finite number"),
        (["analyze", "--set", "BLOCK_H=16", "--set", "BLOCK_H=32"], "BLOCK_H is set twice"),
        (["analyze", "--batch", "1:1000000000"], "'1:1000000000' has more than nine digits"),
        (["analyze", "kernels/sparse_mla_decode.py:split_kernel", "--arg", "a=*bf16@0"], "an alignment of 0 bytes"),
        (["analyze", "kernels/sparse_mla_decode.py:split_kernel", *["--arg", "a=i32=1"] * 2], "a is given twice"),
    ],
)
def test_bad_input_is_one_error_on_standard_error(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("occupancy: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("n=i32=nan", "--arg n: nan is not a finite number"),
        ("n=i32=4096.5", "--arg n: 4096.5 is no whole number, which i32 needs"),
        ("n=u8=300", "--arg n: 300 does not fit u8\nDeclare it as i32."),  # 0 to 255
        ("n=i32=2147483648", "--arg n: 2147483648 does not fit i32\nDeclare it as i64."),  # 2^31, one above
        ("n=u32=-1", "--arg n: -1 does not fit u32\nDeclare it as i32."),
        ("n=i64=1e19", "--arg n: 10000000000000000000 does not fit i64\nDeclare it as u64."),  # 2^63 is 9.2e18
        ("n=i1=7", "--arg n: 7 is no i1\nIt is true or false."),
        ("n=*i32=3", "--arg n: an argument of type *i32 has no value (given: 3)"),
    ],
)
def test_a_value_that_its_type_does_not_have(kernel_file: Path, argument: str, says: str) -> None:
    done = run("analyze", f"{kernel_file}:plain", "--arg", "x_ptr=*fp32", "--arg", argument)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"occupancy: {says}\n")


FLOAT = """
import triton
import triton.language as tl


@triton.jit
def float_only(x_ptr, factor):
    tl.static_assert(factor.dtype == tl.float32)
    tl.store(x_ptr, factor)
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_whole_number_for_a_float_argument_is_a_float(tmp_path: Path) -> None:
    """Triton takes 1 as an integer, and as a constant at that; what an fp32 argument gets is 1.0."""
    (tmp_path / "f.py").write_text(FLOAT)
    done = run("analyze", "f.py:float_only", "--arg", "x_ptr=*fp32", "--arg", "factor=fp32=1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.compiles
@pytest.mark.one_triton
def test_an_unknown_setting_names_the_nearest() -> None:
    done = run("analyze", "--set", "BLOK_H=16")
    assert done.returncode == 2
    assert "unknown shape, knob, constexpr or launch option 'BLOK_H'\nDid you mean BLOCK_H" in done.stderr


def test_help_names_every_command_in_a_line_of_80_columns() -> None:
    done = run("--help", COLUMNS="80")
    assert done.returncode == 0
    listed = done.stdout.split("Commands:\n", 1)[1].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(line.endswith(COMMANDS[line.split()[0]]) for line in listed)


def test_schemas_are_printed() -> None:
    for name in ("report", "spec"):
        done = run("schema", name)
        assert done.returncode == 0
        jsonschema.Draft202012Validator.check_schema(json.loads(done.stdout))


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m occupancy_cli gpus | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


# --- frozen tables ---


def config(shared: int, registers: int | None, ctas: int, *, warps: int, tile: int) -> schema.Config:
    over = max(0, shared - 101_376)
    following = schema.NextCta(
        ctas_per_sm=ctas + 1, reachable=True, binding=["shared"], shared_bytes=50_176, shared_bytes_less=0,
        registers_per_thread=128, registers_per_thread_less=0, warps_per_cta=4,
    )  # fmt: skip
    ctas_total, slots = 240, 188 * ctas
    return schema.Config(
        config={"BLOCK_T": tile, "num_warps": warps},
        knobs={"BLOCK_H": 32},
        shapes={"batch": 80},
        status="over_cap" if over else "ok",
        fits=not over,
        over_bytes=over,
        reason=f"{shared:,} bytes of shared memory per CTA are {over:,} over the cap of 101,376 (CC 12.0)" if over else "",
        resources=schema.Resources(
            shared_bytes=shared, registers_per_thread=registers, spill_bytes=0 if registers else None,
            num_warps=warps, threads_per_cta=32 * warps,
        ),
        occupancy=schema.Occupancy(
            ctas_per_sm=ctas, warps_per_sm=ctas * warps, max_warps_per_sm=48, percent=100 * ctas * warps / 48,
            limits={"shared": ctas}, limited_by=["shared"], next_cta=following, slack={},
        ),
        launch=schema.Launch(
            grid=[80, 1, 3], ctas=ctas_total, slots=slots, waves=ctas_total / slots if slots else None,
            full_waves=1, tail_ctas=52 if slots else None, tail_percent=27.66 if slots else None,
            efficiency_percent=63.8 if slots else None,
        ),
    )  # fmt: skip


def report() -> schema.Report:
    return schema.Report(
        command="analyze",
        toolchain=schema.Toolchain(occupancy="0", triton="3.6.0", ptxas="12.9"),
        gpu=schema.Gpu(
            id="rtx-pro-6000-workstation", name="RTX PRO 6000 [Blackwell]", compute_capability="12.0", sm_count=188,
            max_warps_per_sm=48, max_ctas_per_sm=24, registers_per_sm=65536, shared_per_sm_bytes=102400,
            shared_per_cta_optin_bytes=101376, shared_reserved_per_cta_bytes=1024,
        ),
        kernels=[
            schema.Kernel(
                name="kernel[clone .x]", source="k.yaml", kernel="k.py:kernel", tuned=True,
                settings={"BLOCK_H": "environment BLOCK_H"},
                configs=[config(61_568, 238, 1, warps=4, tile=16), config(104_704, None, 0, warps=8, tile=32)],
            )
        ],
    )  # fmt: skip


def rendered(width: int) -> str:
    console = Console(width=width, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    render(report(), console)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_the_table_at_80_columns_is_frozen() -> None:
    assert rendered(80) == NARROW


def test_the_table_at_160_columns_is_frozen() -> None:
    assert rendered(160) == WIDE


def shown_of_a_check(findings: list[schema.Finding], *, everything: bool = False) -> list[str]:
    console = Console(width=100, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    checked = schema.Report(command="check", toolchain=schema.Toolchain(occupancy="0"), findings=findings)
    render(checked, console, View(everything=everything))
    return [line.rstrip() for line in console.export_text().splitlines()]


def found(
    rule: str, value: int, limit: int, level: schema.Level = "ok", kernel: str = "k", at: int = 0
) -> schema.Finding:
    return schema.Finding(
        level=level, kernel=kernel, gpu="g", config={"BLOCK": at or value}, rule=rule, message=f"{value} of {limit}",
        required=value, limit=limit, file=f"{kernel}.yaml", line=3,
    )  # fmt: skip


def test_what_holds_is_one_line_a_kernel_and_gpu_with_the_config_nearest_its_limit() -> None:
    """3 CTAs where 2 are asked for are at 67 %, 32 bytes of 64 at 50 %."""
    findings = [found("min_ctas_per_sm", n, 2) for n in (5, 3, 4)] + [found("max_spill_bytes", 32, 64, at=5)]
    assert shown_of_a_check(findings) == ["ok   k.yaml: k on g: 3 configs, at most 67 % of min_ctas_per_sm"]
    assert shown_of_a_check(findings, everything=True)[2:] == [
        "ok   k.yaml:3: k on g, BLOCK 5: 5 of 2",
        "ok   k.yaml:3: k on g, BLOCK 3: 3 of 2",
        "ok   k.yaml:3: k on g, BLOCK 4: 4 of 2",
        "ok   k.yaml:3: k on g, BLOCK 5: 32 of 64",
    ]


def test_what_is_not_in_use_is_no_matter_of_what_holds() -> None:
    findings = [found("shared-memory-cap", 50, 64), found("shared-memory-cap", 80, 64, "note")]
    assert (
        shown_of_a_check(findings)[0] == "ok   k.yaml: k on g: 2 configs: 1 ok, 0 over budget, 0 unknown, 1 not in use"
    )
    # A launch that follows holds where the main one does not: the config is counted by what is judged of it.
    findings = [found("shared-memory-cap", 16, 64, at=1), found("shared-memory-cap", 80, 64, "note", at=1)]
    assert shown_of_a_check(findings)[0] == "ok   k.yaml: k on g: 1 config, at most 25 % of the cap"


def test_what_is_wrong_comes_last() -> None:
    """And a file that holds is named beside one that cannot be read: both were judged."""
    findings = [
        found("max_spill_bytes", 80, 64, "violation"),
        found("max_spill_bytes", 8, 64),
        found("max_spill_bytes", 9, 64, "undecided", "other"),
        found("max_spill_bytes", 8, 64, kernel="third"),
        replace(found("input", 0, 0, "undecided"), kernel="", gpu="", config={}, message="no YAML", required=None),
    ]
    assert shown_of_a_check(findings) == [
        "ok   third.yaml: third on g: 1 config, at most 12 % of max_spill_bytes",
        "???? other.yaml: other on g: 1 config: 0 ok, 0 over budget, 1 unknown",
        "FAIL k.yaml: k on g: 2 configs: 1 ok, 1 over budget, 0 unknown",
        "",
        "???? other.yaml:3: other on g, BLOCK 9: 9 of 64",
        "???? k.yaml:3: no YAML",
        "FAIL k.yaml:3: k on g, BLOCK 80: 80 of 64",
    ]


NARROW = """\
kernel[clone .x] on RTX PRO 6000 [Blackwell] (CC 12.0, 188 SMs), Triton 3.6.0
batch 80, BLOCK_H 32 (environment BLOCK_H)

 BLOCK        shared      spill           CTAs warps                  last
    _T warps   bytes regs bytes fits       /SM   /SM limited by waves wave
 ─────────────────────────────────────────────────────────────────────────
    16     4  61,568  238     0 yes          1  4/48 shared      1.28 28 %
    32     8 104,704    -     - no +3,328    0  0/48 shared         -    -

BLOCK_T 32, num_warps 8 cannot launch: 104,704 bytes of shared memory per CTA
are 3,328 over the cap of 101,376 (CC 12.0)
@triton.autotune catches the OutOfResources of such a config, takes its time as
infinite, and drops it without a word: nothing at run time says that it was
never tried."""
WIDE = """\
kernel[clone .x] on RTX PRO 6000 [Blackwell] (CC 12.0, 188 SMs), Triton 3.6.0
batch 80, BLOCK_H 32 (environment BLOCK_H)

                    shared          spill                    CTAs     warps                                                   last
 BLOCK_T   warps     bytes   regs   bytes   fits              /SM       /SM   limited by   next CTA at   grid         waves   wave
 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      16       4    61,568    238       0   yes                 1   4 of 48   shared       50,176 B      80 x 1 x 3    1.28   28 %
      32       8   104,704      -       -   no, 3,328 over      0   0 of 48   shared       -             80 x 1 x 3       -      -

BLOCK_T 32, num_warps 8 cannot launch: 104,704 bytes of shared memory per CTA are 3,328 over the cap of 101,376 (CC 12.0)
@triton.autotune catches the OutOfResources of such a config, takes its time as infinite, and drops it without a word: nothing at run time says that it was
never tried."""


PRUNED = """
import triton
import triton.language as tl

def early(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["n"]]

@triton.autotune(
    configs=[triton.Config({"BLOCK": b}) for b in (32, 64, 128)], key=["n"],
    prune_configs_by={"early_config_prune": early},
)
@triton.jit
def pruned(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


@pytest.mark.compiles
@pytest.mark.one_triton
def test_configs_that_the_kernel_prunes_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PRUNED)
    done = run("analyze", "p.py:pruned", "--arg", "x_ptr=*fp32", "--arg", "n=i32=64", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    configs = json.loads(done.stdout)["kernels"][0]["configs"]
    left_out = {c["config"]["BLOCK"]: any("prune_configs_by" in n for n in c["notes"]) for c in configs}
    assert left_out == {32: False, 64: False, 128: True}  # 128 > n = 64
    assert configs[0]["config"]["maxnreg"] is None


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_time_is_shown_only_when_it_is_asked_for() -> None:
    flags = ["analyze", "--set", "BLOCK_H=16", "--set", "BLOCK_T=16", "--set", "num_warps=8", "--format", "json"]

    def times(*more: str) -> list[object]:
        return [c["time"] for c in json.loads(run(*flags, *more).stdout)["kernels"][0]["configs"]]

    timed = times("--time")
    assert all(t["time_us"] > 0 and t["binding"] for t in timed)
    assert times() == [None] * len(timed)  # although the cache now has the times
