"""`occupancy capture`, whole: scripts run in a process of their own, and the specs that come of them.

Nothing here needs a GPU. Scripts that need torch are skipped without it, and fail with OCCUPANCY_REQUIRE_TORCH=1.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from locations import DATA, EXAMPLES
from report_schema import valid_report
from typer.testing import CliRunner

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.capture.captured_spec import CapturedSpec
from occupancy_cli.capture.session import CaptureRequest, CaptureResult, capture, spec_paths
from occupancy_cli.cli import capture_command as capture_command
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import InputError, OccupancyError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.spec.kernel_spec import KernelSpecFile, load_spec

pytestmark = pytest.mark.compiles

CAPTURE_DATA = DATA / "capture"
EXAMPLE = EXAMPLES / "capture" / "matmul.py"
GPU = load_gpu("rtx-pro-6000")


def _run(script: Path, out: Path, *arguments: str, **options: Any) -> CaptureResult:
    return capture(CaptureRequest(str(script), arguments, out, options.pop("gpu", GPU), **options))


def _specs(result: CaptureResult) -> list[tuple[CapturedSpec, KernelSpecFile]]:
    return [(s, load_spec(p)[0]) for s, p in zip(result.captured.specs, result.spec_paths, strict=True)]


def _of(result: CaptureResult, kernel: str) -> list[tuple[CapturedSpec, KernelSpecFile]]:
    found = [(s, spec) for s, spec in _specs(result) if s.kernel == kernel]
    assert found, f"no spec of {kernel}"
    return found


@pytest.fixture(scope="module")
def require_torch() -> None:
    if importlib.util.find_spec("torch") is not None:
        return
    if os.environ.get("OCCUPANCY_REQUIRE_TORCH") == "1":
        pytest.fail("torch is not installed, and OCCUPANCY_REQUIRE_TORCH=1 asks for it")
    pytest.skip("torch is not installed: captures of torch scripts are not tested")


# --- a script that needs Triton alone ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> CaptureResult:
    return _run(CAPTURE_DATA / "without_torch.py", tmp_path_factory.mktemp("plain") / "captured", "--flag", "-x", "3")


def test_every_distinct_launch_becomes_a_spec(plain: CaptureResult) -> None:
    assert plain.exit_code == 0
    assert plain.captured.status == "complete"
    add = [(s, spec) for s, spec in _of(plain, "add") if spec.grid != [5]]
    # n = 1000 was launched twice; 4096, 1 and the pointer that is 4 bytes off make one spec each.
    assert [s.launches for s, _ in add] == [2, 1, 1, 1]
    assert [spec.arguments["n"].value for _, spec in add] == ["n", "n", "n", 1000]
    assert [spec.shapes.get("n") for _, spec in add] == [1000, 4096, 1, None]
    assert [spec.arguments["x_ptr"].align for _, spec in add] == [16, 16, 16, 4]
    assert add[0][1].constexprs == {"BLOCK": 256}
    assert add[0][1].configs == [{"num_warps": 4, "num_stages": 3}]


def test_launches_that_differ_in_a_counter_alone_are_four_specs_and_a_count(plain: CaptureResult) -> None:
    steps = [(s, spec) for s, spec in _of(plain, "add") if spec.grid == [5]]
    assert [spec.arguments["n"].value for _, spec in steps] == [3, 4, 5, 6]
    # Ten launches: one each for 4, 5 and 6, and the first stands for 3 and for 7 to 12.
    assert [s.launches for s, _ in steps] == [7, 1, 1, 1]
    assert steps[0][0].notes == ("6 of its launches had other integers, with the same specialization and grid",)


def test_a_grid_function_gives_its_formula_and_a_tuple_its_numbers(plain: CaptureResult) -> None:
    add = _of(plain, "add")[:4]
    assert [spec.grid for _, spec in add] == [["ceil_div(n, BLOCK)"]] * 3 + [[4]]
    # 320 is a number of the script's own, not an argument that the grid function was given.
    assert _of(plain, "scale")[0][1].grid == ["ceil_div(320, BLOCK)", 2]


def test_all_autotune_configs_are_recorded_and_the_first_launchable_goes_on(plain: CaptureResult) -> None:
    ((captured, spec),) = _of(plain, "scale")
    # 320 is a multiple of 64, and not of 128: what the heuristic says goes with each config.
    assert spec.configs == [
        {"BLOCK": 64, "EVEN": True, "num_warps": 2, "num_stages": 3},
        {"BLOCK": 128, "EVEN": False, "num_warps": 2, "num_stages": 3},
    ]
    assert captured.tuned
    assert captured.launches == 2
    assert spec.arguments["factor"].value == 0.5
    # The first config's heuristic fails, as it would on a GPU: said, and the next one is taken.
    (note,) = [n for n in plain.captured.notes if n.startswith("scale")]
    assert "1 autotune config could not be launched: ValueError: no such block" in note


def test_an_empty_grid_is_listed_with_its_reason(plain: CaptureResult) -> None:
    (gone,) = plain.captured.not_captured
    assert (gone.kernel, gone.launches) == ("never", 1)
    assert "grid is empty" in gone.reason


def test_the_script_gets_its_arguments_and_a_home_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _run(CAPTURE_DATA / "without_torch.py", tmp_path / "captured", "--flag", "-x", "3")
    shown = capfd.readouterr()
    assert shown.out == ""  # standard output is for results: the script's output goes to standard error
    assert "arguments ['--flag', '-x', '3']" in shown.err
    (home,) = [line.split()[1] for line in shown.err.splitlines() if line.startswith("home")]
    assert home != str(Path.home())
    assert not Path(home).exists()


def test_the_folder_stands_alone_and_says_what_it_is(plain: CaptureResult) -> None:
    assert plain.folder is not None
    index = json.loads((plain.folder / "index.json").read_text())
    assert index["schema"] == "occupancy/capture/1"
    assert index["gpu"] == GPU.name
    assert index["command"][1:] == ["--flag", "-x", "3"]
    assert [s["file"] for s in index["specs"]] == [p.name for p in plain.spec_paths]
    assert any("kernels that did not run" in one for one in index["cannot_see"])
    names = {p.relative_to(plain.folder).as_posix() for p in plain.folder.rglob("*") if p.is_file()}
    assert names == {*index["files"], "index.json"}
    assert spec_paths(plain.folder) == plain.spec_paths


def test_a_spec_compiles_to_what_the_kernel_compiles_to(plain: CaptureResult) -> None:
    with CompileService(jobs=1) as service:
        path = next(p for p in plain.spec_paths if p.name == "scale.yaml")
        report = analyze(read_kernel_input(str(path)), GPU, service, {})
    first, second = report.kernels[0].configs
    assert first.status == second.status == "ok"
    # ceil_div(320, 64) = 5 and ceil_div(320, 128) = 3, by 2
    assert first.launch is not None and second.launch is not None
    assert (list(first.launch.grid), list(second.launch.grid)) == ([5, 2], [3, 2])


@pytest.mark.parametrize(
    ("argument", "code", "status", "message"),
    [
        ("fail", 1, "failed", "RuntimeError: as asked"),
        ("leave", 3, "failed", "it left with exit code 3"),
        ("die", 7, "died", "its process ended before the script did"),
    ],
)
def test_what_was_launched_before_the_script_failed_is_kept(
    argument: str, code: int, status: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = _run(CAPTURE_DATA / "without_torch.py", tmp_path / "captured", argument)
    assert (result.exit_code, result.captured.status, result.captured.message) == (code, status, message)
    assert len(result.captured.specs) == 9  # of add 4 and the 4 of its counter, and scale
    if argument == "fail":
        shown = capfd.readouterr().err
        assert shown.startswith("home") or "Traceback (most recent call last):" in shown
        assert 'raise RuntimeError("as asked")' in shown
        assert "runpy" not in shown and "capture/run.py" not in shown


def test_launches_of_a_forked_child_are_recorded(tmp_path: Path) -> None:
    result = _run(CAPTURE_DATA / "without_torch.py", tmp_path / "captured", "fork")
    by_n = {spec.arguments["n"].value: s.launches for s, spec in _of(result, "add") if spec.grid == [77]}
    assert by_n == {77: 1, 78: 1}


def test_launches_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    result = _run(CAPTURE_DATA / "without_torch.py", tmp_path / "captured", most_per_kernel=1)
    # `add` was launched as n = 1000 (twice), then in three other ways, and ten times with a counter.
    assert [s.launches for s, _ in _of(result, "add")] == [2]
    (beyond,) = [n for n in result.captured.not_captured if n.kernel == "add"]
    assert beyond.launches == 13


@pytest.mark.one_triton
def test_a_folder_is_replaced_only_if_nobody_touched_it(tmp_path: Path) -> None:
    out = tmp_path / "captured"
    script = CAPTURE_DATA / "without_torch.py"
    _run(script, out)
    _run(script, out)
    (out / "add.yaml").write_text((out / "add.yaml").read_text() + "# mine\n")
    with pytest.raises(InputError, match=r"add\.yaml was edited"):
        _run(script, out)
    (out / "add.yaml").unlink()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        _run(script, out)
    _run(script, out, overwrite=True)
    assert not (out / "notes.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["captured"]  # nothing half-written is left beside it


def test_a_script_that_is_not_there_and_a_gpu_without_sms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        _run(tmp_path / "nothing.py", tmp_path / "captured")
    with pytest.raises(InputError, match="number of SMs is not known"):
        _run(CAPTURE_DATA / "without_torch.py", tmp_path / "captured", gpu=load_gpu("sm120"))
    assert not (tmp_path / "captured").exists()


def test_a_script_without_launches_writes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("print('hello')\n")
    result = _run(script, tmp_path / "captured")
    assert (result.captured.status, result.captured.launches, result.folder) == ("complete", 0, None)
    assert not (tmp_path / "captured").exists()


# --- a run that is real ------------------------------------------------------------------------------------------


def test_a_live_run_is_recorded_and_left_as_it_is(tmp_path: Path) -> None:
    result = _run(CAPTURE_DATA / "live.py", tmp_path / "captured", live=True, gpu=None)
    assert result.captured.status == "complete", result.captured.message  # the script asserts that it ran as it should
    ((captured, spec),) = _of(result, "fill")
    # Three launches; what the autotuner did to time its configs is none.
    assert (captured.launches, captured.configs, captured.tuned) == (3, 3, True)
    assert spec.grid == ["ceil_div(n, BLOCK)"]
    assert sorted(c["BLOCK"] for c in spec.configs) == [32, 64, 4096]  # type: ignore[union-attr]
    # 4096 is larger than the 100 elements, which the script's pruning leaves out.
    assert isinstance(spec.check.use, list)
    assert sorted(c["BLOCK"] for c in spec.check.use) == [32, 64]
    index = json.loads((tmp_path / "captured" / "index.json").read_text())
    assert index["live"] is True and not any("did not run" in one for one in index["cannot_see"])


@pytest.mark.gpu
def test_a_live_capture_on_a_gpu_gives_the_spec_of_one_without(tmp_path: Path, require_torch: None) -> None:
    if not Path("/dev/nvidia0").exists():
        pytest.skip("there is no NVIDIA GPU here")
    live = _run(EXAMPLE, tmp_path / "live", live=True, gpu=None)
    without = _run(EXAMPLE, tmp_path / "without")
    assert [spec for _, spec in _specs(live)] == [spec for _, spec in _specs(without)]


# --- the command -------------------------------------------------------------------------------------------------


def _command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and error of `occupancy capture ARGUMENTS`, registered as the command line registers it."""
    app = typer.Typer()
    app.command(context_settings=capture_command.CONTEXT_SETTINGS)(capture_command.capture)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["capture", *arguments], standalone_mode=False)
    code = done.exit_code
    if isinstance(done.exception, OccupancyError):
        return done.exception.exit_code, done.output, str(done.exception)
    assert done.exception is None, done.exception
    return code if isinstance(done.return_value, type(None)) else int(done.return_value), done.output, ""


