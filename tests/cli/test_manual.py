"""The man page and completions: every command and option in them, and shells that take them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_cli.cli.app import COMMANDS
from occupancy_cli.cli.manual import man_page, pages


def occupancy(*arguments: str, **env: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "occupancy_cli", *arguments],
        capture_output=True, text=True, check=True, env=os.environ | env,
    ).stdout  # fmt: skip


def test_the_pages_are_those_of_help() -> None:
    own, *commands = pages()
    assert [p.name for p in commands] == list(COMMANDS) and "--version" in own.options[0][0]
    (analyze,) = (p for p in commands if p.name == "analyze")
    assert analyze.usage == "occupancy analyze [OPTIONS] [[KERNEL]]"
    help_text = " ".join(occupancy("analyze", "--help", COLUMNS="400").split())
    for paragraph in analyze.text:
        assert paragraph in help_text
    for term, said in (*analyze.arguments, *analyze.options):
        assert term in help_text and " ".join(said.split()) in help_text, term


def test_the_man_page_has_every_command_and_option() -> None:
    text = occupancy("manual")
    assert text == man_page() and text.startswith('.TH OCCUPANCY 1 "" "occupancy ')
    plain = text.replace("\\-", "-").replace("\\&", "")
    for page in pages()[1:]:
        assert f"\n.SS {page.name}\n" in plain
        for term, _ in page.options:
            assert f"\n.B {term}\n" in plain, (page.name, term)
    # A line of text that starts with a dot would be a request to roff.
    known = (".TH", ".SH", ".SS", ".TP", ".PP", ".B ")
    assert all(line.startswith(known) for line in text.splitlines() if line.startswith((".", "'")))


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_has_nothing_to_say(tmp_path: Path) -> None:
    page = tmp_path / "occupancy.1"
    page.write_text(man_page())
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_script(shell: str) -> None:
    script = occupancy("completion", shell)
    assert "_OCCUPANCY_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """The script as it is sourced, with an `occupancy` on the path."""
    runner = tmp_path / "occupancy"
    as_installed = "import sys; sys.argv[0] = 'occupancy'; from occupancy_cli.cli.app import main; main()"
    runner.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{as_installed}" "$@"\n')
    runner.chmod(0o755)

    def completed(*words: str) -> list[str]:
        line = 'eval "$(occupancy completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        line += '_occupancy_completion occupancy; printf "%s\\n" "${COMPREPLY[@]}"'
        env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", line, "bash", *words], capture_output=True, text=True, check=True, env=env)
        return done.stdout.split()

    assert completed("occupancy", "cal") == ["calc", "calibrate"]
    assert completed("occupancy", "analyze", "--g") == ["--gpu", "--grid"]
    assert completed("occupancy", "analyze", "--format", "j") == ["json"]


def test_an_unknown_shell_is_one_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "occupancy_cli", "completion", "tcsh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "'bash'" in done.stderr and "Traceback" not in done.stderr
