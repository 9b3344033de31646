"""`occupancy gpus`, and the check of a machine's GPUs against their profiles, with a driver library made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from fake_cuda import H200, FakeDriver
from made_up_gpu import made_up_machine
from typer.testing import CliRunner

from occupancy_cli.answers import measured_gpu
from occupancy_cli.cli.gpus_command import gpus
from occupancy_cli.device import detect
from occupancy_cli.errors import InputError, OccupancyError, UnknownNameError
from occupancy_cli.gpu.profiles import list_gpus, load_gpu
from occupancy_cli.model.occupancy import occupancy

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(gpus)


def device(base: dict[str, Any] = H200, *, name: str | None = None, memory: int | None = None, **changes: int) -> dict:
    """`base` with other attributes: a16=66 sets attribute 16."""
    attributes = {**base["attributes"], **{int(key[1:]): value for key, value in changes.items()}}
    return {"name": name or base["name"], "memory": memory or base["memory"], "attributes": attributes}


def run(
    monkeypatch: pytest.MonkeyPatch | None, *arguments: str, driver: FakeDriver | None = None
) -> tuple[int, str, str]:
    if monkeypatch is not None and driver is not None:
        monkeypatch.setattr(detect, "driver_library", lambda: driver)
    result = CliRunner().invoke(APP, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


# Listing and showing --------------------------------------------------------------------------------------------------


def test_the_list_has_every_profile_and_marks_doubt() -> None:
    code, text, _ = run(None)
    assert code == 0
    shown = lines_of(text)
    for gpu in list_gpus():
        assert any(line.startswith(f"{gpu.id} {gpu.name} {gpu.compute_capability} ") for line in shown)
    assert any(line.startswith("l4 L4 8.9 58? ") for line in shown)  # disputed
    assert any(line.startswith("b300 B300 (HGX, SXM6) 10.3 148*? ") for line in shown)  # assumed and disputed
    assert f"{len(list_gpus())} GPUs." in text


def test_the_list_as_json() -> None:
    _, text, _ = run(None, "--format", "json")
    answer = json.loads(text)
    assert (answer["schema"], answer["command"]) == ("occupancy/report/1", "gpus")
    l4 = next(g for g in answer["gpus"] if g["id"] == "l4")
    assert l4["values"]["sm_count"]["value"] == 58
    assert l4["values"]["sm_count"]["disputed"][0]["value"] == 60
    assert l4["limits"]["shared_per_cta_optin_bytes"]["value"] == 101_376
    assert all(v["status"] for g in answer["gpus"] for v in (*g["values"].values(), *g["limits"].values()))


@pytest.mark.parametrize("arguments", [["h100"], ["show", "h100"]])
def test_one_gpu_with_its_sources(arguments: list[str]) -> None:
    _, text, _ = run(None, *arguments)
    shown = lines_of(text)
    assert shown[0] == "H100 SXM5 80 GB (h100-sxm), CC 9.0"
    assert any(line.startswith("h100: the SXM board is what") for line in shown)
    assert any(line.startswith("sm_count 132 measured ") for line in shown)
    assert any(line.startswith("memory_bandwidth_gbps 3,350 measured? ") for line in shown)
    assert any("3,352.32 in [" in line and "chosen: " in line for line in shown)
    assert any(line.startswith("[1] https://") for line in shown)
    # every number in the sources column has its line below
    cited = {n for line in shown if " measured " in line for n in line.split(" measured ")[1].split()}
    assert cited and all(any(line.startswith(f"[{n}] ") for line in shown) for n in cited)


def test_a_compute_capability_says_what_it_cannot_tell() -> None:
    _, text, _ = run(None, "sm120")
    assert "waves cannot" in text and "rtx" not in lines_of(text)[0]


def test_several_and_none() -> None:
    _, text, _ = run(None, "h100", "a100", "--format", "json")
    assert [g["id"] for g in json.loads(text)["gpus"]] == ["h100-sxm", "a100-sxm-80gb"]
    with pytest.raises(InputError, match="no GPU is named"):
        run(None, "show")
    with pytest.raises(UnknownNameError):
        run(None, "h1000")
    with pytest.raises(InputError, match="--detect takes no names"):
        run(None, "h100", "--detect")


def test_own_folder_is_listed(tmp_path: Path) -> None:
    (tmp_path / "lab-[x].yaml").write_text(
        "schema: occupancy/gpu-profile/1\nid: lab-[x]\nname: Lab [bold]board\nextends: h100-sxm\n"
    )
    _, text, _ = run(None, "--hw-profiles", str(tmp_path))
    assert "lab-[x]" in text and "Lab [bold]board" in text  # printed as it is, not taken for markup


# The machine's own ----------------------------------------------------------------------------------------------------


def test_a_device_that_is_as_its_profile_says(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(monkeypatch, "--detect", driver=FakeDriver(H200))
    assert code == 0
    shown = lines_of(text)
    assert shown[0] == "GPU 0: NVIDIA H200, CC 9.0: profile h200-sxm"
    assert "sm_count 132 132 equal" in shown
    assert "shared_per_cta_optin_bytes 232,448 232,448 equal" in shown
    # 2 x 3.201 GHz x 6,144 bit / 8 = 4,916.7 GB/s, 2.4 % over the marketed figure
    assert any(line.startswith("memory_bandwidth_gbps 4,916.7 4,800 equal the driver's is computed") for line in shown)
    assert shown[-1] == "Every value that both state is equal."


def test_equal_in_every_field() -> None:
    (found,) = detect.detect_devices(FakeDriver(H200))
    check = detect.check_device(found, list_gpus())
    assert check.profile is not None and check.profile.id == "h200-sxm"
    assert check.differences == ()
    assert {f.field for f in check.fields} == {
        "sm_count", "l2_bytes", "max_threads_per_cta", "max_threads_per_sm", "max_ctas_per_sm", "registers_per_sm",
        "max_registers_per_cta", "shared_per_sm_bytes", "shared_per_cta_default_bytes", "shared_per_cta_optin_bytes",
        "shared_reserved_per_cta_bytes", "cluster_supported", "memory_gb", "boost_clock_mhz", "memory_bandwidth_gbps",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field", "reading"),
    [
        ({"a16": 60}, "sm_count", 60),
        ({"a97": 232_447}, "shared_per_cta_optin_bytes", 232_447),
        ({"a111": 0}, "shared_reserved_per_cta_bytes", 0),
        ({"a106": 24}, "max_ctas_per_sm", 24),
        ({"a38": 1}, "l2_bytes", 1),
        ({"a120": 0}, "cluster_supported", False),
        ({"a13": 1_755_000}, "boost_clock_mhz", 1755.0),
        ({"a36": 2_619_000}, "memory_bandwidth_gbps", 4022.8),  # 2 x 2.619 x 6,144 / 8
    ],
)
def test_every_difference_is_reported(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], field: str, reading: Any
) -> None:
    driver = FakeDriver(device(H200, **changes))
    code, text, _ = run(monkeypatch, "--detect", "--format", "json", driver=driver)
    assert code == 1
    (found,) = json.loads(text)["devices"]
    assert found["differences"] == [field]
    assert next(f for f in found["fields"] if f["field"] == field)["device"] == reading
    code, text, _ = run(monkeypatch, "--detect", driver=driver)
    assert code == 1 and "1 value differs" in text


def test_less_memory_than_marketed_is_no_difference() -> None:
    (found,) = detect.detect_devices(FakeDriver(H200))
    memory = next(f for f in detect.check_device(found, list_gpus()).fields if f.field == "memory_gb")
    assert (memory.device, memory.profile, memory.equal) == (139.8, 141, True)
    (half,) = detect.detect_devices(FakeDriver(device(H200, memory=70 * 2**30)))
    assert [f.field for f in detect.check_device(half, list_gpus()).differences] == ["memory_gb"]


def test_a_device_without_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(monkeypatch, "--detect", driver=FakeDriver(device(name="NVIDIA H777")))
    assert code == 2
    assert "no profile has this name" in text and "not stated" in text
    # the right name with another compute capability is no match either
    (found,) = detect.detect_devices(FakeDriver(device(a75=8)))
    assert detect.match_profile(found, list_gpus()) is None


def test_no_device_no_driver_and_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(monkeypatch, "--detect", driver=FakeDriver())
    assert code == 2 and "no GPU" in text
    with pytest.raises(OccupancyError, match="cuInit with error 100"):
        detect.detect_devices(FakeDriver(init_code=100))
    monkeypatch.undo()
    monkeypatch.setattr(detect, "DRIVER_LIBRARY", "libcuda-that-is-not-here.so")
    with pytest.raises(OccupancyError, match="no NVIDIA driver on this machine"):
        detect.driver_library()
    with pytest.raises(OccupancyError, match="no NVIDIA driver"):
        detect.resolve_gpu("local")


def test_an_old_driver_leaves_attributes_out() -> None:
    old = {**H200, "attributes": {k: v for k, v in H200["attributes"].items() if k != 120}}  # type: ignore[attr-defined]
    (found,) = detect.detect_devices(FakeDriver(old))
    assert "cluster_supported" not in found.readings and found.readings["sm_count"] == 132


def test_every_shipped_device_name_finds_its_profile() -> None:
    known = list_gpus()
    for gpu in known:
        for name in gpu.device_names:
            major, minor = gpu.compute_capability.split(".")
            fake = device(name=name, memory=int((gpu.memory_gb or 0) * 2**30), a75=int(major), a76=int(minor))
            (found,) = detect.detect_devices(FakeDriver(fake))
            matched = detect.match_profile(found, known)
            assert matched is not None and matched.id == gpu.id


def test_local_is_the_device_as_it_is() -> None:
    driver = FakeDriver(H200, device(H200, a16=60, memory=70 * 2**30))
    whole = detect.resolve_gpu("local", library=lambda: driver)
    assert (whole.id, whole.sm_count, whole.fp16_dense_tflops) == ("h200-sxm", 132, 989)
    assert whole.memory_bytes == H200["memory"]
    slice_ = detect.resolve_gpu("LOCAL:1", library=lambda: driver)
    assert slice_.sm_count == 60 and slice_.status("sm_count") == "measured"
    assert slice_.provenance["sm_count"].note == "replaces the profile's 132"
    assert slice_.memory_bandwidth_gbps == 4800  # the file's: what the driver gives is computed
    assert occupancy(slice_, threads_per_cta=128, registers_per_thread=64, shared_bytes=0).ctas_per_sm == 8
    with pytest.raises(OccupancyError, match="there is no GPU 2: the driver shows 2"):
        detect.resolve_gpu("local:2", library=lambda: driver)
    with pytest.raises(InputError, match="local:N"):
        detect.resolve_gpu("local:x", library=lambda: driver)
    assert detect.resolve_gpu("h100").id == load_gpu("h100").id


def test_local_without_a_profile_has_the_readings() -> None:
    gpu = detect.local_gpu(library=FakeDriver(device(name="NVIDIA H777")))
    assert (gpu.name, gpu.sm_count, gpu.boost_clock_mhz) == ("NVIDIA H777", 132, 1980.0)
    assert gpu.status("sm_count") == "measured" and gpu.fp16_dense_tflops is None
    with pytest.raises(InputError, match=r"compute capability 13\.0, which this version does not know"):
        detect.local_gpu(library=FakeDriver(device(name="NVIDIA X", a75=13)))


# Measuring it (what is measured and written: tests/device/test_gpu_constants.py) --------------------------------------


def test_measuring_needs_a_file_and_one_question() -> None:
    for arguments, problem in (
        (["--measure"], "--measure needs a file to write"),
        (["--measure", "-o", "my.yaml", "h100"], "--measure takes no names"),
        (["--measure", "--detect", "-o", "my.yaml"], "--detect and --measure are given both"),
        (["-o", "my.yaml"], "-o goes with --measure"),
        (["--measure", "-o", "my.yaml", "--gpu", "h100"], "'h100' is not a GPU of this machine"),
    ):
        with pytest.raises(InputError, match=problem):
            run(None, *arguments)


def test_the_measured_constants_are_shown_beside_the_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measured_gpu, "local_machine", lambda _index: made_up_machine())
    path = tmp_path / "my-gpu.yaml"
    code, text, _ = run(None, "--measure", "-o", str(path))
    shown = lines_of(text)
    assert code == 0 and path.is_file()
    assert shown[0] == "NVIDIA H200, driver 580.1 (CUDA 13.0), SM clock 1,500 MHz: profile h200-sxm"
    # 250 cycles of 283 are 11.7 % less; 0.21 us and the 0.2 made up, 4.8 %.
    assert any(line.startswith("l2_latency_cycles 250 0.0 283 -11.7 a chain of loads") for line in shown)
    assert any(line.startswith("cta_turnover_us 0.2 0.0 0.21 -4.8 ") for line in shown)
    # 4,096 bytes of an SM in flight for 700 cycles at 1.5 GHz: 1,158 GB/s of 132 SMs.
    assert any(line.split() == ["DRAM", "1", "4,096", "1,158", "700"] for line in shown)
    assert any("that both state differ by over 10 %: " in line and "l2_latency_cycles" in line for line in shown)
    assert load_gpu(str(path)).l2_latency_cycles == 250
