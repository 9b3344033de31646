"""The audit of Triton caches: really compiled entries, broken ones beside them, and the ranking's arithmetic."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from occupancy_cli.answers.audit import RULE, audit, gain
from occupancy_cli.cli.audit_command import audit as command
from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.occupancy import occupancy
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.readers.triton_cache import CachedKernel, TritonCache, default_triton_cache, read_triton_cache

KERNELS = """
import sys
import triton
import triton.language as tl
from occupancy_cli.compile import triton_front

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)

@triton.jit
def matmul(a, b, out, k, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        left = tl.load(a + rows[:, None] * k + (start + rows)[None, :])
        right = tl.load(b + (start + rows)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * BLOCK + rows[None, :], total)

def tensor(element):
    return triton_front.TensorStandIn(element, 16)

triton_front.install_driver(triton_front.TargetGpu(120, 101376, 188, 65536))
add.warmup(tensor("fp32"), tensor("fp32"), tensor("fp32"), 4096, BLOCK=1024, grid=(1,), num_warps=4)
matmul.warmup(tensor("bf16"), tensor("bf16"), tensor("fp32"), 4096, BLOCK=64, grid=(1,), num_warps=4, num_stages=3)
triton_front.install_driver(triton_front.TargetGpu(90, 232448, 132, 65536))
add.device_caches.clear()  # both are device 0
add.warmup(tensor("fp32"), tensor("fp32"), tensor("fp32"), 4096, BLOCK=1024, grid=(1,), num_warps=8)
"""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that Triton itself wrote: add and matmul for sm120, add for sm90."""
    folder = tmp_path_factory.mktemp("triton")
    script = folder / "kernels.py"
    script.write_text(KERNELS)
    cache = folder / "cache"
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1",
    }  # fmt: skip
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=300)
    return cache


@pytest.fixture
def cache(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "cache"))


def entry(cache: Path, name: str, arch: int) -> Path:
    for metadata in cache.rglob(f"{name}.json"):
        if json.loads(metadata.read_text())["target"]["arch"] == arch:
            return metadata.parent
    raise AssertionError(f"no {name} for sm{arch}")


@pytest.mark.compiles
def test_every_kernel_is_found_with_its_resources(cache: Path) -> None:
    found = read_triton_cache(cache)
    assert [(k.name, k.arch) for k in found.kernels] in (
        [("add", 120), ("add", 90), ("matmul", 120)], [("add", 90), ("add", 120), ("matmul", 120)],
    )  # fmt: skip
    assert found.set_aside == ()
    by = {(k.name, k.arch): k for k in found.kernels}
    metadata = json.loads((entry(cache, "matmul", 120) / "matmul.json").read_text())
    matmul = by["matmul", 120]
    assert matmul.resources.shared_bytes == metadata["shared"] > 0
    assert matmul.triton == metadata["triton_version"] and matmul.num_stages == 3
    assert 0 < (matmul.resources.registers_per_thread or 0) <= 255
    assert matmul.source.endswith("kernels.py:14")  # the line of `def`, or of its decorator
    assert by["add", 90].resources.threads_per_cta == 256
    assert by["add", 120].resources.shared_bytes == 0
    # sm120's cubin declares the 1,024 reserved bytes as static; they must not count twice.
    assert all(k.resources.static_shared_bytes == 0 for k in found.kernels)


@pytest.mark.compiles
def test_inductors_layout_is_found_below_its_folders(cache: Path, tmp_path: Path) -> None:
    inductor = tmp_path / "torchinductor_me"
    (inductor / "ab").mkdir(parents=True)
    (inductor / "ab" / "cabab.py").write_text("# generated\n")
    (inductor / "ab" / "cabab.best_config").write_text("{}")
    shutil.copytree(cache, inductor / "triton" / "0")
    found = read_triton_cache(inductor)
    assert len(found.kernels) == 3 and found.set_aside == ()
    assert all(k.entry.startswith("triton/0/") for k in found.kernels)


