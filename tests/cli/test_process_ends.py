"""How a run ends when the machine fails it: exit code 2 and a sentence, 141 and silence, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_cli.errors import sentence

OCCUPANCY = f"{sys.executable} -m occupancy_cli"
SPEC = "schema: occupancy/kernel-spec/1\nkernel: k.py:k\n"


def _sh(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **environment}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=cwd, env=environ)


@pytest.mark.parametrize(
    "command",
    ["gpus", "calc --threads 128 --regs 168 --shared 61568 --format json", "knobs k.py --format json", "--help"],
)
def test_a_reader_that_leaves_ends_the_run_quietly(command: str, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("import triton\n")
    # The reader is gone before anything is written; `read` waits for it.
    script = f"({OCCUPANCY} {command}; echo $? >code) | (exec <&-); cat code"
    done = _sh(script, tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("141", "")


@pytest.mark.parametrize("command", ["gpus", "calc --threads 128 --regs 168 --shared 61568 --format json", "--help"])
def test_a_full_disk_is_named(command: str, tmp_path: Path) -> None:
    done = _sh(f"{OCCUPANCY} {command} >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "occupancy: standard output: cannot write: No space left on device\n"


def test_a_closed_output_is_named(tmp_path: Path) -> None:
    done = _sh(f"{OCCUPANCY} gpus >&-", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("occupancy: standard output: cannot write")


def test_closed_input_and_errors_do_not_matter(tmp_path: Path) -> None:
    done = _sh(f"{OCCUPANCY} calc --threads 128 --regs 168 --shared 61568 <&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert "CTAs" in done.stdout


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "k.yaml").write_text(SPEC)
    (tmp_path / "gone").mkdir()
    done = _sh(f"cd gone; rmdir ../gone; {OCCUPANCY} check {tmp_path}/k.yaml", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 2


@pytest.mark.parametrize("name", ["loop.yaml", "n" * 300 + ".yaml", "folder.yaml", "secret.yaml/x.yaml", "loop.py:k"])
def test_a_name_that_leads_nowhere(name: str, tmp_path: Path) -> None:
    for link in ("loop.yaml", "loop.py"):
        (tmp_path / link).symlink_to(link)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "secret.yaml").write_text(SPEC)
    done = _sh(f"{OCCUPANCY} check '{name}'", tmp_path)
    assert done.returncode == 2
    assert name.partition(":")[0][:20] in done.stderr
    assert "Traceback" not in done.stderr
    assert "occupancy itself" not in done.stderr


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_locale_without_our_letters(locale: dict[str, str], tmp_path: Path) -> None:
    done = _sh(f"{OCCUPANCY} gpus", tmp_path, **locale)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    done = _sh(f"{OCCUPANCY} check $'\\xff.yaml'", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_our_own_fault_says_where_and_how_to_see_more(tmp_path: Path) -> None:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as bad:
        text = sentence(bad)
    assert text.startswith("an error of occupancy itself: ZeroDivisionError: division by zero at test_process_ends.py:")
    assert text.endswith("OCCUPANCY_DEBUG=1 shows where it came from.")
