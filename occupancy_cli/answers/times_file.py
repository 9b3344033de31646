"""The file of measured times, `occupancy/times/1`: one JSON object a line, the first says what was measured and how.

    {"schema": "occupancy/times/1", "kernel": "k.yaml", "gpu": "h200-sxm", "triton": "3.9.0", "identity": ["batch", ...
    {"batch": 80, "BLOCK": 64, "num_warps": 4, "grid": [64], "smem": 0, "regs": 16, ..., "us_total": 3.9, ...

Every other line is a point: its shapes, knobs, config and derived names by their own names, then `grid`, what the
loaded kernel takes (`smem` dynamic bytes, `regs`, `spills` local bytes / 4, `ctas_per_sm` by the driver), `us_split`
(the main kernel alone, microseconds), `us_total` (with what follows it), `spread_percent`, `sm_clock_mhz`, and, where
it applies, `throttled` (what held the clock down) and `shared` (other processes were on the GPU). A file may be
compressed with gzip.

Read strictly, a `Measurement` a line: a name that is not known, a value of another type, a time that no launch takes, a
point that the file has twice, are errors that name the line. The one exception is a last line that was cut short.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from occupancy_cli.compile.kernel_record import ConfigValue
from occupancy_cli.compile.request import KernelSource
from occupancy_cli.compile.typed_json import WrongData, from_plain
from occupancy_cli.errors import InputError, unknown_name

SCHEMA = "occupancy/times/1"
Row = Mapping[str, Any]
MOST_US = 120e6
"""No launch is waited for longer."""
LEAST_US = 0.01
_POWERS_OF_TWO = ("num_warps", "num_ctas")
_MOST_WARPS = 64


@dataclass(frozen=True)
class Figures:
    """What was measured of a point, as its line has it beside the point's own names."""

    us_total: float
    us_split: float | None = None
    spread_percent: float = 0.0
    sm_clock_mhz: int | None = None
    grid: tuple[int, ...] = ()
    smem: int | None = None
    regs: int | None = None
    spills: int | None = None
    ctas_per_sm: int | None = None
    throttled: tuple[str, ...] = ()
    shared: bool = False
    copies: int = 1


@dataclass(frozen=True)
class Measurement:
    """A measured point: its `names` (shapes, knobs, config, derived), what was measured, and where it stands.

    The device and the toolchain are the file's (`TimesHeader`).
    """

    names: Mapping[str, ConfigValue]
    figures: Figures
    line: int = 0

    @property
    def row(self) -> Row:
        """The point as its line has it: names and figures beside one another, without what was not given."""
        given = {n: v for n, v in asdict(self.figures).items() if v is not None and v != _DEFAULTS.get(n)}
        return {**self.names, **given}


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
    rows: tuple[Measurement, ...]

    def usable(self) -> tuple[list[Measurement], list[str]]:
        """The rows that stand for the GPU alone at its own clock, and how many were left out and why."""
        usable = [r for r in self.rows if not r.figures.throttled and not r.figures.shared]
        notes = []
        throttled = sum(bool(r.figures.throttled) for r in self.rows)
        shared = sum(r.figures.shared for r in self.rows)
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
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as bad:
        raise InputError(f"cannot be read: {bad}", where=str(path)) from bad
    header = _header(lines[0] if lines else "", path)
    rows: list[Measurement] = []
    seen: dict[str, int] = {}
    kinds: dict[str, tuple[type[Any], int]] = {}
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as bad:
            if number == len(lines):
                break  # the writer was stopped in the middle of it
            raise InputError(f"is no JSON: {bad}", where=where) from bad
        measured = _measurement(row, header, number, where)
        for name, value in measured.names.items():
            kind, first = kinds.setdefault(name, (type(value), number))
            if value is not None and kind is not type(None) and type(value) is not kind:
                raise InputError(
                    f"{name} is {value!r}; on line {first} it is a {_KINDS.get(kind, kind.__name__)}", where=where
                )
        key = row_key(measured.names, header.identity)
        if key in seen:
            raise InputError(
                f"the point of line {seen[key]} again", where=where, hint="Keep one of the two: a point has one time."
            )
        seen[key] = number
        rows.append(measured)
    return Times(str(path), header, tuple(rows))


