"""Runs a file of kernel cases under Triton's interpreter, in a process of its own, once a test session.

TRITON_INTERPRET has to be set before a kernel's file is imported and would reach every other test of this process.
A cases file prints one JSON object a case: `{"case": name, ...}`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 300


@functools.cache
def _results(cases_file: str) -> dict[str, dict[str, Any]]:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / cases_file)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        pytest.fail(f"{cases_file} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return {row.pop("case"): row for row in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="session")
def interpreted() -> Callable[[str], dict[str, dict[str, Any]]]:
    """`interpreted(cases_file)`: the results of its cases by name. Skips without torch, unless it is required."""
    if importlib.util.find_spec("torch") is None:
        message = "torch is not installed: the kernels' numbers were not checked"
        if os.environ.get("OCCUPANCY_REQUIRE_TORCH") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return _results
