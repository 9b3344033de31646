"""What a launch passes, as the decorators have it: types by name, heuristics, back-end options, hooks of configs."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
from typer.testing import CliRunner

from occupancy_cli.cli.app import app
from occupancy_cli.compile.kernel_layers import backend_options, mistaken_type, with_heuristics, with_types
from occupancy_cli.compile.triton_front import descriptor_stand_in
from occupancy_cli.errors import InputError


@triton.jit
def cast(x_ptr, BLOCK: tl.constexpr, out_type: tl.constexpr, MODE: tl.constexpr = "fp16"):
    if MODE == "fp16":
        tl.store(x_ptr, tl.load(x_ptr).to(out_type))


@pytest.mark.parametrize("text", ["tl.bfloat16", "bf16", "bfloat16", "torch.bfloat16", "triton.language.bfloat16"])
def test_a_type_is_taken_in_every_form(text: str) -> None:
    assert with_types(cast, {"out_type": text})["out_type"] is tl.bfloat16


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("torch.half", tl.float16),
        ("torch.float", tl.float32),
        ("torch.float8_e4m3fn", tl.float8e4nv),
        ("torch.long", tl.int64),
        ("fp8e5", tl.float8e5),
        ("u8", None),  # Triton's own short name is uint8
    ],
)
def test_torch_and_short_names(text: str, dtype: Any) -> None:
    assert with_types(cast, {"out_type": text})["out_type"] is (text if dtype is None else dtype)


def test_a_text_that_the_kernel_compares_stays_a_text() -> None:
    assert with_types(cast, {"MODE": "fp16", "out_type": "bf16"}) == {"MODE": "fp16", "out_type": tl.bfloat16}


def test_a_wrong_form_is_told_the_right_one() -> None:
    assert mistaken_type(cast, {"out_type": "bfloat"}) == "out_type is the text 'bfloat'; a type is written tl.bfloat16"
    assert mistaken_type(cast, {"MODE": "fp16", "BLOCK": 3}) == ""


# --- heuristics --------------------------------------------------------------------------------------------------


def heuristic(**values: Any) -> Any:
    @triton.heuristics(values)
    @triton.jit
    def kernel(x_ptr, n, A: tl.constexpr, B: tl.constexpr):
        tl.store(x_ptr, n + A + B)

    return kernel


def test_a_heuristic_reads_its_own_name() -> None:
    read: set[str] = set()
    kernel = heuristic(A=lambda args: 2 * args["A"])
    values = with_heuristics(kernel, {"x_ptr": 0, "n": 1, "B": 5}, {}, {"A": 4}, read)
    assert values["A"] == 8  # 2 * 4
    assert read == {"A"}


def test_heuristics_read_each_other_in_order() -> None:
    read: set[str] = set()
    kernel = heuristic(A=lambda args: args.get("n") + 1, B=lambda args: args["A"] * 10)
    values = with_heuristics(kernel, {"x_ptr": 0, "n": 1}, {}, {"A": 2, "B": 20}, read)
    assert (values["A"], values["B"]) == (2, 20)
    assert read == set()  # both are results, which are compared with what was declared


def test_a_heuristic_reads_a_later_one_as_the_launch_gave_it() -> None:
    read: set[str] = set()
    kernel = heuristic(A=lambda args: args.get("B", -1), B=lambda args: args["B"] + 1)
    values = with_heuristics(kernel, {"x_ptr": 0, "n": 1}, {}, {"B": 7}, read)
    assert (values["A"], values["B"]) == (7, 8)
    assert read == {"B"}


def test_what_no_one_gave_is_named() -> None:
    with pytest.raises(InputError, match="the heuristic that sets A reads B, which has no value"):
        with_heuristics(heuristic(A=lambda args: args["B"]), {"x_ptr": 0, "n": 1}, {})


# --- names in a config -------------------------------------------------------------------------------------------


def test_options_of_the_back_end_are_known_and_others_refused_with_the_nearest() -> None:
    given = {"x_ptr": 0, "BLOCK": 64, "out_type": "bf16"}
    assert "enable_fp_fusion" in backend_options() and "waves_per_eu" not in backend_options()
    assert with_heuristics(cast, given, {"enable_fp_fusion": False})["enable_fp_fusion"] is False
    for wrong, right in (("waves_per_eu", ""), ("num_warp", "num_warps"), ("BLOCKS", "BLOCK")):
        with pytest.raises(InputError) as refused:
            with_heuristics(cast, given, {wrong: 2})
        assert refused.value.problem.startswith(
            f"{wrong} is set, but is neither a parameter of cast nor a launch option"
        )
        assert right in refused.value.problem


# --- hooks of configs --------------------------------------------------------------------------------------------


def set_block(args: dict[str, Any]) -> None:
    args["a"].block_shape = [args["BM"], 64]


def hooked(hook: Any) -> Any:
    @triton.autotune(configs=[triton.Config({"BM": m}, num_warps=4, pre_hook=hook) for m in (64, 128)], key=[])
    @triton.jit
    def kernel(a, x_ptr, BM: tl.constexpr):
        tl.store(x_ptr, BM)

    return kernel


@pytest.mark.parametrize("block", [64, 128])
def test_each_config_sets_its_own_block_shape(block: int) -> None:
    given = {"a": descriptor_stand_in("tensordesc<bf16[128,64]>"), "x_ptr": 0, "BM": block}
    values = with_heuristics(hooked(set_block), given, {"num_warps": 4, "num_stages": 3, "num_ctas": 1})
    assert isinstance(values["a"], TensorDescriptor) and values["a"].block_shape == [block, 64]


def test_a_hook_runs_only_where_there_are_descriptors() -> None:
    def clear(args: dict[str, Any]) -> None:
        args["x_ptr"].zero_()

    options = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
    assert with_heuristics(hooked(clear), {"a": 0, "x_ptr": 0, "BM": 64}, options)["BM"] == 64
    given = {"a": descriptor_stand_in("tensordesc<bf16[128,64]>"), "x_ptr": object(), "BM": 64}
    with pytest.raises(InputError, match=r"the pre_hook of .*BM: 64.* failed on stand-ins for its tensors: Attrib"):
        with_heuristics(hooked(clear), given, options)


# --- by the command line -----------------------------------------------------------------------------------------

TUNED = """
import triton
import triton.language as tl

