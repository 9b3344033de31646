"""`occupancy init`: the skeleton of a spec is refused until it is filled, and analyzes once it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT

from occupancy_cli.answers.spec_skeleton import write_skeleton
from occupancy_cli.errors import InputError
from occupancy_cli.spec.kernel_spec import load_spec
from occupancy_cli.yaml_reader import load_yaml

PLACE = re.compile(r'"FILL: [^"]*\(e\.g\. ([^)"]*)\)"')
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


def filled(text: str, **values: object) -> str:
    """The skeleton with every place filled by the example that it gives itself, or by `values`."""
    for name, value in values.items():
        text = re.sub(rf'^(  {name}: )"FILL: [^"]*"', rf"\g<1>{value}", text, flags=re.MULTILINE)
    return PLACE.sub(r"\1", text)


def test_what_the_source_says_is_in_the_skeleton(norm_file: Path) -> None:
    found = write_skeleton(norm_file, "norm", lambda name: f"norm.py:{name}")
    (norm_file.parent / "norm.yaml").write_text(filled(found.text))
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
    assert found.to_fill == ("shapes.n_cols", "shapes.rows_total", "shapes.batch")


def test_a_skeleton_is_refused_until_it_is_filled(norm_file: Path) -> None:
    done = run("init", "norm.py:norm", cwd=norm_file.parent)
    assert done.returncode == 0
    assert done.stdout == "norm.yaml: 3 places to fill (FILL:), then: occupancy analyze norm.yaml\n"
    path = norm_file.parent / "norm.yaml"
    load_yaml(path)  # valid YAML as it is
    with pytest.raises(InputError, match=r"norm\.yaml:\d+:\d+: shapes\.n_cols: 3 places are still to") as caught:
        load_spec(path)
    assert "shapes.rows_total" in str(caught.value)
    refused = run("analyze", "norm.yaml", cwd=norm_file.parent)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "still to be filled" in refused.stderr
    assert "Traceback" not in refused.stderr


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
    (tmp_path / "k.yaml").write_text(filled(found.text))
    spec, _ = load_spec(tmp_path / "k.yaml")
    assert spec.shapes == {"n_cols": 512, "rows_total": 64}
    assert spec.constexprs == {"ROWS": 2, "BLOCK": 1024}
    assert spec.configs == [{"num_stages": 2}]
    assert "# Not read: k.py:" in found.text and "num_warps=w()" in found.text
    assert found.to_fill == ("grid.x",)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.parametrize(
    ("kernel", "values"),
    [
        (None, {}),
        (f"{ROOT}/kernels/sparse_mla_decode.py:combine_kernel", {"nsplit": 4}),
        (f"{ROOT}/examples/capture/matmul.py:matmul_kernel", {"ACTIVATION": "null"}),
    ],
)
def test_a_filled_skeleton_analyzes(norm_file: Path, kernel: str | None, values: dict[str, object]) -> None:
    made = run("init", kernel or "norm.py:norm", "-o", "k.yaml", cwd=norm_file.parent)
    assert made.returncode == 0, made.stderr
    path = norm_file.parent / "k.yaml"
    path.write_text(filled(path.read_text(), **values))
    done = run("analyze", "k.yaml", "--set", "num_warps=4", "--format", "json", cwd=norm_file.parent)
    assert (done.returncode, done.stderr) == (0, "")
    configs = json.loads(done.stdout)["kernels"][0]["configs"]
    assert configs
    for config in configs:
        assert config["resources"]["shared_bytes"] >= 0
        assert config["launch"] is not None


def test_the_example_is_a_filled_skeleton() -> None:
    folder = ROOT / "examples" / "init"
    spec, _ = load_spec(folder / "rms_norm.yaml")
    made = write_skeleton(folder / "rms_norm.py", None, lambda name: f"rms_norm.py:{name}")
    assert made.to_fill == ("shapes.stride_row", "shapes.n_rows", "shapes.n_cols")
    assert set(spec.shapes) == {"stride_row", "n_rows", "n_cols"}
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
