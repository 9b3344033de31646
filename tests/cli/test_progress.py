"""What a run says on standard error while it works, and where colours go."""

from __future__ import annotations

import io
import sys
import time

import pytest

from occupancy_cli.cli import progress
from occupancy_cli.compile.compile_service import Progress
from occupancy_cli.report.check_formats import text_of
from occupancy_cli.report.schema import Finding, Report, Toolchain
from occupancy_cli.report.terminal import render
from occupancy_cli.report.terminal.console import make_console


class NoTerminal(io.StringIO):
    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(("ci", "lines"), [("true", True), ("1", True), ("", False), ("false", False)])
def test_in_ci_a_line_now_and_then(ci: str, lines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(progress._LineNowAndThen, "EVERY_S", 0.02)
    said = NoTerminal()
    monkeypatch.setattr(sys, "stderr", said)
    with progress.compiling() as show:
        assert (show is not None) == lines
        if show is not None:
            show(Progress(3, 12, "mla BLOCK=64\n::error::", 30.0))
            time.sleep(0.3)
            show(Progress(12, 12, "mla", 0.0))
    found = said.getvalue().splitlines()
    assert bool(found) == lines
    assert set(found) <= {"compiling: 3 of 12 done, about 30 s left; last mla BLOCK=64\\n::error::"}


def failing() -> Report:
    long = "needs " + "very " * 60 + "much"
    finding = Finding(level="violation", kernel="k", gpu="g", config={}, rule="launch", message=long)
    return Report(command="check", toolchain=Toolchain(occupancy="1"), findings=[finding])


@pytest.mark.parametrize(("force", "coloured"), [("1", True), (None, False)])
def test_forced_colours_fold_nothing(
    force: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if force is not None:
        monkeypatch.setenv("FORCE_COLOR", force)
    monkeypatch.setenv("TERM", "xterm")
    render(failing(), make_console())
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if "needs" in line)
    assert "very much" in line
    assert ("\x1b[" in out) == coloured
    assert "\x1b" not in text_of(failing(), "table")
