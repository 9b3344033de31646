"""GPU profiles: every shipped file, the names they answer to, a user's own folder, and what a wrong file is told."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_cli.data_files import shipped_dir
from occupancy_cli.errors import InputError, OccupancyError, UnknownNameError
from occupancy_cli.gpu import profile_files, profiles
from occupancy_cli.gpu.profile_form import GPU_VALUES, LIMIT_VALUES
from occupancy_cli.gpu.profiles import (
    DEFAULT_GPU,
    PROFILE_DIRS_VARIABLE,
    STATUSES,
    ComputeCapability,
    GpuProfile,
    list_compute_capabilities,
    list_gpus,
    load_compute_capability,
    load_gpu,
    normalized,
)
from occupancy_cli.yaml_reader import Document, load_yaml

SHIPPED = shipped_dir("hw_profiles")
GPUS = list_gpus()


@pytest.fixture(autouse=True)
def no_user_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_DIRS_VARIABLE, raising=False)


# Everything that is shipped -------------------------------------------------------------------------------------------


def test_turing_to_blackwell_ultra_are_there() -> None:
    assert len(GPUS) == len(list(SHIPPED.glob("*.yaml"))) >= 80
    assert {gpu.compute_capability for gpu in GPUS} >= {
        "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1",
    }  # fmt: skip


# What may stand as a source. Shops, news, rumours and data bases of specifications are none: nobody there has read the
# figure from a device or answers for it, and they copy each other's mistakes.
KINDS = {
    "document": (  # NVIDIA's own
        "https://developer.nvidia.com/", "https://docs.nvidia.com/", "https://images.nvidia.com/",
        "https://www.nvidia.com/", "https://github.com/NVIDIA/", "CUDA Toolkit", "Nsight Compute",
    ),
    "reading": (  # what a driver says of a device, printed as it came
        "deviceQuery (CUDA samples)", "cudaGetDeviceProperties", "https://github.com/thamada/nvidia-smi/",
        "https://github.com/openxla/xla/", "https://github.com/Jumperkables/cuda-benchmarking/",
        "https://github.com/aalanwyr/face2cuda/", "https://gist.github.com/atinfinity/", "validation/h200/results/",
    ),
    "timing": (  # a microbenchmark that is published with its method, or ours
        "https://github.com/caps-tum/mt4g/", "https://github.com/markdewing/AI_kernels/", "https://arxiv.org/",
        "https://chipsandcheese.com/", "https://github.com/YKTian-x2b/AmpereArchViaMicroBenchMark/",
        "https://github.com/mredenti/PowerCapping/", "validation/",
    ),
}  # fmt: skip


def kind_of(source: str) -> str | None:
    return next((kind for kind, starts in KINDS.items() if source.startswith(starts)), None)


def test_the_kinds_of_sources_tell_shops_from_documents() -> None:
    assert kind_of("https://docs.nvidia.com/cuda/") == "document"
    assert kind_of("validation/h200/results/detect.json") == "reading"
    for other in ("https://www.techpowerup.com/gpu-specs/", "https://en.wikipedia.org/", "https://nvidia.com.example/",
                  "https://github.com/lamonoai/gpumap/", "https://forums.developer.nvidia.com/t/1"):  # fmt: skip
        assert kind_of(other) is None


@pytest.mark.parametrize("limits", list_compute_capabilities(), ids=lambda c: c.compute_capability)
def test_every_source_of_a_limit_is_of_a_known_kind(limits: ComputeCapability) -> None:
    for name, entry in limits.provenance.items():
        for source in (*entry.sources, *(s for other in entry.disputed for s in other.sources)):
            assert kind_of(source), (name, source)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.id)
def test_shipped_profile(gpu: GpuProfile) -> None:
    assert gpu.sm_count and not gpu.limits_only
    assert gpu.path.endswith(f"{gpu.id}.yaml")
    assert gpu.arch == gpu.limits.arch == round(float(gpu.compute_capability) * 10)
    for name, entry in gpu.provenance.items():
        assert entry.status in STATUSES
        assert entry.sources or (entry.status == "assumed" and entry.note), name
        kinds = {kind_of(source) for source in (*entry.sources, *(s for o in entry.disputed for s in o.sources))}
        assert None not in kinds, (name, entry.sources)
        own = {kind_of(source) for source in entry.sources}
        assert entry.status != "documented" or "document" in own, name
        assert entry.status != "measured" or own & {"reading", "timing"}, name
        if entry.disputed:
            assert len(entry.chosen_because) > 10, name
            owner = gpu if hasattr(gpu, name) else gpu.limits
            assert any(other.value != getattr(owner, name) for other in entry.disputed), name
    for name in GPU_VALUES:
        assert (getattr(gpu, name) is not None) == (name in gpu.provenance), name
    for name in gpu.tensor_formats_absent:
        assert getattr(gpu, f"{name}_dense_tflops", None) is None
    assert pickle.loads(pickle.dumps(gpu)) == gpu


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.id)
def test_fp32_rate_follows_from_sms_and_clock(gpu: GpuProfile) -> None:
    """SMs x FP32 lanes x 2 FLOP x clock: a wrong SM count or clock shows here, whatever the file says."""
    if gpu.fp32_tflops is None or gpu.boost_clock_mhz is None:
        pytest.skip("the profile states no FP32 rate or no clock")
    assert gpu.sm_count is not None
    lanes = 64 if gpu.compute_capability in ("7.0", "7.5", "8.0") else 128  # CUDA guide, arithmetic throughput
    computed = gpu.sm_count * lanes * 2 * gpu.boost_clock_mhz * 1e6 / 1e12
    assert computed == pytest.approx(gpu.fp32_tflops, rel=0.03)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.id)
def test_narrower_formats_are_faster(gpu: GpuProfile) -> None:
    rates = [r for r in (gpu.fp4_dense_tflops, gpu.fp8_dense_tflops, gpu.fp16_dense_tflops) if r is not None]
    assert rates == sorted(rates, reverse=True)
    for wide, narrow in ((gpu.fp16_dense_tflops, gpu.fp8_dense_tflops), (gpu.fp8_dense_tflops, gpu.fp4_dense_tflops)):
        if wide and narrow:
            assert 1.9 <= narrow / wide <= 4.1


@pytest.mark.parametrize("limits", list_compute_capabilities(), ids=lambda c: c.compute_capability)
def test_limits_hang_together(limits: ComputeCapability) -> None:
    assert limits.max_threads_per_sm == 32 * limits.max_warps_per_sm
    assert limits.shared_per_cta_optin_bytes + limits.shared_reserved_per_cta_bytes == limits.shared_per_sm_bytes
    assert limits.carveouts_bytes[-1] == limits.shared_per_sm_bytes <= limits.unified_l1_shared_bytes
    assert limits.cluster_supported == (limits.arch >= 90) == (limits.max_cluster_size_portable is not None)
    assert (limits.tmem_columns_per_sm > 0) == (100 <= limits.arch < 120)
    required = set(LIMIT_VALUES) - {"max_cluster_size_portable", "max_cluster_size_nonportable"}
    assert required <= set(limits.provenance)


def test_figures_that_engineers_know() -> None:
    pro = load_gpu(DEFAULT_GPU)
    assert (pro.id, pro.sm_count, pro.arch) == ("rtx-pro-6000-workstation", 188, 120)
    assert pro.limits.shared_per_cta_optin_bytes == 101_376
    assert pro.limits.max_warps_per_sm == 48
    assert pro.l2_bytes == 128 * 2**20
    assert load_gpu("h200").sm_count == 132
    assert load_gpu("5090").sm_count == 170


# Variants and disputes ------------------------------------------------------------------------------------------------


def test_variants_are_separate_products() -> None:
    assert (load_gpu("h100-sxm").sm_count, load_gpu("h100-pcie").sm_count) == (132, 114)
    editions = [load_gpu(n) for n in ("rtx-pro-6000-workstation", "rtx-pro-6000-max-q", "rtx-pro-6000-server")]
    assert [e.sm_count for e in editions] == [188, 188, 188]
    assert [e.tdp_w for e in editions] == [600, 300, 600]
    assert len({e.boost_clock_mhz for e in editions}) == 3


def test_disputed_sm_count_is_recorded_and_explained() -> None:
    l4 = load_gpu("l4")
    entry = l4.provenance["sm_count"]
    assert l4.sm_count == 58
    assert [other.value for other in entry.disputed] == [60]
    assert "7424" in entry.chosen_because  # 58 x 128 CUDA cores
    assert load_gpu("b300").status("sm_count") == "assumed"
    assert load_gpu("sm120").status("sm_count") == "unknown"
    assert [d.value for d in load_gpu("5090").provenance["max_ctas_per_sm"].disputed] == [32]
    # A figure of a shop or a data base alone is assumed, and says so.
    assert load_gpu("5090").status("sm_count") == "measured" and load_gpu("5080").status("sm_count") == "assumed"


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.id)
def test_every_name_leads_to_its_profile(gpu: GpuProfile) -> None:
    for name in (gpu.id, gpu.name, *gpu.aliases, *gpu.device_names):
        try:
            assert load_gpu(name).id == gpu.id
        except InputError as error:
            # Two products have this name: the error lists both, and the profile says so.
            assert gpu.id in error.data["valid"] and len(error.data["valid"]) > 1
            assert "both" in gpu.alias_notes[name]
    assert set(gpu.alias_notes) <= set(gpu.aliases)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RTX PRO 6000", "rtx-pro-6000-workstation"),
        ("rtx_pro_6000", "rtx-pro-6000-workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("GeForce RTX 5090", "rtx-5090"),
        ("geforce 5090", "rtx-5090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100", "h100-sxm"),
        ("A100", "a100-sxm-80gb"),
        ("Tesla T4", "t4"),
        ("dgx spark", "gb10"),
        ("l20", "l20"),
        ("a40", "a40"),
        ("a10", "a10"),
        ("a10g", "a10g"),
        ("a6000", "rtx-a6000"),
        ("rtx-a4000", "rtx-a4000"),
        ("RTX A5000", "rtx-a5000"),
        ("v100", "v100-sxm2-16gb"),
        ("t4", "t4"),
        ("h800", "h800-sxm"),
        ("h20", "h20-96gb"),
        ("h20e", "h20-141gb"),
        ("h100-pcie", "h100-pcie"),
        ("h100-nvl", "h100-nvl"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("gh200", "gh200-96gb"),
        ("b200", "b200"),
        ("b300", "b300"),
        ("gb10", "gb10"),
        ("5070 ti", "rtx-5070-ti"),
        ("rtx-pro-4500", "rtx-pro-4500"),
        ("rtx pro 6000 max-q", "rtx-pro-6000-max-q"),
        ("4090 laptop", "rtx-4090-laptop"),
        ("2080ti", "rtx-2080-ti"),
        ("orin", "jetson-agx-orin-64gb"),
        ("jetson thor", "jetson-thor"),
        ("NVIDIA A40", "a40"),
    ],
)
def test_names_as_people_write_them(name: str, expected: str) -> None:
    assert load_gpu(name).id == expected


@pytest.mark.parametrize("name", ["sm120", "SM_120", "sm_120a", "12.0", "compute_120", "120", "cc12.0", " 12.0 "])
def test_compute_capability_gives_limits_only(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.limits_only and gpu.sm_count is None and gpu.id == "sm120"
    assert gpu.limits == load_compute_capability("12.0")


def test_a_miss_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_gpu("rtx 5091")
    assert caught.value.exit_code == 2
    assert "rtx-5090" in caught.value.hint
    with pytest.raises(UnknownNameError, match=r"Known: 7\.0, 7\.5, 8\.0"):
        load_gpu("sm71")
    with pytest.raises(UnknownNameError):
        load_gpu("")
    with pytest.raises(UnknownNameError, match="this machine's GPU"):
        load_gpu("local")


def test_an_ambiguous_name_lists_its_products() -> None:
    with pytest.raises(InputError, match="rtx-6000-ada or rtx-pro-6000-workstation"):
        load_gpu("rtx 6000")


def test_normalized_names() -> None:
    assert normalized("NVIDIA GeForce RTX 5090") == normalized("rtx-5090") == "rtx5090"
    assert normalized("nvidia") == "nvidia"  # a name of nothing but the maker stays a name


# A user's folder ------------------------------------------------------------------------------------------------------

OWN = """\
schema: occupancy/gpu-profile/1
id: h100-mig-3g
name: H100 SXM, MIG 3g.40gb
aliases:
  - mig
  - my slice
