"""Flip every 64th byte of a cache that real compiles filled, one at a time: each run must answer as with a fresh one.

    python validation/cache_damage.py                  # some minutes
    python validation/cache_damage.py --step 4096      # a sample

Each flip is an `analyze` of three configs in this process, with a cache and a service of its own. What a damaged cache
no longer knows is "compiled" by the answers that the compiler gave before, so that a run costs milliseconds; what it
still gives is compared with them. Prints what came of it; exit code 1 when a run raised or gave other figures. Results:
cache_damage.md. Whole commands on damaged caches: fuzz.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from occupancy_cli.answers.analyze import analyze
from occupancy_cli.compile import compile_service
from occupancy_cli.compile.compile_service import CompileService, Performed
from occupancy_cli.compile.result_cache import ResultCache
from occupancy_cli.compile.worker_messages import Compiled, Warm, message_text
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.spec.settings import parse_settings

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""


def answer(folder: Path) -> tuple[list[Any], str]:
    """Figures of each config, and what the cache had to say."""
    given = read_kernel_input(f"{folder / 'k.py'}:k", ["x_ptr=*fp32", "n=i32=4096"])
    cache = ResultCache(folder / "cache")
    with CompileService(jobs=1, cache=cache) as service:
        report = analyze(given, load_gpu("h200"), service, parse_settings(["BLOCK=64,128,256"]))
    configs = [c for kernel in report.kernels for c in kernel.configs]
    return [(c.status, c.resources, c.occupancy) for c in configs], f"{cache.notice or ''}{cache.trouble or ''}"


def main() -> int:
    """Flip, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=64)
    step = parser.parse_args().step
    came: Counter[str] = Counter()
    wrong = []
    known: dict[str, Performed] = {}
    real: Callable[..., Performed] = compile_service.perform
    asked = 0

    def remembering(message: Any, *rest: Any) -> Performed:
        nonlocal asked
        asked += not isinstance(message, Warm)
        text = message_text(message)
        if text not in known:
            known[text] = real(message, *rest)
        return known[text]

    compile_service.perform = remembering
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.py").write_text(KERNEL)
        expected = answer(folder)[0]
        compiles = [m for m in known.values() if isinstance(m.answer, Compiled)]
        assert len(compiles) == len(expected) == 3
        file = next((folder / "cache").glob("results-*.sqlite"))
        good = file.read_bytes()
        started = time.monotonic()
        for at in range(0, len(good), step):
            for other in file.parent.iterdir():
                other.unlink()
            flipped = bytearray(good)
            flipped[at] ^= 0xFF
            file.write_bytes(flipped)
            os.chmod(file, 0o600)  # noqa: PTH101
            asked = 0
            try:
                found, said = answer(folder)
            except Exception as bad:  # noqa: BLE001 - whatever it is, it is reported
                found, said = [], f"{type(bad).__name__}: {bad}"
            state = "started anew" if "anew" in said else "some records lost" if asked else "as it was"
            came[state] += 1
            if found != expected:
                wrong.append(at)
                print(f"byte {at}: {found}, {said[-200:]!r}", flush=True)
        took = time.monotonic() - started
    print(f"{sum(came.values())} bytes of {len(good):,} flipped in {took:.0f} s: {dict(came)}, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
