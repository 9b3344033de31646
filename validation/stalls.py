"""Time by source line, as `occupancy explain` tells it, beside Nsight Compute's samples of warp states on an H200.

    python validation/stalls.py                         # a line for each launch, and the counts; half a minute
    python validation/stalls.py --lines --only gemm     # the lines of some launches, with what warps waited for
    python validation/stalls.py --large                 # the same of launches that fill the GPU
    python validation/stalls.py --condense FOLDER       # of what h200/ncu_kernels.py left, unpacked: the record

`h200/results/stalls.json.xz` has, of each launch of `h200/ncu_kernels.py` with enough samples, its machine code with
control bits and lines, its TTGIR, its arguments, and ncu's samples ("# Samples", and by what the warp waited for) of
each instruction. Samples are summed by the innermost line of the kernel's own source, as the tool's are. A launch
agrees in its top line where the line with most samples is the one with most simulated cycles. Needs no GPU.
"""

from __future__ import annotations

import argparse
import base64
import json
import lzma
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "h200")]

from occupancy_cli.gpu.profiles import load_gpu  # noqa: E402
from occupancy_cli.model.occupancy import occupancy_of  # noqa: E402
from occupancy_cli.model.resources import KernelResources  # noqa: E402
from occupancy_cli.readers.line_times import launch_line_times  # noqa: E402
from occupancy_cli.readers.register_life import instruction_sources  # noqa: E402
from occupancy_cli.readers.ttgir import SourceLine  # noqa: E402

RECORD = HERE / "h200" / "results" / "stalls.json.xz"
LARGE = HERE / "h200" / "results" / "stalls-large.json.xz"
LEAST_SAMPLES = 60  # a share of a half has a standard error of 6.5 points then
FIRST_LINES = 3
POINTS = 10.0
_CONTROL = ((1 << 17) - 1) << 41  # bits 105 to 121 of an encoding, which are all that is read of it
_INSTRUCTION = re.compile(r"^(\s*/\*[0-9a-f]{4,}\*/.*;)\s*/\*\s*0x[0-9a-f]{16}\s*\*/\s*$")
_HIGH = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_KEPT = re.compile(r"^\s*\.L|^\.text\.|^\s*//## File")


@dataclass(frozen=True)
class Compared:
    """The shares of lines of one launch in percent, by line: what ncu sampled and what is simulated, and the reasons of
    both."""

    name: str
    samples: int
    sampled: Mapping[int, float]
    simulated: Mapping[int, float]
    states: Mapping[int, Mapping[str, float]]
    waits: Mapping[int, Mapping[str, float]]

    @property
    def same_top(self) -> bool:
        """Whether the line with most samples has most cycles."""
        return _first(self.sampled, 1) == _first(self.simulated, 1)

    @property
    def errors(self) -> list[float]:
        """Of the lines with most samples, how many points the shares lie apart."""
        return [abs(self.sampled[n] - self.simulated.get(n, 0.0)) for n in _first(self.sampled, FIRST_LINES)]


def _first(shares: Mapping[int, float], count: int) -> list[int]:
    return sorted(shares, key=lambda line: (-shares[line], line))[:count]