extends: h100-sxm
values:
  sm_count: 60
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_own_profile_extends_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, "h100-mig-3g.yaml", OWN)
    gpu = load_gpu("my slice", [tmp_path])
    assert (gpu.id, gpu.sm_count, gpu.memory_bandwidth_gbps) == ("h100-mig-3g", 60, 3350)
    assert gpu.status("sm_count") == "assumed" and gpu.status("l2_bytes") == "measured"
    assert gpu.aliases == ("mig", "my slice")
    assert "h100-mig-3g" in {g.id for g in list_gpus([tmp_path])}
    assert load_gpu("h100", [tmp_path]).id == "h100-sxm"


def test_a_profile_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "h100-mig-3g.yaml", OWN)
    write(tmp_path, "h100-sxm.yaml", "schema: occupancy/gpu-profile/1\nid: h100-sxm\nextends: h100-sxm\n")
    monkeypatch.chdir(tmp_path)
    for name in ("h100-mig-3g.yaml", f"{tmp_path}/h100-mig-3g.yaml"):
        gpu = load_gpu(name)
        # As a worker process finds it, by its id in its folder.
        assert gpu == load_gpu("h100-mig-3g", [tmp_path]) and gpu.path == str(tmp_path / "h100-mig-3g.yaml")
    assert load_gpu("./h100-sxm.yaml").sm_count == 132  # of the shipped profile that it extends
    with pytest.raises(InputError, match=r"no such file: h100\.yaml"):
        load_gpu("h100.yaml")


