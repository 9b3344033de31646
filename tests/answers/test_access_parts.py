"""Accesses in `explain`: the value to blame, and what a terminal shows of it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from occupancy_cli.answers.access_causes import Arguments, causes_of
from occupancy_cli.compile.request import ArgumentValue
from occupancy_cli.readers.accesses import Access
from occupancy_cli.readers.ttgir import SourceLine
from occupancy_cli.report.explain_parts import AccessCause, MemoryAccess, SourceText
from occupancy_cli.report.terminal import accesses

LINE = (SourceLine("/home/me/copy.py", 8),)
# A lane of a copy moves eight neighbouring bf16 by eight loads of two bytes: 16 sectors for 64 bytes.
NARROW = Access(0x1C0, "LDG.E.U16", 16, 1024, 0.0, 0.0, 16384, 2048, 16.0, 2.0, False, "", (), 16, 0)


def _causes(access: Access, count: int = 1, *, converts: bool = False, **values: ArgumentValue) -> dict[str, str]:
    given = Arguments({"copy.py:8": tuple(values)}, values)
    return {c.kind: c.text for c in causes_of(access, [access] * count, LINE, given, converts=converts)}


def test_the_value_that_keeps_accesses_narrow_is_named() -> None:
    found = _causes(NARROW, 8, n=ArgumentValue("n", "i32", 262_141))
    assert list(found) == ["width"]
    assert found["width"].startswith("8 accesses of 2 bytes") and found["width"].endswith(
        "n = 262,141 is no multiple of 16"
    )
    pointer = _causes(NARROW, 8, x_ptr=ArgumentValue("x_ptr", "*bf16", align=2))
    assert pointer["width"].endswith("x_ptr is aligned to 2 bytes")


def test_accesses_that_stand_alone_are_strided_and_not_narrow() -> None:
    assert _causes(NARROW)["stride"] == "neighbouring lanes lie 16 bytes apart"
    side_by_side = replace(NARROW, sectors_per_access=2.0, lane_stride_bytes=2)
    assert _causes(side_by_side) == {}
    off = replace(side_by_side, sectors_per_access=3.0, offset_bytes=4)
    assert _causes(off)["misalignment"].startswith("the first lane lies 4 bytes into a 32-byte sector")


def test_conflicts_conversions_spills_and_loads_that_wait() -> None:
    shared = replace(NARROW, op="STS.128", bits=128, sectors_per_access=0.0, least_sectors_per_access=0.0)
    conflict = replace(shared, wavefronts_per_access=32.0, least_wavefronts=4.0)
    assert _causes(conflict)["bank conflict"].startswith("32 wavefronts where 4 would do")
    assert "layout conversion" in _causes(shared, converts=True)
    assert "at every trip" in _causes(replace(shared, op="LDL", in_loop=True))["spill"]
    assert _causes(replace(NARROW, in_loop=True, lane_stride_bytes=2, sectors_per_access=2.0))["not pipelined"] == (
        "asynchronous copies move 4 bytes a lane at least, this load 2"
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_shows_the_line_with_its_waste_and_its_cause(width: int) -> None:
    source = SourceText(
        file="copy.py", line=8, text="tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)"
    )
    cause = AccessCause(kind="width", text="8 accesses of 2 bytes where 16-byte ones would do: n = 262,141 ...")
    narrow = MemoryAccess(
        op="LDG.E.U16", bits=16, executed=1024, wavefronts_per_access=0.0, least_wavefronts=0.0, sectors=16384,
        least_sectors=2048, sectors_per_access=16.0, least_sectors_per_access=2.0, in_loop=False, basis="exact",
        causes=[cause], source=source,
    )  # fmt: skip
    unknown = replace(
        narrow, op="LDG.E", executed=None, wavefronts_per_access=None, least_wavefronts=None, sectors=None,
        least_sectors=None, sectors_per_access=None, least_sectors_per_access=None, basis="unknown",
        reason="its address depends on loaded data", causes=[], source=replace(source, line=9),
    )  # fmt: skip
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False)
    for line in accesses.lines([narrow] * 8 + [unknown], width):
        console.print(line)
    shown = out.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    # Eight loads of 16,384 sectors where 2,048 would do.
    for said in (
        "8 LDG.E.U16",
        "131,072 sectors, 8.0x the least",
        "width: 8 accesses",
        "unknown for 1 access: its address",
    ):
        assert said in " ".join(shown.split()), said
