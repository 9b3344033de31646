"""The site: built strictly, whole, and without a request to anywhere."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from locations import ROOT

import occupancy_cli as occ
from occupancy_cli.cli.app import COMMANDS

pytestmark = pytest.mark.slow
if os.environ.get("OCCUPANCY_REQUIRE_DOCS") != "1":
    pytest.importorskip("material", reason="the extra `docs` is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What makes a browser fetch something: scripts, pictures, frames, and of links those that are not mere addresses.
FETCHES = re.compile(r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\ssrc=[\"']?(?:https?:)?//[^>]*>")
LINKS = re.compile(r"<link\b(?![^>]*rel=[\"']?(?:canonical|edit))[^>]*href=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_it_asks_for_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not FETCHES.search(text) and not LINKS.search(text), page
        # The theme's own script would fetch a library for these.
        assert 'class="mermaid"' not in text, page
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_reference_is_whole(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f'id="{name}"' in commands, name
    for gpu in occ.list_gpus():
        page = (site / "reference" / "gpus" / f"{gpu.id}.html").read_text(encoding="utf-8")
        assert gpu.name in page
        for sources in gpu.provenance.values():
            for source in sources.sources:
                assert not source.startswith("http") or f'href="{source.replace("&", "&amp;")}"' in page, (
                    gpu.id,
                    source,
                )
    api = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in occ.__all__:
        assert name.startswith("_") or f'id="{name.casefold()}"' in api, name
    report = (site / "reference" / "report.html").read_text(encoding="utf-8")
    assert 'id="recommendation"' in report and "shared_bytes" in report


def test_the_flow_chart_of_the_architecture_is_drawn(site: Path) -> None:
    text = (site / "architecture.html").read_text(encoding="utf-8")
    nodes = re.findall(r'^  \w+\["(.*?)"\]$', (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    shown = [html.unescape(box) for box in re.findall(r"<div>([^<]*)</div>", text[text.index('class="ranks"') :])]
    # Each node once, in the order of the ranks, which is that of the chart.
    assert len(nodes) > 10 and shown[: len(nodes)] == nodes
    assert "flowchart TD" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_search_works_from_disk(site: Path) -> None:
    address = (site / "index.html").as_uri() + "?q=carveout"
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    results = re.search(r'<ol class="md-search-result__list"[^>]*>(.*?)</ol>', shown.stdout, re.DOTALL)
    assert results is not None and "<mark" in results[1], shown.stderr[-2000:]
