"""A peer for CUDA binaries, cuxray, on the Triton launches that Nsight Compute counted, beside what `explain` says.

    python -m pip install --no-deps --target LIB cuxray==0.6.0
    python validation/cuxray.py FOLDER --cuxray LIB     # FOLDER: an unpacked ncu.tar.gz of h200/ncu_kernels.py

Of each launch: how many accesses either tool has figures for, whether it sees bank conflicts where ncu counts more
wavefronts than the least, and sectors beyond the least. cuxray runs as `report --fast --json --threads N`: its liveness
does not take these cubins with the nvdisasm that ships with Triton. nvdisasm and cuobjdump are looked for on PATH.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "h200")]

import compare_accesses  # noqa: E402

# Columns of the record's `counted`.
EXECUTED, WAVEFRONTS, LEAST_WAVEFRONTS, SECTORS, LEAST_SECTORS = range(5)
QUESTIONS = ("bank conflicts", "sectors beyond the least")


def reported(cubin: bytes, threads: int, library: Path) -> dict[str, Any] | None:
    """What cuxray says of a cubin's kernel; None where it fails."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [sys.executable, "-m", "cuxray", "report", "--fast", "--json", "--threads", str(threads), file.name]
        environment = {**os.environ, "PYTHONPATH": str(library), "CUXRAY_NO_FETCH": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout)["units"][0]["kernels"][0]
    return found


def counted_by_ncu(counted: Mapping[str, Sequence[float]]) -> dict[str, bool]:
    """Whether any access takes more than the least, by kind."""
    rows = [row for row in counted.values() if row[EXECUTED]]
    return {
        QUESTIONS[0]: any(row[WAVEFRONTS] > row[LEAST_WAVEFRONTS] for row in rows),
        QUESTIONS[1]: any(row[SECTORS] > row[LEAST_SECTORS] for row in rows),
    }


def said_by_cuxray(kernel: Mapping[str, Any]) -> dict[str, bool]:
    access = kernel["access"]
    return {
        QUESTIONS[0]: access["conflicted_shared_accesses"] > 0,
        QUESTIONS[1]: access["uncoalesced_global_accesses"] > 0,
    }


def said_here(launch: Mapping[str, Any]) -> tuple[int, int, dict[str, bool]]:
    """(accesses, those with figures, what they say) of `explain`."""
    found = compare_accesses.accesses_of(launch)
    known = [access for access in found if not access.unknown]
    return len(found), len(known), {
        QUESTIONS[0]: any((a.wavefronts_per_access or 0.0) > (a.least_wavefronts or 0.0) + 0.005 for a in known),
        QUESTIONS[1]: any((a.sectors_per_access or 0.0) > (a.least_sectors_per_access or 0.0) + 0.005 for a in known),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cuxray", type=Path, required=True, metavar="LIB", help="where it is installed")
    parser.add_argument("--leave-out", default="kernel,shipped", help="kinds of launches that are not compared")
    given = parser.parse_args()
    lines = (given.folder / "launches.jsonl").read_text(encoding="utf-8").splitlines()
    cubins = {about["name"]: about.get("cubin") for about in map(json.loads, lines)}
    counts: Counter[str] = Counter()
    for launch in compare_accesses.read_record()["launches"]:
        if launch["kind"] in given.leave_out.split(",") or not cubins.get(launch["name"]):
            continue
        counts["launches"] += 1
        truth = counted_by_ncu(launch["counted"])
        accesses, known, mine = said_here(launch)
        counts["accesses"] += accesses
        counts["explain has figures"] += known
        theirs = reported(base64.b64decode(cubins[launch["name"]]), 32 * launch["num_warps"], given.cuxray)
        if theirs is None:
            counts["cuxray fails"] += 1
        else:
            counts["cuxray has figures"] += theirs["access"]["analyzed_count"]
            counts["cuxray has none"] += theirs["access"]["unanalyzed_count"]
        for question in QUESTIONS:
            counts[f"ncu: {question}"] += truth[question]
            counts[f"explain agrees: {question}"] += mine[question] == truth[question]
            counts[f"cuxray agrees: {question}"] += (
                theirs is not None and said_by_cuxray(theirs)[question] == truth[question]
            )
    for name, count in counts.items():
        print(f"{name:44}{count:>8,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
