"""The documents do what they say: every block of Python in them runs, as it stands and in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_python_of_the_documents_runs(tmp_path: Path) -> None:
    for document in sorted((ROOT / "docs").glob("*.md")):
        blocks = BLOCK.findall(document.read_text())
        if blocks:
            done = subprocess.run(
                [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{document.name}:\n{done.stderr[-2000:]}"


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_example_says_what_fits() -> None:
    script = ROOT / "examples" / "python" / "will_it_fit.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    # 102,400 bytes at BLOCK_T 64 are 1,024 over the 101,376 of sm120; an H200 has room for them twice.
    assert "rtx-pro-6000: BLOCK_T 64 is 1,024 bytes over the cap" in done.stdout
    assert "h200: BLOCK_T 64 takes 102,400 bytes" in done.stdout


def test_links_between_documents_lead_somewhere() -> None:
    for document in sorted((ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
