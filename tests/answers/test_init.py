"""`occupancy init`: the spec says what the source says, marks and counts what it guesses, and analyzes as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT

from occupancy_cli.answers.spec_skeleton import write_skeleton
from occupancy_cli.errors import InputError
from occupancy_cli.spec.kernel_spec import load_spec

KERNEL = """
import os

import triton
import triton.language as tl

ROWS = int(os.environ.get("NORM_ROWS", "4"))


@triton.jit
def norm(X, out_ptr, lens_ptr, "WEIGHT", n_cols, eps, rows_total, ROWS: tl.constexpr, BLOCK: tl.constexpr,
         MODE: tl.constexpr = "plain"):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows_total) & (at < n_cols)
    start = X + row * n_cols
    x = tl.load(start + at, mask=mask, other=0.0).to(tl.float32)
    n = tl.load(lens_ptr + row, mask=row < rows_total, other=1)
    mean = tl.sum(x * x, 1)[:, None] / n
    w = tl.load(WEIGHT + at, mask=at < n_cols, other=0.0)
    tl.store(out_ptr + row * n_cols + at, x * tl.rsqrt(mean + eps) * w, mask=mask)


def launch(x, out, lens, w, batch):
    norm[(triton.cdiv(batch, ROWS),)](x, out, lens, w, x.stride(0), 1e-6, batch, ROWS=ROWS, BLOCK=1024, num_warps=8)
""".replace('"WEIGHT"', "WEIGHT")


@pytest.fixture
def norm_file(tmp_path: Path) -> Path:
    path = tmp_path / "norm.py"
    path.write_text(KERNEL)
    return path


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def test_what_the_source_says_is_in_the_skeleton(norm_file: Path) -> None:
    found = write_skeleton(norm_file, "norm", lambda name: f"norm.py:{name}")
    (norm_file.parent / "norm.yaml").write_text(found.text)
    spec, _ = load_spec(norm_file.parent / "norm.yaml")
    types = {n: a.type for n, a in spec.arguments.items()}
    assert types == {
        "X": "*bf16",  # through `start`
        "out_ptr": "*bf16",
        "lens_ptr": "*i32",
        "WEIGHT": "*bf16",
        "n_cols": "i32",
        "eps": "fp32",
        "rows_total": "i32",
    }
    assert 'X: "*bf16"  # guess: loaded or stored through' in found.text
    assert spec.knobs["ROWS"].env == "NORM_ROWS"
    assert spec.knobs["ROWS"].default == 4
    assert spec.constexprs == {"BLOCK": 1024}
    assert '# MODE: "plain" by default' in found.text or "# MODE: 'plain' by default" in found.text
    assert spec.configs == [{"num_warps": 8}]
    assert spec.grid == ["ceil_div(batch, ROWS)"]
    assert found.guessed[:3] == ("shapes.n_cols", "shapes.rows_total", "shapes.batch")
    assert found.text.count("# guess") == len(found.guessed) == 8  # with five types
    assert spec.shapes == {"n_cols": 4096, "rows_total": 4096, "batch": 16}


def test_what_is_guessed_is_counted(norm_file: Path) -> None:
    done = run("init", "norm.py:norm", cwd=norm_file.parent)
    assert done.returncode == 0
    assert done.stdout == "norm.yaml: 8 guesses to look over, then: occupancy analyze norm.yaml\n"


def test_a_place_that_is_marked_to_be_filled_is_refused(norm_file: Path) -> None:
    text = write_skeleton(norm_file, "norm", lambda name: f"norm.py:{name}").text
    path = norm_file.parent / "norm.yaml"
    path.write_text(text.replace("n_cols: 4096", 'n_cols: "FILL: columns"'))
    with pytest.raises(InputError, match=r"norm\.yaml:\d+:\d+: shapes\.n_cols: 1 place is still to"):
        load_spec(path)


LAUNCHED = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def mm(a_desc, b_desc, c_ptr, d_ptr, M, N, K, stride_cm, stride_cn, BM: tl.constexpr, BN: tl.constexpr,
       BK: tl.constexpr):
    for k in range(0, K, BK):
        a = a_desc.load([tl.program_id(0) * BM, k])
        b = b_desc.load([k, tl.program_id(1) * BN])
    at = tl.arange(0, BM)[:, None] * stride_cm + tl.arange(0, BN)[None, :] * stride_cn
    tl.store(c_ptr + at, tl.dot(a, b))
    tl.store(d_ptr + at, tl.dot(a, b).to(tl.float16))


def blocks(nargs):
    nargs["b_desc"].block_shape = [nargs["BK"], nargs["BN"]]


def launch(a, b, d):
    M, K = a.shape
    N = b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float8_e4m3fn)
    a_desc = TensorDescriptor.from_tensor(a, block_shape=[128, BK])
    b_desc = TensorDescriptor(b, b.shape, b.stride(), [1, 1])
    mm[(triton.cdiv(M, 128), triton.cdiv(N, 64))](
        a_desc, b_desc, c, d, M, N, K, c.stride(0), c.stride(1), BM=128, BN=64, BK=32)
"""


