"""The tables of `judge_kinds`: their arithmetic on points made up here, and a small file of times through the model."""

from __future__ import annotations

import json
from pathlib import Path

import judge_kinds
import pytest
import yaml
from judge_kinds import RULES, Judged
from kind_code import RecordedService

from occupancy_cli.answers.compare import compare
from occupancy_cli.answers.measured_points import measured_kernel
from occupancy_cli.answers.times_file import KernelSource, read_times, sources_sha256
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.compile.worker_client import Limits
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.cta_work import CtaWork, LaunchShape
from occupancy_cli.model.launch_time import KernelLaunch
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.plan.kernel_input import read_kernel_input

KERNELS = Path(__file__).resolve().parent / "kernels"


class Held:
    ctas_per_sm = 2


def point(measured_us: float, **changed: object) -> Judged:
    given: dict[str, object] = {
        "kind": "copy",
        "l2": "warm",
        "role": "held",
        "case": (("n", 4096),),
        "knobs": (),
        "config": (("BLOCK", int(measured_us)),),
        "place": 0,
        "default": True,
        "measured_us": measured_us,
        "throttled": False,
        "predicted_us": None,
        "interval_us": None,
        "why": "",
        "roofline_us": None,
        "waves_us": None,
        "fitting_warps": 8,
        "busy_warps": 8,
    }
    return Judged(**{**given, **changed})  # type: ignore[arg-type]


# A case of four configs: the best takes 10 us. The model takes the second, the roofline cannot tell the last two apart.
FOUR = (
    point(20.0, place=0, predicted_us=22.0, roofline_us=9.0, fitting_warps=16, busy_warps=8),
    point(12.0, place=1, predicted_us=12.0, roofline_us=9.0, fitting_warps=16, busy_warps=16),
    point(10.0, place=2, predicted_us=13.0, roofline_us=5.0, fitting_warps=8, busy_warps=8),
    point(15.0, place=3, predicted_us=None, roofline_us=5.0, fitting_warps=8, busy_warps=8),
)


@pytest.mark.parametrize(
    ("rule", "percent"),
    [
        ("model", 20.0),  # 12 of 10
        ("first config", 100.0),  # 20 of 10
        ("most warps", 20.0),  # 16 at work: the second alone
        ("most occupancy", 60.0),  # 16 fit with the first and the second: (20 + 12) / 2 of 10
        ("the same, best of ties", 20.0),  # the faster of these two
        ("roofline", 25.0),  # (10 + 15) / 2 of 10
    ],
)
def test_regret_is_of_what_the_rule_takes(rule: str, percent: float) -> None:
    assert judge_kinds.regret_percent(FOUR, RULES[rule]) == pytest.approx(percent)


def test_a_rule_that_knows_nothing_chooses_nothing() -> None:
    assert judge_kinds.regret_percent(FOUR, RULES["waves"]) is None
    row = judge_kinds.regret_table(FOUR).splitlines()[-1].split("|")
    assert [cell.strip() for cell in row[1:4]] == ["copy", "1 x 4", "20.0 / 20"]
    assert row[9].strip() == "-"  # waves


def test_the_model_is_marked_where_a_rule_is_better() -> None:
    worse = (*FOUR[:2], point(10.0, place=2, predicted_us=30.0, roofline_us=1.0))
    assert "**20.0 / 20**" in judge_kinds.regret_table(worse)  # the roofline takes the best
    assert "**" not in judge_kinds.regret_table(FOUR)


def test_cases_are_judged_each_for_itself() -> None:
    other = [point(100.0, case=(("n", 8192),), predicted_us=1.0), point(50.0, case=(("n", 8192),), predicted_us=2.0)]
    both = [*FOUR, *other]
    assert sorted(judge_kinds.regrets(both, RULES["model"], judge_kinds.in_case)) == pytest.approx([20.0, 100.0])
    lonely = [point(3.0, case=(("n", 1),), predicted_us=1.0)]
    assert judge_kinds.regrets(lonely, RULES["model"], judge_kinds.in_case) == []  # nothing to choose from


