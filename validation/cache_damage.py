"""Flip every 64th byte of a cache that real compiles filled, one at a time: each run must answer as with a fresh one.

    python validation/cache_damage.py                  # a quarter of an hour: a run a byte, a compile where it was lost
    python validation/cache_damage.py --step 4096      # a sample

Prints what came of it; exit 1 when a run printed a traceback, ended otherwise or gave other figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""


def answer(folder: Path) -> tuple[int, list[int], str]:
    """Exit code, registers of each config, and what was said on standard error."""
    command = [
        sys.executable,
        "-m",
        "occupancy_cli",
        "analyze",
        "k.py:k",
        "--arg",
        "x_ptr=*fp32",
        "--arg",
        "n=i32=4096",
    ]
    command += ["--set", "BLOCK=64,128,256", "--format", "json"]
    env = {**os.environ, "OCCUPANCY_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["kernels"][0]["configs"] if done.returncode == 0 else []
    return done.returncode, [c["resources"]["registers_per_thread"] for c in found], done.stderr


def main() -> int:
    """Flip, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=64)
    step = parser.parse_args().step
    came: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.py").write_text(textwrap.dedent(KERNEL))
        expected = answer(folder)[:2]
        file = next((folder / "cache").glob("results-*.sqlite"))
        good = file.read_bytes()
        for at in range(0, len(good), step):
            for other in file.parent.iterdir():
                other.unlink()
            flipped = bytearray(good)
            flipped[at] ^= 0xFF
            file.write_bytes(flipped)
            code, registers, said = answer(folder)
            came["started anew" if "started anew" in said else "as it was"] += 1
            if (code, registers) != expected or "Traceback" in said:
                wrong.append(at)
                print(f"byte {at}: exit {code}, {registers}, {said[-200:]!r}", flush=True)
    print(f"{sum(came.values())} bytes of {len(good):,} flipped: {dict(came)}, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
