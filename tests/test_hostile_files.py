"""What a hostile file costs each reader of TOML and JSON: one error that names it, in under a second and 200 MB.

(YAML has one reader: `test_yaml_reader.py`.) Each is read in a process of its own, by the function that the commands
read it with; texts are large, deep, wide, or small and packed.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from occupancy_cli.errors import InputError
from occupancy_cli.json_reader import MAX_LINE_BYTES, lines_of, parse_json, read_text

SHAPES: dict[str, Callable[[], str]] = {
    "a line of 10 MB": lambda: '{"a": "' + "x" * 10_000_000 + '"}',
    "two million empty lists": lambda: "[" + "[]," * 2_000_000 + "[]]",
    "a million empty objects": lambda: '{"results": [' + "{}," * 1_000_000 + "{}]}",
    "a hundred deep": lambda: '{"a":' * 100 + "1" + "}" * 100,
    "a million deep": lambda: "[" * 1_000_000,
    "wide text": lambda: '["' + "\N{PILE OF POO}" * 2_500_000 + '"]',
    "long number": lambda: '{"a": ' + "9" * 1_000_000 + "}",
}
TIMES_HEADER = '{"schema": "occupancy/times/1"}\n'
# Each reader with the name of the file, and how it is read. `path` is the file.
READERS = {
    "baseline": ("occupancy.lock.json", "from occupancy_cli.answers.baseline import read_lock as read"),
    "times": ("times.jsonl", "from occupancy_cli.answers.times_file import read_times as read"),
    "config table": (
        "E=8,N=64.json",
        "from occupancy_cli.spec.config_tables import read_table\ndef read(path): read_table(path, {})",
    ),
    "saved Report": ("report.json", "from occupancy_cli.answers.diff_sides import _saved as read"),
    "known Report": ("known.json", "from occupancy_cli.api.pruner import _read as read"),
    "notebook": (
        "k.ipynb",
        "from occupancy_cli.plan.source_configs import file_to_load\ndef read(path): file_to_load(path, 'k')",
    ),
    "lengths": (
        "lengths.json",
        "from occupancy_cli.spec.traffic import _numbers\ndef read(path): _numbers(str(path), f'--lengths {path}')",
    ),
}
TOML: dict[str, Callable[[], str]] = {
    "a line of 10 MB": lambda: 'a = "' + "x" * 10_000_000 + '"',
    "arrays a hundred thousand deep": lambda: "a = " + "[" * 100_000,
    "tables a hundred thousand deep": lambda: "a = " + "{a = " * 50_000,
    "a key of 100,000 parts": lambda: ".".join("a" * 100_000) + " = 1",
    "a quoted key of 60,000 parts": lambda: ".".join(['"é"'] * 45_000) + " = 1",
    "a header of 100,000 parts": lambda: "[" + " . ".join("a" * 60_000) + "]",
    "a long number": lambda: "a = " + "9" * 200_000,
    "many keys, one wrong": lambda: "[tool.occupancy]\n" + "".join(f"k{i}=1\n" for i in range(25_000)),
}
COST = """
import re, sys, time
from pathlib import Path
from occupancy_cli.errors import InputError
{importing}
for name in sys.argv[1:]:
    start = time.process_time()
    try:
        read(Path(name))
        said = "was read"
    except InputError as error:
        said = str(error).splitlines()[0][:200]
    print(f"{{time.process_time() - start}} {{said}}")
# Not ru_maxrss, which a process has from the one that started it.
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def read_all(paths: Iterable[Path], importing: str) -> list[str]:
    """What reading each said, one after the other in one process; each within its second, all within 200 MB."""
    command = [sys.executable, "-c", COST.format(importing=importing), *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    *lines, kilobytes = run.stdout.splitlines()
    costs = [line.partition(" ") for line in lines]
    assert int(kilobytes) < 200_000
    assert [said for seconds, _, said in costs if float(seconds) > 1.0] == []
    return [said for _, _, said in costs]


@pytest.mark.parametrize("reader", READERS)
def test_hostile_json_costs_little(reader: str, tmp_path: Path) -> None:
    name, importing = READERS[reader]
    paths = []
    for number, shape in enumerate(SHAPES):
        paths.append(tmp_path / str(number) / name)
        paths[-1].parent.mkdir()
        paths[-1].write_text((TIMES_HEADER if reader == "times" else "") + SHAPES[shape](), encoding="utf-8")
    for path, said in zip(paths, read_all(paths, importing), strict=True):
        assert str(path) in said


def test_hostile_toml_costs_little(tmp_path: Path) -> None:
    paths = []
    for number, shape in enumerate(TOML):
        paths.append(tmp_path / str(number) / "pyproject.toml")
        paths[-1].parent.mkdir()
        paths[-1].write_text(TOML[shape](), encoding="utf-8")
    read = read_all(paths, "from occupancy_cli.spec.project_settings import read_project as read")
    for path, said in zip(paths, read, strict=True):
        assert str(path) in said


def test_what_is_packed_is_read_a_line_at_a_time(tmp_path: Path) -> None:
    """A gigabyte of one byte is a megabyte of gzip: its first line is beyond the bound."""
    path = tmp_path / "times.jsonl.gz"
    block = b"x" * 1_000_000
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(block)
    assert path.stat().st_size < 3_000_000
    (said,) = read_all([path], READERS["times"][1])
    assert said == f"{path}:1: a line of more than {MAX_LINE_BYTES:,} bytes"


def test_lines_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'1\r\n"\xc3\xa9"\n[2]')
    assert [(n, parse_json(line, "a")) for n, line in lines_of(path)] == [(1, 1), (2, "é"), (3, [2])]
    path.write_bytes(b"1\n\xff\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2: is not UTF-8 text \(byte 0 of the line\)"):
        list(lines_of(path))
    path.with_name("cut.gz").write_bytes(gzip.compress(b"1\n" * 1000)[:-20])
    with pytest.raises(InputError, match=r"cut\.gz: cannot be read: "):
        list(lines_of(path.with_name("cut.gz")))


def test_what_is_no_json_names_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json:2: is no JSON: Expecting value \(column 7\)"):
        parse_json('{"a": 1,\n "b": x}', "a.json")
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_text(tmp_path)
    assert parse_json(json.dumps({"a": [1.5, None]}), "a") == {"a": [1.5, None]}