def test_knobs_are_judged_for_each_config() -> None:
    splits = [
        point(us, config=(("BLOCK", 32),), knobs=(("splits", s),), predicted_us=t)
        for s, us, t in ((1, 30.0, 31.0), (2, 20.0, 25.0), (4, 22.0, 24.0))
    ]
    assert "| copy | - | 10.0 / 10 | - | - |" in judge_kinds.given_config_table(splits)  # 22 of 20


def test_times_are_compared_where_the_clock_was_free() -> None:
    points = [
        point(10.0, predicted_us=9.0, interval_us=(8.0, 11.0)),
        point(10.0, predicted_us=20.0, interval_us=(16.0, 24.0)),
        point(10.0, predicted_us=90.0, interval_us=(80.0, 100.0), throttled=True),
    ]
    assert judge_kinds.ratios(points) == pytest.approx([0.9, 2.0])
    # One of two times lies within; half widths 1.5 / 9 and 4 / 20, their median 18.3 %.
    assert judge_kinds.covered(points) == pytest.approx((50.0, 100 * (1.5 / 9 + 0.2) / 2))
    assert judge_kinds.covered(FOUR) is None


def test_what_autotuning_costs() -> None:
    # 1 ms: 6 calls, 25 of warm-up, 100 measured; 1 s: 6, 1 and 1.
    assert judge_kinds.autotuning_seconds([point(1e3), point(1e6)]) == pytest.approx(0.131 + 8.0)


def launch(ctas: int, iterations: float) -> KernelLaunch:
    work = CtaWork(
        prologue_bytes=0.0,
        bytes_per_iteration=4800.0,
        epilogue_bytes=480.0,
        tensor_flops_per_iteration=(("bf16", 1e6),),
    )
    return KernelLaunch("k", KernelResources(4, 64, 0, 0), Held(), work, LaunchShape.uniform((ctas,), iterations))


def test_roofline_and_waves_by_hand() -> None:
    gpu = load_gpu("h200")  # 132 SMs, 4,800 GB/s: 4,800 bytes take a nanosecond; 989 TFLOPS: 1e6 products 1.011
    for ctas, iterations, waves in ((264, 10.0, 1), (265, 10.0, 2)):
        found = launch(ctas, iterations)
        products = ctas * iterations * 1e6 / 989e6
        assert products > ctas * (iterations * 4800 + 480) / 4.8e6
        assert judge_kinds.roofline_us(gpu, found) == pytest.approx(products)
        # 2 CTAs on each of 132 SMs are a wave of 264.
        assert judge_kinds.waves_us(gpu, found) == pytest.approx(waves * 264 * iterations * 1e6 / 989e6)


