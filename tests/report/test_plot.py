"""`occupancy plot`: pictures of the report's charts, and the README's gallery, which is made by it.

`PYTHONPATH=.:tests python tests/report/test_plot.py --write` makes the gallery anew.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from locations import ROOT
from test_page import report

from occupancy_cli.errors import MissingDependencyError
from occupancy_cli.report.html import charts, vega
from occupancy_cli.report.html.style import STYLE

# What depends on no time: bytes, registers and CTAs are the compiler's.
GALLERY = {
    "limits.svg": ["limits"],
    "map.svg": [
        "map",
        *(w for s in ("BLOCK_H=16", "TARGET_CTAS=160", "BLOCK_T=64", "num_warps=8") for w in ("--set", s)),
    ],
}
README = (ROOT / "README.md").read_text()


def plot(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "occupancy_cli", "plot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def texts(svg: str) -> list[str]:
    """All words and numbers of a picture; where they stand depends on the fonts of the machine."""
    root = ElementTree.fromstring(svg)
    drawn = [e.text for e in root.iter() if e.tag.endswith(("}text", "}tspan", "}title")) and e.text]
    return sorted(drawn)


@pytest.mark.compiles
@pytest.mark.one_triton
@pytest.mark.usefixtures("shipped_compiled")
@pytest.mark.parametrize("name", GALLERY)
def test_the_gallery_is_what_its_command_draws(name: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    done = plot(*GALLERY[name], "-o", str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    committed = ROOT / "docs" / "pictures" / name
    drawn = texts((tmp_path / name).read_text())
    assert len(drawn) > 20 and drawn == texts(committed.read_text())
    assert f"docs/pictures/{name}" in README
    assert f"occupancy plot {' '.join(GALLERY[name])} -o docs/pictures/{name}" in README


@pytest.mark.parametrize(("form", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_every_form_has_title_axes_and_units(form: str, start: bytes) -> None:
    pytest.importorskip("vl_convert")
    for chart in (charts.limits_chart(report().kernels[0], 0), charts.time_chart(report().sweep)):
        assert chart is not None
        made = vega.picture(chart.draw(600), form, chart.title, "mla on G", chart.says)
        assert made.startswith(start) and len(made) > 2_000
        if form == "svg":
            words = texts(made.decode())
            assert {chart.title, "mla on G"} <= set(words)
            assert {"taken of the room for CTAs, %"} <= set(words) or {"predicted us", "batch"} <= set(words)
            assert not re.search(r"#0101\d\d|var\(", made.decode())  # every colour is one


def test_its_colours_are_those_of_the_page() -> None:
    light = str(STYLE).partition("@media")[0]
    for mark, colour in vega.LIGHT.items():
        name = dict(zip(vega.LIGHT, vega._NAMES, strict=True))[mark]
        assert f"--{name}:{colour}" in light


def test_what_is_wrong_is_said_before_anything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for output, said in (
        ("x.gif", "'.gif' is no form of a picture\nName a file of .svg, .png, .pdf."),
        ("nowhere/x.png", "its folder does not exist"),
    ):
        done = plot("limits", "-o", output, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr and not done.stdout
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingDependencyError, match=r"python -m pip install 'occupancy-cli\[charts\]'"):
        vega.can_draw()


if __name__ == "__main__" and "--write" in sys.argv:
    for name, arguments in GALLERY.items():
        print(plot(*arguments, "-o", f"docs/pictures/{name}"))
