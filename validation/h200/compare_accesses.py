"""What `occupancy` reads of memory accesses against what Nsight Compute counted of them on an H200.

    python validation/h200/compare_accesses.py                      # counts by kind of kernel, two minutes
    python validation/h200/compare_accesses.py --differences        # and every access that differs
    python validation/h200/compare_accesses.py --only mma_bf16
    python validation/h200/compare_accesses.py --condense FOLDER    # of what ncu_kernels.py left, unpacked: the record

`results/accesses.json.xz` has of each launch its machine code, its arguments and what ncu said of each instruction that
accesses memory. An access is exact when its wavefronts an access and its sectors are what ncu counted, to the last one.
One that rests on an assumption about data (every masked lane takes part, loaded indices differ) is counted apart, equal
or not; what depends on data otherwise is unknown. Needs no GPU and no Triton.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import lzma
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY), str(HERE)]

import access_patterns  # noqa: E402

from occupancy_cli.readers.access_rules import (  # noqa: E402
    distinct,
    least_sectors,
    least_wavefronts,
    matrix_wavefronts,
    shared_wavefronts,
)
from occupancy_cli.readers.accesses import Access, read_accesses  # noqa: E402
from occupancy_cli.readers.kernel_parameters import ParameterPlace, constant_words, parameter_places  # noqa: E402
from occupancy_cli.readers.sass import parse_sass  # noqa: E402

RECORD = HERE / "results" / "accesses.json.xz"
STATUSES = ("exact", "inexact", "assumed, equal", "assumed, differs", "unknown")
LANE_STEPS = 2_000_000_000  # all CTAs of these small launches
SCRATCH_ADDRESS = 0x7F_0000_0000

# Of an instruction: executions, wavefronts of shared memory and the least, sectors of global memory and the least.
_FIGURES = (
    "Instructions Executed", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal", "L2 Theoretical Sectors Global",
    "L2 Theoretical Sectors Global Ideal",
)  # fmt: skip
_TOLERANCE = 0.005  # of a wavefront an access: both are totals over executions
_MEMORY = re.compile(r"\b(LDGSTS|LDG|STG|LDS|STS|LDSM|STSM|REDG?|ATOMG?|ATOMS|LDL|STL|LD|ST)\b")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/|^\s*\.L|^\s*\.text\.")


def read_record() -> dict[str, Any]:
    with lzma.open(RECORD, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def accesses_of(launch: Mapping[str, Any]) -> tuple[Access, ...]:
    """What the reader says of a recorded launch."""
    places = tuple(ParameterPlace(*place) for place in launch["places"])
    values = {int(ordinal): value for ordinal, value in launch["values"].items()}
    grid = (*launch["grid"], 1, 1)[:3]
    threads = launch["num_warps"] * 32
    words = constant_words(places, values, threads, grid)
    kernel = parse_sass(launch["sass"], launch["kernel"])
    return read_accesses(kernel, words, threads, grid, launch["shared_bytes"], LANE_STEPS).found


def status_of(access: Access, counted: Sequence[float]) -> str:
    """How an access compares with `_FIGURES` of its instruction."""
    if access.unknown:
        return "unknown"
    executed, wavefronts, _, sectors, _ = counted
    each = max(executed, 1)
    same = abs((access.wavefronts_per_access or 0.0) - wavefronts / each) < _TOLERANCE
    if access.sectors is not None:
        same = same and access.sectors == round(sectors)
    else:
        same = same and abs((access.sectors_per_access or 0.0) - sectors / each) < _TOLERANCE
    if access.assumes:
        return "assumed, equal" if same else "assumed, differs"
    return "exact" if same else "inexact"


def compare(launches: Sequence[Mapping[str, Any]], differences: bool) -> dict[str, Counter[str]]:
    """Counts of statuses by kind; launches that differ are printed with `differences`."""
    by_kind: dict[str, Counter[str]] = {}
    for launch in launches:
        counts: Counter[str] = Counter()
        for access in accesses_of(launch):
            counted = launch["counted"][f"{access.address:x}"]
            status = status_of(access, counted)
            counts[status] += 1
            if differences and status in ("inexact", "assumed, differs"):
                mine = (access.executed, access.wavefronts_per_access, access.sectors, access.sectors_per_access)
                print(f"{launch['name']} {access.address:#x} {access.op} {status}: {mine}, ncu {counted}")
        by_kind.setdefault(launch["kind"], Counter()).update(counts)
    return by_kind


def compare_patterns(patterns: Mapping[str, Any]) -> Counter[str]:
    """The rules against single accesses of known offsets: (taken, least, lanes) of each, in any order."""
    counts: Counter[str] = Counter()
    for name, about in patterns.items():
        table, unit = np.array(access_patterns.table(name)), access_patterns.unit_bytes(name)
        active = table >= 0
        addresses = np.where(active, table * unit, 0)
        lanes = active.sum(axis=1)
        if name.startswith("matrix"):
            matrices = int(name[-1])
            taken, least = matrix_wavefronts(addresses, matrices), np.full(len(table), matrices)
        elif name.startswith("shared"):
            taken = shared_wavefronts(addresses, active, unit, load="load" in name)
            least = least_wavefronts(lanes, unit, taken)
        else:
            taken = distinct(((addresses + about["address"]) // 32).astype(np.uint64), active)
            least = least_sectors(lanes, unit, taken)
        mine = Counter(zip(taken.tolist(), least.tolist(), lanes.tolist(), strict=True))
        counted = Counter(tuple(int(n) for n in each) for each in about["counted"])
        same = (mine & counted).total()
        counts["exact"] += same
        counts["inexact"] += counted.total() - same
    return counts


def print_counts(by_kind: Mapping[str, Counter[str]]) -> None:
    print(f"{'kind':12}{'accesses':>9}" + "".join(f"{status:>18}" for status in STATUSES))
    total: Counter[str] = sum(by_kind.values(), Counter())
    for kind, counts in (*sorted(by_kind.items()), ("all", total)):
        cells = "".join(f"{counts[status]:>18,}" for status in STATUSES)
        print(f"{kind:12}{counts.total():>9,}{cells}")
    share = total["exact"] / max(total.total(), 1)
    equal = (total["exact"] + total["assumed, equal"]) / max(total.total(), 1)
    print(f"{share:.1%} exact, {equal:.1%} with those that rest on an assumption")


# Making the record


def tables(page: Path) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(kernel, columns, rows) of each launch on ncu's source page as CSV; CUDA kernels come twice and count once."""
    found: list[tuple[str, list[str], list[list[str]]]] = []
    name = ""
    for row in csv.reader(page.open(encoding="utf-8")):
        if row and row[0] == "Kernel Name":
            name = row[1]
        elif row and row[0] == "Address":
            found.append((name, row, []))
        elif found and len(row) == len(found[-1][1]):
            found[-1][2].append(row)
    previous = ""
    for kernel, columns, rows in found:
        if not (kernel == previous and kernel in access_patterns.kernels()):
            yield kernel, columns, rows
        previous = kernel