def read_record(record: Path = RECORD) -> list[dict[str, Any]]:
    with lzma.open(record, "rt", encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def compare(launch: Mapping[str, Any]) -> Compared | None:
    """A recorded launch; None where the tool simulates nothing."""
    gpu = load_gpu("h200")
    resources = KernelResources(
        launch["shared_bytes"], launch["num_warps"], 32 * launch["num_warps"], launch["registers"], launch["spilled"]
    )
    found = launch_line_times(
        launch["code"], launch["kernel"], launch["ttgir"], launch["arguments"], launch["grid"], resources, gpu,
        occupancy_of(gpu, resources).ctas_per_sm,
    )  # fmt: skip
    if found is None:
        return None
    simulated: Counter[int] = Counter()
    waits: dict[int, Counter[str]] = {}
    for each in found.lines:
        simulated[_line(each.source)] += each.cycles
        waits.setdefault(_line(each.source), Counter()).update(each.waits)
    sampled: Counter[int] = Counter()
    states: dict[int, Counter[str]] = {}
    sources = instruction_sources(launch["code"], launch["kernel"])
    for address, by_state in launch["samples"].items():
        line = _line(sources.get(int(address, 16), ()))
        sampled[line] += sum(by_state.values())
        states.setdefault(line, Counter()).update(by_state)
    total, cycles = sampled.total(), simulated.total()
    return Compared(
        launch["name"],
        total,
        {n: 100.0 * count / total for n, count in sampled.items()},
        {n: 100.0 * count / cycles for n, count in simulated.items()},
        {n: {s: 100.0 * c / total for s, c in each.most_common(4)} for n, each in states.items()},
        {n: {w: 100.0 * c / cycles for w, c in each.most_common(4)} for n, each in waits.items()},
    )


def _line(source: tuple[SourceLine, ...]) -> int:
    return source[0].line if source else 0


def condense(folder: Path, nvdisasm: str, into: Path) -> None:
    """Write a record from an unpacked `ncu.tar.gz`."""
    from compare_accesses import tables

    launches = [json.loads(line) for line in (folder / "launches.jsonl").read_text(encoding="utf-8").splitlines()]
    record = []
    for about, (kernel, columns, rows) in zip(launches, tables(folder / "source.csv"), strict=True):
        if about["kernel"] != kernel:
            raise SystemExit(f"the CSV has {kernel} where {about['kernel']} was launched")
        samples = _samples(columns, rows)
        if about["kind"] != "pattern" and sum(sum(each.values()) for each in samples.values()) >= LEAST_SAMPLES:
            record.append(_condensed(about, samples, nvdisasm))
    into.write_bytes(lzma.compress(json.dumps(record, separators=(",", ":")).encode(), preset=9))
    print(f"{len(record)} launches, {into.stat().st_size:,} bytes")


def _samples(columns: list[str], rows: list[list[str]]) -> dict[str, dict[str, int]]:
    """Samples of each instruction that has any, by the state of the warp."""
    states = {at: name.removeprefix("stall_") for at, name in enumerate(columns) if re.fullmatch(r"stall_\w+", name)}
    first = int(rows[0][0], 16)
    found = {}
    for row in rows:
        mine = {name: int(row[at].replace(",", "")) for at, name in states.items() if row[at] not in ("0", "", "-")}
        if mine:
            found[f"{int(row[0], 16) - first:x}"] = mine
    return found


def _condensed(about: Mapping[str, Any], samples: Mapping[str, Any], nvdisasm: str) -> dict[str, Any]:
    from occupancy_cli.readers.cubin import read_cubin
    from occupancy_cli.readers.ttgir import parse_ttgir

    cubin = base64.b64decode(about["cubin"])
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [nvdisasm, "-c", "-hex", "-gi", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = next(each for each in read_cubin(cubin) if each.name == about["kernel"])
    names = [name for name, _, _ in parse_ttgir(about["ttgir"]).function.arguments]
    values = {name: about["arguments"].get(name) for name in names}
    return {
        **{key: about[key] for key in ("name", "kind", "kernel", "grid", "num_warps", "shared_bytes")},
        "registers": read.registers_per_thread,
        "spilled": read.frame_bytes,
        "arguments": {name: value if isinstance(value, int) else None for name, value in values.items()},
        "ttgir": _without_paths(about["ttgir"]),
        "code": _without_paths("\n".join(_code(text))),
        "samples": samples,
    }


def _code(text: str) -> list[str]:
    """The lines of a disassembly that are read, of encodings the control bits alone."""
    kept = []
    for line in text.splitlines():
        instruction, high = _INSTRUCTION.match(line), _HIGH.match(line)
        if instruction:
            kept.append(re.sub(r"\s+", " ", instruction.group(1)) + " /* 0x0000000000000000 */")
        elif high:
            kept.append(f"/* 0x{int(high.group(1), 16) & _CONTROL:016x} */")
        elif _KEPT.match(line):
            kept.append(line)
    return kept


def _without_paths(text: str) -> str:
    """Files by their names, but for Triton's own, which are known by their folder."""
    return re.sub(r'"(?:/[^"]*)/(triton/[^"]*|[^"/]*\.py)"', r'"\1"', text)


def report(compared: Compared, lines: bool) -> str:
    """A launch in a line; with `lines`, what stands behind it."""
    apart = ", ".join(f"{error:.0f}" for error in compared.errors)
    top = "same" if compared.same_top else "other"
    text = [f"{compared.name:28}{compared.samples:>8,}   {top:6} {apart}"]
    if lines:
        for n in dict.fromkeys([*_first(compared.sampled, FIRST_LINES), *_first(compared.simulated, FIRST_LINES)]):
            ncu, mine = compared.sampled.get(n, 0.0), compared.simulated.get(n, 0.0)
            states = ", ".join(f"{s} {p:.0f}" for s, p in compared.states.get(n, {}).items())
            waits = ", ".join(f"{w} {p:.0f}" for w, p in compared.waits.get(n, {}).items() if p >= 0.5)
            text.append(f"    line {n}: ncu {ncu:.1f} % ({states}); simulated {mine:.1f} % ({waits})")
    return "\n".join(text)


def summary(compared: list[Compared]) -> str:
    """How many agree."""
    top = sum(each.same_top for each in compared)
    errors = [error for each in compared for error in each.errors]
    within = sum(error <= POINTS for error in errors)
    return (
        f"top line the same in {top} of {len(compared)} launches ({100 * top / len(compared):.0f} %); of the first "
        f"{FIRST_LINES} lines {within} of {len(errors)} shares within {POINTS:.0f} points "
        f"({100 * within / len(errors):.0f} %)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="launches whose name contains this")
    parser.add_argument("--lines", action="store_true", help="the first lines of each launch")
    parser.add_argument("--large", action="store_true", help="the record of launches that fill the GPU")
    parser.add_argument("--condense", type=Path, metavar="FOLDER")
    parser.add_argument("--nvdisasm", default="nvdisasm", help="with --condense: the program")
    given = parser.parse_args()
    record = LARGE if given.large else RECORD
    if given.condense:
        condense(given.condense, given.nvdisasm, record)
        return 0
    found = []
    print(f"{'launch':28}{'samples':>8}   {'top':6} points apart, the first {FIRST_LINES} lines")
    for launch in read_record(record):
        if given.only in launch["name"] and (compared := compare(launch)) is not None:
            found.append(compared)
            print(report(compared, given.lines), flush=True)
    print(summary(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
