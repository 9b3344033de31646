"""Rows a second of `occupancy calc --input`: the whole command, from JSON Lines on disk to JSON Lines on disk.

    python benchmarks/calculator.py            # prints, and fails below 100,000 rows a second
    python benchmarks/calculator.py --write    # and keeps it in benchmarks/results/calculator.json

Reading, checking, the model, and writing are all in it; so is the start of the process, which is also given apart (the
same command on one row). Every answer is compared with the scalar model for a sample of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "calculator.json"
WANTED = 100_000


def row(rng: random.Random) -> dict[str, int]:
    """A config as an autotuner would try it: about a fifth of them cannot launch on the GPU of the benchmark."""
    return {
        "threads": rng.choice([64, 128, 256, 512]),
        "regs": rng.randint(16, 255),
        "shared": rng.randint(0, 110_000),
    }


def run(source: Path, target: Path) -> float:
    command = [sys.executable, "-m", "occupancy_cli", "calc", "--gpu", "rtx-pro-6000", "--input", str(source)]
    start = time.perf_counter()
    with target.open("w") as out:
        subprocess.run(command, stdout=out, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return time.perf_counter() - start


def check_sample(source: Path, target: Path, rng: random.Random) -> int:
    sys.path.insert(0, str(ROOT))
    from occupancy_cli import load_gpu, occupancy

    gpu = load_gpu("rtx-pro-6000")
    asked = source.read_text().splitlines()
    answered = target.read_text().splitlines()
    assert len(asked) == len(answered)
    sample = rng.sample(range(len(asked)), min(2_000, len(asked)))
    for i in sample:
        given, found = json.loads(asked[i]), json.loads(answered[i])
        one = occupancy(
            gpu,
            threads_per_cta=given["threads"],
            registers_per_thread=given["regs"],
            shared_bytes=given["shared"],
        )
        assert found["row"] == i + 1
        found = found["occupancy"]
        assert found["ctas_per_sm"] == one.ctas_per_sm
        assert found["limits"] == dict(one.limits)
        assert found["next_cta"]["shared_bytes"] == one.next_cta.shared_bytes
    return len(sample)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rng = random.Random(2026)
    with tempfile.TemporaryDirectory() as folder:
        source, target, single = (Path(folder) / name for name in ("rows.jsonl", "answers.jsonl", "one.jsonl"))
        source.write_text("".join(json.dumps(row(rng)) + "\n" for _ in range(options.rows)))
        single.write_text('{"threads": 128, "regs": 168, "shared": 61568}\n')
        start_s = min(run(single, target) for _ in range(options.rounds))
        best_s = min(run(source, target) for _ in range(options.rounds))
        checked = check_sample(source, target, rng)
    rate = options.rows / best_s
    print(f"{options.rows:,} rows in {best_s:.2f} s: {rate:,.0f} rows a second, start of the process included")
    print(f"one row in {start_s:.2f} s; without that start: {options.rows / (best_s - start_s):,.0f} rows a second")
    print(f"{checked:,} answers compared with the scalar model: equal")
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        answer = {
            "setting": {"python": platform.python_version(), "cores": os.cpu_count(), "rounds": options.rounds},
            "rows": options.rows,
            "seconds": round(best_s, 2),
            "rows_per_second": round(rate),
            "one_row_seconds": round(start_s, 2),
        }
        RESULT.write_text(json.dumps(answer, indent=2) + "\n")
    if rate < WANTED:
        raise SystemExit(f"below {WANTED:,} rows a second")


if __name__ == "__main__":
    main()
