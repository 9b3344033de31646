"""The file of measured times, `occupancy/times/1`: one JSON object a line, the first says what was measured and how.

Every other line is a point: its shapes, knobs, config and derived names by their own names, then `grid`, what the
loaded kernel takes (`smem` dynamic bytes, `regs`, `spills` local bytes / 4, `ctas_per_sm` by the driver), `us_split`
(the main kernel alone, microseconds), `us_total` (with what follows it), `spread_percent`, `sm_clock_mhz`, and, where
it applies, `throttled` (what held the clock down) and `shared` (other processes were on the GPU). A file may be
compressed with gzip.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from occupancy_cli.compile.request import KernelSource
from occupancy_cli.errors import InputError

SCHEMA = "occupancy/times/1"
Row = Mapping[str, Any]
MEASURED = ("us_split", "us_total", "spread_percent", "sm_clock_mhz", "throttled", "shared", "copies")


@dataclass(frozen=True)
class TimesHeader:
    """What a file of times was measured on and how.

    `kernel` is what was given on the command line, `gpu` a profile's id, `device` the driver's name of the GPU,
    `source_sha256` the hash of the kernel's and its followers' files, `l2` the state of the L2 before a launch.
    """

    kernel: str
    source_sha256: str
    gpu: str
    device: str
    compute_capability: str
    sm_count: int
    triton: str
    ptxas: str
    torch: str
    l2: str
    cold: bool
    launches_per_replay: int
    replays: int
    identity: tuple[str, ...]
    sm_clock_max_mhz: int | None = None
    clocks_unknown: str = ""
    date: str = ""
    occupancy: str = ""

    def to_line(self) -> str:
        """The first line of the file."""
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    def same_measurement(self, other: TimesHeader) -> list[str]:
        """The fields in which two measurements differ so that their times do not belong together."""
        fixed = ("source_sha256", "device", "sm_count", "triton", "cold", "identity")
        return [n for n in fixed if getattr(self, n) != getattr(other, n)]


@dataclass(frozen=True)
class Times:
    """A file of times: its header and its rows, in the file's order."""

    path: str
    header: TimesHeader
    rows: tuple[Row, ...]

    def usable(self) -> tuple[list[Row], list[str]]:
        """The rows that stand for the GPU alone at its own clock, and how many were left out and why."""
        usable = [r for r in self.rows if not r.get("throttled") and not r.get("shared")]
        notes = []
        throttled = sum(bool(r.get("throttled")) for r in self.rows)
        shared = sum(bool(r.get("shared")) for r in self.rows)
        if throttled:
            notes.append(f"{throttled} of {len(self.rows)} points left out: measured with the clock held down")
        if shared:
            notes.append(f"{shared} of {len(self.rows)} points left out: other processes were on the GPU")
        return usable, notes


def row_key(row: Row, identity: Sequence[str]) -> str:
    """What makes a point the same point: its shapes, knobs, config and derived names."""
    return json.dumps([row.get(n) for n in identity])


def read_times(path: Path) -> Times:
    """Read a file of times. `InputError` for a file that is none; a last line cut short is left out."""
    if not path.is_file():
        raise InputError("there is no such file", where=str(path), hint="`occupancy measure -o FILE` writes one.")
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()
    except (OSError, UnicodeDecodeError, EOFError) as bad:
        raise InputError(f"cannot be read: {bad}", where=str(path)) from bad
    header = _header(lines[0] if lines else "", path)
    rows = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as bad:
            if number == len(lines):
                break  # the writer was stopped in the middle of it
            raise InputError(f"is no JSON: {bad.msg}", where=f"{path}:{number}") from bad
        if not isinstance(row, dict) or not _is_time(row.get("us_total")):
            raise InputError("a point has no time `us_total` above 0", where=f"{path}:{number}")
        rows.append(row)
    return Times(str(path), header, tuple(rows))


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _header(line: str, path: Path) -> TimesHeader:
    try:
        data = json.loads(line)
    except json.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InputError(
            f"does not start with the line `schema: {SCHEMA}`",
            where=f"{path}:1",
            hint="`occupancy measure -o FILE` writes such a file.",
        )
    known = {f.name for f in fields(TimesHeader)}
    try:
        given: dict[str, Any] = {k: tuple(v) if k == "identity" else v for k, v in data.items() if k in known}
        return TimesHeader(**given)
    except TypeError as bad:
        raise InputError(f"the first line is incomplete: {bad}", where=f"{path}:1") from bad


def sources_sha256(sources: Sequence[KernelSource]) -> str:
    """A hash of the files of kernels, by content; empty where one lies in a module."""
    digest = hashlib.sha256()
    for source in dict.fromkeys(sources):
        if source.file is None:
            return ""
        digest.update(Path(source.file).read_bytes())
    return digest.hexdigest()
