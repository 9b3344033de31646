"""A real notebook, run by Jupyter's own client: a kernel defined in its cell is answered by a table and a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from locations import ROOT

pytestmark = [pytest.mark.compiles, pytest.mark.one_triton]
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("vl_convert")

CELLS = (
    "import triton\nimport triton.language as tl\nimport occupancy_cli as occ",
    """@triton.autotune([triton.Config({"BLOCK": b}, num_warps=4) for b in (128, 1024)], key=["n"])
@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)""",
    'occ.analyze(scale, gpu="h200", args={"x_ptr": "*bf16", "n": 4096}, grid=("ceil_div(n, BLOCK)",))',
)


def test_a_cell_shows_a_table_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat: Any = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = (o for o in notebook.cells[2].outputs if o.output_type == "execute_result")
    shown = output["data"]["text/html"]
    # A head and two configs, both of which fit: one picture, of the limits.
    assert shown.count("<table") == 1 and shown.count("<tr") == 3 and shown.count("<svg") == 1
    assert "An SM holds" in shown and "<script" not in shown and "http" not in shown.replace("http://www.w3.org/", "")
    assert "scale on H200 SXM" in output["data"]["text/plain"]
