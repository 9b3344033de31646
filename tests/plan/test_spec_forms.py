"""What a spec may say of a launch: values by expression, facts of the GPU, configs of a kernel that follows, what --set
changes, and launches that no GPU takes. Planned without compiling: the signatures are given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occupancy_cli.compile.kernel_record import KernelDescription, Parameter
from occupancy_cli.compile.request import CompileOutcome, KernelSource, Target
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.point_table import candidate_tables, settled_table
from occupancy_cli.plan.points import Point, points
from occupancy_cli.plan.prepared_kernel import Kernel, prepare
from occupancy_cli.plan.settled_launches import settled_point
from occupancy_cli.spec.settings import parse_settings

H200 = load_gpu("h200")  # 132 SMs
SPEC = """
schema: occupancy/kernel-spec/1
kernel: k.py:split
shapes: {batch: 80, n: 4096}
knobs:
  SPLITS: {default: next_power_of_2(n // 512), values: [1, 8, 16]}
  PROGRAMS: {default: "min(sm_count, SPLITS * batch)"}
arguments: {x: "*fp32", n: {type: i32, value: n}, stride: {type: i32, value: n * 2}}
constexprs: {BLOCK: 256}
configs: [{num_warps: 8}]
grid: [batch, SPLITS]
followed_by:
  - kernel: k.py:combine
    arguments: {x: "*fp32", n: {type: i32, value: BLOCK}, stride: {type: i32, value: num_warps}}
    configs: [{BLOCK: 64, num_warps: 2}]
    grid: [PROGRAMS]
"""


def described(source: KernelSource, _: Target) -> KernelDescription:
    arguments = [Parameter(name, False, "", None, False, True) for name in ("x", "n", "stride")]
    return KernelDescription(source.kernel, (*arguments, Parameter("BLOCK", True, "", None, False, False)), None, ())


def kernel(folder: Path, spec: str = SPEC, *sets: str, gpu: str = "h200") -> Kernel:
    (folder / "k.py").write_text("import triton\n\n\n@triton.jit\ndef split(x, n, stride, BLOCK): ...\n")
    (folder / "k.yaml").write_text(spec)
    return prepare(read_kernel_input(str(folder / "k.yaml")), load_gpu(gpu), described, parse_settings(sets), {})


def compiled(shared_bytes: int = 0) -> CompileOutcome:
    return CompileOutcome(KernelResources(shared_bytes, num_warps=8, threads_per_cta=256, registers_per_thread=32))


def main_outcome(prepared: Kernel, point: Point, main: CompileOutcome) -> CompileOutcome:
    return settled_point(prepared.given, H200, point, (main, compiled()))[1][0]


def test_a_default_by_expression_and_facts_of_the_gpu(tmp_path: Path) -> None:
    (point,) = points(kernel(tmp_path), H200, None)
    # 4096 // 512 = 8 splits; 80 x 8 = 640 is more than the 132 SMs
    assert point.knobs == {"SPLITS": 8, "PROGRAMS": 132}
    assert (point.main.grid, point.followers[0].grid) == ((80, 8), (132,))
    few, many = points(kernel(tmp_path, SPEC, "n=512,8192"), H200, None)
    assert (few.knobs["SPLITS"], many.knobs["SPLITS"]) == (1, 16)
    assert few.knobs["PROGRAMS"] == 80  # 1 x 80 programs


def test_defaults_by_expression_are_what_is_set_now_at_each_batch(tmp_path: Path) -> None:
    (table,) = candidate_tables(kernel(tmp_path), H200, [4, 80], {}, None)
    now = [row for row in range(table.rows) if table.now[row]]
    found = {(table.point(row).shapes["batch"], *table.point(row).knobs.values()) for row in now}
    # 4 x 8 = 32 programs at batch 4
    assert found == {(4, 8, 32), (80, 8, 132)}


def test_a_default_may_not_use_what_is_decided_later(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown shape, knob or fact of the GPU 'BLOCKS'"):
        kernel(tmp_path, SPEC.replace("n // 512", "n // BLOCKS"))


def test_a_kernel_that_follows_has_its_own_config(tmp_path: Path) -> None:
    (point,) = points(kernel(tmp_path), H200, None)
    main, after = point.main.request, point.followers[0].request
    assert (main.constexprs, main.options) == ((("BLOCK", 256),), (("num_warps", 8),))
    assert (after.constexprs, after.options) == ((("BLOCK", 64),), (("num_warps", 2),))
    # Its expressions see its own values too.
    assert [a.value for a in after.arguments] == [None, 64, 2]
    table = candidate_tables(kernel(tmp_path), H200, [80], {}, None)[0]
    assert table.plan(1, 0).request == after


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ("[{num_warps: 2}, {num_warps: 4}]", "2 configs where one is needed"),
        ("{product: {num_warps: [2, 4], BLOCK: [64]}}", "2 configs where one is needed"),
        ("[{num_warp: 2}]", "unknown constexpr of combine or launch option 'num_warp'"),
        ("autotune", "combine has no @triton.autotune"),
        ("{table: tables}", "a kernel that follows takes no config table"),
    ],
)
def test_other_configs_of_a_kernel_that_follows_are_refused_by_name(tmp_path: Path, configs: str, said: str) -> None:
    with pytest.raises(InputError, match=r"followed_by\[0\]\.configs") as caught:
        kernel(tmp_path, SPEC.replace("[{BLOCK: 64, num_warps: 2}]", configs))
    assert said in str(caught.value)


def test_set_changes_what_is_launched(tmp_path: Path) -> None:
    both = points(kernel(tmp_path, SPEC, "BLOCK=64,128", "stride=3"), H200, None)
    assert [p.main.request.constexprs for p in both] == [(("BLOCK", 64),), (("BLOCK", 128),)]
    assert {a.value for p in both for a in p.main.request.arguments if a.name == "stride"} == {3}


def test_a_name_that_knobs_and_configs_give_is_refused(tmp_path: Path) -> None:
    spec = SPEC.replace("  SPLITS:", "  BLOCK: {default: 64}\n  SPLITS:").replace("constexprs: {BLOCK: 256}\n", "")
    with pytest.raises(InputError, match=r"k.yaml:6:3: knobs.BLOCK: BLOCK is a knob, and the configs in line \d+ give"):
        kernel(tmp_path, spec.replace("configs: [{num_warps: 8}]", "configs: [{num_warps: 8, BLOCK: 2}]"))


def test_a_knob_may_be_a_launch_option(tmp_path: Path) -> None:
    spec = SPEC.replace("configs: [{num_warps: 8}]\n", "configs: [{num_stages: 2}]\n", 1)
    spec = spec.replace("knobs:\n", "knobs:\n  num_warps: {default: 4, values: [2, 4, 8]}\n", 1)
    (point,) = points(kernel(tmp_path, spec), H200, None)
    assert dict(point.main.request.options) == {"num_warps": 4, "num_stages": 2}
    (table,) = candidate_tables(kernel(tmp_path, spec), H200, [80], {}, None)
    asked = {dict(table.plan(0, kind).request.options)["num_warps"] for kind in range(len(table.launches[0].firsts))}
    assert asked == {2, 4, 8}


def test_several_values_of_a_launch_option_are_candidates(tmp_path: Path) -> None:
    tables = candidate_tables(kernel(tmp_path, SPEC, "num_warps=2,4", "num_stages=2,3"), H200, [80], {}, None)
    options = [dict(table.plan(0, 0).request.options) for table in tables]
    assert options == [{"num_warps": w, "num_stages": s} for w in (2, 4) for s in (2, 3)]


def test_a_grid_over_the_limit_is_a_launch_that_fails(tmp_path: Path) -> None:
    # CUDA's limit of the second axis is 65,535.
    spec = SPEC.replace("grid: [batch, SPLITS]", "grid: [SPLITS, batch]")
    prepared = kernel(tmp_path, spec, "batch=80,70000")
    outcomes = [main_outcome(prepared, point, compiled()) for point in points(prepared, H200, None)]
    assert outcomes[0].ok and outcomes[1].kind == "launch"
    assert "'batch' comes to 70,000, an axis is 1 to 65,535" in outcomes[1].message
    assert "grid[1]" in outcomes[1].message
    (table,) = candidate_tables(kernel(tmp_path, spec), H200, [80, 70_000], {}, None)
    impossible = table.launches[0].impossible
    assert {bool(i >= 0) for i in impossible[table.batch == 0]} == {False}
    assert {table.launches[0].reasons[i] for i in impossible[table.batch == 1]} == {outcomes[1].message}


PERSISTENT = SPEC.replace("grid: [batch, SPLITS]", "grid: [sm_count * ctas_per_sm]")


def test_a_persistent_grid_waits_for_the_ctas_of_an_sm(tmp_path: Path) -> None:
    prepared = kernel(tmp_path, PERSISTENT)
    (point,) = points(prepared, H200, None)
    assert point.main.grid is None
    # 100,000 bytes of shared memory: two CTAs in the 233,472 of an SM, so 264 programs on 132 SMs.
    known, _ = settled_point(prepared.given, H200, point, (compiled(100_000), compiled()))
    assert known.main.grid == (264,) and known.main.names["ctas_per_sm"] == 2
    (table,) = candidate_tables(prepared, H200, [80], {}, None)
    grids = settled_table(table, [[compiled(100_000)] * len(c.firsts) for c in table.launches]).launches[0].grids
    assert grids is not None and np.unique(grids).tolist() == [264]
    with pytest.raises(InputError, match="ctas_per_sm is known only when the kernel is compiled"):
        points(kernel(tmp_path, PERSISTENT.replace("value: n * 2", "value: ctas_per_sm")), H200, None)


def test_a_cooperative_launch_needs_all_its_ctas_at_once(tmp_path: Path) -> None:
    cooperative = "configs: [{num_warps: 8, launch_cooperative_grid: true}]"
    prepared = kernel(tmp_path, SPEC.replace("configs: [{num_warps: 8}]", cooperative, 1))
    (point,) = points(prepared, H200, None)
    # 80 x 8 = 640 CTAs; with 32 registers and 8 warps an SM holds 8 (64 warps / 8), so 132 x 8 = 1,056 slots. With
    # 100,000 bytes it holds 2: 264.
    outcomes = [main_outcome(prepared, point, compiled(shared_bytes)) for shared_bytes in (0, 100_000)]
    assert outcomes[0].ok
    assert outcomes[1].message == (
        "a cooperative launch needs its 640 CTAs on the GPU at once, 132 SMs x 2 CTAs/SM hold 264"
    )
    (table,) = candidate_tables(prepared, H200, [10], {}, None)
    outcomes_by_kind: list[Any] = [[compiled(100_000)] * len(c.firsts) for c in table.launches]
    columns = settled_table(table, outcomes_by_kind).launches[0]
    assert columns.grids is not None
    # At batch 10 the 8 splits are 80 CTAs and 16 are 160: both fit. None is refused.
    assert (columns.impossible < 0).all() and sorted(np.unique(columns.grids.prod(axis=1))) == [10, 80, 160]


def test_limits_alone_have_no_sm_count(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sm_count is not known"):
        points(kernel(tmp_path, gpu="sm90"), load_gpu("sm90"), None)


def test_what_nothing_reads_is_named(tmp_path: Path) -> None:
    assert kernel(tmp_path).from_source.notes == ()
    spec = SPEC.replace("knobs:\n", "knobs:\n  GROUP: {default: 4, values: [1, 4]}\n", 1)
    assert kernel(tmp_path, spec).from_source.notes == (
        "GROUP changes nothing: no expression of the spec and no parameter of the kernel is called so",
    )
    (tmp_path / "k.yaml").write_text(SPEC)

    def never_read(source: KernelSource, target: Target) -> KernelDescription:
        found = described(source, target)
        return replace(found, params=tuple(replace(p, read=p.name != "BLOCK") for p in found.params))

    given = read_kernel_input(str(tmp_path / "k.yaml"))
    swept = prepare(given, H200, never_read, parse_settings(["BLOCK=64,128"]), {})
    assert swept.from_source.notes == ()  # an argument of what follows is BLOCK
    (tmp_path / "k.yaml").write_text(SPEC.replace("value: BLOCK}", "value: 3}"))
    swept = prepare(read_kernel_input(str(tmp_path / "k.yaml")), H200, never_read, parse_settings(["BLOCK=64,128"]), {})
    assert swept.from_source.notes == ("BLOCK changes nothing: split never reads it",)


def test_the_setting_of_today_is_what_is_set_now(tmp_path: Path) -> None:
    today = "configs: [{num_warps: 8}, {num_warps: 4}]\nin_use: {SPLITS: 16, num_warps: 4}\n"
    spec = SPEC.replace("configs: [{num_warps: 8}]\n", today, 1)
    prepared = kernel(tmp_path, spec)
    assert prepared.settings["SPLITS"].values == (16,) and prepared.settings["SPLITS"].origin == "in_use"
    eight, four = candidate_tables(prepared, H200, [80], {}, None)
    assert not eight.now.any()
    now = [four.point(row) for row in range(four.rows) if four.now[row]]
    assert {(p.knobs["SPLITS"], dict(p.main.request.options)["num_warps"]) for p in now} == {(16, 4)}


@pytest.mark.parametrize(
    ("today", "said"),
    [
        ("{num_warps: 2}", "in_use: no config of split has num_warps 2"),
        ("{SPLIT: 2}", "in_use.SPLIT: unknown knob or name of a config 'SPLIT'"),
        ("{batch: 2}", "in_use.batch: unknown knob or name of a config 'batch'"),
    ],
)
def test_a_setting_of_today_that_the_spec_cannot_have_is_refused(tmp_path: Path, today: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        kernel(tmp_path, SPEC + f"in_use: {today}\n")
    assert said in str(caught.value)


def test_the_block_shape_of_a_descriptor_follows_the_config(tmp_path: Path) -> None:
    spec = SPEC.replace('x: "*fp32"', 'x: "tensordesc<float16[BLOCK, min(2 * SPLITS, 64)]>"', 1)
    by_config = points(kernel(tmp_path, spec, "BLOCK=64,128"), H200, None)
    # SPLITS is 8
    assert [p.main.request.arguments[0].type for p in by_config] == [
        "tensordesc<fp16[64,16]>",
        "tensordesc<fp16[128,16]>",
    ]
    (table,) = candidate_tables(kernel(tmp_path, spec), H200, [80], {}, None)
    kinds = range(len(table.launches[0].firsts))
    assert {table.plan(0, kind).request.arguments[0].type for kind in kinds} == {
        f"tensordesc<fp16[256,{columns}]>" for columns in (2, 16, 32)
    }
    with pytest.raises(InputError, match="the block shape's BLOCK - 256 comes to 0"):
        points(kernel(tmp_path, spec.replace("[BLOCK,", "[BLOCK - 256,")), H200, None)