_KINDS = {int: "whole number", float: "number", str: "text", bool: "truth value"}
_DEFAULTS = {f.name: f.default for f in fields(Figures) if f.default is not MISSING and f.name != "spread_percent"}


def _measurement(row: Any, header: TimesHeader, number: int, where: str) -> Measurement:
    """The point of one line; `InputError` for what is none."""
    if not isinstance(row, dict):
        raise InputError("a point is an object of names and values", where=where)
    known = {f.name for f in fields(Figures)}
    for name in row:
        if name not in known and name not in header.identity:
            raise unknown_name("name of a point", name, [*header.identity, *sorted(known)], where=where)
    if "us_total" not in row:
        raise InputError("a point has no time `us_total`", where=where)
    given = {n: v for n, v in row.items() if n in known}
    names: dict[str, Any] = {n: v for n, v in row.items() if n not in known}
    try:
        figures = from_plain(Figures, {**_plain_defaults(), **given})
        for name, value in names.items():
            from_plain(ConfigValue, value, name)  # type: ignore[arg-type]
    except WrongData as wrong:
        raise InputError(str(wrong), where=where) from wrong
    problem = _wrong_figure(figures) or next(filter(None, map(_wrong_option, names.items())), "")
    if problem:
        raise InputError(problem, where=where)
    return Measurement(names, figures, number)


def _plain_defaults() -> dict[str, Any]:
    return {f.name: [] if f.default == () else f.default for f in fields(Figures) if f.default is not MISSING}


def _wrong_figure(figures: Figures) -> str:
    """What of the figures no launch has; empty for none."""
    for name in ("us_total", "us_split"):
        value = getattr(figures, name)
        if value is not None and not LEAST_US <= value <= MOST_US:
            return f"{name} is {value:g}: a launch takes {LEAST_US:g} to {MOST_US:g} microseconds"
    if not 0 <= figures.spread_percent < math.inf:
        return f"spread_percent is {figures.spread_percent:g}, below 0 or without end"
    if not all(extent >= 1 for extent in figures.grid) or len(figures.grid) > 3:
        return f"grid is {list(figures.grid)}: one to three extents of at least 1"
    least = {"smem": 0, "regs": 0, "spills": 0, "ctas_per_sm": 0, "copies": 1, "sm_clock_mhz": 1}
    for name, lowest in least.items():
        value = getattr(figures, name)
        if value is not None and value < lowest:
            return f"{name} is {value}, below {lowest}"
    return ""


def _wrong_option(item: tuple[str, Any]) -> str:
    """What of a launch option or a number no launch has; empty for nothing."""
    name, value = item
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}"
    if name in _POWERS_OF_TWO:
        if type(value) is not int or value < 1 or value & (value - 1) or value > _MOST_WARPS:
            return f"{name} is {value!r}: a power of two, 1 to {_MOST_WARPS}"
    elif name == "num_stages" and (type(value) is not int or value < 0):
        return f"num_stages is {value!r}: a whole number of at least 0"
    elif name == "maxnreg" and value is not None and (type(value) is not int or value < 1):
        return f"maxnreg is {value!r}: a whole number of at least 1"
    return ""


def _header(line: str, path: Path) -> TimesHeader:
    where = f"{path}:1"
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise InputError(
            f"does not start with the line `schema: {SCHEMA}`",
            where=where,
            hint="`occupancy measure -o FILE` writes such a file.",
        )
    defaults = {f.name: f.default for f in fields(TimesHeader) if f.default is not MISSING}
    try:
        return from_plain(TimesHeader, {**defaults, **data})
    except WrongData as wrong:
        raise InputError(f"the first line is not in order: {wrong}", where=where) from wrong


def sources_sha256(sources: Sequence[KernelSource], beside: Sequence[str] = ()) -> str:
    """A hash of the files of kernels, and of those `beside` them, by content; empty where one lies in a module."""
    digest = hashlib.sha256()
    for source in dict.fromkeys(sources):
        if source.file is None:
            return ""
        digest.update(Path(source.file).read_bytes())
    for file in beside:
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()
