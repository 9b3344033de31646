"""Kernels of a notebook's cell: written down as they are in memory, compiled elsewhere, pruned at run time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.compiles
def test_a_kernel_of_a_cell_is_analyzed_and_pruned() -> None:
    script = Path(__file__).with_name("live_kernels.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    # Before anything was analyzed nothing is known: every config stays, and that is said.
    assert said["kept_before"] == [32, 256] and "nothing is known of it" in said["before"][0]
    small, large = said["configs"]
    assert small[:3] == [32, True, "ok"] and large[:3] == [256, True, "over_cap"]
    assert "over the cap of 65,536" in large[3] and said["dropped"] == [large[3]]
    assert said["kept"] == [32]
    assert (said["name"], said["again"], said["child"], said["html"]) == ("squares", True, 0, 3)
    assert said["notes"] == ["its prune_configs_by is not asked: every config is looked at"]
