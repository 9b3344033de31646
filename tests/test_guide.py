"""The pages for assistants are true: each command of the guide runs, and what llms.txt names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from locations import ROOT

from occupancy_cli.cli.app import COMMANDS, app

GUIDE = ROOT / "docs" / "assistants.md"
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def my_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, x.to(tl.float32), mask=at < n)
"""


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "occupancy_cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def commands() -> list[str]:
    """The commands of the guide's blocks, a line each."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_the_guide_is_what_is_printed_and_one_page() -> None:
    printed = _run(["guide"], ROOT)
    assert (printed.returncode, printed.stdout) == (0, GUIDE.read_text())
    assert len(printed.stdout.splitlines()) < 75 and len(commands()) > 10
    assert all(command.startswith("occupancy ") for command in commands())


# These compile the shipped kernel anew, with explanations or in dozens of configs: that they parse has to do here.
COSTLY = ("explain", "fit", "diff")


@pytest.mark.parametrize("command", commands())
def test_each_command_of_the_guide_parses(command: str) -> None:
    _, name, *arguments = command.split()
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, arguments)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize("command", [c for c in commands() if c.split()[1] not in COSTLY])
def test_each_command_of_the_guide_runs(command: str, tmp_path: Path) -> None:
    (tmp_path / "my_kernel.py").write_text(KERNEL)
    done = _run(command.split()[1:], tmp_path)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_what_the_pages_name_is_there() -> None:
    text = (ROOT / "llms.txt").read_text()
    assert text.startswith("# occupancy\n\n> ") and len(text.splitlines()) < 40
    links = re.findall(r"^- \[.+?\]\((.+?)\): ", text, re.MULTILINE)
    assert len(links) > 8 and links == [link for link in links if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
    for page in (text, GUIDE.read_text(), (ROOT / "docs" / "mcp.md").read_text()):
        named = set(re.findall(r"`occupancy (\w+)", page))
        assert named and named <= set(COMMANDS), page[:40]