def figures(columns: Sequence[str], row: Sequence[str]) -> list[float]:
    values = dict(zip(columns, row, strict=True))
    return [float(values[c].replace(",", "")) if values.get(c, "-") not in ("-", "") else 0.0 for c in _FIGURES]


def condense(folder: Path, nvdisasm: str) -> None:
    """Write the record from an unpacked `ncu.tar.gz`."""
    launches = [json.loads(line) for line in (folder / "launches.jsonl").read_text(encoding="utf-8").splitlines()]
    record: dict[str, Any] = {"launches": [], "patterns": {}}
    for about, (kernel, columns, rows) in zip(launches, tables(folder / "source.csv"), strict=True):
        if about["kernel"] != kernel:
            raise SystemExit(f"the CSV has {kernel} where {about['kernel']} was launched")
        if about["kind"] == "pattern":
            record["patterns"][kernel] = {"address": about["address"], "counted": pattern_rows(kernel, columns, rows)}
        else:
            record["launches"].append(condensed(about, columns, rows, nvdisasm))
    RECORD.write_bytes(lzma.compress(json.dumps(record, separators=(",", ":")).encode(), preset=9))
    print(f"{len(record['launches'])} launches, {len(record['patterns'])} patterns, {RECORD.stat().st_size:,} bytes")


