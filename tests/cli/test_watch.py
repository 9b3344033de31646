"""`occupancy watch`: a real edit of a kernel, what it changed, and Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from occupancy_cli.answers.watch import Watched


def until(process: subprocess.Popen[bytes], there: Callable[[str], bool], limit_s: float = 120) -> str:
    """What a process prints until `there` is true of it."""
    assert process.stdout is not None
    said, end = "", time.monotonic() + limit_s
    while not there(said):
        assert select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0], said
        part = os.read(process.stdout.fileno(), 65536)
        assert part, said
        said += part.decode()
    return said


@pytest.mark.compiles
@pytest.mark.one_triton
def test_a_saved_change_is_compiled_and_compared(kernel_file: Path) -> None:
    command = [sys.executable, "-m", "occupancy_cli", "watch", f"{kernel_file}:plain", "--arg", "x_ptr=*fp32"]
    command += ["--arg", "n=i32=32", "--every", "0.05", "--gpu", "h200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        first = until(process, lambda said: "Ctrl-C ends" in said)
        assert "watching 1 files" in first and "yes" in first
        text = kernel_file.read_text()
        kernel_file.write_text(text)  # saved, and the same
        whole = "    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)"
        assert whole in text
        # Four warps tell each other their parts of the sum: 4 warps x 4 bytes of shared memory.
        summed = whole.replace("tl.load(x_ptr + at, mask=at < n)", "at * 0.0 + tl.sum(tl.load(x_ptr + at))")
        kernel_file.write_text(
            text.replace(whole, summed).replace("BLOCK: tl.constexpr = 32", "BLOCK: tl.constexpr = 512")
        )
        said = until(process, lambda said: "shared" in said and said.endswith("\n"))
        assert said.count("small.py") == 1 and "plain: shared 0 -> 16 bytes (+16)" in said
        kernel_file.write_text(text.replace(whole, "    tl.store(x_ptr + nothing, 1)"))
        said = until(process, lambda said: "nothing" in said)
        # Back to the start: compared with the last that compiled.
        kernel_file.write_text(text)
        said = until(process, lambda said: "shared 16 -> 0 bytes (-16)" in said)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()


def test_what_counts_is_the_content(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("a = 1")
    (tmp_path / "note.txt").write_text("x")
    files = Watched((tmp_path,))
    assert files.changed() == [tmp_path / "k.py"] and files.changed() == []
    os.utime(tmp_path / "k.py", (1, 1))
    assert files.changed() == []
    (tmp_path / "k.py").write_text("a = 22")
    (tmp_path / "spec.yaml").write_text("x: 1")
    assert files.changed() == [tmp_path / "k.py", tmp_path / "spec.yaml"]
    (tmp_path / "spec.yaml").unlink()
    assert files.changed() == [tmp_path / "spec.yaml"]
