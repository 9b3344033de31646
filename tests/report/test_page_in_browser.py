"""The page in a real browser: Chromium opens it from disk without a word on its console, and prints it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_page import HOSTILE, MADE, report, spoiled

from occupancy_cli.report.html.page import render_page
from occupancy_cli.report.provenance import Provenance

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


def test_a_browser_finds_no_element_and_runs_nothing_of_a_hostile_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    plain, hostile, raw = (tmp_path / name for name in ("plain.html", "hostile.html", "raw.html"))
    plain.write_text(render_page([report()], MADE))
    hostile.write_text(render_page([spoiled(report())], Provenance(HOSTILE, HOSTILE)))
    raw.write_text(f"<!doctype html><title>a</title><p>{HOSTILE}".replace("alert(1)", "1"))  # which waits for a click
    # The same text put into a page as it is: this browser would run it.
    assert "<title>owned</title>" in chromium("--dump-dom", raw.as_uri()).stdout
    opened, usual = (chromium("--dump-dom", page.as_uri()) for page in (hostile, plain))
    assert "<title>owned" not in opened.stdout and "CONSOLE" not in opened.stderr
    for element in ("script", "img", "svg", "style", "title", "figure", "td", "a"):
        assert opened.stdout.count(f"<{element}") == usual.stdout.count(f"<{element}"), element