def test_a_shape_that_is_not_listed_is_no_half() -> None:
    role = judge_kinds.roles({"copy": {"fit": [{"n": 1}], "held": [{"n": 2}]}}, "copy")
    assert (role({"n": 1, "BLOCK": 4}), role({"n": 2})) == ("fit", "held")
    with pytest.raises(SystemExit, match="copy: no shape"):
        role({"n": 3})


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_file_of_times_is_judged_as_compare_judges_it(tmp_path: Path) -> None:
    spec = KERNELS / "vector_gelu.yaml"
    identity = ["n", "BLOCK", "num_warps", "num_stages", "num_ctas", "maxnreg"]
    header = {
        "schema": "occupancy/times/1", "kernel": str(spec.relative_to(judge_kinds.ROOT)), "gpu": "h200-sxm",
        "source_sha256": sources_sha256([KernelSource("gelu_kernel", str(KERNELS / "vector_gelu.py"), None)]),
        "device": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "triton": "3.9.0", "ptxas": "12.8",
        "torch": "2.11.0", "l2": "warm", "cold": False, "launches_per_replay": 0, "replays": 0, "identity": identity,
    }  # fmt: skip
    rows = [
        {"n": n, "BLOCK": block, "num_warps": warps, "num_stages": 3, "num_ctas": 1, "grid": [-(-n // block)],
         "ctas_per_sm": 64 // warps, "us_total": us, **({"throttled": ["power cap"]} if us == 70.0 else {})}
        for n, block, warps, us in (
            (1048576, 512, 4, 5.0), (1048576, 1024, 4, 4.0), (16777215, 512, 4, 70.0), (16777215, 1024, 4, 60.0)
        )
    ]  # fmt: skip
    path = tmp_path / "vector_gelu.warm.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *rows]), encoding="utf-8")
    gpu, times = load_gpu("h200"), read_times(path)
    with CompileService(limits=Limits(120, 0), jobs=1) as service:
        points, notes = judge_kinds.judge(times, gpu, service)
        whole = compare(times, read_kernel_input(str(spec)), gpu, service)
    assert [(p.role, p.throttled) for p in points] == [("fit", False)] * 2 + [("held", True), ("held", False)]
    assert all(p.predicted_us and p.roofline_us and p.waves_us for p in points)
    assert any("1 of 4 points with the clock held down" in text for text in notes)
    # `compare` leaves the throttled point out; what it is judged by is the same.
    of_model = next(r for r in whole.settings if r.name == "the model")
    free = [p for p in points if not p.throttled]
    mine = [judge_kinds.regret_percent(g, RULES["model"]) for g in judge_kinds.grouped(free, lambda p: p.case).values()]
    assert of_model.mean == pytest.approx(sum(m or 0.0 for m in mine) / 2)
    text = judge_kinds.tables(points)
    assert "warm L2, fit" in text and "warm L2, held" in text and "cold L2" not in text


# ---- What is recorded.

RECORDED = sorted(p.name.partition(".")[0] for p in judge_kinds.RECORDED.glob("*.code.json.xz"))


def test_every_kind_is_recorded_with_its_times_and_its_binaries() -> None:
    listed = list(yaml.safe_load(judge_kinds.KINDS.read_text(encoding="utf-8")))
    assert sorted(listed) == RECORDED
    for kind in listed:
        for l2 in ("warm", "cold"):
            times = read_times(judge_kinds.RECORDED / f"{kind}.{l2}.jsonl.gz")
            assert times.header.device == "NVIDIA H200" and times.header.cold == (l2 == "cold")
            role = judge_kinds.roles({kind: yaml.safe_load(judge_kinds.KINDS.read_text())[kind]}, kind)
            assert {role(m.names) for m in times.rows} <= {"fit", "held"}


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize("kind", ["embedding_gather", "gemm_split_k"])
def test_recorded_binaries_answer_for_every_point(kind: str) -> None:
    """What was timed is found for each point, and is what the driver said of it: registers, spills, shared bytes."""
    gpu, times = load_gpu("h200"), read_times(judge_kinds.RECORDED / f"{kind}.warm.jsonl.gz")
    with CompileService(limits=Limits(120, 0), jobs=1) as service:
        recorded = RecordedService.read(judge_kinds.RECORDED / f"{kind}.code.json.xz", service)
        measured = measured_kernel(
            times, read_kernel_input(str(KERNELS / f"{kind}.yaml")), gpu, recorded, same_triton=True
        )
        assert service.compiled == 0
    assert len(measured.rows) == len(times.usable()[0])
    for each in measured.rows:
        assert each.candidate is not None
        held, row = each.candidate.launches[0].resources, each.row
        assert (held.registers_per_thread, held.shared_bytes) == (row["regs"], row["smem"])
        assert held.spill_bytes == 4 * row.get("spills", 0)
        assert each.candidate.launches[0].occupancy.ctas_per_sm == row["ctas_per_sm"]
        assert each.candidate.launches[0].work.timing is not None
