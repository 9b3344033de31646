"""The page in a real browser: Chromium opens it from disk without a word on its console, and prints it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_page import MADE, report

from occupancy_cli.report.html.page import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def test_it_opens_and_prints(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(render_page([report()], MADE))
    opened = chromium("--dump-dom", page.as_uri())
    # The browser found the elements that were written, and its policy had nothing to refuse.
    assert opened.stdout.count("<figure") == 7 and opened.stdout.count("<svg") == 14
    assert "CONSOLE" not in opened.stderr and "Content-Security-Policy" not in opened.stderr
    chromium("--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri())
    assert paper.read_bytes().startswith(b"%PDF") and paper.stat().st_size > 20_000