@pytest.mark.compiles
def test_what_is_broken_is_counted_named_and_never_fatal(cache: Path) -> None:
    whole = entry(cache, "add", 120)

    def copy(name: str) -> Path:
        return Path(shutil.copytree(whole, cache / name))

    (copy("no_cubin") / "add.cubin").unlink()
    (copy("no_json") / "add.json").unlink()
    (copy("not_json") / "add.json").write_text("{")
    (copy("list_json") / "add.json").write_text("[]")
    (copy("deep_json") / "add.json").write_text("[" * 100_000)
    cut = copy("cut_cubin") / "add.cubin"
    cut.write_bytes(cut.read_bytes()[:1000])
    (copy("no_elf") / "add.cubin").write_bytes(b"\x7fELF nonsense")
    (copy("empty_cubin") / "add.cubin").write_bytes(b"")
    hip = copy("hip")
    (hip / "add.cubin").rename(hip / "add.hsaco")
    old = json.loads((whole / "add.json").read_text())
    (copy("xpu") / "add.json").write_text(json.dumps(old | {"target": {"backend": "xpu", "arch": 20}}))
    (copy("no_target") / "add.json").write_text(json.dumps({k: v for k, v in old.items() if k != "target"}))
    (copy("no_shared") / "add.json").write_text(json.dumps({k: v for k, v in old.items() if k != "shared"}))
    (copy("text_shared") / "add.json").write_text(json.dumps(old | {"shared": "many"}))
    (copy("other_name") / "add.json").write_text(json.dumps(old | {"name": "renamed"}))  # the one kernel is it
    (copy("tmp.pid_12_ab")).joinpath("add.ptx").unlink()
    group = cache / "only_group"
    group.mkdir()
    (group / "__grp__add.json").write_text("{}")
    (cache / "launcher").mkdir()
    (cache / "launcher" / "__triton_launcher.so").write_bytes(b"\x7fELF")
    (cache / "timings").mkdir()
    (cache / "timings" / "add.autotune.json").write_text("{}")
    fifo = cache / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "add.cubin")
    (cache / "loop").symlink_to(cache)

    found = read_triton_cache(cache)
    states = {a.path.split("/")[0]: (a.state, a.why) for a in found.set_aside}
    expected = {
        "no_cubin": "partial", "no_json": "partial", "not_json": "corrupt", "list_json": "corrupt",
        "deep_json": "corrupt", "cut_cubin": "corrupt", "no_elf": "corrupt", "empty_cubin": "corrupt",
        "hip": "foreign", "xpu": "foreign", "no_target": "corrupt", "no_shared": "corrupt",
        "text_shared": "corrupt", "tmp.pid_12_ab": "partial", "only_group": "partial", "launcher": "other",
        "timings": "other", "fifo": "partial",
    }  # fmt: skip
    assert {name: state for name, (state, _) in states.items()} == expected
    assert all(why for _, why in states.values())
    assert sorted(k.entry for k in found.kernels if k.entry == "other_name") == ["other_name"]
    assert len(found.kernels) == 4  # the three that were compiled, and other_name
    assert found.counts() == {"partial": 5, "corrupt": 9, "foreign": 2, "other": 2}


@pytest.mark.compiles
def test_no_damage_to_a_cubin_or_its_metadata_is_fatal(cache: Path) -> None:
    rng = random.Random(7)
    for name in ("add.cubin", "add.json"):
        path = entry(cache, "add", 90) / name
        data = path.read_bytes()
        for _ in range(150):
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            path.write_bytes(bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]))
            found = audit(read_triton_cache(path.parent), lambda arch: load_gpu(f"sm{arch}"))
            # The entry is judged or set aside, one of the two.
            assert len(found.kernels) + len(found.cache.set_aside) == 1
        path.write_bytes(data)


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "mine"))
    assert default_triton_cache() == tmp_path / "mine"
    with pytest.raises(InputError, match="no such folder") as missing:
        read_triton_cache(tmp_path / "nowhere")
    assert str(tmp_path / "mine") in missing.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        read_triton_cache(tmp_path / "file")
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert default_triton_cache() == tmp_path / ".triton" / "cache"


# --- the ranking -----------------------------------------------------------------------------------------------------


def resources(shared: int = 0, registers: int = 32, warps: int = 4, spill: int = 0) -> KernelResources:
    return KernelResources(shared, warps, 32 * warps, registers, spill)


def judged(**kernel: int) -> tuple[float, str]:
    r = resources(**kernel)
    found = gain(
        occupancy(
            load_gpu("sm120"),
            threads_per_cta=r.threads_per_cta,
            registers_per_thread=r.registers_per_thread,
            shared_bytes=r.shared_bytes,
        )
    )
    return found.score, found.text


def test_the_score_of_a_shared_memory_bound_kernel() -> None:
    # sm120: carveout 102,400 bytes, 1,024 reserved per CTA: two CTAs need at most 51,200 - 1,024 = 50,176 each.
    # One CTA to two doubles the warps (x 1.0); 61,568 - 50,176 = 11,392 bytes must go: 1 - 11,392/61,568 = 0.815 stays.
    score, text = judged(shared=61_568, registers=64)
    assert score == pytest.approx(1 - 11_392 / 61_568)
    assert text == "11,392 shared bytes less (61,568 to 50,176)"


