"""The page in a real browser: opened from disk on a phone, a tablet and a desk, by keyboard, by people who hear it, on
paper, without a word on its console and without a request.

axe-core (https://github.com/dequelabs/axe-core) is a package of npm; `axe-core-python` brings a copy of it, and
OCCUPANCY_AXE_CORE names another, newer one (`npm pack axe-core`, axe.min.js).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from test_page import HOSTILE, MADE, report, spoiled

from occupancy_cli.report.html.page import render_page
from occupancy_cli.report.provenance import Provenance

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vl_convert")
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render_page([report()], MADE))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 768, 1440])
def test_it_opens_from_disk_at_every_width(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.events.clear()
    browser.open(page, width, dark=dark)
    assert browser.value("document.querySelectorAll('figure').length") == 7
    # Nothing sticks out of the screen; each figure shows one of its two drawings, as wide as there is room.
    assert browser.value("document.documentElement.scrollWidth") == width
    shown = "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).filter(r => r.width)"
    assert browser.value(f"{shown}.length") == 7
    assert browser.value(f"{shown}.every(r => r.left >= 0 && r.right <= {width} && r.height > 40)")
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    # The first screen has the three answers: does it fit, how full, what to set.
    if width == 1440:
        assert browser.value("document.querySelector('.answers').getBoundingClientRect().bottom") < 900
    assert browser.picture().startswith(b"\x89PNG")
    assert browser.said("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    asked = {each["request"]["url"] for each in browser.said("Network.requestWillBeSent")}
    assert asked == {page.as_uri()}


def test_it_can_be_read_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, 1440)
    assert browser.value("document.querySelectorAll('details[open]').length") == 0
    for _ in range(60):
        browser.press("Tab")
        if browser.value("document.activeElement.tagName") == "SUMMARY":
            break
    focus = "getComputedStyle(document.activeElement)"
    assert browser.value(f"{focus}.outlineStyle + {focus}.outlineWidth") == "solid2px"
    browser.press("Enter")
    assert browser.value("document.querySelectorAll('details[open] table').length") == 1
    # What scrolls can be reached, too: exports to copy and wide tables.
    reach = "[...document.querySelectorAll('pre, .scroll')].every(each => each.tabIndex == 0)"
    assert browser.value(reach)


def axe_core() -> Path | None:
    if given := os.environ.get("OCCUPANCY_AXE_CORE"):
        return Path(given)
    found = importlib.util.find_spec("axe_core_python")
    folders = found.submodule_search_locations if found is not None else None
    return Path(folders[0]) / "axe.min.js" if folders else None


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1440])
def test_axe_finds_nothing_serious(browser: Browser, page: Path, width: int, dark: bool) -> None:
    script = axe_core()
    if script is None:
        pytest.skip("axe-core is not installed")
    browser.ask("Page.setBypassCSP", enabled=True)  # else the page's policy refuses what looks at it, as it should
    browser.open(page, width, dark=dark)
    browser.value(f"{script.read_text(encoding='utf-8')};0")
    browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = browser.value("axe.run().then(r => [r.passes.length, r.violations.map(v => [v.impact, v.id, v.help])])")
    browser.ask("Page.setBypassCSP", enabled=False)
    assert found[0] > 15
    assert [each for each in found[1] if each[0] in ("serious", "critical")] == []


def test_axe_would_find_something(browser: Browser, page: Path, tmp_path: Path) -> None:
    script = axe_core()
    if script is None:
        pytest.skip("axe-core is not installed")
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(page.read_text().replace('lang="en"', "").replace("--soft:#4b5563", "--soft:#ddd"))
    browser.ask("Page.setBypassCSP", enabled=True)
    browser.open(spoiled, 1440)
    browser.value(f"{script.read_text(encoding='utf-8')};0")
    found = browser.value("axe.run().then(r => r.violations.map(v => v.id))")
    browser.ask("Page.setBypassCSP", enabled=False)
    assert {"html-has-lang", "color-contrast"} <= set(found)


def test_the_policy_refuses_a_script(browser: Browser, page: Path, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(page.read_text().replace("<main>", "<main><script>document.title='taken'</script>"))
    browser.events.clear()
    browser.open(spoiled, 1440)
    assert browser.value("document.title") != "taken"
    assert any("Content Security Policy" in each["entry"]["text"] for each in browser.said("Log.entryAdded"))


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page, 1440, dark=True)
    paper = browser.paper()
    assert paper.startswith(b"%PDF") and len(paper) > 20_000
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # No table is cut at the edge of the paper: A4 less its margins is some 718 pixels wide.
    browser.ask("Emulation.setDeviceMetricsOverride", width=718, height=1000, deviceScaleFactor=1, mobile=False)
    wide = "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > 718).length"
    assert browser.value(wide) == 0


def dumped(page: Path) -> subprocess.CompletedProcess[str]:
    """The page as the browser has it once its scripts have run, and its console."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)


def test_a_browser_finds_no_element_and_runs_nothing_of_a_hostile_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    plain, hostile, raw = (tmp_path / name for name in ("plain.html", "hostile.html", "raw.html"))
    plain.write_text(render_page([report()], MADE))
    hostile.write_text(render_page([spoiled(report())], Provenance(HOSTILE, HOSTILE)))
    raw.write_text(f"<!doctype html><title>a</title><p>{HOSTILE}".replace("alert(1)", "1"))  # which waits for a click
    # The same text put into a page as it is: this browser would run it.
    assert "<title>owned</title>" in dumped(raw).stdout
    opened, usual = (dumped(page) for page in (hostile, plain))
    assert "<title>owned" not in opened.stdout and "CONSOLE" not in opened.stderr
    for element in ("script", "img", "svg", "style", "title", "figure", "td", "a"):
        assert opened.stdout.count(f"<{element}") == usual.stdout.count(f"<{element}"), element
