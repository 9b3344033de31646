"""Charts by Vega-Lite, drawn to SVG when the page is written (package `vl-convert-python`, the extra `charts`).

A chart is a Vega-Lite specification without colours of its own: `INK`, `NOW` and their kin are marks that become CSS
variables, so that one drawing serves light and dark, screen and print. What a mark stands for, the `hover` of its row,
becomes its <title>, which a browser shows under the pointer. The SVG is parsed and written anew: nothing in a name can
become an element.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from occupancy_cli.errors import MissingDependencyError
from occupancy_cli.report.html.markup import Html

# Colours that no chart would choose, each in the place of a CSS variable of the page.
INK, PAPER, FAINT, GRID, NOW, USE, BEST, BINDS, IDLE = (f"#0101{n:02x}" for n in range(1, 10))
_NAMES = ("ink", "ground", "faint", "grid", "now", "use", "best", "binds", "idle")
_VARIABLES = dict(zip((INK, PAPER, FAINT, GRID, NOW, USE, BEST, BINDS, IDLE), _NAMES, strict=True))
LIGHT = {
    INK: "#1b1f24", PAPER: "#fff", FAINT: "#9aa1ab", GRID: "#e3e6ea", NOW: "#b34a00", USE: "#0072b2", BEST: "#007a5a",
    BINDS: "#b34a00", IDLE: "#b9c1cb",
}  # fmt: skip
"""The same on white, as the page has them in its light form."""
_SVG = "http://www.w3.org/2000/svg"
_OF_ACCESSIBILITY = ("role", "aria-roledescription", "aria-label", "aria-hidden")
_FONT = "system-ui, sans-serif"

CONFIG: Mapping[str, Any] = {
    "background": None,
    # The reader's font may be wider than the one that the drawing was measured with.
    "padding": {"left": 14, "right": 14, "top": 4, "bottom": 4},
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "domainColor": FAINT, "tickColor": FAINT, "gridColor": GRID,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 320, "titlePadding": 10,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "orient": "top", "symbolType": "square", "labelLimit": 320,
    },
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "labelLimit": 320},
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": INK},
}  # fmt: skip


def svg(specification: Mapping[str, Any], name: str, alt: str) -> Html:
    """The chart as SVG. `name` sets its ids apart from those of the page's other charts, `alt` says what it shows.

    `MissingDependencyError` where the package is not installed.
    """
    drawn: str = _converter().vegalite_to_svg({"config": CONFIG, **specification})
    return Html(_for_the_page(drawn, name, alt))


def can_draw() -> None:
    """`MissingDependencyError` where the package is not installed, before anything is worked out."""
    from importlib.util import find_spec

    if find_spec("vl_convert") is None:
        raise _missing()


def picture(specification: Mapping[str, Any], form: str, title: str, of: str, alt: str) -> bytes:
    """The chart on white under its title and what it is `of`, as a file: svg, png (at twice its size) or pdf.

    `MissingDependencyError` where the package is not installed.
    """
    whole = {
        "config": {**CONFIG, "background": "white", "padding": 14},
        "title": {
            "text": title, "subtitle": of, "anchor": "start", "color": INK, "subtitleColor": INK, "fontSize": 14,
            "subtitleFontSize": 11, "offset": 12,
        },
        "description": alt,
        **specification,
    }  # fmt: skip
    text = json.dumps(whole)
    for mark, colour in LIGHT.items():
        text = text.replace(json.dumps(mark), json.dumps(colour))
    convert = _converter()
    if form == "png":
        return bytes(convert.vegalite_to_png(text, scale=2.0))
    if form == "pdf":
        return bytes(convert.vegalite_to_pdf(text))
    drawn: str = convert.vegalite_to_svg(text)
    return _titles_of(drawn).encode()


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as missing:
        raise _missing() from missing
    return vl_convert


def _missing() -> MissingDependencyError:
    return MissingDependencyError(
        "charts need the package `vl-convert-python`",
        hint="Install it: python -m pip install 'occupancy-cli[charts]'",
    )


def _titles_of(drawn: str) -> str:
    """SVG with the `hover` of its marks as their titles."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)
    for element in root.iter():
        said = element.get("aria-label", "")
        if said.startswith(_HOVER):
            element.set("aria-label", said.removeprefix(_HOVER))
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = said.removeprefix(_HOVER)
            element.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _for_the_page(drawn: str, name: str, alt: str) -> str:
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)
    for element in root.iter():
        said = element.get("aria-label") if element.get("aria-roledescription") else None
        for attribute in _OF_ACCESSIBILITY:
            element.attrib.pop(attribute, None)
        if said and said.startswith(_HOVER):
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = said.removeprefix(_HOVER)
            element.insert(0, title)
        for attribute, value in list(element.attrib.items()):
            if attribute == "id":
                element.set(attribute, f"{name}-{value}")
            elif value in _VARIABLES:
                element.set(attribute, f"var(--{_VARIABLES[value]})")
            elif "url(#" in value:
                element.set(attribute, value.replace("url(#", f"url(#{name}-"))
    root.set("role", "img")
    root.set("aria-label", alt)
    width, height = (root.attrib.pop(n) for n in ("width", "height"))
    root.set("style", f"max-width:{float(width):.0f}px")
    if root.get("viewBox") is None:
        root.set("viewBox", f"0 0 {width} {height}")
    return re.sub(r"(\.\d{2})\d+", r"\1", ElementTree.tostring(root, encoding="unicode"))


_HOVER = "hover: "
HOVER_CHANNEL: Mapping[str, Any] = {"description": {"field": "hover", "type": "nominal"}}
"""The channel that every mark's `encoding` takes over: the row's `hover`, made by `hover`."""


def hover(text: str) -> str:
    """The value of a row's `hover`: what is shown under the pointer."""
    return f"{_HOVER}{text}"
