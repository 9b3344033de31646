"""The Python API: what it takes, what it answers, what it imports, and how it says no."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import occupancy_cli as occ
from occupancy_cli.api.argument_types import argument_of, argument_text, configs_of
from occupancy_cli.api.given_kernel import given_kernel
from occupancy_cli.api.pruner import why_known
from occupancy_cli.plan.kernel_input import parse_argument
from occupancy_cli.report import schema
from occupancy_cli.report.machine_parts import Toolchain


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_costs_nothing() -> None:
    code = "import sys, occupancy_cli as occ; dir(occ); print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = python(code)
    for heavy in ("triton", "rich", "typer", "pydantic", "numpy", "yaml", "torch", "multiprocessing"):
        assert f"'{heavy}'" not in loaded, heavy


def test_every_name_is_there() -> None:
    assert all(hasattr(occ, name) for name in occ.__all__)
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        _ = occ.analyse  # type: ignore[attr-defined]


def test_calc_answers_as_the_command_does() -> None:
    report = occ.calc(num_warps=4, regs=168, shared=61568, gpu="5090")
    assert report.calculation is not None and report.calculation.occupancy.ctas_per_sm == 1  # 102,400 / 62,592
    assert report.rows()[0]["limited_by"] == "shared"
    assert "1 CTA per SM" in str(report)
    # Registers round up to 8 a thread: 65,536 / (128 x 168) = 3 CTAs, up to 168 registers of the 4 x 128 threads.
    ranges = occ.calc(threads=128, shared=0, gpu=occ.load_gpu("5090"), over="registers").rows()
    assert [row["ctas_per_sm"] for row in ranges][-1] == 2 and {row["over"] for row in ranges} == {"registers"}


def test_errors_name_arguments_where_the_command_line_names_options() -> None:
    with pytest.raises(occ.InputError) as bad:
        occ.calc(num_warps=4)
    assert str(bad.value).startswith("shared: is missing")
    with pytest.raises(occ.UnknownNameError, match="rtx-5090"):
        occ.calc(num_warps=4, shared=0, gpu="rtx-509")
    with pytest.raises(occ.InputError, match=r"args is for a kernel without a spec\nEdit .*sparse_mla_decode.yaml"):
        occ.analyze(args={"q_ptr": "*bf16"})
    with pytest.raises(occ.InputError, match=r"^batch 0: '0' is no range"):
        occ.analyze(batch=0)
    with pytest.raises(occ.InputError, match="batch and mix are given both"):
        occ.recommend(batch=80, mix={80: 1.0})
    with pytest.raises(occ.InputError, match="in memory is not what its file says"):
        occ.calc(num_warps=4, shared=0, gpu=_changed("5090"))
    with pytest.raises(occ.InputError, match="no executor"):
        occ.analyze(compiling=occ.Compiling(executor="ray"))
    with pytest.raises(occ.InputError, match="ctas and no_spills are given both"):
        occ.fit(ctas=2, no_spills=True)
    with pytest.raises(occ.InputError, match="33 CTAs per SM"):
        occ.fit(ctas=33)
    with pytest.raises(occ.InputError, match="0 compiles at once"):
        occ.Compiling(jobs=0)


def _changed(gpu: str) -> Any:
    import dataclasses

    return dataclasses.replace(occ.load_gpu(gpu), sm_count=1)


@pytest.mark.parametrize(
    ("value", "kind", "number", "align"),
    [
        ("*bf16", "*bf16", None, 16),
        ("*fp8e4nv@4", "*fp8e4nv", None, 4),
        ("i32=576", "i32", 576, 16),
        (None, "none", None, 16),
        (True, "i1", True, 16),
        (4096, "i32", 4096, 16),
        (1 << 31, "i64", 1 << 31, 16),
        (1 << 63, "u64", 1 << 63, 16),
        (0.5, "fp32", 0.5, 16),
        (types.SimpleNamespace(dtype="torch.float8_e4m3fn", data_ptr=lambda: 8), "*fp8e4nv", None, 8),
        (types.SimpleNamespace(dtype="torch.bool"), "*i1", None, 16),
        (types.SimpleNamespace(block_shape=[64, 32], base=types.SimpleNamespace(dtype="torch.bfloat16")),
         "tensordesc<bf16[64,32]>", None, 16),
    ],
)  # fmt: skip
def test_what_stands_for_an_argument(value: Any, kind: str, number: Any, align: int) -> None:
    found = argument_of("x", value)
    assert (found.type.replace(" ", ""), found.value, found.align) == (kind, number, align)


@pytest.mark.parametrize("value", [object(), [1], 1 << 64, "*bf17", types.SimpleNamespace(dtype="torch.complex64")])
def test_what_stands_for_no_argument_is_named(value: Any) -> None:
    with pytest.raises(occ.InputError, match=r'^args\["x"\]: '):
        argument_of("x", value)


@pytest.mark.parametrize(
    "value", ["*bf16", "*fp8e4nv@4", "i32=576", "tensordesc<bf16[64,32]>", None, True, 1 << 40, 0.5]
)
def test_an_argument_as_text_is_the_same_argument(value: Any) -> None:
    assert parse_argument(argument_text("x", value)) == ("x", argument_of("x", value))


def test_a_side_of_a_diff_is_a_config_a_name_or_a_report_of_explain() -> None:
    with pytest.raises(occ.InputError, match=r"^before: a object is no side of a diff\nA config such as"):
        occ.diff(object(), "h200")
    with pytest.raises(occ.InputError, match=r"^after: a config without a value"):
        occ.diff({"BLOCK_T": 16}, {})
    report = occ.calc(num_warps=4, shared=0)
    with pytest.raises(occ.InputError, match=r"^before: is a Report of `calc`, which has no maps of shared memory"):
        occ.diff(report, report)


def test_configs_are_mappings_or_triton_configs() -> None:
    config = types.SimpleNamespace(kwargs={"BLOCK": 64}, num_warps=8, num_stages=2, num_ctas=1, maxnreg=None)
    assert configs_of([config, {"BLOCK": 32}]) == [
        {"BLOCK": 64, "num_warps": 8, "num_stages": 2, "num_ctas": 1},
        {"BLOCK": 32},
    ]
    with pytest.raises(occ.InputError, match=r"configs\[0\]: num_warps is 3, not a power of two"):
        configs_of([{"num_warps": 3}])
    with pytest.raises(occ.InputError, match=r"configs\[1\]: a int is no config"):
        configs_of([{}, 3])


def test_a_spec_that_was_read_is_a_kernel_and_takes_other_configs() -> None:
    spec = occ.load_spec("sparse_mla_decode")
    given = given_kernel(spec, args=None, grid=None, configs=[{"BLOCK_T": 16}], settings={"batch": range(1, 4)})
    assert given.kernel.spec.configs == [{"BLOCK_T": 16}] and given.settings["batch"].values == (1, 2, 3)
    assert spec.spec.configs != [{"BLOCK_T": 16}]
    with pytest.raises(occ.InputError, match=r'settings\["batch"\]: a dict is no value'):
        given_kernel(spec, args=None, grid=None, configs=None, settings={"batch": {}})


def test_what_is_no_kernel_is_said() -> None:
    with pytest.raises(occ.InputError, match=r"kernel: a builtins.int is no kernel\nPass a @triton.jit function"):
        occ.analyze(3)
    interpreted = types.SimpleNamespace(fn=type("InterpretedFunction", (), {})())
    with pytest.raises(occ.InputError, match="TRITON_INTERPRET"):
        occ.analyze(interpreted)


# --- the pruner, by a Report ---------------------------------------------------------------------------------------


def entry(status: Any, knobs: dict[str, Any] | None = None, **config: Any) -> schema.Config:
    return schema.Config(
        config={**config, "num_ctas": 1}, knobs=knobs or {}, status=status, fits=status == "ok", over_bytes=0,
        reason="too large" if status == "over_cap" else "",
    )  # fmt: skip


def fits(*entries: schema.Config, gpu: str = "5090") -> occ.Report:
    from occupancy_cli.answers.report_parts import gpu_part

    kernel = schema.Kernel(name="k", source="k.yaml", kernel="k.py:k", configs=list(entries))
    profile = gpu_part(occ.load_gpu(gpu))
    return schema.Report(command="analyze", toolchain=Toolchain(occupancy="0"), gpu=profile, kernels=[kernel])


class Config:
    """As `triton.Config`."""

    def __init__(self, block: int, num_warps: int = 4) -> None:
        self.kwargs = {"BLOCK": block}
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, 3, 1, None


def test_a_config_is_left_out_only_where_all_that_is_known_says_so() -> None:
    report = fits(
        entry("ok", {"H": 16}, BLOCK=64, num_warps=4), entry("over_cap", {"H": 32}, BLOCK=64, num_warps=4),
        entry("failed", {"H": 64}, BLOCK=64, num_warps=4),
    )  # fmt: skip
    config = {"BLOCK": 64, "num_warps": 4, "num_ctas": 1}
    assert why_known(report, config, {"H": 32}) == "too large"
    assert why_known(report, config, {"H": 16}) == why_known(report, config, {"H": 64}) == ""
    assert why_known(report, config, {}) == ""  # whatever H is, it may be 16
    assert why_known(report, {**config, "BLOCK": 128}, {"H": 32}) == ""  # nothing is known of it


def test_a_report_prunes_in_the_order_of_the_configs(tmp_path: Path) -> None:
    small, large, other = Config(64), Config(128), Config(256)
    options = {"num_warps": 4, "num_stages": 3}
    report = fits(entry("ok", BLOCK=64, **options), entry("over_cap", BLOCK=128, **options))
    file = tmp_path / "fits.json"
    file.write_text(report.to_json())
    for known in (report, file, str(file)):
        prune = occ.pruner(known=known, gpu="5090")
        assert prune([large, other, small], {"x": object()}, grid=(1,), warmup=False) == [other, small]
        assert [why for _, why in prune.dropped] == ["too large"]
    with pytest.warns(RuntimeWarning, match="no config is left: too large"):
        assert occ.pruner(known=report, gpu="5090")([large], {}) == [large]


def test_a_report_of_another_gpu_prunes_nothing_and_says_so_once() -> None:
    import warnings

    prune = occ.pruner(known=fits(entry("over_cap", BLOCK=64)), gpu="h200")
    configs = [Config(64), Config(128)]
    with pytest.warns(RuntimeWarning, match="the cap of H200 SXM is another"):
        assert prune(configs, {}) == configs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prune(configs, {}) == configs


def test_a_pruner_asks_the_one_before_it() -> None:
    class Autotuned:
        configs = (Config(64), Config(128), Config(256))
        early_config_prune = staticmethod(lambda configs, named_args, **kwargs: list(configs)[1:])

    tuned = occ.prune(known=fits(entry("over_cap", BLOCK=128, num_warps=4, num_stages=3)), gpu="5090")(Autotuned())
    assert tuned.early_config_prune(tuned.configs, {}) == [tuned.configs[2]]
    with pytest.raises(occ.InputError, match="has no configs to prune"):
        occ.prune(gpu="5090")(test_a_pruner_asks_the_one_before_it)


def test_a_pruner_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(occ.InputError, match="neither a kernel"):
        occ.pruner()
    broken = tmp_path / "no.json"
    broken.write_text("{}")
    with pytest.raises(occ.InputError, match=r"no\.json: is no Report"):
        occ.pruner(known=broken)
    with pytest.raises(occ.InputError, match="has no configs"):
        occ.pruner(known=occ.calc(num_warps=4, shared=0))


# --- tables and notebooks ------------------------------------------------------------------------------------------


def test_rows_have_the_same_names_everywhere() -> None:
    rows = fits(entry("ok", {"H": 16}, BLOCK=64), entry("over_cap", BLOCK=128, num_warps=4)).rows()
    assert [list(r) for r in rows] == [list(rows[0])] * 2
    assert (rows[0]["H"], rows[1]["H"], rows[1]["num_warps"], rows[1]["reason"]) == (16, None, 4, "too large")
    with pytest.raises(occ.OccupancyError, match="a Report of `x` has no table"):
        schema.Report(command="x", toolchain=Toolchain(occupancy="0")).rows()


def test_a_data_frame_is_the_rows() -> None:
    pandas = pytest.importorskip("pandas")
    report = occ.gpus("5090", "h200")
    frame = report.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["sm_count"]) == [170, 132]


def test_an_arrow_table_is_the_rows() -> None:
    pytest.importorskip("pyarrow")
    assert occ.gpus("5090", "h200").to_arrow().column("sm_count").to_pylist() == [170, 132]


def test_without_pandas_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for method in ("to_pandas", "to_arrow"):
        with pytest.raises(occ.MissingDependencyError, match=f"Report.{method} needs the package"):
            getattr(occ.gpus("5090"), method)()


def test_a_notebook_and_rich_show_what_the_command_prints() -> None:
    import io

    from rich.console import Console

    report = occ.gpus("5090")
    out = io.StringIO()
    Console(file=out, width=100).print(report)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == str(report).splitlines()
    html = occ.calc(num_warps=4, regs=168, shared=61568, gpu="5090")._repr_html_()
    assert html.count("<table>") == 1 and "CTAs/SM" in html and "<script" not in html