def test_own_profile_overrides_the_shipped_one_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "schema: occupancy/gpu-profile/1\nid: h100-sxm\nextends: h100-sxm\nvalues: {sm_count: 100}\n"
    write(tmp_path, "h100-sxm.yaml", text)
    monkeypatch.setenv(PROFILE_DIRS_VARIABLE, f"{tmp_path}")
    gpu = load_gpu("h100-sxm")
    assert (gpu.sm_count, gpu.name, gpu.fp16_dense_tflops) == (100, "H100 SXM5 80 GB", 989)
    assert [g.sm_count for g in list_gpus() if g.id == "h100-sxm"] == [100]
    assert load_gpu("H100").sm_count == 100  # the names of the one it stands in for are its names
    # the folder given by the caller comes before the variable's
    other = tmp_path / "other"
    write(other, "h100-sxm.yaml", text.replace("100}", "99}"))
    assert load_gpu("h100-sxm", [other]).sm_count == 99


def test_the_alias_of_an_own_profile_wins(tmp_path: Path) -> None:
    write(tmp_path, "mine.yaml", OWN.replace("id: h100-mig-3g", "id: mine").replace("- mig", "- h100"))
    assert load_gpu("h100", [tmp_path]).id == "mine"


def test_own_compute_capability(tmp_path: Path) -> None:
    text = (SHIPPED / "compute_capability" / "12.0.yaml").read_text()
    write(
        tmp_path,
        "compute_capability/12.2.yaml",
        text.replace('compute_capability: "12.0"', 'compute_capability: "12.2"'),
    )
    assert load_gpu("sm122", [tmp_path]).limits.max_warps_per_sm == 48


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--hw-profiles: no such folder"):
        load_gpu("h100", [tmp_path / "none"])
    monkeypatch.setenv(PROFILE_DIRS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match=f"{PROFILE_DIRS_VARIABLE}: no such folder"):
        load_gpu("h100")


