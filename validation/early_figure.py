"""Is the shared memory read after the allocation pass the one that a full compile ends with?

    python validation/early_figure.py SPEC... [--gpu GPU]     # run it under each supported Triton

Compiles every config of every spec twice, once to the allocation pass and once through ptxas, in fresh workers, and
compares. Exits 1 on any difference. Configs that do not compile are counted with their kind.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from occupancy_cli import load_gpu
from occupancy_cli.compile.compile_service import CompileService
from occupancy_cli.errors import OccupancyError
from occupancy_cli.plan.kernel_input import read_kernel_input
from occupancy_cli.plan.points import points
from occupancy_cli.plan.prepared_kernel import prepare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="+")
    parser.add_argument("--gpu", default="rtx-pro-6000")
    parser.add_argument("--most", type=int, default=40, help="configs of one spec")
    options = parser.parse_args()
    gpu = load_gpu(options.gpu)
    found: Counter[str] = Counter()
    version = ""
    for name in options.specs:
        with CompileService() as service, CompileService() as early_service:
            version = service.triton
            try:
                kernel = prepare(read_kernel_input(name), gpu, service.describe, {}, {})
                chosen = [p.main.request for p in points(kernel, gpu, None)][: options.most]
            except OccupancyError as failed:
                print(f"{name}: {failed.problem}")
                found["not loaded"] += 1
                continue
            early = early_service.compile_all([replace(r, stop_above=-1) for r in chosen])
            full = service.compile_all(chosen)
        for request, first, last in zip(chosen, early, full, strict=True):
            if first.resources is None or last.resources is None:
                found[f"{first.kind or last.kind}"] += 1
            elif first.resources.registers_per_thread is not None:
                found["fell back to the full compile"] += 1
            elif first.resources.shared_bytes == last.resources.shared_bytes:
                found["equal"] += 1
            else:
                found["DIFFERENT"] += 1
                print(
                    f"{name} {dict(request.constexprs)}: {first.resources.shared_bytes} {last.resources.shared_bytes}"
                )
    print(f"Triton {version}, {len(options.specs)} specs, {gpu.name}: {dict(found)}")
    return 1 if found["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
