"""The console blocks of the README and of the deployment case are what the commands really print, on a terminal of 100
columns.

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
PAGES = (README, ROOT / "examples" / "deployment" / "README.md")
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
SKIPPED = (
    *("make ", "python ", "occupancy analyze my_kernel.py", "occupancy calc"),
    "occupancy plot",  # tests/report/test_plot.py
    *("occupancy verify", "occupancy measure", "occupancy calibrate", "occupancy compare"),
)


def blocks() -> list[tuple[str, str]]:
    """(command, output shown) of each command in the pages' console blocks that is run here."""
    found = []
    for block in (block for page in PAGES for block in BLOCK.findall(page.read_text())):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if not command.startswith(SKIPPED):
                found.append((command, output.strip("\n")))
    return found


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize(("command", "shown"), blocks(), ids=[c for c, _ in blocks()])
def test_the_pages_show_what_is_printed(command: str, shown: str) -> None:
    from occupancy_cli.compile.compile_service import triton_version

    written_with = re.search(r"Triton (\d+\.\d+\.\d+)", README.read_text())
    assert written_with is not None
    if triton_version() != written_with[1]:
        pytest.skip(f"the README was written with Triton {written_with[1]}")
    assert shown, f"nothing is shown for {command}"
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
    texts = {page: page.read_text() for page in PAGES}
    for command, shown in blocks():
        old = f"$ {command}\n{shown}\n" if shown else f"$ {command}\n"
        new = f"$ {command}\n{printed(command, ROOT)}\n"
        texts = {page: text.replace(old, new, 1) for page, text in texts.items()}
    for page, text in texts.items():
        page.write_text(text)


if __name__ == "__main__" and "--write" in sys.argv:
    sys.path.insert(0, str(ROOT))
    write()
