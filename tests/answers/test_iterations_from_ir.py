"""Iterations of a CTA where the spec has no `work`: read from the compiled kernel, evaluated for each launch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.compile.kernel_times import Iterations
from occupancy_cli.compile.simulated_timing import read_iterations
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.cta_work import LaunchShape
from occupancy_cli.readers.ir_work import read_work
from occupancy_cli.readers.ttgir import parse_ttgir

H200 = load_gpu("h200")
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def row_sums(x_ptr, out_ptr, columns, splits, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    each = tl.cdiv(tl.cdiv(columns, BLOCK), splits)
    total = tl.zeros([BLOCK], tl.float32)
    first = split * each
    for tile in range(first, tl.minimum(first + each, tl.cdiv(columns, BLOCK))):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row * splits + split, tl.sum(total))


@triton.jit
def nested(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(rows):
        for tile in range(tl.cdiv(columns, BLOCK)):
            total += tl.load(x_ptr + row * columns + tile * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))
"""
SPEC = """
schema: occupancy/kernel-spec/1
kernel: made.py:row_sums
shapes: {batch: 40, columns: 5000}
knobs:
  SPLITS: {default: 1, values: [1, 3, 7]}
arguments:
  x_ptr: "*fp32"
  out_ptr: "*fp32"
  columns: {type: i32, value: columns}
  splits: {type: i32, value: SPLITS}
configs: [{BLOCK: 256, num_warps: 4}]
grid: [batch, SPLITS]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text(KERNEL)
    (tmp_path / "made.yaml").write_text(SPEC)
    (tmp_path / "nested.yaml").write_text(
        SPEC.replace("row_sums", "nested").replace("splits: {type: i32, value: SPLITS}", "rows: {type: i32, value: 9}")
    )
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "occupancy_cli", *arguments, "--gpu", "h200", "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.compiles
def test_a_spec_without_work_is_recommended_for_from_the_ir(folder: Path) -> None:
    done = run("recommend", str(folder / "made.yaml"), "--batch", "40,41,900")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["notes"] == ["iterations of a CTA of row_sums: IR"]
    for found in report["recommendations"]:
        assert found["iterations_from"] == {"row_sums": "IR"}
    # 40 rows are less than a wave of 132 SMs: splits pay. 900 rows are many CTAs an SM without them.
    assert report["recommendations"][0]["knobs"]["SPLITS"] > 1
    # The same spec with the iterations counted by hand: 5000 columns are ceil(5000 / 256) = 20 tiles, over 3 splits 7,
    # 7 and 6, over 7 splits three each and two in the last. Every time and term is the same.
    counted = json.loads(run("recommend", str(with_work(folder)), "--batch", "40,41,900").stdout)
    assert [f.pop("iterations_from") for f in counted["recommendations"]] == [{"row_sums": "spec"}] * 3
    for found in report["recommendations"]:
        del found["iterations_from"]
    assert report["recommendations"] == counted["recommendations"]
    assert report["single_setting"] == counted["single_setting"]


def with_work(folder: Path) -> Path:
    """The same spec with the iterations counted by hand."""
    path = folder / "counted.yaml"
    each = "ceil_div(ceil_div(columns, 256), SPLITS)"
    path.write_text(
        SPEC + f"work: {{iterations: 'clamp(ceil_div(columns, 256) - pid1 * {each}, 0, {each})'}}\n"
    )  # fmt: skip
    return path


@pytest.mark.compiles
def test_a_loop_in_a_loop_is_counted(folder: Path) -> None:
    """9 rows of 20 tiles of 256 are 180 iterations of the inner loop; twice the rows are twice as many."""
    times = {}
    for rows in (9, 18):
        path = folder / f"nested{rows}.yaml"
        path.write_text((folder / "nested.yaml").read_text().replace("value: 9", f"value: {rows}"))
        done = run("recommend", str(path), "--batch", "40")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["recommendations"]
        assert found["iterations_from"] == {"nested": "IR"}
        terms = found["chosen"]["terms"]
        times[rows] = terms["schedule_us"]
    # 40 CTAs, each alone on its SM: 180 iterations more of the inner loop, and 9 of the outer one, which fills the
    # software pipeline anew and so waits for memory once.
    inner, outer = 180 * terms["iteration_alone_us"], 9 * H200.dram_latency_cycles / H200.boost_clock_mhz
    assert inner <= times[18] - times[9] <= inner + 2 * outer


TTGIR = """
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%x: !tt.ptr<f32>, %n: i32, %m: i32 {tt.divisibility = 16 : i32}) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %p = tt.get_program_id x : i32
    %end = BODY
    scf.for %i = %c0 to %end step %c1 : i32 {
      %v = tt.load %x : !tt.ptr<f32>
    }
    tt.return
  }
}
"""


def iterations(body: str, **arguments: int | None) -> Iterations:
    text = TTGIR.replace("%end = BODY", body)
    kernel = parse_ttgir(text)
    given = {"x": None, "n": 8, "m": 64, **arguments}
    return read_iterations(kernel, text, read_work(kernel, given).trip_count, given)


def test_an_expression_is_kept_only_if_it_gives_what_the_ir_gives() -> None:
    assert iterations("%end = arith.divsi %m, %n : i32").expression == "(m // n)"
    assert iterations("%end = arith.addi %p, %n : i32").expression == "(pid0 + n)"
    # m // (n * n): whether or not its text has the brackets, what is kept divides by the product.
    product = iterations("%q = arith.muli %n, %n : i32\n    %end = arith.divsi %m, %q : i32", m=960)
    if product.expression is not None:
        assert eval(product.expression, {"m": 960, "n": 8}) == 15
    else:
        assert "do not tell one value" in product.reason
    shifted = iterations("%end = arith.shrsi %m, %n : i32")
    assert shifted.expression is None and "cannot be worked out" in shifted.reason


def test_loaded_lengths_count_as_long_as_they_can_be() -> None:
    bounded = iterations("%l = tt.load %y : !tt.ptr<i32>\n    %end = arith.minsi %l, %n : i32".replace("%y", "%x"))
    assert bounded.at_most
    assert bounded.expression == "min(1073741824, n)"
    alone = iterations("%end = tt.load %x : !tt.ptr<i32>")
    assert alone.expression is None
    assert "loaded data alone decides" in alone.reason


def test_a_kernel_without_a_loop_runs_none() -> None:
    text = "module {\n tt.func public @k(%x: !tt.ptr<f32>) {\n tt.return\n }\n}"
    assert read_iterations(parse_ttgir(text), text, None, {}).expression == "0"
    assert LaunchShape.uniform((4,), 0.0).working == 4
