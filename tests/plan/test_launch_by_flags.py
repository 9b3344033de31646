"""A whole launch by flags: the 40 arguments of `examples/by_flags`, and what is said when some are left out."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from locations import EXAMPLES

from occupancy_cli.errors import InputError
from occupancy_cli.plan.kernel_input import parse_argument, read_kernel_input

EXAMPLE = EXAMPLES / "by_flags"
RUNTIME = 26
CONSTEXPRS = 14


def command() -> list[str]:
    """The words of the example's command, after `occupancy`."""
    text = (EXAMPLE / "analyze.sh").read_text().partition("exec occupancy ")[2].replace('"$@"', "")
    words = shlex.split(text.replace('"$(dirname "$0")/', f'"{EXAMPLE}/'))
    return [w for w in words if w.strip()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments],
        capture_output=True, text=True, check=False, cwd=EXAMPLE.parents[1], env=dict(os.environ),
    )  # fmt: skip


def test_the_example_gives_every_parameter_once() -> None:
    signature = (EXAMPLE / "attention.py").read_text().partition("def paged_attention(")[2].partition("):")[0]
    params = re.findall(r"(\w+)(: tl\.constexpr)?,", signature)
    words = command()
    given = [w.partition("=")[0] for flag, w in itertools.pairwise(words) if flag in ("--arg", "--set")]
    assert len(params) == RUNTIME + CONSTEXPRS == 40
    assert [p for p, _ in params] == [g for g in given if g not in ("num_warps", "num_stages")]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("n=4096", "i32", 4096),
        ("n=-1", "i32", -1),
        ("n=2147483648", "i64", 2**31),
        ("n=9223372036854775808", "u64", 2**63),
        ("scale=0.5", "fp32", 0.5),
        ("causal=true", "i1", True),
        ("n=i64=7", "i64", 7),
    ],
)
def test_an_argument_by_its_value(text: str, kind: str, value: float) -> None:
    name, argument = parse_argument(text)
    assert (name, argument.type, argument.value) == (text.partition("=")[0], kind, value)


def test_a_signature_as_tools_compile_takes_it(kernel_file: Path) -> None:
    # scale(x_ptr, y_ptr, n, factor, BLOCK, EVEN)
    given = read_kernel_input(f"{kernel_file}:scale", signature="*fp32:16, *bf16, i32:16, fp32, 1024, true")
    x, y, n, factor = given.spec.arguments.values()
    assert (x.type, x.align, y.type, y.align) == ("*fp32", 16, "*bf16", 1)
    assert (n.type, given.spec.shapes["n"], factor.type) == ("i32", 16, "fp32")
    assert given.spec.constexprs == {"BLOCK": 1024, "EVEN": True}
    bare = read_kernel_input(f"{kernel_file}:scale", signature="*fp32, *fp32, i32, fp32, 64, true").spec.shapes["n"]
    assert isinstance(bare, int) and bare % 16 and bare != 1  # no hint: nothing is known of it
    with pytest.raises(InputError, match="a signature of 2; scale has 6 parameters: x_ptr, y_ptr"):
        read_kernel_input(f"{kernel_file}:scale", signature="*fp32, i32")


@pytest.mark.compiles
def test_a_launch_of_40_arguments_by_flags() -> None:
    done = run(*command(), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    configs = json.loads(done.stdout)["kernels"][0]["configs"]
    assert [c["config"]["num_stages"] for c in configs] == [1, 2, 3]
    for config in configs:
        assert config["status"] == "ok"
        assert config["launch"]["grid"] == [80, 8]  # num_seqs; 64 query heads in groups of 8
        assert config["config"]["PRECISION"] == "ieee"
        assert config["config"]["USE_SINKS"] is True
        assert config["resources"]["registers_per_thread"] > 0
        assert config["notes"] == []


@pytest.mark.compiles
def test_everything_missing_is_listed_at_once() -> None:
    words = command()
    dropped = ("query_ptr", "stride_key_slot", "stride_tables")
    kept = [words[0], words[1]]
    for flag, value in zip(words[2::2], words[3::2], strict=True):
        if not (flag == "--arg" and value.partition("=")[0] in dropped):
            kept += [flag, value]
    done = run(*kept)
    assert done.returncode == 2
    assert "3 arguments have no type" in done.stderr
    assert "--arg query_ptr=TYPE --arg stride_key_slot=TYPE --arg stride_tables=TYPE" in done.stderr
    none = run(*words[:2])
    assert none.returncode == 2
    assert len(re.findall(r"--arg \w+=TYPE", none.stderr)) == RUNTIME
    assert len(re.findall(r"--set \w+=VALUE", none.stderr)) == CONSTEXPRS
    assert "Traceback" not in none.stderr