# Files that are wrong -------------------------------------------------------------------------------------------------

GOOD = """\
schema: occupancy/gpu-profile/1
id: mine
name: Mine
sources: {page: https://example.org/mine}
values:
  compute_capability: {value: "9.0", status: documented, sources: [page]}
  sm_count: {value: 10, status: documented, sources: [page]}
"""


def test_the_good_file_is_good(tmp_path: Path) -> None:
    write(tmp_path, "mine.yaml", GOOD)
    gpu = load_gpu("mine", [tmp_path])
    assert gpu.sm_count == 10 and gpu.provenance["sm_count"].sources == ("https://example.org/mine",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sm_count:", "sm_counts:", "mine.yaml:7:3: values.sm_counts: unknown key 'sm_counts'\nDid you mean sm_count"),
        ("name: Mine", "nmae: Mine", "mine.yaml:3:1: nmae: unknown key 'nmae'\nDid you mean name"),
        ("status: documented, sources: [page]}\n  sm", "stauts: documented}\n  sm", "unknown key 'stauts'"),
        ("value: 10", "value: ten", "mine.yaml:7:14: values.sm_count.value: a whole number is expected, not 'ten'"),
        ("value: 10", "value: 10.5", "a whole number is expected, not 10.5"),
        ("value: 10", "value: -1", "a number above 0"),
        ("value: 10", "value: true", "a whole number is expected, not True"),
        ("value: 10, ", "", "the key 'value' is missing"),
        ("value: 10, status: documented", "value: 10, status: known", "status 'known' is none of documented"),
        ("value: 10, status: documented, sources: [page]", "value: 10, status: documented", "names its sources"),
        ("sources: [page]}\n  sm", "sources: [pgae]}\n  sm", "unknown source 'pgae'\nDid you mean page"),
        ("profile/1", "profile/2", "This version reads occupancy/gpu-profile/1"),
        ("id: mine", "id: yours", "A profile's id is its file name: mine"),
        ('"9.0"', '"9"', "a compute capability such as '12.0'"),
        ('"9.0"', '"5.0"', "unknown compute capability '5.0'"),
        ("name: Mine\n", "", "the key 'name' is missing"),
        ("name: Mine\n", "name: Mine\nname: Other\n", "mine.yaml:4:1: key 'name' is given twice"),
        ("values:", "values: [", "not valid YAML"),
        ("value: 10, status: documented, sources: [page]", "value: 10, status: assumed, disputed: [{value: 9}]",
         "Add chosen_because"),
        ("name: Mine", "name: Mine\nextends: mine", "unknown GPU 'mine'"),
        ("name: Mine", "name: Mine\nextends: h1000", "extends: unknown GPU 'h1000'"),
        ("name: Mine", "name: Mine\naliases: own", "mine.yaml:4:1: aliases: a list is expected, not 'own'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_where_and_what(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    path = write(tmp_path, "mine.yaml", GOOD.replace(old, new))
    with pytest.raises(OccupancyError) as caught:
        load_gpu("mine", [tmp_path])
    assert said in str(caught.value)
    if "compute capability '5.0'" not in said:
        assert str(path) in str(caught.value)


def test_two_profiles_that_extend_each_other(tmp_path: Path) -> None:
    for one, other in (("a1", "b1"), ("b1", "a1")):
        write(tmp_path, f"{one}.yaml", f"schema: occupancy/gpu-profile/1\nid: {one}\nname: x\nextends: {other}\n")
    with pytest.raises(InputError, match="extends itself"):
        load_gpu("a1", [tmp_path])


def test_a_wrong_file_costs_only_its_own_name(tmp_path: Path) -> None:
    write(tmp_path, "broken.yaml", "}{ not yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert load_gpu("h100", [tmp_path]).id == "h100-sxm"


# What it costs --------------------------------------------------------------------------------------------------------


def parsed_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are parsed from here on."""
    parsed: list[str] = []

    def counting(path: Path) -> Document:
        parsed.append(path.name)
        return load_yaml(path)

    monkeypatch.setattr(profile_files, "load_yaml", counting)
    monkeypatch.setattr(profiles, "load_yaml", counting)
    profile_files._limits_in.cache_clear()
    profiles._names_kept.cache_clear()
    return parsed


def test_loading_one_gpu_parses_two_files(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parsed_files(monkeypatch)
    load_gpu("NVIDIA H100 80GB HBM3")
    assert parsed == ["h100-sxm.yaml", "9.0.yaml"]
    parsed.clear()
    load_gpu("sm90")
    assert parsed == []  # the limits are kept


def test_importing_and_answering_needs_nothing_heavy() -> None:
    code = (
        "import sys; from occupancy_cli import load_gpu, occupancy\n"
        "occupancy(load_gpu('h100'), threads_per_cta=128, registers_per_thread=64, shared_bytes=0)\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "occupancy_cli" in loaded
    assert not loaded & {"triton", "torch", "numpy", "pydantic", "rich", "typer", "ctypes", "multiprocessing"}


def test_readme_names_every_value() -> None:
    text = (SHIPPED / "README.md").read_text()
    for name in GPU_VALUES:
        assert re.search(rf"`{name}`", text), name