def test_the_score_of_a_register_bound_kernel() -> None:
    # 168 registers x 32 = 5,376 a warp; a partition's 16,384 hold 3, the SM 12 warps: 3 CTAs of 4 warps. The fourth
    # needs 4 warps a partition: 4,096 registers a warp, 128 a thread, 40 fewer. A third more warps, 128/168 may stay.
    score, text = judged(registers=168)
    assert score == pytest.approx(1 / 3 * 128 / 168)
    assert text == "40 registers less (168 to 128)"


def test_two_resources_that_bind_together_count_by_the_larger_cut() -> None:
    # 255 registers with 8 warps: 8,160 -> 8,192 a warp, 2 a partition, 8 warps an SM: 1 CTA; two need 128 registers.
    score, text = judged(shared=61_568, registers=255, warps=8)
    assert score == pytest.approx(1.0 * (1 - 127 / 255))
    assert "shared bytes less" in text and "127 registers less (255 to 128)" in text


def test_nothing_to_gain() -> None:
    # 4 warps, 32 registers: 12 CTAs make 48 of 48 warps.
    assert judged(registers=32) == (0.0, "48 of 48 warps per SM: another CTA does not fit")
    # One warp: 24 CTAs are the SM's limit.
    assert judged(registers=32, warps=1) == (0.0, "at the SM's limit of 24 CTAs")


def made(name: str, **kernel: int) -> CachedKernel:
    return CachedKernel(name, f"entry_{name}", 120, resources(**kernel))


def test_the_order() -> None:
    cache = TritonCache(
        "made",
        (
            made("full", registers=32),
            made("registers", registers=168),
            made("shared", shared=61_568, registers=64),
            made("over", shared=110_000),
            made("far_over", shared=186_112),
            CachedKernel("old", "entry_old", 35, resources()),
        ),
        (),
    )
    result = audit(cache, lambda arch: load_gpu(f"sm{arch}"))
    # over the cap by most first, then 0.815, 0.254, 0, and last what has no known limits
    assert [r.kernel.name for r in result.kernels] == ["far_over", "over", "shared", "registers", "full", "old"]
    assert result.kernels[0].occupancy is not None and result.kernels[0].occupancy.over_bytes == 186_112 - 101_376
    assert "3.5" in result.kernels[-1].unknown and result.kernels[-1].occupancy is None


def test_another_gpu_says_that_the_binaries_are_not_its_own() -> None:
    cache = TritonCache("made", (made("shared", shared=110_000),), ())
    result = audit(cache, lambda arch: load_gpu(f"sm{arch}"), load_gpu("h200"))
    row = result.kernels[0]
    assert row.gpu == "h200-sxm" and row.occupancy is not None and row.occupancy.launchable
    assert "built for sm120 are judged on h200-sxm as built" in result.notes[0]


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.compiles
def test_the_table_and_the_json(cache: Path) -> None:
    (cache / "broken[red]").mkdir()
    (cache / "broken[red]" / "add.cubin").write_text("x")
    text = run(str(cache))
    assert "3 compiled kernels, each on its own target" in text and RULE in text
    assert "matmul" in text and "1 partial" in text and "broken[red]/add" in text
    data = json.loads(run(str(cache), "--format", "json", "--gpu", "rtx-pro-6000"))
    assert (data["schema"], data["command"]) == ("occupancy/report/1", "audit")
    assert data["audit"]["counts"] == {"kernels": 3, "partial": 1, "corrupt": 0, "foreign": 0, "other": 0}
    assert {k["gpu"] for k in data["audit"]["kernels"]} == {data["gpu"]["id"]}
    assert all(k["occupancy"]["ctas_per_sm"] >= 1 for k in data["audit"]["kernels"])


def test_an_empty_cache_is_no_failure(tmp_path: Path) -> None:
    assert "0 compiled kernels" in run(str(tmp_path))
    assert json.loads(run(str(tmp_path), "--format", "json"))["audit"]["kernels"] == []


@pytest.mark.compiles
def test_kernels_that_cannot_launch_are_one_line(cache: Path) -> None:
    whole = entry(cache, "matmul", 120)
    metadata = json.loads((whole / "matmul.json").read_text())
    for i, shared in enumerate((120_000, 130_000)):
        folder = Path(shutil.copytree(whole, cache / f"over{i}"))
        (folder / "matmul.json").write_text(json.dumps(metadata | {"shared": shared}))
    text = run(str(cache))
    assert "2 of these cannot launch" in text
    # 120,000 - 101,376 = 18,624 and 130,000 - 101,376 = 28,624
    assert "matmul on sm120: 2 binaries are 18,624 to 28,624 bytes of shared memory over the cap of 101,376" in text
