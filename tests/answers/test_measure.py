"""`occupancy measure`: points, file, resuming, marks; the launch process with a made-up torch. No GPU is used."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import FakeNvml
from locations import ROOT
from report_schema import valid_report

from occupancy_cli.answers.measure import Measured, measure, reported
from occupancy_cli.answers.times_file import read_times
from occupancy_cli.cli.measure_command import parse_seconds
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.request import ArgumentValue, KernelSource
from occupancy_cli.device import launch_worker
from occupancy_cli.device.gpu_state import GpuState
from occupancy_cli.device.launch_messages import Launch, LaunchedKernel, Method, Open, Time
from occupancy_cli.device.launch_timing import Launcher
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input, shipped_specs
from testing.split_sum import FormulaTimer, formula_us, machine, write_kernel


def run(
    service: CompileService, spec: Path, out: Path, timer: FormulaTimer, *, processes: int = 0, **options: Any
) -> Measured:
    return measure(
        read_kernel_input(str(spec)),
        load_gpu("h200"),
        service,
        machine(timer, processes),
        {},
        out,
        kernel_text=str(spec),
        today=lambda: "2026-01-02",
        **options,
    )


@pytest.mark.compiles
@pytest.mark.one_triton
def test_points_and_rows(tmp_path: Path, service: CompileService) -> None:
    spec, out, timer = write_kernel(tmp_path), tmp_path / "times.jsonl", FormulaTimer()
    done = run(service, spec, out, timer, batches=(8, 4))
    # 2 batches x 2 configs x nsplit 1..4; TARGET's default 16 is nsplit 2 at batch 8 and 4 at batch 4, both among them.
    assert (done.written, done.known, done.left, done.failed) == (16, 0, 0, {})
    times = read_times(out)
    assert times.header.gpu == "h200-sxm" and times.header.device == "NVIDIA H200"
    assert times.header.l2.startswith("warm") and times.header.date == "2026-01-02"
    assert [r.names["batch"] for r in times.rows] == [8] * 8 + [4] * 8  # the order of the batches as given
    for row in (measured.row for measured in times.rows):
        assert row["us_total"] == formula_us(4096, row["BLOCK"], row["nsplit"])
        assert row["us_split"] == row["us_total"] - 1
        assert row["grid"] == (row["batch"], row["nsplit"])
        assert {"TARGET", "num_warps", "num_stages", "tiles", "tiles_per_split", "smem", "regs", "spills"} <= set(row)
    assert timer.asked[0][0] == ("split_sum", "combine")


@pytest.mark.compiles
@pytest.mark.one_triton
def test_resume_after_an_interrupt(tmp_path: Path, service: CompileService) -> None:
    spec, out, timer = write_kernel(tmp_path), tmp_path / "times.jsonl", FormulaTimer()
    timer.stop_after = 3
    done = run(service, spec, out, timer, batches=(8,))
    assert done.interrupted and done.written == 3 and reported(done, load_gpu("h200"), "3.9.0").exit_code == 130
    with out.open("a") as file:
        file.write('{"batch": 8, "us_to')  # the machine stopped in the middle of a line
    again = FormulaTimer()
    done = run(service, spec, out, again, batches=(8,))
    assert (done.known, done.written, len(again.asked)) == (3, 5, 5)
    report = reported(done, load_gpu("h200"), "3.9.0")
    assert valid_report(report.to_json())["measurement"]["known"] == 3 and report.exit_code == 0
    rows = [measured.names for measured in read_times(out).rows]
    assert len(rows) == 8 and len({(r["BLOCK"], r["nsplit"]) for r in rows}) == 8


@pytest.mark.compiles
@pytest.mark.one_triton
def test_another_measurement_is_not_mixed_in(tmp_path: Path) -> None:
    spec, out = write_kernel(tmp_path), tmp_path / "times.jsonl"
    with CompileService(jobs=1) as one:
        run(one, spec, out, FormulaTimer(), batches=(8,))
        with pytest.raises(InputError, match="the file has cold False, this measurement True"):
            run(one, spec, out, FormulaTimer(), batches=(8,), method=Method(cold=True))
    source = spec.with_suffix(".py")
    source.write_text(source.read_text() + "\n# changed\n")
    with CompileService(jobs=1) as another, pytest.raises(InputError, match="source_sha256"):
        run(another, spec, out, FormulaTimer(), batches=(8,))


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_shared_gpu_is_refused_or_marked(tmp_path: Path, service: CompileService) -> None:
    spec, out = write_kernel(tmp_path), tmp_path / "times.jsonl"
    with pytest.raises(InputError, match="2 other processes compute on NVIDIA H200"):
        run(service, spec, out, FormulaTimer(), batches=(8,), processes=2)
    assert not out.exists()
    done = run(service, spec, out, FormulaTimer(), batches=(8,), processes=2, allow_shared=True)
    assert done.marked == done.written == 8
    usable, notes = read_times(out).usable()
    assert usable == [] and notes == ["8 of 8 points left out: other processes were on the GPU"]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_throttled_points_are_marked(tmp_path: Path, service: CompileService) -> None:
    spec, out = write_kernel(tmp_path), tmp_path / "times.jsonl"
    done = run(service, spec, out, FormulaTimer(throttled=("power cap",)), batches=(8,), nsplits=(1,))
    assert done.marked == done.written == 2  # nsplit 1 of both configs
    assert {r.figures.throttled for r in read_times(out).rows} == {("power cap",)}


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_failed_launch_costs_its_points_alone(tmp_path: Path, service: CompileService) -> None:
    spec, out = write_kernel(tmp_path), tmp_path / "times.jsonl"
    done = run(service, spec, out, FormulaTimer(fails={256: "RuntimeError: an illegal memory access"}), batches=(8,))
    assert done.failed == {"RuntimeError: an illegal memory access": 4} and done.written == 4


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_budget_takes_the_most_telling_points_first(tmp_path: Path, service: CompileService) -> None:
    spec, out, timer = write_kernel(tmp_path), tmp_path / "times.jsonl", FormulaTimer()
    done = run(service, spec, out, timer, batches=(8, 64), budget_s=1000.0)
    assert done.written == 16
    # Each BLOCK is one binary (no tiles_per_split is 1 or a multiple of 16 but 4096 / 256 = 16 at nsplit 1: a third).
    first = [(v["BLOCK"], v["batch"] * v["nsplit"]) for _, v in timer.asked[:6]]
    assert sorted(first[:3]) == [(256, 8), (256, 16), (512, 8)]  # the smallest launch of each
    assert sorted(first[3:]) == [(256, 64), (256, 256), (512, 256)]  # the largest
    out.unlink()
    done = run(service, spec, out, FormulaTimer(), batches=(8,), budget_s=0.0)
    assert done.written == 0 and done.left == 8


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_spec_without_inputs(kernel_file: Path, tmp_path: Path, service: CompileService) -> None:
    path = kernel_file.parent / "small.yaml"
    path.write_text("schema: occupancy/kernel-spec/1\nkernel: small.py:plain\narguments: {x_ptr: '*fp32', n: i32}\n")
    with pytest.raises(InputError, match="does not say how to make the kernel's tensors"):
        run(service, path, tmp_path / "times.jsonl", FormulaTimer())


def test_files_that_are_no_times(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for text, problem in (
        ("", "does not start with the line"),
        ('{"a": 1}\n', "does not start with the line"),
        ('{"schema": "occupancy/times/1"}\n', "the first line is not in order: kernel is missing"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=problem):
            read_times(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_times(tmp_path / "none.jsonl")


@pytest.mark.compiles
@pytest.mark.one_triton
def test_bad_rows_are_named_and_gzip_is_read(tmp_path: Path, service: CompileService) -> None:
    spec, out = write_kernel(tmp_path), tmp_path / "times.jsonl"
    run(service, spec, out, FormulaTimer(), batches=(8,), nsplits=(1,))
    text = out.read_text()
    packed = tmp_path / "times.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_times(packed).rows == read_times(out).rows
    out.write_text(text + '{"us_total": 0}\n')
    with pytest.raises(InputError, match=r"times.jsonl:4: us_total is 0: a launch takes"):
        read_times(out)
    packed.write_bytes(gzip.compress(text.encode())[:-20])
    with pytest.raises(InputError, match="cannot be read"):
        read_times(packed)


def test_seconds() -> None:
    assert [parse_seconds(t) for t in ("60", "60s", "5m", "0.5h")] == [60, 60, 300, 1800]
    with pytest.raises(InputError, match="is no time"):
        parse_seconds("soon")


# --- the state of the GPU ---


def test_gpu_state() -> None:
    nvml = FakeNvml(clock=1980, throttle=0x4 | 0x1, processes=3)
    with GpuState("0000:3b:00.0", nvml) as state:
        reading = state.read()
        assert state.clocks() == (1980, ("power cap",))  # 0x1, idle, is no throttling
    assert nvml.asked_for == b"0000:3b:00.0"
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz, reading.power_w) == (1980, 3201, 95.5)
    assert reading.processes == 3 and reading.throttled == ("power cap",)


def test_a_low_clock_counts_as_held_down() -> None:
    with GpuState("0000:3b:00.0", FakeNvml(clock=1200)) as state:
        assert state.clocks() == (1200, ("clock 1200 of 1980 MHz",))  # 1200 < 0.85 x 1980 = 1683


def test_without_nvml_everything_is_unknown() -> None:
    with GpuState("0000:3b:00.0") as state:
        assert "no NVML here" in state.trouble
        assert state.read().processes is None and state.clocks() == (None, ())


# --- the launch process ---


class FakeEvent:
    clock = 0.0

    def __init__(self, **_options: Any) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = FakeEvent.clock

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


class FakeGraph:
    """Remembers what was launched while it captured; a replay takes 0.004 ms a launch."""

    capturing: FakeGraph | None = None

    def __init__(self) -> None:
        self.launches = 0

    def capture_begin(self) -> None:
        FakeGraph.capturing = self

    def capture_end(self) -> None:
        FakeGraph.capturing = None

    def replay(self) -> None:
        FakeEvent.clock += 0.004 * self.launches

    def reset(self) -> None:
        self.launches = 0


class FakeTensor:
    def __init__(self, address: int) -> None:
        self.address = address
        self.nbytes = 1 << 20

    def data_ptr(self) -> int:
        return self.address


class FakeKernel:
    """Stands for a JITFunction: counts launches and the tensors they got."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(**values: Any) -> Any:
            self.seen.append({"grid": grid, **values})
            if FakeGraph.capturing:
                FakeGraph.capturing.launches += 1
            metadata = types.SimpleNamespace(shared=1024, num_warps=4)
            return types.SimpleNamespace(metadata=metadata, n_regs=40, n_spills=0, function=1)

        return launch


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    class Stream:
        def wait_stream(self, _other: Any) -> None:
            return None

        def __enter__(self) -> None:
            return None

        def __exit__(self, *_exc: Any) -> None:
            return None

    cuda = types.SimpleNamespace(
        set_device=lambda _d: None,
        synchronize=lambda: None,
        get_device_properties=lambda _d: types.SimpleNamespace(L2_cache_size=4 << 20),
        mem_get_info=lambda: (1 << 36, 1 << 37),
        CUDAGraph=FakeGraph,
        Event=FakeEvent,
        Stream=Stream,
        stream=lambda s: s,
        current_stream=Stream,
    )
    torch = types.SimpleNamespace(
        __version__="2.11.0", cuda=cuda, ones=lambda *_a, **_k: 1, matmul=lambda a, _b: a, bfloat16="bf16"
    )
    kernel = FakeKernel()
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setattr(launch_worker, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(launch_worker, "_ctas_per_sm", lambda _compiled: 5)
    made = iter(range(1, 1000))
    objects = {"inputs": lambda _values, _device: {"x_ptr": FakeTensor(next(made))}, "kernel": kernel}
    monkeypatch.setattr(launch_worker, "_named", lambda source: objects[source.kernel])
    front = types.SimpleNamespace(
        layers=lambda value: ([], value), with_heuristics=lambda _k, values, config: {**values, **config}
    )
    monkeypatch.setitem(sys.modules, "occupancy_cli.compile.triton_front", front)  # type: ignore[arg-type]
    monkeypatch.setattr("occupancy_cli.compile.triton_front", front, raising=False)
    return kernel


def opened(cold: bool = False) -> launch_worker.Session:
    return launch_worker.Session(Open(0, "0", KernelSource("inputs"), "/nowhere", Method(10, 20, cold)))


LAUNCH = Launch(
    source=KernelSource("kernel", "x.py"),
    arguments=(
        ArgumentValue("x_ptr", "*fp32"),
        ArgumentValue("n", "i32", 7),
        ArgumentValue("scale", "fp32"),
        ArgumentValue("even", "i32", 1, heuristic=True),
    ),
    constexprs=(("BLOCK", 64),),
    options=(("num_warps", 4),),
    grid=(8, 2),
)


def test_a_point_is_timed_per_launch(fake_torch: FakeKernel) -> None:
    answer = opened().time(Time((LAUNCH, LAUNCH), {}))
    # A replay of 10 launches at 0.004 ms: 4 us a launch; with a second kernel in the graph, 8 us for the pair.
    assert answer.us_split == pytest.approx(4.0) and answer.us_total == pytest.approx(8.0)
    assert answer.launched[0] == LaunchedKernel(smem=1024, regs=40, spills=0, ctas_per_sm=5)
    assert answer.spread_percent == pytest.approx(0.0, abs=1e-6)
    seen = fake_torch.seen[0]
    assert seen["grid"] == (8, 2) and seen["n"] == 7 and seen["scale"] == 1.0 and seen["BLOCK"] == 64
    assert "even" not in seen  # a heuristic's value is the heuristic's to give
    assert len(fake_torch.seen) == 2 + 10 + 20  # a first launch of each, then what the two graphs captured


def test_cold_launches_go_round_over_copies(fake_torch: FakeKernel) -> None:
    answer = opened(cold=True).time(Time((LAUNCH,), {}))
    # Copies of 1 MiB: three times the 4 MiB of L2 must pass between two uses of one, so 1 + 12.
    assert answer.copies == 13
    assert len({seen["x_ptr"].address for seen in fake_torch.seen}) == 13
    assert len(fake_torch.seen) == 1 + 13  # the graph holds one launch of each copy, more than the 10 asked for


def test_a_tensor_that_the_inputs_lack(fake_torch: FakeKernel) -> None:
    launch = dataclasses.replace(LAUNCH, arguments=(ArgumentValue("y_ptr", "*fp32"),))
    with pytest.raises(InputError, match="no tensor 'y_ptr' for kernel"):
        opened().time(Time((launch,), {}))


WORKER = """
import os
from occupancy_cli.compile.worker_channel import WorkerEnd
from occupancy_cli.device.launch_messages import LaunchedKernel, LaunchFailed, Open, Opened, Timed
from occupancy_cli.device.launch_messages import message_of, message_text
channel = WorkerEnd()
for text in channel:
    message = message_of(text)
    if isinstance(message, Open):
        answer = Opened("2.11.0", "")
    elif message.values["batch"] == 13:
        os._exit(3)
    elif message.values["batch"] == 14:
        answer = LaunchFailed("RuntimeError: an illegal memory access")
    else:
        answer = Timed(1.0, 2.0, 0.1, 1980, (), (LaunchedKernel(os.getpid(), 20, 0, None),))
    said = message_text(answer)
    channel.answer(said.replace("us_total", "us_whole") if getattr(message, "values", {}).get("batch") == 15 else said)
"""


def test_a_launcher_outlives_what_its_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    source = KernelSource("inputs", "x.py")
    with Launcher(0, "0", source, tmp_path, Method(), seconds=20, module="made_up_worker") as launcher:
        first = launcher.time([], {"batch": 1})
        assert (first.us_split, first.us_total, launcher.torch) == (1.0, 2.0, "2.11.0")
        same = launcher.time([], {"batch": 2})
        assert same.launched == first.launched
        assert "exit code 3" in launcher.time([], {"batch": 13}).problem
        assert launcher.time([], {"batch": 14}).problem == "RuntimeError: an illegal memory access"
        assert "Timed.us_total is missing" in launcher.time([], {"batch": 15}).problem
        after = launcher.time([], {"batch": 3})
        assert after.problem == "" and after.launched != first.launched  # a fresh process each time


# --- the shipped kernels' inputs ---


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("path", shipped_specs(), ids=lambda p: p.stem)
def test_inputs_of_shipped_kernels_fit_their_specs(path: Path, service: CompileService) -> None:
    """Every pointer argument gets a tensor of its type, 16-byte aligned, and every stride is the spec's."""
    torch = pytest.importorskip("torch")
    import os

    from occupancy_cli.plan.points import make_point
    from occupancy_cli.plan.prepared_kernel import prepare

    given = read_kernel_input(str(ROOT / path))
    names = {"bf16": "bfloat16", "fp32": "float32", "fp8e4nv": "float8_e4m3fn", "i32": "int32", "i64": "int64"}
    small = {"batch": 3, "N": 256, "K": 128, "max_length": 256, "topk": 8 if "moe" in path.stem else 128}
    kernel = prepare(given, load_gpu("h200"), service.describe, {}, os.environ)
    settings = {n: small.get(n, s.values[0]) for n, s in kernel.settings.items()}
    point = make_point(kernel, load_gpu("h200"), settings, kernel.configs[0], {}, None)
    assert given.spec.inputs is not None
    file, _, function = given.spec.inputs.rpartition(":")
    source = KernelSource(function, str(given.folder / file))
    made = getattr(launch_worker.module_of(source), function)(dict(point.names), "cpu")
    strides = {"a_ptr": "stride_a", "query_ptr": "stride_query_batch", "indices_ptr": "stride_indices"}
    for plan in point.launches:
        values = {a.name: a.value for a in plan.request.arguments}
        for argument in plan.request.arguments:
            if argument.type.startswith("*"):
                tensor = made[argument.name]
                assert tensor.dtype == getattr(torch, names[argument.type[1:]]), argument.name
                assert tensor.data_ptr() % argument.align == 0, argument.name
                stride = strides.get(argument.name)
                if stride in values:
                    assert tensor.stride(0) == values[stride], argument.name
    assert json.dumps([p.grid for p in point.launches])  # every launch has a grid