@pytest.mark.one_triton
def test_the_command_prints_specs_and_their_analysis(tmp_path: Path) -> None:
    out = tmp_path / "captured"
    script = tmp_path / "small.py"
    script.write_text((CAPTURE_DATA / "without_torch.py").read_text().partition("\nfor n in (1000")[0] + SMALL_END)
    code, shown, _ = _command(str(script), "-o", str(out), "--no-cache")
    assert code == 0
    assert "1 launch of 1 kernel: 1 spec in" in shown
    assert "scale on RTX PRO 6000" in shown
    code, shown, _ = _command(str(script), "-o", str(out), "--format", "json", "--no-cache")
    report = valid_report(shown)
    assert (report["command"], len(report["kernels"]), report["kernels"][0]["tuned"]) == ("capture", 1, True)
    assert any("no such block" in note for note in report["notes"])


SMALL_END = """
scale[lambda meta: (triton.cdiv(320, meta["BLOCK"]), 2)](x, 320, 0.5)
"""


@pytest.mark.one_triton
def test_the_scripts_options_pass_through_and_the_commands_own_may_follow(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "captured"
    script = tmp_path / "shows.py"
    script.write_text("import sys; print(sys.argv[1:], file=sys.stderr)\n")
    code, _, error = _command(str(script), "--size", "4", "-x3", "-o", str(out), "--", "-o", "mine")
    assert "['--size', '4', '-x3', '-o', 'mine']" in capfd.readouterr().err
    assert (code, error.splitlines()[0]) == (2, "the script ran to its end and launched no Triton kernel")


GUARDED_END = """
def computed():
    return 0

def step(x):
    if computed() > 3:
        other(x)

def other(x):
    count = computed()
    if count == 0:
        return None
    return scale[(count, 2)](x, 320, 0.5)

step(x)
"""


@pytest.mark.one_triton
def test_a_given_value_leads_to_a_launch_that_zeros_do_not(tmp_path: Path) -> None:
    script, out = tmp_path / "guarded.py", tmp_path / "captured"
    text = (CAPTURE_DATA / "without_torch.py").read_text().partition("\nfor n in (1000")[0] + GUARDED_END
    script.write_text(text)
    guard, count = (
        1 + next(i for i, row in enumerate(text.splitlines()) if word in row) for word in ("if computed", "count = c")
    )
    code, _, error = _command(str(script), "-o", str(out), "--no-analyze")
    assert code == 2
    assert f"`if computed() > 3` (line {guard}) and `if count == 0: return` (line {count + 1}). To go there: " in error
    assert f"--value {script}:{guard}=True --value {script}:{count + 1}=False\n" in error
    values = (f"--value={script}:{guard}=True", f"--value={script}:{count}=7", f"--value={script}:{count + 2}=1")
    code, shown, _ = _command(str(script), "-o", str(out), "--no-analyze", *values)
    assert code == 0
    assert "  7 x 2 " in shown
    assert f"{script}:{count + 2}=1: not used, the script did not come to `return None`" in " ".join(shown.split())


@pytest.mark.one_triton
def test_a_failing_script_is_an_error_that_says_what_was_kept(tmp_path: Path) -> None:
    out = tmp_path / "captured"
    code, shown, error = _command(str(CAPTURE_DATA / "without_torch.py"), "fail", "-o", str(out), "--no-analyze")
    assert code == 2
    assert error.splitlines() == [
        "the script failed: RuntimeError: as asked",
        f"The 9 specs of what it launched before are in {out}.",
    ]
    assert "scale.yaml" in shown
    assert (out / "scale.yaml").is_file()


# --- torch -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, require_torch: None) -> tuple[CaptureResult, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("features")
    result = _run(CAPTURE_DATA / "features.py", folder / "captured", str(folder / "answers.json"))
    assert result.captured.status == "complete", result.captured.message
    return result, json.loads((folder / "answers.json").read_text())


def test_torch_says_what_the_target_gpu_would(features: tuple[CaptureResult, dict[str, Any]]) -> None:
    answers = features[1]
    assert answers["name"] == GPU.device_names[0]
    assert answers["capability"] == [12, 0]
    assert answers["sms"] == answers["triton_sms"] == GPU.sm_count
    assert answers["device"] == "cuda:0" and answers["is_cuda"] is True
    assert answers["cpu"] == answers["asked_for_cpu"] == "cpu"
    assert answers["gradient"] == ["cuda:0", [64]]
    assert answers["under_context"] == answers["generator"] == "cuda"
    assert answers["autocast"] == "torch.bfloat16"
    assert answers["huge"] == 1 << 40  # a terabyte of zeros, of which no page was written
    assert "cuda:0" in answers["shown"]


def test_nothing_is_timed_and_no_cache_is_the_users(features: tuple[CaptureResult, dict[str, Any]]) -> None:
    result, answers = features
    assert answers["time"] == answers["elapsed"] == "nan"
    assert any("NaN" in note for note in result.captured.notes)
    assert not Path(answers["cache"]).exists()
    assert answers["registers"] > 0  # read from the cubin of a kernel that was compiled when it was asked for


def test_pointers_none_flags_and_ones_are_what_triton_sees(features: tuple[CaptureResult, dict[str, Any]]) -> None:
    first, misaligned, double = (spec for _, spec in _of(features[0], "many"))
    assert first.arguments["x_ptr"].type == "*fp32"
    assert first.arguments["maybe"].type == "none"
    assert (first.arguments["flag"].type, first.arguments["flag"].value) == ("i1", True)
    assert (first.arguments["step"].type, first.arguments["step"].value) == ("i32", 1)
    assert (first.arguments["scale"].type, first.arguments["scale"].value) == ("fp32", 2.5)
    # x[1:] of fp32 starts 4 bytes on, x[4:] starts 16 bytes on and is the same launch as x.
    assert misaligned.arguments["x_ptr"].align == 4
    assert misaligned.arguments["maybe"].type == "*fp32"
    assert misaligned.configs == [{"MODE": "n", "num_warps": 8, "num_stages": 3}]
    assert [s.launches for s, _ in _of(features[0], "many")] == [2, 1, 1]
    assert first.grid == double.grid == ["ceil_div(1000, BLOCK)", 3]


def test_constexprs_that_no_spec_carries_are_constants_of_the_kernel_file(
    features: tuple[CaptureResult, dict[str, Any]],
) -> None:
    result = features[0]
    first, _misaligned, double = (spec for _, spec in _of(result, "many"))
    assert result.folder is not None
    text = (result.folder / first.kernel.partition(":")[0]).read_text()
    other = (result.folder / double.kernel.partition(":")[0]).read_text()
    assert "T = tl.constexpr(tl.dtype('fp32'))" in text and "T = tl.constexpr(tl.dtype('fp64'))" in other
    assert "MOST = tl.constexpr(float('inf'))" in text
    assert first.constexprs == {"BLOCK": 256}
    # Two functions named `twice`, two constants named SCALE: each kernel file has both, told apart.
    assert "return x + SCALE" in text and "return x * SCALE_2" in text and "SCALE_2 = tl.constexpr(3)" in text
    assert "# The comment above a kernel's first line stays." in text
    assert "import torch" not in text


def test_a_tuple_argument_is_listed_with_its_reason(features: tuple[CaptureResult, dict[str, Any]]) -> None:
    reasons = {n.kernel: n.reason for n in features[0].captured.not_captured}
    assert "the argument pointers is a tuple" in reasons["with_tuple"]
    assert "compiled and not launched" in reasons["forward"]


def test_descriptors_have_the_block_shape_that_each_config_sets(
    features: tuple[CaptureResult, dict[str, Any]],
) -> None:
    first, second = _of(features[0], "descriptor")
    assert first[1].arguments["d"].type == "tensordesc<fp16[32,64]>"
    assert second[1].arguments["d"].type == "tensordesc<fp16[64,64]>"
    assert [c["BM"] for c in first[1].configs] == [32, 32]
    assert (first[0].launches, second[0].launches) == (1, 0)


def test_kernels_of_functions_and_of_the_backward_pass_are_captured(
    features: tuple[CaptureResult, dict[str, Any]],
) -> None:
    result = features[0]
    assert result.folder is not None
    made = [(result.folder / spec.kernel.partition(":")[0]).read_text() for _, spec in _of(result, "inner")]
    assert ["FACTOR = tl.constexpr(5)" in made[0], "FACTOR = tl.constexpr(6)" in made[1]] == [True, True]
    assert _of(result, "backward")[0][1].grid == [2]
    forward = _of(result, "forward")[0][1]
    assert "do_not_specialize=['n']" in (result.folder / forward.kernel.partition(":")[0]).read_text()


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory, require_torch: None) -> CaptureResult:
    out = tmp_path_factory.mktemp("matmul") / "captured"
    return _run(EXAMPLE, out, "64", "1024", "4096")


def test_the_example_has_all_configs_and_says_which_are_pruned(matmul: CaptureResult) -> None:
    ((captured, spec),) = _of(matmul, "matmul_kernel")
    assert (captured.configs, captured.launches, captured.tuned) == (4, 1, True)
    assert spec.grid == ["ceil_div(64, BLOCK_M) * ceil_div(1024, BLOCK_N)"]
    # Its pruning leaves blocks that are no taller than the 64 rows: one of four.
    assert spec.check.use == [{"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}]


def test_a_captured_config_over_the_cap_is_over_by_what_triton_says(matmul: CaptureResult) -> None:
    with CompileService(jobs=1) as service:
        given = read_kernel_input(str(matmul.spec_paths[0]))
        del given.spec.configs[:3]  # type: ignore[union-attr]
        report = analyze(given, GPU, service, {})
    (config,) = report.kernels[0].configs
    # 128 x 64 and 64 x 256 blocks of bf16 are 16,384 and 32,768 bytes; four stages keep three of each: 147,456.
    # The cap of compute capability 12.0 is 101,376.
    assert config.resources is not None
    assert (config.resources.shared_bytes, config.over_bytes) == (147_456, 147_456 - 101_376)