def test_a_constexpr_that_is_compared_with_texts_is_one_of_them(tmp_path: Path) -> None:
    body = "    if MODE == 'swish':\n        tl.store(x, 1)\n    elif MODE == 'gelu':\n        tl.store(x, 2)\n"
    head = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    (tmp_path / "k.py").write_text(f"{head}def k(x, MODE: tl.constexpr, G: tl.constexpr):\n{body}")
    (tmp_path / "k.yaml").write_text(write_skeleton(tmp_path / "k.py", None, lambda name: f"k.py:{name}").text)
    assert load_spec(tmp_path / "k.yaml")[0].constexprs == {"MODE": "swish", "G": 16}


def test_types_strides_and_descriptors_are_read_from_the_launch(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(LAUNCHED)
    (tmp_path / "k.yaml").write_text(write_skeleton(tmp_path / "k.py", None, lambda name: f"k.py:{name}").text)
    spec, _ = load_spec(tmp_path / "k.yaml")
    types = {n: a.type for n, a in spec.arguments.items() if a.type != "i32"}
    assert types == {
        "a_desc": "tensordesc<bf16[128,BK]>",  # as the launch makes it
        "b_desc": "tensordesc<bf16[BK,BN]>",  # as the hook sets it
        "c_ptr": "*fp8e4nv",
        "d_ptr": "*fp16",  # stored as such
    }
    assert (spec.arguments["stride_cm"].value, spec.arguments["stride_cn"].value) == ("N", "1")
    assert list(spec.shapes) == ["M", "N", "K"]
    assert spec.grid == ["ceil_div(M, 128)", "ceil_div(N, 64)"]


def test_no_file_is_overwritten(norm_file: Path) -> None:
    path = norm_file.parent / "mine.yaml"
    path.write_text("precious")
    done = run("init", "norm.py:norm", "-o", "mine.yaml", cwd=norm_file.parent)
    assert done.returncode == 2
    assert "mine.yaml: exists already" in done.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("norm.py:nrm", "no JIT function 'nrm'"),
        ("nrm.py:norm", "no such file, folder or package"),
        ("empty.py", "0 kernels in empty.py"),
    ],
)
def test_what_is_not_there_is_one_error(norm_file: Path, kernel: str, says: str) -> None:
    (norm_file.parent / "empty.py").write_text("x = 1\n")
    done = run("init", kernel, cwd=norm_file.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_launches_give_is_not_asked_for(tmp_path: Path) -> None:
    """Through a launcher: its options, the constexpr that stands at its place, the integers that are written there."""
    body = KERNEL.split("def launch")[0].replace("ROWS = int", "ROW = int")
    launch = "def launch(x, go):\n    go(norm, (4,), x, x, x, x, 512, 1e-6, 64, 2, 1024, num_warps=w(), num_stages=2)\n"
    (tmp_path / "k.py").write_text(body + launch)
    found = write_skeleton(tmp_path / "k.py", "norm", lambda name: f"k.py:{name}")
    (tmp_path / "k.yaml").write_text(found.text)
    spec, _ = load_spec(tmp_path / "k.yaml")
    assert spec.shapes == {"n_cols": 512, "rows_total": 64}
    assert spec.constexprs == {"ROWS": 2, "BLOCK": 1024}
    assert spec.configs == [{"num_stages": 2}]
    assert "# Not read: k.py:" in found.text and "num_warps=w()" in found.text
    assert spec.grid is None and "# grid: [programs along x]" in found.text


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    "kernel",
    [
        None,
        f"{ROOT}/kernels/sparse_mla_decode.py:combine_kernel",
        f"{ROOT}/examples/capture/matmul.py:matmul_kernel",
    ],
)
def test_a_spec_analyzes_as_it_is_written(norm_file: Path, kernel: str | None) -> None:
    made = run("init", kernel or "norm.py:norm", "-o", "k.yaml", cwd=norm_file.parent)
    assert made.returncode == 0, made.stderr
    done = run("analyze", "k.yaml", "--set", "num_warps=4", "--format", "json", cwd=norm_file.parent)
    assert (done.returncode, done.stderr) == (0, "")
    configs = json.loads(done.stdout)["kernels"][0]["configs"]
    assert configs
    for config in configs:
        assert config["resources"]["shared_bytes"] >= 0
        assert config["launch"] is not None


def test_the_example_is_what_init_writes_with_its_guesses_set_right() -> None:
    folder = ROOT / "examples" / "init"
    spec, _ = load_spec(folder / "rms_norm.yaml")
    made = write_skeleton(folder / "rms_norm.py", None, lambda name: f"rms_norm.py:{name}")
    assert made.guessed[:2] == ("shapes.n_rows", "shapes.n_cols")
    assert set(spec.shapes) == {"n_rows", "n_cols"}
    assert spec.arguments["stride_row"].value == "n_cols"  # x.stride(0), where n_rows, n_cols = x.shape
    assert spec.constexprs == {"BLOCK": "next_power_of_2(n_cols)"}
    assert spec.grid == ["ceil_div(n_rows, ROWS)"]  # ROWS_PER_CTA at the launch, passed as ROWS


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_example_analyzes() -> None:
    done = run(
        "analyze", "rms_norm.yaml", "--set", "num_warps=8", "--set", "num_stages=1", "--format", "json",
        cwd=ROOT / "examples" / "init",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    config = json.loads(done.stdout)["kernels"][0]["configs"][0]
    assert config["launch"]["grid"] == [1024]  # 4096 rows in groups of 4
