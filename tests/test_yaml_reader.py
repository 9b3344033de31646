"""The one YAML reader: values and where they stand, what it refuses, and what a hostile file costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import occupancy_cli
from occupancy_cli.errors import InputError
from occupancy_cli.yaml_reader import load_yaml, parse_yaml

TEXT = """\
name: scale
knobs:
  BLOCK: {values: [64, 128], default: 64}
notes:
  - one
  - {at: 2.5, on: yes, none: ~, hex: 0x10, text: "12"}
"""


def test_values_and_their_places() -> None:
    document = parse_yaml(TEXT, "k.yaml")
    assert document.data == {
        "name": "scale",
        "knobs": {"BLOCK": {"values": [64, 128], "default": 64}},
        "notes": ["one", {"at": 2.5, "on": True, "none": None, "hex": 16, "text": "12"}],
    }
    assert document.where(("name",)) == "k.yaml:1:1: name"
    # line 3 is `  BLOCK: {values: [64, 128], default: 64}`: `values` starts in column 11, 128 in column 24
    assert document.where(("knobs", "BLOCK", "values")) == "k.yaml:3:11: knobs.BLOCK.values"
    assert document.where(("knobs", "BLOCK", "values", 1)) == "k.yaml:3:24: knobs.BLOCK.values[1]"
    assert document.where(("notes", 1, "at")) == "k.yaml:6:6: notes[1].at"
    assert document.where(("knobs", "BLOCK", "step")) == "k.yaml:3:3: knobs.BLOCK.step"  # where it would stand
    assert document.line(("notes",)) == 4 and document.line(("nothing",)) is None
    assert parse_yaml("", "k.yaml").data is None


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("grid: [ceil_div(k, BLOCK), batch]", {"grid": ["ceil_div(k, BLOCK)", "batch"]}),
        ("[min(sms, ceil_div(m, 64) * max(2, n)), 3]", ["min(sms, ceil_div(m, 64) * max(2, n))", 3]),
        ("{value: ceil_div(n, max(a, 2)), align: 4}", {"value": "ceil_div(n, max(a, 2))", "align": 4}),
        ("{value: ceil_div(n, 2)}", {"value": "ceil_div(n, 2)"}),
        ('["f(a", b]', ["f(a", "b"]),  # quoted: it is what it says
        ("[a (b, c)]", ["a (b", "c)"]),  # no call
        ("- f(a\n- b)", ["f(a", "b)"]),  # no brackets, so no comma that cut it
    ],
)
def test_a_call_that_a_comma_cut_is_one_value(text: str, data: object) -> None:
    assert parse_yaml(text, "k.yaml").data == data


def test_what_follows_a_call_keeps_its_place() -> None:
    document = parse_yaml("grid: [ceil_div(k, BLOCK), batch]", "k.yaml")
    # columns: `grid: [` is 7 wide, so the call starts in 8; it is 18 wide with `, ` after it, so batch starts in 28
    assert (
        document.where(("grid", 0)) == "k.yaml:1:8: grid[0]" and document.where(("grid", 1)) == "k.yaml:1:28: grid[1]"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: f(c, d: 3)}", "k.yaml:1:16: a value inside a call"),
        ("a: 1\nb: [1, 2", "k.yaml:3:1: not valid YAML: did not find expected ',' or ']'"),
        ("a: 1\n  b: 2\n", "k.yaml:2:4: not valid YAML: mapping values are not allowed"),
        ("a: 1\na: 2\n", "k.yaml:2:1: key 'a' is given twice"),
        ("a: {b: 1, b: 2}\n", "k.yaml:1:11: key 'b' is given twice"),
        ("? [1, 2]\n: 3\n", "k.yaml:1:3: a key must be a plain name"),
        ("a: 1\n---\nb: 2\n", "k.yaml:2:1: a second document"),
        ("a: &x [1]\nb: *x\n", "k.yaml:2:4: aliases"),
        ("a: &x\n  - *x\n", "k.yaml:2:5: aliases"),  # a cycle
        ("a: !!python/object/apply:os.system ['true']\n", "k.yaml:1:4: tags (tag:yaml.org,2002:python"),
        ("a: !mine 3\n", "k.yaml:1:4: tags (!mine) are not supported"),
        ("a: .inf\n", "k.yaml:1:4: a: '.inf' is not a finite number"),
        ("a: 1\nb: 123456789012345678901234567890\n", "k.yaml:2:4: b: an integer of 30 characters"),
        ("a: 1\nb: \x07\n", "k.yaml:2:4: not valid YAML: "),
    ],
)
def test_what_is_wrong_and_where(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "k.yaml")
    assert said in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "k.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InputError, match=r"k\.yaml:2:4: is not UTF-8 text \(byte 8\)"):
        load_yaml(tmp_path / "k.yaml")


LEVELS = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9 if i else ['lol'] * 9)}]" for i in range(10))
HOSTILE = {
    "bomb.yaml": (LEVELS, ":2:10: aliases"),  # 9 ** 10 texts when the aliases are followed
    "long.yaml": ("a: " + "x" * 10_000_000, "a YAML file may have 1,000,000"),
    "deep.yaml": ("a: " + "[" * 100 + "]" * 100, ":1:43: nested more than 40 deep"),
    "deeper.yaml": ("[" * 900_000, "nest"),
    "mappings.yaml": ("".join(" " * i + "a:\n" for i in range(1000)), "nested more than 40 deep"),
    "cycle.yaml": ("a: &a\n  b: *a\n", ":2:6: aliases"),
    "wide.yaml": ("a: [" + "1," * 400_000 + "1]", "more than 50,000 values"),
    "keys.yaml": ("\n".join(f"k{i}: 1" for i in range(90_000)), "more than 50,000 values"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little(tmp_path: Path, name: str) -> None:
    """An error that names the place, within a second of processor time and 200 MB, the interpreter's own included."""
    text, said = HOSTILE[name]
    (tmp_path / name).write_text(text)
    code = (
        "import re, sys, time\n"
        "from pathlib import Path\n"
        "from occupancy_cli.errors import InputError\n"
        "from occupancy_cli.yaml_reader import load_yaml\n"
        "start = time.process_time()\n"
        "try:\n    load_yaml(Path(sys.argv[1]))\n"
        "except InputError as error:\n    print(str(error).splitlines()[0][-300:])\n"
        # Not ru_maxrss, which a process has from the one that started it.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]\n"
        "print(time.process_time() - start, peak)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / name)], capture_output=True, text=True, check=True, timeout=60
    )
    answer, cost = run.stdout.splitlines()
    seconds, kilobytes = (float(part) for part in cost.split())
    assert said in answer
    assert seconds < 1.0 and kilobytes < 200_000


def test_no_other_module_parses_yaml() -> None:
    package = Path(occupancy_cli.__file__).parent
    for path in package.rglob("*.py"):
        if path.name == "yaml_reader.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert "load" not in node.attr and node.attr not in ("parse", "scan", "compose"), path
