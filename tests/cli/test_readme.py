"""The README's console blocks are what the commands really print, on a terminal of 100 columns.

`PYTHONPATH=tests python tests/cli/test_readme.py --write` puts today's output in. What depends on the Triton version
is held under the one that the README was written with.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from console_blocks import printed
from locations import ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
SKIPPED = (
    *("make ", "python ", "occupancy analyze my_kernel.py", "occupancy calc"),
    *("occupancy verify", "occupancy measure", "occupancy calibrate", "occupancy compare"),
)


def blocks() -> list[tuple[str, str]]:
    """(command, output shown) of each command in the README's console blocks that is run here."""
    found = []
    for block in BLOCK.findall(README.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if not command.startswith(SKIPPED):
                found.append((command, output.strip("\n")))
    return found


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize(("command", "shown"), blocks(), ids=[c for c, _ in blocks()])
def test_the_readme_shows_what_is_printed(command: str, shown: str) -> None:
    from occupancy_cli.compile.compile_service import triton_version

    written_with = re.search(r"Triton (\d+\.\d+\.\d+)", README.read_text())
    assert written_with is not None
    if triton_version() != written_with[1]:
        pytest.skip(f"the README was written with Triton {written_with[1]}")
    assert shown, f"the README shows nothing for {command}"
    assert printed(command, ROOT) == shown


def test_every_file_that_the_readme_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_every_command_is_in_the_readme() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "occupancy_cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    text = README.read_text()
    for name in re.findall(r"^  ([a-z]+)  ", said.partition("Commands:")[2], re.MULTILINE):
        assert f"`{name}" in text, name


def write() -> None:
    text = README.read_text()
    for command, shown in blocks():
        old = f"$ {command}\n{shown}\n" if shown else f"$ {command}\n"
        text = text.replace(old, f"$ {command}\n{printed(command, ROOT)}\n", 1)
    README.write_text(text)


if __name__ == "__main__" and "--write" in sys.argv:
    sys.path.insert(0, str(ROOT))
    write()