def condensed(about: Mapping[str, Any], columns: list[str], rows: list[list[str]], nvdisasm: str) -> dict[str, Any]:
    from occupancy_cli.readers.ttgir import parse_ttgir

    cubin = base64.b64decode(about["cubin"])
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    kept = (re.sub(r"\s+", " ", line) for line in text.splitlines() if _INSTRUCTION.match(line))
    names = [name for name, _, _ in parse_ttgir(about["ttgir"]).function.arguments]
    places = parameter_places(cubin, about["kernel"])
    values: dict[int, int] = {}
    for place in places:
        if place.ordinal >= len(names):
            values[place.ordinal] = SCRATCH_ADDRESS + (place.ordinal << 20)
            continue
        value = about["arguments"].get(names[place.ordinal])
        if isinstance(value, dict):
            values[place.ordinal] = value["address"]
        elif isinstance(value, int):
            values[place.ordinal] = value
    first = int(rows[0][0], 16)
    counted = {
        f"{int(row[0], 16) - first:x}": [round(n) for n in figures(columns, row)]
        for row in rows
        if _MEMORY.search(row[1])
    }
    keys = ("name", "kind", "kernel", "grid", "num_warps", "shared_bytes", "constexprs")
    return {
        **{key: about[key] for key in keys},
        "places": [[p.ordinal, p.offset, p.bytes] for p in places],
        "values": values,
        "sass": "\n".join(kept),
        "counted": counted,
    }


def pattern_rows(kernel: str, columns: list[str], rows: list[list[str]]) -> list[list[int]]:
    """(taken, least, lanes) of a pattern kernel's own accesses."""
    operation, width = kernel.rsplit("_", 1)
    bases = {"shared_load": "LDS", "shared_store": "STS", "global_load": "LDG", "global_store": "STG",
             "matrix_load": "LDSM", "matrix_store": "STSM"}  # fmt: skip
    suffix = {"u8": ["U8"], "u16": ["U16"], "u64": ["64"], "u128": ["128"]}.get(width, [])
    base = bases[operation]
    found = []
    for row in rows:
        predicate, _, rest = row[1].strip().partition(" ") if row[1].strip().startswith("@") else ("", "", row[1])
        opcode = rest.split()[0]
        parts = opcode.split(".")
        if parts[0] != base or (base not in ("LDSM", "STSM") and [p for p in parts[1:] if p != "E"] != suffix):
            continue
        # The table itself is loaded without a predicate.
        if kernel == "global_load_u32" and not predicate:
            continue
        found.append(row)
    chosen = found[: access_patterns.COUNT] if base == "STG" else found[-access_patterns.COUNT :]
    threads = columns.index("Predicated-On Thread Instructions Executed")
    pick = (3, 4) if base in ("LDG", "STG") else (1, 2)
    return [[*(int(figures(columns, row)[i]) for i in pick), int(row[threads].replace(",", ""))] for row in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="launches whose name contains this")
    parser.add_argument("--differences", action="store_true", help="print every access that differs")
    parser.add_argument("--condense", type=Path, metavar="FOLDER")
    parser.add_argument("--nvdisasm", default="nvdisasm", help="with --condense: the program")
    given = parser.parse_args()
    if given.condense:
        condense(given.condense, given.nvdisasm)
        return 0
    record = read_record()
    launches = [each for each in record["launches"] if given.only in each["name"]]
    by_kind = compare(launches, given.differences)
    if not given.only:
        by_kind["patterns"] = compare_patterns(record["patterns"])
    print_counts(by_kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
