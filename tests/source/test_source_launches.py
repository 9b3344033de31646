"""What a file says of a kernel's launches: launch sites, decorators of absent packages, what is not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.source.knob_types import SourceOptions
from occupancy_cli.source.source_knobs import read_knobs
from occupancy_cli.source.source_launches import source_options

HEAD = """
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl
from no_such_tuner import heuristics, library_entry, library_tuner, tables
"""
KERNEL = """
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, KIND: tl.constexpr = None):
    tl.store(out, tl.load(x))
"""


def said(tmp_path: Path, text: str, kernel: str = "scale") -> SourceOptions:
    path = tmp_path / "k.py"
    path.write_text(HEAD + text)
    return source_options(path, kernel)


def launched(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    found = said(tmp_path, KERNEL + text).launches
    assert not [n for launch in found for n in launch.not_read]
    return [dict(launch.values) for launch in found]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("def f(x):\n    scale[(4,)](x, x, 9, BLOCK=64, num_warps=8)\n", [{"BLOCK": 64, "num_warps": 8}]),
        ("def f(x):\n    scale[(4,)](x, x, 9, 64, tl.float16)\n", [{"BLOCK": 64, "KIND": "tl.float16"}]),
        (
            "W = 2 * 4\ndef f(x):\n    b = 32\n    scale[(4,)](x, x, 9, b, num_warps=W)\n",
            [{"BLOCK": 32, "num_warps": 8}],
        ),
        ("def f(x, w=2):\n    scale[(4,)](x, x, 9, num_warps=w)\n", [{"num_warps": 2}]),
        ("def f(x, w):\n    scale[(4,)](x, x, 9, num_warps=w)\ndef g(x):\n    f(x, 16)\n", [{"num_warps": 16}]),
        ("def f(x):\n    o = {'num_warps': 2}\n    scale[(4,)](x, x, 9, **o)\n", [{"num_warps": 2}]),
        ("def f(x):\n    scale.run(x, x, 9, grid=(4,), num_stages=5)\n", [{"num_stages": 5}]),
        ("def f(x):\n    wrap_triton(scale)[(4,)](x, x, 9, num_stages=5)\n", [{"num_stages": 5}]),
        ("def f(x, go):\n    go(scale, (4,), x, x, 9, 128, num_warps=1)\n", [{"BLOCK": 128, "num_warps": 1}]),
        ("def f(x):\n    k = scale if x else other\n    k[(4,)](x, x, 9, num_warps=1)\n", [{"num_warps": 1}]),
        (  # a launcher of the file's own: its option and what it hands on
            "def go(k, grid, *a, **more):\n    k[grid](*a, num_stages=2, **more)\n"
            "def f(x):\n    go(scale, (4,), x, num_warps=1)\n",
            [{"num_stages": 2, "num_warps": 1}],
        ),
        (  # which branch runs depends on n: both are launches that the file makes
            "def f(x, n):\n    w = 4\n    if n > 8:\n        w = 8\n    scale[(4,)](x, x, n, num_warps=w)\n",
            [{"num_warps": 4}, {"num_warps": 8}],
        ),
        (
            "def f(x):\n    for w in (1, 2):\n        scale[(4,)](x, x, 9, num_warps=w)\n",
            [{"num_warps": 1}, {"num_warps": 2}],
        ),
        ("def f(x):\n    x.sort(scale)\n    print(scale)\n", []),
    ],
)
def test_launches_are_read(tmp_path: Path, text: str, values: list[dict[str, Any]]) -> None:
    assert launched(tmp_path, text) == values


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("def f(x, w):\n    scale[(4,)](x, x, 9, num_warps=w)\n", {"num_warps"}, "parameter of f"),
        ("def f(x):\n    scale[(4,)](x, x, 9, num_warps=tables.warps())\n", {"num_warps"}, "tables"),
        ("def f(x, **o):\n    scale[(4,)](x, x, 9, **o)\n", {""}, r"**o"),
        ("def f(x):\n    o = {}\n    o['num_warps'] = 8\n    scale[(4,)](x, x, 9, **o)\n", {""}, r"**o"),
    ],
)
def test_what_a_launch_does_not_tell_is_named_with_its_line(
    tmp_path: Path, text: str, names: set[str], words: str
) -> None:
    (launch,) = said(tmp_path, KERNEL + text).launches
    assert not launch.options
    assert {n.name for n in launch.not_read} == names
    assert any(words in n.text for n in launch.not_read)
    assert all(n.line == launch.line and n.file == "k.py" for n in launch.not_read)


def test_configs_and_options_on_decorators_of_absent_packages(tmp_path: Path) -> None:
    tuned = '@library_tuner(configs=[triton.Config({"BLOCK": b}, num_warps=8) for b in (32, 64)], key=["n"])'
    found = said(tmp_path, tuned + KERNEL)
    assert [c.values["BLOCK"] for c in found.decorated] == [32, 64]
    assert {c.options["num_warps"] for c in found.decorated} == {8}
    template = "@heuristics.template(num_stages=5, num_warps=2, triton_meta={'constants': {'BLOCK': 16}})"
    (only,) = said(tmp_path, template + KERNEL).decorated
    assert only.values == {"num_stages": 5, "num_warps": 2, "BLOCK": 16}


def test_a_decorator_that_tells_nothing_is_named(tmp_path: Path) -> None:
    found = said(tmp_path, "@library_entry()" + KERNEL)
    assert [str(n) for n in found.bare] == [
        "k.py:6: the decorator @library_entry is not read: its package is not installed, what it does is not known"
    ]
    lost = said(tmp_path, "@library_tuner(configs=tables.of('scale'))" + KERNEL)
    assert not lost.decorated
    (one,) = lost.not_read
    assert one.line == 6 and "@library_tuner" in one.text and "tables.of('scale')" in one.text


def test_configs_that_an_absent_package_gives_to_triton(tmp_path: Path) -> None:
    lost = said(tmp_path, "@triton.autotune(configs=tables.of('scale'), key=[])" + KERNEL).configs_not_read
    assert lost is not None and "tables.of('scale')" in lost.text and lost.line == 6
    known = "@triton.autotune(configs=[triton.Config({'BLOCK': 16})], key=[])"
    assert said(tmp_path, known + KERNEL).configs_not_read is None


def test_a_layout_at_a_launch_is_a_value_with_all_inside_it_worked_out(tmp_path: Path) -> None:
    text = "WARPS = 4\ndef f(x):\n    l = gl.BlockedLayout([4], [32], [WARPS], [0])\n    scale[(4,)](x, x, 9, 64, l)\n"
    assert launched(tmp_path, text) == [{"BLOCK": 64, "KIND": "gl.BlockedLayout([4], [32], [4], [0])"}]


def test_a_kernel_made_by_a_call_has_the_launches_of_its_name(tmp_path: Path) -> None:
    made = (
        KERNEL.replace("@triton.jit\n", "").replace("scale", "_body")
        + "fast = library_tuner(num_warps=8)(triton.jit(_body))\n"
    )
    found = said(tmp_path, made + "def f(x):\n    fast[(4,)](x, x, 9, BLOCK=64)\n", "fast")
    assert [dict(s.values) for s in found.launches] == [{"BLOCK": 64}]
    assert [dict(s.values) for s in found.decorated] == [{"num_warps": 8}]


def test_a_kernel_taken_from_another_file_has_the_launches_of_both(tmp_path: Path) -> None:
    (tmp_path / "impl.py").write_text(HEAD + KERNEL + "def f(x):\n    scale[(4,)](x, x, 9, 16)\n")
    (tmp_path / "api.py").write_text("from impl import scale\ndef g(x):\n    scale[(4,)](x, x, 9, num_warps=2)\n")
    found = source_options(tmp_path / "api.py", "scale")
    assert [(s.file, dict(s.values)) for s in found.launches] == [
        ("api.py", {"num_warps": 2}),
        ("impl.py", {"BLOCK": 16}),
    ]


def test_kernels_in_notebooks_and_in_texts_are_listed(tmp_path: Path) -> None:
    cells = [
        HEAD,
        "%matplotlib inline\nx = torch.rand(8)\nrun(x)",
        KERNEL.replace("9", "9"),
        "def f(x):\n    scale[(4,)](x, x, 9, num_warps=2)",
    ]
    book = {"cells": [{"cell_type": "code", "source": c.splitlines(keepends=True)} for c in cells]}
    (tmp_path / "k.ipynb").write_text(json.dumps(book))
    assert [k.name for k in read_knobs(tmp_path / "k.ipynb").kernels] == ["scale"]
    assert [dict(s.values) for s in source_options(tmp_path / "k.ipynb", "scale").launches] == [{"num_warps": 2}]
    meta = "triton_meta={'signature': {'x': '*fp32', 'out': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}}"
    inner = f"{HEAD}@heuristics.pointwise(size_hints=[64], {meta})" + KERNEL
    (tmp_path / "out.py").write_text(
        f"scale = async_compile.triton('scale', '''{inner}''')\nscale.run(a, b, 4096, stream=0)\n"
    )
    (kernel,) = read_knobs(tmp_path / "out.py").kernels
    line = (
        (tmp_path / "out.py")
        .read_text()
        .splitlines()
        .index("def scale(x, out, n, BLOCK: tl.constexpr, KIND: tl.constexpr = None):")
    )
    assert (kernel.name, kernel.place.line) == ("scale", line + 1)
    found = source_options(tmp_path / "out.py", "scale")
    assert found.signature == {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert [dict(s.numbers) for s in found.launches] == [{"n": 4096}]
    assert "@heuristics.pointwise" in found.not_read[0].text


def test_a_decorator_that_ran_when_the_file_was_loaded_hides_nothing(tmp_path: Path) -> None:
    own = "import functools\ndef mine(level):\n    return lambda f: f\n@functools.wraps(print)\n@mine(level=3)"
    found = said(tmp_path, own + KERNEL)
    assert (found.not_read, found.bare, found.decorated) == ((), (), ())