@triton.autotune(configs=[
    triton.Config({"BLOCK": 256, "warp_specialise": 1}, num_warps=4),
    triton.Config({"BLOCK": 128, "enable_fp_fusion": False}, num_warps=4),
], key=["n"])
@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0 + 1.0, mask=i < n)
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: k.py:k
shapes: {n: 4096}
arguments: {x_ptr: "*fp32", n: {type: i32, value: n}}
configs: autotune
grid: ["ceil_div(n, 256)"]
"""


@pytest.mark.compiles
def test_a_config_with_an_unknown_name_cannot_launch_and_the_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "k.py").write_text(TUNED)
    (tmp_path / "k.yaml").write_text(SPEC)
    done = CliRunner().invoke(app, ["analyze", str(tmp_path / "k.yaml"), "--format", "json"])
    text = json.dumps(json.loads(done.stdout))
    assert "warp_specialise is set, but is neither a parameter of k nor a launch option" in text
    assert '"registers_per_thread": ' in text
    assert CliRunner().invoke(app, ["check", str(tmp_path / "k.yaml")]).exit_code in (1, 2)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("name", ["moe_v1.2.py", "my kernel.py", "9 lives-v2.py", "a:b.py", "-dash.py", "a.b.c.py"])
def test_a_file_is_loaded_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(textwrap.dedent(TUNED))
    reference = f"./{name}:k" if name.startswith("-") else f"{name}:k"
    command = ["analyze", reference, "--arg", "x_ptr=*fp32", "--arg", "n=i32=4096"]
    done = CliRunner().invoke(app, [*command, "--format", "json"])
    assert '"registers_per_thread": ' in done.stdout, done.output[-500:]


FAILING = """
import triton
import triton.language as tl

@triton.jit
def helper(x):
    return tl.no_such_function(x)

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), helper(n))
"""


@pytest.mark.compiles
def test_one_failure_of_all_configs_is_said_once_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCCUPANCY_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "k.py").write_text(FAILING)
    command = ["analyze", f"{tmp_path / 'k.py'}:k", "--arg", "x_ptr=*fp32", "--arg", "n=i32=64"]
    done = CliRunner().invoke(app, [*command, "--set", "BLOCK=32,64,128"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    said = " ".join(done.stdout.split())
    assert said.count("failed (version): tl.no_such_function is not in Triton") == 1
    assert "all 3 configs failed" in said and "at line 2 of helper: return tl.no_such_function(x)" in said
